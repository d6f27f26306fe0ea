"""Whether an object is inside a site's volume: 1 or 0, with zero derivative.

Source: MuJoCo XML reference, "sensor/insidesite".
"""

import jax
import jax.numpy as jnp

from diffsim.base.enums import GeomType, ObjType
from diffsim.math.vector import dot, mul_vec_t
from diffsim.sensor.objects import position
from diffsim.sensor.readings import Group, Ints, Readings
from diffsim.xla.pick import pick

Array = jax.Array

MINIMUM_MASS = 1e-15


def _in_capsule(size: Array, point: Array) -> Array:
    beyond = jnp.maximum(jnp.abs(point[..., 2]) - size[..., 1], 0)
    return dot(point[..., :2], point[..., :2]) + beyond * beyond < size[..., 0] * size[..., 0]


def _in_cylinder(size: Array, point: Array) -> Array:
    round_part = dot(point[..., :2], point[..., :2]) < size[..., 0] * size[..., 0]
    return round_part & (jnp.abs(point[..., 2]) < size[..., 1])


# point in the shape's frame -> whether it is strictly inside
INSIDE = {
    GeomType.PLANE: lambda size, point: point[..., 2] < 0,
    GeomType.SPHERE: lambda size, point: dot(point, point) < size[..., 0] * size[..., 0],
    GeomType.CAPSULE: _in_capsule,
    GeomType.ELLIPSOID: lambda size, point: dot(point / size, point / size) < 1,
    GeomType.CYLINDER: _in_cylinder,
    GeomType.BOX: lambda size, point: jnp.all(jnp.abs(point) < size, axis=-1),
}


def inside_site(readings: Readings, group: Group) -> Array:
    """1 where the object's origin is inside the reference site, (n, 1)."""
    point = _point(readings, group)
    return in_site(readings, group.refid, point[:, None]).astype(point.dtype)


def in_site(readings: Readings, site: Ints, point: Array) -> Array:
    """Whether k world points each, (n, k, 3), are inside the volumes of n sites of one type, (n, k)."""
    offset = jax.lax.stop_gradient(point - pick(readings.data.site_xpos, site)[:, None])
    local = mul_vec_t(pick(readings.data.site_xmat, site)[:, None], offset)
    size = jnp.broadcast_to(pick(readings.model.site_size, site)[:, None], local.shape)
    return INSIDE[GeomType(readings.topology.site_type[site[0]])](size, local)


def _point(readings: Readings, group: Group) -> Array:
    """The objects' origins; for a massless body with a massive subtree, the subtree's centre of mass."""
    here = position(readings, group.objtype, group.objid)
    if group.objtype != ObjType.BODY:
        return here
    model = readings.model
    hollow = pick(model.body_mass, group.objid) < MINIMUM_MASS
    hollow &= pick(model.body_subtreemass, group.objid) >= MINIMUM_MASS
    hollow &= group.objid > 0
    return jnp.where(hollow[:, None], pick(readings.data.subtree_com, group.objid), here)
