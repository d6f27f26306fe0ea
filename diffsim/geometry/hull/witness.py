"""Distance, normal and closest points of two hulls in closed form, once the feature of their difference is known.

A feature is a corner, an edge or a face of M = {b - a}: vertex against vertex, vertex or edge against edge or face. Its
plane (line, point) gives the signed distance and normal as smooth functions of poses and vertices.
"""

import jax
import jax.numpy as jnp

from diffsim.geometry.hull.polytope import Feature, HullPair, points_of_second
from diffsim.math import safe
from diffsim.math.vector import cross, dot, scale, total
from diffsim.xla.barriers import decided
from diffsim.xla.first import one_of

Array = jax.Array


def separation(pair: HullPair, feature: Feature) -> tuple[Array, Array, Array, Array]:
    """(signed distance, unit normal (3,), point of the first body (3,), of the second (3,)), in the first's frame."""
    first, second = pair.first[feature.first], points_of_second(pair, feature.second)
    points = second - first
    parts = [_of_corner(points), _of_edge(points), _of_face(points, feature.normal)]
    normal, shares = one_of(feature.corners - 1, parts)
    witness1, witness2 = (total([scale(x[k], shares[k]) for k in range(3)]) for x in (first, second))
    return dot(normal, points[0]), normal, witness1, witness2


def shares_of(points: Array, corners: Array) -> Array:
    """The shares (3,) of a feature's corners (3, 3) in its point that is closest to the origin."""
    parts = [_of_corner(points)[1], _of_edge(points)[1], _of_face(points, points[0])[1]]
    return jnp.where(corners == 1, parts[0], jnp.where(corners == 2, parts[1], parts[2]))


def _of_corner(points: Array) -> tuple[Array, Array]:
    """(normal, shares (3,) of the corners in the closest point) of a corner of M."""
    return safe.normalize(points[0]), jnp.asarray([1, 0, 0], points.dtype)


def _of_edge(points: Array) -> tuple[Array, Array]:
    """The same for an edge."""
    side = points[1] - points[0]
    along = -safe.divide(dot(points[0], side), dot(side, side))
    return safe.normalize(points[0] + scale(side, along)), jnp.stack([1 - along, along, jnp.zeros_like(along)])


def _of_face(points: Array, toward: Array) -> tuple[Array, Array]:
    """The same for a face, whose normal is on the side of `toward` (3,)."""
    side1, side2 = points[1] - points[0], points[2] - points[0]
    area = cross(side1, side2)
    sign = jnp.where(decided(jax.lax.stop_gradient(dot(area, toward)) < 0), -1, 1).astype(area.dtype)
    squared = dot(area, area)
    share1 = safe.divide(dot(cross(-points[0], side2), area), squared)
    share2 = safe.divide(dot(cross(side1, -points[0]), area), squared)
    return scale(safe.normalize(area), sign), jnp.stack([1 - share1 - share2, share1, share2])
