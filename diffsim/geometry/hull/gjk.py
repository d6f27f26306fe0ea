"""The feature of the Minkowski difference M of two hulls that is closest to the origin: GJK, and EPA if they overlap.

GJK (Gilbert, Johnson and Keerthi) works on a simplex of up to three corners of M that comes closer to the origin step
by step. Let x be the point of the simplex that is closest to the origin. The next corner is the corner of M furthest
along -x; of all simplices that contain the new corner the closest is kept. The search ends when no corner is closer,
or when a tetrahedron contains the origin: then the hulls overlap.

EPA (expanding polytope algorithm) grows a polytope inside M, which starts as a tetrahedron. The face whose plane has
the least signed distance from the origin is extended by the corner of M furthest beyond it; the new corner replaces
all faces that it sees. The distance of that face is a lower bound of the penetration depth, the distance of the new
corner along its normal an upper bound. Where the two are equal, the face belongs to M. Planes with the origin on their
outer side have negative distances, so that the first tetrahedron need not contain the origin.

Every direction that GJK tries gives a lower bound of the distance, so that a few steps show that hulls are far apart.

Decisions that several operations must agree on are computed only once (`decided` in xla/barriers.py).
Source: Gilbert et al. 1988; van den Bergen 2003, ch. 4.3; van den Bergen 2001 (depth).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.geometry.hull.graph import GraphHull, heights_along
from diffsim.geometry.hull.polytope import Feature, HullPair, resolution, size_of
from diffsim.math import safe
from diffsim.math.rotation import frame_from_z
from diffsim.math.vector import cross, dot, mul_vec_t, scale
from diffsim.xla.barriers import decided
from diffsim.xla.batched_loops import in_groups
from diffsim.xla.gather import pick_existing
from diffsim.xla.loops import while_loop
from diffsim.xla.select import first, where_tree

# the search stops after this many steps of GJK, even if rounding prevents convergence
ITERATIONS = 40
# steps of GJK that try to show that hulls are apart, before the full search
TRIES = 6


class Corner(NamedTuple):
    """One or several corners of M: `point` (..., 3) m, and the indices of its vertices in both hulls (...)."""

    point: Array
    first: Array
    second: Array


def support(pair: HullPair, direction: Array, near: Corner | None = None) -> Corner:
    """The corner of M furthest along a direction (3,); `near`: a corner close to it, where walks in graphs begin."""
    starts = (None, None) if near is None else near[1:]
    places = (
        _furthest(pair.first, -direction, starts[0]),
        _furthest(pair.second, mul_vec_t(pair.turn, direction), starts[1]),
    )
    return Corner(pair.of_second(places[1]) - pair.of_first(places[0]), *places)


def _furthest(corners: Any, direction: Array, start: Array | None) -> Array:
    """The index of the vertex furthest along a direction (3,), in vertices (v, 3) or in a graph."""
    if isinstance(corners, GraphHull):
        return corners.furthest(direction, pick_existing(corners.table.begin, corners.slot) if start is None else start)
    heights = heights_along(corners, direction)
    return first(heights >= jnp.max(heights))


def with_corner(corners: Corner, here: Array, new: Corner) -> Corner:
    """Corners (n, ...) of M, replaced by a new one where `here` (n,) is set."""
    columns = zip(corners, new, strict=True)
    return Corner(*(jnp.where(here.reshape(-1, *[1] * (old.ndim - 1)), one[None], old) for old, one in columns))


# The seven simplices of the new corner and none, one or two of three old corners; a row marks the old corners it keeps.
# A search compares all of them at once, in place of Johnson's recursion over sub-simplices.
KEPT = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [1, 0, 1], [0, 1, 1]], bool)
# the pairs of old corners, in the order of the last three rows of KEPT
PAIRS = np.array([[0, 1], [0, 2], [1, 2]])


class _SimplexSearch(NamedTuple):
    """The state of GJK.

    Attributes:
      corners: three corners of M.
      used: (3,) the corners that span the simplex.
      x: (3,) m, the point of the simplex that is closest to the origin.
      bound: () m, a lower bound of the distance, the greatest of all steps.
      overlap: () whether a tetrahedron of corners contains the origin.
      done: () whether the search has ended.
      steps: () number of steps so far.
    """

    corners: Corner
    used: Array
    x: Array
    bound: Array
    overlap: Array
    done: Array
    steps: Array


def closest_feature(pair: HullPair) -> tuple[Feature, Array]:
    """(the feature of M closest to the origin, whether the hulls overlap or touch: if so, ignore the feature)."""
    size = size_of(pair)
    end = _simplex_search(pair, size, lambda search: search.steps < ITERATIONS)
    # used corners first
    order = jnp.argsort(~end.used, stable=True)
    count = jnp.sum(end.used)
    # a feature of fewer corners repeats its first one
    order = jnp.where(jnp.arange(3) < count, order, order[0])
    first, second = end.corners.first[order], end.corners.second[order]
    touching = dot(end.x, end.x) <= (resolution(size) * size) ** 2
    return Feature(first, second, count, safe.normalize(end.x)), end.overlap | touching


def distance_bound(pair: HullPair, enough: Array) -> Array:
    """A lower bound () of the distance of two hulls, m, after a few steps of GJK, or as soon as it exceeds `enough`."""
    size = size_of(pair)
    return _simplex_search(pair, size, lambda search: (search.steps < TRIES) & (search.bound <= enough)).bound


def _simplex_search(pair: HullPair, size: Array, goes_on: Callable[[_SimplexSearch], Array]) -> _SimplexSearch:
    """The state of GJK when the search has ended, or no longer `goes_on`."""
    begin = support(pair, -pair.offset)
    corners = Corner(*(jnp.stack([part] * 3) for part in begin))
    none = jnp.asarray(False)
    bound = jnp.full_like(size, -jnp.inf)
    start = _SimplexSearch(corners, jnp.array([True, False, False]), begin.point, bound, none, none, jnp.asarray(0))
    return while_loop(lambda search: ~search.done & goes_on(search), lambda search: _closer(pair, search, size), start)


def _closer(pair: HullPair, search: _SimplexSearch, size: Array) -> _SimplexSearch:
    """One step of GJK: the simplex with one more corner of M, unless no corner is closer to the origin."""
    # The new corner w is the support point along -x. The plane through w across x separates the origin from M, so that
    # the distance is at least x . w / |x|. The step gains at most |x|^2 - x . w, and where this is rounding, x is the
    # closest point of M. A corner that is known or a simplex that is no closer come from rounding, and end the search
    # too. In graphs w is searched from the known corner that is furthest along -x.
    heights = jnp.where(search.used, heights_along(search.corners.point, -search.x), -jnp.inf)
    new = support(pair, -search.x, jax.tree.map(lambda x: x[jnp.argmax(heights)], search.corners))
    squared = dot(search.x, search.x)
    limit = (resolution(size) * size) ** 2
    lower = dot(search.x, new.point)
    gain = squared - lower
    bound = jnp.maximum(search.bound, safe.divide(lower, jnp.sqrt(squared)))
    known = jnp.any(search.used & (search.corners.first == new.first) & (search.corners.second == new.second))
    ends = known | (gain <= 1e-2 * resolution(size) * squared) | (squared <= limit)
    x, kept, overlap = _closest(search.corners.point, search.used, new.point)
    ends = decided(ends | ((dot(x, x) >= squared) & ~overlap))
    # the new corner takes a free slot
    place = jnp.argmin(kept)
    here = jnp.arange(3) == place
    corners = with_corner(search.corners, here, new)
    moved = _SimplexSearch(corners, kept | here, x, bound, overlap, overlap, search.steps + 1)
    stays = search._replace(bound=bound, done=jnp.asarray(True))
    return where_tree(ends, stays, moved)


def _closest(points: Array, used: Array, new: Array) -> tuple[Array, Array, Array]:
    """(point closest to the origin, which old corners (3,) span it with the new one, whether the origin is inside).

    Over all simplices of the new corner (3,) and some of the old corners (3, 3) that are `used` (3,).
    """
    # With the new corner w and sides s_i = p_i - w, the foot of the origin
    #   on the edge w + t s_i           is at t = -w . s_i / |s_i|^2,
    #   on the plane with normal n = s_i x s_j is n (n . w) / |n|^2, with shares a, b of s_i and s_j by Cramer's rule.
    # A foot counts where it lies inside its edge or triangle; the closest of the feet that count, or w, is the closest
    # point. Feet outside are closest points of a smaller simplex, which is in the list too.
    sides = points - new[None]
    lengths = dot(sides, sides)
    along = -safe.divide(dot(sides, new[None]), lengths)
    edges = new[None] + scale(sides, along)
    edge_exists = used & (along > 0) & (along < 1)
    side1, side2 = sides[PAIRS[:, 0]], sides[PAIRS[:, 1]]
    normals = cross(side1, side2)
    squares = dot(normals, normals)
    away = jnp.broadcast_to(-new, (3, 3))
    part1 = safe.divide(dot(cross(away, side2), normals), squares)
    part2 = safe.divide(dot(cross(side1, away), normals), squares)
    faces = scale(normals, safe.divide(dot(normals, new[None]), squares))
    face_exists = used[PAIRS[:, 0]] & used[PAIRS[:, 1]] & (part1 > 0) & (part2 > 0) & (part1 + part2 < 1)
    # the tetrahedron contains the origin where -w = sum of c_k s_k with positive c_k whose sum is below 1;
    # normals[0], [1] and [2] are s_0 x s_1, s_0 x s_2 and s_1 x s_2
    volume = dot(sides[0], normals[2])
    shares = [safe.divide(sign * -dot(new, normals[k]), volume) for k, sign in ((2, 1), (1, -1), (0, 1))]
    overlap = jnp.all(used) & (shares[0] > 0) & (shares[1] > 0) & (shares[2] > 0) & (sum(shares) < 1)
    candidates = jnp.concatenate([new[None], edges, faces])
    exists = jnp.concatenate([jnp.ones((1,), bool), edge_exists, face_exists])
    squared = jnp.where(exists, dot(candidates, candidates), jnp.inf)
    choice = jnp.argmin(squared)
    return candidates[choice], jnp.asarray(KEPT)[choice], overlap


# (largest number of vertices of the larger hull, number of corners for which its polytopes have room)
ROOM = ((32, 32), (128, 64), (float("inf"), 96))
# m, the distance of a face without area, so that it is never the closest; less than infinity, which means no face
FLAT = 1e18


class _Polytope(NamedTuple):
    """A closed surface of triangles; with c corners it has f = 2 c - 4 faces (Euler's formula).

    Attributes:
      corners: (c) corners of M.
      face: (f, 3) the numbers of each face's corners, counterclockwise from outside.
      normal: (f, 3) unit, outward.
      distance: (f,) m, signed distance of the plane from the origin; infinite where there is no face.
    """

    corners: Corner
    face: Array
    normal: Array
    distance: Array


class _FaceSearch(NamedTuple):
    """The state of EPA.

    Attributes:
      polytope: the current polytope.
      number: () the number of its corners.
      best: the face with the least upper bound of the depth.
      depth: () m, this bound.
      done: () whether the search has ended.
    """

    polytope: _Polytope
    number: Array
    best: Feature
    depth: Array
    done: Array


def deepest_feature(pair: HullPair, overlap: Array) -> Feature:
    """The face of M that is closest to the origin, by EPA. Meaningless unless the hulls `overlap` ().

    In a batch the loop runs until the last search has ended.
    """

    def search(overlap: Array, pair: HullPair) -> Feature:
        size = size_of(pair)
        polytope = _tetrahedron(pair)
        nothing = Feature(polytope.corners.first[:3], polytope.corners.second[:3], jnp.asarray(3), polytope.normal[0])
        start = _FaceSearch(polytope, jnp.asarray(4), nothing, jnp.full_like(size, jnp.inf), ~overlap)

        def unfinished(search: _FaceSearch) -> Array:
            return ~search.done & (search.number < room_for(pair))

        return while_loop(unfinished, lambda search: _larger(pair, search, size), start).best

    return in_groups(search, overlap, pair)


def room_for(pair: HullPair) -> int:
    """The number of corners for which a polytope in the difference of two hulls has room."""
    largest = max(len(x.table.vert if isinstance(x, GraphHull) else x) for x in (pair.first, pair.second))
    return next(room for most, room in ROOM if largest <= most)


def _tetrahedron(pair: HullPair) -> _Polytope:
    """Four corners of M that span a volume, if M has any."""
    # both ends of M along the line of centres, then the corner furthest from the line through both, then the corner
    # furthest from the plane through these three
    axis = safe.normalize(pair.offset)
    begin = support(pair, -axis)
    ends = [begin, support(pair, axis, begin)]
    line = safe.normalize(ends[1].point - ends[0].point)
    across = frame_from_z(line)[1]
    third = _further(pair, begin, across)
    normal = safe.normalize(cross(line, third.point - begin.point))
    fourth = _further(pair, begin, normal)
    corners = [*ends, third, fourth]
    # faces run counterclockwise from outside; the order depends on the side of the plane with the fourth corner
    above = decided(dot(fourth.point - begin.point, normal) > 0)
    base = jnp.where(above, jnp.array([0, 2, 1, 3]), jnp.array([0, 1, 2, 3]))
    most = room_for(pair)
    faces = 2 * most - 4
    table = Corner(*(jnp.stack([*parts] + [parts[0]] * (most - 4)) for parts in zip(*corners, strict=True)))
    local = np.array([[0, 1, 2], [0, 3, 1], [1, 3, 2], [2, 3, 0]])
    face = jnp.zeros((faces, 3), jnp.int32).at[:4].set(base[local].astype(jnp.int32))
    normals, distances = _planes(table.point[face[:4, 0]], table.point[face[:4, 1]], table.point[face[:4, 2]])
    none = jnp.full((faces - 4,), jnp.inf, normals.dtype)
    normal = jnp.concatenate([normals, jnp.zeros((faces - 4, 3), normals.dtype)])
    return _Polytope(table, face, normal, jnp.concatenate([distances, none]))


def _further(pair: HullPair, origin: Corner, direction: Array) -> Corner:
    """The corner of M furthest from `origin` along a direction (3,) or against it."""
    forth = support(pair, direction, origin)
    back = support(pair, -direction, origin)
    farther = decided(dot(forth.point - origin.point, direction) >= -dot(back.point - origin.point, direction))
    return where_tree(farther, forth, back)


def _planes(a: Array, b: Array, c: Array) -> tuple[Array, Array]:
    """Unit normals (n, 3) and signed distances (n,) from the origin of the planes of triangles; `FLAT` without area."""
    normal = cross(b - a, c - a)
    squared = dot(normal, normal)
    longest = jnp.maximum(dot(b - a, b - a), dot(c - a, c - a))
    solid = squared > (1e-3 * resolution(a) * longest) ** 2
    unit = scale(normal, jax.lax.rsqrt(jnp.where(solid, squared, 1)))
    return unit, jnp.where(solid, dot(unit, a), FLAT)


def _larger(pair: HullPair, search: _FaceSearch, size: Array) -> _FaceSearch:
    """One step of EPA: the polytope with one more corner, the support point w along the normal n of its closest face.

    If d is the distance of this face, the depth is between d and n . w.
    """
    polytope = search.polytope
    closest = jnp.argmin(polytope.distance)
    normal, lower = polytope.normal[closest], polytope.distance[closest]
    at = polytope.face[closest]
    new = support(pair, normal, jax.tree.map(lambda x: x[at[0]], polytope.corners))
    upper = dot(normal, new.point)
    face = Feature(polytope.corners.first[at], polytope.corners.second[at], jnp.asarray(3), -normal)
    better = decided(upper < search.depth)
    best, depth = where_tree(better, (face, upper), (search.best, search.depth))
    known = jnp.any((polytope.corners.first == new.first) & (polytope.corners.second == new.second))
    done = known | (upper - lower <= resolution(size) * size)
    grown = _grown(polytope, new, search.number, 1e-2 * resolution(size) * size)
    return _FaceSearch(grown, search.number + 1, best, depth, done)


def _grown(polytope: _Polytope, new: Corner, number: Array, limit: Array) -> _Polytope:
    """The convex hull of the polytope and a new corner, the `number`-th.

    The faces that the new corner sees are removed: the corner is outside their planes, or inside by less than `limit`.
    They form a patch, and each edge of its rim makes a new face with the new corner. There are two more new faces than
    removed faces. So the new faces take the slots of the removed faces, and two free slots.
    """
    table, face = polytope.corners, polytope.face
    most = len(table.first)
    seen = decided(dot(polytope.normal, new.point[None]) > polytope.distance - limit)
    following = _rim(face, seen, most)
    on_rim = following >= 0
    here = jnp.arange(most) == number
    corners = with_corner(table, here, new)
    apex = jnp.broadcast_to(new.point, table.point.shape)
    normals, distances = _planes(table.point, table.point[jnp.maximum(following, 0)], apex)
    # the i-th free slot takes the i-th new face: cumulative sums number both, without a scatter
    free = seen | (polytope.distance == jnp.inf)
    place = jnp.cumsum(free) - 1
    counts = jnp.cumsum(on_rim)
    filled = free & (place < counts[-1])
    source = jnp.minimum(jnp.sum(counts[None] <= place[:, None], axis=1), most - 1)
    fresh = jnp.stack([source, following[source], jnp.full_like(source, number)], axis=1)
    return _Polytope(
        corners,
        jnp.where(filled[:, None], fresh.astype(jnp.int32), face),
        jnp.where(filled[:, None], normals[source], polytope.normal),
        jnp.where(filled, distances[source], jnp.where(free, jnp.inf, polytope.distance)),
    )


def _rim(face: Array, seen: Array, most: int) -> Array:
    """For each corner (c,) the next one along the rim of the faces (f, 3) that are `seen` (f,); -1 off the rim.

    An edge from corner i to j of a seen face is on the rim if no seen face has the edge from j to i.
    """
    # a matrix of edges; edges of faces that are not seen go to an extra row, which is dropped
    start = jnp.where(seen[:, None], face, most)
    edges = jnp.zeros((most + 1, most), bool).at[start, jnp.roll(face, -1, axis=1)].set(True)[:most]
    rim = edges & ~edges.T
    return jnp.where(jnp.any(rim, axis=1), jnp.argmax(rim, axis=1), -1).astype(jnp.int32)
