"""Derivatives of the pair functions: against central differences, and finite where the geometry is singular."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from geometry.scenes import (
    BOX,
    CAPSULE,
    CLOSED_FORM,
    CONVEX,
    CYLINDER,
    ELLIPSOID,
    PLANE,
    SIZES,
    SPHERE,
    moved,
    name_of,
    random_shape,
)
from uncompiled import uncompiled
from wide import WIDE

from diffsim.geometry.colliders import COLLIDERS, SINGLE
from diffsim.geometry.shapes import Shape

MARGIN = 0.05
# pairs at once, in all tests, which then share programs
COUNT = 24


@functools.cache
def jitted(types: tuple) -> Any:
    """Value, tangent and cotangent of (dist, pos, normal) of the valid rows, for many pairs at once."""
    collider = (COLLIDERS | SINGLE)[types]

    def outputs(twist: jax.Array, shape1: Shape, shape2: Shape) -> jax.Array:
        margin = jnp.full_like(twist[0], MARGIN)
        rows = collider.function(moved(shape1, twist[:9]), moved(shape2, twist[9:]), margin)
        used = (rows.valid & (rows.dist < MARGIN))[:, None]
        return jnp.where(used, jnp.concatenate([rows.dist[:, None], rows.pos, rows.normal], axis=-1), 0).ravel()

    def all_of(step: jax.Array, cotangent: jax.Array, twist: jax.Array, shape1: Shape, shape2: Shape) -> tuple:
        function = functools.partial(outputs, shape1=shape1, shape2=shape2)
        value, slope = jax.linearize(function, twist)
        back = jax.linear_transpose(slope, twist)
        return value, slope(step), back(cotangent[: value.shape[0]])[0]

    return uncompiled(jax.vmap(jax.jit(all_of)))


@pytest.mark.parametrize("types", CLOSED_FORM + CONVEX, ids=name_of)
def test_derivatives_agree_with_central_differences(types: tuple) -> None:
    rng = np.random.default_rng(3)
    h = 1e-4
    pairs = [(random_shape(types[0], rng), random_shape(types[1], rng)) for _ in range(COUNT)]
    first, second = (jax.tree.map(lambda *x: jnp.stack(x), *shapes) for shapes in zip(*pairs, strict=True))
    step = jnp.asarray(rng.normal(size=(COUNT, 18)))
    step /= jnp.linalg.norm(step, axis=1, keepdims=True)
    cotangent = jnp.asarray(rng.normal(size=(COUNT, 7 * 8)))
    at = [jitted(types)(step, cotangent, k * h * step, first, second) for k in (0, 1, -1, 2, -2)]
    values = [np.asarray(value) for value, _, _ in at]
    richardson = (8 * (values[1] - values[2]) - (values[3] - values[4])) / (12 * h)
    sided = [(values[k] - values[0]) / (step_size * h) for k, step_size in ((1, 1), (2, -1), (3, 2), (4, -2))]
    tangent, gradient = np.asarray(at[0][1]), np.asarray(at[0][2])
    # a feature that changes within the step shows in the one-sided differences
    smooth = np.max(np.ptp(np.stack(sided), axis=0), axis=1) < 0.02
    assert np.sum(smooth) > COUNT // 2
    assert np.sum(np.any(values[0] != 0, axis=1)) > 3
    np.testing.assert_allclose(tangent[smooth], richardson[smooth], atol=1e-6, rtol=1e-6)
    pulled = np.einsum("ij,ij->i", gradient, np.asarray(step))
    pushed = np.einsum("ij,ij->i", tangent, np.asarray(cotangent)[:, : tangent.shape[1]])
    np.testing.assert_allclose(pulled, pushed, atol=1e-9)


UPRIGHT = np.eye(3)
LYING = np.array([[0.0, 0, 1], [0, 1, 0], [-1, 0, 0]])
# types, position of the second relative to the first, its orientation
SINGULAR = [
    (PLANE, CAPSULE, (0, 0, 0.2), UPRIGHT),
    (PLANE, CYLINDER, (0, 0, 0.17), UPRIGHT),
    (PLANE, CYLINDER, (0, 0, 0.12), LYING),
    (PLANE, BOX, (0, 0, 0.2), UPRIGHT),
    (SPHERE, SPHERE, (0, 0, 0), UPRIGHT),
    (SPHERE, CAPSULE, (0, 0, 0.1), UPRIGHT),
    (SPHERE, CYLINDER, (0, 0, 0), UPRIGHT),
    (SPHERE, CYLINDER, (0.12, 0, 0.17), UPRIGHT),
    (SPHERE, BOX, (0, 0, 0), UPRIGHT),
    (SPHERE, BOX, (0.11, 0, 0), UPRIGHT),
    (SPHERE, BOX, (0.11, 0.16, 0.2), UPRIGHT),
    (CAPSULE, CAPSULE, (0.1, 0, 0.05), UPRIGHT),
    (CAPSULE, CAPSULE, (0, 0, 0), UPRIGHT),
    (CAPSULE, CAPSULE, (0, 0, 0), LYING),
    (CAPSULE, BOX, (0.15, 0, 0), UPRIGHT),
    (CAPSULE, BOX, (0, 0, 0), UPRIGHT),
    (BOX, BOX, (0, 0, 0.4), UPRIGHT),
    (BOX, BOX, (0, 0, 0), UPRIGHT),
    (SPHERE, ELLIPSOID, (0, 0, 0), UPRIGHT),
    (SPHERE, ELLIPSOID, (0, 0, 0.35), UPRIGHT),
    (CAPSULE, CYLINDER, (0.19, 0, 0), UPRIGHT),
    (CAPSULE, CYLINDER, (0, 0, 0), UPRIGHT),
    (ELLIPSOID, BOX, (0, 0, 0.42), UPRIGHT),
    (ELLIPSOID, BOX, (0, 0, 0), UPRIGHT),
]


IN_FLOAT64 = sorted({case[:2] for case in SINGULAR})
# one search serves all of CONVEX: in float32 one of them shows it
IN_FLOAT32 = [types for types in IN_FLOAT64 if types not in CONVEX[1:] or WIDE]


@pytest.mark.parametrize(
    ("types", "dtype"),
    [(types, jnp.float64) for types in IN_FLOAT64] + [(types, jnp.float32) for types in IN_FLOAT32],
    ids=lambda each: name_of(each) if isinstance(each, tuple) else each.__name__,
)
def test_singular_configurations_are_finite(types: tuple, dtype: Any) -> None:
    own = [case for case in SINGULAR if case[:2] == types]
    cases = [own[k % len(own)] for k in range(COUNT)]
    first = [Shape(np.zeros(3), UPRIGHT, np.array(SIZES[types[0]])) for _ in cases]
    second = [Shape(np.array(case[2], float), case[3], np.array(SIZES[types[1]])) for case in cases]
    shape1, shape2 = (jax.tree.map(lambda *x: jnp.asarray(np.stack(x), dtype), *shapes) for shapes in (first, second))
    ones = jnp.ones((len(cases), 18), dtype)
    value, tangent, gradient = jitted(types)(ones, jnp.ones((len(cases), 7 * 8), dtype), 0 * ones, shape1, shape2)
    for array in (value, tangent, gradient):
        assert array.dtype == dtype
        assert np.all(np.isfinite(array))
