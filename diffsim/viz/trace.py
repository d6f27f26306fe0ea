"""What each of many rays meets first, for rays that lie in bundles: the pixels of a small square of a picture.

Objects whose bounding balls a bundle misses are not looked at. The bundles and objects that remain are pairs, of which
a block at a time is worked on, type after type, so that the work follows what is there and not rays times objects.
"""

import jax
import jax.numpy as jnp

from diffsim.geometry.rays.ray import (
    ROOM,
    BundledHits,
    BundledRays,
    bundles_of,
    may_meet_ball,
    nearest,
    no_hits,
)
from diffsim.geometry.rays.surfaces import SURFACES
from diffsim.geometry.rays.triangle_surfaces import FACETED, Lines
from diffsim.math.vector import dot, mul_vec_t, scale
from diffsim.viz.scene import Group, Scene
from diffsim.xla.batched_loops import fold_wanted

Array = jax.Array

# pairs of a bundle and an object that are worked on at once; searches of meshes work on many rays at a time
BLOCK, FACETED_BLOCK = 256, 1024


def trace(scene: Scene, groups: tuple[Group, ...], rays: BundledRays) -> BundledHits:
    """The first object that each ray meets."""
    hits, bundles = no_hits(rays), bundles_of(rays)
    for group in groups:
        own = slice(group.first, group.first + group.number)
        near = may_meet_ball(bundles, scene.places.xpos[own], scene.places.reach[own])
        hits = _trace_group(scene, group, rays, near, hits)
    return hits


def _trace_group(scene: Scene, group: Group, rays: BundledRays, near: Array, hits: BundledHits) -> BundledHits:
    """Hits with those of one group; near (b, n): which of its objects bundles may meet."""

    def work(pair: Array, hits: BundledHits) -> BundledHits:
        exists, pair = pair < near.size, jnp.minimum(pair, near.size - 1)
        bundle, number = pair // group.number, pair % group.number
        members = BundledRays(*(values[bundle] for values in rays))
        members = members._replace(wanted=members.wanted & exists[:, None])
        return nearest(hits, bundle, _on_objects(scene, group, number, members, hits.distance[bundle]))

    return fold_wanted(near.reshape(-1), FACETED_BLOCK if group.kind in FACETED else BLOCK, work, hits)


def _on_objects(scene: Scene, group: Group, number: Array, rays: BundledRays, limit: Array) -> BundledHits:
    """What the rays of p bundles meet of an object (p,) of a group each, nearer than `limit` (p, l)."""
    thing = group.first + number
    xpos, xmat, size, reach = (each[thing][:, None] for each in scene.places)
    offset = rays.origin - xpos
    ahead, reach = -dot(offset, rays.direction), ROOM * reach
    meets = (ahead >= -reach) & (ahead - reach <= limit) & (dot(offset, offset) - ahead * ahead <= reach * reach)
    wanted = rays.wanted & (meets | (reach == jnp.inf))
    origin, direction = mul_vec_t(xmat, offset), mul_vec_t(xmat, rays.direction)
    facet = jnp.zeros(wanted.shape, jnp.int32)
    if group.kind in FACETED:
        lines = Lines(*(jnp.swapaxes(each, 0, 1) for each in (origin, direction, wanted)))
        distance, facet = (each.T for each in FACETED[group.kind].search(scene.model, scene.asset[thing], lines))
    else:
        distance = SURFACES[group.kind].distance(jnp.broadcast_to(size, origin.shape), origin, direction)
    distance = jnp.where(wanted & (distance >= 0), distance, jnp.inf)
    return BundledHits(distance, jnp.broadcast_to(thing[:, None], facet.shape), facet)


def ends(rays: BundledRays, hits: BundledHits) -> Array:
    """Points (b, l, 3) where rays end; their origins where they meet nothing."""
    return rays.origin + scale(rays.direction, jnp.where(hits.thing >= 0, hits.distance, 0))
