"""Bundles: sets of rays that are close together, such as the pixels of a small square of a picture.

At the distance t from their origins, all rays of a bundle are in a sphere of radius `radius` + `spread` t, whose center
is at t on the bundle's axis. An object that this moving sphere misses is hit by no ray of the bundle.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from diffsim.math import safe
from diffsim.math.vector import dot

# bounds are enlarged by this factor to allow for rounding
ROOM = 1.001


class BundledRays(NamedTuple):
    """b bundles of l rays: `origin`, m, unit `direction` (b, l, 3), and which rays are `wanted` (b, l)."""

    origin: Array
    direction: Array
    wanted: Array


class BundledHits(NamedTuple):
    """First hits of rays (b, l): distance, m, infinite for a miss; the thing that is hit, -1 for a miss; its facet."""

    distance: Array
    thing: Array
    facet: Array


class Bundles(NamedTuple):
    """Balls around origins: `middle` (b, 3), `radius` (b,), negative without rays; cones: `axis` (b, 3), `spread`."""

    middle: Array
    radius: Array
    axis: Array
    spread: Array


def bundles_of(rays: BundledRays) -> Bundles:
    """For each bundle, a ball around the origins and a cone around the directions of its wanted rays."""
    wanted = rays.wanted[..., None]
    count = jnp.maximum(jnp.sum(wanted, axis=1), 1)
    middle = jnp.sum(jnp.where(wanted, rays.origin, 0), axis=1) / count
    axis = safe.normalize(jnp.sum(jnp.where(wanted, rays.direction, 0), axis=1))
    away, aside = safe.norm(rays.origin - middle[:, None]), safe.norm(rays.direction - axis[:, None])
    radius, spread = (ROOM * jnp.max(jnp.where(rays.wanted, offset, 0), axis=1) for offset in (away, aside))
    return Bundles(middle, jnp.where(jnp.any(rays.wanted, axis=1), radius, -jnp.inf), axis, spread)


def may_meet_ball(bundles: Bundles, middle: Array, radius: Array) -> Array:
    """(b, n) whether rays of bundles (b,) may hit balls (n,); every ray may hit a ball of infinite radius."""
    offset = middle[None] - bundles.middle[:, None]
    axis = jnp.broadcast_to(bundles.axis[:, None], offset.shape)
    ahead = dot(offset, axis)
    away = safe.norm(offset)
    reach = ROOM * radius[None] + bundles.radius[:, None]
    wide = reach + bundles.spread[:, None] * (away + reach)
    aside = jnp.sqrt(jnp.maximum(away * away - ahead * ahead, 0))
    some = (bundles.radius >= 0)[:, None]
    return some & ((radius == jnp.inf)[None] | ((aside <= wide) & (ahead >= -wide)))


def nearest(hits: BundledHits, bundle: Array, new: BundledHits) -> BundledHits:
    """Hits (b, l), replaced by `new` hits (p, l) of p bundles that are nearer; a bundle may be listed several times."""
    least = hits.distance.at[bundle].min(new.distance)
    better = (new.distance < hits.distance[bundle]) & (new.distance <= least[bundle])
    lanes = jnp.arange(least.shape[1], dtype=jnp.int32)[None]
    place = jnp.where(better, bundle[:, None] * least.shape[1] + lanes, least.size).reshape(-1)
    put = (
        into.reshape(-1).at[place].set(hit.reshape(-1), mode="drop").reshape(least.shape)
        for into, hit in zip(hits[1:], new[1:], strict=True)
    )
    return BundledHits(least, *put)
