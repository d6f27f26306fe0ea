"""Activations: the signal that drives each force, and where activations are one timestep later."""

import jax
import jax.numpy as jnp

from diffsim.actuator.actuators import Actuators, Command, Conditions, at_places
from diffsim.actuator.control import switched_off
from diffsim.actuator.groups import Group, by_activation, groups, members
from diffsim.base.enums import DisableBit
from diffsim.types.model import Model

Array = jax.Array


def signal(group: Group, actuators: Actuators, rate: Array) -> Array:
    """(n,) what the gains multiply: controls, or activations; those of the next step for `actearly`.

    rate: (n, k) d act / dt, per second.
    """
    early = actuators.model.topology.actuator_actearly[actuators.ids] != 0
    act = actuators.act
    if early.any() and group.places.size:
        act = jnp.where(early[:, None], group.dynamics.advance(actuators, rate), act)
    return group.dynamics.signal(actuators, act)


def advance_activation(model: Model, act: Array, act_dot: Array, velocity: Array) -> Array:
    """(na,) activations one timestep later; those of actuators that are switched off have no rate.

    Args:
      act, act_dot: (na,) activations and their rates per second.
      velocity: (nu,) of the actuators, m/s or rad/s.
    """
    if not model.topology.na or model.opt.disabled(DisableBit.ACTUATION):
        return act
    # controls and lengths play no part
    rest = jnp.zeros_like(velocity)
    conditions = Conditions(act, Command(rest), rest, velocity)
    idle = switched_off(model)
    later = []
    for group in groups(model.topology):
        rate = jnp.where(idle[group.ids][:, None], 0, at_places(act_dot, group.places))
        later.append(group.dynamics.advance(members(model, group, conditions), rate))
    return by_activation(model, groups(model.topology), later, act)
