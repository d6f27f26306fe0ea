"""Contacts of meshes with spheres, capsules, boxes and meshes: one point, or the overlap of two flat sides.

M is the Minkowski difference of two hulls (features.py). Its feature closest to the origin is found among all sides of
the hulls (`sat.py`). Hulls of many edges are graphs (`graph.py`) and are searched by GJK and EPA (`gjk.py`, `epa.py`).
The contact normal may be the normal of a side of one body, and either the normal of a side of the other body or
perpendicular to one of its edges. Then this side or edge is clipped to the first side. Up to four points then share the
depth (MuJoCo's `multiccd`); a capsule has its two ends and their middle. Bodies that are apart are treated in the same
way, while MuJoCo clips them only if the margin is zero. Most pairs whose boxes overlap do not touch. A few trial
directions show this before the full search.
Source: `engine_collision_gjk.c` of 3.8.1 for the test of flat features and the positions of the points.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import GeomType
from diffsim.geometry.hull.clip import Polygon, overlap, widest
from diffsim.geometry.hull.epa import deepest_feature
from diffsim.geometry.hull.facets import facets, nearest_part
from diffsim.geometry.hull.features import Feature, HullPair, separation, widened
from diffsim.geometry.hull.gjk import closest_feature, distance_bound
from diffsim.geometry.hull.graph import GraphHull
from diffsim.geometry.hull.polytope import Hull, core
from diffsim.geometry.hull.sat import closest_side, closest_side_by_size, outline_alone
from diffsim.geometry.hull.tables import Sizes
from diffsim.geometry.shapes import Candidates, Shape, candidate, relative_pose, stack
from diffsim.math import safe
from diffsim.math.vector import cross, dot, mul_vec, mul_vec_t, scale
from diffsim.xla.barriers import decided, stored
from diffsim.xla.batched_searches import in_groups
from diffsim.xla.gather import rows_at
from diffsim.xla.select import greatest, where_tree

Tree = TypeVar("Tree")
Kinds = tuple[GeomType, GeomType]
# rotation (3, 3) and position (3,), m, of the second body in the frame of the first
Pose = tuple[Array, Array]

# limits of cosines: between the normals of two sides that face each other (MuJoCo's mjFACE_TOL), and between an edge
# and the normal of a side that it lies in (mjEDGE_TOL)
FACING = 0.99999872
LEVEL = 0.0016
# all sides are compared if two hulls have at most this many pairs of edges,
MOST = 4096
# or, for a hull and a ball, at most this many pairs of facets and vertices
MOST_HEIGHTS = 2**19
# a hull with at most this many vertices is searched by comparing all of them
MOST_VERTICES = 128
# cosine of the angle between the contact normal and a side that can be flat on the other body
TOWARD = 0.99


class Contact(NamedTuple):
    """One point: distance m; the normal and points of both bodies (3,) in the frame of the first."""

    dist: Array
    normal: Array
    point1: Array
    point2: Array


# a hull as a search sees it
AnyHull = Hull | GraphHull


class _Body(NamedTuple):
    """The feature of one body that touches, in the frame of the first body.

    Attributes:
      hull: the body.
      points: indices of vertices -> their positions, m.
      place: (3,) indices of the vertices of the feature.
      side: the polygon at the feature that faces the other body most.
      number: the number of this side.
      faces: whether the side faces the other body closely enough to be flat on it.
    """

    hull: AnyHull
    points: Callable[[Array], Array]
    place: Array
    side: Polygon
    number: Array
    faces: Array


def walks(kinds: Kinds, sizes1: Sizes, sizes2: Sizes) -> bool:
    """Whether the search of pairs with these types and padded sizes walks from vertex to vertex of graphs."""
    if kinds == (GeomType.PLANE, GeomType.MESH):
        return sizes2[0] > MOST_VERTICES and sizes2[-1] > 0
    edges = {GeomType.SPHERE: 0, GeomType.CAPSULE: 4, GeomType.BOX: 12, GeomType.MESH: sizes1[-1] if sizes1 else 0}
    if kinds[1] != GeomType.MESH or kinds[0] not in edges:
        return False
    heights = sizes2[0] * sizes2[-2] if kinds[0] == GeomType.SPHERE else 0
    return heights > MOST_HEIGHTS or edges[kinds[0]] * sizes2[-1] > MOST


def convex_hull_pair(
    kind1: GeomType, kind2: GeomType, rows: int, lesser: Sizes | None = None
) -> Callable[..., Candidates]:
    """Pair function of two rounded hulls with one row, or with several rows at the corners of overlapping sides.

    `lesser`: numbers of vertices, facets and edges of the hull with fewer edges; the arrays have room for the larger.
    """
    return functools.partial(_single if rows == 1 else functools.partial(_several, rows, lesser), (kind1, kind2))


def _single(kinds: Kinds, shape1: Shape, shape2: Shape, margin: Array, near: Array | bool = True) -> Candidates:
    """One row at the closest points."""

    def search(pair: HullPair, hull1: AnyHull, hull2: AnyHull) -> Feature:
        few = MOST_HEIGHTS if kinds[0] == GeomType.SPHERE else 0
        if isinstance(hull2, Hull) and 0 < len(hull2.facet) * len(hull2.vert) <= few:
            # the heights of the center over all facets
            center = -mul_vec_t(pair.turn, pair.offset)
            part = nearest_part(hull2, facets(hull2, center), center)
            return Feature(part.second, part.first, part.corners, -mul_vec(pair.turn, part.normal))
        return _on_sides(pair, hull1, hull2)

    (hull1, radius1), (hull2, radius2) = (core(*body) for body in zip(kinds, (shape1, shape2), strict=True))
    pose = relative_pose(shape1, shape2)
    feature = searched_where_near(search, pose, hull1, hull2, near)
    pair = HullPair(hull1.vertices(feature.first), hull2.vertices(feature.second), *pose)
    return stack([contact_row(shape1, Contact(*separation(pair, numbered(feature))), radius1, radius2)])


def convex_hull_bound(kinds: Kinds, shape1: Shape, shape2: Shape, enough: Array, near: Array) -> Array:
    """A lower bound () of the distance of two rounded hulls, m; directions are tried until it is `enough` ().

    If they are not `near` (), no direction is tried.
    """
    (hull1, radius1), (hull2, radius2) = (core(*body) for body in zip(kinds, (shape1, shape2), strict=True))
    search = lambda pair, one, other, enough: distance_bound(pair, enough)  # noqa: E731
    bound = searched_where_near(search, relative_pose(shape1, shape2), hull1, hull2, near, enough + radius1 + radius2)
    return jnp.where(near, bound - radius1 - radius2, -jnp.inf)


def searched_where_near(
    search: Callable[..., Tree], pose: Pose, hull1: Any, hull2: Any, near: Array | bool, *further: Array
) -> Tree:
    """The result of `search(pair, hull1, hull2, *further)` if two hulls are `near` (); otherwise any finite numbers.
    It has no derivatives.
    """

    def of_hulls(_: Array, inputs: tuple[Pose, Any, Any, tuple[Array, ...]]) -> Tree:
        pose = inputs[0]
        one = inputs[1].whole
        other = inputs[2].whole
        return search(HullPair(one.corners, other.corners, *pose), one, other, *inputs[3])

    return jax.lax.stop_gradient(in_groups(of_hulls, near, jax.lax.stop_gradient((pose, hull1, hull2, further))))


def numbered(feature: Feature) -> Feature:
    """The feature with its corners numbered 0 to 2; a single corner if there was no search and all is zero."""
    return Feature(jnp.arange(3), jnp.arange(3), jnp.maximum(feature.corners, 1), feature.normal)


# kinds of corners of an overlap: an edge of the polygon enters the reference or leaves it; a corner of the reference
ENTERS, LEAVES, CORNER = range(3)


class Overlap(NamedTuple):
    """The features with which two hulls touch. All are discrete; `overlap_corners` gives positions in closed form.

    A side or an edge of one body, the polygon, is clipped to a side of the other body, the reference.

    Attributes:
      feature: the closest feature of M.
      exists: () whether two sides, or a side and an edge, overlap.
      needed: (4,) which of the four corners of the overlap are contacts.
      first: () whether the reference is a side of the first body; otherwise it is one of the second.
      both: () whether the polygon is a side of the other body; otherwise it is an edge.
      edge_of_first: () whether the polygon is an edge of the first body.
      side: (2,) numbers of the sides of both bodies.
      kind: (4,) of each corner: `ENTERS`, `LEAVES` or `CORNER`.
      polygon, reference: (2, 4) the vertices of the edges of the polygon and of the reference that make each corner.
      crosses: (4,) whether these edges cross; otherwise the polygon's edge begins or ends over the reference.
    """

    feature: Feature
    exists: Array
    needed: Array
    first: Array
    both: Array
    edge_of_first: Array
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
    """Rows at the corners of overlapping sides; one row at the closest points if no sides overlap."""
    (hull1, radius1), (hull2, radius2) = (core(*body) for body in zip(kinds, (shape1, shape2), strict=True))
    pose = relative_pose(shape1, shape2)
    touching = searched_where_near(functools.partial(_overlap_of, kinds, lesser), pose, hull1, hull2, near)
    # all vertices that closed forms read: corners of the feature, ends of the edges of the polygon and of the reference
    ends = jnp.concatenate([touching.polygon, touching.reference]).reshape(-1)
    places = [jnp.concatenate([corners, ends]) for corners in (touching.feature.first, touching.feature.second)]
    pair = HullPair(hull1.vertices(places[0]), hull2.vertices(places[1]), *pose)
    contact = Contact(*separation(pair, numbered(touching.feature)))
    dist = contact.dist - radius1 - radius2
    single = contact_row(shape1, contact, radius1, radius2)
    points, normal = overlap_corners(touching, pair, hull1.normals(touching.side[0]), hull2.normals(touching.side[1]))
    # MuJoCo puts contacts of an edge of the first body beyond it
    beyond = radius1 + 0.5 * dist if kinds[0] == GeomType.CAPSULE else 0.5 * jnp.abs(dist)
    points = points + scale(normal, jnp.where(touching.edge_of_first, beyond, -0.5 * dist))[None]
    needed = touching.needed
    if kinds[0] == GeomType.CAPSULE:
        # the middle of a segment, then its ends, in MuJoCo's order
        ends = points[:2]
        both = needed[1]
        middle = jnp.where(both, 0.5 * (ends[0] + ends[1]), ends[0])
        points = jnp.concatenate([middle[None], ends])
        needed = jnp.stack([needed[0], both, both])
    pos = shape1.pos[None] + mul_vec(shape1.mat[None], points[:rows])
    return Candidates(
        jnp.broadcast_to(dist, (rows,)),
        jnp.where(touching.exists, pos, single.pos[None]),
        jnp.broadcast_to(jnp.where(touching.exists, mul_vec(shape1.mat, normal), single.normal), (rows, 3)),
        jnp.zeros((rows, 3), dist.dtype),
        jnp.where(touching.exists, needed[:rows], jnp.arange(rows) == 0),
    )


def overlap_corners(touching: Overlap, pair: HullPair, normal1: Array, normal2: Array) -> tuple[Array, Array]:
    """(corners (4, 3) of an overlap, unit normal (3,) of the contact), by closed forms, in the frame of the first.

    `pair`: vertices 3 to 18 of each body are the ends (2, 4) of edges, first of the polygon, then of the reference.

    An edge p + t d of the polygon crosses the plane through an edge of the reference at t = h0 / (h0 - h1), with the
    heights h of its ends over the plane. A corner of the reference is projected along the normal of the reference to
    the plane of the polygon.
    """
    of_first, of_second = (x[3:].reshape(4, 4, 3) for x in (pair.first, pair.of_second(np.arange(19))))
    begin, end = jnp.where(touching.first, of_second[:2], of_first[:2])
    here, there = jnp.where(touching.first, of_first[2:], of_second[2:])
    normal2 = mul_vec(pair.turn, normal2)
    axis = jnp.where(touching.first, normal1, normal2)
    upright = jnp.where(touching.both, jnp.where(touching.first, normal2, normal1), axis)
    inward = cross(axis[None], there - here)
    sweep = end - begin
    before, after = dot(inward, begin - here), dot(inward, end - here)
    share = jnp.where(touching.crosses, safe.divide(before, before - after), touching.kind == LEAVES)
    rise = safe.divide(jnp.ones_like(axis[0]), dot(axis, upright))
    over = here - scale(jnp.broadcast_to(axis, here.shape), dot(here - begin[:1], upright[None]) * rise)
    points = jnp.where((touching.kind == CORNER)[:, None], over, begin + scale(sweep, share))
    return points, jnp.where(touching.first & ~touching.both, normal1, -normal2)


def _overlap_of(kinds: Kinds, lesser: Sizes | None, pair: HullPair, hull1: AnyHull, hull2: AnyHull) -> Overlap:
    """The closest feature and, where it is flat, the corners of the overlap that span the greatest area."""
    feature = by_sides(lesser, pair, hull1, hull2)
    normal = separation(pair, feature)[1]
    body1 = _body(hull1, pair.of_first, feature.first, normal)
    body2 = _body(hull2, pair.of_second, feature.second, -normal, pair.turn)
    side1, side2 = body1.side, body2.side
    both = decided(body1.faces & body2.faces & (dot(side1.normal, side2.normal) < -FACING))
    line1, level1 = _edge(body1, side2)
    line2, level2 = _edge(body2, side1)
    # the edge belongs to the body whose feature has fewer vertices
    size1, size2 = vertex_count(body1.place), vertex_count(body2.place)
    lesser_first = jnp.asarray(True) if kinds[0] == GeomType.CAPSULE else (size1 < 3) & (size1 <= size2)
    edge1 = decided(~both & lesser_first & body2.faces & level1)
    edge2 = decided(~both & ~lesser_first & (size2 < 3) & body1.faces & level2)
    first = both | edge2
    reference = _chosen(first, side1, side2)
    polygon = _chosen(both, side2, _chosen(edge1, line1, line2))
    polygon, reference = stored((polygon, reference))
    crossed = overlap(polygon, reference, ~both)
    exists = crossed.exists & (both | edge1 | edge2)
    places, needed = widest(crossed.point, exists, jnp.where(edge2, side1.normal, -side2.normal))
    # an edge enters at the last line that it crosses inwards, and leaves at the first one that it crosses outwards
    size = len(polygon.corner)
    kind = jnp.minimum(places // size, CORNER)
    edge = jnp.where(places < 2 * size, places % size, 0)
    into, out = rows_at(crossed.into, edge, 1), rows_at(crossed.out, edge, 1)
    line = jnp.where(kind == ENTERS, jnp.argmax(into, axis=0), jnp.argmin(out, axis=0))
    crosses = jnp.where(kind == ENTERS, jnp.max(into, axis=0) > 0, (kind == LEAVES) & (jnp.min(out, axis=0) < 1))
    line = jnp.where(kind == CORNER, places - 2 * size, line)
    sides = jnp.stack([body1.number, body2.number])
    ends = (rows_at(polygon.ends, edge, 1), rows_at(reference.ends, line, 1))
    return Overlap(
        feature=feature,
        exists=jnp.any(exists),
        needed=needed,
        first=first,
        both=both,
        edge_of_first=edge1,
        side=sides,
        kind=kind,
        polygon=ends[0],
        reference=ends[1],
        crosses=crosses,
    )


def searched(pair: HullPair, deepest_of: Callable[[HullPair, Array], Feature] = deepest_feature) -> Feature:
    """The feature of M that is closest to the origin, by a search from corner to corner.

    `deepest_of`: (pair, whether the hulls overlap) -> the feature, for hulls that overlap.
    """
    apart, overlapping = closest_feature(pair)
    return where_tree(overlapping, deepest_of(pair, overlapping), apart)


def _on_sides(pair: HullPair, hull1: AnyHull, hull2: AnyHull) -> Feature:
    """The closest feature by search; an edge that lies in a side of M is replaced by that side."""
    return widened(pair, searched(pair), hull1, hull2)


def closest(pair: HullPair, feature_of: Callable[[HullPair], Feature] = searched, near: Array | bool = True) -> Contact:
    """The closest points of two hulls, or the deepest points if they overlap.

    The feature is searched without derivatives; the points follow from it in closed form.

    Args:
      pair: the hulls.
      feature_of: finds the feature of M nearest to the origin; unless `near` is True, it reads only its argument.
      near: () whether to search; if not, the contact is at some corner of M.
    """
    feature = in_groups(lambda _, fixed: feature_of(fixed), near, jax.lax.stop_gradient(pair))
    feature = jax.lax.stop_gradient(feature._replace(corners=jnp.maximum(feature.corners, 1)))
    return Contact(*separation(pair, feature))


def by_sides(lesser: Sizes | None, pair: HullPair, hull1: AnyHull, hull2: AnyHull) -> Feature:
    """The feature of M that is closest to the origin: the best of all sides if there are few, otherwise by search."""
    if isinstance(hull1, GraphHull) or isinstance(hull2, GraphHull):
        return _on_sides(pair, hull1, hull2)
    work = len(hull1.edge) * (lesser[-1] if lesser else len(hull2.edge))
    if not 0 < work <= MOST:
        return _on_sides(pair, hull1, hull2)
    search = functools.partial(closest_side_by_size, lesser) if lesser else closest_side
    inputs = (pair, *map(outline_alone, (hull1, hull2)))
    return in_groups(lambda _, inputs: search(*inputs), True, inputs, numbers=work)


def contact_row(shape1: Shape, contact: Contact, radius1: Array, radius2: Array) -> Candidates:
    """One contact in the world, halfway between the surfaces."""
    local = 0.5 * (contact.point1 + contact.point2 + scale(contact.normal, radius1 - radius2))
    pos = shape1.pos + mul_vec(shape1.mat, local)
    return candidate(contact.dist - radius1 - radius2, pos, mul_vec(shape1.mat, contact.normal))


def _body(
    hull: AnyHull, points: Callable[[Array], Array], place: Array, normal: Array, turn: Array | None = None
) -> _Body:
    """A body in the frame of the first, with the side at its feature that faces most along a normal."""
    numbers, normals = hull.sides_at(place[0])
    if not len(numbers):
        none = jnp.zeros((2, 1), jnp.int32)
        point = points(place[:1])
        side = Polygon(point, point, jnp.zeros((1,), bool), normal, none)
        return _Body(hull, points, place, side, none[0, 0], jnp.asarray(False))
    up = dot(normals, (normal if turn is None else mul_vec_t(turn, normal))[None])
    best = greatest(up, 1)
    outward = rows_at(normals, best)
    chosen = jnp.maximum(rows_at(numbers, best), 0)
    side = hull.side.row(chosen)
    number = hull.side.window
    exists = side >= 0
    following = jnp.where(number + 1 < jnp.sum(exists), jnp.roll(side, -1), side[0])
    # places without a corner repeat the first corner
    ends = jnp.stack([jnp.where(exists, places, side[0]) for places in (side, following)])
    outward = outward if turn is None else mul_vec(turn, outward)
    polygon = Polygon(points(ends[0]), points(ends[1]), exists, outward, ends)
    return _Body(hull, points, place, polygon, chosen.astype(jnp.int32), rows_at(up, best) > TOWARD)


def _edge(body: _Body, other: Polygon) -> tuple[Polygon, Array]:
    """(the edge of a body that is most parallel to a side of the other body, whether it is parallel).

    It is the edge of the feature; if the feature is a vertex, it is the most parallel edge at the vertex.
    """
    first = body.place[0]
    further = jnp.where(body.place[1] != body.place[0], body.place[1], body.place[2])
    ends = jnp.where(further == first, body.hull.joined.row(first), further)
    sweep = body.points(jnp.maximum(ends, 0)) - body.points(first[None])
    slope = jnp.abs(dot(safe.normalize(sweep), other.normal[None]))
    slope = jnp.where(ends >= 0, slope, 2)
    best = greatest(-slope, 1)
    ends = jnp.stack([first, jnp.maximum(rows_at(ends, best), 0)])[:, None].astype(jnp.int32)
    edge = Polygon(body.points(ends[0]), body.points(ends[1]), jnp.ones((1,), bool), other.normal, ends)
    return edge, rows_at(slope, best) < LEVEL


def vertex_count(place: Array) -> Array:
    """The number of vertices of a body's feature."""
    a, b, c = place[0], place[1], place[2]
    return 1 + (a != b).astype(jnp.int32) + ((c != a) & (c != b))


def _chosen(condition: Array, yes: Polygon, no: Polygon) -> Polygon:
    """One of two polygons, padded to the longer one."""
    length = max(len(yes.corner), len(no.corner))
    yes, no = (
        polygon._replace(
            corner=with_copies(polygon.corner, length),
            following=with_copies(polygon.following, length),
            ends=with_copies(polygon.ends.T, length).T,
            exists=jnp.concatenate([polygon.exists, jnp.zeros((length - len(polygon.exists),), bool)]),
        )
        for polygon in (yes, no)
    )
    return where_tree(condition, yes, no)


def with_copies(points: Array, length: int) -> Array:
    """Points (n, ...), and copies of the first up to a length."""
    return jnp.concatenate([points, jnp.broadcast_to(points[:1], (length - len(points), *points.shape[1:]))])
