"""Where two convex bodies are closest, once the direction of greatest separation is known.

The support points of both bodies along that direction are closest points, except where segments or discs are normal to
it: there a line or an area is as near, and the middle of what both bodies share is taken.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from diffsim.geometry.smooth.minkowski import ConvexPair, Ellipsoid, Segment, Stratum, half_at, rounding
from diffsim.math import safe
from diffsim.math.vector import cross, dot, mul_vec, mul_vec_t, scale

Array = jax.Array


def midpoint(pair: ConvexPair, best: Stratum, normal: Array, dist: Array) -> Array:
    """Halfway between the closest points.

    Segments and discs that are normal to n touch with any of their points: they take up what is missing between
    the two support points, each as near to the middle of the common line or area as it can.
    """
    points = [pair.center1 + scale(normal, pair.radius1), pair.center2 - scale(normal, pair.radius2)]
    level_segments, level_discs = [], []
    for segment in pair.segments:
        component = dot(segment.half, normal)
        level = jnp.abs(component) < rounding(normal) * safe.norm(segment.half)
        level_segments.append(jax.lax.stop_gradient(level))
        sign = jnp.where(level, 0, jnp.where(component > 0, 1, -1))
        points[segment.owner] = points[segment.owner] + (1 - 2 * segment.owner) * scale(segment.half, sign)
    for ellipsoid in pair.ellipsoids:
        v = mul_vec_t(ellipsoid.mat, normal) * ellipsoid.size
        length = safe.norm(v)
        level = jax.lax.stop_gradient(length < rounding(v) * ellipsoid.size[0])
        level_discs.append(level)
        support = mul_vec(ellipsoid.mat, v * ellipsoid.size / jnp.where(level, 1, length))
        points[ellipsoid.owner] = points[ellipsoid.owner] + (1 - 2 * ellipsoid.owner) * jnp.where(level, 0, support)
    missing = points[1] - points[0] - scale(normal, dist)
    shared, missing = _fill_crossing(pair, best, level_segments, level_discs, normal, missing)
    reach = [_reach_of_segment(*parts) for parts in zip(pair.segments, level_segments, strict=True)]
    reach += [_reach_of_disc(*parts) for parts in zip(pair.ellipsoids, level_discs, strict=True)]
    for k, part in enumerate((*pair.segments, *pair.ellipsoids)):
        axis = safe.normalize(part.half if isinstance(part, Segment) else missing)
        wanted, own = dot(missing, axis), reach[k](axis)
        # the middle of what this part can take, given how far the later ones reach
        later = sum((other(axis) for other in reach[k + 1 :]), jnp.zeros_like(own))
        middle = 0.5 * (safe.maximum(-own, wanted - later) + safe.minimum(own, wanted + later))
        taken = scale(axis, jnp.where(own > 0, middle, 0))
        missing, shared[part.owner] = missing - taken, shared[part.owner] + taken
    return 0.5 * (points[0] + shared[0] + points[1] - shared[1])


def _reach_of_segment(segment: Segment, level: Array) -> Callable[[Array], Array]:
    """How far a segment extends along an axis, if it is normal to n."""
    return lambda axis: jnp.where(level, jnp.abs(dot(segment.half, axis)), 0)


def _reach_of_disc(ellipsoid: Ellipsoid, level: Array) -> Callable[[Array], Array]:
    """How far a disc extends along an axis in its plane, if it is normal to n."""
    return lambda axis: jnp.where(level, ellipsoid.size[0], 0)


def _fill_crossing(
    pair: ConvexPair,
    best: Stratum,
    level_segments: list[Array],
    level_discs: list[Array],
    normal: Array,
    missing: Array,
) -> tuple[list[Array], Array]:
    """Two crossing edges meet in a point: what each of them takes up, per owner, and what is then still missing.

    Nothing where another part is normal to n too, for then the bodies touch along a line or over an area.
    """
    first, second = half_at(pair, best.first), half_at(pair, best.second)
    number = sum((level.astype(jnp.int32) for level in (*level_segments, *level_discs)), jnp.zeros((), jnp.int32))
    cross_only = (best.second >= 0) & (number == 2)
    # coefficients in the basis (first, second), by vectors normal to the other one
    across1, across2 = cross(second, normal), cross(first, normal)
    part1 = safe.clip(safe.divide(dot(missing, across1), dot(first, across1)), -1, 1)
    part2 = safe.clip(safe.divide(dot(missing, across2), dot(second, across2)), -1, 1)
    shared = [jnp.zeros_like(missing), jnp.zeros_like(missing)]
    for i, segment in enumerate(pair.segments):
        part = jnp.where(best.first == i, part1, jnp.where(best.second == i, part2, 0))
        taken = jnp.where(cross_only, scale(segment.half, part), 0)
        missing, shared[segment.owner] = missing - taken, shared[segment.owner] + taken
    return shared, missing
