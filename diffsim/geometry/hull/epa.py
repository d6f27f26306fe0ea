"""EPA, the expanding polytope algorithm: how deep two hulls overlap.

A polytope inside the Minkowski difference M grows; it starts as a tetrahedron. The face whose plane has the least
signed distance from the origin is extended by the corner of M furthest beyond it; the new corner replaces all faces
that it sees. The distance of that face is a lower bound of the penetration depth, the distance of the new corner along
its normal an upper bound. Where the two are equal, the face belongs to M. Planes with the origin on their outer side
have negative distances, so that the first tetrahedron need not contain the origin.
Source: van den Bergen 2001.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.geometry.hull.features import Feature, HullPair, resolution, size_of
from diffsim.geometry.hull.gjk import Corner, support, with_corner
from diffsim.geometry.hull.graph import GraphHull
from diffsim.math import safe
from diffsim.math.rotation import frame_from_z
from diffsim.math.vector import cross, dot, scale
from diffsim.xla.barriers import decided
from diffsim.xla.batched_searches import in_groups
from diffsim.xla.loops import while_loop
from diffsim.xla.select import where_tree

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
