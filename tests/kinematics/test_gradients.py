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

from diffsim.kinematics.joints import integrate_position
from tests.derivatives import Derivatives, assert_finite, assert_match_differences, derivatives, weigh
from tests.kinematics import stages

Array = jax.Array

MODELS = ["smooth", "wrapping"]


@functools.cache
def build(path: str) -> Derivatives:
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

    return derivatives(result, zero)


@pytest.mark.parametrize("path", MODELS)
def test_derivatives_match_differences(path: str) -> None:
    _, mjmodel = stages.load(path)
    data = oracle.sample(mjmodel, 2)
    # away from the kinks of clamps
    data.ctrl[:] *= 0.37
    # inertias of thin bodies are nearly degenerate: only small relative changes are smooth
    assert_match_differences(build(path), oracle.state_of(data), oracle.inputs_of(data), {"model": 1e-5})


@pytest.mark.parametrize("path", MODELS)
def test_derivatives_are_finite_at_rest(path: str) -> None:
    """At qpos0 (identity quaternions, springs at ease), without velocity, activation, control or force."""
    _, mjmodel = stages.load(path)
    data = oracle.mujoco.MjData(mjmodel)
    for quaternion in ([1, 0, 0, 0], [0, 0, 0, 0], [-1, 0, 0, 0]):
        for joint in np.flatnonzero(mjmodel.jnt_type <= 1):
            start = mjmodel.jnt_qposadr[joint] + (3 if mjmodel.jnt_type[joint] == 0 else 0)
            data.qpos[start : start + 4] = quaternion
        assert_finite(build(path), oracle.state_of(data), oracle.inputs_of(data))
