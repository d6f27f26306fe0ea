"""`where` beside that of jax.numpy: types, shapes, values and derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffsim.xla.select import where

X = jnp.asarray(np.random.default_rng(0).normal(size=(3, 2)), jnp.float32)
CASES = {
    "arrays": (X > 0, X, 2 * X),
    "a number": (X > 0, X, 0),
    "two numbers": (X > 0, 1.0, 0.0),
    "rows": (X[:, :1] > 0, X, X[:1]),
    "one truth": (jnp.asarray(True), X, 0.5),
    "integers": (X > 0, jnp.arange(2), -1),
    "numpy": (np.array([True, False]), np.float32(2), X),
    "numbers of a program": (X[0, 0] > 0, jnp.asarray(1.5), 2.0),
    "truths": (X > 0, X > 1, False),
}


@pytest.mark.parametrize("name", CASES)
def test_where_is_that_of_numpy(name: str) -> None:
    mine, plain = where(*CASES[name]), jnp.where(*CASES[name])
    assert (mine.dtype, jax.typeof(mine).weak_type) == (plain.dtype, jax.typeof(plain).weak_type)
    np.testing.assert_array_equal(mine, plain)


def test_derivative_is_that_of_the_chosen_one() -> None:
    def f(x: jax.Array) -> jax.Array:
        return jnp.sum(where(x > 0, jnp.sin(x), 3.0))

    np.testing.assert_array_equal(jax.grad(f)(X), np.where(X > 0, np.cos(X), 0))
    np.testing.assert_array_equal(jax.vmap(jax.grad(f))(X), np.where(X > 0, np.cos(X), 0))
