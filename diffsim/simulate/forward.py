"""forward: the table of contents of the simulator, in MuJoCo's order.

Position, velocity, actuation, acceleration, constraint, sensors (MuJoCo documentation, "Computation"). Each stage is
a function of what it reads; nothing is integrated here. What a caller does not use, XLA removes.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from diffsim.actuator.actuation import actuation
from diffsim.actuator.transmission import transmission
from diffsim.actuator.user import add_user_force, user_actuation
from diffsim.collision import collide
from diffsim.constraint import constraint_wrenches, contact_forces, make_constraints
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
from diffsim.sensor import read_sensors
from diffsim.simulate.arguments import check_arguments
from diffsim.simulate.inverse_dynamics import compare_forward_inverse
from diffsim.simulate.status import status
from diffsim.solver import smooth_acceleration, solve
from diffsim.types import Data, Inputs, Model, State
from diffsim.types.data import ForwardInverse
from diffsim.types.history import delayed_controls, delayed_readings

Array = jax.Array


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
    inputs = check_arguments(model, state, inputs)
    qpos, qvel = state.qpos, state.qvel

    # position
    poses = kinematics(model, qpos, inputs.mocap_pos, inputs.mocap_quat)
    com = com_frame(model, poses)
    paths = tendons(model, qpos, poses, com)
    inertia = joint_inertia(model, com, paths)
    contacts = collide(model, poses)
    moments = transmission(model, qpos, poses, com, paths, contacts)

    # velocity
    rates = velocities(model, qvel, com, paths, moments)
    passives = passive(model, qpos, qvel, poses, com, paths, rates, moments)
    known = _so_far(poses, com, paths, inertia, moments, rates, contact=contacts)
    passives = add_user_force(model, state, known, passives)
    coriolis = bias(model, qvel, poses, com, rates, paths)

    # actuation and acceleration
    ctrl = delayed_controls(model, state.history, state.time, inputs.ctrl)
    user = user_actuation(model, state, inputs, known)
    drive = actuation(model, state.act, ctrl, paths, moments, rates, passives, user)
    applied = applied_force(model, inputs, poses, com)
    smooth_force = passives.qfrc_passive - coriolis.qfrc_bias + drive.qfrc_actuator + applied

    # constraint
    rows = make_constraints(model, state, inputs, poses, com, paths, rates, contacts)
    solution = solve(model, inertia.M, smooth_force, state.qacc_warmstart, rows, contacts.rank)
    smooth = smooth_acceleration(inertia.M, smooth_force)

    # what only sensors and users read
    forces = contact_forces(model, contacts, rows, solution)
    wrenches = constraint_wrenches(model, contacts, rows, solution, com)
    loads = body_forces(model, qvel, solution.qacc, inputs.xfrc_applied, poses, com, rates, wrenches)
    joules = energy(model, qpos, qvel, poses, com, paths, inertia)
    records = (poses, com, paths, inertia, moments, rates, passives, coriolis, drive, smooth, solution, loads, joules)
    data = _so_far(*records, ForwardInverse(solver_fwdinv=jnp.zeros((2,), qvel.dtype)), contact=contacts, efc=rows)
    if model.opt.enabled(EnableBit.FWDINV):
        data = dataclasses.replace(data, **vars(compare_forward_inverse(data, applied)))
    now = read_sensors(model, state, inputs, data, forces)
    shown = delayed_readings(model, state.history, state.time, now)
    data = dataclasses.replace(data, sensordata=shown, sensor_now=now)
    return dataclasses.replace(data, status=status(model, state, inputs, data))


def _so_far(*records: Any, **children: Any) -> Data:
    """Data with what these records hold; the rest is None."""
    rest = dict.fromkeys(field.name for field in dataclasses.fields(Data))
    return Data(**{**rest, **{name: value for part in records for name, value in vars(part).items()}, **children})
