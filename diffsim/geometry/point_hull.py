"""What a point is closest to on a hull: all of its facets and edges at once, without a search.

The gap along any direction is a lower bound of the distance. Inside, the facet with the greatest gap is the one to
leave by. Outside the nearest part is a facet, whose gap is then the greatest, or the nearest of all edges or an end of
it, and the gap along the line from there is the distance. So whichever gap is greater tells what is nearest.
A few operations of the size of the hull, where `gjk.py` and `epa.py` take one of that size in each step.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from diffsim.geometry.assets import Hull
from diffsim.geometry.outlined import reach_of
from diffsim.geometry.polytope import Feature, resolution
from diffsim.math import safe
from diffsim.math.first import first, greatest, rounding
from diffsim.math.vector import dot, scale

Array = jax.Array


class Facets(NamedTuple):
    """Of the facets of a hull their unit normals (f, 3), and the gaps (f,), m, between their planes and a point."""

    outward: Array
    gap: Array


def facets(hull: Hull, point: Array) -> Facets:
    """Of any hull: a facet without area may point anywhere; its plane is where the hull ends in that direction."""
    return Facets(hull.outward, dot(hull.outward, point[None]) - reach_of(hull))


def nearest_part(hull: Hull, facets: Facets, point: Array) -> Feature:
    """The facet, edge or corner of a hull closest to a point (3,) in its frame; inside, the facet to leave it by.

    As a feature of the difference of the hull and the point. Not differentiated.
    """
    hull, facets, point = jax.lax.stop_gradient((hull, facets, point))
    size, gap = jnp.max(jnp.abs(hull.vert)), jnp.max(facets.gap)
    side = greatest(facets.gap, size)
    ends, share, away = _nearest_edge(hull, point, size)
    normal = safe.normalize(away)
    beyond = dot(normal, point) - jnp.max(dot(hull.vert, normal[None]))
    on_side = (gap >= beyond) | (gap <= 0) | (dot(away, away) <= (resolution(size) * size) ** 2)
    # a feature of fewer corners repeats its first one
    begin = jnp.where(share >= 1, ends[1], ends[0])
    at_corner = (share <= 0) | (share >= 1)
    line = jnp.stack([begin, jnp.where(at_corner, begin, ends[1]), begin])
    count = jnp.where(on_side, 3, jnp.where(at_corner, 1, 2))
    places = jnp.where(on_side, hull.facet[side], line)
    return Feature(places, jnp.zeros_like(places), count, jnp.where(on_side, facets.outward[side], normal))


def _nearest_edge(hull: Hull, point: Array, size: Array) -> tuple[Array, Array, Array]:
    """(ends (2,) of the nearest edge, the share of the second in its nearest point, the way (3,) from there)."""
    begin, end = hull.vert[hull.edge[:, 0]], hull.vert[hull.edge[:, 1]]
    sweep, away = end - begin, point[None] - begin
    share = jnp.clip(safe.divide(dot(away, sweep), dot(sweep, sweep)), 0, 1)
    away = away - scale(sweep, share)
    squared = jnp.where(hull.edge[:, 0] >= 0, dot(away, away), jnp.inf)
    least = jnp.sqrt(jnp.min(squared))
    nearest = first(squared <= (least + rounding(size) * (size + least)) ** 2)
    return hull.edge[nearest], share[nearest], away[nearest]
