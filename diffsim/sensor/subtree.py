"""Sensors of a body and everything that hangs on it: centre of mass, its velocity, angular momentum about it.

The sums run over a static 0/1 mask of descendants, for the bodies that are asked for only.
"""

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.enums import ObjType
from diffsim.math.linalg import matmul
from diffsim.math.pick import pick
from diffsim.math.vector import cross, mul_vec, mul_vec_t, scale
from diffsim.sensor.objects import velocity
from diffsim.sensor.readings import Group, Ints, Readings
from diffsim.types.topology import Topology, per_topology

Array = jax.Array

MINIMUM_MASS = 1e-15


def subtree_centre(readings: Readings, group: Group) -> Array:
    """Centre of mass, m, (n, 3)."""
    return pick(readings.data.subtree_com, group.objid)


def subtree_velocity(readings: Readings, group: Group) -> Array:
    """Velocity of the centre of mass, m/s, (n, 3): momentum / mass."""
    model = readings.model
    momentum = scale(_body_velocity(readings)[:, 3:], model.body_mass)
    total = matmul(_members(readings, group.objid), momentum)
    mass = pick(model.body_subtreemass, group.objid)
    return scale(total, 1 / jnp.maximum(mass, MINIMUM_MASS))


def subtree_momentum(readings: Readings, group: Group) -> Array:
    """Angular momentum about the centre of mass c, kg m^2/s, (n, 3): sum I omega + m (x - c) x (v - v_c)."""
    model, data = readings.model, readings.data
    motion = _body_velocity(readings)
    spin = mul_vec(data.ximat, model.body_inertia * mul_vec_t(data.ximat, motion[:, :3]))
    # every pair of a subtree and a body, (n, nbody, 3)
    arm = data.xipos[None] - subtree_centre(readings, group)[:, None]
    relative = motion[None, :, 3:] - subtree_velocity(readings, group)[:, None]
    orbital = scale(cross(arm, relative), model.body_mass[None])
    members = _members(readings, group.objid)
    return jnp.sum(scale(orbital + spin[None], members), axis=1)


def _body_velocity(readings: Readings) -> Array:
    """Velocity of every body's centre of mass, (nbody, 6)."""
    return velocity(readings, ObjType.BODY, np.arange(readings.topology.nbody))


def _members(readings: Readings, bodies: Ints) -> Array:
    """Which bodies (columns) belong to the subtrees (rows), as 0 or 1."""
    mask = descendants(readings.topology)[bodies]
    return jnp.asarray(mask, readings.data.xpos.dtype)


@per_topology
def descendants(topology: Topology) -> np.ndarray:
    """(nbody, nbody): whether the column's body is the row's or hangs on it."""
    mask = np.eye(topology.nbody, dtype=bool)
    for body in range(topology.nbody - 1, 0, -1):
        mask[topology.body_parentid[body]] |= mask[body]
    return mask
