"""The overlap of two flat convex polygons, and the four of its corners that span the greatest area.

The corners of the overlap of two convex polygons are the points where edges of the first enter or leave the second,
corners of the first that are over the second, and corners of the second that are over the first. The four corners that
span the greatest area are kept. MuJoCo 3.8.1 also keeps four corners, but often with a smaller area.
Source: Ericson 2005, ch. 5.5; Cyrus and Beck 1978 for clipping an edge.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.math import safe
from diffsim.math.rotation import frame_from_z
from diffsim.math.vector import Components, cross, dot, dot_components, mul_vec, scale, total, unpack
from diffsim.xla.barriers import stored
from diffsim.xla.batched_searches import short_scan
from diffsim.xla.gather import rows_at
from diffsim.xla.select import first, greatest, number_of, ranked
from diffsim.xla.shared_values import stored_where_shared

# the indices of two points, or of two points for each of several lines
Places = tuple[Array, Array]

# the first diagonals join the two extreme points along each of these directions
STARTS = np.array([[1.0, 0.0], [0.6, 0.8], [-0.1, 1.0], [-0.8, 0.6]])
# steps from one diagonal to the next
SWEEPS = 4
# for points at distances of about 1: a shorter line, or a smaller distance from the line, is rounding error
AREA = 1e-6


class Polygon(NamedTuple):
    """A flat convex polygon, counterclockwise around its normal; an edge is a polygon of which only corner 0 exists.

    Attributes:
      corner: (k, 3) m.
      following: (k, 3) m, the next corner after each.
      exists: (k,) which corners, with the edges that begin there, exist.
      normal: (3,) unit.
      ends: (2, k) the hull's vertices at the corners and at the next corners.
    """

    corner: Array
    following: Array
    exists: Array
    normal: Array
    ends: Array


class Crossed(NamedTuple):
    """The overlap of a polygon with k edges and a reference with m edges.

    Attributes:
      point: (n, 3) m, corners of the overlap, on the polygon.
      exists: (n,) which of them exist.
      into, out: (m, k) shares of the length of a polygon's edge at which it crosses a line of the reference inwards and
        outwards; 0 and 1 if it does not cross.
    """

    point: Array
    exists: Array
    into: Array
    out: Array


@stored_where_shared
def overlap(polygon: Polygon, reference: Polygon, is_edge: Array) -> Crossed:
    """The corners of two polygons' overlap, seen along the normal of the reference."""
    # a side of the reference keeps points x with (x - corner) . inward >= 0
    axis = reference.normal
    inward = cross(axis[None], reference.following - reference.corner)
    size = jnp.max(jnp.abs(reference.following - reference.corner)) + jnp.max(
        jnp.abs(polygon.following - polygon.corner)
    )
    limit = -jax.lax.stop_gradient(size * size) * (1e-14 if axis.dtype == jnp.float64 else 1e-6)
    # Cyrus and Beck: an edge of the polygon enters at the last side that it crosses inwards, and leaves at the first
    # side that it crosses outwards; it is over the reference if it enters before it leaves
    begin = _heights(polygon.corner, reference.corner, inward)
    end = _heights(polygon.following, reference.corner, inward)
    counts = reference.exists[:, None]
    starts_in, ends_in = begin >= limit, end >= limit
    share = safe.divide(begin, begin - end)
    # an edge that is entirely beyond a side enters at 2, which is after it has left
    into = jnp.where(counts & ~starts_in, jnp.where(ends_in, share, 2), 0)
    out = jnp.where(counts & starts_in & ~ends_in, share, 1)
    enter, leave = jnp.max(into, axis=0), jnp.min(out, axis=0)
    touched = polygon.exists & (enter <= leave)
    sweep = polygon.following - polygon.corner
    entries, exits = (polygon.corner + scale(sweep, at) for at in (enter, leave))
    # corners of the reference, projected along its normal to the plane of the polygon
    rise = safe.divide(jnp.ones_like(axis[0]), dot(axis, polygon.normal))
    height = dot(reference.corner - polygon.corner[:1], polygon.normal[None])
    projected = reference.corner - scale(jnp.broadcast_to(axis, reference.corner.shape), height * rise)
    side = _heights(projected, polygon.corner, cross(sweep, axis[None]))
    least = jnp.min(jnp.where(polygon.exists[:, None], side, jnp.inf), axis=0)
    inside = reference.exists & ~is_edge & (least > -limit)
    exists = [touched & ((enter > 0) | is_edge), touched, inside]
    points = jnp.concatenate([entries, exits, projected])
    return Crossed(point=points, exists=jnp.concatenate(exists), into=into, out=out)


def _heights(points: Array, origins: Array, directions: Array) -> Array:
    """Heights (m, n) of points (n, 3) along directions (m, 3), measured from origins (m, 3)."""
    columns = zip(unpack(points), unpack(origins), unpack(directions), strict=True)
    return total([(point[None] - origin[:, None]) * along[:, None] for point, origin, along in columns])


def widest(points: Array, exists: Array, normal: Array) -> tuple[Array, Array]:
    """(indices (4,) of the four points that span the greatest area, which of them are needed (4,)).

    The search starts from several diagonals. The two points furthest from a diagonal, one on each side, form the next
    diagonal, and so on. The area of the quadrilateral with two successive diagonals never shrinks.
    """
    lead = first(exists)
    flat = jax.lax.stop_gradient(mul_vec(frame_from_z(normal)[None, 1:], points - rows_at(points, lead)[None]))
    # coordinates in the plane of the polygon, relative to the first point that exists; missing points are put there
    x, y = (jnp.where(exists, c, 0) for c in unpack(flat))
    reach = jnp.max(jnp.abs(x) + jnp.abs(y))
    # stored, because each of the loop's steps compares all points
    x, y = stored([c / jnp.where(reach > 0, reach, 1) for c in (x, y)])
    starts = jnp.asarray(STARTS, flat.dtype)
    diagonals = _extremes(starts[:, :1] * x[None] + starts[:, 1:] * y[None])

    def sweep(last: tuple[Places, Places], _: Array) -> tuple[tuple[Places, Places], None]:
        return (last[1], _aside((x, y), last[1])), None

    start = (diagonals, _aside((x, y), diagonals))
    # if all points are on one line, the first diagonals are the longest, and the later ones have no length
    tries = zip(start, short_scan(sweep, start, jnp.zeros(SWEEPS))[0], strict=True)
    both = [tuple(jnp.concatenate(ends) for ends in zip(*column, strict=True)) for column in tries]
    along, across = ([rows_at(c, b) - rows_at(c, a) for c in (x, y)] for a, b in both)
    area = jnp.abs(_cross(along, across)) + 1e-6 * jnp.sqrt(dot_components(along, along))
    best = greatest(area, 1)
    begin, end, right, left = (rows_at(place, best) for diagonal in both for place in diagonal)
    way = [[rows_at(c, place) - rows_at(c, begin) for c in (x, y)] for place in (right, end, left)]
    length = jnp.sqrt(dot_components(way[1], way[1]))
    long = length > AREA
    wide = [_cross(way[1], way[0]) < -AREA * length, _cross(way[1], way[2]) > AREA * length]
    places = jnp.stack([begin, end, right, left])
    needed = jnp.stack([jnp.any(exists), long, *(long & parts for parts in wide)])
    return jnp.where(rows_at(exists, places), places, lead), needed


def _extremes(values: Array) -> Places:
    """Indices (s,) of the greatest and of the least value in each row of (s, n); values are between -4 and 4."""
    # stored, so that both reductions read bitwise equal numbers
    count = values.shape[-1]
    ranks = stored(ranked(4 + values, np.arange(count)[None], 0, count))
    return number_of(jnp.max(ranks, axis=-1), count), number_of(jnp.min(ranks, axis=-1), count)


def _aside(flat: Components, ends: Places) -> Places:
    """Indices (s,) of the points furthest to the right and to the left of lines between two points (s,)."""
    starts = [rows_at(c, ends[0])[:, None] for c in flat]
    along = [rows_at(c, ends[1])[:, None] - start for c, start in zip(flat, starts, strict=True)]
    return _extremes(_cross([c[None] - start for c, start in zip(flat, starts, strict=True)], along))


def _cross(a: Components, b: Components) -> Array:
    """The cross product of vectors of two components."""
    return a[0] * b[1] - a[1] * b[0]
