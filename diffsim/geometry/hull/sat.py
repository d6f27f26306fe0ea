"""Separating axes: the closest feature of two hulls, among all sides.

The Minkowski difference M = {b - a} of two hulls has two kinds of sides: a facet of one hull against a corner of the
other, and an edge of each. Two edges make a side if, on the sphere of normals, the arcs between the normals of their
facets cross. The gap along any direction is a lower bound of the signed distance. If the hulls overlap, the distance is
the greatest gap of all sides. If they are apart, that gap may be less than the distance; then the closest points are a
corner of one hull and a point of an edge of the other, and the gap along the line between them is the distance. So the
distance is the greatest of all these gaps in both cases.

`gjk.py` searches step by step; this module uses a few wide operations, which grow with the product of the numbers of
edges. All arrays have the components first, so that formulas run over corners, facets or edges. Lengths are divided by
the size of the pair. So all numbers are of order one. The divisions also save time: XLA for CPU computes a quotient
once, but repeats sums and products wherever they are used. If several points are equally close, as on parallel sides,
the result may be any of them.
Source: Gregorius, The separating axis test between convex polyhedra (GDC 2013).
"""

from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.geometry.hull.facets import Edges, reach_of
from diffsim.geometry.hull.features import Feature, HullPair, size_of
from diffsim.geometry.hull.polytope import Hull
from diffsim.geometry.hull.tables import Sizes
from diffsim.math import safe
from diffsim.math.vector import (
    cross,
    cross_components,
    dot,
    dot_components,
    mul_vec,
    mul_vec_t,
    pack,
    total,
    transpose,
    unpack,
)
from diffsim.xla.gather import rows_at
from diffsim.xla.select import first, greatest, one_of, rounding, where_tree


class Outlined(NamedTuple):
    """The outline of a body, lengths in units of the pair's size.

    Attributes:
      corner: (3, v).
      outward: (3, f) unit normals of facets.
      reach: (f,) the greatest height of the body along these normals, infinite for padding.
      edges: (e) edges.
      length: (e,) their lengths, negative for padding.
      facet: (f, 3) numbers of three corners of each facet.
      edge: (e, 2) numbers of the ends of each edge.
    """

    corner: Array
    outward: Array
    reach: Array
    edges: Edges
    length: Array
    facet: Array
    edge: Array


def outlined(hull: Hull, turn: Array, offset: Array, size: Array) -> Outlined:
    """The outline of a hull after a rotation (3, 3) and a translation (3,), m; lengths in units of `size` (), m."""
    ends = hull.vert[jnp.maximum(hull.edge, 0)]
    sweep = ends[:, 1] - ends[:, 0]
    length = jnp.where(hull.edge[:, 0] >= 0, safe.norm(sweep), -1)
    along = sweep / jnp.maximum(length, jnp.finfo(length.dtype).tiny)[:, None]
    sides = hull.outward[jnp.maximum(hull.flank, 0)] * (hull.flank >= 0)[..., None]
    # an edge is parallel to n1 x n2; if not, it is so short that its direction is rounding error, and it makes no side
    bend = cross(sides[:, 0], sides[:, 1])
    sides = sides * (dot(along, bend) > 0.9 * safe.norm(bend))[:, None, None]
    # all vectors (n, 3) at once as (3, n): turned, and points also moved and divided by the unit
    parts = [hull.vert, ends[:, 0], hull.outward, along, sides[:, 0], sides[:, 1]]
    cuts = np.cumsum([len(part) for part in parts])[:-1]
    x = unpack(jnp.concatenate(parts))
    columns = unpack(turn)
    is_place = jnp.arange(len(x[0])) < cuts[1]
    turned = total([columns[m][:, None] * x[m][None] for m in range(3)])
    moved = (turned + jnp.where(is_place[None], offset[:, None], 0)) / jnp.where(is_place, size, 1)[None]
    corner, begin, outward, *of_edges = jnp.split(moved, cuts, axis=1)
    reach = (reach_of(hull) + dot(hull.outward, mul_vec_t(turn, offset)[None])) / size
    return Outlined(corner, outward, reach, Edges(begin, *of_edges), length / size, hull.facet, hull.edge)


Thing = TypeVar("Thing")


class _Candidate(NamedTuple):
    """A feature of M: its corners' vertices in both bodies (3,), the number of corners (1,), its normal (3,), and the
    gap along the normal (), in units of the pair's size.
    """

    first: Array
    second: Array
    corners: Array
    normal: Array
    gap: Array


def closest_side(pair: HullPair, hull1: Hull, hull2: Hull) -> Feature:
    """The feature of M that is closest to the origin, whether the hulls overlap or not."""
    body1, body2 = _outlined(pair, hull1, hull2)
    corners = [_nearest(body1, body2), _swapped(_nearest(body2, body1))]
    apart = [corner._replace(gap=jnp.where(corner.gap > 0, corner.gap, -jnp.inf)) for corner in corners]
    return _greatest_of([*_sides(body1, body2), *apart])


def deepest_side(pair: HullPair, hull1: Hull, hull2: Hull) -> Feature:
    """The side of M with the greatest gap: if the hulls overlap, the closest side."""
    return _greatest_of(_sides(*_outlined(pair, hull1, hull2)))


def closest_side_by_size(lesser: Sizes, pair: HullPair, hull1: Hull, hull2: Hull) -> Feature:
    """`closest_side` of two hulls in arrays of one size, where the hull with fewer edges fits into smaller arrays.

    `lesser`: the largest numbers of its vertices, facets and edges. The search runs in the frame of the other hull.
    """
    turns = jnp.sum(hull1.edge[:, 0] >= 0) < jnp.sum(hull2.edge[:, 0] >= 0)
    larger, smaller = where_tree(turns, (hull2, hull1), (hull1, hull2))
    vertices, facets, edges = lesser
    lengths = {"vert": vertices, "facet": facets, "outward": facets, "edge": edges, "flank": edges}
    smaller = smaller._replace(**{name: getattr(smaller, name)[:length] for name, length in lengths.items()})
    back = HullPair(pair.second, pair.first, transpose(pair.turn), -mul_vec_t(pair.turn, pair.offset))
    side = closest_side(where_tree(turns, back, pair), larger, smaller)
    normal = jnp.where(turns, -mul_vec(pair.turn, side.normal), side.normal)
    one, other = (jnp.where(turns, a, b) for a, b in ((side.second, side.first), (side.first, side.second)))
    return Feature(one, other, side.corners, normal)


def outline_alone(hull: Hull) -> Hull:
    """The part of a hull that this file reads."""
    return hull._replace(around=None, box=None, side=None, normal=None, joined=None)


def _outlined(pair: HullPair, hull1: Hull, hull2: Hull) -> tuple[Outlined, Outlined]:
    """Both bodies in the frame of the first. The unit of length is independent of poses: worlds share one outline."""
    none = jnp.zeros_like(pair.offset)
    size = jnp.maximum(size_of(pair._replace(offset=none)), jnp.finfo(none.dtype).tiny)
    first = outlined(_filled(hull1), jnp.eye(3, dtype=none.dtype), none, size)
    return first, outlined(_filled(hull2), pair.turn, pair.offset, size)


def _filled(hull: Hull) -> Hull:
    """A hull with at least one row of facets and one of edges, if necessary padding."""
    none = jnp.full((1, 3), -1, jnp.int32)
    if not len(hull.facet):
        hull = hull._replace(facet=none, outward=jnp.zeros((1, 3), hull.vert.dtype))
    return hull if len(hull.edge) else hull._replace(edge=none[:, :2], flank=none[:, :2])


def _sides(body1: Outlined, body2: Outlined) -> list[_Candidate]:
    """The best sides of each kind."""
    return [_facet(body1, body2), _swapped(_facet(body2, body1)), _crossing(body1, body2)]


def _greatest_of(candidates: list[_Candidate]) -> Feature:
    """The candidate with the greatest gap; the first one if several are equal within rounding."""
    best = greatest(jnp.stack([candidate.gap for candidate in candidates]), 1)
    first, second, corners, normal = one_of(best, [candidate[:-1] for candidate in candidates])
    return Feature(first, second, corners[0], normal)


def _swapped(candidate: _Candidate) -> _Candidate:
    """A candidate found with the bodies in the other order."""
    return _Candidate(candidate.second, candidate.first, candidate.corners, -candidate.normal, candidate.gap)


def _nearest_of(squared: Array) -> Array:
    """The index of the least squared distance (n,); the first one if several are equal within rounding."""
    least = jnp.sqrt(jnp.min(squared))
    return first(squared <= (least + rounding(squared) * jnp.maximum(least, 1)) ** 2)


def _facet(body: Outlined, other: Outlined) -> _Candidate:
    """The facet of a body with the greatest gap to the corners of another."""
    heights = dot_components(body.outward[:, None, :], other.corner[:, :, None])
    gaps = jnp.min(heights, axis=0) - body.reach
    place = greatest(gaps, 1)
    normal = rows_at(body.outward, place, 1)
    corner = greatest(-dot_components(normal[:, None], other.corner), 1)
    return _Candidate(
        rows_at(body.facet, place), jnp.broadcast_to(corner, (3,)), jnp.asarray([3]), normal, jnp.max(gaps)
    )


def _crossing(body1: Outlined, body2: Outlined) -> _Candidate:
    """The edges of both bodies with the greatest gap between them."""
    # a table of all pairs of edges. The body with fewer edges makes the rows, so that vector lanes are full
    turns = len(body1.length) > len(body2.length)
    rows, columns = (body2, body1) if turns else (body1, body2)
    table = _gaps(*_swapped_if(turns, _at(rows, np.s_[:, :, None]), _at(columns, np.s_[:, None, :])))
    row = greatest(jnp.max(table, axis=1), 1)
    gaps = _gaps(*_swapped_if(turns, _edge_at(rows, row), columns.edges))
    column = greatest(gaps, 1)
    place, second = _swapped_if(turns, row, column)
    one, other = (_edge_at(body, at) for body, at in ((body1, place), (body2, second)))
    normal = pack(cross_components(one.along, other.along))[0]
    normal = _unit(jnp.where(dot_components(one.right, other.along)[0] > 0, -normal, normal))
    gap = jnp.where(jnp.max(gaps) > -jnp.inf, _gap_along(body1, body2, normal), -jnp.inf)
    # a padding edge is never the best
    edge1, edge2 = rows_at(body1.edge, place), rows_at(body2.edge, second)
    corners = rows_at(edge1, np.array([0, 1, 0])), rows_at(edge2, np.array([0, 0, 1]))
    return _Candidate(*corners, jnp.asarray([3]), normal, gap)


def _at(body: Outlined, places: Any) -> Edges:
    """Some of the edges of a body."""
    return Edges(*(x[places] for x in body.edges))


def _edge_at(body: Outlined, place: Array) -> Edges:
    """One of the edges of a body, with an axis of one edge."""
    return Edges(*(rows_at(x, place, 1)[..., None] for x in body.edges))


def _swapped_if(turns: bool, one: Thing, other: Thing) -> tuple[Thing, Thing]:
    """Both things, swapped if `turns`."""
    return (other, one) if turns else (one, other)


def _gaps(one: Edges, other: Edges) -> Array:
    """Gaps between edges of both bodies, minus a bound of the rounding error; -inf if the arcs do not cross.

    For edges u between normals a, b and v between normals c, d the arcs (a, b) and (-c, -d) cross if c . u and d . u,
    a . v and b . v, and c . u and b . v differ in sign. The normal is u x v, turned towards the second body
    (Gregorius 2013).
    """
    u, v = one.along, other.along
    towards, beyond = dot_components(other.left, u), dot_components(one.right, v)
    crosses = (towards * dot_components(other.right, u) < 0) & (dot_components(one.left, v) * beyond < 0)
    normal = cross_components(u, v)
    squared = dot_components(normal, normal)
    eps = jnp.finfo(squared.dtype).eps
    crosses &= (towards * beyond < 0) & (squared > (1e2 * eps) ** 2)
    apart = dot_components(normal, [q - p for q, p in zip(other.begin, one.begin, strict=True)])
    apart = jnp.where(beyond > 0, -apart, apart) - 4 * eps
    return jnp.where(crosses, apart * jax.lax.rsqrt(jnp.where(crosses, squared, 1)), -jnp.inf)


def _nearest(body: Outlined, other: Outlined) -> _Candidate:
    """The edge of a body and the corner of another that are nearest to each other."""
    begin = body.edges.begin
    along = body.edges.along
    length = body.length
    # the last axis, along which vector instructions run, is the longer one
    across = np.s_[:, None, :]
    down = np.s_[:, :, None]
    of_edge, of_corner = (down, across) if len(length) < other.corner.shape[1] else (across, down)
    far = _far(other.corner[of_corner], begin[of_edge], along[of_edge], length[of_edge[1:]])[0]
    edge = _nearest_of(jnp.min(far, axis=of_edge.index(None) - 1))
    from_one, along_one = (rows_at(x, edge, 1)[:, None] for x in (begin, along))
    far, at, *way = _far(other.corner, from_one, along_one, rows_at(length, edge)[None])
    corner = _nearest_of(far)
    normal = _unit(rows_at(pack(way), corner))
    at = rows_at(at, corner)
    ends = rows_at(body.edge, edge)
    # both ends of the edge, or the nearest end twice
    begin = jnp.where(at < rows_at(length, edge), ends[0], ends[1])
    end = jnp.where(at > 0, ends[1], ends[0])
    corners = pack([begin, end, begin])
    count = 1 + (begin != end)[None]
    gap = jnp.where(rows_at(length, edge) >= 0, _gap_along(body, other, normal), -jnp.inf)
    return _Candidate(corners, jnp.broadcast_to(corner, (3,)), count, normal, gap)


def _far(corner: Array, begin: Array, along: Array, length: Array) -> tuple[Array, ...]:
    """(squared distances of corners from edges, infinite for padding; the foot on each edge; the vector x, y, z)."""
    way = [p - q for p, q in zip(corner, begin, strict=True)]
    at = jnp.clip(dot_components(way, along), 0, length)
    way = [w - at * d for w, d in zip(way, along, strict=True)]
    return jnp.where(length >= 0, dot_components(way, way), jnp.inf), at, *way


def _gap_along(body1: Outlined, body2: Outlined, normal: Array) -> Array:
    """The gap along a direction (3,) from the first body to the second."""
    heights = [dot_components(normal[:, None], body.corner) for body in (body1, body2)]
    return jnp.min(heights[1]) - jnp.max(heights[0])


def _unit(vector: Array) -> Array:
    """A vector (3,) over its length, without derivatives; zero remains."""
    return vector * jax.lax.rsqrt(jnp.maximum(dot_components(vector, vector), jnp.finfo(vector.dtype).tiny))
