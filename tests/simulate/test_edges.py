"""Models and inputs at the edge: nothing to move, nothing at all, controls that are no numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracle import mujoco, state_of, stepped
from simulate.quaternions import TURNING

import diffsim
from diffsim.base.enums import Integrator, Solver, Status
from tests.uncompiled import uncompiled

EMPTY = {
    "nothing": "<mujoco/>",
    "one geom": '<mujoco><worldbody><geom size=".1"/></worldbody></mujoco>',
    "sensors": '<mujoco><worldbody><site name="s"/><geom size=".1"/><camera name="c"/></worldbody>'
    '<sensor><clock/><framepos objtype="site" objname="s"/><gyro site="s"/></sensor></mujoco>',
    "welded": '<mujoco><worldbody><body name="b"><geom size=".1"/></body></worldbody>'
    '<equality><weld body1="b"/></equality></mujoco>',
}
step, forward = uncompiled(diffsim.step), uncompiled(diffsim.forward)
LIMITED = '<motor joint="j" ctrllimited="true" ctrlrange="-1 1"/>'
FREE = '<motor joint="j"/>'


@pytest.mark.parametrize("solver", Solver)
@pytest.mark.parametrize("name", EMPTY)
def test_models_without_degrees_of_freedom_step(name: str, solver: Solver) -> None:
    model = diffsim.load(EMPTY[name])
    model = model.replace(opt=model.opt.replace(solver=solver))
    start = diffsim.make_state(model)
    state, data = step(model, start), forward(model, start)
    assert model.nv == 0 and state.time == model.opt.timestep and int(data.status) == 0
    theirs = mujoco.MjModel.from_xml_string(EMPTY[name])
    expected = mujoco.MjData(theirs)
    mujoco.mj_forward(theirs, expected)
    np.testing.assert_allclose(data.sensordata, expected.sensordata, atol=1e-12)


@pytest.mark.parametrize("integrator", Integrator)
def test_models_without_degrees_of_freedom_integrate(integrator: Integrator) -> None:
    model = diffsim.load(EMPTY["one geom"])
    model = model.replace(opt=model.opt.replace(integrator=integrator))
    states = jax.vmap(lambda _: diffsim.make_state(model))(jnp.arange(3))
    after = uncompiled(jax.vmap(diffsim.step, in_axes=(None, 0)))(model, states)
    np.testing.assert_allclose(after.time, model.opt.timestep)


@pytest.mark.parametrize(
    ("actuator", "ctrl", "bad"),
    [(FREE, np.nan, True), (FREE, np.inf, True), (FREE, 1e11, True), (LIMITED, np.nan, True), (LIMITED, np.inf, False)],
)
def test_bad_controls_count_as_zero_and_are_flagged(actuator: str, ctrl: float, bad: bool) -> None:
    # as in the oracle, a control is judged after its range: an infinite one within a range is the range's end
    body = '<body><joint name="j"/><geom size=".1"/></body>'
    model = diffsim.load(f"<mujoco><worldbody>{body}</worldbody><actuator>{actuator}</actuator></mujoco>")
    inputs = diffsim.make_inputs(model).replace(ctrl=jnp.array([ctrl]))
    data = forward(model, diffsim.make_state(model), inputs)
    assert bool(data.status & Status.BAD_CTRL) == bad
    assert float(data.actuator_force[0]) == (0 if bad else 1)


def test_quaternions_of_any_length_move_as_in_the_oracle() -> None:
    """Those shorter than 1e-15 are the identity, and turn like it; derivatives are finite at all lengths."""
    model, theirs = diffsim.load(TURNING), mujoco.MjModel.from_xml_string(TURNING)
    one, other = np.array([0.1, -0.7, 0.5, 0.5]), np.array([0.5, 0.1, 0.5, -0.7])

    def height(qpos: jax.Array, state: diffsim.State, inputs: diffsim.Inputs) -> jax.Array:
        after = diffsim.step(model, state.replace(qpos=qpos), inputs)
        return jnp.sum(jnp.sin(after.qpos)) + jnp.sum(after.qvel)

    slope = uncompiled(jax.grad(height))
    for length in (0.0, 1e-300, 9e-16, 2e-15, 1e-9, 1e-3, 1.0, 1e8):
        oracle = mujoco.MjData(theirs)
        oracle.qpos[:] = np.concatenate([[0, 0, 1], length * one, length * other, [3, 3, 3], length * one])
        oracle.mocap_quat[0] = length * other
        oracle.qvel[:] = np.linspace(-1, 2, theirs.nv)
        state = state_of(oracle)
        inputs = diffsim.make_inputs(model).replace(mocap_quat=jnp.asarray(oracle.mocap_quat))
        assert np.isfinite(slope(state.qpos, state, inputs)).all()
        for _ in range(2):
            mujoco.mj_step(theirs, oracle)
            state = step(model, state, inputs)
        np.testing.assert_allclose(state.qpos, oracle.qpos, atol=1e-12)
        np.testing.assert_allclose(state.qvel, oracle.qvel, atol=1e-10)
        data = forward(model, state, inputs)
        mujoco.mj_forward(theirs, oracle)
        np.testing.assert_allclose(data.sensordata, oracle.sensordata, atol=1e-12)


def test_actuators_that_are_all_disabled_do_not_move() -> None:
    text = (
        '<mujoco><option><flag actuation="disable"/></option><worldbody><body><joint name="j"/><geom size=".1"/></body>'
        f"</worldbody><actuator>{FREE}</actuator></mujoco>"
    )
    model, oracle = diffsim.load(text), stepped(mujoco.MjModel.from_xml_string(text), np.ones(1), 3)
    data = forward(model, state_of(oracle))
    assert oracle.qvel[0] and not oracle.actuator_velocity[0]
    np.testing.assert_array_equal(data.actuator_velocity, oracle.actuator_velocity)
