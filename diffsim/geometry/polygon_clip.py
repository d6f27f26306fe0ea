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
from diffsim.math.first import greatest
from diffsim.math.rotation import frame_from_z
from diffsim.math.vector import Components, cross, dot, dot_components, mul_vec, pack, scale, total, unpack
from diffsim.math.xla import short_scan

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
    counts = reference.exists[:, None]
    starts_in, ends_in = begin >= limit, end >= limit
    share = safe.divide(begin, begin - end)
    enter = jnp.max(jnp.where(counts & ~starts_in & ends_in, share, 0), axis=0)
    leave = jnp.min(jnp.where(counts & starts_in & ~ends_in, share, 1), axis=0)
    missed = jnp.any(counts & ~starts_in & ~ends_in, axis=0)
    touched = polygon.exists & ~missed & (enter <= leave)
    sweep = polygon.following - polygon.corner
    entries, exits = (polygon.corner + scale(sweep, at) for at in (enter, leave))
    # corners of the reference, projected to the polygon
    rise = safe.divide(jnp.ones_like(axis[0]), dot(axis, polygon.normal))
    height = dot(reference.corner - polygon.corner[:1], polygon.normal[None])
    projected = reference.corner - scale(jnp.broadcast_to(axis, reference.corner.shape), height * rise)
    side = _heights(projected, polygon.corner, cross(sweep, axis[None]))
    inside = reference.exists & ~is_edge & jnp.all((side > -limit) | ~polygon.exists[:, None], axis=0)
    exists = [touched & ((enter > 0) | is_edge), touched, inside]
    return jnp.concatenate([entries, exits, projected]), jnp.concatenate(exists)


def _heights(points: Array, origins: Array, directions: Array) -> Array:
    """How far points (n, 3) are along directions (m, 3) from their origins (m, 3): (m, n)."""
    columns = zip(unpack(points), unpack(origins), unpack(directions), strict=True)
    return total([(point[None] - origin[:, None]) * along[:, None] for point, origin, along in columns])


def widest(points: Array, exists: Array, normal: Array) -> tuple[Array, Array]:
    """(places (4,) of four points that span the greatest area, which of them are needed (4,)); the first always is.

    From several diagonals: the two points furthest aside of it, then the diagonal of these, and so forth.
    """
    frame = frame_from_z(normal)
    flat = jax.lax.stop_gradient(mul_vec(frame[None, 1:], points - points[:1]))
    x, y = unpack(flat)
    reach = jnp.max(jnp.where(exists, jnp.abs(x) + jnp.abs(y), 0))
    starts = jnp.asarray(STARTS, flat.dtype)
    along = starts[:, :1] * x[None] + starts[:, 1:] * y[None]
    diagonals = _furthest(along, exists, reach), _furthest(-along, exists, reach)

    def sweep(diagonal: tuple[Array, Array], _: Array) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        first, third = diagonal
        second, fourth = _aside((x, y), exists, reach, diagonal)
        along, across = ([c[b] - c[a] for c in (x, y)] for a, b in ((first, third), (second, fourth)))
        # of sets without area the longest
        length = safe.norm(pack(along))
        area = jnp.abs(_cross(along, across)) + 1e-6 * reach * length
        next_third, next_first = _aside((x, y), exists, reach, (second, fourth))
        return (next_first, next_third), (jnp.stack([first, second, third, fourth], axis=1), area)

    tries, areas = short_scan(sweep, diagonals, jnp.zeros(SWEEPS))[1]
    first, second, third, fourth = tries.reshape(-1, 4)[greatest(areas.reshape(-1), reach * reach)]
    way = [[c[place] - c[first] for c in (x, y)] for place in (second, third, fourth)]
    length = jnp.sqrt(dot_components(way[1], way[1]))
    limit = 1e-6 * reach
    long = length > limit
    left = _cross(way[1], way[0]) < -limit * length
    right = _cross(way[1], way[2]) > limit * length
    return jnp.stack([first, third, second, fourth]), jnp.stack([jnp.any(exists), long, long & left, long & right])


def _furthest(along: Array, exists: Array, scale: Array) -> Array:
    """Places (s,) of the greatest of values (s, n) up to a scale."""
    return greatest(jnp.where(exists[None], along, -jnp.inf), scale)


def _aside(flat: Components, exists: Array, reach: Array, ends: tuple[Array, Array]) -> tuple[Array, Array]:
    """Places (s,) of the points furthest to the right and to the left of diagonals between two places (s,)."""
    starts = [c[ends[0], None] for c in flat]
    along = [c[ends[1], None] - start for c, start in zip(flat, starts, strict=True)]
    across = _cross(along, [c[None] - start for c, start in zip(flat, starts, strict=True)])
    return _furthest(-across, exists, reach * reach), _furthest(across, exists, reach * reach)


def _cross(a: Components, b: Components) -> Array:
    """The cross product of vectors of two components."""
    return a[0] * b[1] - a[1] * b[0]
