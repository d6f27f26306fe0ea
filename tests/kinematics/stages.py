"""All smooth stages as one function: fed the oracle's own records, or chained from a state."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import oracle

from diffsim.actuator.actuation import advance_activation, compute_actuation
from diffsim.actuator.actuators import Command
from diffsim.actuator.transmission import compute_transmission
from diffsim.base.enums import EnableBit
from diffsim.dynamics.bias import compute_bias
from diffsim.dynamics.body_forces import applied_force, compute_body_forces, external_wrenches
from diffsim.dynamics.energy import compute_energy
from diffsim.dynamics.inertia import compute_inertia
from diffsim.dynamics.passive import compute_passive
from diffsim.kinematics.com import compute_com_frame, compute_velocities
from diffsim.kinematics.poses import compute_kinematics
from diffsim.kinematics.tendon import compute_tendons, tendon_drift
from diffsim.types import Inputs, Model, State
from diffsim.types.data import (
    Actuation,
    Bias,
    BodyForces,
    ComFrame,
    Energy,
    Inertia,
    Kinematics,
    Passive,
    Tendons,
    Transmission,
    Velocities,
)
from tests.uncompiled import uncompiled

Array = jax.Array

COMPARED = (
    Kinematics,
    ComFrame,
    Tendons,
    Inertia,
    Transmission,
    Velocities,
    Passive,
    Bias,
    Actuation,
    BodyForces,
    Energy,
)
READ = (Kinematics, ComFrame, Tendons, Inertia, Transmission, Velocities, Passive)


@functools.cache
def load(path: str) -> tuple[Model, Any]:
    """(ours, oracle), energies on. The oracle maps frames by their full offset, as we do, not by 1e-6 coincidence."""
    mjmodel = oracle.load_oracle(path).__copy__()
    mjmodel.opt.enableflags |= EnableBit.ENERGY
    for name in ("body_sameframe", "geom_sameframe", "site_sameframe"):
        getattr(mjmodel, name)[:] = 0
    return oracle.from_mujoco(mjmodel), mjmodel


def stages_of(
    model: Model, state: State, inputs: Inputs, read: tuple[Any, ...], qacc: Array, wrenches: Array
) -> tuple[list[Any], dict[str, Array]]:
    """Every stage's record from the given records, and what is not part of a record."""
    kinematics, com, tendons, inertia, transmission, velocities, passive = read
    qpos, qvel = state.qpos, state.qvel
    external = external_wrenches(model, inputs, kinematics, com, wrenches)
    actuation = compute_actuation(model, state.act, Command(inputs.ctrl), transmission, velocities, passive)
    records = [
        compute_kinematics(model, qpos, inputs.mocap_pos, inputs.mocap_quat),
        compute_com_frame(model, kinematics),
        compute_tendons(model, qpos, kinematics, com),
        compute_inertia(model, com, tendons),
        compute_transmission(model, qpos, kinematics, com, tendons),
        compute_velocities(model, qvel, com, tendons, transmission),
        compute_passive(model, state, kinematics, com, tendons, velocities),
        compute_bias(model, qvel, com, velocities, tendons, tendon_drift(model, qvel, kinematics, com, velocities)),
        actuation,
        compute_body_forces(model, qvel, qacc, com, velocities, external),
        compute_energy(model, state, kinematics, tendons, inertia),
    ]
    others = {
        "applied": applied_force(model, inputs, kinematics, com),
        "act": advance_activation(model, state.act, actuation.act_dot, velocities.actuator_velocity),
    }
    return records, others


each_stage = uncompiled(stages_of)


def all_stages(model: Model, state: State, inputs: Inputs) -> list[Any]:
    """Every stage's record, each computed from those before it (accelerations and contact wrenches zero)."""
    qpos, qvel = state.qpos, state.qvel
    kinematics = compute_kinematics(model, qpos, inputs.mocap_pos, inputs.mocap_quat)
    com = compute_com_frame(model, kinematics)
    tendons = compute_tendons(model, qpos, kinematics, com)
    inertia = compute_inertia(model, com, tendons)
    transmission = compute_transmission(model, qpos, kinematics, com, tendons)
    velocities = compute_velocities(model, qvel, com, tendons, transmission)
    passive = compute_passive(model, state, kinematics, com, tendons, velocities)
    external = external_wrenches(model, inputs, kinematics, com, jnp.zeros_like(inputs.xfrc_applied))
    return [
        kinematics,
        com,
        tendons,
        inertia,
        transmission,
        velocities,
        passive,
        compute_bias(model, qvel, com, velocities, tendons, tendon_drift(model, qvel, kinematics, com, velocities)),
        compute_actuation(model, state.act, Command(inputs.ctrl), transmission, velocities, passive),
        compute_body_forces(model, qvel, jnp.zeros_like(qvel), com, velocities, external),
        compute_energy(model, state, kinematics, tendons, inertia),
        [applied_force(model, inputs, kinematics, com)],
    ]


def compare(path: str, seed: int, tolerance: float) -> None:
    """Compares all stages with the oracle in one random state, relative to the largest value of each field."""
    model, mjmodel = load(path)
    data = oracle.sample(mjmodel, seed)
    # a model whose inertia matrix is singular has no acceleration
    data.qacc[:] = np.where(np.isfinite(data.qacc), data.qacc, 0)
    wrenches = oracle.constraint_wrenches(mjmodel, data)
    read = tuple(oracle.record_of(cls, mjmodel, data) for cls in READ)
    state, inputs = oracle.state_of(data), oracle.inputs_of(data)
    records, others = each_stage(model, state, inputs, read, np.array(data.qacc), wrenches)
    for cls, record in zip(COMPARED, records, strict=True):
        assert type(record) is cls
        for field in dataclasses.fields(cls):
            name = "qM" if field.name == "M" else field.name
            value, expected = getattr(record, name), oracle.field_of(name, mjmodel, data)
            assert not getattr(value, "weak_type", False), field.name
            scale = 1 + np.max(np.abs(expected), initial=0)
            oracle.assert_close(f"{path} {field.name}", value, expected, tolerance * scale)
    applied = oracle.applied_force(mjmodel, data)
    scale = 1 + np.max(np.abs(applied), initial=0)
    oracle.assert_close(f"{path} applied", others["applied"], applied, tolerance * scale)
    oracle.assert_close(f"{path} act", others["act"], oracle.next_activation(mjmodel, data), tolerance)
