"""The largest in two rounds are those of one, ties included."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffsim.xla.largest import (
    GPU_PIECE,
    MOST_PASSES,
    PASSES_VALUES,
    PIECES_FROM,
    PIECES_WORLDS,
    above,
    by_pieces,
    largest,
)


@pytest.mark.parametrize(
    ("size", "count"), [(5 * GPU_PIECE - 7, 40), (3 * GPU_PIECE, 1), (GPU_PIECE // 2, 9), (4 * GPU_PIECE, 700)]
)
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
    program = str(jax.make_jaxpr(lambda row: largest(row, 40))(jax.ShapeDtypeStruct((20 * GPU_PIECE,), jnp.float32)))
    assert program.count("top_k[") == rounds


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("size", "count"), [(2, 1), (27, 15), (36, 15), (64, MOST_PASSES), (PASSES_VALUES, 15)])
def test_few_are_taken_out_as_top_k_finds_them(
    size: int, count: int, dtype: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    # positive, negative, zero and far ones, many of them equal, none nearly equal
    values = np.random.default_rng(size).integers(-30, 30, (2, size)).astype(dtype) / 8
    values[1, ::4] = -1e10
    found, expected = jax.vmap(lambda row: largest(row, count))(jnp.asarray(values)), jax.lax.top_k(values, count)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_indices_exist_whatever_the_values(bad: float) -> None:
    values = jnp.full((20,), bad).at[3].set(1.0)
    index = np.asarray(largest(values, 5)[1])
    assert np.all((index >= 0) & (index < 20)) and (3 in index) == (bad == -np.inf)


def test_no_number_is_found() -> None:
    """What is bad is to be seen, not to be left out."""
    values = jnp.arange(20.0).at[7].set(jnp.nan)
    found, index = largest(values, 3)
    assert index.tolist() == [7, 19, 18] and np.isnan(found[0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("size", "count"), [(513, 40), (729, 729), (4800, 40), (20736, 40)])
def test_what_pieces_know_is_what_top_k_finds(size: int, count: int, dtype: type) -> None:
    """Of equal values, of none that are finite, and of no numbers, the first come first."""
    values = np.random.default_rng(size).integers(0, 99, (4, size)).astype(dtype)
    values[1] = -np.inf
    values[2, ::3] = np.nan
    values[3, 1::2] = -np.inf
    found = jax.jit(jax.vmap(lambda row: by_pieces(row, count)))(jnp.asarray(values))
    np.testing.assert_array_equal(found, jax.lax.top_k(jnp.asarray(values), count)[1])


@pytest.mark.parametrize(("worlds", "loops"), [(PIECES_WORLDS - 1, 0), (PIECES_WORLDS, 1)])
def test_pieces_are_looked_through_for_many_worlds(worlds: int, loops: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    values = jax.ShapeDtypeStruct((worlds, PIECES_FROM + 1), jnp.float32)
    program = str(jax.make_jaxpr(jax.vmap(lambda row: largest(row, 40)))(values))
    assert (program.count("scan["), program.count("top_k[")) == (loops, 1 - loops)


def test_what_is_found_has_derivatives() -> None:
    """In any order of batches and derivatives, also where pieces are looked through."""
    values = jnp.asarray(np.random.default_rng(0).normal(size=(PIECES_WORLDS, PIECES_FROM + 600)))

    def best(row: jax.Array) -> jax.Array:
        return jnp.sum(largest(row, 3)[0] ** 2)

    inside = jax.vmap(jax.grad(best))(values)
    outside = jax.grad(lambda values: jnp.sum(jax.vmap(best)(values)))(values)
    kth = jnp.sort(values, axis=1)[:, -3:-2]
    for found in (inside, outside):
        np.testing.assert_array_equal(found, jnp.where(values >= kth, 2 * values, 0))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_above_lists_what_is_above_a_limit(dtype: type) -> None:
    """The first of equal values comes first; places after the last value above the limit say that they have none."""
    values = np.random.default_rng(0).integers(-40, 9, (3, 99)).astype(dtype)
    values[0, 5], values[1, values[1] > -2], values[2, 7] = np.nan, -30, 0
    batch = jax.jit(jax.vmap(lambda row: above(row, -1.0, 12)))(jnp.asarray(values))
    place = np.argsort(-np.nan_to_num(values, nan=np.inf), axis=1, kind="stable")[:, :12]
    wanted = ~(np.take_along_axis(values, place, 1) <= -1)
    assert np.any(wanted) and not np.any(wanted[1])
    for world, row in enumerate(values):
        for index, exists in (above(jnp.asarray(row), -1.0, 12), [x[world] for x in batch]):
            np.testing.assert_array_equal(exists, wanted[world])
            np.testing.assert_array_equal(index, np.where(wanted, place, 0)[world])
