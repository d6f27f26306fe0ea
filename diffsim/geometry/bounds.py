"""Bounds of shapes: spheres and boxes around them, and their support functions h(d) = max of d . x over the shape.

Source: Ericson 2005, ch. 9.5.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.enums import GeomType
from diffsim.geometry.shapes import Shape
from diffsim.math import safe
from diffsim.math.vector import dot, mul_vec, mul_vec_t, unpack

Array = jax.Array


def bounding_boxes(types: np.ndarray, size: Array) -> Array:
    """(n, 3) half sides, m, of boxes around spheres, capsules, ellipsoids, cylinders and boxes of sizes (n, 3)."""
    radius, half, _ = unpack(size)
    around = jnp.stack([radius, radius, radius], axis=-1)
    long = jnp.stack([radius, radius, radius + half], axis=-1)
    flat = jnp.stack([radius, radius, half], axis=-1)
    shape = {GeomType.SPHERE: around, GeomType.CAPSULE: long, GeomType.CYLINDER: flat}
    for kind, sides in shape.items():
        size = jnp.where((types == kind)[:, None], sides, size)
    return size


def bounding_radii(types: np.ndarray, size: Array) -> Array:
    """(n,) radii, m, of spheres around shapes as in `bounding_boxes`."""
    x, y, z = unpack(bounding_boxes(types, size))
    longest = jnp.maximum(x, jnp.maximum(y, z))
    corner = safe.norm(jnp.stack([x, y, z], axis=-1))
    rim = safe.norm(jnp.stack([x, z], axis=-1))
    radius = jnp.where(types == GeomType.BOX, corner, longest)
    return jnp.where(types == GeomType.CYLINDER, rim, radius)


def lowest(kind: GeomType, shape: Shape, directions: Array) -> Array:
    """The least d . x, m, over the points x of a shape, for unit vectors d (n, 3), in the frame of its pose: (n,)."""
    local = mul_vec_t(shape.mat[None], directions)
    return dot(directions, shape.pos[None]) - SUPPORT[kind](-local, shape)


def bounds(kind: GeomType, shape: Shape) -> tuple[Array, Array]:
    """The least and the greatest coordinates (3,), m, of the points of a shape."""
    axes = jnp.eye(3, dtype=shape.pos.dtype)
    ends = lowest(kind, shape, jnp.concatenate([axes, -axes]))
    return ends[:3], -ends[3:]


def boxed(kind: GeomType, shape: Shape) -> tuple[GeomType, Shape]:
    """A mesh as the box around its vertices along its own axes; other shapes as they are."""
    if kind != GeomType.MESH:
        return kind, shape
    vert = shape.data.vert
    lower, upper = jnp.min(vert, axis=0), jnp.max(vert, axis=0)
    middle = shape.pos + mul_vec(shape.mat, 0.5 * (lower + upper))
    return GeomType.BOX, Shape(middle, shape.mat, 0.5 * (upper - lower))


def _sphere(d: Array, shape: Shape) -> Array:
    return jnp.broadcast_to(shape.size[0], d.shape[:-1])


def _capsule(d: Array, shape: Shape) -> Array:
    return shape.size[0] + shape.size[1] * jnp.abs(d[:, 2])


def _ellipsoid(d: Array, shape: Shape) -> Array:
    return safe.norm(d * shape.size[None])


def _cylinder(d: Array, shape: Shape) -> Array:
    x, y, z = unpack(d)
    return shape.size[0] * safe.sqrt(x * x + y * y) + shape.size[1] * jnp.abs(z)


def _box(d: Array, shape: Shape) -> Array:
    return dot(jnp.abs(d), shape.size[None])


def _mesh(d: Array, shape: Shape) -> Array:
    return jnp.max(dot(d[:, None], shape.data.vert[None]), axis=1)


# h of unit vectors (n, 3) in the frame of the shape: (n,)
SUPPORT: dict[GeomType, Callable[[Array, Shape], Array]] = {
    GeomType.SPHERE: _sphere,
    GeomType.CAPSULE: _capsule,
    GeomType.ELLIPSOID: _ellipsoid,
    GeomType.CYLINDER: _cylinder,
    GeomType.BOX: _box,
    GeomType.MESH: _mesh,
}
