"""Functions of math/safe.py: finite values and finite derivatives at every magnitude, in both precisions."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from uncompiled import uncompiled

from diffsim.math import safe
from diffsim.math.rotation import quat_integrate, quat_normalize, quat_rate

FUNCTIONS = {
    "sqrt": lambda x: safe.sqrt(x[0] * x[0] + x[1] * x[1]),
    "divide": lambda x: safe.divide(x[0], x[1]),
    "norm": safe.norm,
    "normalize": lambda x: safe.normalize(x)[0],
    "arctan2": lambda x: safe.arctan2(x[0], x[1]),
    "quat_normalize": lambda x: quat_normalize(x[jnp.array([0, 1, 1, 0])])[1],
    "quat_integrate": lambda x: quat_integrate(x[jnp.array([0, 1, 1, 0])], jnp.ones(3, x.dtype), jnp.ones((), x.dtype))[
        1
    ],
    "quat_rate": lambda x: quat_rate(x[jnp.array([0, 1, 1, 0])], jnp.ones(4, x.dtype))[1],
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_are_finite_at_every_magnitude(name: str, dtype: str) -> None:
    lowest = -37 if dtype == "float32" else -300
    sizes = [0.0, *np.geomspace(10.0**lowest, 1e3, 200)]
    points = jnp.asarray([(a * s, b * s) for s in sizes for a in (1, 0, -0.3) for b in (0, 0.7, -1)], dtype)
    values, slopes = uncompiled(jax.vmap(jax.value_and_grad(FUNCTIONS[name])))(points)
    assert np.all(np.isfinite(values))
    assert np.all(np.isfinite(slopes))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_quaternion_of_any_length_is_a_direction_down_to_the_limit_of_the_oracle(dtype: str) -> None:
    direction = np.array([0.1, -0.7, 0.5, 0.5])
    for length in (0.0, 1e-30, 1e-18, 9e-16, 1.1e-15, 1e-12, 1e-9, 1e-6, 1.0, 1e6, 1e15):
        expected = direction if length > 1e-15 else [1, 0, 0, 0]
        found = quat_normalize(jnp.asarray(length * direction, dtype))
        np.testing.assert_allclose(found, expected, atol=1e-15 if dtype == "float64" else 1e-6)


GREATER = {"maximum": (safe.maximum, np.maximum), "minimum": (safe.minimum, np.minimum)}


@pytest.mark.parametrize("name", GREATER)
def test_the_derivative_is_that_of_the_one_chosen(name: str) -> None:
    """It does not compare with the result, which a compiler may compute again with other rounding."""
    mine, plain = GREATER[name]
    pairs = np.array([[1, 2], [2, 1], [3, 3], [np.nan, 1], [1, np.nan], [-0.0, np.inf]])
    np.testing.assert_array_equal(mine(*pairs.T), plain(*pairs.T))
    slopes = jax.vmap(jax.grad(mine, (0, 1)))(*pairs[:3].T)
    chosen = np.arange(3) == 1 if name == "maximum" else np.arange(3) == 0
    np.testing.assert_array_equal(slopes[0], chosen | (np.arange(3) == 2))
    assert np.all(np.sum(slopes, axis=0) == 1)
    assert " eq " not in str(jax.make_jaxpr(jax.grad(lambda x: mine(x * x, 3 * x)))(1.0))


@pytest.mark.parametrize(("mine", "plain"), [(safe.greater, jnp.maximum), (safe.lesser, jnp.minimum)])
def test_equal_partners_share_the_derivative(mine: Callable, plain: Callable) -> None:
    pairs = jnp.array([[1, 2], [2, 1], [3, 3], [np.nan, 1], [1, np.nan], [np.inf, np.inf]])
    np.testing.assert_array_equal(mine(*pairs.T), plain(*pairs.T))
    for argnums in (0, 1):
        slopes = [jax.vmap(jax.grad(function, argnums))(*pairs[:3].T) for function in (mine, plain)]
        np.testing.assert_array_equal(*slopes)
