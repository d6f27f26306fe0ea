"""Pairs of convex hulls with rounded corners, and their difference, which all searches look at.

Spheres, capsules, boxes and meshes are the hull of some points plus a ball: one point, two, eight, or the vertices of a
mesh. For hulls A and B the difference is M = {b - a}; it holds the origin where they overlap, and the signed distance
of A and B is that of the origin and M. Searches stand in the frame of the first body. A corner of M is named by the
places of its points in the two lists of vertices.
Source: Ericson 2005, ch. 9.3; van den Bergen 2003, ch. 4.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.enums import GeomType
from diffsim.geometry.assets import Hull, polygon_normals
from diffsim.geometry.hull.hull_facets import outline_of, polygons_of
from diffsim.geometry.shapes import Shape, relative_pose
from diffsim.math.vector import dot, mul_vec, mul_vec_t, pack, total, unpack

Array = jax.Array

# corners of a box in units of its half sizes, the first coordinate changing fastest, and its sides
CORNERS = np.array([[x, y, z] for z in (-1, 1) for y in (-1, 1) for x in (-1, 1)])
BOX = [[1, 3, 7, 5], [0, 4, 6, 2], [2, 6, 7, 3], [0, 1, 5, 4], [4, 5, 7, 6], [0, 2, 3, 1]]
# sides of a prism: base 0, 1, 2 counterclockwise from above, top 3, 4, 5
PRISM = [[3, 4, 5], [0, 2, 1], *([k, (k + 1) % 3, (k + 1) % 3 + 3, k + 3] for k in range(3))]
# directions around the z axis, which stand for the sides of an upright segment
AROUND = np.array([[1, 0, 0], [0, 1, 0], [-1, 0, 0], [0, -1, 0]])


class HullPair(NamedTuple):
    """Two hulls in the frame of the first body, m.

    `first` (v, 3): vertices of the first body; `second` (w, 3): of the second, in its own frame; `turn` (3, 3),
    `offset` (3,): the pose of the second body.
    """

    first: Array
    second: Array
    turn: Array
    offset: Array


class Corner(NamedTuple):
    """A corner of M, or several: `point` (..., 3) m, and the places (...) of its points in the lists of vertices."""

    point: Array
    first: Array
    second: Array


class Feature(NamedTuple):
    """What is closest to the origin on the surface of M.

    Corners `first` (3,), `second` (3,) of which `corners` () span it; `normal` (3,): unit, from the first body to the
    second, in the frame of the first.
    """

    first: Array
    second: Array
    corners: Array
    normal: Array


def difference(hull1: Hull, hull2: Hull, shape1: Shape, shape2: Shape) -> HullPair:
    """Two hulls, each in the frame of its shape, as a pair."""
    return HullPair(hull1.vert, hull2.vert, *relative_pose(shape1, shape2))


def core(kind: GeomType, shape: Shape) -> tuple[Hull, Array]:
    """(hull in the frame of the shape, radius in m of the ball around each of its points) of a shape."""
    size, none = shape.size, jnp.zeros_like(shape.size[0])
    if kind == GeomType.SPHERE:
        return _without_sides(jnp.zeros((1, 3), size.dtype)), size[0]
    if kind == GeomType.CAPSULE:
        up = pack([none, none, size[1]])
        return _without_sides(jnp.stack([-up, up])), size[0]
    if kind == GeomType.BOX:
        return with_polygons(jnp.asarray(CORNERS, size.dtype) * size[None], BOX), none
    return shape.data, none


def with_polygons(vert: Array, polygons: list[list[int]]) -> Hull:
    """The hull of vertices (v, 3) with these polygons, counterclockwise from outside."""
    tables = polygons_of(polygons, len(vert)), outline_of(polygons)
    (side, joined), (facet, edge, flank) = (jax.tree.map(lambda x: jnp.asarray(x, jnp.int32), each) for each in tables)
    normal = polygon_normals(vert, side)
    return Hull(vert, joined, jnp.zeros_like(vert[0, 0]), side, normal, joined, facet, normal, edge, flank)


def _without_sides(vert: Array) -> Hull:
    """The hull of a point or of an upright segment, an edge with four times a quarter of a turn around it."""
    none, quarters = jnp.zeros((0, 3), vert.dtype), np.arange(4 * (len(vert) - 1))
    joined = jnp.asarray([[1], [0]] if len(vert) > 1 else [[-1]], jnp.int32)
    edge, flank = (np.broadcast_to([0, 1], (len(quarters), 2)), np.stack([quarters, (quarters + 1) % 4], axis=1))
    facet, outward = jnp.full((len(quarters), 3), -1, jnp.int32), jnp.asarray(AROUND[quarters], vert.dtype)
    tables = facet, outward, jnp.asarray(edge, jnp.int32), jnp.asarray(flank, jnp.int32)
    return Hull(vert, joined, vert[0, 0], jnp.zeros((0, 1), jnp.int32), none, joined, *tables)


def support(pair: HullPair, direction: Array) -> Corner:
    """The corner of M furthest along a direction (3,)."""
    first = furthest(pair.first, -direction)
    second = furthest(pair.second, mul_vec_t(pair.turn, direction))
    return corner(pair, first, second)


def corner(pair: HullPair, first: Array, second: Array) -> Corner:
    """Corners of M by the places of their points."""
    return Corner(points_of_second(pair, second) - pair.first[first], first, second)


def with_corner(corners: Corner, here: Array, new: Corner) -> Corner:
    """Corners (n, ...) of M with a new one where it is `here` (n,)."""
    columns = zip(corners, new, strict=True)
    return Corner(*(jnp.where(here.reshape(-1, *[1] * (old.ndim - 1)), one[None], old) for old, one in columns))


def points_of_second(pair: HullPair, index: Array) -> Array:
    """Vertices of the second body at `index` (...), in the frame of the first."""
    turn = jnp.broadcast_to(pair.turn, (*index.shape, 3, 3))
    return mul_vec(turn, pair.second[index]) + jnp.broadcast_to(pair.offset, (*index.shape, 3))


def furthest(vert: Array, direction: Array) -> Array:
    """Place of the vertex (of (v, 3)) furthest along a direction (3,)."""
    along = total([x * d for x, d in zip(unpack(vert), unpack(direction), strict=True)])
    return jnp.argmax(along).astype(jnp.int32)


def size_of(pair: HullPair) -> Array:
    """A length that all corners of M are within, m."""
    reach = [jnp.max(jnp.abs(vert)) for vert in (pair.first, pair.second)]
    return 2 * (reach[0] + reach[1]) + jnp.sqrt(dot(pair.offset, pair.offset))


def resolution(x: Array) -> float:
    """What rounding leaves of a length of 1 in the searches, in the dtype of x."""
    return 1e-12 if x.dtype == jnp.float64 else 2e-6
