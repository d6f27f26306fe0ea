"""Actuator forces: controls, activation dynamics, gains and biases, and how they reach the joints.

force = gain(length, velocity) x + bias(length, velocity), where x is the control or the activation. Clamps come in
this order: control, sum of forces on a tendon, force, sum of forces on a joint. Kinds of dynamics, gains and biases
are rows of tables. Source: MuJoCo documentation, "Computation", "Actuation model".
"""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.actuator.dcmotor import (
    gather,
    motor_activations,
    motor_force,
    motor_friction,
    motor_rates,
    motor_slopes,
    motors,
    next_motor_activation,
)
from diffsim.actuator.muscle import muscle_bias, muscle_dynamics, muscle_gain
from diffsim.actuator.user import UserActuation
from diffsim.enums import BiasType, DisableBit, DynType, GainType, TrnType
from diffsim.math import safe
from diffsim.math.linalg import matmul
from diffsim.math.pick import pick, place
from diffsim.types.data import Actuation, Data, Passive, Tendons, Transmission, Velocities
from diffsim.types.model import Model
from diffsim.types.state import Inputs, State
from diffsim.types.topology import Topology, per_topology

Array = jax.Array

MIN_TIME_CONSTANT = 1e-15

# of n actuators: parameters (n, 10), control (n,), activation (n,) -> rate (n,)
Dynamics = Callable[[Array, Array, Array], Array]
# of n actuators: parameters (n, 10), length, velocity (n,), lengthrange (n, 2), acc0 (n,) -> (n,)
Curve = Callable[[Array, Array, Array, Array, Array], Array]


def _integrator(prm: Array, ctrl: Array, act: Array) -> Array:
    return ctrl


def _filter(prm: Array, ctrl: Array, act: Array) -> Array:
    return (ctrl - act) / jnp.maximum(prm[:, 0], MIN_TIME_CONSTANT)


def _constant(prm: Array, length: Array, velocity: Array, lengthrange: Array, acc0: Array) -> Array:
    return prm[:, 0]


def _affine(prm: Array, length: Array, velocity: Array, lengthrange: Array, acc0: Array) -> Array:
    return prm[:, 0] + prm[:, 1] * length + prm[:, 2] * velocity


def _nothing(prm: Array, length: Array, velocity: Array, lengthrange: Array, acc0: Array) -> Array:
    return jnp.zeros_like(length)


# dynamics of actuators that have an activation; DynType.NONE has none
DYNAMICS: dict[DynType, Dynamics] = {
    DynType.INTEGRATOR: _integrator,
    DynType.FILTER: _filter,
    DynType.FILTEREXACT: _filter,
    DynType.MUSCLE: muscle_dynamics,
}
GAINS: dict[GainType, Curve] = {
    GainType.FIXED: _constant,
    GainType.AFFINE: _affine,
    GainType.MUSCLE: muscle_gain,
}
BIASES: dict[BiasType, Curve] = {
    BiasType.NONE: _nothing,
    BiasType.AFFINE: _affine,
    BiasType.MUSCLE: muscle_bias,
}
# DynType.NONE has no dynamics; DC motors and laws of the user have files of their own (dcmotor.py, user.py)


def compute_actuation(
    model: Model,
    act: Array,
    ctrl: Array,
    tendons: Tendons,
    transmission: Transmission,
    velocities: Velocities,
    passive: Passive,
    user: UserActuation | None = None,
) -> Actuation:
    """act_dot (na,), actuator_force (nu,), qfrc_actuator (nv,) from activations (na,) and controls (nu,).

    `user` says what actuators of type `user` do; without it they do nothing.
    """
    if not model.nu or model.opt.disabled(DisableBit.ACTUATION):
        zero = jnp.zeros_like(passive.qfrc_gravcomp)
        return Actuation(act_dot=jnp.zeros_like(act), actuator_force=jnp.zeros_like(ctrl), qfrc_actuator=zero)
    ctrl = _usable_controls(model, ctrl)
    length, velocity = transmission.actuator_length, velocities.actuator_velocity
    act_dot = _activation_rates(model, act, ctrl, length, velocity)
    if user is not None:
        act_dot = act_dot + user.rate
    signal = _signals(model, act, act_dot, ctrl, velocity)
    force = _forces(model, signal, length, velocity, user)
    force = force + _motor_forces(model, act, act_dot, ctrl, length, velocity)
    force = _limit_on_tendons(model, force)
    force = _clamp(force, model.actuator_forcerange, model.topology.actuator_forcelimited)
    force = force + _motor_friction(model, act, act_dot, ctrl, length, velocity)
    return Actuation(
        act_dot=act_dot,
        actuator_force=force,
        qfrc_actuator=_joint_forces(model, matmul(transmission.actuator_moment.T, force), passive),
    )


def velocity_slopes(model: Model, state: State, inputs: Inputs, data: Data) -> tuple[np.ndarray, Array]:
    """Actuators whose force depends on velocity, and d force / d velocity (n,); zero where the force is saturated.

    As in MuJoCo, the control is taken as the user set it, and limits of tendons and joints are not seen.
    """
    topology = model.topology
    ids = _velocity_dependent(topology)
    ids = ids[~disabled_actuators(model)[ids]]
    motor = topology.actuator_gaintype[ids] == GainType.DCMOTOR
    signal = pick(_signals(model, state.act, data.act_dot, inputs.ctrl, data.actuator_velocity), ids)
    rest = tuple(pick(a, ids) for a in (model.actuator_lengthrange, model.actuator_acc0))
    prm = pick(model.actuator_gainprm, ids), pick(model.actuator_biasprm, ids)
    length, velocity = pick(data.actuator_length, ids), pick(data.actuator_velocity, ids)

    def force(velocity: Array) -> Array:
        state = (length, velocity, *rest)
        gain = _by_type(GAINS, topology.actuator_gaintype[ids], (prm[0], *state))
        return gain * signal + _by_type(BIASES, topology.actuator_biastype[ids], (prm[1], *state))

    if not ids.size:
        return ids, velocity
    _, slope = jax.jvp(force, (velocity,), (jnp.ones_like(velocity),))
    if motor.any():
        slope = slope + place(len(ids), np.flatnonzero(motor), motor_slopes(model, ids[motor]))
    lower, upper = pick(model.actuator_forcerange, ids).T
    output = pick(data.actuator_force, ids)
    saturated = (topology.actuator_forcelimited[ids] != 0) & ((output <= lower) | (output >= upper))
    return ids, jnp.where(saturated, 0, slope)


@per_topology
def _velocity_dependent(topology: Topology) -> np.ndarray:
    """Actuators whose gain or bias depends on velocity."""
    gain = np.isin(topology.actuator_gaintype, (GainType.AFFINE, GainType.MUSCLE, GainType.DCMOTOR))
    return np.flatnonzero(gain | (topology.actuator_biastype == BiasType.AFFINE))


def advance_activation(model: Model, act: Array, act_dot: Array, velocity: Array) -> Array:
    """(na,) activations one timestep later: exact for `filterexact`, Euler otherwise, clamped to their ranges.

    The velocity (nu,) of the actuators matters for the friction states of DC motors.
    """
    if not model.topology.na or model.opt.disabled(DisableBit.ACTUATION):
        return act
    owner = activation_owner(model.topology)
    idle = disabled_actuators(model)[owner]
    return _next_activation(model, act, jnp.where(idle, 0, act_dot), velocity)


@per_topology
def activation_owner(topology: Topology) -> np.ndarray:
    """(na,) the actuator of each activation."""
    owner = np.zeros(topology.na, dtype=np.int32)
    for actuator in np.flatnonzero(topology.actuator_actadr >= 0):
        start = topology.actuator_actadr[actuator]
        owner[start : start + topology.actuator_actnum[actuator]] = actuator
    return owner


@per_topology
def _stateful(topology: Topology) -> tuple[np.ndarray, np.ndarray]:
    """Actuators that have an activation, and the index of the one that drives their force (the last); no DC motors."""
    generic = (topology.actuator_dyntype != DynType.DCMOTOR) & (topology.actuator_actnum > 0)
    actuators = np.flatnonzero(generic & (topology.actuator_actadr >= 0))
    return actuators, topology.actuator_actadr[actuators] + topology.actuator_actnum[actuators] - 1


def disabled_actuators(model: Model) -> np.ndarray:
    """(nu,) bool: actuators in a group that the options switch off (groups 0 to 30 can be)."""
    group = model.topology.actuator_group
    bits = np.left_shift(1, np.clip(group, 0, 30), dtype=np.int64)
    return (group >= 0) & (group <= 30) & ((bits & model.opt.disableactuator) != 0)


def _clamp(values: Array, ranges: Array, limited: np.ndarray) -> Array:
    """Values (n,) clamped to ranges (n, 2) where limited (n,)."""
    if not limited.any():
        return values
    return jnp.where(limited != 0, safe.clip(values, ranges[:, 0], ranges[:, 1]), values)


def clamped_controls(model: Model, ctrl: Array) -> Array:
    """Controls (nu,) within the ranges of those that have one."""
    if model.opt.disabled(DisableBit.CLAMPCTRL):
        return ctrl
    return _clamp(ctrl, model.actuator_ctrlrange, model.topology.actuator_ctrllimited)


def _usable_controls(model: Model, ctrl: Array) -> Array:
    """Clamped controls; all zero if any is bad."""
    ctrl = clamped_controls(model, ctrl)
    return jnp.where(safe.is_bad(ctrl), 0, ctrl)


def _activation_rates(model: Model, act: Array, ctrl: Array, length: Array, velocity: Array) -> Array:
    """(na,) rates by the dynamics of each actuator."""
    actuators, last = _stateful(model.topology)
    total = jnp.zeros_like(act)
    if motor_activations(model.topology).any():
        total = motor_rates(model, gather(model, act, ctrl, length, velocity))
    if not actuators.size:
        return total
    arguments = (pick(model.actuator_dynprm, actuators), pick(ctrl, actuators), pick(act, last))
    rates = _by_type(DYNAMICS, model.topology.actuator_dyntype[actuators], arguments)
    return total + place(model.topology.na, last, rates)


def _signals(model: Model, act: Array, act_dot: Array, ctrl: Array, velocity: Array) -> Array:
    """(nu,) what each gain multiplies: the control, or the activation (that of the next step for `actearly`)."""
    actuators, last = _stateful(model.topology)
    if not actuators.size:
        return ctrl
    early = model.topology.actuator_actearly[actuators] != 0
    value = pick(act, last)
    if early.any():
        value = jnp.where(early, pick(_next_activation(model, act, act_dot, velocity), last), value)
    stateful = np.isin(np.arange(model.nu), actuators)
    return jnp.where(stateful, place(model.nu, actuators, value), ctrl)


def _forces(model: Model, signal: Array, length: Array, velocity: Array, user: UserActuation | None) -> Array:
    """(nu,) gain x signal + bias; zero for disabled actuators."""
    topology = model.topology
    state = (length, velocity, model.actuator_lengthrange, model.actuator_acc0)
    gain = _by_type(GAINS, topology.actuator_gaintype, (model.actuator_gainprm, *state))
    bias = _by_type(BIASES, topology.actuator_biastype, (model.actuator_biasprm, *state))
    if user is not None:
        gain, bias = gain + user.gain, bias + user.bias
    force = gain * signal + bias
    idle = disabled_actuators(model)
    return jnp.where(idle, 0, force) if idle.any() else force


def _motor_forces(model: Model, act: Array, act_dot: Array, ctrl: Array, length: Array, velocity: Array) -> Array:
    """(nu,) forces of the currents of DC motors; zero for disabled and other actuators."""
    ids = motors(model.topology).actuators
    if not ids.size:
        return jnp.zeros_like(ctrl)
    motor = gather(model, act, ctrl, length, velocity)
    force = motor_force(model, motor, _next_activation(model, act, act_dot, velocity))
    return place(model.nu, ids, jnp.where(disabled_actuators(model)[ids], 0, force))


def _motor_friction(model: Model, act: Array, act_dot: Array, ctrl: Array, length: Array, velocity: Array) -> Array:
    """(nu,) cogging and friction of DC motors; zero for disabled and other actuators."""
    ids = motors(model.topology).actuators
    if not ids.size:
        return jnp.zeros_like(ctrl)
    force = motor_friction(gather(model, act, ctrl, length, velocity), act_dot, model.topology)
    return place(model.nu, ids, jnp.where(disabled_actuators(model)[ids], 0, force))


def _by_type(table: Mapping, types: np.ndarray, arguments: tuple[Array, ...]) -> Array:
    """(n,) each row's function of the table, applied to its rows of the arguments."""
    parts, ids = [], []
    for kind, function in table.items():
        rows = np.flatnonzero(types == kind)
        if rows.size:
            parts.append(function(*(pick(argument, rows) for argument in arguments)))
            ids.append(rows)
    if not ids:
        return jnp.zeros((len(types),), arguments[0].dtype)
    return place(len(types), np.concatenate(ids), jnp.concatenate(parts))


def _next_activation(model: Model, act: Array, act_dot: Array, velocity: Array) -> Array:
    """(na,) act after one timestep at rate act_dot."""
    topology = model.topology
    owner = activation_owner(topology)
    h = model.opt.timestep
    exact = topology.actuator_dyntype[owner] == DynType.FILTEREXACT
    tau = jnp.maximum(model.actuator_dynprm[owner, 0], MIN_TIME_CONSTANT)
    interval = jnp.where(exact, -tau * jnp.expm1(-h / tau), h)
    after = _clamp(act + act_dot * interval, model.actuator_actrange[owner], topology.actuator_actlimited[owner])
    of_motor = motor_activations(topology)
    if of_motor.any():
        after = jnp.where(of_motor, next_motor_activation(model, act, act_dot, velocity), after)
    return after


@per_topology
def _limited_tendons(topology: Topology) -> tuple[np.ndarray, np.ndarray]:
    """Actuators that pull on a tendon whose total force is limited, and their tendons."""
    tendon = np.where(topology.actuator_trntype == TrnType.TENDON, topology.actuator_trnid[:, 0], -1)
    limited = np.append(topology.tendon_actfrclimited != 0, False)
    actuators = np.flatnonzero(limited[tendon] & (tendon >= 0))
    return actuators, tendon[actuators]


def _limit_on_tendons(model: Model, force: Array) -> Array:
    """Forces scaled so that their sum on each tendon stays within tendon_actfrcrange."""
    actuators, tendon = _limited_tendons(model.topology)
    if not actuators.size:
        return force
    same = jnp.asarray(tendon[:, None] == tendon[None], force.dtype)
    total = matmul(same, force[actuators])
    bounds = model.tendon_actfrcrange[tendon]
    bound = safe.clip(total, bounds[:, 0], bounds[:, 1])
    factor = jnp.where(bound == total, 1, safe.divide(bound, total, 1.0))
    pulls = np.isin(np.arange(model.nu), actuators)
    return force * jnp.where(pulls, place(model.nu, actuators, factor), 1)


def _joint_forces(model: Model, force: Array, passive: Passive) -> Array:
    """(nv,) with gravity compensation that acts through actuators, clamped to the joints' ranges."""
    topology = model.topology
    if topology.jnt_actgravcomp.any() and topology.has("body_gravcomp"):
        force = force + jnp.where(topology.jnt_actgravcomp[topology.dof_jntid] != 0, passive.qfrc_gravcomp, 0)
    limited, joint = _limited_dofs(topology)
    return _clamp(force, model.jnt_actfrcrange[joint], limited)


@per_topology
def _limited_dofs(topology: Topology) -> tuple[np.ndarray, np.ndarray]:
    """(nv,) whether each dof's actuator force is limited (the first dof of a joint is), and its joint."""
    joint = topology.dof_jntid
    first = topology.jnt_dofadr[joint] == np.arange(topology.nv)
    return first & (topology.jnt_actfrclimited[joint] != 0), joint
