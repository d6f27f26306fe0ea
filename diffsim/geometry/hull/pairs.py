"""Contacts of meshes with spheres, capsules, boxes and meshes: one point, or the overlap of two flat sides.

The closest features are found among all sides (`sat.py`) or, of hulls of many
edges, by `gjk.py` and `epa.py`. Where the contact normal is that of a side of both bodies, or of a side of one and
across an edge of the other, the two are clipped against each other, and up to four points share the depth (MuJoCo's
`multiccd`); of a capsule its ends and the middle of these. The same holds for bodies that are apart; MuJoCo clips only
where the margin is zero.
Source: `engine_collision_gjk.c` of 3.8.1 for what counts as flat, and for where the points lie.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from diffsim.base.enums import GeomType
from diffsim.geometry.hull.epa import deepest_feature
from diffsim.geometry.hull.gjk import closest_feature
from diffsim.geometry.hull.polygon_clip import Polygon, overlap, widest
from diffsim.geometry.hull.polytope import Feature, HullPair, core, difference, points_of_second, separation, widened
from diffsim.geometry.hull.sat import closest_side, closest_side_by_size, facets, nearest_part, outline_alone
from diffsim.geometry.hull.tables import Hull, Sizes
from diffsim.geometry.shapes import Candidates, Shape, candidate, stack
from diffsim.math import safe
from diffsim.math.vector import dot, mul_vec, mul_vec_t, scale
from diffsim.xla.barriers import decided, stored
from diffsim.xla.batched_loops import in_parts
from diffsim.xla.select import greatest

Array = jax.Array
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
    the polygon that faces the other body most; `faces`: whether it does so at all.
    """

    hull: Hull
    corner: Array
    place: Array
    side: Polygon
    faces: Array


def convex_hull_pair(
    kind1: GeomType, kind2: GeomType, rows: int, lesser: Sizes | None = None
) -> Callable[[Shape, Shape, Array], Candidates]:
    """Pair function of two rounded hulls with one row, or with as many as the overlap of flat sides has corners.

    `lesser`: how many vertices, facets and edges the hull with fewer edges has, where arrays hold as much of either.
    """
    return functools.partial(_single if rows == 1 else functools.partial(_several, rows, lesser), (kind1, kind2))


def _single(kinds: Kinds, shape1: Shape, shape2: Shape, margin: Array) -> Candidates:
    (hull1, radius1), (hull2, radius2) = (core(*each) for each in zip(kinds, (shape1, shape2), strict=True))
    pair, fixed = difference(hull1, hull2, shape1, shape2), jax.lax.stop_gradient((hull1, hull2))
    at_once = kinds[0] == GeomType.SPHERE and 0 < len(hull2.facet) * len(hull2.vert) <= MOST_HEIGHTS
    feature_of = functools.partial(_of_ball, fixed[1]) if at_once else functools.partial(_on_sides, *fixed)
    contact = closest(pair, feature_of)
    return stack([contact_row(shape1, contact, radius1, radius2)])


def _several(rows: int, lesser: Sizes | None, kinds: Kinds, shape1: Shape, shape2: Shape, margin: Array) -> Candidates:
    (hull1, radius1), (hull2, radius2) = (core(*each) for each in zip(kinds, (shape1, shape2), strict=True))
    pair = difference(hull1, hull2, shape1, shape2)
    contact = closest(pair, lambda fixed: _by_sides(lesser, fixed, *jax.lax.stop_gradient((hull1, hull2))))
    dist = contact.dist - radius1 - radius2
    body1 = _body(hull1, pair.first, contact.feature.first, contact.normal)
    turned = hull2._replace(normal=mul_vec(pair.turn[None], hull2.normal))
    corners2 = points_of_second(pair, jnp.arange(len(hull2.vert)))
    body2 = _body(turned, corners2, contact.feature.second, -contact.normal)
    points, exists, normal, rise = _shared(kinds, body1, body2, dist, radius1)
    places, needed = (jax.lax.stop_gradient(x) for x in widest(points, exists, normal))
    points = points[places]
    if kinds[0] == GeomType.CAPSULE:
        points, needed = _with_middle(points, needed)
    several = jax.lax.stop_gradient(jnp.any(exists))
    single = contact_row(shape1, contact, radius1, radius2)
    pos = shape1.pos[None] + mul_vec(shape1.mat[None], points[:rows] + scale(normal, rise)[None])
    first = jnp.arange(rows) == 0
    return Candidates(
        jnp.broadcast_to(dist, (rows,)),
        jnp.where(several, pos, single.pos[None]),
        jnp.broadcast_to(jnp.where(several, mul_vec(shape1.mat, normal), single.normal), (rows, 3)),
        jnp.zeros((rows, 3), dist.dtype),
        jnp.where(several, needed[:rows], first),
    )


def _with_middle(points: Array, needed: Array) -> tuple[Array, Array]:
    """The middle of a segment, then its ends, as MuJoCo has them; (points (3, 3), which are needed (3,))."""
    ends, both = points[:2], needed[1]
    middle = jnp.where(both, 0.5 * (ends[0] + ends[1]), ends[0])
    return jnp.concatenate([middle[None], ends]), jnp.stack([needed[0], both, both])


def searched(pair: HullPair, deepest_of: Callable[[HullPair, Array], Feature] = deepest_feature) -> Feature:
    """The feature of M that is closest to the origin, by a search from corner to corner.

    `deepest_of`: finds it for hulls that overlap, given whether they do.
    """
    apart, overlapping = closest_feature(pair)
    return jax.tree.map(lambda a, b: jnp.where(overlapping, b, a), apart, deepest_of(pair, overlapping))


def _on_sides(hull1: Hull, hull2: Hull, pair: HullPair) -> Feature:
    """The same, where edges in a side of M are that side."""
    return widened(pair, searched(pair), hull1, hull2)


def closest(pair: HullPair, feature_of: Callable[[HullPair], Feature] = searched) -> Contact:
    """Where two hulls are closest, or deepest in each other: searched without derivatives, then in closed form.

    `feature_of`: finds the feature of M that is closest to the origin.
    """
    feature = jax.lax.stop_gradient(feature_of(jax.lax.stop_gradient(pair)))
    return Contact(*separation(pair, feature), feature)


def _of_ball(hull: Hull, pair: HullPair) -> Feature:
    """The feature of M that is closest to the origin, of a ball's center and a hull."""
    center = -mul_vec_t(pair.turn, pair.offset)
    found = nearest_part(hull, facets(hull, center), center)
    return Feature(found.second, found.first, found.corners, -mul_vec(pair.turn, found.normal))


def _by_sides(lesser: Sizes | None, pair: HullPair, hull1: Hull, hull2: Hull) -> Feature:
    """The feature of M that is closest to the origin, by all sides if these are few."""
    work = len(hull1.edge) * (lesser[-1] if lesser else len(hull2.edge))
    if not 0 < work <= MOST:
        return _on_sides(hull1, hull2, pair)
    search = functools.partial(closest_side_by_size, lesser) if lesser else closest_side
    return in_parts(lambda given: search(*given), work, (pair, *map(outline_alone, (hull1, hull2))))


def contact_row(shape1: Shape, contact: Contact, radius1: Array, radius2: Array) -> Candidates:
    """One contact in the world, halfway between the surfaces."""
    local = 0.5 * (contact.point1 + contact.point2 + scale(contact.normal, radius1 - radius2))
    pos = shape1.pos + mul_vec(shape1.mat, local)
    return candidate(contact.dist - radius1 - radius2, pos, mul_vec(shape1.mat, contact.normal))


def _body(hull: Hull, corner: Array, place: Array, normal: Array) -> _Body:
    """A body with the side that faces along a normal."""
    if not len(hull.side):
        point = corner[:1]
        return _Body(hull, corner, place, Polygon(point, point, jnp.zeros((1,), bool), normal), jnp.asarray(False))
    up = jax.lax.stop_gradient(dot(hull.normal, normal[None]))
    best = greatest(up, 1)
    side, number = hull.side[best], jnp.arange(hull.side.shape[1])
    exists = side >= 0
    following = jnp.where(number + 1 < jnp.sum(exists), jnp.roll(side, -1), side[0])
    # what does not exist is the first corner, over and over
    ends = [corner[jnp.where(exists, places, side[0])] for places in (side, following)]
    polygon = Polygon(ends[0], ends[1], exists, hull.normal[best])
    return _Body(hull, corner, place, polygon, up[best] > TOWARD)


def _edge(body: _Body, other: Polygon) -> tuple[Polygon, Array]:
    """(the edge of a body most level with a side of the other, whether it is level).

    The edge of its feature, or where that is a vertex the most level one there.
    """
    first, further = body.place[0], jnp.where(body.place[1] != body.place[0], body.place[1], body.place[2])
    ends = jnp.where(further == first, body.hull.joined[first], further)
    sweep = body.corner[jnp.maximum(ends, 0)] - body.corner[first][None]
    slope = jnp.abs(dot(safe.normalize(jax.lax.stop_gradient(sweep)), jax.lax.stop_gradient(other.normal)[None]))
    slope = jnp.where(ends >= 0, slope, 2)
    best, begin = greatest(-slope, 1), body.corner[first][None]
    return Polygon(begin, begin + sweep[best][None], jnp.ones((1,), bool), other.normal), slope[best] < LEVEL


def _dimension(place: Array) -> Array:
    """How many vertices of a body its feature has."""
    a, b, c = place[0], place[1], place[2]
    return 1 + (a != b).astype(jnp.int32) + ((c != a) & (c != b))


def _shared(kinds: Kinds, body1: _Body, body2: _Body, dist: Array, radius1: Array) -> tuple[Array, Array, Array, Array]:
    """(points (n, 3), which exist (n,), normal (3,), how far contacts are above the points along it)."""
    side1, side2 = body1.side, body2.side
    facing = jax.lax.stop_gradient(dot(side1.normal, side2.normal)) < -FACING
    both = decided(body1.faces & body2.faces & facing)
    (line1, level1), (line2, level2) = _edge(body1, side2), _edge(body2, side1)
    # the lesser feature is the edge
    size1, size2 = _dimension(body1.place), _dimension(body2.place)
    first = jnp.asarray(True) if kinds[0] == GeomType.CAPSULE else (size1 < 3) & (size1 <= size2)
    edge1 = decided(~both & first & body2.faces & level1)
    edge2 = decided(~both & ~first & (size2 < 3) & body1.faces & level2)
    reference = _chosen(both | edge2, side1, side2)
    polygon = _chosen(both, side2, _chosen(edge1, line1, line2))
    polygon, reference = stored((polygon, reference))
    points, exists = overlap(polygon, reference, ~both)
    normal = jnp.where(edge2, side1.normal, -side2.normal)
    # MuJoCo puts contacts of an edge of the first body beyond it
    beyond = radius1 + 0.5 * dist if kinds[0] == GeomType.CAPSULE else 0.5 * jnp.abs(dist)
    return points, exists & (both | edge1 | edge2), normal, jnp.where(edge1, beyond, -0.5 * dist)


def _chosen(condition: Array, yes: Polygon, no: Polygon) -> Polygon:
    """One of two polygons, padded to the longer one."""
    length = max(len(yes.corner), len(no.corner))
    yes, no = (
        polygon._replace(
            corner=_padded(polygon.corner, length),
            following=_padded(polygon.following, length),
            exists=jnp.concatenate([polygon.exists, jnp.zeros((length - len(polygon.exists),), bool)]),
        )
        for polygon in (yes, no)
    )
    return Polygon(*(jnp.where(condition, a, b) for a, b in zip(yes, no, strict=True)))


def _padded(points: Array, length: int) -> Array:
    """Points (n, 3), then the first of them again."""
    return jnp.concatenate([points, jnp.broadcast_to(points[:1], (length - len(points), 3))])
