"""Features of the Minkowski difference M = {b - a} of two hulls, on which all searches work.

M contains the origin where the hulls overlap, and their signed distance is the signed distance from the origin to M.
Searches work in the frame of the first body. A corner of M is stored as two indices, one into each hull's list of
vertices.

A feature of M is a corner (vertex against vertex), an edge (vertex against edge) or a face (vertex against face, or
edge against edge). Its plane (line, point) gives the signed distance and normal as smooth functions of poses and
vertices. A search goes from corner to corner. If the closest point is on a flat side of M, the search may end at a
segment between two corners of that side. Then distance and point are right, but derivatives would be wrong: the normal
of a side stays when the closest point moves on it, and the normal of an edge turns. So if the normal equals a facet's
normal, the facet becomes the feature (`widened`).
Source: Ericson 2005, ch. 9.3; van den Bergen 2003, ch. 4.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.geometry.hull.polytope import Hull
from diffsim.geometry.hull.tables import (
    FLAT,
)
from diffsim.geometry.shapes import Shape, relative_pose
from diffsim.math import safe
from diffsim.math.vector import cross, dot, mul_vec, mul_vec_t, scale, total
from diffsim.xla.barriers import decided
from diffsim.xla.gather import rows_at
from diffsim.xla.select import one_of


class HullPair(NamedTuple):
    """Two hulls in the frame of the first body, m.

    `first` (v, 3): vertices of the first body; `second` (w, 3): of the second, in its own frame; either may be a hull
    with a graph instead (`GraphHull`). `turn` (3, 3), `offset` (3,): the pose of the second body.
    """

    first: Any
    second: Any
    turn: Array
    offset: Array

    def of_first(self, places: Array) -> Array:
        """Vertices (..., 3) of the first body at places (...)."""
        return rows_at(self.first, places) if isinstance(self.first, Array) else self.first.vertices(places)

    def of_second(self, places: Array | np.ndarray) -> Array:
        """Vertices (..., 3) of the second body at places (...), in the frame of the first."""
        local = rows_at(self.second, places) if isinstance(self.second, Array) else self.second.vertices(places)
        turn = jnp.broadcast_to(self.turn, (*places.shape, 3, 3))
        return mul_vec(turn, local) + jnp.broadcast_to(self.offset, (*places.shape, 3))


class Feature(NamedTuple):
    """The feature of the surface of M that is closest to the origin: a vertex, an edge or a face.

    `corners` (): how many corners of M span it, one to three. Their vertices come first in `first` (3,) and `second`
    (3,), the lists for the two bodies. `normal` (3,): unit, from the first body to the second, in the frame of the
    first.
    """

    first: Array
    second: Array
    corners: Array
    normal: Array


def difference(hull1: Hull, hull2: Hull, shape1: Shape, shape2: Shape) -> HullPair:
    """Two hulls, each in the frame of its shape, as a pair."""
    return HullPair(hull1.vert, hull2.vert, *relative_pose(shape1, shape2))


def size_of(pair: HullPair) -> Array:
    """An upper bound of the distance of M's corners from the origin, m."""
    reach = [jnp.max(jnp.abs(x if isinstance(x, Array) else x.box)) for x in (pair.first, pair.second)]
    return 2 * (reach[0] + reach[1]) + jnp.sqrt(dot(pair.offset, pair.offset))


def resolution(x: Array) -> float:
    """Rounding error of a length of 1 in the searches, in the dtype of x."""
    return 1e-12 if x.dtype == jnp.float64 else 2e-6


def separation(pair: HullPair, feature: Feature) -> tuple[Array, Array, Array, Array]:
    """(signed distance, unit normal (3,), point of the first body (3,), of the second (3,)), in the first's frame."""
    first, second = pair.of_first(feature.first), pair.of_second(feature.second)
    points = second - first
    parts = [_of_corner(points), _of_edge(points), _of_face(points, feature.normal)]
    normal, shares = one_of(feature.corners - 1, parts)
    witness1, witness2 = (total([scale(x[k], shares[k]) for k in range(3)]) for x in (first, second))
    return dot(normal, points[0]), normal, witness1, witness2


def shares_of(points: Array, corners: Array) -> Array:
    """The shares (barycentric weights, (3,)) of a feature's corners (3, 3) in its point closest to the origin."""
    parts = [_of_corner(points)[1], _of_edge(points)[1], _of_face(points, points[0])[1]]
    return jnp.where(corners == 1, parts[0], jnp.where(corners == 2, parts[1], parts[2]))


def _of_corner(points: Array) -> tuple[Array, Array]:
    """(normal, shares (3,) of the corners in the closest point) of a corner of M."""
    return safe.normalize(points[0]), jnp.asarray([1, 0, 0], points.dtype)


def _of_edge(points: Array) -> tuple[Array, Array]:
    """The same for an edge."""
    side = points[1] - points[0]
    along = -safe.divide(dot(points[0], side), dot(side, side))
    return safe.normalize(points[0] + scale(side, along)), jnp.stack([1 - along, along, jnp.zeros_like(along)])


def _of_face(points: Array, toward: Array) -> tuple[Array, Array]:
    """The same for a face; its normal is flipped to the side of `toward` (3,)."""
    side1 = points[1] - points[0]
    side2 = points[2] - points[0]
    area = cross(side1, side2)
    sign = jnp.where(decided(jax.lax.stop_gradient(dot(area, toward)) < 0), -1, 1).astype(area.dtype)
    squared = dot(area, area)
    share1 = safe.divide(dot(cross(-points[0], side2), area), squared)
    share2 = safe.divide(dot(cross(side1, -points[0]), area), squared)
    return scale(safe.normalize(area), sign), jnp.stack([1 - share1 - share2, share1, share2])


def widened(pair: HullPair, feature: Feature, hull1: Any, hull2: Any) -> Feature:
    """The feature; if it is an edge that lies in a side of M, that side instead. Not differentiated."""
    ends1, ends2 = pair.of_first(feature.first), pair.of_second(feature.second)
    gap = jnp.abs(dot(feature.normal, ends2[0] - ends1[0]))
    # normals count as equal up to this difference: the rounding errors of the facets' normals and of the search
    close = 4 * FLAT + safe.divide(resolution(gap) * size_of(pair), gap)
    facet1, off1 = _facet(hull1.facets_at(feature.first[0]), feature.normal)
    facet2, off2 = _facet(hull2.facets_at(feature.second[0]), -mul_vec_t(pair.turn, feature.normal))
    area = safe.normalize(cross(ends1[1] - ends1[0], ends2[1] - ends2[0]))
    off = jnp.minimum(*(safe.norm(area - sign * feature.normal) for sign in (1, -1)))
    a, b, _ = feature.first
    c, d, _ = feature.second
    edge = feature.corners == 2
    at1 = a == b
    at2 = c == d
    on1, on2, between = (
        edge & case for case in (~at1 & at2 & (off1 <= close), at1 & ~at2 & (off2 <= close), off <= close)
    )
    between = between & ~at1 & ~at2
    first = jnp.where(on1, facet1, jnp.where(between, jnp.stack([a, b, a]), feature.first))
    second = jnp.where(on2, facet2, jnp.where(between, jnp.stack([c, c, d]), feature.second))
    return Feature(first, second, jnp.where(on1 | on2 | between, 3, feature.corners), feature.normal)


def _facet(facets: tuple[Array, Array], normal: Array) -> tuple[Array, Array]:
    """(corners (3,) of the facet with the normal nearest to `normal`, length of the difference; inf without facets)."""
    facet, outward = facets
    if not len(facet):
        return jnp.zeros(3, jnp.int32), jnp.full((), jnp.inf, normal.dtype)
    off = jnp.where(facet[:, 0] >= 0, safe.norm(outward - normal[None]), jnp.inf)
    best = jnp.argmin(off)
    return facet[best].astype(jnp.int32), off[best]
