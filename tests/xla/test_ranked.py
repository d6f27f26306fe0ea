"""Numbers of the least values, the first of equal ones."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffsim.xla.select import number_of, ranked


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_first_of_the_least(dtype: type) -> None:
    values = np.random.default_rng(0).integers(0, 9, (500, 13)).astype(dtype) / 64
    found = jax.vmap(lambda row: number_of(jnp.min(ranked(row, np.arange(13), 1e-9, 13)), 13))(jnp.asarray(values))
    np.testing.assert_array_equal(found, np.argmin(values, axis=1))


@pytest.mark.parametrize(("dtype", "slack"), [(np.float32, 1e-9), (np.float64, 1e-15)])
@pytest.mark.parametrize("size", [0.0, 1e-6, 1e-3])
def test_much_more_than_the_slack_decides(dtype: type, slack: float, size: float) -> None:
    # the second is less by a few of the coarsest units
    less = max(4 * slack, 64 * size * float(np.finfo(dtype).eps))
    values = jnp.asarray([size + less, size, size + less], dtype)
    assert int(number_of(jnp.min(ranked(values, np.arange(3), slack, 13)), 13)) == 1
