"""The part of a polygon, or of an edge, over another polygon, and at most four points that span most of its area.

The corners of the overlap of two convex polygons: where edges of the first enter or leave the second, corners of the
first that are over the second, and corners of the second that are over the first. Four of them that span most area are
kept; MuJoCo 3.8.1 (`engine_collision_gjk.c`) keeps four too, which often span less.
Source: Ericson 2005, ch. 5.5; Cyrus and Beck 1978 for clipping an edge.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.math import safe
from diffsim.math.rotation import frame_from_z
from diffsim.math.vector import cross, dot, mul_vec, scale

Array = jax.Array

# first diagonals of a quadrilateral: extremes along these directions
STARTS = np.array([[1.0, 0.0], [0.6, 0.8], [-0.1, 1.0], [-0.8, 0.6]])
SWEEPS = 3


class Polygon(NamedTuple):
    """A flat convex polygon: corners (k, 3) m, the next of each (k, 3), which exist (k,), unit normal (3,).

    Corners go counterclockwise around the normal. An edge is a polygon whose only corner with a next one is the first.
    """

    corner: Array
    following: Array
    exists: Array
    normal: Array


def overlap(polygon: Polygon, reference: Polygon, is_edge: Array) -> tuple[Array, Array]:
    """(points (n, 3) on the polygon over the reference, seen along the normal of that; which of them exist (n,))."""
    axis = reference.normal
    inward = cross(axis[None], reference.following - reference.corner)
    size = jnp.max(jnp.abs(reference.following - reference.corner)) + jnp.max(
        jnp.abs(polygon.following - polygon.corner)
    )
    limit = -jax.lax.stop_gradient(size * size) * (1e-14 if axis.dtype == jnp.float64 else 1e-6)
    begin = _heights(polygon.corner, reference.corner, inward)
    end = _heights(polygon.following, reference.corner, inward)
    counts = reference.exists[None]
    starts_in, ends_in = begin >= limit, end >= limit
    share = safe.divide(begin, begin - end)
    enter = jnp.max(jnp.where(counts & ~starts_in & ends_in, share, 0), axis=1)
    leave = jnp.min(jnp.where(counts & starts_in & ~ends_in, share, 1), axis=1)
    missed = jnp.any(counts & ~starts_in & ~ends_in, axis=1)
    touched = polygon.exists & ~missed & (enter <= leave)
    sweep = polygon.following - polygon.corner
    entries, exits = (polygon.corner + scale(sweep, at) for at in (enter, leave))
    # corners of the reference, projected to the polygon
    rise = safe.divide(jnp.ones_like(axis[0]), dot(axis, polygon.normal))
    height = dot(reference.corner - polygon.corner[:1], polygon.normal[None])
    projected = reference.corner - scale(jnp.broadcast_to(axis, reference.corner.shape), height * rise)
    side = _heights(projected, polygon.corner, cross(sweep, axis[None]))
    inside = reference.exists & ~is_edge & jnp.all((side > -limit) | ~polygon.exists[None], axis=1)
    exists = [touched & ((enter > 0) | is_edge), touched, inside]
    return jnp.concatenate([entries, exits, projected]), jnp.concatenate(exists)


def _heights(points: Array, origins: Array, directions: Array) -> Array:
    """How far points (n, 3) are along directions (m, 3) from their origins (m, 3): (n, m)."""
    return dot(points[:, None] - origins[None], directions[None])


def widest(points: Array, exists: Array, normal: Array) -> tuple[Array, Array]:
    """(places (4,) of four points that span the greatest area, which of them are needed (4,)); the first always is.

    From several diagonals: the two points furthest aside of it, then the diagonal of these, and so forth.
    """
    frame = frame_from_z(normal)
    flat = jax.lax.stop_gradient(mul_vec(frame[None, 1:], points - points[:1]))
    along = mul_vec(flat[None], jnp.asarray(STARTS, flat.dtype))
    first, third = _furthest(along, exists), _furthest(-along, exists)
    reach = jnp.max(jnp.where(exists, jnp.abs(flat[:, 0]) + jnp.abs(flat[:, 1]), 0))
    tries, areas = [], []
    for _ in range(SWEEPS):
        second, fourth = _aside(flat, exists, first, third)
        diagonal = flat[third] - flat[first]
        # of sets without area the longest
        areas.append(jnp.abs(_cross(diagonal, flat[fourth] - flat[second])) + 1e-6 * reach * safe.norm(diagonal))
        tries.append(jnp.stack([first, second, third, fourth], axis=1))
        third, first = _aside(flat, exists, second, fourth)
    first, second, third, fourth = jnp.concatenate(tries)[jnp.argmax(jnp.concatenate(areas))]
    diagonal = flat[third] - flat[first]
    length = jnp.sqrt(dot(diagonal, diagonal))
    limit = 1e-6 * reach
    long = length > limit
    left = _cross(diagonal, flat[second] - flat[first]) < -limit * length
    right = _cross(diagonal, flat[fourth] - flat[first]) > limit * length
    return jnp.stack([first, third, second, fourth]), jnp.stack([jnp.any(exists), long, long & left, long & right])


def _furthest(along: Array, exists: Array) -> Array:
    """Places (s,) of the greatest of values (s, n)."""
    return jnp.argmax(jnp.where(exists[None], along, -jnp.inf), axis=1)


def _aside(flat: Array, exists: Array, first: Array, third: Array) -> tuple[Array, Array]:
    """Places (s,) of the points furthest to the right and to the left of diagonals between two places (s,)."""
    start = flat[first]
    across = _cross((flat[third] - start)[:, None], flat[None] - start[:, None])
    return _furthest(-across, exists), _furthest(across, exists)


def _cross(a: Array, b: Array) -> Array:
    """The cross product of vectors (..., 2)."""
    return a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]
