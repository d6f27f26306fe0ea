"""forward: the table of contents of the simulator, in MuJoCo's order.

Position, velocity, actuation, acceleration, constraint, sensors (MuJoCo documentation, "Computation"). Each stage is
a function of what it reads; nothing is integrated here. What a caller does not use, XLA removes.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import Array

from diffsim.actuator.actuation import compute_actuation
from diffsim.actuator.actuators import Command, add_user_force, user_laws
from diffsim.actuator.transmission import compute_transmission
from diffsim.base.checked import checked
from diffsim.base.enums import EnableBit
from diffsim.collision import collide_flexes, colliding_frames, slots_of
from diffsim.constraint import Sources, add_contact_springs, constraint_wrenches, contact_forces, make_constraints
from diffsim.dynamics.bias import compute_bias, motion_forces
from diffsim.dynamics.body_forces import applied_force, compute_body_forces, external_wrenches
from diffsim.dynamics.inertia import compute_inertia
from diffsim.dynamics.passive import compute_energy, compute_passive
from diffsim.flex.strain import compute_flexes
from diffsim.kinematics.com import compute_com_frame, compute_subtree_velocities, compute_velocities
from diffsim.kinematics.poses import compute_kinematics
from diffsim.kinematics.tendon import compute_tendons, tendon_drift
from diffsim.math import safe
from diffsim.sensor import read_sensors
from diffsim.simulate.arguments import check_arguments
from diffsim.simulate.sleep import resting_actuators, resting_readings, still, wake_and_collide
from diffsim.simulate.status import status
from diffsim.solver import Aids, smooth_acceleration, solve
from diffsim.solver.objective import Objective, constraint_force
from diffsim.solver.solve import derivatives_within_reach
from diffsim.types import Data, Inputs, Model, State
from diffsim.types.constraints import ActiveSet
from diffsim.types.data import ForwardInverse, Inertia, Inverse, Sleep, Transmission
from diffsim.types.history import delayed_controls, delayed_readings
from diffsim.xla.barriers import stored
from diffsim.xla.compiled import compiled

Push = Callable[[Inertia, Transmission], Array]


@checked
@compiled
def forward(model: Model, state: State, inputs: Inputs | None = None) -> Data:
    """Everything that follows from one state: poses, inertias, forces, contacts, accelerations, sensors.

    Args:
      model: the compiled model.
      state: positions, velocities, activations.
      inputs: controls and applied forces; None for `make_inputs(model)`.

    Returns:
      Data, with mjData's names; it belongs to this state.

    Raises:
      TypeError, ValueError: arguments that are not one world of this model; the message says what to do instead.
    """
    return evaluate(model, state, check_arguments(model, state, inputs))


def evaluate(
    model: Model, state: State, inputs: Inputs, active_set: ActiveSet | None = None, push: Push | None = None
) -> Data:
    """`forward` of checked arguments.

    `active_set` fixes which constraints act and push, between two events of a step (simulate/events.py). `push` are
    further applied forces (nv,), which follow from inertia and transmission (compiler/derive.py).
    """
    qpos, qvel = state.qpos, state.qvel

    # position
    kinematics = compute_kinematics(model, qpos, inputs.mocap_pos, inputs.mocap_quat)
    com = compute_com_frame(model, kinematics)
    flexes = compute_flexes(model, qvel, kinematics, com)
    tendons = compute_tendons(model, qpos, kinematics, com)
    inertia = compute_inertia(model, com, tendons)
    contacts, sleeping = wake_and_collide(model, state, inputs, tendons, colliding_frames(model, kinematics))
    contacts, slots = collide_flexes(model, kinematics, flexes, contacts), slots_of(model)
    transmission = compute_transmission(model, qpos, kinematics, com, tendons, contacts)

    # velocity
    velocities = compute_velocities(model, qvel, com, tendons, transmission)
    passive = compute_passive(model, state, kinematics, com, tendons, velocities, flexes)
    passive = add_contact_springs(model, com, flexes, (slots, contacts), passive)
    data_so_far = _data_of(kinematics, com, tendons, inertia, transmission, velocities, contact=contacts)
    passive = add_user_force(model, state, inputs, data_so_far, passive)
    drift = tendon_drift(model, qvel, kinematics, com, velocities)
    bias = compute_bias(model, qvel, com, velocities, tendons, drift)

    # actuation and acceleration
    ctrl = delayed_controls(model, state.history, state.time, inputs.ctrl)
    command = Command(ctrl, user_laws(model, state, inputs, data_so_far), state.time)
    actuation = compute_actuation(model, state.act, command, transmission, velocities, passive)
    actuation = resting_actuators(model, sleeping, actuation)
    applied = applied_force(model, inputs, kinematics, com) + (0.0 if push is None else push(inertia, transmission))
    smooth_force = stored(still(sleeping, passive.qfrc_passive - bias.qfrc_bias + actuation.qfrc_actuator + applied))

    # constraint
    others = passive.qfrc_passive + actuation.qfrc_actuator + applied
    aids = Aids(contacts.sort_key, motion_forces(model, qvel, com, velocities, others))
    asleep = None if sleeping is None else sleeping.dofs
    stages = (kinematics, com, tendons, velocities, contacts, slots)
    sources = Sources(model, state, inputs, *stages, active_set, flexes=flexes, asleep=asleep)
    constraints = make_constraints(sources)
    solution = solve(model, inertia.M, smooth_force, still(sleeping, state.qacc_warmstart), constraints, aids)
    if model.opt.contact_reach:
        rows = make_constraints(sources._replace(reach=model.opt.contact_reach))
        solution = derivatives_within_reach(model, solution, Objective(inertia.M, smooth_force, rows))
    solution = solution if sleeping is None else solution.replace(qacc=still(sleeping, solution.qacc))
    smooth = smooth_acceleration(model, inertia.M, smooth_force)

    # what only sensors and users read
    subtrees = compute_subtree_velocities(model, com, velocities)
    contact_force = contact_forces(model, contacts, constraints, solution)
    wrenches = constraint_wrenches(model, contacts, constraints, solution, com)
    external = external_wrenches(model, inputs, kinematics, com, wrenches)
    body_forces = compute_body_forces(model, qvel, solution.qacc, com, velocities, external)
    energy = compute_energy(model, state, kinematics, tendons, inertia, flexes)
    position = (kinematics, com, flexes, tendons, inertia, transmission)
    forces = (passive, bias, actuation, smooth, solution, body_forces, energy)
    sleep = Sleep(tree_sleep=state.tree_sleep if sleeping is None else sleeping.tree_asleep.astype(qvel.dtype))
    data = _data_of(*position, velocities, subtrees, *forces, sleep, contact=contacts, efc=constraints)
    data = dataclasses.replace(data, **vars(compute_forward_inverse(model, data, applied)))
    now = resting_readings(model, state, sleeping, read_sensors(model, state, inputs, data, contact_force))
    delayed = delayed_readings(model, state.history, state.time, now)
    data = dataclasses.replace(data, sensordata=delayed, sensor_now=now)
    return dataclasses.replace(data, status=status(model, state, inputs, data))


def _data_of(*records: Any, **children: Any) -> Data:
    """Data with the fields of these records, and `children` by name; all other fields are None."""
    fields: dict[str, Any] = dict.fromkeys(field.name for field in dataclasses.fields(Data))
    for record in records:
        fields |= vars(record)
    return Data(**(fields | children))


def inverse_dynamics(data: Data, qacc: Array) -> Inverse:
    """Inverse dynamics in continuous time, with the position and velocity stages in `data`.

    qfrc_inverse = M qacc + qfrc_bias - qfrc_passive - J^T f(qacc), (nv,) in N and N m.
    """
    qfrc_constraint = constraint_force(data.efc, qacc)
    force = data.M.mul_vec(qacc) + data.qfrc_bias - data.qfrc_passive - qfrc_constraint
    return Inverse(qfrc_inverse=force, qfrc_constraint=qfrc_constraint, qacc=qacc)


def compute_forward_inverse(model: Model, data: Data, applied: Array) -> ForwardInverse:
    """solver_fwdinv (2,): norms of the differences to inverse dynamics at qacc: of constraint forces, of applied ones.

    Zero unless the `fwdinv` flag asks for it.
    """
    if not model.opt.enabled(EnableBit.FWDINV):
        return ForwardInverse(solver_fwdinv=jnp.zeros((2,), data.qacc.dtype))
    inverse = inverse_dynamics(data, data.qacc)
    errors = data.qfrc_constraint - inverse.qfrc_constraint, applied + data.qfrc_actuator - inverse.qfrc_inverse
    return ForwardInverse(solver_fwdinv=jnp.stack([safe.norm(error) for error in errors]))
