"""argmin with a tie rule: the first of near ties, at any dtype, alone or in a batch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffsim.xla.select import argmin

Array = jax.Array


def nearer(late: Array, early: Array, index: Array) -> Array:
    return late < early - 0.1


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_the_first_of_near_ties(dtype: jnp.dtype) -> None:
    rows = jnp.asarray([[3, 2.05, 2, 4], [2, 2.05, 1.95, 1.8], [-1, -3, -3, 0], [5, 5, 5, 5]], dtype)
    value, index = jax.jit(jax.vmap(lambda values: argmin(values, nearer)))(rows)
    np.testing.assert_array_equal(index, [1, 3, 1, 0])
    np.testing.assert_array_equal(value, rows[jnp.arange(4), index])


def test_a_rule_by_number() -> None:
    # from number 2 on only less than half of what was found counts
    value, index = argmin(
        jnp.asarray([4.0, 3.0, 2.0, 1.0]), lambda late, early, i: late < jnp.where(i < 2, early, early / 2)
    )
    assert (float(value), int(index)) == (1.0, 3)


def test_nothing_to_choose_is_number_zero() -> None:
    value, index = argmin(jnp.full((3,), jnp.inf), nearer)
    assert (float(value), int(index)) == (np.inf, 0)


def test_carries_no_derivative() -> None:
    assert jnp.all(jax.grad(lambda values: argmin(values, nearer)[0])(jnp.asarray([2.0, 1.0])) == 0)
