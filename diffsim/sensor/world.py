"""Sensors of the whole world (time, energy), of a body with all that hangs on it, and those that the user computes."""

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.sensor.readings import Group, Readings
from diffsim.types.topology import Topology, per_topology
from diffsim.xla.gather import pick

Array = jax.Array


def clock(readings: Readings, group: Group) -> Array:
    """Simulation time, s, (n, 1)."""
    return readings.state.time.reshape(1, 1).repeat(group.size, 0)


def potential_energy(readings: Readings, group: Group) -> Array:
    """Potential energy, J, (n, 1)."""
    return readings.data.energy[:1, None].repeat(group.size, 0)


def kinetic_energy(readings: Readings, group: Group) -> Array:
    """Kinetic energy, J, (n, 1)."""
    return readings.data.energy[1:, None].repeat(group.size, 0)


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


def user_sensor(readings: Readings, group: Group) -> Array:
    """Numbers of user sensors, in the user's units, (n, dim)."""
    if readings.model.hooks.sensor is None:
        return jnp.zeros((group.size, group.dim), readings.state.qpos.dtype)
    address = readings.topology.sensor_adr[group.sensors][:, None] + np.arange(group.dim)
    return pick(readings.of_hook, address)
