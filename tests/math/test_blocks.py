"""Block diagonal algebra against the dense algebra of the same matrix, blocks in place and scattered."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracle import assert_close
from uncompiled import uncompiled

from diffsim.math.block_solves import solve_blocks, solve_general_blocks
from diffsim.math.linalg import blocks_of, columns_of, diagonal_of, gram, stack_rows
from diffsim.math.stencil_rows import PairRows

LABELS = {
    "none": [],
    "one": [0, 0, 0, 0],
    "equal": [0, 0, 0, 1, 1, 1],
    "sizes": [0, 1, 1, 1, 2, 2, 3, 3, 3],
    "scattered": [2, 0, 1, 0, 2, 1, 0, 3],
}


def random_matrix(label: np.ndarray, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(len(label), len(label)))
    return np.where(label[:, None] == label[None], root @ root.T + np.eye(len(label)), 0)


def random_rows(label: np.ndarray, seed: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).normal(size=(5, len(label))))


@pytest.mark.parametrize("name", LABELS)
def test_blocks_solve_as_the_whole_does(name: str) -> None:
    label = np.array(LABELS[name])
    split, matrix, b = blocks_of(label), random_matrix(label, 0), np.random.default_rng(1).normal(size=len(label))
    assert split.single == (name in ("none", "one"))
    ours = uncompiled(lambda m: solve_blocks(diagonal_of(split, m), jnp.asarray(b)))(matrix)
    assert_close("spd", ours, np.linalg.solve(matrix, b), 1e-12)
    skew = matrix + np.triu(0.1 * matrix, 1)
    ours = uncompiled(lambda m: solve_general_blocks(diagonal_of(split, m), jnp.asarray(b)))(skew)
    assert_close("general", ours, np.linalg.solve(skew, b), 1e-12)


@pytest.mark.parametrize("name", LABELS)
def test_block_diagonal_matrix_is_the_dense_one(name: str) -> None:
    label = np.array(LABELS[name])
    split, matrix, b = blocks_of(label), random_matrix(label, 5), np.random.default_rng(6).normal(size=len(label))

    @uncompiled
    def found(matrix: jax.Array, b: jax.Array) -> dict[str, jax.Array]:
        ours = diagonal_of(split, matrix)
        batch = jax.vmap(lambda scale: jax.tree.map(lambda part: scale * part, ours))(jnp.arange(3.0))
        parts = {"dense": ours.dense, "diagonal": ours.diagonal, "product": ours.mul_vec(b)}
        return parts | {"sum": ours.plus_diagonal(b).dense, "batch": batch.dense}

    ours = found(matrix, b)
    assert_close("dense", ours["dense"], matrix, 0)
    assert_close("diagonal", ours["diagonal"], np.diagonal(matrix), 0)
    assert_close("product", ours["product"], matrix @ b, 1e-12)
    assert_close("sum", ours["sum"], matrix + np.diag(b), 0)
    assert_close("batch", ours["batch"], np.arange(3.0)[:, None, None] * matrix, 0)


@pytest.mark.parametrize("name", LABELS)
def test_columns_are_those_of_the_dense_matrix(name: str) -> None:
    label, rng = np.array(LABELS[name]), np.random.default_rng(7)
    split, left, right = blocks_of(label), random_rows(label, 2), random_rows(label, 3)
    a, b = rng.normal(size=len(label)), rng.normal(size=5)

    @uncompiled
    def found(left: jax.Array, right: jax.Array, a: jax.Array, b: jax.Array) -> dict[str, dict[str, jax.Array]]:
        ours, other, none = columns_of(split, left), columns_of(split, right), columns_of(split, left[:0])
        parts = {"dense": ours.dense, "product": ours.mul_vec(a), "stack": stack_rows(split, [ours, other]).dense}
        for name, one in (("", ours), (" of a transpose", ours.readable_by_columns())):
            parts |= {"gram" + name: gram(one, other).dense, "transposed" + name: one.mul_vec_t(b)}
        no_rows = {"dense": none.dense, "product": none.mul_vec(a), "gram": gram(none, none).dense}
        return {"rows": parts, "none": no_rows | {"transposed": none.mul_vec_t(jnp.zeros(0))}}

    assert columns_of(split, left).height == 5
    ours = found(left, right, a, b)
    inside = np.where(label[:, None] == label[None], left.T @ right, 0)
    expected = {"dense": left, "product": left @ a, "stack": np.concatenate([left, right])}
    for name in ("", " of a transpose"):
        expected |= {"gram" + name: inside, "transposed" + name: b @ left}
    for name, value in expected.items():
        assert_close(name, ours["rows"][name], np.asarray(value), 0 if name in ("dense", "stack") else 1e-13)
    count = len(label)
    shapes = {"dense": (0, count), "product": (0,), "gram": (count, count), "transposed": (count,)}
    for name, shape in shapes.items():
        assert ours["none"][name].shape == shape and not np.any(ours["none"][name])


@pytest.mark.parametrize("name", ["equal", "sizes", "scattered"])
@pytest.mark.parametrize("how", ["at once", "in chunks", "for a GPU"])
def test_rows_of_pairs_are_those_of_the_dense_matrix(name: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four constraints of two rows: of two blocks, of one and none, of none, and of two again."""
    monkeypatch.setattr("diffsim.xla.gather.AT_ONCE_COLUMNS", 1 if how == "in chunks" else 8)
    monkeypatch.setattr("diffsim.xla.gather.CHUNK", 30)
    if how == "for a GPU":
        monkeypatch.setattr("diffsim.xla.gather.for_cpu", lambda: False)
        monkeypatch.setattr("diffsim.xla.gather.for_gpu", lambda: True)
    label, rng = np.array(LABELS[name]), np.random.default_rng(8)
    blocks, dim = blocks_of(label), 2
    table, none = blocks.table, len(blocks.table)
    block = np.array([[0, 1, none, none - 1], [1, none, none, 0]])
    exists = np.pad(table >= 0, ((0, 1), (0, 0)))[block]
    entries = rng.normal(size=(2, table.shape[1], dim, 4)) * np.swapaxes(exists, 1, 2)[:, :, None]
    dense = np.zeros((dim, 4, len(label)))
    for side, slot in np.argwhere(block < none):
        own = table[block[side, slot]]
        dense[:, slot, own[own >= 0]] += entries[side, own >= 0, :, slot].T
    a, b, weight = rng.normal(size=len(label)), rng.normal(size=8), rng.normal(size=(dim, 4))

    @uncompiled
    def found(entries: jax.Array) -> dict[str, jax.Array]:
        rows = PairRows(blocks, entries, jnp.asarray(block))
        weighted = rows.gram(lambda y: y * jnp.asarray(weight)[..., None]).dense
        products = {"product": rows.mul_vec(jnp.asarray(a)), "transposed": rows.mul_vec_t(jnp.asarray(b))}
        return products | {"dense": rows.dense, "gram": weighted, "first": rows.leading(1).dense}

    ours, flat = found(jnp.asarray(entries)), dense.reshape(8, -1)
    inside = label[:, None] == label[None]
    assert_close("dense", ours["dense"], flat, 1e-15)
    assert_close("first", ours["first"], dense[0], 1e-15)
    assert_close("product", ours["product"], flat @ a, 1e-13)
    assert_close("transposed", ours["transposed"], b @ flat, 1e-13)
    assert_close("gram", ours["gram"], np.where(inside, flat.T @ (weight.reshape(-1, 1) * flat), 0), 1e-13)


def test_equal_blocks_are_equal() -> None:
    """They are part of the structure of pytrees, and of the keys of compiled programs."""
    label = np.array(LABELS["scattered"])
    assert blocks_of(label) == blocks_of(label + 1)
    assert hash(blocks_of(label)) == hash(blocks_of(label + 1))
    assert blocks_of(label) != blocks_of(label[::-1])
    assert pickle.loads(pickle.dumps(blocks_of(label))) == blocks_of(label)


def test_derivative_is_that_of_the_dense_solve() -> None:
    label = np.array(LABELS["scattered"])
    split, matrix = blocks_of(label), jnp.asarray(random_matrix(label, 3))
    b = jnp.asarray(np.random.default_rng(4).normal(size=len(label)))
    ours = uncompiled(jax.jacobian(lambda m: solve_blocks(diagonal_of(split, m), b)))(matrix)
    dense = uncompiled(jax.jacobian(lambda m: jnp.linalg.solve(m, b)))(matrix)
    # entries between blocks are not read, and the lower triangle stands for both
    inside = label[:, None] == label[None]
    symmetric = np.where(inside, np.asarray(dense + np.swapaxes(dense, 1, 2)), 0)
    assert_close("jacobian", np.asarray(ours + np.swapaxes(ours, 1, 2)), symmetric, 1e-11)
