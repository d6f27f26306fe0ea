"""Block diagonal linear algebra: matrices that couple only the indices of one group, as inertia couples only one tree.

Blocks of one size are factored together. With a single block everything is the dense algebra of linalg.py.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.math.linalg import after, cho_solve, cholesky, matmul

Array = jax.Array
# one array (count, size, size) per block size
PerSize = tuple[Array, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Blocks:
    """Groups of indices of a square matrix of `size` rows: `index` (count, size of block), one array per block size."""

    size: int
    index: tuple[np.ndarray, ...]

    @property
    def single(self) -> bool:
        """Whether one block is the whole matrix."""
        return len(self.index) == 1 and self.index[0].shape[0] == 1

    @property
    def order(self) -> np.ndarray | None:
        """Where each index stands in the concatenation of all blocks; None where it stands in place."""
        listed = np.concatenate([index.reshape(-1) for index in self.index])
        return None if np.array_equal(listed, np.arange(self.size)) else np.argsort(listed)


def blocks_of(label: np.ndarray) -> Blocks:
    """Blocks of equal labels (n,); one block without indices if there are none."""
    groups = [np.flatnonzero(label == value) for value in np.unique(label)] or [np.zeros(0, int)]
    sizes = sorted({len(group) for group in groups}, reverse=True)
    return Blocks(len(label), tuple(np.stack([g for g in groups if len(g) == size]) for size in sizes))


def split(values: Array, index: np.ndarray) -> Array:
    """(..., count, size) of values (..., n): the entries of each block."""
    start = int(index[0, 0]) if index.size else 0
    if np.array_equal(index.reshape(-1), start + np.arange(index.size)):
        return values[..., start : start + index.size].reshape(*values.shape[:-1], *index.shape)
    return values[..., index]


def join(blocks: Blocks, parts: tuple[Array, ...]) -> Array:
    """(n,) from the entries (count, size) of the blocks of each size."""
    flat = jnp.concatenate([part.reshape(-1) for part in parts])
    return flat if blocks.order is None else flat[blocks.order]


def diagonal_blocks(blocks: Blocks, matrix: Array) -> PerSize:
    """The blocks of a matrix (n, n)."""
    if blocks.single:
        return (matrix[None],)
    return tuple(matrix[index[:, :, None], index[:, None, :]] for index in blocks.index)


def gram_blocks(blocks: Blocks, rows: Array, weighted: Array) -> PerSize:
    """The blocks of rows^T weighted, both (k, n)."""

    def of_size(index: np.ndarray) -> Array:
        left, right = (jnp.moveaxis(split(values, index), 0, 1) for values in (rows, weighted))
        return matmul(jnp.swapaxes(left, 1, 2), right)

    return tuple(of_size(index) for index in blocks.index)


def block_factor(parts: PerSize) -> PerSize:
    """Lower Cholesky factors of positive definite blocks, one size after the other (see linalg.after)."""
    factors: list[Array] = []
    for part in parts:
        factors.append(cholesky(after(part, factors[-1]) if factors else part))
    return tuple(factors)


def block_solve(blocks: Blocks, factor: PerSize, b: Array) -> Array:
    """x (n,) with matrix x = b."""
    if blocks.single:
        return cho_solve(factor[0][0], b)
    solved: list[Array] = []
    for part, index in zip(factor, blocks.index, strict=True):
        entries = after(split(b, index), solved[-1] if solved else factor[-1])
        solved.append(jax.vmap(cho_solve)(part, entries))
    return join(blocks, tuple(solved))


def solve_blocks(blocks: Blocks, matrix: Array, b: Array) -> Array:
    """x (n,) with matrix x = b, for a positive definite matrix (n, n) without entries between blocks."""
    return block_solve(blocks, block_factor(diagonal_blocks(blocks, matrix)), b)


def solve_general_blocks(blocks: Blocks, matrix: Array, b: Array) -> Array:
    """x (n,) with matrix x = b, for a regular matrix (n, n) without entries between blocks."""
    if blocks.single:
        return jnp.linalg.solve(matrix, b)
    solved: list[Array] = []
    for part, index in zip(diagonal_blocks(blocks, matrix), blocks.index, strict=True):
        ready = after(part, solved[-1]) if solved else part
        solved.append(jnp.linalg.solve(ready, split(b, index)[..., None])[..., 0])
    return join(blocks, tuple(solved))
