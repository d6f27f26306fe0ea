"""Ellipsoids and cylinders against hulls: what rounding hides from the search is not in derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.transform import Rotation
from uncompiled import uncompiled

from diffsim.base.enums import GeomType
from diffsim.geometry.hull.polytope import PRISM, with_polygons
from diffsim.geometry.shapes import Shape
from diffsim.geometry.smooth import round_hulls

Array = jax.Array
COUNT = 60
VERT = jnp.array([[0, 0.7, -0.5], [0, 0, -0.5], [0.6, 0.5, -0.5], [0, 0.7, 0.2], [0, 0, 0.1], [0.6, 0.5, 0.3]])
SIZES = {GeomType.ELLIPSOID: [0.1, 0.15, 0.2], GeomType.CYLINDER: [0.12, 0.16, 0]}


def slopes(kind: GeomType, pos: Array, mat: Array, sweep: Array) -> Array:
    """(count, 7) of distance, midpoint and normal as the body moves along `sweep`."""
    field = Shape(jnp.zeros(3), jnp.eye(3), jnp.ones(3))

    def one(pos: Array, mat: Array, sweep: Array) -> Array:
        def found(pos: Array) -> Array:
            body = Shape(pos, mat, jnp.array(SIZES[kind]))
            dist, middle, normal = round_hulls.separate_round(kind, body, with_polygons(VERT, PRISM), field)
            return jnp.concatenate([dist[None], middle, normal])

        return jax.jvp(found, (pos,), (sweep,))[1]

    return uncompiled(jax.vmap(one))(pos, mat, sweep)


@pytest.mark.parametrize("kind", SIZES)
def test_derivatives_do_not_see_how_near_the_search_came(kind: GeomType, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    pos = np.array([0.2, 0.4, 0]) + rng.normal(size=(COUNT, 3)) * [0.5, 0.5, 0.3]
    given = pos, Rotation.random(COUNT, rng=0).as_matrix(), rng.normal(size=(COUNT, 3))
    search = round_hulls.furthest_direction

    def nearly(*arguments) -> Array:
        exact = search(*arguments)
        aside = jnp.cross(exact, jnp.array([0.6, 0.0, 0.8]))
        # ends of cylinders are found exactly
        found = exact + jnp.where(jnp.abs(exact[2]) < 1, 3e-11, 0) * aside
        return found / jnp.linalg.norm(found)

    expected = np.asarray(slopes(kind, *given))
    monkeypatch.setattr(round_hulls, "furthest_direction", nearly)
    size = 1 + np.abs(expected).max(axis=1, keepdims=True)
    apart = np.abs(np.asarray(slopes(kind, *given)) - expected) / size
    assert np.isfinite(expected).all()
    assert apart.max() < 1e-13
