"""The largest in two rounds are those of one, ties included."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffsim.math.largest import PIECE, largest


@pytest.mark.parametrize(("size", "count"), [(5 * PIECE - 7, 40), (3 * PIECE, 1), (PIECE // 2, 9), (4 * PIECE, 700)])
def test_as_top_k(size: int, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    # few different values: many are equal
    values = jnp.asarray(np.random.default_rng(size).integers(0, 99, (2, size)), jnp.float32).at[1, ::3].set(-jnp.inf)
    found, expected = jax.vmap(lambda row: largest(row, count))(values), jax.lax.top_k(values, count)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(("backend", "rounds"), [("gpu", 2), ("cpu", 1)])
def test_a_gpu_does_not_sort_a_long_row_at_once(backend: str, rounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    program = str(jax.make_jaxpr(lambda row: largest(row, 40))(jax.ShapeDtypeStruct((20 * PIECE,), jnp.float32)))
    assert program.count("top_k[") == rounds
