"""What programs are compiled with: options that this version of XLA knows, and the same numbers."""

import jax
import jax.numpy as jnp
import jaxlib.version
import numpy as np
import pytest

import diffsim

BALL = '<mujoco><option iterations="{}"/><worldbody><body><freejoint/><geom size=".1"/></body></worldbody></mujoco>'


@pytest.mark.parametrize("iterations", [1, 100])
def test_options_are_known_and_change_no_number(iterations: int) -> None:
    matrix = jnp.asarray(np.random.default_rng(0).normal(size=(5, 5)))

    def function(x: jax.Array) -> jax.Array:
        return jnp.sum(jnp.sin(x @ x) * x, axis=0)

    options = diffsim.compiler_options(diffsim.load(BALL.format(iterations)))
    # XLA refuses an option that it does not know
    found = jax.jit(function, compiler_options=options)(matrix)
    np.testing.assert_allclose(found, function(matrix), rtol=1e-13)


@pytest.mark.skipif(jaxlib.version.__version_info__ >= (0, 12), reason="jaxlib 0.12 has no such option")
@pytest.mark.parametrize("iterations", [1, 100])
def test_kernels_are_made_by_the_older_way(iterations: int) -> None:
    """On a CPU: they compile sooner, and run as long or less."""
    assert diffsim.compiler_options(diffsim.load(BALL.format(iterations)))["xla_cpu_use_fusion_emitters"] is False
