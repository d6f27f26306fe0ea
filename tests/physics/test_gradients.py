"""Gradients of the smooth stages: forward and reverse mode against Richardson differences, and finite where singular.

The stages are chained from a state, and each record is weighed into one number, so that one derivative of the vector
of these numbers checks every stage. What varies: position (tangent), velocity, activation, control, applied forces,
and every float field of the model, relative to its value.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest

from diffsim.physics.joint import integrate_position
from tests.physics import stages
from tests.uncompiled import uncompiled

Array = jax.Array

MODELS = ["smooth", "wrapping"]


def weigh(record: Any) -> Array:
    """One number that depends on every element of a record."""
    leaves = [jnp.ravel(leaf) for leaf in jax.tree.leaves(record)]
    joined = jnp.concatenate(leaves)
    return jnp.sum(joined * jnp.cos(1.0 + jnp.arange(joined.size)))


@functools.cache
def build(path: str) -> tuple[Any, ...]:
    """(function of state, inputs and variation, its jvp and vjp, zero variation), jitted."""
    model, mjmodel = stages.load(path)

    def result(state: Any, inputs: Any, variation: dict[str, Any]) -> Array:
        changed = jax.tree.map(lambda leaf, part: leaf * (1 + part), model, variation["model"])
        moved = dataclasses.replace(
            state,
            qpos=integrate_position(model, state.qpos, variation["qpos"], jnp.ones(())),
            qvel=state.qvel + variation["qvel"],
            act=state.act + variation["act"],
        )
        pushed = dataclasses.replace(
            inputs,
            ctrl=inputs.ctrl + variation["ctrl"],
            xfrc_applied=inputs.xfrc_applied + variation["xfrc_applied"],
        )
        return jnp.stack([weigh(record) for record in stages.all_stages(changed, moved, pushed)])

    zero = {
        "qpos": jnp.zeros(model.nv),
        "qvel": jnp.zeros(model.nv),
        "act": jnp.zeros(mjmodel.na),
        "ctrl": jnp.zeros(model.nu),
        "xfrc_applied": jnp.zeros((model.nbody, 6)),
        "model": jax.tree.map(jnp.zeros_like, model),
    }

    def forward(state: Any, inputs: Any, direction: Any) -> tuple[Array, Array]:
        return jax.jvp(lambda v: result(state, inputs, v), (zero,), (direction,))

    def backward(state: Any, inputs: Any, weight: Array) -> Any:
        return jax.vjp(lambda v: result(state, inputs, v), zero)[1](weight)[0]

    return *map(uncompiled, (result, forward, backward)), zero


def inner(a: Any, b: Any) -> float:
    return float(sum(jnp.vdot(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)))


@pytest.mark.parametrize("path", MODELS)
def test_derivatives_match_differences(path: str) -> None:
    result, forward, backward, zero = build(path)
    _, mjmodel = stages.load(path)
    data = oracle.sample(mjmodel, 2)
    # away from the kinks of clamps
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


def richardson(function: Any, direction: Any, step: float) -> np.ndarray:
    """Directional derivative at zero, by central differences of steps h and 2 h: error of order h^4."""

    def central(h: float) -> np.ndarray:
        ahead, behind = (jax.tree.map(lambda d, s=s: s * h * d, direction) for s in (1, -1))
        return (np.asarray(function(ahead)) - np.asarray(function(behind))) / (2 * h)

    return (4 * central(step) - central(2 * step)) / 3


@pytest.mark.parametrize("path", MODELS)
def test_derivatives_are_finite_at_rest(path: str) -> None:
    """At qpos0 (identity quaternions, springs at ease), without velocity, activation, control or force."""
    _, forward, backward, zero = build(path)
    _, mjmodel = stages.load(path)
    data = oracle.mujoco.MjData(mjmodel)
    for quaternion in ([1, 0, 0, 0], [0, 0, 0, 0], [-1, 0, 0, 0]):
        for joint in np.flatnonzero(mjmodel.jnt_type <= 1):
            start = mjmodel.jnt_qposadr[joint] + (3 if mjmodel.jnt_type[joint] == 0 else 0)
            data.qpos[start : start + 4] = quaternion
        state, inputs = oracle.state_of(data), oracle.inputs_of(data)
        direction = jax.tree.map(jnp.ones_like, zero)
        for leaf in jax.tree.leaves(forward(state, inputs, direction)):
            assert np.all(np.isfinite(leaf))
        for leaf in jax.tree.leaves(backward(state, inputs, jnp.ones(12))):
            assert np.all(np.isfinite(leaf))
