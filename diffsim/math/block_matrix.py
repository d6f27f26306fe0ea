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
from diffsim.xla.barriers import barrier, for_gpu

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

    def plus(self, other: "BlockDiagonal") -> "BlockDiagonal":
        """The sum with a matrix that has some of these blocks."""
        parts = list(self.parts)
        for index, part in zip(other.blocks.index, other.parts, strict=True):
            if index.size:
                place = next(i for i, mine in enumerate(self.blocks.index) if np.array_equal(mine, index))
                parts[place] = parts[place] + part
        return BlockDiagonal(self.blocks, tuple(parts))

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


@functools.partial(jax.tree_util.register_dataclass, data_fields=["parts", "transposed"], meta_fields=["blocks"])
@dataclasses.dataclass(frozen=True, eq=False)
class BlockColumns:
    """A matrix (k, n) with its columns apart by block: `parts` (count, k, size), one array per block size.

    `transposed` (count, size, k) is the transpose, where it is stored too.
    """

    blocks: Blocks
    parts: PerSize
    transposed: PerSize | None = None

    def readable_by_columns(self) -> "BlockColumns":
        """The same, with its transpose stored on a CPU: reading by columns would take products there twice as long.

        On a GPU neighbouring threads read neighbouring columns: a copy would be two more passes over its memory. So it
        would be for many blocks, which are mostly zeros: J and its transpose do not fit into a cache together.
        """
        if for_gpu() or not self.blocks.single:
            return self
        transposed = tuple(barrier(jnp.swapaxes(part, 1, 2)) for part in self.parts)
        return dataclasses.replace(self, transposed=transposed)

    @property
    def height(self) -> int:
        """Number of rows."""
        return self.parts[0].shape[-2]

    @property
    def dtype(self) -> jnp.dtype:
        """Of the entries."""
        return self.parts[0].dtype

    def mul_vec(self, vector: Array) -> Array:
        """The product (k,) with a vector (n,)."""
        entries = (split(vector, index) for index in self.blocks.index)
        products = [each(matmul, *pair) for pair in zip(self.parts, entries, strict=True)]
        return total([jnp.sum(product, axis=0) if product.shape[0] > 1 else product[0] for product in products])

    def mul_vec_t(self, vector: Array) -> Array:
        """The transposed matrix times a vector (k,)."""

        def of_size(part: Array, left: bool) -> Array:
            copies = jnp.broadcast_to(vector, (part.shape[0], *vector.shape))
            return each(matmul, part, copies) if left else each(matmul, copies, part)

        left = self.transposed is not None
        return assemble(self.blocks, tuple(of_size(part, left) for part in self.transposed or self.parts))

    @property
    def dense(self) -> Array:
        """The whole matrix (..., k, n), also of a batch of matrices."""
        if self.blocks.single:
            return self.parts[0][..., 0, :, :]
        columns = [jnp.moveaxis(part, -3, -2) for part in self.parts]
        listed = jnp.concatenate([jax.lax.collapse(part, part.ndim - 2) for part in columns], axis=-1)
        if self.blocks.order is None:
            return listed
        # what is in no block stands last
        return jnp.pad(listed, [(0, 0)] * (listed.ndim - 1) + [(0, 1)])[..., self.blocks.order]


def diagonal_of(blocks: Blocks, matrix: Array) -> BlockDiagonal:
    """The blocks of a dense matrix (n, n); what is between them is left out."""
    if blocks.single:
        return BlockDiagonal(blocks, (matrix[None],))
    return BlockDiagonal(blocks, tuple(matrix[index[:, :, None], index[:, None, :]] for index in blocks.index))


def columns_of(blocks: Blocks, matrix: Array) -> BlockColumns:
    """A dense matrix (k, n) by blocks."""
    return BlockColumns(blocks, tuple(jnp.moveaxis(split(matrix, index), -2, -3) for index in blocks.index))


def stack_rows(blocks: Blocks, matrices: Sequence[BlockColumns]) -> BlockColumns:
    """Matrices with the same columns, one below the other."""
    parts = zip(*(matrix.parts for matrix in matrices), strict=True)
    return BlockColumns(blocks, tuple(jnp.concatenate(part, axis=1) for part in parts))


def gram(left: BlockColumns, right: BlockColumns) -> BlockDiagonal:
    """left^T right without what is between blocks."""
    transposed = left.transposed or tuple(jnp.swapaxes(part, 1, 2) for part in left.parts)
    return BlockDiagonal(left.blocks, tuple(each(matmul, *pair) for pair in zip(transposed, right.parts, strict=True)))


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
