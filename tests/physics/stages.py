"""All smooth stages as one jitted function: fed the oracle's own records, or chained from a state."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import oracle

from diffsim.actuator.activation import advance_activation
from diffsim.actuator.actuation import actuation
from diffsim.actuator.actuators import Command
from diffsim.actuator.transmission import transmission
from diffsim.compiler.interpret import interpret
from diffsim.enums import EnableBit
from diffsim.physics.applied import applied_force
from diffsim.physics.bias import bias
from diffsim.physics.body_forces import body_forces
from diffsim.physics.com import com_frame
from diffsim.physics.energy import energy
from diffsim.physics.inertia import joint_inertia
from diffsim.physics.kinematics import kinematics
from diffsim.physics.passive import passive
from diffsim.physics.tendon import tendons
from diffsim.physics.velocity import velocities
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
    poses, com, paths, inertia, moments, rates, passives = read
    qpos, qvel = state.qpos, state.qvel
    drive = actuation(model, state.act, Command(inputs.ctrl), moments, rates, passives)
    records = [
        kinematics(model, qpos, inputs.mocap_pos, inputs.mocap_quat),
        com_frame(model, poses),
        tendons(model, qpos, poses, com),
        joint_inertia(model, com, paths),
        transmission(model, qpos, poses, com, paths),
        velocities(model, qvel, com, paths, moments),
        passive(model, qpos, qvel, poses, com, paths, rates, moments),
        bias(model, qvel, poses, com, rates, paths),
        drive,
        body_forces(model, qvel, qacc, inputs.xfrc_applied, poses, com, rates, wrenches),
        energy(model, qpos, qvel, poses, com, paths, inertia),
    ]
    others = {
        "applied": applied_force(model, inputs, poses, com),
        "act": advance_activation(model, state.act, drive.act_dot, rates.actuator_velocity),
    }
    return records, others


each_stage = jax.jit(stages_of)


def interpreted(*arguments: Any) -> Any:
    """`each_stage` without compilation, for models that are looked at once."""
    return interpret(stages_of, *arguments)


def all_stages(model: Model, state: State, inputs: Inputs) -> list[Any]:
    """Every stage's record, each computed from those before it (accelerations and contact wrenches zero)."""
    qpos, qvel = state.qpos, state.qvel
    poses = kinematics(model, qpos, inputs.mocap_pos, inputs.mocap_quat)
    com = com_frame(model, poses)
    paths = tendons(model, qpos, poses, com)
    inertia = joint_inertia(model, com, paths)
    moments = transmission(model, qpos, poses, com, paths)
    rates = velocities(model, qvel, com, paths, moments)
    passives = passive(model, qpos, qvel, poses, com, paths, rates, moments)
    nothing = jnp.zeros_like(inputs.xfrc_applied)
    return [
        poses,
        com,
        paths,
        inertia,
        moments,
        rates,
        passives,
        bias(model, qvel, poses, com, rates, paths),
        actuation(model, state.act, Command(inputs.ctrl), moments, rates, passives),
        body_forces(model, qvel, jnp.zeros_like(qvel), inputs.xfrc_applied, poses, com, rates, nothing),
        energy(model, qpos, qvel, poses, com, paths, inertia),
        [applied_force(model, inputs, poses, com)],
    ]


def compare(path: str, seed: int, tolerance: float, run: Any = each_stage) -> None:
    """Compares all stages with the oracle in one random state, relative to the largest value of each field."""
    model, mjmodel = load(path)
    data = oracle.sample(mjmodel, seed)
    # a model whose inertia matrix is singular has no acceleration
    data.qacc[:] = np.where(np.isfinite(data.qacc), data.qacc, 0)
    wrenches = oracle.constraint_wrenches(mjmodel, data)
    read = tuple(oracle.record_of(cls, mjmodel, data) for cls in READ)
    state, inputs = oracle.state_of(data), oracle.inputs_of(data)
    records, others = run(model, state, inputs, read, np.array(data.qacc), wrenches)
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
