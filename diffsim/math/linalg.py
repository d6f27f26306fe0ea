"""Dense linear algebra of the size of the model, at full precision (TF32 and bfloat16 break dynamics)."""

from typing import TypeVar

import jax
import jax.numpy as jnp
import jax.scipy.linalg

Array = jax.Array
T = TypeVar("T")

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


def after(value: T, earlier: Array) -> T:
    """The same arrays, but not before `earlier` is computed. Orders LAPACK calls that do not depend on each other.

    Two batched LAPACK calls at once can wait for each other forever: on a CPU each holds a thread of XLA's pool (as
    many as cores) while it waits for its part of the batch (jaxlib 0.10). XLA drops optimization barriers on the CPU,
    so that only a dependence of numbers helps.
    """
    if not earlier.size:
        return value
    zero = 0 * jax.lax.stop_gradient(jnp.ravel(earlier)[0])
    return jax.tree.map(lambda leaf: leaf + zero, value)
