"""What programs are compiled with: options that this version of XLA knows, and the same numbers."""

import jax
import jax.numpy as jnp
import jaxlib.version
import numpy as np
import pytest

import diffsim


def test_options_are_known_and_change_no_number() -> None:
    matrix = jnp.asarray(np.random.default_rng(0).normal(size=(5, 5)))

    def function(x: jax.Array) -> jax.Array:
        return jnp.sum(jnp.sin(x @ x) * x, axis=0)

    # XLA refuses an option that it does not know
    found = jax.jit(function, compiler_options=diffsim.compiler_options())(matrix)
    np.testing.assert_allclose(found, function(matrix), rtol=1e-13)


def test_kernels_are_those_of_xla_itself() -> None:
    """On a CPU, by the older way or without a library: they run as long or less, and take less time to compile."""
    older = jaxlib.version.__version_info__ < (0, 12)
    option = {"xla_cpu_use_fusion_emitters": False} if older else {"xla_cpu_experimental_ynn_fusion_type": ""}
    assert diffsim.compiler_options() == option


def test_a_model_is_no_longer_asked_for() -> None:
    with pytest.warns(DeprecationWarning, match="takes no model"):
        assert diffsim.compiler_options(diffsim.load("cartpole")) == diffsim.compiler_options()
