"""forward: the table of contents of the simulator, in MuJoCo's order.

Position, velocity, actuation, acceleration, constraint, sensors (MuJoCo documentation, "Computation"). Each stage is
a function of what it reads; nothing is integrated here. What a caller does not use, XLA removes.
"""

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array

from diffsim.actuator.actuation import compute_actuation
from diffsim.actuator.actuators import add_user_force, compute_command
from diffsim.actuator.transmission import compute_transmission
from diffsim.base.checked import checked
from diffsim.base.enums import EnableBit
from diffsim.collision import collide_flexes, colliding_frames, slots_of
from diffsim.constraint import (
    Sources,
    add_contact_springs,
    constraint_wrenches,
    contact_forces,
    make_constraints,
    solve_acting,
)
from diffsim.dynamics.bias import compute_bias, motion_forces
from diffsim.dynamics.body_forces import applied_force, compute_body_forces, external_wrenches
from diffsim.dynamics.energy import compute_energy
from diffsim.dynamics.inertia import compute_inertia
from diffsim.dynamics.passive import compute_passive
from diffsim.flex.strain import compute_flexes
from diffsim.kinematics.com import compute_com_frame, compute_subtree_velocities, compute_velocities
from diffsim.kinematics.poses import compute_kinematics
from diffsim.kinematics.tendon import compute_tendons, tendon_drift
from diffsim.math import safe
from diffsim.sensor import read_sensors
from diffsim.simulate.arguments import check_arguments
from diffsim.simulate.metric import Metric, compute_metric, turned
from diffsim.simulate.sleep import wake_and_collide
from diffsim.simulate.status import status
from diffsim.simulate.tendon_wrenches import tendon_wrenches
from diffsim.solver import smooth_acceleration, solve
from diffsim.solver.objective import Objective, constraint_force
from diffsim.solver.solve import derivatives_within_reach
from diffsim.types import Data, Inputs, Model, State
from diffsim.types.constraints import ActiveSet
from diffsim.types.data import ForwardInverse, Inertia, Inverse, Sensors, Transmission
from diffsim.types.history import delayed_readings
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

    Args:
      model, state, inputs: as for `forward`.
      active_set: which constraints act and push, between two events of a step (simulate/integrate/events.py); None:
        the state decides.
      push: further applied forces (nv,), which follow from inertia and transmission (compiler/derive.py).
    """
    qpos, qvel = state.qpos, state.qvel

    # Position: forward kinematics, flexes and tendons (mj_kinematics, mj_comPos, mj_flex, mj_tendon)
    kinematics = compute_kinematics(model, qpos, inputs.mocap_pos, inputs.mocap_quat)
    com = compute_com_frame(model, kinematics)
    flexes = compute_flexes(model, qvel, kinematics, com)
    tendons = compute_tendons(model, qpos, kinematics, com)

    # Composite rigid-body inertias and the joint-space inertia matrix M (mj_crb)
    inertia = compute_inertia(model, com, tendons)

    # Active contacts (mj_wake, mj_collision): with the flag `sleep`, contacts wake trees, and sleeping trees have none
    contacts, rest = wake_and_collide(model, state, inputs, tendons, colliding_frames(model, kinematics))
    contacts, slots = collide_flexes(model, kinematics, flexes, contacts), slots_of(model)

    # Lengths and moment arms of actuators (mj_transmission)
    transmission = compute_transmission(model, qpos, kinematics, com, tendons, contacts)

    # Velocity: of bodies, joint axes, tendons and actuators (mj_comVel)
    velocities = compute_velocities(model, qvel, com, tendons, transmission)
    known = Data.of(kinematics, com, flexes, tendons, inertia, transmission, velocities, contact=contacts)

    # Passive forces: springs, dampers, gravity compensation, fluid; contact springs of flexes; user hooks (mj_passive)
    passive = compute_passive(model, state, kinematics, com, tendons, velocities, flexes)
    passive = add_contact_springs(model, com, flexes, (slots, contacts), passive)
    passive = add_user_force(model, state, inputs, known, passive)

    # Coriolis, centrifugal and gravitational forces by recursive Newton-Euler (mj_rne, mj_tendonBias)
    drift = tendon_drift(model, qvel, kinematics, com, velocities)
    bias = compute_bias(model, qvel, com, velocities, tendons, drift)

    # Actuation: actuator forces and activation dynamics (mj_fwdActuation)
    command = compute_command(model, state, inputs, known)
    actuation = compute_actuation(model, state.act, command, transmission, velocities, passive)
    actuation = rest.actuators(actuation)

    # Acceleration from all forces except the constraint forces, which are still unknown (mj_fwdAcceleration)
    applied = applied_force(model, inputs, kinematics, com) + (0.0 if push is None else push(inertia, transmission))
    qfrc_smooth = stored(rest.dofs(passive.qfrc_passive - bias.qfrc_bias + actuation.qfrc_actuator + applied))

    # The inertia and the force with which the integrator `discrete` solves; M and qfrc_smooth for all others
    metric = compute_metric(model, state, inputs, command, Data.of(known, inertia, passive, bias, actuation))
    solved = (inertia.M, qfrc_smooth) if metric is None else (metric.inertia, qfrc_smooth + metric.shift)

    # Constraint Jacobian and reference acceleration (mj_makeConstraint, mj_referenceConstraint)
    sources = Sources(
        model=model,
        state=state,
        inputs=inputs,
        kinematics=kinematics,
        com=com,
        tendons=tendons,
        velocities=velocities,
        contacts=contacts,
        slots=slots,
        flexes=flexes,
        active_set=active_set,
        asleep=rest.asleep,
        diagonals=None if metric is None else metric.diagonals,
    )
    constraints = make_constraints(sources)

    # Constraint forces by the selected solver, and the acceleration with them (mj_fwdConstraint)
    motion = motion_forces(model, qvel, com, velocities, passive.qfrc_passive + actuation.qfrc_actuator + applied)
    start = rest.dofs(state.qacc_warmstart)
    solution = solve_acting(
        sources,
        constraints,
        lambda rows: solve(model, *solved, start, rows, contacts.sort_key, motion),
    )
    if model.opt.contact_reach:
        # ours: the derivative, not the value, sees contacts before they touch
        within_reach = make_constraints(sources._replace(reach=model.opt.contact_reach))
        solution = derivatives_within_reach(model, solution, Objective(*solved, within_reach))
    solution = solution.replace(qacc=rest.dofs(turned(model, metric, constraints, solution.qacc)))
    smooth = smooth_acceleration(model, *solved).replace(qfrc_smooth=qfrc_smooth)

    # Forces on bodies (mj_rnePostConstraint) and energy, which only sensors and users read
    subtrees = compute_subtree_velocities(model, com, velocities)
    contact_force = contact_forces(model, contacts, constraints, solution)
    wrenches = (
        constraint_wrenches(model, contacts, constraints, solution, kinematics, com),
        tendon_wrenches(model, qvel, kinematics, com, tendons, velocities, actuation, constraints, solution),
    )
    external = external_wrenches(model, inputs, kinematics, com, *wrenches)
    body_forces = compute_body_forces(model, qvel, solution.qacc, com, velocities, external)
    energy = compute_energy(model, state, kinematics, tendons, inertia, flexes)
    known = Data.of(
        *(known, subtrees, passive, bias, actuation, smooth, solution, body_forces, energy, rest.sleep),
        contact=contacts,
        efc=constraints,
    )

    # Forward and inverse dynamics compared (mj_compareFwdInv), and sensors (mj_sensorPos, mj_sensorVel, mj_sensorAcc)
    comparison = compute_forward_inverse(model, known, applied, metric)
    now = rest.readings(read_sensors(model, state, inputs, known, contact_force))
    sensors = Sensors(sensordata=delayed_readings(model, state.history, state.time, now), sensor_now=now)
    return Data.of(known, comparison, sensors, status=status(model, state, inputs, known))


def inverse_dynamics(data: Data, qacc: Array, inertial: Array | None = None) -> Inverse:
    """Inverse dynamics in continuous time, with the position and velocity stages in `data`.

    qfrc_inverse = M qacc + qfrc_bias - qfrc_passive - J^T f(qacc), (nv,) in N and N m. With the integrator `discrete`,
    qacc is the acceleration over a whole timestep, and `inertial` (nv,), from `Metric.force`, replaces M qacc.
    """
    qfrc_constraint = constraint_force(data.efc, qacc)
    inertial = data.M.mul_vec(qacc) if inertial is None else inertial
    force = inertial + data.qfrc_bias - data.qfrc_passive - qfrc_constraint
    return Inverse(qfrc_inverse=force, qfrc_constraint=qfrc_constraint, qacc=qacc)


def compute_forward_inverse(model: Model, data: Data, applied: Array, metric: Metric | None) -> ForwardInverse:
    """solver_fwdinv (2,): norms of the differences from inverse dynamics at qacc, of constraint and applied forces.

    Zero unless the flag `fwdinv` is set.
    """
    if not model.opt.enabled(EnableBit.FWDINV):
        return ForwardInverse(solver_fwdinv=jnp.zeros((2,), data.qacc.dtype))
    inverse = inverse_dynamics(data, data.qacc, None if metric is None else metric.force(model, data.efc, data.qacc))
    errors = data.qfrc_constraint - inverse.qfrc_constraint, applied + data.qfrc_actuator - inverse.qfrc_inverse
    return ForwardInverse(solver_fwdinv=jnp.stack([safe.norm(error) for error in errors]))
