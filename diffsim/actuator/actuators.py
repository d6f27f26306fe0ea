"""The arguments of actuator laws, the clamps of controls and forces, and the laws that users define by hooks.

Lengths are in m for slides and tendons and in rad for hinges, times the gear; velocities are per second, and forces in
N or N m. Controls and activations have the units that the law gives them. Actuators of type `user` need a hook or a
plugin; without one, tracing a step raises an error.
Source: MuJoCo documentation, "Computation", "Actuation model", "Force limits".
"""

import dataclasses
import functools
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import BiasType, DisableBit, DynType, GainType, TrnType
from diffsim.base.errors import UnsupportedError
from diffsim.math import safe
from diffsim.math.vector import matmul
from diffsim.types.data import Data, Passive
from diffsim.types.history import delayed_controls
from diffsim.types.hooks import plugin_uses
from diffsim.types.model import Model
from diffsim.types.state import Inputs, State
from diffsim.types.topology import Topology
from diffsim.xla.gather import pick, pick_some, place


def has_pid(topology: Topology) -> np.ndarray:
    """(nu,) bool: the actuators with MuJoCo's plugin mujoco.pid.

    Only plugins of the user have an address in `plugin_numberadr`; actuators with these have laws of type `user`.
    """
    return (topology.actuator_plugin >= 0) & (np.append(topology.plugin_numberadr, 0)[topology.actuator_plugin] < 0)


class UserLaws(NamedTuple):
    """The results of the user's hooks and plugins; zero for all other actuators.

    Attributes:
      rate: (na,) d act / dt, per second.
      gain: (nu,) force per signal.
      bias: (nu,) force, N or N m.
    """

    rate: Array
    gain: Array
    bias: Array


class Command(NamedTuple):
    """The inputs of the actuators.

    Attributes:
      ctrl: (nu,) controls.
      user: the results of the user's hooks; None: actuators of type `user` do nothing.
      time: s.
    """

    ctrl: Array
    user: UserLaws | None = None
    time: Array | float = 0.0


class Conditions(NamedTuple):
    """What the laws of all actuators depend on: activations (na,), the command, lengths and velocities (nu,)."""

    act: Array
    command: Command
    length: Array
    velocity: Array


@dataclasses.dataclass(frozen=True)
class Actuators:
    """The n actuators that have one law, and all that the law depends on.

    Attributes:
      model: the whole model.
      ids: (n,) their indices.
      places: (n, k) indices of the activations that hold the k states of the law; -1 where an actuator lacks a state.
      act: (n, k) these activations; 0 where an actuator lacks a state.
      ctrl, length, velocity: (n,) controls, lengths and velocities.
      user: the results of the user's hooks, for all actuators of the model.
      time: s.
    """

    model: Model
    ids: np.ndarray
    places: np.ndarray
    act: Array
    ctrl: Array
    length: Array
    velocity: Array
    user: UserLaws | None
    time: Array | float = 0.0

    @property
    def has(self) -> np.ndarray:
        """(n, k) bool: which states each actuator has."""
        return self.places >= 0

    @property
    def timestep(self) -> Array:
        """The timestep, s."""
        return self.model.opt.timestep

    @functools.cached_property
    def dynprm(self) -> Array:
        """(n, 10) parameters of the dynamics."""
        return pick(self.model.actuator_dynprm, self.ids)

    @functools.cached_property
    def gainprm(self) -> Array:
        """(n, 10) parameters of the gain."""
        return pick(self.model.actuator_gainprm, self.ids)

    @functools.cached_property
    def biasprm(self) -> Array:
        """(n, 10) parameters of the bias."""
        return pick(self.model.actuator_biasprm, self.ids)

    @functools.cached_property
    def pidprm(self) -> Array:
        """(n, 5) parameters of the plugin mujoco.pid; only for actuators that have it."""
        row = np.cumsum(has_pid(self.model.topology)) - 1
        return pick(self.model.actuator_pidprm, row[self.ids])

    @functools.cached_property
    def lengthrange(self) -> Array:
        """(n, 2) shortest and longest length."""
        return pick(self.model.actuator_lengthrange, self.ids)

    @functools.cached_property
    def acc0(self) -> Array:
        """(n,) norm of the joint acceleration that a unit force causes at qpos0, 1 / kg or 1 / (kg m^2)."""
        return pick(self.model.actuator_acc0, self.ids)

    def within_range(self, act: Array) -> Array:
        """Activations (n, k) clamped to the actuators' ranges."""
        limited = self.model.topology.actuator_actlimited[self.ids]
        ranges = pick(self.model.actuator_actrange, self.ids)
        return clamp(act, ranges[:, None], limited[:, None])


def clamp(values: Array, ranges: Array, limited: np.ndarray) -> Array:
    """Values (...), clamped to ranges (..., 2) where `limited` (...) is not 0; the arguments broadcast."""
    if not limited.any():
        return values
    return jnp.where(limited != 0, safe.clip(values, ranges[..., 0], ranges[..., 1]), values)


def clamped_controls(model: Model, ctrl: Array) -> Array:
    """Controls (nu,), clamped to their ranges where they have one."""
    if model.opt.disabled(DisableBit.CLAMPCTRL):
        return ctrl
    return clamp(ctrl, model.actuator_ctrlrange, model.topology.actuator_ctrllimited)


def usable_controls(model: Model, ctrl: Array) -> Array:
    """(nu,) clamped controls; all are zero if any of them is NaN, infinite or beyond 1e10, as in MuJoCo."""
    ctrl = clamped_controls(model, ctrl)
    return jnp.where(safe.is_bad(ctrl), 0, ctrl)


# the last group of actuators that has a bit in `opt.disableactuator` (mjOption)
LAST_GROUP = 30


def switched_off(model: Model) -> np.ndarray:
    """(nu,) bool: the actuators whose group is disabled by a bit of `opt.disableactuator`."""
    group = model.topology.actuator_group
    bits = np.left_shift(1, np.clip(group, 0, LAST_GROUP), dtype=np.int64)
    return (group >= 0) & (group <= LAST_GROUP) & ((bits & model.opt.disableactuator) != 0)


def limit_on_tendons(model: Model, force: Array) -> Array:
    """(nu,) forces, N, scaled so that the sum of the forces on each tendon is within tendon_actfrcrange."""
    topology = model.topology
    tendon = np.where(topology.actuator_trntype == TrnType.TENDON, topology.actuator_trnid[:, 0], -1)
    limited = np.append(topology.tendon_actfrclimited != 0, False)
    actuators = np.flatnonzero(limited[tendon] & (tendon >= 0))
    tendon = tendon[actuators]
    if not actuators.size:
        return force
    same_tendon = jnp.asarray(tendon[:, None] == tendon[None], force.dtype)
    total = matmul(same_tendon, force[actuators])
    ranges = model.tendon_actfrcrange[tendon]
    limited = safe.clip(total, ranges[:, 0], ranges[:, 1])
    factor = jnp.where(limited == total, 1, safe.divide(limited, total, 1.0))
    is_limited = np.isin(np.arange(model.nu), actuators)
    return force * jnp.where(is_limited, place(model.nu, actuators, factor), 1)


def limit_on_joints(model: Model, force: Array) -> Array:
    """(nv,) generalized forces, N or N m, clamped to jnt_actfrcrange; as in MuJoCo, only the first dof of a joint."""
    topology = model.topology
    joint = topology.dof_jntid
    first = topology.jnt_dofadr[joint] == np.arange(topology.nv)
    return clamp(force, model.jnt_actfrcrange[joint], first & (topology.jnt_actfrclimited[joint] != 0))


# tolerance in units in the last place: scaled forces add up to their limit only up to rounding
ULPS = 8


def saturated(model: Model, force: Array, on_dofs: Array) -> Array:
    """(nu,) bool: the actuators on a joint or tendon that is at its limit of actuator forces (`actuatorfrcrange`).

    Args:
      model: the model.
      force: (nu,) N, forces of the actuators, after the limits of tendons.
      on_dofs: (nv,) N or N m, the sum of all actuator forces on each dof, after the limits of joints.
    """
    topology = model.topology
    target = topology.actuator_trnid[:, 0]
    saturated = jnp.zeros((model.nu,), bool)
    joint = np.isin(topology.actuator_trntype, (TrnType.JOINT, TrnType.JOINTINPARENT))
    joint &= np.append(topology.jnt_actfrclimited, 0)[np.where(joint, target, -1)] != 0
    if joint.any():
        driven = target[joint]
        at = pick(on_dofs, topology.jnt_dofadr[driven])
        lower, upper = pick(model.jnt_actfrcrange, driven).T
        saturated = saturated.at[np.flatnonzero(joint)].set((at <= lower) | (at >= upper))
    tendon = topology.actuator_trntype == TrnType.TENDON
    tendon &= np.append(topology.tendon_actfrclimited, 0)[np.where(tendon, target, -1)] != 0
    if tendon.any():
        pulled = target[tendon]
        total = matmul(jnp.asarray(pulled[:, None] == pulled[None], force.dtype), force[tendon])
        least, most = model.tendon_actfrcrange[pulled].T
        slack = ULPS * jnp.finfo(force.dtype).eps * jnp.maximum(jnp.abs(least), jnp.abs(most))
        saturated = saturated.at[np.flatnonzero(tendon)].set((total <= least + slack) | (total >= most - slack))
    return saturated


def user_rate(actuators: Actuators) -> Array:
    """(n, k) d act / dt, per second, from the hook `act_dyn`."""
    if actuators.user is None:
        return jnp.zeros_like(actuators.act)
    return pick_some(actuators.user.rate, actuators.places)


def user_gain(actuators: Actuators, parameters: Array) -> Array:
    """(n,) force per signal, from the hook `act_gain`; `parameters` is not used."""
    return jnp.zeros_like(actuators.length) if actuators.user is None else pick(actuators.user.gain, actuators.ids)


def user_bias(actuators: Actuators, parameters: Array) -> Array:
    """(n,) force, N or N m, from the hook `act_bias`; `parameters` is not used."""
    return jnp.zeros_like(actuators.length) if actuators.user is None else pick(actuators.user.bias, actuators.ids)


def add_user_force(model: Model, state: State, inputs: Inputs, data: Data, passive: Passive) -> Passive:
    """The passive forces plus the forces of the hook and of plugins, unless springs and dampers are disabled."""
    if model.opt.disabled(DisableBit.SPRING) and model.opt.disabled(DisableBit.DAMPER):
        return passive
    force = passive.qfrc_passive
    if model.hooks.passive is not None:
        force = force + model.hooks.passive(model, state, data)
    for plugin, use in plugin_uses(model, state, inputs, data, "passive"):
        force = force + _of_shape("passive", plugin.passive(use), force)  # type: ignore[misc]
    return passive.replace(qfrc_passive=force)


def user_laws(model: Model, state: State, inputs: Inputs, data: Data) -> UserLaws:
    """The results of the user's hooks and plugins for actuators of type `user`; zero for other actuators.

    Args:
      model, state, inputs: the model, the state and its inputs.
      data: positions and velocities of this state, which the hooks read.

    Raises:
      UnsupportedError: an actuator is of type `user` and the model has no hook for it.
    """
    topology = model.topology
    hooks = model.hooks
    dtype = state.qvel.dtype
    owner = np.repeat(np.arange(topology.nu), topology.actuator_actnum)
    # plugins come first, because their actuators need no hooks; the force of a plugin is a bias
    rate = jnp.zeros(topology.na, dtype)
    bias = jnp.zeros(topology.nu, dtype)
    has_rate = np.zeros(topology.na, bool)
    has_force = np.zeros(topology.nu, bool)
    for plugin, use in plugin_uses(model, state, inputs, data, "force", "actuator"):
        bias = bias.at[use.ids].set(_of_shape("force", plugin.force(use), bias[use.ids]))  # type: ignore[misc]
        has_force[use.ids] = True
    for plugin, use in plugin_uses(model, state, inputs, data, "act_dot", "actuator"):
        places = np.flatnonzero(np.isin(owner, use.ids)).reshape(len(use.ids), -1)
        rate = rate.at[places].set(_of_shape("act_dot", plugin.act_dot(use), rate[places]))  # type: ignore[misc]
        has_rate[places] = True

    def by_hook(name: str, wanted: np.ndarray, value: Array) -> Array:
        """`value`, replaced by the result of the hook where it is wanted."""
        if not wanted.any():
            return value
        hook = getattr(hooks, name)
        if hook is None:
            reason = f"an actuator is of type 'user'; define it by model.replace(hooks=Hooks({name}=...))"
            raise UnsupportedError.of("<general>", reason)
        return jnp.where(wanted, hook(model, state, inputs, data), value)

    gain = jnp.zeros_like(bias)
    return UserLaws(
        rate=by_hook("act_dyn", (topology.actuator_dyntype[owner] == DynType.USER) & ~has_rate, rate),
        gain=by_hook("act_gain", (topology.actuator_gaintype == GainType.USER) & ~has_force, gain),
        bias=by_hook("act_bias", (topology.actuator_biastype == BiasType.USER) & ~has_force, bias),
    )


def compute_command(model: Model, state: State, inputs: Inputs, data: Data) -> Command:
    """The inputs of the actuators: controls, after their delays, and the results of the user's hooks.

    Args:
      model, state, inputs: the model, the state and its inputs.
      data: positions and velocities of this state, which the hooks read.
    """
    return Command(
        ctrl=delayed_controls(model, state.history, state.time, inputs.ctrl),
        user=user_laws(model, state, inputs, data),
        time=state.time,
    )


def _of_shape(name: str, value: Array, like: Array) -> Array:
    """The array that the function `name` of a plugin returned, with the dtype of `like`.

    Raises:
      ValueError: it has another shape than `like`.
    """
    value = jnp.asarray(value, like.dtype)
    if value.shape != like.shape:
        raise ValueError(f"{name} of a plugin returned shape {value.shape}, expected {like.shape}")
    return value
