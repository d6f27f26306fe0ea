"""The part of a hull that is nearest to a point, such as the center of a ball: a facet or an edge.

If the point is inside, the signed distance is the greatest height over a facet. If it is outside, the nearest point may
be on an edge.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from diffsim.geometry.hull.features import Feature, resolution
from diffsim.geometry.hull.polytope import Hull
from diffsim.math import safe
from diffsim.math.vector import (
    dot,
    dot_components,
    pack,
    unpack,
)
from diffsim.xla.barriers import stored
from diffsim.xla.gather import rows_at
from diffsim.xla.select import first, greatest, rounding


class Edges(NamedTuple):
    """The beginning of each edge, its direction, and the normals of the facets on its left and right, each (3, e)."""

    begin: Array
    along: Array
    left: Array
    right: Array


def reach_of(hull: Hull) -> Array:
    """The greatest heights (f,) of a hull along the normals of its facets, m."""
    heights = dot(hull.outward[:, None], hull.vert[None])
    exists = (hull.facet[:, 0] >= 0) & (dot(hull.outward, hull.outward) > 0.5)
    return jnp.where(exists, jnp.max(heights, axis=1), jnp.inf)


class Facets(NamedTuple):
    """Facets of a hull: unit normals (f, 3), and the heights (f,), m, of a point over their planes."""

    outward: Array
    gap: Array


class _Segments(NamedTuple):
    """The edges (e,) of a hull, by components.

    Attributes:
      begin, sweep: m, one end, and the vector to the other end.
      inverse: 1/m^2, the inverse of the squared length; 0 for length 0.
      exists: whether there is an edge.
    """

    begin: list[Array]
    sweep: list[Array]
    inverse: Array
    exists: Array


def facets(hull: Hull, point: Array) -> Facets:
    """The facets of any hull and a point (3,) in its frame.

    The normal of a facet without area may be any direction; its plane then is the hull's supporting plane.
    """
    # stored: worlds share the reach of a hull, and both the greatest gap and its place read the gaps
    return Facets(hull.outward, stored(_heights(hull.outward, point) - stored(reach_of(hull))))


def nearest_part(hull: Hull, facets: Facets, point: Array) -> Feature:
    """The facet, edge or corner of a hull that is closest to a point (3,) in its frame; inside, the nearest facet.

    It is a feature of the difference of the hull and the point, and has no derivatives.
    """
    hull, facets, point = jax.lax.stop_gradient((hull, facets, point))
    size = jnp.max(jnp.abs(hull.vert))
    gap = jnp.max(facets.gap)
    side = greatest(facets.gap, size)
    ends, share, away = _nearest_edge(hull, point, size)
    # the gap along the vector from the nearest edge; if a facet has a greater gap, the nearest point is inside it
    normal = safe.normalize(away)
    beyond = dot(normal, point) - jnp.max(_heights(hull.vert, normal))
    on_side = (gap >= beyond) | (gap <= 0) | (dot(away, away) <= (resolution(size) * size) ** 2)
    # a feature of fewer corners repeats its first one
    begin = jnp.where(share >= 1, ends[1], ends[0])
    at_corner = (share <= 0) | (share >= 1)
    line = jnp.stack([begin, jnp.where(at_corner, begin, ends[1]), begin])
    count = jnp.where(on_side, 3, jnp.where(at_corner, 1, 2))
    places = jnp.where(on_side, rows_at(hull.facet, side), line)
    return Feature(places, jnp.zeros_like(places), count, jnp.where(on_side, rows_at(facets.outward, side), normal))


def _heights(points: Array, direction: Array) -> Array:
    """Heights (n,) of points (n, 3) along a direction (3,)."""
    return dot_components(unpack(points), unpack(direction))


def _nearest_edge(hull: Hull, point: Array, size: Array) -> tuple[Array, Array, Array]:
    """(ends (2,) of the nearest edge, how far along it the nearest point is, vector (3,) from there to `point`)."""
    first_end, second_end = unpack(hull.edge)
    # stored: worlds share the edges of a hull (without this, a sphere and a mesh of 512 worlds take 1.3 times as long)
    edges = stored(_between(hull.vert[first_end], hull.vert[second_end], first_end >= 0))
    center = unpack(point)
    share, away = _nearest_point(edges.begin, edges.sweep, edges.inverse, center)
    squared = jnp.where(edges.exists, dot_components(away, away), jnp.inf)
    least = jnp.sqrt(jnp.min(squared))
    ends = rows_at(hull.edge, first(squared <= (least + rounding(size) * (size + least)) ** 2))
    begin, sweep, inverse, _ = _between(rows_at(hull.vert, ends[0]), rows_at(hull.vert, ends[1]), ends[0] >= 0)
    share, away = _nearest_point(begin, sweep, inverse, center)
    return ends, share, pack(away)


def _between(begin: Array, end: Array, exists: Array) -> _Segments:
    """Edges with ends (..., 3)."""
    sweep = unpack(end - begin)
    squared = dot_components(sweep, sweep)
    return _Segments(unpack(begin), sweep, safe.divide(jnp.ones_like(squared), squared), exists)


def _nearest_point(
    begin: list[Array], sweep: list[Array], inverse: Array, point: list[Array]
) -> tuple[Array, list[Array]]:
    """For each edge, its point that is nearest to `point`.

    Returns:
      How far along the edge the nearest point is, from 0 to 1, and the vector from there to `point`.
    """
    away = [p - b for p, b in zip(point, begin, strict=True)]
    share = jnp.clip(dot_components(away, sweep) * inverse, 0, 1)
    return share, [a - share * s for a, s in zip(away, sweep, strict=True)]
