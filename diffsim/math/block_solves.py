"""Solutions of systems with block-diagonal matrices, by Cholesky or LU factors, and their derivatives."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.linalg
from jax import Array
from jax.ad_checkpoint import checkpoint_name

from diffsim.math.linalg import BlockDiagonal, Blocks, assemble, block_factor, block_solve, split
from diffsim.math.vector import matmul
from diffsim.xla.reverse_mode import SEARCH_RESULT
from diffsim.xla.solves.cholesky import Limbs, is_small, solve_sum

# for each block size, the LU factors (count, size, size) and their pivots (count, size)
PerSizeLU = tuple[tuple[Array, Array], ...]
# (blocks of a matrix, its factors, b (n,)) -> x (n,)
Solve = Callable[[Blocks, Any, Array], Array]


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def solved(solve: Solve, matrix: BlockDiagonal, factor: Any, b: Array) -> Array:
    """The solution x (n,) of matrix x = b, by factors that have been computed.

    Derivatives treat x as a function of the matrix and b: dx = matrix^-1 (db - dmatrix x), with the same factors. The
    first derivative ignores the tangent of the factors; the second derivative differentiates the factors in dx.
    """
    return solve(matrix.blocks, factor, b)


@solved.defjvp
def _solved_jvp(solve: Solve, primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    """dx = matrix^-1 (db - dmatrix x)."""
    matrix, factor, b = primals
    dmatrix, _, db = tangents
    x = solved(solve, matrix, factor, b)
    return x, solved(solve, matrix, factor, db - dmatrix.mul_vec(x))


def solve_blocks(matrix: BlockDiagonal, b: Array, limbs: Limbs | None = None) -> Array:
    """The solution x (n,) of matrix x = b, for a positive definite matrix; `limbs` is its sparsity, if known."""
    if matrix.blocks.single and is_small(matrix.parts[0]):
        return solve_once(limbs, matrix.parts[0][0], b)
    return solved(block_solve, matrix, block_factor(matrix.parts), b)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def solve_once(limbs: Limbs | None, matrix: Array, b: Array) -> Array:
    """The solution x (n,) of matrix x = b, for a small positive definite matrix, factored and solved in one operation.

    Reverse mode stores x and solves once more with the same matrix.
    """
    return solve_sum([matrix], jnp.zeros((0,), b.dtype), b, limbs)


@solve_once.defjvp
def _solve_once_jvp(
    limbs: Limbs | None, primals: tuple[Array, Array], tangents: tuple[Array, Array]
) -> tuple[Array, Array]:
    """dx = matrix^-1 (db - dmatrix x). `checkpoint_name` keeps x, so that reverse mode does not solve for it again."""
    matrix, b = primals
    dmatrix, db = tangents
    x = checkpoint_name(solve_once(limbs, matrix, b), SEARCH_RESULT)
    return x, solve_once(limbs, matrix, db - matmul(dmatrix, x))


def solve_general_blocks(matrix: BlockDiagonal, b: Array) -> Array:
    """The solution x (n,) of matrix x = b, for any nonsingular matrix."""
    return solved(general_solve, matrix, general_factor(matrix), b)


def general_factor(matrix: BlockDiagonal) -> PerSizeLU:
    """LU factors of nonsingular blocks."""
    return tuple(jax.vmap(jax.scipy.linalg.lu_factor)(part) for part in matrix.parts)


def general_solve(blocks: Blocks, factors: PerSizeLU, b: Array) -> Array:
    """The solution x (n,) from LU factors."""
    pairs = zip(factors, blocks.index, strict=True)
    return assemble(blocks, tuple(jax.vmap(jax.scipy.linalg.lu_solve)(lu, split(b, index)) for lu, index in pairs))
