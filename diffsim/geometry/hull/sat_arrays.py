"""A hull as the search of all its sides reads it: corners, facets and edges as components, in one frame and unit.

All arrays have the components first, so that formulas run over corners, facets or edges. What comes of a division is
computed once, where XLA for CPU would repeat sums and products for each of their uses: that is what lengths in units of
the pair's size are good for beside small numbers.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from diffsim.geometry.assets import Hull
from diffsim.math import safe
from diffsim.math.vector import cross, dot, mul_vec_t, total, unpack

Array = jax.Array


class Edges(NamedTuple):
    """Where edges begin, their direction, and the normals of the facets on both sides of it (3, e)."""

    begin: Array
    along: Array
    left: Array
    right: Array


class Outlined(NamedTuple):
    """The outline of a body.

    `corner` (3, v); `outward` (3, f) normals of facets; `reach` (f,): how far the body reaches along these, infinite
    where there is no facet; `edges` (e) and their `length` (e,), negative where there is none. `facet` (f, 3) and
    `edge` (e, 2): their corners, places among those of the hull.
    """

    corner: Array
    outward: Array
    reach: Array
    edges: Edges
    length: Array
    facet: Array
    edge: Array


def outlined(hull: Hull, turn: Array, offset: Array, size: Array) -> Outlined:
    """A hull whose frame is turned (3, 3) and moved (3,), m; lengths in units of `size` (), m."""
    ends = hull.vert[jnp.maximum(hull.edge, 0)]
    sweep = ends[:, 1] - ends[:, 0]
    length = jnp.where(hull.edge[:, 0] >= 0, safe.norm(sweep), -1)
    along = sweep / jnp.maximum(length, jnp.finfo(length.dtype).tiny)[:, None]
    sides = hull.outward[jnp.maximum(hull.flank, 0)] * (hull.flank >= 0)[..., None]
    # an edge so short that it runs anywhere is no edge between its facets
    bend = cross(sides[:, 0], sides[:, 1])
    sides = sides * (dot(along, bend) > 0.9 * safe.norm(bend))[:, None, None]
    places, directions = [hull.vert, ends[:, 0]], [hull.outward, along, sides[:, 0], sides[:, 1]]
    corner, begin, outward, *of_edges = _moved(places, directions, turn, offset, size)
    reach = (reach_of(hull) + dot(hull.outward, mul_vec_t(turn, offset)[None])) / size
    return Outlined(corner, outward, reach, Edges(begin, *of_edges), length / size, hull.facet, hull.edge)


def _moved(places: list[Array], directions: list[Array], turn: Array, offset: Array, size: Array) -> list[Array]:
    """All of (n, 3) as (3, n), turned, places moved too and in the unit."""
    parts = [*places, *directions]
    cuts = [sum(len(part) for part in parts[:k]) for k in range(1, len(parts))]
    x, columns = unpack(jnp.concatenate(parts)), unpack(turn)
    is_place = jnp.arange(len(x[0])) < sum(map(len, places))
    unit = jnp.where(is_place, size, 1)
    turned = total([columns[m][:, None] * x[m][None] for m in range(3)])
    return jnp.split((turned + jnp.where(is_place[None], offset[:, None], 0)) / unit[None], cuts, axis=1)


def reach_of(hull: Hull) -> Array:
    """How far a hull reaches along the normals of its facets (f,), m."""
    heights = dot(hull.outward[:, None], hull.vert[None])
    exists = (hull.facet[:, 0] >= 0) & (dot(hull.outward, hull.outward) > 0.5)
    return jnp.where(exists, jnp.max(heights, axis=1), jnp.inf)
