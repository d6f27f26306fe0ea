"""GJK: the feature of the Minkowski difference M of two hulls that is closest to the origin, if they are apart.

GJK (Gilbert, Johnson and Keerthi) works on a simplex of up to three corners of M that comes closer to the origin step
by step. Let x be the point of the simplex that is closest to the origin. The next corner is the corner of M furthest
along -x; of all simplices that contain the new corner the closest is kept. The search ends when no corner is closer,
or when a tetrahedron contains the origin: then the hulls overlap, and EPA (epa.py) finds the depth.

Every direction that GJK tries gives a lower bound of the distance, so that a few steps show that hulls are far apart.

Decisions that several operations must agree on are computed only once (`decided` in xla/barriers.py).
Source: Gilbert et al. 1988; van den Bergen 2003, ch. 4.3.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.geometry.hull.features import Feature, HullPair, resolution, size_of
from diffsim.geometry.hull.graph import GraphHull, heights_along
from diffsim.math import safe
from diffsim.math.vector import cross, dot, mul_vec_t, scale
from diffsim.xla.barriers import decided
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
