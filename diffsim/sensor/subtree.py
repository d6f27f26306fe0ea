"""Sensors of a body and everything that hangs on it: centre of mass, its velocity, angular momentum about it."""

import jax
import numpy as np

from diffsim.sensor.readings import Group, Readings
from diffsim.types.topology import Topology, per_topology
from diffsim.xla.pick import pick

Array = jax.Array


def subtree_centre(readings: Readings, group: Group) -> Array:
    """Centre of mass, m, (n, 3)."""
    return pick(readings.data.subtree_com, group.objid)


def subtree_velocity(readings: Readings, group: Group) -> Array:
    """Velocity of the centre of mass, m/s, (n, 3)."""
    return pick(readings.data.subtree_linvel, group.objid)


def subtree_momentum(readings: Readings, group: Group) -> Array:
    """Angular momentum about the centre of mass, kg m^2/s, (n, 3)."""
    return pick(readings.data.subtree_angmom, group.objid)


@per_topology
def descendants(topology: Topology) -> np.ndarray:
    """(nbody, nbody): whether the column's body is the row's or hangs on it."""
    mask = np.eye(topology.nbody, dtype=bool)
    for body in range(topology.nbody - 1, 0, -1):
        mask[topology.body_parentid[body]] |= mask[body]
    return mask
