"""The definitions of the solves by JAX's own operations, and in numpy. They run where there is no kernel."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.xla.numpy_rules import RULES, cholesky, triangular_solve
from diffsim.xla.solves.cpu_cholesky import Limbs

Array = jax.Array


def product(a: Array, b: Array) -> Array:
    """The matrix product a @ b at the highest precision."""
    return jnp.matmul(a, b, precision=jax.lax.Precision.HIGHEST)


def plain_factor(matrix: Array) -> Array:
    """Lower Cholesky factors L (..., n, n) of matrices (..., n, n); NaN for a matrix that is not positive definite."""
    return jax.lax.linalg.cholesky(matrix, symmetrize_input=False)


def plain_solve(lower: Array, b: Array) -> Array:
    """x (..., n, k) with L L^T x = b, for lower factors L (..., n, n) and b (..., n, k)."""
    half = jax.lax.linalg.triangular_solve(lower, b, left_side=True, lower=True)
    return jax.lax.linalg.triangular_solve(lower, half, left_side=True, lower=True, transpose_a=True)


# a function that assembles a matrix from its terms
Assemble = Callable[..., Array]


def plain_sum(*terms: Array) -> Array:
    """The sum of matrices (..., n, n) and of a diagonal (..., n), which is the last argument; (..., 0) for none."""
    first, *others, diagonal = terms
    unit = jnp.broadcast_to(jnp.eye(first.shape[-1], dtype=first.dtype), first.shape)
    total = first + unit * diagonal[..., None, :] if diagonal.shape[-1] else first
    for other in others:
        total = total + other
    return total


def plain_gram(matrix: Array, diagonal: Array, jacobian: Array, *weights: Array) -> Array:
    """M + diagonal + J^T K J, of M (..., n, n), a diagonal (..., n), and rows J (..., rows, n) with their weights.

    Each of the `weights` (..., dim, count, dim) is the K of a group of `count` constraints with `dim` rows each. The
    rows of a group follow one another in J: the first rows of all constraints, then the second ones, and so on.
    """
    total = plain_sum(matrix, diagonal)
    start = 0
    for weight in weights:
        dim, count, _ = weight.shape[-3:]
        rows = jacobian[..., start : start + dim * count, :]
        by_constraint = rows.reshape(*rows.shape[:-2], dim, count, rows.shape[-1])
        weighted = jnp.einsum("...ick,...kcn->...icn", weight, by_constraint, precision=jax.lax.Precision.HIGHEST)
        total = total + product(rows.mT, weighted.reshape(rows.shape))
        start += dim * count
    return total


def plain_solve_sum(*arguments: Array, limbs: Limbs | None = None) -> Array:
    """x (..., n) with A x = b; b (..., n) is the last argument, and A the `plain_sum` of the others."""
    return _plain(plain_sum, arguments)


def plain_solve_gram(*arguments: Array) -> Array:
    """x (..., n) with A x = b; b (..., n) is the last argument, and A the `plain_gram` of the others."""
    return _plain(plain_gram, arguments)


def _plain(assemble: Assemble, arguments: Sequence[Array]) -> Array:
    """Assembles a matrix and solves with it."""
    *terms, b = arguments
    return plain_solve(plain_factor(assemble(*terms)), b[..., None])[..., 0]


def _numpy_solve(lower: np.ndarray, b: np.ndarray) -> np.ndarray:
    """`plain_solve` in numpy."""
    options = {"left_side": True, "lower": True, "unit_diagonal": False}
    half = triangular_solve(lower, b, transpose_a=False, **options)
    return triangular_solve(lower, half, transpose_a=True, **options)


def _numpy_solve_sum(*arguments: np.ndarray, **_: object) -> np.ndarray:
    """`plain_solve_sum` in numpy."""
    *matrices, diagonal, b = arguments
    unit = np.eye(b.shape[-1], dtype=b.dtype)
    total = sum(matrices, unit * diagonal[..., None, :] if diagonal.shape[-1] else 0 * unit)
    return _numpy_solve(cholesky(total), b[..., None])[..., 0]


def _numpy_solve_gram(
    matrix: np.ndarray, diagonal: np.ndarray, jacobian: np.ndarray, *others: np.ndarray
) -> np.ndarray:
    """`plain_solve_gram` in numpy; `others` are the weights and b."""
    *weights, b = others
    products = []
    start = 0
    for weight in weights:
        dim, count, _ = weight.shape[-3:]
        rows = jacobian[..., start : start + dim * count, :]
        by_constraint = rows.reshape(*rows.shape[:-2], dim, count, rows.shape[-1])
        products.append(np.einsum("...icn,...ick,...kcm->...nm", by_constraint, weight, by_constraint))
        start += dim * count
    return _numpy_solve_sum(matrix, *products, diagonal, b)


RULES["small_cholesky"] = cholesky
RULES["small_cholesky_solve"] = _numpy_solve
RULES["small_cholesky_solve_sum"] = _numpy_solve_sum
RULES["small_cholesky_solve_gram"] = _numpy_solve_gram
