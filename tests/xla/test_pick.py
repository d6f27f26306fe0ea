"""Rows picked and placed at numbers known when tracing, against numpy's indexing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffsim.compiler.host.interpret import interpret
from diffsim.xla.gather import gather_rows, pick, pick_existing, place, places

VALUES = np.random.default_rng(0).normal(size=(6, 2))
IDS = {
    "none": [],
    "one": [4],
    "run": [1, 2, 3],
    "strides": [1, 3, 5],
    "down": [5, 4, 3],
    "repeated": [0, 2, 2, 5],
    "from the end": [-1, 0, -6],
    "table": [[1, 0], [3, 3]],
    "one row often": [0, 1, 0, 0, 4, 0, 0, 0, 2],
    "two rows often": [3, 1, 3, 3, 1, 3, 1, 0, 3, 1],
    "all rows, one twice": [5, 3, 0, 1, 2, 4, 2],
    "table in order": [[0, 1, 2], [3, 4, 5]],
}


@pytest.mark.parametrize("name", IDS)
def test_pick_is_indexing(name: str) -> None:
    ids, values = np.array(IDS[name], int), jnp.asarray(VALUES)
    np.testing.assert_array_equal(pick(values, ids), VALUES[ids])
    np.testing.assert_array_equal(jax.jit(lambda i: pick(values, i))(jnp.asarray(ids)), VALUES[ids])
    batch = jnp.stack([values, 2 * values])
    np.testing.assert_array_equal(jax.vmap(lambda v: pick(v, ids))(batch), np.stack([VALUES[ids], 2 * VALUES[ids]]))
    weight = np.random.default_rng(1).normal(size=(*ids.shape, 2))
    expected = np.zeros_like(VALUES)
    np.add.at(expected, ids, weight)
    np.testing.assert_allclose(jax.grad(lambda v: jnp.sum(weight * pick(v, ids)))(values), expected, atol=1e-15)


@pytest.mark.parametrize("name", sorted(IDS.keys() - {"from the end"}))
def test_pick_existing_is_indexing(name: str) -> None:
    ids, values = np.array(IDS[name], int), jnp.asarray(VALUES)
    np.testing.assert_array_equal(pick_existing(values, ids), VALUES[ids])
    np.testing.assert_array_equal(jax.jit(pick_existing)(values, jnp.asarray(ids)), VALUES[ids])


@pytest.mark.parametrize("backend", ["cpu", "gpu"])
@pytest.mark.parametrize(
    "ids",
    [
        [0, 2, -1, 2, 5],
        [0, 1, 0, 0, 4, 0, 0, 0, 2],
        [3, 1, 3, 3, 1, 3, 1, 0, 3, 1],
        [-1, -1],
        # one row nearly always, and as many others a few times as make rounds wasteful
        [*[7] * 400, *np.repeat(np.arange(40), 11).tolist(), -1],
    ],
)
def test_gathered_rows_and_their_sums(ids: list[int], backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    size, axis = 50, 1
    values = np.random.default_rng(0).normal(size=(3, size, 2))
    rows = np.where(np.array(ids)[None, :, None] >= 0, values[:, ids], 0)
    np.testing.assert_array_equal(gather_rows(jnp.asarray(values), np.array(ids), axis), rows)
    np.testing.assert_array_equal(interpret(lambda v: gather_rows(v, np.array(ids), axis), values), rows)
    weight = np.random.default_rng(1).normal(size=rows.shape)
    expected = np.zeros((3, size + 1, 2))
    np.add.at(expected, (slice(None), np.where(np.array(ids) < 0, size, ids)), weight)
    found = jax.grad(lambda v: jnp.sum(weight * gather_rows(v, np.array(ids), axis)))(jnp.asarray(values))
    np.testing.assert_allclose(found, expected[:, :size], atol=1e-13)


def test_few_rows_that_are_gathered_often_are_no_table() -> None:
    assert places(tuple([7] * 400 + list(range(40)) * 11), 50) is None
    assert places((0, 1, 0, 2), 3) is not None


@pytest.mark.parametrize("ids", [[6], [0, -7]])
def test_pick_refuses_rows_that_are_not_there(ids: list[int]) -> None:
    with pytest.raises(IndexError, match="there are 6 rows"):
        pick(jnp.asarray(VALUES), np.array(ids))


@pytest.mark.parametrize("ids", [[2, 0, 5, 1, 3, 4], [0, 1, 2, 3, 4, 5], [5, 2], [0, 1], []])
def test_place_is_the_inverse(ids: list[int]) -> None:
    places = np.array(ids, int)
    placed = place(6, places, jnp.asarray(VALUES[: len(ids)]))
    expected = np.zeros_like(VALUES)
    expected[places] = VALUES[: len(ids)]
    np.testing.assert_array_equal(placed, expected)
