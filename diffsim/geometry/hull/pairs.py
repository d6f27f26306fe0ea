"""Contacts of meshes with spheres, capsules, boxes and meshes: one point, or the overlap of two flat sides.

The closest features are found among all sides (`sat.py`) or, of hulls of many edges, by GJK and EPA (`gjk.py`). Where
the contact normal is that of a side of both bodies, or of a side of one and across an edge of the other, the two are
clipped against each other, and up to four points share the depth (MuJoCo's `multiccd`); of a capsule its ends and the
middle of these. The same holds for bodies that are apart; MuJoCo clips only where the margin is zero.

The corners of the overlap of two convex polygons are the points where edges of the first enter or leave the second,
corners of the first that are over the second, and corners of the second that are over the first. The four that span
most area are kept; MuJoCo 3.8.1 keeps four too, which often span less.
Source: `engine_collision_gjk.c` of 3.8.1 for what counts as flat, and for where the points lie; Ericson 2005, ch. 5.5;
Cyrus and Beck 1978 for clipping an edge.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.enums import GeomType
from diffsim.geometry.hull.gjk import closest_feature, deepest_feature
from diffsim.geometry.hull.polytope import Feature, HullPair, core, difference, points_of_second, separation, widened
from diffsim.geometry.hull.sat import closest_side, closest_side_by_size, facets, nearest_part, outline_alone
from diffsim.geometry.hull.tables import Hull, Sizes
from diffsim.geometry.shapes import Candidates, Shape, candidate, stack
from diffsim.math import safe
from diffsim.math.rotation import frame_from_z
from diffsim.math.vector import Components, cross, dot, dot_components, mul_vec, mul_vec_t, scale, total, unpack
from diffsim.xla.barriers import decided, short_scan, stored
from diffsim.xla.batched_loops import in_parts, where_needed
from diffsim.xla.select import first, greatest, number_of, ranked

Array = jax.Array
# two places, or one after another of each of several lines
Places = tuple[Array, Array]

# first diagonals of a quadrilateral: extremes along these directions
STARTS = np.array([[1.0, 0.0], [0.6, 0.8], [-0.1, 1.0], [-0.8, 0.6]])
SWEEPS = 4
# how long a line is, and how far aside of it points are, of points that are at most 1 from each other: less is rounding
AREA = 1e-6


class Polygon(NamedTuple):
    """A flat convex polygon: corners (k, 3) m, the next of each (k, 3), which exist (k,), unit normal (3,).

    Corners go counterclockwise around the normal. An edge is a polygon whose only corner with a next one is the first.
    `ends` (2, k): which vertices of the hull corners and the next ones are.
    """

    corner: Array
    following: Array
    exists: Array
    normal: Array
    ends: Array


class Crossed(NamedTuple):
    """Points (n, 3) on a polygon over a reference, which of them `exist` (n,), and where along its edges (k,) the
    polygon crosses the lines (m,) of the reference: shares of their lengths, on the way in, 0 for none, and out, 1.
    """

    point: Array
    exists: Array
    into: Array
    out: Array


def overlap(polygon: Polygon, reference: Polygon, is_edge: Array) -> Crossed:
    """The corners of two polygons' overlap, seen along the normal of the reference."""
    axis = reference.normal
    inward = stored(cross(axis[None], reference.following - reference.corner))
    size = jnp.max(jnp.abs(reference.following - reference.corner)) + jnp.max(
        jnp.abs(polygon.following - polygon.corner)
    )
    limit = -jax.lax.stop_gradient(size * size) * (1e-14 if axis.dtype == jnp.float64 else 1e-6)
    begin = stored(_heights(polygon.corner, reference.corner, inward))
    end = stored(_heights(polygon.following, reference.corner, inward))
    counts = reference.exists[:, None]
    starts_in, ends_in = begin >= limit, end >= limit
    share = safe.divide(begin, begin - end)
    # what is beyond a side as a whole enters after it has left
    into = jnp.where(counts & ~starts_in, jnp.where(ends_in, share, 2), 0)
    out = jnp.where(counts & starts_in & ~ends_in, share, 1)
    enter, leave = stored((jnp.max(into, axis=0), jnp.min(out, axis=0)))
    touched = polygon.exists & (enter <= leave)
    sweep = polygon.following - polygon.corner
    entries, exits = (polygon.corner + scale(sweep, at) for at in (enter, leave))
    # corners of the reference, projected to the polygon
    rise = safe.divide(jnp.ones_like(axis[0]), dot(axis, polygon.normal))
    height = dot(reference.corner - polygon.corner[:1], polygon.normal[None])
    projected = reference.corner - scale(jnp.broadcast_to(axis, reference.corner.shape), height * rise)
    side = stored(_heights(projected, polygon.corner, cross(sweep, axis[None])))
    least = stored(jnp.min(jnp.where(polygon.exists[:, None], side, jnp.inf), axis=0))
    inside = reference.exists & ~is_edge & (least > -limit)
    exists = [touched & ((enter > 0) | is_edge), touched, inside]
    return Crossed(*stored((jnp.concatenate([entries, exits, projected]), jnp.concatenate(exists))), into, out)


def _heights(points: Array, origins: Array, directions: Array) -> Array:
    """How far points (n, 3) are along directions (m, 3) from their origins (m, 3): (m, n)."""
    columns = zip(unpack(points), unpack(origins), unpack(directions), strict=True)
    return total([(point[None] - origin[:, None]) * along[:, None] for point, origin, along in columns])


def widest(points: Array, exists: Array, normal: Array) -> tuple[Array, Array]:
    """(places (4,) of four points that span the greatest area, which of them are needed (4,)); the first always is.

    From several diagonals: the two points furthest aside of it, then those aside of the line between these, and so
    forth; the area never shrinks.
    """
    lead = first(exists)
    flat = jax.lax.stop_gradient(mul_vec(frame_from_z(normal)[None, 1:], points - points[lead][None]))
    # what does not exist is where the first is
    x, y = (jnp.where(exists, c, 0) for c in unpack(flat))
    reach = jnp.max(jnp.abs(x) + jnp.abs(y))
    x, y = stored([c / jnp.where(reach > 0, reach, 1) for c in (x, y)])
    starts = jnp.asarray(STARTS, flat.dtype)
    diagonals = _extremes(starts[:, :1] * x[None] + starts[:, 1:] * y[None])

    def sweep(last: tuple[Places, Places], _: Array) -> tuple[tuple[Places, Places], None]:
        return (last[1], _aside((x, y), last[1])), None

    start = (diagonals, _aside((x, y), diagonals))
    # of points on a line the first diagonals are the longest, and lines aside of them have no length
    tries = zip(start, short_scan(sweep, start, jnp.zeros(SWEEPS))[0], strict=True)
    both = [tuple(jnp.concatenate(ends) for ends in zip(*column, strict=True)) for column in tries]
    along, across = ([c[b] - c[a] for c in (x, y)] for a, b in both)
    area = jnp.abs(_cross(along, across)) + 1e-6 * jnp.sqrt(dot_components(along, along))
    best = greatest(area, 1)
    begin, end, right, left = (place[best] for diagonal in both for place in diagonal)
    way = [[c[place] - c[begin] for c in (x, y)] for place in (right, end, left)]
    length = jnp.sqrt(dot_components(way[1], way[1]))
    long = length > AREA
    wide = [_cross(way[1], way[0]) < -AREA * length, _cross(way[1], way[2]) > AREA * length]
    places = jnp.stack([begin, end, right, left])
    needed = jnp.stack([jnp.any(exists), long, *(long & parts for parts in wide)])
    return jnp.where(exists[places], places, lead), needed


def _extremes(values: Array) -> Places:
    """Places (s,) of the greatest and of the least of values (s, n), all from -4 to 4."""
    count = values.shape[-1]
    ranks = stored(ranked(4 + values, np.arange(count)[None], 0, count))
    return number_of(jnp.max(ranks, axis=-1), count), number_of(jnp.min(ranks, axis=-1), count)


def _aside(flat: Components, ends: Places) -> Places:
    """Places (s,) of the points furthest to the right and to the left of lines between two places (s,)."""
    starts = [c[ends[0], None] for c in flat]
    along = [c[ends[1], None] - start for c, start in zip(flat, starts, strict=True)]
    return _extremes(_cross([c[None] - start for c, start in zip(flat, starts, strict=True)], along))


def _cross(a: Components, b: Components) -> Array:
    """The cross product of vectors of two components."""
    return a[0] * b[1] - a[1] * b[0]


Kinds = tuple[GeomType, GeomType]

# normals of sides face each other, edges lie in a side (cosines, MuJoCo's mjFACE_TOL and mjEDGE_TOL)
FACING = 0.99999872
LEVEL = 0.0016
# two hulls with at most so many pairs of edges are looked at whole
MOST = 4096
# so is a hull beside a ball, with at most so many pairs of facets and vertices
MOST_HEIGHTS = 2**19
# cosine of the angle between the contact normal and a side that can be flat on the other body
TOWARD = 0.99


class Contact(NamedTuple):
    """One point: distance m; the normal, points of both bodies (3,) in the frame of the first; and the feature."""

    dist: Array
    normal: Array
    point1: Array
    point2: Array
    feature: Feature


class _Body(NamedTuple):
    """What one body touches with, in the frame of the first body.

    `hull`: with normals turned; `corner` (v, 3): its vertices; `place` (3,): of the vertices of its feature; `side`:
    the polygon that faces the other body most, and its `number`; `faces`: whether it does so at all.
    """

    hull: Hull
    corner: Array
    place: Array
    side: Polygon
    number: Array
    faces: Array


def convex_hull_pair(
    kind1: GeomType, kind2: GeomType, rows: int, lesser: Sizes | None = None
) -> Callable[..., Candidates]:
    """Pair function of two rounded hulls with one row, or with as many as the overlap of flat sides has corners.

    `lesser`: how many vertices, facets and edges the hull with fewer edges has, where arrays hold as much of either.
    """
    return functools.partial(_single if rows == 1 else functools.partial(_several, rows, lesser), (kind1, kind2))


def _single(kinds: Kinds, shape1: Shape, shape2: Shape, margin: Array, near: Array | bool = True) -> Candidates:
    (hull1, radius1), (hull2, radius2) = (core(*body) for body in zip(kinds, (shape1, shape2), strict=True))
    pair = difference(hull1, hull2, shape1, shape2)
    at_once = kinds[0] == GeomType.SPHERE and 0 < len(hull2.facet) * len(hull2.vert) <= MOST_HEIGHTS
    contact = closest(pair, _of_ball if at_once else _on_sides, (hull1, hull2), near)
    return stack([contact_row(shape1, contact, radius1, radius2)])


# a corner of the overlap: where an edge of the polygon enters or leaves the reference, or a corner of the reference
ENTERS, LEAVES, CORNER = range(3)


class _Overlap(NamedTuple):
    """What two hulls touch with: the closest `feature`, and of the overlap of two sides up to four corners.

    `exists` (): whether there is an overlap; `needed` (4,): its corners. The reference is a side of the `first` body
    or of the second, the polygon a side of the other one if they are `both`, else an edge; `side` (2,): which sides.
    Of each corner `kind` (4,), the vertices (2, 4) of the polygon's and of the reference's edge, and whether these
    `cross` (4,): else the edge begins or ends over the reference. `beyond`: the edge is that of the first body.
    """

    feature: Feature
    exists: Array
    needed: Array
    first: Array
    both: Array
    beyond: Array
    side: Array
    kind: Array
    polygon: Array
    reference: Array
    crosses: Array


def _several(
    rows: int,
    lesser: Sizes | None,
    kinds: Kinds,
    shape1: Shape,
    shape2: Shape,
    margin: Array,
    near: Array | bool = True,
) -> Candidates:
    (hull1, radius1), (hull2, radius2) = (core(*body) for body in zip(kinds, (shape1, shape2), strict=True))
    pair = difference(hull1, hull2, shape1, shape2)
    fixed = jax.lax.stop_gradient((pair, hull1, hull2))
    found = where_needed(lambda _, inputs: _overlap_of(kinds, lesser, *inputs), near, fixed)
    nothing = jax.tree.map(jnp.zeros_like, found)
    nothing = nothing._replace(feature=nothing.feature._replace(corners=jnp.ones_like(found.feature.corners)))
    found = jax.lax.stop_gradient(jax.tree.map(lambda x, y: jnp.where(near, x, y), found, nothing))
    contact = Contact(*separation(pair, found.feature), found.feature)
    dist, single = contact.dist - radius1 - radius2, contact_row(shape1, contact, radius1, radius2)
    points, normal = _corners(found, pair, hull1, hull2)
    # MuJoCo puts contacts of an edge of the first body beyond it
    beyond = radius1 + 0.5 * dist if kinds[0] == GeomType.CAPSULE else 0.5 * jnp.abs(dist)
    points, needed = points + scale(normal, jnp.where(found.beyond, beyond, -0.5 * dist))[None], found.needed
    if kinds[0] == GeomType.CAPSULE:
        # the middle of a segment, then its ends, as MuJoCo has them
        ends, both = points[:2], needed[1]
        middle = jnp.where(both, 0.5 * (ends[0] + ends[1]), ends[0])
        points, needed = jnp.concatenate([middle[None], ends]), jnp.stack([needed[0], both, both])
    pos = shape1.pos[None] + mul_vec(shape1.mat[None], points[:rows])
    return Candidates(
        jnp.broadcast_to(dist, (rows,)),
        jnp.where(found.exists, pos, single.pos[None]),
        jnp.broadcast_to(jnp.where(found.exists, mul_vec(shape1.mat, normal), single.normal), (rows, 3)),
        jnp.zeros((rows, 3), dist.dtype),
        jnp.where(found.exists, needed[:rows], jnp.arange(rows) == 0),
    )


def _corners(found: _Overlap, pair: HullPair, hull1: Hull, hull2: Hull) -> tuple[Array, Array]:
    """(corners (4, 3) of an overlap, unit normal (3,) of the contact), by closed forms, in the frame of the first."""

    def vertices(places: Array, of_first: Array) -> Array:
        return jnp.where(of_first, pair.first[places], points_of_second(pair, places))

    def normal_of(hull: Hull, side: Array) -> Array:
        return hull.normal[side] if len(hull.side) else jnp.zeros((3,), hull.vert.dtype)

    begin, end = vertices(found.polygon, ~found.first)
    here, there = vertices(found.reference, found.first)
    normal1, normal2 = normal_of(hull1, found.side[0]), mul_vec(pair.turn, normal_of(hull2, found.side[1]))
    axis = jnp.where(found.first, normal1, normal2)
    upright = jnp.where(found.both, jnp.where(found.first, normal2, normal1), axis)
    inward, sweep = cross(axis[None], there - here), end - begin
    before, after = dot(inward, begin - here), dot(inward, end - here)
    share = jnp.where(found.crosses, safe.divide(before, before - after), found.kind == LEAVES)
    rise = safe.divide(jnp.ones_like(axis[0]), dot(axis, upright))
    over = here - scale(jnp.broadcast_to(axis, here.shape), dot(here - begin[:1], upright[None]) * rise)
    points = jnp.where((found.kind == CORNER)[:, None], over, begin + scale(sweep, share))
    return points, jnp.where(found.first & ~found.both, normal1, -normal2)


def _overlap_of(kinds: Kinds, lesser: Sizes | None, pair: HullPair, hull1: Hull, hull2: Hull) -> _Overlap:
    """The closest feature and, where it is flat, the corners of the overlap that span most area."""
    feature = _by_sides(lesser, pair, hull1, hull2)
    normal = separation(pair, feature)[1]
    body1 = _body(hull1, pair.first, feature.first, normal)
    turned = hull2._replace(normal=mul_vec(pair.turn[None], hull2.normal))
    body2 = _body(turned, points_of_second(pair, jnp.arange(len(hull2.vert))), feature.second, -normal)
    side1, side2 = body1.side, body2.side
    both = decided(body1.faces & body2.faces & (dot(side1.normal, side2.normal) < -FACING))
    (line1, level1), (line2, level2) = _edge(body1, side2), _edge(body2, side1)
    # the lesser feature is the edge
    size1, size2 = _dimension(body1.place), _dimension(body2.place)
    lesser_first = jnp.asarray(True) if kinds[0] == GeomType.CAPSULE else (size1 < 3) & (size1 <= size2)
    edge1 = decided(~both & lesser_first & body2.faces & level1)
    edge2 = decided(~both & ~lesser_first & (size2 < 3) & body1.faces & level2)
    first = both | edge2
    reference, polygon = _chosen(first, side1, side2), _chosen(both, side2, _chosen(edge1, line1, line2))
    polygon, reference = stored((polygon, reference))
    crossed = overlap(polygon, reference, ~both)
    exists = crossed.exists & (both | edge1 | edge2)
    places, needed = widest(crossed.point, exists, jnp.where(edge2, side1.normal, -side2.normal))
    # the last line by which an edge enters, the first by which it leaves
    size = len(polygon.corner)
    kind, edge = jnp.minimum(places // size, CORNER), jnp.where(places < 2 * size, places % size, 0)
    into, out = crossed.into[:, edge], crossed.out[:, edge]
    line = jnp.where(kind == ENTERS, jnp.argmax(into, axis=0), jnp.argmin(out, axis=0))
    crosses = jnp.where(kind == ENTERS, jnp.max(into, axis=0) > 0, (kind == LEAVES) & (jnp.min(out, axis=0) < 1))
    line = jnp.where(kind == CORNER, places - 2 * size, line)
    sides, ends = jnp.stack([body1.number, body2.number]), (polygon.ends[:, edge], reference.ends[:, line])
    return _Overlap(feature, jnp.any(exists), needed, first, both, edge1, sides, kind, *ends, crosses)


def searched(pair: HullPair, deepest_of: Callable[[HullPair, Array], Feature] = deepest_feature) -> Feature:
    """The feature of M that is closest to the origin, by a search from corner to corner.

    `deepest_of`: finds it for hulls that overlap, given whether they do.
    """
    apart, overlapping = closest_feature(pair)
    return jax.tree.map(lambda a, b: jnp.where(overlapping, b, a), apart, deepest_of(pair, overlapping))


def _on_sides(pair: HullPair, hull1: Hull, hull2: Hull) -> Feature:
    """The feature with edges that lie in a side of M replaced by that side."""
    return widened(pair, searched(pair), hull1, hull2)


def closest(
    pair: HullPair,
    feature_of: Callable[..., Feature] = searched,
    hulls: tuple[Hull, ...] = (),
    near: Array | bool = True,
) -> Contact:
    """Where two hulls are closest, or deepest in each other: searched without derivatives, then in closed form.

    Where they are not `near` () nobody searches: what is returned is the distance of any corners.

    Args:
      feature_of: (pair, *hulls) -> the feature of M that is closest to the origin.
    """
    fixed = jax.lax.stop_gradient((pair, hulls))
    found = where_needed(lambda _, inputs: feature_of(inputs[0], *inputs[1]), near, fixed)
    corner = jax.tree.map(jnp.zeros_like, found)._replace(corners=jnp.ones_like(found.corners))
    feature = jax.lax.stop_gradient(jax.tree.map(lambda x, y: jnp.where(near, x, y), found, corner))
    return Contact(*separation(pair, feature), feature)


def _of_ball(pair: HullPair, _: Hull, hull: Hull) -> Feature:
    """The feature of M that is closest to the origin, of a ball's center and a hull."""
    center = -mul_vec_t(pair.turn, pair.offset)
    part = nearest_part(hull, facets(hull, center), center)
    return Feature(part.second, part.first, part.corners, -mul_vec(pair.turn, part.normal))


def _by_sides(lesser: Sizes | None, pair: HullPair, hull1: Hull, hull2: Hull) -> Feature:
    """The feature of M that is closest to the origin, by all sides if these are few."""
    work = len(hull1.edge) * (lesser[-1] if lesser else len(hull2.edge))
    if not 0 < work <= MOST:
        return _on_sides(pair, hull1, hull2)
    search = functools.partial(closest_side_by_size, lesser) if lesser else closest_side
    return in_parts(lambda inputs: search(*inputs), work, (pair, *map(outline_alone, (hull1, hull2))))


def contact_row(shape1: Shape, contact: Contact, radius1: Array, radius2: Array) -> Candidates:
    """One contact in the world, halfway between the surfaces."""
    local = 0.5 * (contact.point1 + contact.point2 + scale(contact.normal, radius1 - radius2))
    pos = shape1.pos + mul_vec(shape1.mat, local)
    return candidate(contact.dist - radius1 - radius2, pos, mul_vec(shape1.mat, contact.normal))


def _body(hull: Hull, corner: Array, place: Array, normal: Array) -> _Body:
    """A body with the side that faces along a normal."""
    if not len(hull.side):
        none, point = jnp.zeros((2, 1), jnp.int32), corner[:1]
        side = Polygon(point, point, jnp.zeros((1,), bool), normal, none)
        return _Body(hull, corner, place, side, none[0, 0], jnp.asarray(False))
    up = dot(hull.normal, normal[None])
    best = greatest(up, 1)
    side, number = hull.side[best], jnp.arange(hull.side.shape[1])
    exists = side >= 0
    following = jnp.where(number + 1 < jnp.sum(exists), jnp.roll(side, -1), side[0])
    # what does not exist is the first corner, over and over
    ends = jnp.stack([jnp.where(exists, places, side[0]) for places in (side, following)])
    polygon = Polygon(corner[ends[0]], corner[ends[1]], exists, hull.normal[best], ends)
    return _Body(hull, corner, place, polygon, best.astype(jnp.int32), up[best] > TOWARD)


def _edge(body: _Body, other: Polygon) -> tuple[Polygon, Array]:
    """(the edge of a body most level with a side of the other, whether it is level).

    The edge of its feature, or where that is a vertex the most level one there.
    """
    first, further = body.place[0], jnp.where(body.place[1] != body.place[0], body.place[1], body.place[2])
    ends = jnp.where(further == first, body.hull.joined[first], further)
    sweep = body.corner[jnp.maximum(ends, 0)] - body.corner[first][None]
    slope = jnp.abs(dot(safe.normalize(sweep), other.normal[None]))
    slope = jnp.where(ends >= 0, slope, 2)
    best = greatest(-slope, 1)
    ends = jnp.stack([first, jnp.maximum(ends[best], 0)])[:, None].astype(jnp.int32)
    edge = Polygon(body.corner[ends[0]], body.corner[ends[1]], jnp.ones((1,), bool), other.normal, ends)
    return edge, slope[best] < LEVEL


def _dimension(place: Array) -> Array:
    """How many vertices of a body its feature has."""
    a, b, c = place[0], place[1], place[2]
    return 1 + (a != b).astype(jnp.int32) + ((c != a) & (c != b))


def _chosen(condition: Array, yes: Polygon, no: Polygon) -> Polygon:
    """One of two polygons, padded to the longer one."""
    length = max(len(yes.corner), len(no.corner))
    yes, no = (
        polygon._replace(
            corner=_padded(polygon.corner, length),
            following=_padded(polygon.following, length),
            ends=_padded(polygon.ends.T, length).T,
            exists=jnp.concatenate([polygon.exists, jnp.zeros((length - len(polygon.exists),), bool)]),
        )
        for polygon in (yes, no)
    )
    return Polygon(*(jnp.where(condition, a, b) for a, b in zip(yes, no, strict=True)))


def _padded(points: Array, length: int) -> Array:
    """Points (n, ...), then the first of them again."""
    return jnp.concatenate([points, jnp.broadcast_to(points[:1], (length - len(points), *points.shape[1:]))])
