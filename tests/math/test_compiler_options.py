"""What programs are compiled with: options that this version of XLA knows, and the same numbers."""

import jax
import jax.numpy as jnp
import numpy as np

import diffsim


def test_options_are_known_and_change_no_number() -> None:
    matrix = jnp.asarray(np.random.default_rng(0).normal(size=(5, 5)))

    def function(x: jax.Array) -> jax.Array:
        return jnp.sum(jnp.sin(x @ x) * x, axis=0)

    # XLA refuses an option that it does not know
    found = jax.jit(function, compiler_options=diffsim.compiler_options())(matrix)
    np.testing.assert_allclose(found, function(matrix), rtol=1e-13)
