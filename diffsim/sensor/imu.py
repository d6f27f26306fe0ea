"""Instruments mounted at a site, all in the site's axes: inertial, magnetic, force and torque."""

import jax
import jax.numpy as jnp

from diffsim.base.enums import ObjType
from diffsim.math.vector import cross, mul_vec_t
from diffsim.sensor.objects import acceleration, lever, orientation, velocity
from diffsim.sensor.readings import Group, Readings
from diffsim.xla.pick import pick

Array = jax.Array


def accelerometer(readings: Readings, group: Group) -> Array:
    """Proper acceleration, m/s^2, (n, 3): at rest it shows gravity, upward."""
    return _in_site(readings, group, acceleration(readings, ObjType.SITE, group.objid)[:, 3:])


def velocimeter(readings: Readings, group: Group) -> Array:
    """Linear velocity, m/s, (n, 3)."""
    return _in_site(readings, group, velocity(readings, ObjType.SITE, group.objid)[:, 3:])


def gyro(readings: Readings, group: Group) -> Array:
    """Angular velocity, rad/s, (n, 3)."""
    return _in_site(readings, group, velocity(readings, ObjType.SITE, group.objid)[:, :3])


def magnetometer(readings: Readings, group: Group) -> Array:
    """Magnetic flux, in the unit of `option/magnetic`, (n, 3)."""
    field = jnp.broadcast_to(readings.model.opt.magnetic, (group.size, 3))
    return _in_site(readings, group, field)


def force(readings: Readings, group: Group) -> Array:
    """Force between the site's body and its parent, N, (n, 3): what the child exerts on the parent."""
    return _in_site(readings, group, _interaction(readings, group)[:, 3:])


def torque(readings: Readings, group: Group) -> Array:
    """Torque between the site's body and its parent, about the site, N m, (n, 3)."""
    wrench = _interaction(readings, group)
    arm = lever(readings, ObjType.SITE, group.objid)
    return _in_site(readings, group, wrench[:, :3] - cross(arm, wrench[:, 3:]))


def _interaction(readings: Readings, group: Group) -> Array:
    """Interaction (torque, force) of the sites' bodies with their parents, at the tree's centre of mass, (n, 6)."""
    return pick(readings.data.cfrc_int, readings.topology.site_bodyid[group.objid])


def _in_site(readings: Readings, group: Group, vector: Array) -> Array:
    return mul_vec_t(orientation(readings, ObjType.SITE, group.objid), vector)
