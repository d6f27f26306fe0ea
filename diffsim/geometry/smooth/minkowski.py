"""Ellipsoids, cylinders, capsules, boxes and spheres as Minkowski sums, and the gap between two of them along a line.

Each of these shapes is the sum of an ellipsoid (perhaps flat), up to three segments and a ball about its centre, so
its support function is h(n) = |S R^T n| + sum |q . n| + radius. For two bodies whose centres differ by c, the gap along
n is F(n) = c . n - h1(n) - h2(n). Source: separation of convex sets (Boyd and Vandenberghe 2004, 8.2).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from diffsim.base.enums import GeomType
from diffsim.geometry.shapes import Shape
from diffsim.math import safe
from diffsim.math.vector import dot, mul_vec_t, scale
from diffsim.types.record import Record, child, leaf, record, static

Array = jax.Array
Kinds = tuple[GeomType, GeomType]


@record
class Ellipsoid(Record):
    """R diag(size) ball, a `disc` if the last size is zero; `owner` is 0 or 1."""

    mat: Array = leaf(3, 3)
    size: Array = leaf(3)
    disc: bool = static()
    owner: int = static()


@record
class Segment(Record):
    """All points x q with |x| <= 1, q = `half`; `owner` is 0 or 1."""

    half: Array = leaf(3)
    owner: int = static()


@record
class ConvexPair(Record):
    """Two bodies as Minkowski sums about their centres (m)."""

    center1: Array = leaf(3)
    center2: Array = leaf(3)
    radius1: Array = leaf()
    radius2: Array = leaf()
    ellipsoids: tuple[Ellipsoid, ...] = child()
    segments: tuple[Segment, ...] = child()


class Stratum(NamedTuple):
    """A unit vector and where it lies: on the circles of segments `first` and `second` (-1: none), or at a pole.

    `pole` is the index of a disc, or -1.
    """

    normal: Array
    first: Array
    second: Array
    pole: Array


def minkowski_sums(kinds: Kinds, shape1: Shape, shape2: Shape) -> ConvexPair:
    """Two shapes as sums of ellipsoids, segments and balls."""
    radii, ellipsoids, segments = [], [], []
    for owner, (kind, shape) in enumerate(zip(kinds, (shape1, shape2), strict=True)):
        is_round = kind in (GeomType.SPHERE, GeomType.CAPSULE)
        radii.append(shape.size[0] if is_round else jnp.zeros_like(shape.size[0]))
        if kind in (GeomType.CAPSULE, GeomType.CYLINDER):
            segments.append(Segment(half=scale(shape.axis, shape.size[1]), owner=owner))
        if kind == GeomType.BOX:
            segments += [Segment(half=scale(shape.mat[:, k], shape.size[k]), owner=owner) for k in range(3)]
        if kind == GeomType.CYLINDER:
            disc = jnp.stack([shape.size[0], shape.size[0], jnp.zeros_like(shape.size[0])])
            ellipsoids.append(Ellipsoid(mat=shape.mat, size=disc, disc=True, owner=owner))
        if kind == GeomType.ELLIPSOID:
            ellipsoids.append(Ellipsoid(mat=shape.mat, size=shape.size, disc=False, owner=owner))
    return ConvexPair(
        center1=shape1.pos,
        center2=shape2.pos,
        radius1=radii[0],
        radius2=radii[1],
        ellipsoids=tuple(ellipsoids),
        segments=tuple(segments),
    )


def gap(pair: ConvexPair, normal: Array) -> Array:
    """F(n) for a unit vector n (3,)."""
    total = dot(pair.center2 - pair.center1, normal) - pair.radius1 - pair.radius2
    for ellipsoid in pair.ellipsoids:
        total = total - safe.norm(mul_vec_t(ellipsoid.mat, normal) * ellipsoid.size)
    for segment in pair.segments:
        total = total - jnp.abs(dot(segment.half, normal))
    return total


def rounding(x: Array) -> float:
    """Relative rounding of directions and gaps that a search in the dtype of x leaves."""
    return 1e-10 if x.dtype == jnp.float64 else 1e-5


def half_at(pair: ConvexPair, index: Array) -> Array:
    """Half vector of the segment at `index`, zero if it is -1."""
    half = jnp.zeros_like(pair.center1)
    for i, segment in enumerate(pair.segments):
        half = jnp.where(index == i, segment.half, half)
    return half
