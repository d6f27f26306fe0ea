"""Dense linear algebra of the size of the model, at full precision (TF32 and bfloat16 break dynamics)."""

import jax
import jax.numpy as jnp
import jax.scipy.linalg

Array = jax.Array

HIGHEST = jax.lax.Precision.HIGHEST


def matmul(a: Array, b: Array) -> Array:
    """a @ b at the highest precision."""
    return jnp.matmul(a, b, precision=HIGHEST)


def cholesky(matrix: Array) -> Array:
    """Lower factor L of a symmetric positive definite matrix, matrix = L L^T; only the lower triangle is read."""
    return jax.lax.linalg.cholesky(matrix, symmetrize_input=False)


def cho_solve(factor: Array, b: Array) -> Array:
    """x with L L^T x = b, for b of shape (n,) or (n, k)."""
    return jax.scipy.linalg.cho_solve((factor, True), b)


def solve_spd(matrix: Array, b: Array) -> Array:
    """x with matrix x = b, for a symmetric positive definite matrix."""
    return cho_solve(cholesky(matrix), b)
