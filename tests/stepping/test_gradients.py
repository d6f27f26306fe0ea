"""Derivatives of a step of each integrator, forward and reverse, against differences; finite at rest.

Contacts are off: those are in tests/gradients. What varies: position, velocity, activation, control and every float
field of the model, relative to its value.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest

import diffsim
from diffsim.enums import Integrator
from diffsim.physics.joint import integrate_position
from tests.physics.test_gradients import inner, richardson, weigh
from tests.stepping.test_integrators import pair

CASES = [
    ("smooth", Integrator.IMPLICIT),
    ("smooth", Integrator.IMPLICITFAST),
    ("spinning", Integrator.IMPLICITFAST),
]


@functools.cache
def build(path: str, integrator: Integrator) -> tuple[Any, ...]:
    model, _ = pair(path, integrator)

    def result(state: Any, inputs: Any, variation: dict[str, Any]) -> jax.Array:
        changed = jax.tree.map(lambda leaf, part: leaf * (1 + part), model, variation["model"])
        moved = state.replace(
            qpos=integrate_position(model, state.qpos, variation["qpos"], jnp.ones(())),
            qvel=state.qvel + variation["qvel"],
            act=state.act + variation["act"],
        )
        after = diffsim.step(changed, moved, inputs.replace(ctrl=inputs.ctrl + variation["ctrl"]))
        return jnp.stack([weigh(x) for x in (after.qpos, after.qvel, after.act)])

    zero = {"qpos": jnp.zeros(model.nv), "qvel": jnp.zeros(model.nv), "act": jnp.zeros(model.na)}
    zero |= {"ctrl": jnp.zeros(model.nu), "model": jax.tree.map(jnp.zeros_like, model)}

    def forward(state: Any, inputs: Any, direction: Any) -> tuple[jax.Array, jax.Array]:
        return jax.jvp(lambda v: result(state, inputs, v), (zero,), (direction,))

    def backward(state: Any, inputs: Any, weight: jax.Array) -> Any:
        return jax.vjp(lambda v: result(state, inputs, v), zero)[1](weight)[0]

    return jax.jit(result), jax.jit(forward), jax.jit(backward), zero


@pytest.mark.parametrize(("path", "integrator"), CASES)
def test_step_derivatives_match_differences(path: str, integrator: Integrator) -> None:
    result, forward, backward, zero = build(path, integrator)
    _, mjmodel = pair(path, integrator)
    data = oracle.sample(mjmodel, 2)
    data.ctrl[:] *= 0.37
    state, inputs = oracle.state_of(data), oracle.inputs_of(data)
    rng = np.random.default_rng(0)
    for part in zero:
        # inertias of thin bodies are nearly degenerate: only small relative changes are smooth
        step = 1e-5 if part == "model" else 2e-4
        direction = jax.tree.map(jnp.zeros_like, zero)
        direction[part] = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape)), zero[part])
        value, slope = forward(state, inputs, direction)
        expected = richardson(lambda v: result(state, inputs, v), direction, step)
        scale = 1 + np.abs(np.asarray(value)) + np.abs(np.asarray(slope))
        oracle.assert_close(f"{path} {part}", slope / scale, expected / scale, 1e-6)
        weight = jnp.asarray(rng.normal(size=value.shape)) / scale
        assert inner(backward(state, inputs, weight), direction) == pytest.approx(
            float(weight @ slope), rel=1e-9, abs=1e-9
        )


@pytest.mark.parametrize(("path", "integrator"), CASES)
def test_step_derivatives_are_finite_at_rest(path: str, integrator: Integrator) -> None:
    _, forward, backward, zero = build(path, integrator)
    _, mjmodel = pair(path, integrator)
    data = oracle.mujoco.MjData(mjmodel)
    state, inputs = oracle.state_of(data), oracle.inputs_of(data)
    for leaf in jax.tree.leaves(forward(state, inputs, jax.tree.map(jnp.ones_like, zero))):
        assert np.all(np.isfinite(leaf))
    for leaf in jax.tree.leaves(backward(state, inputs, jnp.ones(3))):
        assert np.all(np.isfinite(leaf))
