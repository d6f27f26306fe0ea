"""Edges of M that are no bends: what is closest on them is closest on the side that they run across.

A search from corner to corner ends on the line between two corners of a flat side where the closest point lies on that
line. Distance and point are right then, but as the feature moves on the side the normal stays, where about an edge it
would turn. So if the normal is that of a facet, the facet is the feature.
"""

import jax
import jax.numpy as jnp

from diffsim.geometry.assets import Hull
from diffsim.geometry.hull.hull_facets import FLAT
from diffsim.geometry.hull.polytope import Feature, HullPair, points_of_second, resolution, size_of
from diffsim.math import safe
from diffsim.math.vector import cross, dot, mul_vec_t

Array = jax.Array


def widened(pair: HullPair, feature: Feature, hull1: Hull, hull2: Hull) -> Feature:
    """The feature, or if it is an edge in a side of M that side. Not differentiated."""
    ends1, ends2 = pair.first[feature.first], points_of_second(pair, feature.second)
    gap = jnp.abs(dot(feature.normal, ends2[0] - ends1[0]))
    # how far normals that search and vertices know to rounding are from each other
    close = 4 * FLAT + safe.divide(resolution(gap) * size_of(pair), gap)
    facet1, off1 = _facet(hull1, feature.normal)
    facet2, off2 = _facet(hull2, -mul_vec_t(pair.turn, feature.normal))
    area = safe.normalize(cross(ends1[1] - ends1[0], ends2[1] - ends2[0]))
    off = jnp.minimum(*(safe.norm(area - sign * feature.normal) for sign in (1, -1)))
    (a, b, _), (c, d, _) = feature.first, feature.second
    edge, at1, at2 = feature.corners == 2, a == b, c == d
    on1, on2, between = (
        edge & each for each in (~at1 & at2 & (off1 <= close), at1 & ~at2 & (off2 <= close), off <= close)
    )
    between = between & ~at1 & ~at2
    first = jnp.where(on1, facet1, jnp.where(between, jnp.stack([a, b, a]), feature.first))
    second = jnp.where(on2, facet2, jnp.where(between, jnp.stack([c, c, d]), feature.second))
    return Feature(first, second, jnp.where(on1 | on2 | between, 3, feature.corners), feature.normal)


def _facet(hull: Hull, normal: Array) -> tuple[Array, Array]:
    """(corners (3,) of the facet whose normal is nearest to one, how far it is from that); far if there is no facet."""
    if not len(hull.facet):
        return jnp.zeros(3, jnp.int32), jnp.full((), jnp.inf, normal.dtype)
    off = jnp.where(hull.facet[:, 0] >= 0, safe.norm(hull.outward - normal[None]), jnp.inf)
    best = jnp.argmin(off)
    return hull.facet[best].astype(jnp.int32), off[best]
