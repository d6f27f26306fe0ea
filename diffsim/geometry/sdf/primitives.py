"""Signed distance fields of the primitive shapes, as MuJoCo's collisions of distance fields use them.

Each shape is two functions in its own frame: `distance(size, point)` in m, negative inside, and
`gradient(size, point)`, the direction that descent follows. Inside a box and a cylinder the gradient is not that of the
distance, and the distance of an ellipsoid is one of first order: what MuJoCo takes, so that descents end where its do.
Any number of leading axes of `point`; `size` is (3,). Finite everywhere, with finite derivatives.
Source: Quilez, "Distance functions"; `geomDistance` and `geomGradient` of engine_collision_sdf.c (3.8.1).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from diffsim.base.enums import GeomType
from diffsim.math import safe
from diffsim.math.vector import pack, scale, unpack

Array = jax.Array

# the least length that divides in a cylinder's gradient (1 / mjMAXVAL)
SHORTEST = 1e-10


class Field(NamedTuple):
    """A signed distance and the direction in which it grows: (parameters, point (..., 3)) -> (...) m, (..., 3)."""

    distance: Callable[[Any, Array], Array]
    gradient: Callable[[Any, Array], Array]


def sphere_distance(size: Array, point: Array) -> Array:
    """Distance from the centre less the radius."""
    return safe.norm(point) - size[0]


def sphere_gradient(size: Array, point: Array) -> Array:
    """Away from the centre."""
    return safe.normalize(point)


def capsule_distance(size: Array, point: Array) -> Array:
    """Distance from the axis segment less the radius."""
    return safe.norm(_off_axis(size, point)) - size[0]


def capsule_gradient(size: Array, point: Array) -> Array:
    """Away from the nearest point of the axis segment."""
    return safe.normalize(_off_axis(size, point))


def _off_axis(size: Array, point: Array) -> Array:
    x, y, z = unpack(point)
    return pack([x, y, z - safe.clip(z, -size[1], size[1])])


def ellipsoid_distance(size: Array, point: Array) -> Array:
    """k0 (k0 - 1) / k1, where k0 = |p / s| and k1 = |p / s^2|."""
    k0, k1 = safe.norm(point / _along(size, point)), safe.norm(point / _along(size * size, point))
    return safe.divide(k0 * (k0 - 1), k1)


def ellipsoid_gradient(size: Array, point: Array) -> Array:
    """The gradient of the distance, as a unit vector."""
    half = _along(size, point)
    once, twice = point / half, point / (half * half)
    k0, k1 = safe.norm(once), safe.norm(twice)
    by_k0, by_k1 = safe.divide(2 * k0 - 1, k0 * k1), safe.divide(k0 * (k0 - 1), k1 * k1 * k1)
    return safe.normalize(scale(twice, by_k0) - scale(twice / (half * half), by_k1))


def cylinder_distance(size: Array, point: Array) -> Array:
    """Distance from the surface; inside the nearer of side and end."""
    beyond, above = _past_cylinder(size, point)
    outside = safe.norm(pack([safe.maximum(beyond, 0), safe.maximum(above, 0)]))
    return safe.minimum(safe.maximum(beyond, above), 0) + outside


def cylinder_gradient(size: Array, point: Array) -> Array:
    """Outside that of the distance; inside towards the nearer of side and end."""
    x, y, z = unpack(point)
    beyond, above = _past_cylinder(size, point)
    side, rise = safe.norm(pack([x, y])), jnp.abs(z)
    over, top = safe.maximum(beyond, 0), safe.maximum(above, 0)
    length = safe.norm(pack([over, top]))
    first, inside = beyond > above, safe.maximum(beyond, above) < 0
    radial = jnp.where(inside, jnp.where(first, 1, 0), over / safe.maximum(length, SHORTEST))
    axial = jnp.where(inside, jnp.where(first, 0, 1), top / safe.maximum(length, SHORTEST))
    by_side = radial / safe.maximum(side, SHORTEST)
    return pack([x * by_side, y * by_side, z * axial / safe.maximum(rise, SHORTEST)])


def _past_cylinder(size: Array, point: Array) -> tuple[Array, Array]:
    """How far a point is past the side, and past the ends."""
    x, y, z = unpack(point)
    return safe.norm(pack([x, y])) - size[0], jnp.abs(z) - size[1]


def box_distance(size: Array, point: Array) -> Array:
    """Outside the distance; inside, the length along the gradient to where this meets a face."""
    past = jnp.abs(point) - _along(size, point)
    outside = safe.norm(safe.maximum(past, 0))
    inside, depth, reach = _inside_box(size, past)
    x, y, z = unpack(depth * depth / _along(size, depth))
    return jnp.where(inside, -safe.minimum(x, safe.minimum(y, z)) * safe.norm(reach), outside)


def box_gradient(size: Array, point: Array) -> Array:
    """Outside away from the nearest point; inside a direction that turns from radial to the normal of a face."""
    past = jnp.abs(point) - _along(size, point)
    inside, _, reach = _inside_box(size, past)
    outward = jnp.where(inside[..., None], safe.normalize(reach), safe.normalize(safe.maximum(past, 0)))
    return outward * jnp.where(point < 0, -1, 1)


def _inside_box(size: Array, past: Array) -> tuple[Array, Array, Array]:
    """Whether a point is inside, its depths below the faces (..., 3) m, and the half sizes over these."""
    x, y, z = unpack(past)
    inside = safe.maximum(x, safe.maximum(y, z)) < 0
    depth = jnp.where(inside[..., None], -past, 1)
    return inside, depth, safe.divide(_along(size, depth), depth)


def _along(size: Array, point: Array) -> Array:
    """Sizes as many as points."""
    return jnp.broadcast_to(size, point.shape)


PRIMITIVES: dict[GeomType, Field] = {
    GeomType.SPHERE: Field(sphere_distance, sphere_gradient),
    GeomType.CAPSULE: Field(capsule_distance, capsule_gradient),
    GeomType.ELLIPSOID: Field(ellipsoid_distance, ellipsoid_gradient),
    GeomType.CYLINDER: Field(cylinder_distance, cylinder_gradient),
    GeomType.BOX: Field(box_distance, box_gradient),
}
