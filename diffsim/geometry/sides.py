"""Two overlapping hulls: the side of their difference that is closest to the origin, by looking at all of them.

A side of M = {b - a} is a side of one hull against a corner of the other, or an edge of each: edges whose arcs between
the normals of their sides cross on the sphere. The sides' planes are lower bounds of the signed distance, the greatest
is the distance, and its corners are the feature. A few wide operations, where `epa.py` searches step by step; they grow
with the product of the numbers of edges.
Source: Gregorius, The separating axis test between convex polyhedra (GDC 2013).
"""

import jax
import jax.numpy as jnp

from diffsim.geometry.assets import Hull
from diffsim.geometry.polytope import Feature, HullPair, points_of_second
from diffsim.math import safe
from diffsim.math.vector import cross, dot, mul_vec

Array = jax.Array


def deepest_side(hull1: Hull, hull2: Hull) -> Feature:
    """The side of M with the greatest gap, of two hulls in one frame; anything where they do not overlap."""
    hull1, hull2 = _with_sides(hull1), _with_sides(hull2)
    gap1, gap2, gap3 = _against(hull1, hull2), _against(hull2, hull1), _crossings(hull1, hull2).reshape(-1)
    side1, side2, crossing = (jnp.argmax(gap) for gap in (gap1, gap2, gap3))
    own, other = _of_side(hull1, hull2, side1), _of_side(hull2, hull1, side2)
    other = Feature(other.second, other.first, other.corners, -other.normal)
    edges = _of_edges(hull1, hull2, crossing // len(hull2.edge), crossing % len(hull2.edge))
    # of equal ones a side, not a crossing of edges
    size = jnp.max(jnp.abs(hull1.vert)) + jnp.max(jnp.abs(hull2.vert))
    flat = jnp.maximum(gap1[side1], gap2[side2])
    side = jax.tree.map(lambda a, b: jnp.where(gap1[side1] >= gap2[side2], a, b), own, other)
    sharp = gap3[crossing] > flat + 1e2 * jnp.finfo(size.dtype).eps * size
    return jax.tree.map(lambda a, b: jnp.where(sharp, a, b), edges, side)


def turned(pair: HullPair, hull: Hull) -> Hull:
    """The second hull of a pair in the frame of the first."""
    normal = mul_vec(pair.turn[None], hull.normal)
    return hull._replace(vert=points_of_second(pair, jnp.arange(len(hull.vert))), normal=normal)


def _with_sides(hull: Hull) -> Hull:
    """A hull with at least one row of sides and of edges, which may be none."""
    none = jnp.full((1, 3), -1, jnp.int32)
    if not len(hull.side):
        hull = hull._replace(side=none, normal=jnp.zeros((1, 3), hull.vert.dtype))
    return hull if len(hull.edge) else hull._replace(edge=none[:, :2], flank=none[:, :2])


def _against(hull: Hull, other: Hull) -> Array:
    """The gaps (p,) of the sides of a hull against the corners of the other; -inf for none."""
    gap = jnp.min(dot(hull.normal[:, None], other.vert[None]), axis=1)
    gap = gap - dot(hull.normal, hull.vert[jnp.maximum(hull.side[:, 0], 0)])
    return jnp.where(hull.side[:, 0] >= 0, gap, -jnp.inf)


def _of_side(hull: Hull, other: Hull, index: Array) -> Feature:
    """A side of a hull against the corner of the other that is nearest to it."""
    normal = hull.normal[index]
    corner = jnp.argmin(dot(other.vert, normal[None])).astype(jnp.int32)
    return Feature(hull.side[index, :3], jnp.broadcast_to(corner, (3,)), jnp.asarray(3), normal)


def _crossings(hull1: Hull, hull2: Hull) -> Array:
    """Gaps (e, f) of the edges of both; -inf where their arcs do not cross."""
    (start1, along1, mean1), (start2, along2, mean2) = _edges(hull1), _edges(hull2)
    normal = cross(along1[:, None], along2[None])
    squared = dot(normal, normal)
    lengths = dot(along1, along1)[:, None] * dot(along2, along2)[None]
    exists = (hull1.edge[:, :1] >= 0) & (hull2.edge[:, 0] >= 0)[None]
    # a segment has no sides: its arc is a whole circle
    circle1, circle2 = hull1.flank[:, :1] < 0, (hull2.flank[:, 0] < 0)[None]
    towards1, towards2 = dot(normal, mean1[:, None]), dot(normal, mean2[None])
    faces = (towards1 * towards2 < 0) | circle1 | circle2
    crosses = exists & faces & _parted(hull1, along2) & _parted(hull2, along1).T
    crosses &= squared > 1e2 * jnp.finfo(squared.dtype).eps * lengths
    gap = dot(normal, start2[None] - start1[:, None]) * jax.lax.rsqrt(jnp.where(crosses, squared, 1))
    outward = jnp.where(circle1, towards2 < 0, towards1 > 0)
    return jnp.where(crosses, jnp.where(outward, gap, -gap), -jnp.inf)


def _of_edges(hull1: Hull, hull2: Hull, index1: Array, index2: Array) -> Feature:
    """An edge of each hull."""
    (_, along1, mean1), (_, along2, mean2) = _edges(hull1), _edges(hull2)
    normal = safe.normalize(cross(along1[index1], along2[index2]))
    of_circle = hull1.flank[index1, 0] < 0
    outward = jnp.where(of_circle, dot(normal, mean2[index2]) < 0, dot(normal, mean1[index1]) > 0)
    edge1, edge2 = jnp.maximum(hull1.edge[index1], 0), jnp.maximum(hull2.edge[index2], 0)
    first, second = edge1[jnp.array([0, 1, 0])], edge2[jnp.array([0, 0, 1])]
    return Feature(first, second, jnp.asarray(3), jnp.where(outward, normal, -normal))


def _edges(hull: Hull) -> tuple[Array, Array, Array]:
    """Of the edges (e): start (e, 3), the way to the end (e, 3), the sum of the normals of both sides (e, 3)."""
    ends, normals = hull.vert[jnp.maximum(hull.edge, 0)], hull.normal[jnp.maximum(hull.flank, 0)]
    return ends[:, 0], ends[:, 1] - ends[:, 0], normals[:, 0] + normals[:, 1]


def _parted(hull: Hull, along: Array) -> Array:
    """(e, f) whether the plane across an edge `along` (f, 3) is between the normals of both sides of an edge."""
    height = dot(hull.normal[:, None], along[None])
    first, second = (height[jnp.maximum(hull.flank[:, k], 0)] for k in (0, 1))
    return (first * second < 0) | (hull.flank[:, :1] < 0)
