"""The definitions of the solves, in JAX and in numpy: what a kernel must equal, and what runs where there is none."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.xla.numpy_rules import RULES, cholesky, triangular_solve
from diffsim.xla.solves.cpu_cholesky import Limbs

Array = jax.Array


def product(a: Array, b: Array) -> Array:
    """a @ b at the highest precision."""
    return jnp.matmul(a, b, precision=jax.lax.Precision.HIGHEST)


def plain_factor(matrix: Array) -> Array:
    """Lower factors L (..., n, n) of symmetric positive definite matrices, nan where one is not: the definition."""
    return jax.lax.linalg.cholesky(matrix, symmetrize_input=False)


def plain_solve(lower: Array, b: Array) -> Array:
    """x (..., n, k) with L L^T x = b, of lower factors (..., n, n) and b (..., n, k): the definition."""
    half = jax.lax.linalg.triangular_solve(lower, b, left_side=True, lower=True)
    return jax.lax.linalg.triangular_solve(lower, half, left_side=True, lower=True, transpose_a=True)


# the matrix from what it is assembled of
Assemble = Callable[..., Array]


def plain_sum(*terms: Array) -> Array:
    """The sum of matrices (..., n, n) and, the last of the terms, of a diagonal (..., n), or of none (..., 0)."""
    first, *others, diagonal = terms
    unit = jnp.broadcast_to(jnp.eye(first.shape[-1], dtype=first.dtype), first.shape)
    total = first + unit * diagonal[..., None, :] if diagonal.shape[-1] else first
    for other in others:
        total = total + other
    return total


def plain_gram(matrix: Array, diagonal: Array, jacobian: Array, *weights: Array) -> Array:
    """M (..., n, n) + a diagonal (..., n) + J^T K J, of rows J (..., rows, n) and their weights.

    Weights (..., dim, count, dim) are K of `count` constraints of `dim` rows each, which follow one another in J:
    first components first.
    """
    total, start = plain_sum(matrix, diagonal), 0
    for weight in weights:
        dim, count, _ = weight.shape[-3:]
        rows = jacobian[..., start : start + dim * count, :]
        apart = rows.reshape(*rows.shape[:-2], dim, count, rows.shape[-1])
        weighted = jnp.einsum("...ick,...kcn->...icn", weight, apart, precision=jax.lax.Precision.HIGHEST)
        total, start = total + product(rows.mT, weighted.reshape(rows.shape)), start + dim * count
    return total


def plain_solve_sum(*arguments: Array, limbs: Limbs | None = None) -> Array:
    """x (..., n) with `plain_sum` of the terms times x = b, the last argument (..., n): the definition."""
    return _plain(plain_sum, arguments)


def plain_solve_gram(*arguments: Array) -> Array:
    """x (..., n) with `plain_gram` of the terms times x = b, the last argument (..., n): the definition."""
    return _plain(plain_gram, arguments)


def _plain(assemble: Assemble, arguments: Sequence[Array]) -> Array:
    *terms, b = arguments
    return plain_solve(plain_factor(assemble(*terms)), b[..., None])[..., 0]


def _numpy_solve(lower: np.ndarray, b: np.ndarray) -> np.ndarray:
    """x with L L^T x = b, of lower factors (..., n, n) and b (..., n, k)."""
    options = {"left_side": True, "lower": True, "unit_diagonal": False}
    half = triangular_solve(lower, b, transpose_a=False, **options)
    return triangular_solve(lower, half, transpose_a=True, **options)


def _numpy_solve_sum(*arguments: np.ndarray, **_: object) -> np.ndarray:
    """x (..., n) with A x = b, the last argument; A is the sum of matrices (..., n, n) and, after them, a diagonal,
    which may be empty.
    """
    *matrices, diagonal, b = arguments
    unit = np.eye(b.shape[-1], dtype=b.dtype)
    total = sum(matrices, unit * diagonal[..., None, :] if diagonal.shape[-1] else 0 * unit)
    return _numpy_solve(cholesky(total), b[..., None])[..., 0]


def _numpy_solve_gram(
    matrix: np.ndarray, diagonal: np.ndarray, jacobian: np.ndarray, *others: np.ndarray
) -> np.ndarray:
    """x (..., n) with (M + diagonal + J^T K J) x = b: rows of J, K (..., dim, count, dim) of all of them, and b."""
    *weights, b = others
    products, start = [], 0
    for weight in weights:
        dim, count, _ = weight.shape[-3:]
        rows = jacobian[..., start : start + dim * count, :]
        apart = rows.reshape(*rows.shape[:-2], dim, count, rows.shape[-1])
        products.append(np.einsum("...icn,...ick,...kcm->...nm", apart, weight, apart))
        start += dim * count
    return _numpy_solve_sum(matrix, *products, diagonal, b)


RULES["small_cholesky"] = cholesky
RULES["small_cholesky_solve"] = _numpy_solve
RULES["small_cholesky_solve_sum"] = _numpy_solve_sum
RULES["small_cholesky_solve_gram"] = _numpy_solve_gram
