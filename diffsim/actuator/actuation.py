"""Actuator forces, the joint forces that they cause, and their derivatives with respect to velocity.

    d act / dt   = rate(ctrl, act, length, velocity)
    force        = gain(length, velocity) * (act or ctrl) + bias(length, velocity)
    qfrc_actuator = moment^T force
    d force / d velocity = gain' signal + gain signal' + bias'

The table of laws (laws.py) defines rate, gain, bias and their slopes, which are derivatives with respect to velocity.
Each law is evaluated once, for all actuators that have it; the indices that this needs are computed once per topology.
Clamps are applied in this order: control, sum of forces on a tendon, force, sum of forces on a joint. Where MuJoCo's
slope of a law is not its exact derivative, the table has MuJoCo's.
Source: MuJoCo documentation, "Computation", "Actuation model"; MuJoCo 3.8.1, mjd_actuator_vel.
"""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.actuator.actuators import (
    Actuators,
    Command,
    Conditions,
    clamp,
    has_pid,
    limit_on_joints,
    limit_on_tendons,
    saturated,
    switched_off,
    usable_controls,
)
from diffsim.actuator.laws import BIASES, DYNAMICS, GAINS, Dynamics, Force, nothing, of_plugin
from diffsim.base.enums import BiasType, DisableBit, DynType, GainType, TrnType
from diffsim.base.joints import is_ball
from diffsim.math import safe
from diffsim.math.vector import matmul, total
from diffsim.types.data import Actuation, Data, Passive, Transmission, Velocities
from diffsim.types.model import Model
from diffsim.types.state import Inputs, State
from diffsim.types.topology import Topology, per_topology
from diffsim.xla.gather import pick, pick_some, place


@dataclasses.dataclass(frozen=True)
class Group:
    """All actuators that have the same dynamics, gain and bias.

    Attributes:
      dynamics, gain, bias: the laws.
      ids: (n,) indices of the actuators.
      places: (n, k) indices of the activations that hold the k states of the law; -1 where an actuator lacks a state.
    """

    dynamics: Dynamics
    gain: Force
    bias: Force
    ids: np.ndarray
    places: np.ndarray

    def without(self, idle: np.ndarray) -> "Group":
        """The group without the actuators of the mask `idle` (nu,)."""
        kept = ~idle[self.ids]
        return dataclasses.replace(self, ids=self.ids[kept], places=self.places[kept])


@per_topology
def groups(topology: Topology) -> tuple[Group, ...]:
    """The actuators of a model, grouped by dynamics, gain and bias."""
    kinds = topology.actuator_dyntype, topology.actuator_gaintype, topology.actuator_biastype
    types = np.stack([*kinds, has_pid(topology)], axis=1)
    runs = []
    for kinds in np.unique(types, axis=0):
        ids = np.flatnonzero((types == kinds).all(axis=1))
        dyntype, gaintype, biastype, controlled = kinds.tolist()
        law = DYNAMICS[DynType(dyntype)], GAINS[GainType(gaintype)], BIASES[BiasType(biastype)]
        law = of_plugin(law[0]) if controlled else law
        # `actuator_actslots` says which activation of an actuator holds each state of its law; a law with fewer states
        # than columns has them in the last columns
        states = topology.actuator_actnum[ids].max() if law[0].states is None else len(law[0].states)
        slots = topology.actuator_actslots[ids, topology.actuator_actslots.shape[1] - states :]
        places = np.where(slots >= 0, topology.actuator_actadr[ids][:, None] + slots, -1)
        runs.append(Group(*law, ids, places))
    return tuple(runs)


def members(model: Model, group: Group, conditions: Conditions) -> Actuators:
    """The actuators of a group with their controls, activations, lengths and velocities."""
    ctrl, length, velocity = (
        pick(values, group.ids) for values in (conditions.command.ctrl, conditions.length, conditions.velocity)
    )
    act = pick_some(conditions.act, group.places)
    return Actuators(
        model=model,
        ids=group.ids,
        places=group.places,
        act=act,
        ctrl=ctrl,
        length=length,
        velocity=velocity,
        user=conditions.command.user,
        time=conditions.command.time,
    )


def by_actuator(model: Model, chosen: Sequence[Group], values: Sequence[Array]) -> Array:
    """(nu,) the values (n,) of each of the `chosen` groups, in the order of all actuators; 0 for other actuators."""
    return place(model.nu, np.concatenate([group.ids for group in chosen]), jnp.concatenate(values))


def by_activation(model: Model, chosen: Sequence[Group], values: Sequence[Array], like: Array) -> Array:
    """(na,) the values (n, k) of the states of each of the `chosen` groups, in the order of all activations.

    `like` (na,) gives the shape and dtype of the result if no group has states.
    """
    kept, places = [], []
    for group, columns in zip(chosen, values, strict=True):
        has = group.places >= 0
        if has.any():
            kept.append(columns[np.nonzero(has)] if not has.all() else columns.reshape(-1))
            places.append(group.places[has])
    if not kept:
        return jnp.zeros_like(like)
    return place(model.topology.na, np.concatenate(places), jnp.concatenate(kept))


def signal(group: Group, actuators: Actuators, rate: Array) -> Array:
    """(n,) the signal that the gains multiply: the control, or the activation.

    For actuators with `actearly` it is the activation of the next timestep.

    Args:
      group: the laws.
      actuators: the n actuators of the group.
      rate: (n, k) d act / dt, per second.
    """
    early = actuators.model.topology.actuator_actearly[actuators.ids] != 0
    act = actuators.act
    if early.any() and group.places.size:
        act = jnp.where(early[:, None], group.dynamics.advance(actuators, rate), act)
    return nearest_turn(actuators, group.dynamics.signal(actuators, act), actuators.length)


# dynamics of servos whose setpoint is the control or its integral
UNFILTERED = (DynType.NONE, DynType.INTEGRATOR)
# dynamics of servos whose setpoint is the filtered control
FILTERED = (DynType.FILTER, DynType.FILTEREXACT)


def nearest_turn(actuators: Actuators, setpoint: Array, to: Array) -> Array:
    """(n,) rad, the setpoints of servos, moved by full turns so that they are as near as possible to angles `to` (n,).

    This is for servos on ball joints and servos that rotate one site relative to another, since MuJoCo 3.11; for those
    with a filter, since 4.0. Other setpoints do not change.
    """
    model, ids = actuators.model, actuators.ids
    topology = model.topology
    target, reference = topology.actuator_trnid[ids].T
    kind = topology.actuator_trntype[ids]
    on_ball = np.zeros(len(ids), bool)
    on_joint = np.isin(kind, (TrnType.JOINT, TrnType.JOINTINPARENT))
    on_ball[on_joint] = is_ball(topology.jnt_type[target[on_joint]])
    dynamics = UNFILTERED + FILTERED * model.opt.follows("filtered_turns")
    servo = np.isin(topology.actuator_dyntype[ids], dynamics) & (topology.actuator_gaintype[ids] == GainType.FIXED)
    servo &= topology.actuator_biastype[ids] == BiasType.AFFINE
    turning = servo & (on_ball | ((kind == TrnType.SITE) & (reference >= 0)))
    if not turning.any() or not model.opt.follows("nearest_turn"):
        return setpoint
    # a turn of the joint or site changes the length by 2 pi times the length of the gear's rotation axis
    gear = pick(model.actuator_gear, ids)
    axis = jnp.where(jnp.asarray(on_ball)[:, None], gear[:, :3], gear[:, 3:])
    period = 2 * jnp.pi * safe.norm(axis)
    rotates = jnp.asarray(turning) & (on_ball | jnp.all(gear[:, :3] == 0, axis=1)) & (period > 0)
    rotates &= actuators.gainprm[:, 0] == -actuators.biasprm[:, 1]
    turns = jnp.round((setpoint - to) / jnp.where(rotates, period, 1))
    return setpoint - jnp.where(rotates, period * jax.lax.stop_gradient(turns), 0)


def _rate(group: Group, actuators: Actuators) -> Array:
    """(n, k) d act / dt, per second. A filter takes the shortest way to its control, see `nearest_turn`."""
    if actuators.act.shape[1] and np.isin(actuators.model.topology.actuator_dyntype[group.ids], FILTERED).all():
        near = nearest_turn(actuators, actuators.ctrl, actuators.act[:, -1])
        # replaced only if it changed: a copy would gather the cached parameters again
        actuators = actuators if near is actuators.ctrl else dataclasses.replace(actuators, ctrl=near)
    return group.dynamics.rate(actuators)


def advance_activation(model: Model, act: Array, act_dot: Array, velocity: Array) -> Array:
    """(na,) activations one timestep later; activations of actuators that are switched off do not change.

    Args:
      model: the model.
      act, act_dot: (na,) activations and their rates per second.
      velocity: (nu,) velocities of the actuators, m/s or rad/s.
    """
    if not model.topology.na or model.opt.disabled(DisableBit.ACTUATION):
        return act
    # no law reads controls or lengths to advance its states, so zeros will do
    unused = jnp.zeros_like(velocity)
    conditions = Conditions(act, Command(unused), unused, velocity)
    idle = switched_off(model)
    later = []
    for group in groups(model.topology):
        rate = jnp.where(idle[group.ids][:, None], 0, pick_some(act_dot, group.places))
        later.append(group.dynamics.advance(members(model, group, conditions), rate))
    return by_activation(model, groups(model.topology), later, act)


def compute_actuation(
    model: Model, act: Array, command: Command, transmission: Transmission, velocities: Velocities, passive: Passive
) -> Actuation:
    """Forces of the actuators, and rates of their activations.

    Args:
      model: the model.
      act: (na,) activations.
      command: controls (nu,) as the user set them, and the results of the user's laws.
      transmission, velocities, passive: the results of these stages.

    Returns:
      Actuation: act_dot (na,) per second, actuator_force (nu,) and qfrc_actuator (nv,) in N or N m.
    """
    if not model.nu or model.opt.disabled(DisableBit.ACTUATION):
        zero = jnp.zeros_like(passive.qfrc_gravcomp)
        return Actuation(act_dot=jnp.zeros_like(act), actuator_force=jnp.zeros_like(command.ctrl), qfrc_actuator=zero)
    command = command._replace(ctrl=usable_controls(model, command.ctrl))
    conditions = Conditions(act, command, transmission.actuator_length, velocities.actuator_velocity)
    laws = groups(model.topology)
    # force = gain * signal + bias, law by law
    actuators = [members(model, law, conditions) for law in laws]
    rates = [_rate(law, a) for law, a in zip(laws, actuators, strict=True)]
    forces = []
    for law, of_law, rate in zip(laws, actuators, rates, strict=True):
        force = _signal_force(law, of_law, rate)
        # a bias to which the limits do not apply (friction of a DC motor) is added after them
        forces.append(force + law.bias.value(of_law, of_law.biasprm) if law.bias.limited else force)

    # limits, in MuJoCo's order: sum of forces on a tendon, force of an actuator
    force = _unless_switched_off(model, by_actuator(model, laws, forces))
    force = limit_on_tendons(model, force)
    force = clamp(force, model.actuator_forcerange, model.topology.actuator_forcelimited)
    # biases to which these limits do not apply
    beyond = [(law, a) for law, a in zip(laws, actuators, strict=True) if not law.bias.limited]
    if beyond:
        biases = [law.bias.value(a, a.biasprm) for law, a in beyond]
        force = force + _unless_switched_off(model, by_actuator(model, [law for law, _ in beyond], biases))
    # moment^T force, then the limits of joints
    topology = model.topology
    on_dofs = matmul(transmission.actuator_moment.T, force)
    if topology.jnt_actgravcomp.any() and topology.has("body_gravcomp"):
        # gravity compensation that acts through actuators
        by_actuators = topology.jnt_actgravcomp[topology.dof_jntid] != 0
        on_dofs = on_dofs + jnp.where(by_actuators, passive.qfrc_gravcomp, 0)
    return Actuation(
        act_dot=by_activation(model, laws, rates, act),
        actuator_force=force,
        qfrc_actuator=limit_on_joints(model, on_dofs),
    )


def _unless_switched_off(model: Model, force: Array) -> Array:
    """(nu,) forces, zero for actuators that `opt.disableactuator` switches off."""
    idle = switched_off(model)
    return jnp.where(idle, 0, force) if idle.any() else force


def velocity_slopes(model: Model, state: State, inputs: Inputs, data: Data) -> tuple[np.ndarray, Array]:
    """Indices (n,) of the actuators whose force depends on velocity, and d force / d velocity (n,).

    The slopes, N s / m or N m s / rad, are zero where the force is at its limit. In models with the semantics of
    MuJoCo 4.0 they are also zero where the joint or tendon is at its limit of actuator forces. As in MuJoCo, they are
    taken at the control that the user set, before it is clamped.

    Args:
      model, state, inputs: the model, the state and its inputs.
      data: the Data of this state.
    """
    idle = switched_off(model)
    moving = [
        group.without(idle)
        for group in groups(model.topology)
        if group.gain.slope or group.dynamics.signal_slope or group.bias.slope
    ]
    moving = [group for group in moving if group.ids.size]
    if not moving:
        return np.zeros(0, int), jnp.zeros((0,), data.actuator_velocity.dtype)
    conditions = Conditions(state.act, Command(inputs.ctrl), data.actuator_length, data.actuator_velocity)
    slopes = [_slope(group, members(model, group, conditions), data.act_dot) for group in moving]
    ids = np.concatenate([group.ids for group in moving])
    return ids, _unless_limited(model, data, ids, jnp.concatenate(slopes), model.opt.follows("saturated_targets"))


def _unless_limited(model: Model, data: Data, ids: np.ndarray, slope: Array, targets: bool) -> Array:
    """Slopes (n,) of the forces of actuators `ids`; zero where the force is at its limit.

    With `targets`, also zero where the joint or tendon is at its limit of actuator forces.
    """
    limited = model.topology.actuator_forcelimited[ids] != 0
    if limited.any():
        force = pick(data.actuator_force, ids)
        lower, upper = pick(model.actuator_forcerange, ids).T
        slope = jnp.where(limited & ((force <= lower) | (force >= upper)), 0, slope)
    if targets:
        slope = jnp.where(pick(saturated(model, data.actuator_force, data.qfrc_actuator), ids), 0, slope)
    return slope


def stiffness_and_damping(model: Model, act: Array, command: Command, data: Data) -> tuple[np.ndarray, Array, Array]:
    """Indices (n,) of the actuators whose force can depend on length or velocity, and minus these derivatives (n,).

    They are derivatives at the clamped controls, N / m and N s / m or N m / rad and N m s / rad, which can have any
    sign. They are zero where the force, the joint or the tendon is at its limit.

    Args:
      model: the model.
      act: (na,) activations.
      command: the controls, before they are clamped.
      data: lengths, velocities and forces of the actuators.
    """
    idle = switched_off(model)
    elastic = [group for group in groups(model.topology) if group.gain.slope or group.bias.value is not nothing]
    elastic = [group for group in (group.without(idle) for group in elastic) if group.ids.size]
    if not elastic:
        none = jnp.zeros((0,), act.dtype)
        return np.zeros(0, int), none, none
    command = command._replace(ctrl=usable_controls(model, command.ctrl))

    conditions = Conditions(act, command, data.actuator_length, data.actuator_velocity)

    def forces(length: Array) -> Array:
        """(n,) the forces without limits."""
        parts = []
        for group in elastic:
            actuators = members(model, group, conditions._replace(length=length))
            parts.append(_signal_force(group, actuators, _rate(group, actuators)))
            parts[-1] = parts[-1] + group.bias.value(actuators, actuators.biasprm)
        return jnp.concatenate(parts)

    ids = np.concatenate([group.ids for group in elastic])
    # an actuator's force depends on its own length alone: one tangent serves all of them
    by_length = jax.jvp(forces, (conditions.length,), (jnp.ones_like(conditions.length),))[1]
    by_velocity = [_slope(group, members(model, group, conditions), data.act_dot) for group in elastic]
    slopes = by_length, jnp.concatenate(by_velocity)
    stiffness, damping = (-_unless_limited(model, data, ids, slope, targets=True) for slope in slopes)
    return ids, stiffness, damping


def _signal_force(group: Group, actuators: Actuators, rate: Array) -> Array:
    """(n,) gain * signal."""
    return group.gain.value(actuators, actuators.gainprm) * signal(group, actuators, rate)


def _slope(group: Group, actuators: Actuators, act_dot: Array) -> Array:
    """(n,) d force / d velocity = gain' signal + gain signal' + bias', with `act_dot` (na,) of the whole model."""
    rate = pick_some(act_dot, group.places)
    terms = []
    if group.gain.slope:
        terms.append(group.gain.slope(actuators, actuators.gainprm) * signal(group, actuators, rate))
    if group.dynamics.signal_slope:
        terms.append(group.gain.value(actuators, actuators.gainprm) * group.dynamics.signal_slope(actuators))
    if group.bias.slope:
        terms.append(group.bias.slope(actuators, actuators.biasprm))
    return total(terms) if terms else jnp.zeros_like(actuators.length)
