"""Block diagonal algebra against the dense algebra of the same matrix, blocks in place and scattered."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracle import assert_close

from diffsim.math.block_matrix import (
    columns_of,
    diagonal_of,
    gram,
    solve_blocks,
    solve_general_blocks,
    stack_rows,
)
from diffsim.math.blocks import blocks_of

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
    ours = solve_blocks(diagonal_of(split, jnp.asarray(matrix)), jnp.asarray(b))
    assert_close("spd", ours, np.linalg.solve(matrix, b), 1e-12)
    skew = matrix + np.triu(0.1 * matrix, 1)
    ours = solve_general_blocks(diagonal_of(split, jnp.asarray(skew)), jnp.asarray(b))
    assert_close("general", ours, np.linalg.solve(skew, b), 1e-12)


@pytest.mark.parametrize("name", LABELS)
def test_block_diagonal_matrix_is_the_dense_one(name: str) -> None:
    label = np.array(LABELS[name])
    split, matrix, b = blocks_of(label), random_matrix(label, 5), np.random.default_rng(6).normal(size=len(label))
    ours = diagonal_of(split, jnp.asarray(matrix))
    assert_close("dense", ours.dense, matrix, 0)
    assert_close("diagonal", ours.diagonal, np.diagonal(matrix), 0)
    assert_close("product", ours.mul_vec(jnp.asarray(b)), matrix @ b, 1e-12)
    assert_close("sum", ours.plus_diagonal(jnp.asarray(b)).dense, matrix + np.diag(b), 0)
    batch = jax.vmap(lambda scale: jax.tree.map(lambda part: scale * part, ours))(jnp.arange(3.0))
    assert_close("batch", batch.dense, np.arange(3.0)[:, None, None] * matrix, 0)


@pytest.mark.parametrize("name", LABELS)
def test_columns_are_those_of_the_dense_matrix(name: str) -> None:
    label, rng = np.array(LABELS[name]), np.random.default_rng(7)
    split, left, right = blocks_of(label), random_rows(label, 2), random_rows(label, 3)
    a, b = rng.normal(size=len(label)), rng.normal(size=5)
    ours = columns_of(split, left)
    assert ours.height == 5
    assert_close("dense", ours.dense, np.asarray(left), 0)
    assert_close("product", ours.mul_vec(jnp.asarray(a)), left @ a, 1e-13)
    none = columns_of(split, left[:0])
    assert none.dense.shape == (0, len(label))
    assert_close("no rows", none.mul_vec_t(jnp.zeros(0)), np.zeros(len(label)), 0)
    assert none.mul_vec(jnp.asarray(a)).shape == (0,)
    assert_close("no rows", gram(none, none).dense, np.zeros((len(label), len(label))), 0)
    both = stack_rows(split, [ours, columns_of(split, right)])
    assert_close("stack", both.dense, np.concatenate([left, right]), 0)
    expected = diagonal_of(split, jnp.asarray(left.T @ right)).dense
    for one in (ours, ours.with_transpose()):
        assert_close("gram", gram(one, columns_of(split, right)).dense, np.asarray(expected), 1e-13)
        assert_close("transposed", one.mul_vec_t(jnp.asarray(b)), b @ left, 1e-13)


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
    ours = jax.jacobian(lambda m: solve_blocks(diagonal_of(split, m), b))(matrix)
    dense = jax.jacobian(lambda m: jnp.linalg.solve(m, b))(matrix)
    # entries between blocks are not read, and the lower triangle stands for both
    inside = label[:, None] == label[None]
    symmetric = np.where(inside, np.asarray(dense + np.swapaxes(dense, 1, 2)), 0)
    assert_close("jacobian", np.asarray(ours + np.swapaxes(ours, 1, 2)), symmetric, 1e-11)
