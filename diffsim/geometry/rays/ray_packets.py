"""Bundles of rays that lie close together, as the pixels of a small square of a picture do. Not differentiated.

At a distance t from their origins all rays of a bundle lie in a sphere about the point at t on the bundle's axis, of
radius + spread t. What this sphere misses on its way, no ray of the bundle meets.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from diffsim.math import safe
from diffsim.math.vector import dot

Array = jax.Array

# bounds are compared with some room for rounding
ROOM = 1.001


class BundledRays(NamedTuple):
    """Rays in b bundles of l: `origin`, unit `direction` (b, l, 3), m, and which are `wanted` (b, l)."""

    origin: Array
    direction: Array
    wanted: Array


class BundledHits(NamedTuple):
    """What rays meet first: `distance` (b, l), m, infinite for nothing, which `thing` (b, l), -1 for nothing, and its
    `facet` (b, l)."""

    distance: Array
    thing: Array
    facet: Array


class Bundles(NamedTuple):
    """`middle` (b, 3) and `radius` (b,) of the origins, below 0 for no rays; unit `axis` (b, 3); `spread` (b,)."""

    middle: Array
    radius: Array
    axis: Array
    spread: Array


def bundles_of(rays: BundledRays) -> Bundles:
    """What encloses the rays that are wanted."""
    own = rays.wanted[..., None]
    count = jnp.maximum(jnp.sum(own, axis=1), 1)
    middle = jnp.sum(jnp.where(own, rays.origin, 0), axis=1) / count
    axis = safe.normalize(jnp.sum(jnp.where(own, rays.direction, 0), axis=1))
    away, aside = safe.norm(rays.origin - middle[:, None]), safe.norm(rays.direction - axis[:, None])
    radius, spread = (ROOM * jnp.max(jnp.where(rays.wanted, each, 0), axis=1) for each in (away, aside))
    return Bundles(middle, jnp.where(jnp.any(rays.wanted, axis=1), radius, -jnp.inf), axis, spread)


def may_meet_ball(bundles: Bundles, middle: Array, radius: Array) -> Array:
    """Whether rays of bundles (b,) may meet balls (n,), (b, n); a radius of infinity is met by all."""
    offset = middle[None] - bundles.middle[:, None]
    axis = jnp.broadcast_to(bundles.axis[:, None], offset.shape)
    ahead, away = dot(offset, axis), safe.norm(offset)
    reach = ROOM * radius[None] + bundles.radius[:, None]
    wide = reach + bundles.spread[:, None] * (away + reach)
    aside = jnp.sqrt(jnp.maximum(away * away - ahead * ahead, 0))
    some = (bundles.radius >= 0)[:, None]
    return some & ((radius == jnp.inf)[None] | ((aside <= wide) & (ahead >= -wide)))


def no_hits(rays: BundledRays) -> BundledHits:
    """Rays that meet nothing."""
    shape = rays.wanted.shape
    nothing = jnp.full(shape, -1, jnp.int32)
    return BundledHits(jnp.full(shape, jnp.inf, rays.origin.dtype), nothing, jnp.zeros_like(nothing))


def nearest(hits: BundledHits, bundle: Array, new: BundledHits) -> BundledHits:
    """Hits (b, l) with those (p, l) of p bundles, where these are nearer; a bundle may stand there several times."""
    least = hits.distance.at[bundle].min(new.distance)
    better = (new.distance < hits.distance[bundle]) & (new.distance <= least[bundle])
    lanes = jnp.arange(least.shape[1], dtype=jnp.int32)[None]
    place = jnp.where(better, bundle[:, None] * least.shape[1] + lanes, least.size).reshape(-1)
    put = (
        into.reshape(-1).at[place].set(found.reshape(-1), mode="drop").reshape(least.shape)
        for into, found in zip(hits[1:], new[1:], strict=True)
    )
    return BundledHits(least, *put)
