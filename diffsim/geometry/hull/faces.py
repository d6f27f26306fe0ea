"""Contacts of two flat sides, or of a side and an edge, since MuJoCo 3.12: each of up to four corners has its depth.

The closest features of the two bodies say which sides and edges can be flat on each other: all that contain the
feature. Two sides whose normals are opposite within five degrees are cut to their overlap (`cut.py`). If there are none
and a feature is a vertex or an edge, an edge that lies in a side of the other body within five degrees is cut instead.
Corners up to the margin are contacts. The depth of a corner is its height over the reference. In 3.8.1, sides must be
parallel within a tenth of a degree, and all corners have the depth of the closest features (`pairs.py`).
Source: `multicontact` in engine_collision_gjk.c of MuJoCo 3.12 and in collision_gjk.py of MuJoCo Warp 4.0; MuJoCo 4.0.0
as a black box.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import GeomType
from diffsim.geometry.hull.cut import KEPT, Ring, cut_by, kept_corners
from diffsim.geometry.hull.features import Feature, HullPair, separation
from diffsim.geometry.hull.pairs import (
    CORNER,
    ENTERS,
    AnyHull,
    Contact,
    Kinds,
    Overlap,
    by_sides,
    contact_row,
    numbered,
    overlap_corners,
    searched_where_near,
    vertex_count,
)
from diffsim.geometry.hull.polytope import Hull, core
from diffsim.geometry.hull.tables import Sizes
from diffsim.geometry.shapes import Candidates, Shape, relative_pose
from diffsim.math import safe
from diffsim.math.vector import dot, mul_vec, mul_vec_t, scale
from diffsim.xla.gather import rows_at
from diffsim.xla.select import where_tree

# limits of cosines: between the normals of two sides that face each other (MuJoCo's mjFACE_TOL), and between an edge
# and the normal of a side that it lies in, or between a side and the direction of the contact (mjEDGE_TOL)
FACING = 0.996
LEVEL = 0.0888
# a side that is parallel to the direction of the contact within rounding does not face the other body
SIDEWAYS = 1e-10
# how far MuJoCo's first corner of each side of a box is from the last of `BOX` (polytope.py)
FIRST_OF_BOX = np.array([1, 0, 3, 0, 0, 1])


class Flat(NamedTuple):
    """The flat parts of a body that contain the feature by which it touches, in the frame of the first body.

    Attributes:
      side: (k,) numbers of sides, in increasing order; -1 for none.
      normal: (k, 3) their outward unit normals.
      size: () number of vertices of the feature, 1 to 3.
      edge: (m, 2) vertices of the edges; -1 for none.
    """

    side: Array
    normal: Array
    size: Array
    edge: Array


class Patch(NamedTuple):
    """The corners of the overlap, and `base` (), a vertex of the reference, over which heights are measured."""

    overlap: Overlap
    base: Array


def flat_at(kind: GeomType, hull: AnyHull, place: Array, direction: Array) -> Flat:
    """The flat parts of a hull at the vertices (3,) of its feature; normals are in the frame of the hull.

    Of more than four sides, the four are returned whose normals are nearest to `direction` (3,).
    """
    size = vertex_count(place)
    further = jnp.where(place[1] != place[0], place[1], place[2])
    # MuJoCo takes the first edge that lies in a side. The order of a mesh's edges differs between its versions
    around = place[0] ^ np.array([1, 2, 4], np.int32) if kind == GeomType.BOX else hull.joined.row(place[0])
    ends = jnp.where(further == place[0], around, further)
    edge = jnp.stack([jnp.broadcast_to(place[0], ends.shape), ends], axis=1)
    edge = jnp.where((ends >= 0)[:, None], edge, -1).astype(jnp.int32)
    numbers, normals = hull.sides_at(place[0])
    if not len(numbers):
        return Flat(jnp.full(1, -1, jnp.int32), jnp.zeros((1, 3), direction.dtype), size, edge)
    contains = _contains(hull, numbers, place)
    heights = jnp.where(contains, dot(normals, direction[None]), -jnp.inf)
    best = jax.lax.top_k(heights, min(KEPT, len(numbers)))[1]
    side = jnp.where(contains[best], numbers[best], np.iinfo(np.int32).max)
    order = jnp.argsort(side)
    exists = contains[best][order]
    return Flat(jnp.where(exists, side[order], -1), rows_at(normals, best[order]), size, edge)


def _contains(hull: AnyHull, numbers: Array, place: Array) -> Array:
    """Which of the sides (k,), which include all sides at the first of the vertices (3,), have all three of them."""
    if isinstance(hull, Hull):
        used = jnp.arange(len(hull.side.entry)) < hull.side.start[-1]
        seen = jnp.cumsum((hull.side.entry[None] == place[:, None]) & used[None], axis=1, dtype=jnp.int32)
        seen = jnp.concatenate([jnp.zeros((3, 1), jnp.int32), seen], axis=1)
        return jnp.all(seen[:, hull.side.start[1:]] > seen[:, hull.side.start[:-1]], axis=0)
    others = [hull.sides_at(vertex)[0] for vertex in (place[1], place[2])]
    common = [jnp.any(numbers[:, None] == other[None], axis=1) for other in others]
    return (numbers >= 0) & common[0] & common[1]


def ring_of(kind: GeomType, hull: AnyHull, number: Array, points: Callable[[Array], Array]) -> Ring:
    """A side in MuJoCo's order of corners, clockwise from outside; `points`: vertices -> positions (..., 3), m."""
    if not len(hull.side.window) or (isinstance(hull, Hull) and not len(hull.normal)):
        return Ring(points(jnp.zeros(1, jnp.int32)), jnp.zeros(1, jnp.int32), jnp.zeros((), jnp.int32))
    number = jnp.maximum(number, 0)
    row = hull.side.row(number)
    count = jnp.sum(row >= 0, dtype=jnp.int32)
    shift = jnp.asarray(FIRST_OF_BOX)[jnp.minimum(number, 5)] if kind == GeomType.BOX else 0
    place = jnp.arange(len(row), dtype=jnp.int32)
    backwards = count - 1 - (place + shift) % jnp.maximum(count, 1)
    vertex = rows_at(row, jnp.where(place < count, backwards, 0)).astype(jnp.int32)
    return Ring(points(vertex), vertex, count)


class _Pairing(NamedTuple):
    """Which flat parts are on each other.

    `both`: two sides. `first`, `second`: an edge of this body and a side of the other one. `side` (2,): numbers of the
    sides. `edge` (2, 2): the vertices of an edge of each body.
    """

    both: Array
    first: Array
    second: Array
    side: Array
    edge: Array


def _pairing(flat1: Flat, flat2: Flat, points1: Array, points2: Array, normal: Array) -> _Pairing:
    """The sides that are closest to opposite, or an edge and a side.

    `points1`, `points2` (m, 2, 3): the ends of the edges, m. `normal` (3,): of the contact, from the first body.
    """
    exists1, exists2 = flat1.side >= 0, flat2.side >= 0
    up1, up2 = dot(flat1.normal, normal[None]), -dot(flat2.normal, normal[None])
    facing = (exists1 & (up1 > LEVEL))[:, None] & (exists2 & (up2 > LEVEL))[None]
    against = jnp.where(facing, -dot(flat1.normal[:, None], flat2.normal[None]), -1)
    both = jnp.max(against) > FACING
    one, other = jnp.unravel_index(jnp.argmax(against), against.shape)

    first = ~both & (flat1.size < 3) & ((flat1.size <= flat2.size) | ~jnp.any(exists1))
    second = ~both & (flat2.size < 3)
    edge1, side2, lies1 = _edge_on_side(flat1.edge, points1, flat2, exists2 & (up2 > SIDEWAYS))
    edge2, side1, lies2 = _edge_on_side(flat2.edge, points2, flat1, exists1 & (up1 > SIDEWAYS))
    sides = [jnp.where(both, one, side1), jnp.where(both, other, side2)]
    side = jnp.stack([rows_at(flat.side, at) for flat, at in zip((flat1, flat2), sides, strict=True)])
    return _Pairing(both, first & lies1, second & lies2 & ~(first & lies1), side, jnp.stack([edge1, edge2]))


def _edge_on_side(edge: Array, points: Array, flat: Flat, faces: Array) -> tuple[Array, Array, Array]:
    """(vertices (2,) of the first edge that lies in a side, the first such side, whether there are any)."""
    along = safe.normalize(points[:, 1] - points[:, 0])
    slope = jnp.abs(dot(flat.normal[:, None], along[None]))
    lies = faces[:, None] & (edge[:, 0] >= 0)[None] & (slope < LEVEL)
    side = jnp.argmax(jnp.any(lies, axis=1))
    return rows_at(edge, jnp.argmax(rows_at(lies, side))), side, jnp.any(lies)


def patch_of(
    kinds: Kinds,
    pair: HullPair,
    hulls: tuple[AnyHull, AnyHull],
    flats: tuple[Flat, Flat],
    feature: Feature,
    margin: Array,
) -> Patch:
    """The overlap of the flat parts of two bodies, in the frame of the first.

    Args:
      kinds: the types of the geoms.
      pair, hulls: the bodies.
      flats: their flat parts at the closest feature.
      feature: the closest feature.
      margin: () m, corners further away are no contacts.
    """
    points = pair.of_first, pair.of_second
    ends = [at(jnp.maximum(flat.edge, 0)) for at, flat in zip(points, flats, strict=True)]
    pairing = _pairing(flats[0], flats[1], ends[0], ends[1], feature.normal)
    rings = [ring_of(*of) for of in zip(kinds, hulls, pairing.side, points, strict=True)]
    two = jnp.full((), 2, jnp.int32)
    lines = [Ring(at(edge), edge, two) for at, edge in zip(points, jnp.maximum(pairing.edge, 0), strict=True)]
    # the reference is a side of the first body, unless an edge of this body lies in a side of the second one
    first = ~pairing.first
    length = max(2, *(len(ring.vertex) for ring in rings))
    rings, lines = ([ring.padded(length) for ring in of] for of in (rings, lines))
    reference = where_tree(first, rings[0], rings[1])
    polygon = where_tree(pairing.both, rings[1], where_tree(pairing.first, lines[0], lines[1]))
    sides = jnp.maximum(pairing.side, 0)
    outward1, outward2 = (hull.normals(side) for hull, side in zip(hulls, sides, strict=True))
    axis = jnp.where(first, outward1, mul_vec(pair.turn, outward2))

    cut = cut_by(polygon, reference, axis)
    height = dot(cut.point - reference.point[:1], axis[None])
    places, exist = kept_corners(cut, height <= margin, ~pairing.both)
    exist &= pairing.both | pairing.first | pairing.second
    edge, line, other = (rows_at(cut.made, places)[:, k] for k in range(3))
    # two lines of the reference meet in the corner where the later one begins
    meets = jnp.where((line + 1) % jnp.maximum(reference.corners, 1) == other, other, line)
    is_corner = edge < 0
    on_line = jnp.where(is_corner, meets, jnp.maximum(line, 0))
    overlap = Overlap(
        feature=feature,
        exists=jnp.any(exist),
        needed=exist,
        first=first,
        both=pairing.both,
        edge_of_first=pairing.first,
        side=sides,
        kind=jnp.where(is_corner, CORNER, ENTERS),
        polygon=_ends(polygon, jnp.maximum(edge, 0)),
        reference=_ends(reference, on_line),
        crosses=~is_corner & (line >= 0),
    )
    return Patch(overlap, reference.vertex[0])


def _ends(ring: Ring, number: Array) -> Array:
    """The vertices (2, k) at the ends of edges (k,) of a polygon."""
    following = jnp.where(number + 1 < ring.corners, number + 1, 0)
    return jnp.stack([rows_at(ring.vertex, number), rows_at(ring.vertex, following)])


def patch_rows(
    shape1: Shape,
    pose: tuple[Array, Array],
    hulls: tuple[Any, Any],
    patch: Patch,
    single: Candidates,
    inflated: Array | float = 0.0,
) -> Candidates:
    """Four rows: the corners of the overlap, or the single row of the closest features.

    The corner x of the polygon has the height d over the reference with normal a. Its nearest point there is x - d a,
    and the distance is measured from that point along the normal u of the polygon's side, or back along a.

    Args:
      shape1: the first geom.
      pose: of the second one in the frame of the first.
      hulls: the bodies.
      patch: the overlap.
      single: the row of the closest features, without an axis of rows.
      inflated: () m, by how much the vertices of an edge are nearer than the edge is.
    """
    overlap = patch.overlap
    ends = jnp.concatenate([overlap.polygon, overlap.reference]).reshape(-1)
    places = jnp.concatenate([jnp.broadcast_to(patch.base, (3,)), ends])
    pair = HullPair(hulls[0].vertices(places), hulls[1].vertices(places), *pose)
    outward1, outward2 = hulls[0].normals(overlap.side[0]), hulls[1].normals(overlap.side[1])
    points, normal = overlap_corners(overlap, pair, outward1, outward2)
    outward2 = mul_vec(pair.turn, outward2)
    axis = jnp.where(overlap.first, outward1, outward2)
    base = jnp.where(overlap.first, pair.first[0], pair.of_second(np.arange(1))[0])
    push = jnp.where(overlap.both, outward2, -axis)
    height = dot(points - base[None], axis[None])
    dist = -dot(axis, push) * height
    across = jnp.broadcast_to(axis, points.shape)
    middle = points - scale(across, height - 0.5 * inflated) - scale(jnp.broadcast_to(push, points.shape), 0.5 * dist)
    exists, first = overlap.exists, np.arange(KEPT) == 0
    return Candidates(
        jnp.where(exists, dist + inflated, single.dist),
        jnp.where(exists, shape1.pos[None] + mul_vec(shape1.mat[None], middle), single.pos[None]),
        jnp.broadcast_to(jnp.where(exists, mul_vec(shape1.mat, normal), single.normal), points.shape),
        jnp.zeros_like(points),
        jnp.where(exists, overlap.needed, first & single.valid),
    )


def hull_faces(kind1: GeomType, kind2: GeomType, lesser: Sizes | None = None) -> Callable[..., Candidates]:
    """Pair function of a capsule, box or mesh and a mesh. `lesser`: as for `convex_hull_pair`."""
    return functools.partial(_hull_faces, (kind1, kind2), lesser)


def _hull_faces(
    kinds: Kinds, lesser: Sizes | None, shape1: Shape, shape2: Shape, margin: Array, near: Array | bool = True
) -> Candidates:
    (hull1, radius1), (hull2, radius2) = (core(*body) for body in zip(kinds, (shape1, shape2), strict=True))
    pose, is_capsule = relative_pose(shape1, shape2), kinds[0] == GeomType.CAPSULE
    # MuJoCo moves the segment of a capsule to its surface, which it inflates by half of the margin
    inflated = 0.5 * margin if is_capsule else jnp.zeros_like(margin)

    def search(pair: HullPair, one: AnyHull, other: AnyHull, grown: Array, margin: Array) -> Patch:
        feature = by_sides(lesser, pair, one, other)
        feature = feature._replace(normal=separation(pair, feature)[1])
        normal = feature.normal
        if is_capsule:
            one = on_surface(one, normal, grown)
            pair = pair._replace(first=one.corners)
        flat1 = flat_at(kinds[0], one, feature.first, normal)
        flat2 = flat_at(kinds[1], other, feature.second, mul_vec_t(pair.turn, -normal))
        flat2 = flat2._replace(normal=mul_vec(pair.turn[None], flat2.normal))
        return patch_of(kinds, pair, (one, other), (flat1, flat2), feature, margin)

    patch = searched_where_near(search, pose, hull1, hull2, near, radius1 + inflated, margin - inflated)
    feature = patch.overlap.feature
    pair = HullPair(hull1.vertices(feature.first), hull2.vertices(feature.second), *pose)
    contact = Contact(*separation(pair, numbered(feature)))
    single = contact_row(shape1, contact, radius1, radius2)
    hull1 = on_surface(hull1, contact.normal, radius1 + inflated) if is_capsule else hull1
    rows = patch_rows(shape1, pose, (hull1, hull2), patch, single, inflated)
    return Candidates(*(column[:2] for column in rows)) if is_capsule else rows


def on_surface(segment: Any, normal: Array, radius: Array) -> Any:
    """A segment along z, moved by `radius` (), m, in the direction of a unit vector (3,) without its z component."""
    return segment._replace(vert=segment.vert + scale(normal * np.array([1, 1, 0]), radius)[None])
