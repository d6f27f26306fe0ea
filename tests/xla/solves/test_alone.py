"""Without programs (`jax.disable_jit`), as one looks for mistakes, the library computes the same."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from wide import only_wide

import diffsim
from diffsim.math.vector import cross
from diffsim.xla.gather import gather_rows
from diffsim.xla.solves.cholesky import factor_p, solve_p

MATRIX = np.array([[4.0, 1, 0], [1, 3, 1], [0, 1, 2]])
FALLING = """<mujoco><worldbody><geom type="plane" size="1 1 1"/>
  <body pos="0 0 .09"><freejoint/><geom size=".1"/></body></worldbody></mujoco>"""

ALONE = {
    "product": lambda x: cross(x, 2 * x[::-1]),
    "gather": lambda x: gather_rows(x, np.array([2, 0, -1]), 0),
    "factor": lambda x: factor_p.bind(jnp.asarray(MATRIX, x.dtype) * x[0, 0]),
    "solve": lambda x: solve_p.bind(jnp.asarray(np.linalg.cholesky(MATRIX), x.dtype), x),
}


@pytest.mark.parametrize("name", ALONE)
def test_primitives_run_without_programs(name: str) -> None:
    function: Callable[[jax.Array], jax.Array] = ALONE[name]
    x = jnp.asarray(np.random.default_rng(0).uniform(1, 2, size=(3, 3)))
    expected = function(x), jax.jacobian(function)(x)
    with jax.disable_jit():
        found = function(x), jax.jvp(function, (x,), (x,))[1]
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(found[1], jnp.einsum("ijkl,kl->ij", expected[1], x), rtol=1e-12, atol=1e-14)


@only_wide
def test_a_step_with_a_contact_runs_without_programs() -> None:
    model = diffsim.load(FALLING)
    state = diffsim.make_state(model)
    expected = diffsim.step(model, state)
    with jax.disable_jit():
        found = diffsim.step(model, state)
    np.testing.assert_allclose(found.qvel, expected.qvel, atol=1e-12)
