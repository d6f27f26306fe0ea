"""Cholesky factors and solves on a TPU: of many small matrices side by side, with the loop over rows unrolled.

A TPU keeps arrays in tiles of 8 x 128 over the last two axes. XLA's own factorization takes matrices one by one, so
that 27 rows fill a fifth of their tiles, and every matrix is copied into this order and back. Here the worlds of a
batch are the last axis, the lanes of the tiles, and an operation works on one row of all matrices:

    U_j = (A_j - sum_i U_ij U_i) / sqrt(pivot),      A = U^T U

The right-hand side is one more column of the matrix. The rows of limbs (`cpu_cholesky.Limbs`) come first, and the rows
of their trunk last. Then only the rows of its own limb are subtracted from a row of a limb. A row has the columns of
the remaining rows of its limb, and of the trunk; these are also the last columns of all rows that are subtracted from
it. Source: Golub and Van Loan 2013, sec. 4.2.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.xla.solves.cpu_cholesky import Limbs
from diffsim.xla.solves.lapack import lost_to_rounding
from diffsim.xla.solves.plain import plain_gram

Array = jax.Array
# number of rows of the largest matrix whose elimination is unrolled, to n^2 / 2 operations
LARGEST = 40
# the same for matrices with limbs, which take fewer operations
LARGEST_WITH_LIMBS = 64


def factor(matrix: Array) -> Array:
    """Lower Cholesky factors L (..., n, n) of matrices (..., n, n); NaN for a matrix that is not positive definite."""
    n = matrix.shape[-1]
    rows, _ = _eliminate(_last(matrix, 2), _order(n, None), None)
    empty = jnp.zeros_like(rows[0])
    whole = [jnp.concatenate([empty[:j], row]) if j else row for j, row in enumerate(rows)]
    return jnp.swapaxes(_first(jnp.stack(whole), 2), -1, -2)


def solve(lower: Array, b: Array) -> Array:
    """x (..., n, k) with L L^T x = b, for lower factors L (..., n, n) and b (..., n, k)."""
    # `columns` is (column, row, worlds), `rest` is (row, k, worlds). First y = L^-1 b: y_j times column j is subtracted
    # from all rows below j. Then x = L^-T y, from the last row on.
    columns = _last(lower, 2).swapaxes(0, 1)
    rest = _last(b, 2)
    n = len(rest)
    inverse = [1 / columns[j, j] for j in range(n)]
    solved = []
    for j in range(n):
        done = rest[0] * inverse[j][None]
        solved.append(done)
        rest = rest[1:] - columns[j, j + 1 :, None] * done[None]
    x = [solved[-1] * inverse[-1][None]]
    for j in reversed(range(n - 1)):
        below = jnp.sum(columns[j, j + 1 :, None] * jnp.stack(x), axis=0)
        x.insert(0, (solved[j] - below) * inverse[j][None])
    return _first(jnp.stack(x), 2)


def solve_sum(*terms: Array, limbs: Limbs | None = None) -> Array:
    """x (..., n) with A x = b, where A is a sum of matrices and a diagonal.

    Args:
      terms: the matrices (..., n, n), the diagonal (..., n), or (..., 0) for none, and b (..., n).
      limbs: the sparsity of A by limbs; None if it is not known.
    """
    *matrices, diagonal, b = terms
    n = b.shape[-1]
    total = _last(matrices[0], 2)
    for other in matrices[1:]:
        total = total + _last(other, 2)
    if diagonal.shape[-1]:
        unit = np.eye(n, dtype=b.dtype).reshape(n, n, *[1] * (b.ndim - 1))
        total = total + unit * _last(diagonal, 1)[None]
    order = _order(n, limbs)
    rows, inverse = _eliminate(total, order, _last(b, 1))
    return _first(_substitute(rows, inverse, order), 1)


def solve_gram(*arguments: Array) -> Array:
    """x (..., n) with A x = b; b (..., n) is the last argument, and A the `plain_gram` of the others."""
    *terms, b = arguments
    return solve_sum(plain_gram(*terms), b[..., :0], b)


def _order(n: int, limbs: Limbs | None) -> list[tuple[int, ...]]:
    """The rows of each limb, and, as the last limb, the rows of the trunk."""
    return [*limbs.limbs, limbs.trunk] if limbs else [tuple(range(n))]


def _eliminate(matrix: Array, order: Sequence[tuple[int, ...]], b: Array | None) -> tuple[list[Array], list[Array]]:
    """U_j (columns, ...) from the diagonal on, and 1 / U_jj (...), of all rows in their order.

    A right-hand side b (n, ...) becomes the last column. With it, pivots are raised to at least the rounding error of
    the sum.
    """
    trunk = order[-1]
    floor = lost_to_rounding(len(matrix))
    rows: list[Array] = []
    inverse: list[Array] = []
    for limb in order:
        # the rows that are subtracted from the rows of this limb
        below = list[Array]() if limb is not trunk else list(rows)
        for place, j in enumerate(limb):
            columns = (*limb[place:], *(() if limb is trunk else trunk))
            row = _entries(matrix[j], columns)
            size = row[:1]
            if b is not None:
                row = jnp.concatenate([row, b[j : j + 1]])
            for other in below:
                # the columns of the other row end with the columns of this row
                tail = other[len(other) - len(row) :]
                row = row - tail[:1] * tail
            pivot = row[:1] if b is None else jnp.maximum(row[:1], floor * size)
            scale = jax.lax.rsqrt(pivot)
            row, scale = jax.lax.optimization_barrier((row * scale, scale))
            rows.append(row)
            below.append(row)
            inverse.append(scale)
    return rows, inverse


def _entries(row: Array, columns: tuple[int, ...]) -> Array:
    """Some entries of a row (n, ...), as a concatenation of slices."""
    parts: list[Array] = []
    start = 0
    for k in range(1, len(columns) + 1):
        if k == len(columns) or columns[k] != columns[k - 1] + 1:
            parts.append(row[columns[start] : columns[k - 1] + 1])
            start = k
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts)


def _substitute(rows: list[Array], inverse: list[Array], order: Sequence[tuple[int, ...]]) -> Array:
    """x (n, ...) with U x = y, where y is the last column of U: first the trunk, then each limb from its end."""
    listed = [j for limb in order for j in limb]
    x_of: dict[int, Array] = {}
    x_trunk = None
    end = len(listed)
    for limb in reversed(order):
        known = x_trunk
        end -= len(limb)
        for place in reversed(range(len(limb))):
            row = rows[end + place]
            scale = inverse[end + place]
            x = row[-1:]
            if known is not None:
                x = x - jnp.sum(row[1:-1] * known, axis=0, keepdims=True)
            x = x * scale
            x_of[limb[place]] = x
            known = x if known is None else jnp.concatenate([x, known])
        x_trunk = known if x_trunk is None else x_trunk
    return jnp.concatenate([x_of[j] for j in range(len(listed))])


def _last(x: Array, kept: int) -> Array:
    """Moves the last `kept` axes to the front, and the first axis, the worlds, to the end."""
    if x.ndim == kept:
        return x[..., None]
    axes = list(range(x.ndim))
    return jnp.transpose(x, [*axes[x.ndim - kept :], *axes[1 : x.ndim - kept], 0])


def _first(x: Array, kept: int) -> Array:
    """The inverse of `_last`, for an array with an axis of worlds."""
    axes = list(range(x.ndim))
    return jnp.transpose(x, [axes[-1], *axes[kept:-1], *axes[:kept]])
