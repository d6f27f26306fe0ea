"""The arguments and results of pair functions (shapes and contact candidates), and bounding spheres and boxes.

A pair function sees one pair of geoms; its caller applies `vmap`. It returns a fixed number of rows with signed
distances, which are exact even if the geoms are apart. A function that searches also gets a flag that says whether the
geoms are near; if they are not, it may return any finite numbers. The choice of features, such as the nearest face, is
discrete and has no derivatives. Distance, position and normal then follow from the chosen features in closed form.
`collider` wraps pair functions before tables list them.
Source: Ericson 2005, ch. 9.5, for support functions h(d) = max of d . x over the shape.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import GeomType
from diffsim.math import safe
from diffsim.math.vector import (
    cross_components,
    dot,
    dot_components,
    minus_components,
    mul_vec,
    mul_vec_t,
    pack,
    total,
    unpack,
)
from diffsim.xla.shared_values import stored_where_shared

# components (x, y, z)
Vector = list[Array]
Function = TypeVar("Function", bound=Callable[..., Any])


def collider(function: Function) -> Function:
    """A pair function for the tables of colliders, or a step of its search: the same geometry, fast on a CPU.

    So a pair function can be written like the formulas in a book. The wrapper decides which intermediate values are
    stored in memory (`xla/shared_values.py`).
    """
    return stored_where_shared(function)


class Shape(NamedTuple):
    """A geom in the world: centre (3,), rotation local to world (3, 3), MuJoCo's sizes (3,) in metres.

    `data`: further data of its type, such as the hull of a mesh (`DATA` in colliders.py).
    """

    pos: Array
    mat: Array
    size: Array
    data: Any = None

    @property
    def axis(self) -> Array:
        """The local z axis in the world: axis of capsules and cylinders, normal of planes."""
        return self.mat[:, 2]


class Candidates(NamedTuple):
    """Contact candidates, n rows.

    `dist` (n,): signed distance in metres, negative when penetrating. `pos` (n, 3): midway between the two surfaces.
    `normal` (n, 3): unit, from the first shape to the second. `tangent` (n, 3): hint for the first tangent, or zero.
    `valid` (n,): false where MuJoCo makes no contact, whatever the distance.
    """

    dist: Array
    pos: Array
    normal: Array
    tangent: Array
    valid: Array

    def one_list(self) -> "Candidates":
        """The rows (n * k,) of n pairs with k rows each, (n, k)."""
        return Candidates(*(x.reshape(-1, *x.shape[2:]) for x in self))


def relative_pose(first: Shape, second: Shape) -> tuple[Array, Array]:
    """Rotation R (3, 3) and shift s (3,), m: the point p in the second's frame is R p + s in the first's frame."""
    # R1^T R2 and R1^T (p2 - p1), written as sums because XLA stores the results of reductions
    rotation = jnp.sum(first.mat[:, :, None] * second.mat[:, None, :], axis=0)
    return rotation, jnp.sum(first.mat * (second.pos - first.pos)[:, None], axis=0)


def candidate(
    dist: Array, pos: Array, normal: Array, tangent: Array | None = None, valid: Array | bool = True
) -> Candidates:
    """One contact candidate, without the axis of rows; `stack` joins several."""
    return Candidates(dist, pos, normal, jnp.zeros_like(normal) if tangent is None else tangent, jnp.asarray(valid))


def stack(rows: Sequence[Candidates]) -> Candidates:
    """Single candidates joined along a leading axis of rows."""
    return Candidates(*(jnp.stack(parts) for parts in zip(*rows, strict=True)))


# rounding error of a position, in units in the last place
ROUNDINGS = 8


def negligible(x: Array, size: Array | float = 0.0) -> Array | float:
    """The length, m, below which the difference of two vectors of length `size` has no reliable direction.

    In float64 it is mjMINVAL. In float32 it is the rounding error of the difference of two equal vectors, or a length
    whose square is still a normal number, whichever is greater.
    """
    if x.dtype == jnp.float64:
        return 1e-15
    return jnp.maximum(ROUNDINGS * float(jnp.finfo(x.dtype).eps) * size, 1e-12)


def direction(v: Vector, fallback: Vector, size: Array | float) -> tuple[Vector, Array]:
    """(unit vector, length) of v, a difference of vectors of length `size`; by components, with finite derivatives.

    If v is negligible, the unit vector is `fallback` and the length is v . fallback. In both cases, the derivative of
    the length with respect to v is the returned unit vector.
    """
    squared = dot_components(v, v)
    valid = squared > negligible(squared, size) ** 2
    length = jnp.sqrt(jnp.where(valid, squared, 1))
    unit = [jnp.where(valid, x / length, other) for x, other in zip(v, fallback, strict=True)]
    return unit, jnp.where(valid, length, dot_components(v, fallback))


def unit_x(like: Array) -> Vector:
    """(1, 0, 0) on components, each of the shape and dtype of `like`."""
    zero = jnp.zeros_like(like)
    return [zero + 1, zero, zero]


def axes_fallback(shape1: Shape, shape2: Shape) -> Vector:
    """The normal that MuJoCo gives to coincident centres: the cross product of the z axes, or the x axis."""
    axes = jax.lax.stop_gradient((unpack(shape1.axis), unpack(shape2.axis)))
    across = cross_components(*axes)
    return direction(across, unit_x(across[0]), 1.0)[0]


def ball_ball(
    center1: Vector, radius1: Array, center2: Vector, radius2: Array, fallback: Vector
) -> tuple[Array, Array, Array]:
    """(dist (), pos (3,), normal (3,)) of two balls, centres by components; `fallback`: the normal if these coincide.

    dist = |c2 - c1| - r1 - r2. The position is halfway between the surfaces, r1 + dist / 2 from the first centre.
    """
    between = minus_components(center2, center1)
    size = jax.lax.stop_gradient(total([jnp.abs(c) for c in (*center1, *center2)]))
    normal, length = direction(between, fallback, size)
    dist = length - radius1 - radius2
    reach = radius1 + 0.5 * dist
    return dist, pack([c + reach * n for c, n in zip(center1, normal, strict=True)]), pack(normal)


def bounding_boxes(types: np.ndarray, size: Array) -> Array:
    """(n, 3) half sides, m, of boxes around spheres, capsules, ellipsoids, cylinders and boxes of sizes (n, 3)."""
    radius, half, _ = unpack(size)
    sides = {
        GeomType.SPHERE: jnp.stack([radius, radius, radius], axis=-1),
        GeomType.CAPSULE: jnp.stack([radius, radius, radius + half], axis=-1),
        GeomType.CYLINDER: jnp.stack([radius, radius, half], axis=-1),
    }
    # the sizes of boxes and ellipsoids are half sides already
    half_sides = size
    for kind, of_kind in sides.items():
        half_sides = jnp.where((types == kind)[:, None], of_kind, half_sides)
    return half_sides


def bounding_radii(types: np.ndarray, size: Array) -> Array:
    """(n,) radii, m, of spheres around the same shapes as in `bounding_boxes`."""
    x, y, z = unpack(bounding_boxes(types, size))
    longest = jnp.maximum(x, jnp.maximum(y, z))
    corner = safe.norm(jnp.stack([x, y, z], axis=-1))
    rim = safe.norm(jnp.stack([x, z], axis=-1))
    radius = jnp.where(types == GeomType.BOX, corner, longest)
    return jnp.where(types == GeomType.CYLINDER, rim, radius)


def lowest(kind: GeomType, shape: Shape, directions: Array) -> Array:
    """(n,) the minimum of d . x, m, over the points x of a shape, for unit vectors d (n, 3)."""
    local = mul_vec_t(shape.mat[None], directions)
    return dot(directions, shape.pos[None]) - SUPPORT[kind](-local, shape)


def bounds(kind: GeomType, shape: Shape) -> tuple[Array, Array]:
    """The least and the greatest coordinates (3,), m, of the points of a shape: its axis-aligned bounding box."""
    axes = jnp.eye(3, dtype=shape.pos.dtype)
    ends = lowest(kind, shape, jnp.concatenate([axes, -axes]))
    return ends[:3], -ends[3:]


def boxed(kind: GeomType, shape: Shape) -> tuple[GeomType, Shape]:
    """The box around a mesh's vertices, aligned with the frame of the mesh; other shapes are returned unchanged."""
    if kind != GeomType.MESH:
        return kind, shape
    lower, upper = shape.data.box
    middle = shape.pos + mul_vec(shape.mat, 0.5 * (lower + upper))
    return GeomType.BOX, Shape(middle, shape.mat, 0.5 * (upper - lower))


def _cylinder(d: Array, shape: Shape) -> Array:
    """radius sqrt(dx^2 + dy^2) + half length |dz|."""
    x, y, z = unpack(d)
    return shape.size[0] * safe.sqrt(x * x + y * y) + shape.size[1] * jnp.abs(z)


# the support function h(d) (n,) for unit vectors d (n, 3) in the frame of the shape
SUPPORT: dict[GeomType, Callable[[Array, Shape], Array]] = {
    GeomType.SPHERE: lambda d, shape: jnp.broadcast_to(shape.size[0], d.shape[:-1]),
    GeomType.CAPSULE: lambda d, shape: shape.size[0] + shape.size[1] * jnp.abs(d[:, 2]),
    GeomType.ELLIPSOID: lambda d, shape: safe.norm(d * shape.size[None]),
    GeomType.CYLINDER: _cylinder,
    GeomType.BOX: lambda d, shape: dot(jnp.abs(d), shape.size[None]),
    GeomType.MESH: lambda d, shape: jnp.max(dot(d[:, None], shape.data.whole.vert[None]), axis=1),
}
