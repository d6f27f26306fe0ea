"""What programs are compiled with: options that this version of XLA knows, and the same numbers."""

import re

import jax
import jax.numpy as jnp
import jaxlib.version
import numpy as np
import pytest

import diffsim
from diffsim.math.xla import stored

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


@pytest.mark.parametrize("iterations", [1, 100])
def test_what_is_stored_is_computed_once(iterations: int) -> None:
    """XLA knows the pass that would remove barriers by the name that the options give it."""
    options = diffsim.compiler_options(diffsim.load(BALL.format(iterations)))

    def function(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        y = stored(x * x + 1)
        return y - 2, jnp.sum(y * x, axis=1)

    program = jax.jit(function).lower(jnp.ones((8, 5))).compile(compiler_options=options).as_text()
    assert len(re.findall(r" multiply\(", program)) == 2
