"""The stages of MJX: each is a function (model, data) -> data that calls a stage of diffsim and stores its results.

`step`, `forward` and `inverse` call the functions of diffsim with these names; the other stages are for code that runs
the pipeline stage by stage. They read the same fields as MJX's stages, except that `solve` computes the constraint rows
again. There are two more differences from MJX: `crb` and `rne` already include the inertia of tendons, which MJX adds
in `tendon_armature` and `tendon_bias`, and all sensors of a stage are computed together.
"""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.actuator.actuation import compute_actuation
from diffsim.actuator.actuators import add_user_force, compute_command
from diffsim.actuator.transmission import compute_transmission
from diffsim.base.enums import DisableBit, EnableBit, Integrator, Stage
from diffsim.collision import collide, colliding_frames, slots_of
from diffsim.collision.layout import layout_of
from diffsim.constraint import Sources, constraint_wrenches, contact_forces, make_constraints
from diffsim.dynamics.bias import compute_bias, motion_forces
from diffsim.dynamics.body_forces import applied_force, compute_body_forces, external_wrenches
from diffsim.dynamics.inertia import compute_inertia
from diffsim.dynamics.passive import compute_passive
from diffsim.kinematics.com import compute_com_frame, compute_subtree_velocities, compute_velocities
from diffsim.kinematics.poses import compute_kinematics
from diffsim.kinematics.tendon import compute_tendons, tendon_drift, tendon_points
from diffsim.math.block_solves import solve_blocks
from diffsim.mjx.rows import first_rows
from diffsim.mjx.types import Contact, Data, Model, Paths
from diffsim.sensor import read_sensors
from diffsim.simulate.forward import forward as simulate_forward
from diffsim.simulate.forward import inverse_dynamics
from diffsim.simulate.integrate.derivative import velocity_derivative
from diffsim.simulate.integrate.integrators import discrete_inertia
from diffsim.simulate.metric import metric_of
from diffsim.simulate.step import integrate, step_data
from diffsim.simulate.tendon_wrenches import tendon_wrenches
from diffsim.solver import smooth_acceleration
from diffsim.solver import solve as solve_constraints
from diffsim.solver.objective import row_forces
from diffsim.types import data as records
from diffsim.types.constraints import Constraints
from diffsim.types.history import delayed_readings
from diffsim.types.state import Inputs, State


def state_of(d: Data) -> State:
    """Extracts the State from an `mjx.Data`."""
    return State(**{field.name: getattr(d, field.name) for field in dataclasses.fields(State)})


def inputs_of(d: Data) -> Inputs:
    """Extracts the Inputs from an `mjx.Data`."""
    return Inputs(**{field.name: getattr(d, field.name) for field in dataclasses.fields(Inputs)})


def with_records(m: Model, d: Data, *computed: Any) -> Data:
    """Stores the fields of computed records in Data; a contact buffer without slots stays unchanged, as in MJX."""
    fields = {name: value for part in computed for name, value in vars(part).items()}
    if "contact" in fields:
        fields["dropped"] = fields["contact"].ncon_dropped
        fields["contact"] = contact_buffer(m, fields["contact"], fields["efc"]) if d.ncon else d.contact
    if m.opt.disabled(DisableBit.SENSOR):
        fields.pop("sensordata", None)
    return dataclasses.replace(d, **fields)


def contact_buffer(m: Model, contacts: records.Contacts, efc: Constraints) -> Contact:
    """Converts contacts and their constraint rows to a contact buffer with MJX's names."""
    dims = tuple(map(int, layout_of(m).dim))
    absent = ("ncon_dropped",) if m.topology.nflex else ("ncon_dropped", "flex", "elem", "vert")
    fields: dict[str, Any] = vars(contacts) | dict.fromkeys(absent)
    return Contact(**fields, dims=dims, first_row=tuple(map(int, first_rows(efc, len(dims)))))


def paths_of(m: Model, poses: records.Kinematics) -> Paths:
    """The wrap points of tendons, in mjData's shapes."""
    points = tendon_points(m, poses)
    return Paths(
        ten_wrapadr=points.ten_wrapadr,
        ten_wrapnum=points.ten_wrapnum,
        wrap_obj=points.wrap_obj.reshape(-1, 2),
        wrap_xpos=points.wrap_xpos.reshape(-1, 6),
    )


def forward(m: Model, d: Data) -> Data:
    """Computes everything that follows from the state: `diffsim.forward`."""
    data = simulate_forward(m, state_of(d), inputs_of(d))
    return with_records(m, d, data, paths_of(m, data))


def step(m: Model, d: Data) -> Data:
    """Advances the state by one timestep; the computed fields belong to the state before: `diffsim.step_data`."""
    state, data = step_data(m, state_of(d), inputs_of(d))
    return with_records(m, d, data, state, paths_of(m, data))


def inverse(m: Model, d: Data) -> Data:
    """Computes `qfrc_inverse` for the acceleration `d.qacc`; with `invdiscrete`, for the change of qvel in a timestep.

    With `invdiscrete`, qacc is (v_next - v) / h, and the continuous acceleration is M^-1 M_discrete qacc, where
    M_discrete is the matrix of the implicit integrator. `qacc` itself stays unchanged.
    """
    given = d.qacc
    d = forward(m, d)
    inertial = None
    if m.opt.integrator == Integrator.DISCRETE:
        d = dataclasses.replace(d, qacc=given)
        inertial = metric_of(m, state_of(d), inputs_of(d), d).force(m, d.efc, given)
    elif m.opt.enabled(EnableBit.INVDISCRETE):
        force = discrete_inertia(m, state_of(d), inputs_of(d), d).mul_vec(given)
        d = dataclasses.replace(d, qacc=solve_blocks(d.M, force))
    else:
        d = dataclasses.replace(d, qacc=given)
    result = inverse_dynamics(d, d.qacc, inertial)
    d = dataclasses.replace(d, row_force=d.efc.concatenate(row_forces(d.efc, d.qacc)))
    d = sensor_acc(m, rne_postconstraint(m, d))
    return dataclasses.replace(d, qacc=given, qfrc_inverse=result.qfrc_inverse, qfrc_constraint=result.qfrc_constraint)


# position


def fwd_position(m: Model, d: Data) -> Data:
    """Computes poses, inertias, contacts, constraint rows and transmissions."""
    for stage in (kinematics, com_pos, tendon, crb, collision, transmission):
        d = stage(m, d)
    return make_constraint(m, com_vel(m, d))


def kinematics(m: Model, d: Data) -> Data:
    """Computes poses of bodies, joints, geoms, sites, cameras and lights."""
    return with_records(m, d, compute_kinematics(m, d.qpos, d.mocap_pos, d.mocap_quat))


def camlight(m: Model, d: Data) -> Data:
    """Computes poses of cameras and lights."""
    poses = compute_kinematics(m, d.qpos, d.mocap_pos, d.mocap_quat)
    names = ("cam_xpos", "cam_xmat", "light_xpos", "light_xdir")
    return dataclasses.replace(d, **{name: getattr(poses, name) for name in names})


def com_pos(m: Model, d: Data) -> Data:
    """Computes inertias and motion axes about the center of mass of each tree."""
    return with_records(m, d, compute_com_frame(m, d))


def tendon(m: Model, d: Data) -> Data:
    """Computes lengths, Jacobians and paths of tendons."""
    return with_records(m, d, compute_tendons(m, d.qpos, d, d), paths_of(m, d))


def crb(m: Model, d: Data) -> Data:
    """Computes composite inertias and M, including the inertia of tendons."""
    return with_records(m, d, compute_inertia(m, d, d))


def tendon_armature(m: Model, d: Data) -> Data:
    """Computes M with the inertia of tendons, the same as `crb`."""
    return crb(m, d)


def factor_m(m: Model, d: Data) -> Data:
    """Does nothing: each solve with M computes the factor that it needs, and XLA merges equal computations."""
    return d


def collision(m: Model, d: Data) -> Data:
    """Computes contacts from the poses of geoms."""
    contacts = collide(m, colliding_frames(m, d))
    return dataclasses.replace(d, contact=contact_buffer(m, contacts, d.efc), dropped=contacts.ncon_dropped)


def make_constraint(m: Model, d: Data) -> Data:
    """Computes the constraint rows from contacts, poses and velocities."""
    sources = Sources(
        model=m,
        state=state_of(d),
        inputs=inputs_of(d),
        kinematics=d,
        com=d,
        tendons=d,
        velocities=d,
        contacts=d.contact,
        slots=slots_of(m),
    )
    rows = make_constraints(sources)
    return dataclasses.replace(d, efc=rows, row_force=rows.concatenate(row_forces(rows, d.qacc)))


def transmission(m: Model, d: Data) -> Data:
    """Computes lengths and moments of actuators."""
    return with_records(m, d, compute_transmission(m, d.qpos, d, d, d, d.contact))


# velocity


def fwd_velocity(m: Model, d: Data) -> Data:
    """Computes velocities, passive forces and bias forces."""
    return rne(m, passive(m, com_vel(m, d)))


def com_vel(m: Model, d: Data) -> Data:
    """Computes velocities of bodies, tendons and actuators."""
    return with_records(m, d, compute_velocities(m, d.qvel, d, d, d))


def subtree_vel(m: Model, d: Data) -> Data:
    """Computes linear velocities and angular momenta of subtrees."""
    return with_records(m, d, compute_subtree_velocities(m, d, d))


def passive(m: Model, d: Data) -> Data:
    """Computes passive forces: springs, dampers, gravity compensation and fluid."""
    return with_records(
        m, d, add_user_force(m, state_of(d), inputs_of(d), d, compute_passive(m, state_of(d), d, d, d, d))
    )


def rne(m: Model, d: Data, flg_acc: bool = False) -> Data:
    """Computes `qfrc_bias`: Coriolis, centrifugal and gravitational forces; `flg_acc` adds M qacc."""
    bias = compute_bias(m, d.qvel, d, d, d, tendon_drift(m, d.qvel, d, d, d)).qfrc_bias
    return dataclasses.replace(d, qfrc_bias=bias + d.M.mul_vec(d.qacc) if flg_acc else bias)


def tendon_bias(m: Model, d: Data) -> Data:
    """Computes `qfrc_bias` with the bias of tendon inertia, the same as `rne`."""
    return rne(m, d)


def deriv_smooth_vel(m: Model, d: Data) -> Array | None:
    """Derivative (nv, nv) of actuator and passive forces with respect to velocity, symmetric; None if it is zero."""
    return velocity_derivative(m, state_of(d), inputs_of(d), d, coriolis=False).dense


# actuation and acceleration


def fwd_actuation(m: Model, d: Data) -> Data:
    """Computes activation rates and actuator forces."""
    command = compute_command(m, state_of(d), inputs_of(d), d)
    return with_records(m, d, compute_actuation(m, d.act, command, d, d, d))


def fwd_acceleration(m: Model, d: Data) -> Data:
    """Computes `qfrc_smooth`, all forces except constraint forces, and `qacc_smooth`."""
    others = d.qfrc_passive + d.qfrc_actuator + applied_force(m, inputs_of(d), d, d)
    return with_records(m, d, smooth_acceleration(m, d.M, others - d.qfrc_bias))


def solve(m: Model, d: Data) -> Data:
    """Computes the constrained acceleration from `qfrc_smooth`, M and the constraint rows, which it computes again."""
    d = make_constraint(m, crb(m, d))
    others = d.qfrc_passive + d.qfrc_actuator + applied_force(m, inputs_of(d), d, d)
    solution = solve_constraints(
        m,
        d.M,
        d.qfrc_smooth,
        d.qacc_warmstart,
        d.efc,
        contact_order=d.contact.sort_key,
        motion=motion_forces(m, d.qvel, d, d, others),
    )
    return with_records(m, d, solution)


def rne_postconstraint(m: Model, d: Data) -> Data:
    """Computes `cacc`, `cfrc_int` and `cfrc_ext` for the constrained acceleration."""
    of_tendons = tendon_wrenches(m, d.qvel, d, d, d, d, d, d.efc, d)
    external = external_wrenches(m, inputs_of(d), d, d, constraint_wrenches(m, d.contact, d.efc, d, d, d), of_tendons)
    return with_records(m, d, compute_body_forces(m, d.qvel, d.qacc, d, d, external))


# integration


def euler(m: Model, d: Data) -> Data:
    """Advances the state by semi-implicit Euler, implicit in joint damping."""
    return _integrated(m, d, Integrator.EULER)


def implicit(m: Model, d: Data) -> Data:
    """Advances the state by `implicitfast`."""
    return _integrated(m, d, Integrator.IMPLICITFAST)


def rungekutta4(m: Model, d: Data) -> Data:
    """Advances the state by the classical fourth-order Runge-Kutta method."""
    return _integrated(m, d, Integrator.RK4)


def _integrated(m: Model, d: Data, integrator: Integrator) -> Data:
    """Advances the state by one timestep with an integrator; computes M first, which Data may not have yet."""
    m = m.replace(opt=m.opt.replace(integrator=integrator))
    d = crb(m, d)
    return with_records(m, d, integrate(m, state_of(d), inputs_of(d), d))


# sensors


def sensor_pos(m: Model, d: Data) -> Data:
    """Reads the sensors that depend on position."""
    return _sensed(m, d, Stage.POS)


def sensor_vel(m: Model, d: Data) -> Data:
    """Reads the sensors that depend on velocity."""
    return _sensed(m, subtree_vel(m, d), Stage.VEL)


def sensor_acc(m: Model, d: Data) -> Data:
    """Reads the sensors that depend on acceleration and forces."""
    return _sensed(m, rne_postconstraint(m, d), Stage.ACC)


def _sensed(m: Model, d: Data, stage: Stage) -> Data:
    """Reads the sensors of a stage, and keeps the readings of other stages."""
    force = contact_forces(m, d.contact, d.efc, d)
    now = read_sensors(m, state_of(d), inputs_of(d), d, force)
    of_stage = np.repeat(m.topology.sensor_needstage == stage, m.topology.sensor_dim)
    now = jnp.where(of_stage, now, d.sensor_now)
    delayed = jnp.where(of_stage, delayed_readings(m, d.history, d.time, now), d.sensordata)
    return d if m.opt.disabled(DisableBit.SENSOR) else dataclasses.replace(d, sensordata=delayed, sensor_now=now)
