"""A, B, C, D beside mjd_transitionFD, and the regulator that they give."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from oracle import assert_close, inputs_of, state_of

import diffsim
from diffsim import optimize
from tests.optimize.problems import CARTPOLE
from tests.uncompiled import uncompiled

# a ball joint, a limit that holds, a dragging finger on the floor, activations, sensors of all stages
XML = """<mujoco><option timestep=".004" integrator="implicitfast"/><worldbody><geom type="plane" size="3 3 .1"/>
<body pos="0 0 .5"><joint type="ball" damping=".2"/><geom type="capsule" size=".05" fromto="0 0 0 .5 0 -.2"/>
<body pos=".5 0 -.2"><joint name="h" axis="0 1 0" range="-10 20" limited="true" damping=".1"/><site name="s"/>
<geom type="sphere" size=".1" pos=".2 0 -.2"/></body></body></worldbody>
<actuator><general joint="h" dyntype="filter" dynprm=".1" gainprm="3"/><position joint="h" kp="2"/></actuator>
<sensor><jointpos joint="h"/><gyro site="s"/><accelerometer site="s"/><jointactuatorfrc joint="h"/></sensor></mujoco>"""


def test_parity_with_transition_differences() -> None:
    mjmodel = mujoco.MjModel.from_xml_string(XML)
    mjmodel.opt.iterations, mjmodel.opt.tolerance = 200, 0
    model = diffsim.load(XML)
    model = model.replace(opt=model.opt.replace(iterations=200, tolerance=1e-14))
    linearize = uncompiled(optimize.linearize)
    for seed in range(3):
        rng = np.random.default_rng(seed)
        data = mujoco.MjData(mjmodel)
        data.qvel, data.act, data.ctrl = rng.normal(size=4), rng.normal(size=1), rng.normal(size=2)
        for _ in range(30):
            mujoco.mj_step(mjmodel, data)
        system = linearize(model, state_of(data), inputs_of(data))
        nx = 2 * mjmodel.nv + mjmodel.na
        shapes = {"A": (nx, nx), "B": (nx, 2), "C": (mjmodel.nsensordata, nx), "D": (mjmodel.nsensordata, 2)}
        expected = {name: np.zeros(shape) for name, shape in shapes.items()}
        mujoco.mjd_transitionFD(mjmodel, data, 1e-6, True, *expected.values())
        # in 3.8.1 the centered D has the wrong sign (the one-sided has not)
        expected["D"] *= -1
        for name, matrix in expected.items():
            scale = max(1.0, np.abs(matrix).max())
            assert_close(name, getattr(system, name) / scale, matrix / scale, 2e-7)


def test_runge_kutta_is_linearized_too() -> None:
    """mjd_transitionFD refuses it: differences of mj_step."""
    text = CARTPOLE.replace("<option", '<option integrator="RK4"')
    mjmodel, model = mujoco.MjModel.from_xml_string(text), diffsim.load(text)
    data = mujoco.MjData(mjmodel)

    def step(x: np.ndarray) -> np.ndarray:
        mujoco.mj_resetData(mjmodel, data)
        data.qpos, data.qvel, data.ctrl = x[:2], x[2:4], x[4:]
        mujoco.mj_step(mjmodel, data)
        return np.concatenate([data.qpos, data.qvel])

    x = np.array([0.1, 0.7, -0.4, 2.0, 0.3])
    expected = np.stack([(step(x + e) - step(x - e)) / 2e-5 for e in 1e-5 * np.eye(5)], axis=1)
    state = diffsim.make_state(model).replace(qpos=jnp.asarray(x[:2]), qvel=jnp.asarray(x[2:4]))
    system = uncompiled(optimize.linearize)(model, state, diffsim.make_inputs(model).replace(ctrl=jnp.asarray(x[4:])))
    np.testing.assert_allclose(np.hstack([system.A, system.B]), expected, atol=1e-8)


def test_a_batch_is_a_batch() -> None:
    model = diffsim.load(CARTPOLE)
    state = diffsim.make_state(model)
    states = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), state)
    states = states.replace(qpos=jnp.asarray([[0.0, 0.0], [0.3, 1.0]]))
    systems = uncompiled(jax.vmap(optimize.linearize, in_axes=(None, 0)))(model, states)
    one = uncompiled(optimize.linearize)(model, jax.tree.map(lambda leaf: leaf[1], states))
    np.testing.assert_allclose(systems.A[1], one.A, atol=1e-13)
    assert systems.A.shape == (2, 4, 4) and systems.B.shape == (2, 4, 1) and systems.C.shape == (2, 0, 4)
    with pytest.raises(ValueError, match="one world at a time"):
        optimize.lqr(systems, np.ones(4), np.ones(1))
    one = jax.tree.map(lambda leaf: leaf[0], systems)
    with pytest.raises(ValueError, match=r"Q has shape \(3,\), expected \(4,\) or \(4, 4\)"):
        optimize.lqr(one, np.ones(3), np.ones(1))
    with pytest.raises(ValueError, match="R has shape"):
        optimize.lqr(one, np.ones(4), np.ones((1, 2)))


def test_a_regulator_keeps_the_pole_up() -> None:
    model = diffsim.load(CARTPOLE)
    state = diffsim.make_state(model)
    system = uncompiled(optimize.linearize)(model, state)
    regulator = optimize.lqr(system, [1, 1, 0.1, 0.1], [0.1])
    assert np.max(np.abs(np.linalg.eigvals(system.A))) > 1 > np.max(np.abs(regulator.poles))
    # the cost to go is that of the motion
    x, cost = np.array([0.05, 0.05, 0, 0]), 0.0
    start = x
    for _ in range(2000):
        u = -regulator.K @ x
        cost += x @ np.diag([1, 1, 0.1, 0.1]) @ x + 0.1 * u @ u
        x = np.asarray(system.A) @ x + np.asarray(system.B) @ u
    assert cost == pytest.approx(start @ regulator.P @ start, rel=1e-9)


def test_delays_are_refused() -> None:
    text = CARTPOLE.replace("gear=", 'delay=".04" nsample="3" gear=')
    with pytest.raises(diffsim.UnsupportedError, match="delays"):
        optimize.linearize(diffsim.load(text), diffsim.make_state(diffsim.load(text)))
