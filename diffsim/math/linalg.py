"""Linear algebra with matrices as large as the model: dense, or split into the diagonal blocks of a matrix.

The inertia matrix M couples only dofs of the same kinematic tree, so it is block diagonal. The columns of the Jacobian
J are split into the same blocks. Zeros between blocks are neither stored nor multiplied. Blocks of equal size are
stored in one array and factored together. If there is only one block, everything is dense.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import jax.scipy.linalg
import numpy as np
from jax import Array

from diffsim.math.vector import matmul, total
from diffsim.xla.barriers import for_cpu, stored
from diffsim.xla.bilinear import stored_in_order
from diffsim.xla.gather import pick_some
from diffsim.xla.solves.cholesky import factor, solve

# how many products with the whole Hessian a solve by blocks is assumed to take (a solve with a dense factor takes none)
PRODUCTS = 8


def cholesky(matrix: Array) -> Array:
    """(..., n, n) lower factor L with matrix = L L^T; nan where the matrix is not symmetric positive definite."""
    return factor(matrix)


def cho_solve(lower: Array, b: Array) -> Array:
    """The solution x of L L^T x = b, for b of shape (n,) or (n, k)."""
    return solve(lower, b[:, None])[:, 0] if b.ndim == 1 else solve(lower, b)


def solve_spd(matrix: Array, b: Array) -> Array:
    """The solution x (n,) or (n, k) of matrix x = b, for a symmetric positive definite matrix (n, n)."""
    return cho_solve(cholesky(matrix), b)


# one array (count, size, size) per block size
PerSize = tuple[Array, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Blocks:
    """The rows and columns of the diagonal blocks of a square matrix. Rows and columns outside all blocks are zero.

    Attributes:
      size: number of rows of the matrix.
      index: for each block size, (number of blocks, size of a block) the rows of each block.
    """

    size: int
    index: tuple[np.ndarray, ...]

    @functools.cached_property
    def _key(self) -> tuple:
        """What equality and the hash compare: arrays themselves have no hash."""
        return (self.size, *((index.shape, index.tobytes()) for index in self.index))

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Blocks) and self._key == other._key)

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def single(self) -> bool:
        """Whether one block is the whole matrix."""
        return len(self.index) == 1 and self.index[0].shape == (1, self.size)

    @functools.cached_property
    def entry(self) -> np.ndarray:
        """(size, size) number of each entry in the list of all entries of blocks, counted from 1; 0 between blocks."""
        table = np.zeros((self.size, self.size), np.int32)
        start = 1
        for index in self.index:
            count, size = index.shape
            numbers = start + np.arange(count * size * size).reshape(count, size, size)
            table[index[:, :, None], index[:, None, :]] = numbers
            start += numbers.size
        return table

    @functools.cached_property
    def table(self) -> np.ndarray:
        """(count, largest size) the rows of each block, one block size after another; short rows are padded with -1."""
        most = max((index.shape[1] for index in self.index), default=0)
        wide = [np.pad(index, ((0, 0), (0, most - index.shape[1])), constant_values=-1) for index in self.index]
        return np.concatenate([np.zeros((0, most), int), *wide])

    def by_size(self, listed: Array) -> tuple[Array, ...]:
        """Splits an array (count, ...) with a row for each row of `table` into one array for each block size."""
        ends = np.cumsum([len(index) for index in self.index])
        return tuple(jnp.split(listed, ends[:-1]))

    @functools.cached_property
    def order(self) -> np.ndarray | None:
        """(size,) position of each row in the concatenation of all blocks, -1 outside blocks; None if it is the row."""
        listed = np.concatenate([index.reshape(-1) for index in self.index])
        if np.array_equal(listed, np.arange(self.size)):
            return None
        place = np.full(self.size, -1)
        place[listed] = np.arange(len(listed))
        return place


def blocks_of(label: np.ndarray) -> Blocks:
    """Blocks of the rows with equal labels (n,); one empty block if n is 0."""
    groups = [np.flatnonzero(label == value) for value in np.unique(label)] or [np.zeros(0, int)]
    sizes = sorted({len(group) for group in groups}, reverse=True)
    return Blocks(len(label), tuple(np.stack([g for g in groups if len(g) == size]) for size in sizes))


def worthwhile_blocks(label: np.ndarray) -> Blocks:
    """Blocks of the rows with equal labels (n,); one block if splitting the matrix does not pay (`worthwhile`)."""
    blocks = blocks_of(label)
    return blocks if worthwhile(blocks) else blocks_of(np.zeros(len(label), int))


def worthwhile(blocks: Blocks) -> bool:
    """Whether a Newton step by blocks needs less than half of the multiplications of a dense one.

    The estimate assumes n rows of constraints for n dofs. A dense step computes J^T K J and its factor. A step by
    blocks does so for each block, then takes some products with the whole Hessian (solver/hessian.py).
    """
    n = blocks.size
    # a factor takes n^3 / 3 multiplications, J^T K J takes n^3; a product with the Hessian takes about 3 n^2
    blocked = sum(index.size * index.shape[1] * (index.shape[1] / 3 + n) for index in blocks.index)
    return 2 * (blocked + PRODUCTS * n * 3 * n) < n * n * (n / 3 + n)


def split(values: Array, index: np.ndarray) -> Array:
    """(..., count, size) the entries of values (..., n) in each block."""
    flat = index.reshape(-1)
    start = int(flat[0]) if flat.size else 0
    # a slice if the rows are consecutive
    consecutive = np.array_equal(flat, start + np.arange(flat.size))
    taken = slice(start, start + flat.size) if consecutive else flat
    return values[..., taken].reshape(*values.shape[:-1], *index.shape)


def assemble(blocks: Blocks, parts: tuple[Array, ...]) -> Array:
    """(n,) vector from the entries (count, size) of the blocks of each size: the inverse of `split`."""
    flat = jnp.concatenate([part.reshape(-1) for part in parts])
    return flat if blocks.order is None else pick_some(flat, blocks.order)


def per_block(function: Callable[..., Array], *parts: Array | np.ndarray) -> Array:
    """Applies a function to each block of one size, by `vmap`, or directly if there is only one block."""
    if parts[0].shape[0] == 1:
        return function(*(part[0] for part in parts))[None]
    return jax.vmap(function)(*parts)


def block_factor(parts: PerSize) -> PerSize:
    """Lower Cholesky factors of positive definite blocks."""
    return tuple(cholesky(part) for part in parts)


def block_solve(blocks: Blocks, factor: PerSize, b: Array) -> Array:
    """The solution x (n,) of matrix x = b, from the Cholesky factors of its blocks."""
    if blocks.single:
        return cho_solve(factor[0][0], b)
    pairs = zip(factor, blocks.index, strict=True)
    return assemble(blocks, tuple(jax.vmap(cho_solve)(part, split(b, index)) for part, index in pairs))


@functools.partial(jax.tree_util.register_dataclass, data_fields=["parts"], meta_fields=["blocks"])
@dataclasses.dataclass(frozen=True, eq=False)
class BlockDiagonal:
    """A block-diagonal square matrix: `parts` (count, size, size), one array per block size."""

    blocks: Blocks
    parts: PerSize

    def mul_vec(self, vector: Array) -> Array:
        """The product (n,) with a vector (n,)."""
        entries = (split(vector, index) for index in self.blocks.index)
        return assemble(self.blocks, tuple(per_block(matmul, *pair) for pair in zip(self.parts, entries, strict=True)))

    def plus_diagonal(self, diagonal: Array) -> "BlockDiagonal":
        """The sum of this matrix and a diagonal one, given as (n,)."""
        parts = []
        for part, index in zip(self.parts, self.blocks.index, strict=True):
            values = split(diagonal, index)
            parts.append(part + jnp.eye(values.shape[1], dtype=values.dtype)[None] * values[:, None, :])
        return BlockDiagonal(self.blocks, tuple(parts))

    def plus(self, other: "BlockDiagonal") -> "BlockDiagonal":
        """The sum of this matrix and one that has some of its blocks."""
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
        """The whole matrix (n, n); (..., n, n) for a batch of matrices."""
        if self.blocks.single:
            return self.parts[0][..., 0, :, :]
        batch = self.parts[0].shape[:-3]
        zero = jnp.zeros((*batch, 1), self.parts[0].dtype)
        entries = [jax.lax.collapse(part, part.ndim - 3) for part in self.parts]
        return jnp.concatenate([zero, *entries], axis=-1)[..., self.blocks.entry]


@jax.custom_jvp
def _stored_for_derivatives(values: Array) -> Array:
    """The same array; under differentiation it is `stored`, because derivatives read it many times."""
    return values


@_stored_for_derivatives.defjvp
def _stored_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    """The rule that is used only under differentiation."""
    return stored(*primals), tangents[0]


@functools.partial(jax.tree_util.register_dataclass, data_fields=["parts", "transposed"], meta_fields=["blocks"])
@dataclasses.dataclass(frozen=True, eq=False)
class BlockColumns:
    """A matrix (k, n) whose columns are grouped by block.

    Attributes:
      blocks: the columns of each block.
      parts: for each block size, (count, k, size) the columns of each block.
      transposed: for each block size, (count, size, k) the transpose of `parts`, if it is stored too.
    """

    blocks: Blocks
    parts: PerSize
    transposed: PerSize | None = None

    def readable_by_columns(self) -> "BlockColumns":
        """This matrix; on a CPU, where products that read columns take twice as long, with its transpose stored.

        On a GPU neighboring threads read neighboring columns, so a copy would only cost two more passes over memory.
        With many blocks, J is mostly zeros, and J and its transpose together do not fit into a cache.
        """
        if not for_cpu() or not self.blocks.single:
            return self
        transposed = tuple(stored_in_order(jnp.swapaxes(part, 1, 2)) for part in self.parts)
        return dataclasses.replace(self, transposed=transposed)

    @property
    def height(self) -> int:
        """Number of rows."""
        return self.parts[0].shape[-2]

    @property
    def dtype(self) -> jnp.dtype:
        """The dtype of the entries."""
        return self.parts[0].dtype

    def mul_vec(self, vector: Array) -> Array:
        """The product (k,) with a vector (n,)."""
        entries = (split(vector, index) for index in self.blocks.index)
        products = [per_block(matmul, *pair) for pair in zip(self.parts, entries, strict=True)]
        return total([jnp.sum(product, axis=0) if product.shape[0] > 1 else product[0] for product in products])

    def mul_vec_t(self, vector: Array) -> Array:
        """The transposed matrix times a vector (k,)."""
        vector = _stored_for_derivatives(vector)

        def product(part: Array) -> Array:
            copies = jnp.broadcast_to(vector, (part.shape[0], *vector.shape))
            return per_block(matmul, copies, part) if self.transposed is None else per_block(matmul, part, copies)

        return assemble(self.blocks, tuple(map(product, self.transposed or self.parts)))

    def take(self, rows: Array) -> "BlockColumns":
        """The rows with these numbers (m,)."""
        few = BlockColumns(self.blocks, tuple(part[:, rows] for part in self.parts))
        return few if self.transposed is None else few.readable_by_columns()

    @property
    def dense(self) -> Array:
        """The whole matrix (k, n); (..., k, n) for a batch of matrices."""
        if self.blocks.single:
            return self.parts[0][..., 0, :, :]
        columns = [jnp.moveaxis(part, -3, -2) for part in self.parts]
        listed = jnp.concatenate([jax.lax.collapse(part, part.ndim - 2) for part in columns], axis=-1)
        if self.blocks.order is None:
            return listed
        # columns outside all blocks read the column of zeros that is appended here (their order is -1)
        return jnp.pad(listed, [(0, 0)] * (listed.ndim - 1) + [(0, 1)])[..., self.blocks.order]


def diagonal_of(blocks: Blocks, matrix: Array) -> BlockDiagonal:
    """The diagonal blocks of a dense matrix (n, n), without the entries between blocks."""
    if blocks.single:
        return BlockDiagonal(blocks, (matrix[None],))
    return BlockDiagonal(blocks, tuple(matrix[index[:, :, None], index[:, None, :]] for index in blocks.index))


def columns_of(blocks: Blocks, matrix: Array) -> BlockColumns:
    """A dense matrix (k, n) with its columns grouped by block."""
    return BlockColumns(blocks, tuple(jnp.moveaxis(split(matrix, index), -2, -3) for index in blocks.index))


def stack_rows(blocks: Blocks, matrices: Sequence[BlockColumns]) -> BlockColumns:
    """Matrices with the same columns, one below the other."""
    parts = zip(*(matrix.parts for matrix in matrices), strict=True)
    return BlockColumns(blocks, tuple(jnp.concatenate(part, axis=1) for part in parts))


def gram(left: BlockColumns, right: BlockColumns) -> BlockDiagonal:
    """The diagonal blocks of left^T right."""
    transposed = left.transposed or tuple(jnp.swapaxes(part, 1, 2) for part in left.parts)
    return BlockDiagonal(
        left.blocks, tuple(per_block(matmul, *pair) for pair in zip(transposed, right.parts, strict=True))
    )
