"""Products and factors of `interpret` in numpy, also of many small matrices side by side."""

from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

Array = np.ndarray


def dot_general(a: Array, b: Array, *, dimension_numbers: Any, **params: Any) -> Array:
    """`lax.dot_general`: a product over some axes, side by side over others."""
    (contract_a, contract_b), (batch_a, batch_b) = dimension_numbers
    if not batch_a:
        return np.tensordot(a, b, axes=(contract_a, contract_b))
    left = [axis for axis in range(a.ndim) if axis not in (*contract_a, *batch_a)]
    right = [axis for axis in range(b.ndim) if axis not in (*contract_b, *batch_b)]
    batch, rows, columns = ([x.shape[i] for i in axes] for x, axes in ((a, batch_a), (a, left), (b, right)))
    inner = int(np.prod([a.shape[axis] for axis in contract_a]))
    first = a.transpose(*batch_a, *left, *contract_a).reshape(*batch, int(np.prod(rows)), inner)
    second = b.transpose(*batch_b, *contract_b, *right).reshape(*batch, inner, int(np.prod(columns)))
    return (first @ second).reshape(*batch, *rows, *columns)


def triangular_solve(
    a: Array, b: Array, *, left_side: bool, lower: bool, transpose_a: bool, unit_diagonal: bool, **params: Any
) -> Any:
    """`lax.linalg.triangular_solve` from the left; anything else is left to JAX."""
    if not left_side:
        return NotImplemented
    if not b.size:
        return b
    if a.size > a.shape[-1] ** 2 and lower and not transpose_a and not unit_diagonal:
        return _substituted(a, b)
    options = {"lower": lower, "trans": int(transpose_a), "unit_diagonal": unit_diagonal, "check_finite": False}
    pairs = zip(a.reshape(-1, *a.shape[-2:]), b.reshape(-1, *b.shape[-2:]), strict=True)
    return np.stack([solve_triangular(*pair, **options) for pair in pairs]).reshape(b.shape)


def _substituted(a: Array, b: Array) -> Array:
    """x with a x = b for many lower matrices side by side, row by row; a call of LAPACK for each would take longer."""
    x = np.zeros_like(b)
    for row in range(a.shape[-1]):
        known = a[..., row : row + 1, :row] @ x[..., :row, :]
        x[..., row : row + 1, :] = (b[..., row : row + 1, :] - known) / a[..., row, row, None, None]
    return x


def cholesky(matrix: Array, **params: Any) -> Array:
    """The lower factor; not a number, as in JAX, where there is none."""
    try:
        return np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return np.stack([cholesky(one) for one in matrix]) if matrix.ndim > 2 else np.full_like(matrix, np.nan)


def cholesky_solve(lower: Array, b: Array) -> Array:
    """x with L L^T x = b, of lower factors (..., n, n) and b (..., n, k)."""
    options = {"left_side": True, "lower": True, "unit_diagonal": False}
    half = triangular_solve(lower, b, transpose_a=False, **options)
    return triangular_solve(lower, half, transpose_a=True, **options)


def cholesky_solve_sum(*arguments: Array) -> Array:
    """x (..., n) with A x = b, the last argument; A is the sum of matrices (..., n, n) and, after them, a diagonal."""
    *matrices, diagonal, b = arguments
    total = sum(matrices, np.eye(b.shape[-1], dtype=b.dtype) * diagonal[..., None, :])
    return cholesky_solve(cholesky(total), b[..., None])[..., 0]


def cholesky_solve_gram(matrix: Array, diagonal: Array, jacobian: Array, *others: Array) -> Array:
    """x (..., n) with (M + diagonal + J^T K J) x = b: rows of J, K (..., dim, count, dim) of all of them, and b."""
    *weights, b = others
    added, start = [], 0
    for weight in weights:
        dim, count, _ = weight.shape[-3:]
        rows = jacobian[..., start : start + dim * count, :]
        apart = rows.reshape(*rows.shape[:-2], dim, count, rows.shape[-1])
        added.append(np.einsum("...icn,...ick,...kcm->...nm", apart, weight, apart))
        start += dim * count
    return cholesky_solve_sum(matrix, *added, diagonal, b)
