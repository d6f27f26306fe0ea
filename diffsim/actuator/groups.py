"""Actuators that share a law, side by side: which they are, what they see, and back to the order of the model.

All index work is done once per topology; a stage calls each law once, for all of its actuators.
"""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.actuator.actuators import Actuators, Conditions, at_places
from diffsim.actuator.laws import BIASES, DYNAMICS, GAINS, Dynamics, Force
from diffsim.base.enums import BiasType, DynType, GainType
from diffsim.types.model import Model
from diffsim.types.topology import Topology, per_topology
from diffsim.xla.pick import pick, place

Array = jax.Array


@dataclasses.dataclass(frozen=True)
class Group:
    """Actuators `ids` (n,) with the same dynamics, gain and bias, and the activations (n, k) that hold their states.

    An activation is -1 for a state that the actuator has not.
    """

    dynamics: Dynamics
    gain: Force
    bias: Force
    ids: np.ndarray
    places: np.ndarray

    def without(self, idle: np.ndarray) -> "Group":
        """The actuators that are not in the mask `idle` (nu,)."""
        kept = ~idle[self.ids]
        return dataclasses.replace(self, ids=self.ids[kept], places=self.places[kept])


@per_topology
def groups(topology: Topology) -> tuple[Group, ...]:
    """All actuators, by dynamics, gain and bias."""
    types = np.stack([topology.actuator_dyntype, topology.actuator_gaintype, topology.actuator_biastype], axis=1)
    found = []
    for kinds in np.unique(types, axis=0):
        ids = np.flatnonzero((types == kinds).all(axis=1))
        dyntype, gaintype, biastype = kinds.tolist()
        dynamics = DYNAMICS[DynType(dyntype)]
        places = _places(topology, dynamics, ids)
        found.append(Group(dynamics, GAINS[GainType(gaintype)], BIASES[BiasType(biastype)], ids, places))
    return tuple(found)


def _places(topology: Topology, dynamics: Dynamics, ids: np.ndarray) -> np.ndarray:
    """(n, k) the activations that hold the states of actuators with these dynamics; -1 for none."""
    width = topology.actuator_actnum[ids].max() if dynamics.states is None else len(dynamics.states)
    # the states of a law are in the last columns
    slots = topology.actuator_actslots[ids]
    slots = slots[:, slots.shape[1] - width :]
    return np.where(slots >= 0, topology.actuator_actadr[ids][:, None] + slots, -1)


def members(model: Model, group: Group, conditions: Conditions) -> Actuators:
    """The actuators of a group, in one state of the world."""
    ctrl, length, velocity = (
        pick(values, group.ids) for values in (conditions.command.ctrl, conditions.length, conditions.velocity)
    )
    act = at_places(conditions.act, group.places)
    return Actuators(model, group.ids, group.places, act, ctrl, length, velocity, conditions.command.user)


def by_actuator(model: Model, chosen: Sequence[Group], values: Sequence[Array]) -> Array:
    """(nu,) from the values (n,) of each group; 0 for actuators of no group."""
    return place(model.nu, np.concatenate([group.ids for group in chosen]), jnp.concatenate(values))


def by_activation(model: Model, chosen: Sequence[Group], values: Sequence[Array], like: Array) -> Array:
    """(na,) from the values (n, k) of each group's states; 0, of the dtype of `like`, if there are none."""
    kept, places = [], []
    for group, columns in zip(chosen, values, strict=True):
        has = group.places >= 0
        if has.any():
            kept.append(columns[np.nonzero(has)] if not has.all() else columns.reshape(-1))
            places.append(group.places[has])
    if not kept:
        return jnp.zeros_like(like)
    return place(model.topology.na, np.concatenate(places), jnp.concatenate(kept))
