"""What a point is closest to on a hull: all of its facets and edges at once, without a search.

The gap along any direction is a lower bound of the distance. Inside, the facet with the greatest gap is the one to
leave by. Outside the nearest part is a facet, whose gap is then the greatest, or the nearest of all edges or an end of
it, and the gap along the line from there is the distance. So whichever gap is greater tells what is nearest.
A few operations of the size of the hull, where `gjk.py` and `epa.py` take one of that size in each step.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from diffsim.geometry.hull.polytope import Feature, resolution
from diffsim.geometry.hull.sat import reach_of
from diffsim.geometry.hull.tables import Hull
from diffsim.math import safe
from diffsim.math.vector import dot, dot_components, pack, unpack
from diffsim.xla.barriers import stored
from diffsim.xla.select import first, greatest, rounding, where

Array = jax.Array


class Facets(NamedTuple):
    """Of the facets of a hull their unit normals (f, 3), and the gaps (f,), m, between their planes and a point."""

    outward: Array
    gap: Array


class _Edges(NamedTuple):
    """Of the edges of a hull: where they begin and the way to their ends, as components (e,), m; the inverse of its
    square (e,), 0 for none; and whether there is an edge (e,).
    """

    begin: list[Array]
    sweep: list[Array]
    inverse: Array
    exists: Array


def facets(hull: Hull, point: Array) -> Facets:
    """Of any hull: a facet without area may point anywhere; its plane is where the hull ends in that direction."""
    return Facets(hull.outward, stored(_heights(hull.outward, point) - stored(reach_of(hull))))


def nearest_part(hull: Hull, facets: Facets, point: Array) -> Feature:
    """The facet, edge or corner of a hull closest to a point (3,) in its frame; inside, the facet to leave it by.

    As a feature of the difference of the hull and the point. Not differentiated.
    """
    hull, facets, point = jax.lax.stop_gradient((hull, facets, point))
    size, gap = jnp.max(jnp.abs(hull.vert)), jnp.max(facets.gap)
    side = greatest(facets.gap, size)
    ends, share, away = _nearest_edge(hull, point, size)
    normal = stored(safe.normalize(away))
    beyond = dot(normal, point) - jnp.max(stored(_heights(hull.vert, normal)))
    on_side = (gap >= beyond) | (gap <= 0) | (dot(away, away) <= (resolution(size) * size) ** 2)
    # a feature of fewer corners repeats its first one
    begin = jnp.where(share >= 1, ends[1], ends[0])
    at_corner = (share <= 0) | (share >= 1)
    line = jnp.stack([begin, jnp.where(at_corner, begin, ends[1]), begin])
    count = jnp.where(on_side, 3, jnp.where(at_corner, 1, 2))
    places = jnp.where(on_side, hull.facet[side], line)
    return Feature(places, jnp.zeros_like(places), count, jnp.where(on_side, facets.outward[side], normal))


def _heights(points: Array, direction: Array) -> Array:
    """How far points (n, 3) are along a direction (3,): (n,). Components of points, which worlds share, are stored."""
    return dot_components(stored(unpack(points)), unpack(direction))


def _nearest_edge(hull: Hull, point: Array, size: Array) -> tuple[Array, Array, Array]:
    """(ends (2,) of the nearest edge, the share of the second in its nearest point, the way (3,) from there)."""
    edges, center = stored(_edges(hull)), unpack(point)
    share, away = _nearest_point(edges.begin, edges.sweep, edges.inverse, center)
    squared = stored(where(edges.exists, dot_components(away, away), jnp.inf))
    least = jnp.sqrt(jnp.min(squared))
    ends = hull.edge[first(squared <= (least + rounding(size) * (size + least)) ** 2)]
    begin, sweep, inverse, _ = _between(hull.vert[ends[0]], hull.vert[ends[1]], ends[0] >= 0)
    share, away = _nearest_point(begin, sweep, inverse, center)
    return ends, share, pack(away)


def _edges(hull: Hull) -> _Edges:
    begin, end = unpack(hull.edge)
    return _between(hull.vert[begin], hull.vert[end], begin >= 0)


def _between(begin: Array, end: Array, exists: Array) -> _Edges:
    """Edges with ends (..., 3)."""
    sweep = unpack(end - begin)
    squared = dot_components(sweep, sweep)
    return _Edges(unpack(begin), sweep, safe.divide(jnp.ones_like(squared), squared), exists)


def _nearest_point(
    begin: list[Array], sweep: list[Array], inverse: Array, point: list[Array]
) -> tuple[Array, list[Array]]:
    """(share of the ends in the points of edges that are nearest to a point, the ways from there)."""
    away = [p - b for p, b in zip(point, begin, strict=True)]
    share = jnp.clip(dot_components(away, sweep) * inverse, 0, 1)
    return share, [a - share * s for a, s in zip(away, sweep, strict=True)]
