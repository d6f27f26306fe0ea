"""Vectors by components are the same vectors, in batches and for derivatives too."""

import re

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.xla.bilinear import by_components, stored_in_order


def test_values_and_derivatives_are_those_of_the_vectors() -> None:
    vectors = jnp.asarray(np.random.default_rng(0).normal(size=(3, 2, 5, 6)))

    def change(x: jax.Array) -> jax.Array:
        return jnp.sin(by_components(x))

    for batch in (0, 1, 2):
        mapped = jax.jit(jax.vmap(jax.vmap(change, min(batch, 1)), batch))
        expected = jax.vmap(jax.vmap(jnp.sin, min(batch, 1)), batch)
        np.testing.assert_array_equal(mapped(vectors), expected(vectors))
        slope = jax.grad(lambda x, mapped=mapped: jnp.sum(mapped(x)))(vectors)
        np.testing.assert_allclose(slope, jnp.cos(vectors), rtol=1e-15)
    one = vectors[0, 0]
    np.testing.assert_array_equal(jax.jacfwd(change)(one), jax.jacfwd(jnp.sin)(one))
    with jax.disable_jit():
        np.testing.assert_array_equal(by_components(one), one)


def test_components_are_stored_one_after_another() -> None:
    """In a batch too, and whatever order is written in."""
    program = jax.jit(jax.vmap(lambda x: jnp.sum(by_components(jnp.sin(x)), axis=0))).lower(jnp.ones((4, 5, 6)))
    assert re.search(r"f64\[4,6,5\]\{2,1,0\} call", str(program.compile().as_text()))


def test_what_is_stored_in_order_is_the_same_array() -> None:
    """In batches along any axis, with derivatives of both modes."""
    values = jnp.asarray(np.random.default_rng(1).normal(size=(3, 4, 5)))

    def change(x: jax.Array) -> jax.Array:
        return jnp.sin(stored_in_order(x.T))

    for axis in range(3):
        np.testing.assert_array_equal(
            jax.jit(jax.vmap(change, axis))(values), jax.vmap(lambda x: jnp.sin(x.T), axis)(values)
        )
    one, along = values[0], values[1]
    np.testing.assert_array_equal(jax.jvp(change, (one,), (along,))[1], jnp.cos(one.T) * along.T)
    np.testing.assert_array_equal(jax.grad(lambda x: jnp.sum(change(x)))(one), jnp.cos(one))


def test_a_stored_transpose_is_copied_once() -> None:
    program = jax.jit(jax.vmap(lambda x: jnp.cos(stored_in_order(jnp.sin(x).T)))).lower(jnp.ones((4, 5, 6)))
    assert re.search(r"f64\[4,6,5\]\{2,1,0\} call", str(program.compile().as_text()))
