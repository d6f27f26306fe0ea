"""Vectors by components are the same vectors, in batches and for derivatives too."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffsim.xla.bilinear import by_components


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


@pytest.mark.skipif(
    jax.__version_info__ >= (0, 12), reason="there XLA chooses layouts across calls, and copies: slower"
)
def test_components_are_stored_one_after_another() -> None:
    """In a batch too, and whatever order is written in."""
    program = jax.jit(jax.vmap(lambda x: jnp.sum(by_components(jnp.sin(x)), axis=0))).lower(jnp.ones((4, 5, 6)))
    assert re.search(r"f64\[4,6,5\]\{2,1,0\} call", str(program.compile().as_text()))
