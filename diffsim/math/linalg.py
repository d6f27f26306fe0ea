"""Dense linear algebra of the size of the model, at full precision (TF32 and bfloat16 break dynamics)."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from diffsim.xla.kernels.cholesky import factor, solve
from diffsim.xla.kernels.solve_sum import solve_gram, solve_sum

Array = jax.Array

HIGHEST = jax.lax.Precision.HIGHEST


def matmul(a: Array, b: Array) -> Array:
    """a @ b at the highest precision."""
    return jnp.matmul(a, b, precision=HIGHEST)


def inner(a: Array, b: Array) -> Array:
    """a . b of vectors at the highest precision."""
    return jnp.vdot(a, b, precision=HIGHEST)


def cholesky(matrix: Array) -> Array:
    """Lower factor L of a symmetric positive definite matrix, matrix = L L^T; nan where it is not one."""
    return factor(matrix)


def cho_solve(lower: Array, b: Array) -> Array:
    """x with L L^T x = b, for b of shape (n,) or (n, k)."""
    return solve(lower, b[:, None])[:, 0] if b.ndim == 1 else solve(lower, b)


def solve_spd(matrix: Array, b: Array) -> Array:
    """x with matrix x = b, for a symmetric positive definite matrix."""
    return cho_solve(cholesky(matrix), b)


def solve_spd_sum(matrices: Sequence[Array], diagonal: Array, b: Array) -> Array:
    """x (n,) with A x = b, where A, the sum of matrices and a diagonal (n,), is symmetric positive definite."""
    return solve_sum(matrices, diagonal, b)


def solve_spd_gram(matrix: Array, diagonal: Array, rows: tuple[Array, Sequence[Array]], b: Array) -> Array:
    """x (n,) with (M + diagonal + J^T K J) x = b; rows are J (k, n) and K (dim, count, dim) of all its constraints."""
    return solve_gram(matrix, diagonal, rows, b)
