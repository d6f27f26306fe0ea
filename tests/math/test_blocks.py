"""Block diagonal algebra against the dense algebra of the same matrix, blocks in place and scattered."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracle import assert_close

from diffsim.math import blocks

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


@pytest.mark.parametrize("name", LABELS)
def test_blocks_solve_as_the_whole_does(name: str) -> None:
    label = np.array(LABELS[name])
    split, matrix, b = (
        blocks.blocks_of(label),
        random_matrix(label, 0),
        np.random.default_rng(1).normal(size=len(label)),
    )
    assert split.single == (name in ("none", "one"))
    assert_close(
        "spd", blocks.solve_blocks(split, jnp.asarray(matrix), jnp.asarray(b)), np.linalg.solve(matrix, b), 1e-12
    )
    skew = matrix + np.triu(0.1 * matrix, 1)
    ours = blocks.solve_general_blocks(split, jnp.asarray(skew), jnp.asarray(b))
    assert_close("general", ours, np.linalg.solve(skew, b), 1e-12)


@pytest.mark.parametrize("name", LABELS)
def test_gram_blocks_are_those_of_the_product(name: str) -> None:
    label = np.array(LABELS[name])
    split, rng = blocks.blocks_of(label), np.random.default_rng(2)
    rows, weighted = rng.normal(size=(2, 5, len(label)))
    expected = blocks.diagonal_blocks(split, jnp.asarray(rows.T @ weighted))
    for ours, theirs in zip(blocks.gram_blocks(split, jnp.asarray(rows), jnp.asarray(weighted)), expected, strict=True):
        assert_close("gram", ours, np.asarray(theirs), 1e-13)


def test_derivative_is_that_of_the_dense_solve() -> None:
    label = np.array(LABELS["scattered"])
    split, matrix = blocks.blocks_of(label), jnp.asarray(random_matrix(label, 3))
    b = jnp.asarray(np.random.default_rng(4).normal(size=len(label)))
    ours = jax.jacobian(lambda m: blocks.solve_blocks(split, m, b))(matrix)
    dense = jax.jacobian(lambda m: jnp.linalg.solve(m, b))(matrix)
    # entries between blocks are not read, and the lower triangle stands for both
    inside = label[:, None] == label[None]
    symmetric = np.where(inside, np.asarray(dense + np.swapaxes(dense, 1, 2)), 0)
    assert_close("jacobian", np.asarray(ours + np.swapaxes(ours, 1, 2)), symmetric, 1e-11)
