"""Derivatives of a step of each implicit integrator and of inverse dynamics; finite at rest.

Contacts are off: those are in tests/gradients. What varies: position, velocity, activation, control, applied forces and
every float field of the model, relative to its value.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest

import diffsim
from diffsim.base.enums import Integrator
from diffsim.kinematics.joints import integrate_position
from tests.derivatives import (
    Derivatives,
    assert_finite,
    assert_match_differences,
    derivatives,
    richardson,
    weigh,
)
from tests.simulate.test_integrators import pair
from tests.uncompiled import uncompiled

CASES = [
    ("smooth", Integrator.IMPLICIT),
    ("spinning", Integrator.IMPLICITFAST),
    ("spinning", Integrator.RK4),
]
# inertias of thin bodies are nearly degenerate: only small relative changes are smooth
STEPS = {"model": 1e-5}


def zero_variation(model: diffsim.Model) -> dict[str, Any]:
    """No change of state, inputs and model."""
    zero = {"qpos": jnp.zeros(model.nv), "qvel": jnp.zeros(model.nv), "act": jnp.zeros(model.na)}
    zero |= {"qfrc_applied": jnp.zeros(model.nv), "xfrc_applied": jnp.zeros((model.nbody, 6))}
    return zero | {"ctrl": jnp.zeros(model.nu), "model": jax.tree.map(jnp.zeros_like, model)}


def changed(model: diffsim.Model, state: Any, inputs: Any, variation: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Model, state and inputs with a variation."""
    moved = state.replace(
        qpos=integrate_position(model, state.qpos, variation["qpos"], jnp.ones(())),
        qvel=state.qvel + variation["qvel"],
        act=state.act + variation["act"],
    )
    other = jax.tree.map(lambda leaf, part: leaf * (1 + part), model, variation["model"])
    given = {name: getattr(inputs, name) + variation[name] for name in ("ctrl", "qfrc_applied", "xfrc_applied")}
    return other, moved, inputs.replace(**given)


@functools.cache
def of_step(path: str, integrator: Integrator) -> Derivatives:
    model, _ = pair(path, integrator)

    def result(state: Any, inputs: Any, variation: dict[str, Any]) -> jax.Array:
        after = diffsim.step(*changed(model, state, inputs, variation))
        return jnp.stack([weigh(x) for x in (after.qpos, after.qvel, after.act)])

    return derivatives(result, zero_variation(model))


@pytest.mark.parametrize(("path", "integrator"), CASES)
def test_step_derivatives_match_differences(path: str, integrator: Integrator) -> None:
    _, mjmodel = pair(path, integrator)
    data = oracle.sample(mjmodel, 2)
    data.ctrl[:] *= 0.37
    assert_match_differences(of_step(path, integrator), oracle.state_of(data), oracle.inputs_of(data), STEPS)


@pytest.mark.parametrize(("path", "integrator"), CASES)
def test_step_derivatives_are_finite_at_rest(path: str, integrator: Integrator) -> None:
    data = oracle.mujoco.MjData(pair(path, integrator)[1])
    assert_finite(of_step(path, integrator), oracle.state_of(data), oracle.inputs_of(data))


def test_derivatives_of_inverse_dynamics() -> None:
    model, mjmodel = pair("constraint_rows", Integrator.EULER)

    def result(state: Any, inputs: Any, variation: dict[str, Any]) -> jax.Array:
        other, moved, used = changed(model, state, inputs, variation)
        found = diffsim.inverse(other, moved, state.qacc_warmstart + variation["qacc"], used)
        return jnp.stack([weigh(found.qfrc_inverse), weigh(found.qfrc_constraint)])

    zero = {name: value for name, value in zero_variation(model).items() if name != "model"}
    functions = derivatives(
        lambda s, i, v: result(s, i, {**v, "model": zero_variation(model)["model"]}),
        {**zero, "qacc": jnp.zeros(model.nv)},
    )
    data = oracle.sample(mjmodel, 1)
    data.qacc_warmstart[:] = data.qacc
    steps = dict.fromkeys(functions.zero, 1e-5)
    assert_match_differences(functions, oracle.state_of(data), oracle.inputs_of(data), steps)
    still = oracle.mujoco.MjData(mjmodel)
    assert_finite(functions, oracle.state_of(still), oracle.inputs_of(still))


def test_quaternions_are_projected() -> None:
    """Lengths of quaternions mean nothing: no derivative along them, and at odd lengths it is that of differences."""
    text = """<mujoco><option integrator="implicitfast"/><worldbody>
      <body pos="0 0 1"><freejoint/><geom type="box" size=".1 .2 .3"/><site name="s" pos=".1 .2 .3"/>
        <body pos=".3 0 0"><joint type="ball" stiffness="2" range="0 20"/><geom size=".1" pos=".2 .1 0"/></body></body>
    </worldbody><sensor><framequat objtype="site" objname="s"/><ballquat joint="b"/></sensor></mujoco>"""
    model = diffsim.load(text.replace("<joint type", '<joint name="b" type'))
    rng = np.random.default_rng(0)
    qpos = jnp.asarray(np.concatenate([rng.normal(size=3), 1.7 * rng.normal(size=4), 0.6 * rng.normal(size=4)]))
    start = diffsim.make_state(model).replace(qvel=jnp.asarray(rng.normal(size=model.nv)))

    def value(qpos: jax.Array) -> jax.Array:
        state = start.replace(qpos=qpos)
        after = diffsim.step(model, state)
        read = diffsim.forward(model, state).sensordata
        return jnp.stack([weigh(after.qpos), weigh(after.qvel), weigh(read)])

    slopes = uncompiled(jax.jacrev(value))(qpos)
    for part in (slice(3, 7), slice(7, 11)):
        along = slopes[:, part] @ qpos[part]
        oracle.assert_close("along", np.asarray(along), np.zeros(3), 1e-10)
    way = jnp.asarray(rng.normal(size=model.nq))
    run = uncompiled(value)
    expected = richardson(lambda move: run(qpos + move), way, 1e-4)
    oracle.assert_close("raw", np.asarray(slopes @ way), expected, 1e-8)
