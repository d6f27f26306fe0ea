"""Matrices by blocks: M, which couples only the dofs of one tree, and J, whose columns go with the blocks of M.

What is zero is neither stored nor multiplied. With a single block these are dense matrices.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.linalg
import numpy as np

from diffsim.math.blocks import Blocks, PerSize, assemble, block_factor, block_solve, each, split
from diffsim.math.linalg import matmul
from diffsim.math.vector import total
from diffsim.math.xla import for_cpu

Array = jax.Array


@functools.partial(jax.tree_util.register_dataclass, data_fields=["parts"], meta_fields=["blocks"])
@dataclasses.dataclass(frozen=True, eq=False)
class BlockDiagonal:
    """A square matrix without entries between blocks: `parts` (count, size, size), one array per block size."""

    blocks: Blocks
    parts: PerSize

    def mul_vec(self, vector: Array) -> Array:
        """The product (n,) with a vector (n,)."""
        entries = (split(vector, index) for index in self.blocks.index)
        return assemble(self.blocks, tuple(each(matmul, *pair) for pair in zip(self.parts, entries, strict=True)))

    def plus_diagonal(self, diagonal: Array) -> "BlockDiagonal":
        """The sum with a diagonal matrix, given as (n,)."""
        pairs = zip(self.parts, self.blocks.index, strict=True)
        return BlockDiagonal(self.blocks, tuple(part + _diagonal(split(diagonal, index)) for part, index in pairs))

    @property
    def diagonal(self) -> Array:
        """The diagonal (n,)."""
        return assemble(self.blocks, tuple(jnp.diagonal(part, axis1=-2, axis2=-1) for part in self.parts))

    @property
    def dense(self) -> Array:
        """The whole matrix (..., n, n), also of a batch of matrices."""
        if self.blocks.single:
            return self.parts[0][..., 0, :, :]
        batch = self.parts[0].shape[:-3]
        zero = jnp.zeros((*batch, 1), self.parts[0].dtype)
        entries = [jax.lax.collapse(part, part.ndim - 3) for part in self.parts]
        return jnp.concatenate([zero, *entries], axis=-1)[..., self.blocks.entry]


@functools.partial(jax.tree_util.register_dataclass, data_fields=["parts"], meta_fields=["blocks", "upright"])
@dataclasses.dataclass(frozen=True, eq=False)
class BlockColumns:
    """A matrix (k, n) with its columns apart by block: `parts` (count, k, size), one array per block size.

    On a CPU `upright`, each column in one piece: `parts` (count, size, k). There rows are many and columns few, so that
    what is done to all rows goes along memory, and the product of two such matrices needs none of them transposed. On a
    GPU neighbouring threads read neighbouring columns.
    """

    blocks: Blocks
    parts: PerSize
    upright: bool = False

    @property
    def height(self) -> int:
        """Number of rows."""
        return self.parts[0].shape[-1 if self.upright else -2]

    @property
    def dtype(self) -> jnp.dtype:
        """Of the entries."""
        return self.parts[0].dtype

    @property
    def columns(self) -> PerSize:
        """(..., count, size, k) columns in one piece, also of a batch of matrices."""
        return self.parts if self.upright else tuple(jnp.swapaxes(part, -1, -2) for part in self.parts)

    def each_column(self, function: Callable[[Array], Array]) -> "BlockColumns":
        """The matrix of a function of the rows (k, ...), whatever comes after the first axis."""
        act = jax.vmap(function) if self.upright else function
        return dataclasses.replace(self, parts=tuple(each(act, part) for part in self.parts))

    def mul_vec(self, vector: Array) -> Array:
        """The product (k,) with a vector (n,)."""
        pairs = zip(self.parts, (split(vector, index) for index in self.blocks.index), strict=True)
        products = [each(matmul, own, part) if self.upright else each(matmul, part, own) for part, own in pairs]
        return total([jnp.sum(product, axis=0) if product.shape[0] > 1 else product[0] for product in products])

    def mul_vec_t(self, vector: Array) -> Array:
        """The transposed matrix times a vector (k,)."""

        def of_size(part: Array) -> Array:
            copies = jnp.broadcast_to(vector, (part.shape[0], *vector.shape))
            return each(matmul, part, copies) if self.upright else each(matmul, copies, part)

        return assemble(self.blocks, tuple(of_size(part) for part in self.parts))

    @property
    def dense(self) -> Array:
        """The whole matrix (..., k, n), also of a batch of matrices."""
        listed = jnp.concatenate([jax.lax.collapse(part, part.ndim - 3, part.ndim - 1) for part in self.columns], -2)
        order = self.blocks.order
        return jnp.swapaxes(listed if order is None else listed[..., order, :], -1, -2)


def diagonal_of(blocks: Blocks, matrix: Array) -> BlockDiagonal:
    """The blocks of a dense matrix (n, n); what is between them is left out."""
    if blocks.single:
        return BlockDiagonal(blocks, (matrix[None],))
    return BlockDiagonal(blocks, tuple(matrix[index[:, :, None], index[:, None, :]] for index in blocks.index))


def columns_of(blocks: Blocks, matrix: Array) -> BlockColumns:
    """A dense matrix (k, n) by blocks."""
    upright = for_cpu()
    return BlockColumns(blocks, tuple(_columns(matrix, index, upright) for index in blocks.index), upright)


def _columns(matrix: Array, index: np.ndarray, upright: bool) -> Array:
    """Those of a matrix (k, n) that belong to blocks (count, size)."""
    return jnp.moveaxis(split(matrix, index), 0, -1) if upright else jnp.moveaxis(split(matrix, index), -2, -3)


def stack_rows(matrices: Sequence[BlockColumns]) -> BlockColumns:
    """Matrices with the same columns, one below the other."""
    parts, axis = zip(*(matrix.parts for matrix in matrices), strict=True), 2 if matrices[0].upright else 1
    return dataclasses.replace(matrices[0], parts=tuple(jnp.concatenate(part, axis=axis) for part in parts))


def gram(left: BlockColumns, right: BlockColumns) -> BlockDiagonal:
    """left^T right without what is between blocks."""

    def product(a: Array, b: Array) -> Array:
        return matmul(a, b.T) if left.upright else matmul(a.T, b)

    return BlockDiagonal(left.blocks, tuple(each(product, *pair) for pair in zip(left.parts, right.parts, strict=True)))


def _diagonal(values: Array) -> Array:
    """(count, size, size) diagonal matrices with `values` (count, size)."""
    return jnp.eye(values.shape[1], dtype=values.dtype)[None] * values[:, None, :]


PerSizeLU = tuple[tuple[Array, Array], ...]
# x (n,) from what was prepared of a matrix, and b (n,)
Solve = Callable[[Blocks, Any, Array], Array]


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def solved(solve: Solve, matrix: BlockDiagonal, factor: Any, b: Array) -> Array:
    """x (n,) with matrix x = b, by a factor that has been computed; a function of matrix and b for derivatives.

    dx = matrix^-1 (db - dmatrix x), with the same factor. The factor is no constant all the same: derivatives of dx go
    through it.
    """
    return solve(matrix.blocks, factor, b)


@solved.defjvp
def _solved_jvp(solve: Solve, primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    (matrix, factor, b), (change, _, push) = primals, tangents
    x = solved(solve, matrix, factor, b)
    return x, solved(solve, matrix, factor, push - change.mul_vec(x))


def solve_blocks(matrix: BlockDiagonal, b: Array) -> Array:
    """x (n,) with matrix x = b, for a positive definite matrix."""
    return solved(block_solve, matrix, block_factor(matrix.parts), b)


def solve_general_blocks(matrix: BlockDiagonal, b: Array) -> Array:
    """x (n,) with matrix x = b, for a regular matrix."""
    return solved(general_solve, matrix, general_factor(matrix), b)


def general_factor(matrix: BlockDiagonal) -> PerSizeLU:
    """LU factors of regular blocks."""
    return tuple(jax.vmap(jax.scipy.linalg.lu_factor)(part) for part in matrix.parts)


def general_solve(blocks: Blocks, factors: PerSizeLU, b: Array) -> Array:
    """x (n,) from LU factors."""
    pairs = zip(factors, blocks.index, strict=True)
    return assemble(blocks, tuple(jax.vmap(jax.scipy.linalg.lu_solve)(lu, split(b, index)) for lu, index in pairs))
