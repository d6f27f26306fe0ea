"""Bundles of rays: they may meet all that one of their rays meets, and hits are the nearest of several."""

import jax.numpy as jnp
import numpy as np
from uncompiled import uncompiled

from diffsim.geometry.rays.bundles import BundledHits, BundledRays, bundles_of, may_meet_ball, nearest

RANDOM = np.random.default_rng(0)


meets = uncompiled(lambda rays, middle, radius: may_meet_ball(bundles_of(rays), middle, radius))
nearer = uncompiled(nearest)


def bundled(count: int, each: int) -> BundledRays:
    """Rays from outside towards places near the middle, with one ray in each bundle that is not wanted."""
    far = RANDOM.normal(size=(count, 1, 3))
    origin = 6 * far / np.linalg.norm(far, axis=2, keepdims=True) + 0.1 * RANDOM.normal(size=(count, each, 3))
    aim = RANDOM.normal(size=(count, 1, 3))
    direction = aim + 0.1 * RANDOM.normal(size=origin.shape) - origin
    wanted = np.ones((count, each), bool)
    wanted[:, 0] = False
    direction /= np.linalg.norm(direction, axis=2, keepdims=True)
    return BundledRays(jnp.asarray(origin), jnp.asarray(direction), jnp.asarray(wanted))


def test_bundles_meet_what_their_rays_meet() -> None:
    rays = bundled(300, 4)
    middle, size = 2 * RANDOM.normal(size=(50, 3)), RANDOM.uniform(0.05, 1, size=(50, 3))
    met = meets(rays, middle, size[:, 0])
    origin, direction, wanted = (np.asarray(each)[:, :, None] for each in rays)
    offset = middle - origin
    ahead = np.maximum(np.sum(offset * direction, axis=3), 0)
    hit = (np.linalg.norm(offset - ahead[..., None] * direction, axis=3) <= size[:, 0]) & wanted
    assert not (hit.any(axis=1) & ~met).any() and met.mean() < 1.5 * hit.any(axis=1).mean() + 0.1


def test_hits_are_the_nearest_also_where_a_bundle_comes_twice() -> None:
    rays = bundled(3, 2)
    bundle, distance = jnp.array([1, 1, 0]), jnp.array([[3.0, 2.0], [1.0, jnp.inf], [5.0, jnp.inf]])
    thing = jnp.array([[4, 4], [5, 5], [6, 6]], jnp.int32)
    nothing = jnp.full(rays.wanted.shape, -1, jnp.int32)
    hits = BundledHits(jnp.full(nothing.shape, jnp.inf), nothing, jnp.zeros_like(nothing))
    hits = nearer(hits, bundle, BundledHits(distance, thing, 10 * thing))
    np.testing.assert_array_equal(hits.thing, [[6, -1], [5, 4], [-1, -1]])
    hits = nearer(hits, jnp.array([1]), BundledHits(jnp.array([[0.5, 9.0]]), jnp.array([[7, 7]], jnp.int32), thing[:1]))
    np.testing.assert_array_equal(hits.thing, [[6, -1], [7, 4], [-1, -1]])
    np.testing.assert_array_equal(hits.facet, [[60, 0], [4, 40], [0, 0]])
    np.testing.assert_array_equal(hits.distance[1], [0.5, 2])


def test_no_rays_meet_nothing() -> None:
    rays = bundled(3, 4)
    none = rays._replace(wanted=np.zeros((3, 4), bool))
    # infinity less infinity: what follows from it is not used
    with np.errstate(invalid="ignore"):
        assert not meets(none, np.zeros((2, 3)), np.array([1.0, np.inf])).any()
