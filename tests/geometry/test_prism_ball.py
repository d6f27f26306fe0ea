"""Points and upright prisms: distance, normal and their derivatives as of any hull, in all regions around a prism."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from uncompiled import uncompiled

from diffsim.geometry.hull.facets import facets, nearest_part
from diffsim.geometry.hull.features import HullPair, separation
from diffsim.geometry.hull.polytope import PRISM, with_polygons
from diffsim.geometry.prism_distance import Nearest, nearest_of_prism

Array = jax.Array


def prisms(seed: int, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Plans (n, 3, 2) with a right angle as those of height fields, heights (n, 3), and points (n, 3) around them."""
    rng = np.random.default_rng(seed)
    corners = np.array([[[0, 1], [0, 0], [1, 1]], [[0, 0], [1, 0], [1, 1]]])[rng.integers(2, size=count)]
    plan = corners * rng.uniform(0.2, 1, (count, 1, 2))
    return plan, rng.uniform(0, 0.8, (count, 3)), rng.uniform(-0.5, 1, (count, 3)) * [1, 1, 0.8]


def upright(plan: Array, heights: Array) -> Array:
    """Vertices (6, 3)."""
    level = jnp.full((3, 1), -0.3)
    return jnp.concatenate([jnp.hstack([plan, level]), jnp.hstack([plan, heights[:, None]])])


def as_hull(plan: Array, heights: Array, point: Array) -> tuple[Array, Array]:
    """Distance and normal as those of any hull and a point."""
    vert = upright(plan, heights)
    hull = with_polygons(vert, PRISM)
    feature = nearest_part(hull, facets(hull, point), point)
    pair = HullPair(vert, jnp.zeros((1, 3)), jnp.eye(3), point)
    dist, normal, *_ = separation(pair, jax.lax.stop_gradient(feature))
    return dist, normal


def of_prism(plan: Array, heights: Array, point: Array) -> tuple[Array, Array]:
    """The same in closed form."""
    found = nearest_of_prism(upright(plan, heights), point)
    return found.dist, found.normal


def test_prisms_are_hulls():
    """Distances, normals and Jacobians of both, by plan, heights and the point; every region is met."""
    given = prisms(0, 3000)
    expected, found = (uncompiled(jax.vmap(f))(*given) for f in (as_hull, of_prism))
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_allclose(other, one, atol=1e-12)
    slopes, others = (uncompiled(jax.vmap(jax.jacfwd(f, argnums=(0, 1, 2))))(*given) for f in (as_hull, of_prism))
    for one, other in zip(jax.tree.leaves(slopes), jax.tree.leaves(others), strict=True):
        np.testing.assert_allclose(other, one, atol=1e-9 * np.max(np.abs(one)))
    dist, normal = (np.asarray(x) for x in found)
    assert np.mean(dist < 0) > 0.03
    inside = dist < 0
    for outside, level in (
        (~inside, np.abs(normal[:, 2]) < 1e-9),
        (~inside, normal[:, 2] < -0.999),
        (inside, normal[:, 2] > 0.1),
    ):
        assert np.sum(outside & level) > 10


def test_the_point_of_the_surface_is_at_the_distance():
    plan, heights, point = prisms(1, 500)
    vert = jax.vmap(upright)(plan, heights)
    found: Nearest = jax.vmap(nearest_of_prism)(vert, point)
    np.testing.assert_allclose(found.point + found.dist[:, None] * found.normal, point, atol=1e-12)
    again: Nearest = jax.vmap(nearest_of_prism)(vert, found.point)
    np.testing.assert_allclose(again.dist, 0, atol=1e-12)


@pytest.mark.parametrize("where", ["corner", "edge", "top", "middle"])
def test_singular_points_have_finite_derivatives(where: str):
    """On corners, edges and sides, and where two sides are as near."""
    plan, heights, _ = (each[0] for each in prisms(2, 1))
    vert = upright(plan, heights)
    points = {
        "corner": vert[3],
        "edge": vert[3:5].mean(axis=0),
        "top": vert[3:].mean(axis=0),
        "middle": vert.mean(axis=0),
    }
    slopes = jax.jacrev(of_prism, argnums=(0, 1, 2))(plan, heights, points[where])
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(slopes))
