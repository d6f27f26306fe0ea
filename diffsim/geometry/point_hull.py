"""What a point is closest to on a hull of few sides: all of its sides and edges at once, without a search.

No side's plane is further from a point outside than the hull is. So if the nearest part is a side, it is the one whose
plane is furthest; that it is shows in the foot of the point on it, which no other plane has outside. Otherwise it is an
edge or a corner, the nearest of all. Inside, the side whose plane is nearest says how deep the point is.
"""

import jax
import jax.numpy as jnp

from diffsim.geometry.assets import Hull
from diffsim.geometry.polytope import Feature, resolution
from diffsim.math import safe
from diffsim.math.vector import cross, dot, scale

Array = jax.Array


def nearest_part(hull: Hull, point: Array) -> Feature:
    """The side, edge or corner of a hull that is closest to a point (3,) in its frame; the side to leave it by, inside.

    As a feature of the difference of the hull and the point. All sides and edges exist, and no side begins with three
    corners on a line. Not differentiated.
    """
    hull, point = jax.lax.stop_gradient((hull, point))
    corner, *others = (hull.vert[hull.side[:, k]] for k in range(3))
    normals = safe.normalize(cross(*(other - corner for other in others)))
    gaps = dot(normals, point[None] - corner)
    side = jnp.argmax(gaps)
    normal = normals[side]
    foot = gaps - gaps[side] * dot(normals, normal[None])
    facing = jnp.all((foot <= 0) | (jnp.arange(len(gaps)) == side))
    ends, share, away = _nearest_edge(hull, point)
    size = jnp.max(jnp.abs(hull.vert))
    on_side = facing | (gaps[side] <= 0) | (dot(away, away) <= (resolution(size) * size) ** 2)
    # a feature of fewer corners repeats its first one
    begin = jnp.where(share >= 1, ends[1], ends[0])
    at_corner = (share <= 0) | (share >= 1)
    line = jnp.stack([begin, jnp.where(at_corner, begin, ends[1]), begin])
    count = jnp.where(on_side, 3, jnp.where(at_corner, 1, 2))
    first = jnp.where(on_side, hull.side[side, :3], line)
    return Feature(first, jnp.zeros_like(first), count, jnp.where(on_side, normal, safe.normalize(away)))


def _nearest_edge(hull: Hull, point: Array) -> tuple[Array, Array, Array]:
    """(ends (2,) of the nearest edge, the share of the second in its nearest point, the way (3,) from there)."""
    begin, end = hull.vert[hull.edge[:, 0]], hull.vert[hull.edge[:, 1]]
    sweep, away = end - begin, point[None] - begin
    share = jnp.clip(safe.divide(dot(away, sweep), dot(sweep, sweep)), 0, 1)
    away = away - scale(sweep, share)
    nearest = jnp.argmin(dot(away, away))
    return hull.edge[nearest], share[nearest], away[nearest]
