"""The point of M closest to the origin where two hulls are apart, and whether they overlap: the method of Gilbert,
Johnson and Keerthi.

A simplex of up to three corners of M comes closer to the origin step by step: its closest point x tells the next
corner, the one furthest along -x, and of all simplices that hold the new corner the closest is kept. The search ends
when no corner is closer, or when a tetrahedron holds the origin.
Source: Gilbert et al. 1988; van den Bergen 2003, ch. 4.3.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.geometry.hull.polytope import Corner, Feature, HullPair, resolution, size_of, support, with_corner
from diffsim.math import safe
from diffsim.math.vector import cross, dot, scale
from diffsim.xla.barriers import decided

Array = jax.Array

ITERATIONS = 40

# which of three old corners stay beside the new one: none, one, two
KEPT = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [1, 0, 1], [0, 1, 1]], bool)
PAIRS = np.array([[0, 1], [0, 2], [1, 2]])


class _Search(NamedTuple):
    """Corners (3), of which those `used` (3,) span the simplex; its closest point `x` (3,); whether it is over."""

    corners: Corner
    used: Array
    x: Array
    overlap: Array
    done: Array
    steps: Array


def closest_feature(pair: HullPair) -> tuple[Feature, Array]:
    """(the feature of M that is closest to the origin, unless the hulls overlap, whether they overlap or touch)."""
    size = size_of(pair)
    begin = support(pair, -pair.offset)
    corners = Corner(*(jnp.stack([part] * 3) for part in begin))
    none = jnp.asarray(False)
    start = _Search(corners, jnp.array([True, False, False]), begin.point, none, none, jnp.asarray(0))

    def unfinished(search: _Search) -> Array:
        return ~search.done & (search.steps < ITERATIONS)

    found = jax.lax.while_loop(unfinished, lambda search: _step(pair, search, size), start)
    # used corners first
    order = jnp.argsort(~found.used, stable=True)
    count = jnp.sum(found.used)
    # a feature of fewer corners repeats its first one
    order = jnp.where(jnp.arange(3) < count, order, order[0])
    first, second = found.corners.first[order], found.corners.second[order]
    touching = dot(found.x, found.x) <= (resolution(size) * size) ** 2
    return Feature(first, second, count, safe.normalize(found.x)), found.overlap | touching


def _step(pair: HullPair, search: _Search, size: Array) -> _Search:
    """One more corner."""
    new = support(pair, -search.x)
    squared = dot(search.x, search.x)
    limit = (resolution(size) * size) ** 2
    # the distance is at least x . new / |x|
    gain = squared - dot(search.x, new.point)
    known = jnp.any(search.used & (search.corners.first == new.first) & (search.corners.second == new.second))
    ends = known | (gain <= 1e-2 * resolution(size) * squared) | (squared <= limit)
    x, kept, overlap = _closest(search.corners.point, search.used, new.point)
    ends = decided(ends | ((dot(x, x) >= squared) & ~overlap))
    # the new corner takes a place that is free
    place = jnp.argmin(kept)
    here = jnp.arange(3) == place
    corners = with_corner(search.corners, here, new)
    moved = _Search(corners, kept | here, x, overlap, overlap, search.steps + 1)
    stays = search._replace(done=jnp.asarray(True))
    return jax.tree.map(lambda a, b: jnp.where(ends, a, b), stays, moved)


def _closest(points: Array, used: Array, new: Array) -> tuple[Array, Array, Array]:
    """(closest point to the origin, which old corners (3,) span it beside the new one, whether the origin is inside).

    Of the simplices of some old corners (3, 3) and the new one (3,).
    """
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
    # the tetrahedron: shares of its corners by Cramer's rule; normals are those of sides 01, 02, 12
    volume = dot(sides[0], normals[2])
    shares = [safe.divide(sign * -dot(new, normals[k]), volume) for k, sign in ((2, 1), (1, -1), (0, 1))]
    overlap = jnp.all(used) & (shares[0] > 0) & (shares[1] > 0) & (shares[2] > 0) & (sum(shares) < 1)
    candidates = jnp.concatenate([new[None], edges, faces])
    exists = jnp.concatenate([jnp.ones((1,), bool), edge_exists, face_exists])
    squared = jnp.where(exists, dot(candidates, candidates), jnp.inf)
    choice = jnp.argmin(squared)
    return candidates[choice], jnp.asarray(KEPT)[choice], overlap
