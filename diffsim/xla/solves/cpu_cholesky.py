"""Cholesky factors and solves on a CPU: of many small matrices side by side.

1. Small matrices. A call of LAPACK for a matrix of six rows takes ten times as long as its arithmetic. Here the batch
is the last axis, so that XLA computes one entry of many matrices in vector lanes. A loop goes over the rows, which
keeps the program short:

    U_j = (A_j - sum_i U_ij U_i) / sqrt(pivot),      A = U^T U

In a batch of 512, a matrix of 2, 6 or 8 rows with one right-hand side takes 4, 30 or 75 ns. LAPACK takes 136, 265 or
332 ns; it is faster from twelve rows on. Source: Golub and Van Loan 2013, sec. 4.2.

2. Matrices with limbs (`Limbs`): entries between different limbs are zero, so the limbs are eliminated side by side in
the same way. A humanoid's 27 rows take 0.7 us; LAPACK, with the operations around it, takes 3 us.

3. For sums of other matrices LAPACK is called (lapack.py).
"""

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.xla.gather import pick, pick_some
from diffsim.xla.solves.lapack import SMALLEST_SHARE, cores, lost_to_rounding

Array = jax.Array

# up to this number of rows, elimination side by side is faster than LAPACK, even for a single matrix
LARGEST = 8
# up to this number of rows, the loop over rows is unrolled
UNROLLED_ROWS = 2
# the largest number of rows of a matrix with limbs
MOST_ROWS = 128
# the largest number of rows of a trunk: each row of the trunk is one more column of every limb
LARGEST_TRUNK = 12
# number of matrices with limbs on which a core works at once
LANES = 64
# the smallest number of matrices that are solved by limbs; equal to LANES, so that no lanes are empty
SIDE_BY_SIDE = 64
# indices are never counted from the end, so XLA need not check for that
FROM_ZERO = {"allow_negative_indices": False}


class Limbs(NamedTuple):
    """The sparsity of symmetric matrices: their rows are a trunk and limbs; entries between different limbs are zero.

    Entries between the trunk and all rows can be non-zero. In a humanoid, the torso is the trunk.

    Attributes:
      trunk: the rows of the trunk.
      limbs: the rows of each limb, at most `LARGEST`.
    """

    trunk: tuple[int, ...]
    limbs: tuple[tuple[int, ...], ...]


def limbs_of(pattern: np.ndarray) -> Limbs | None:
    """The limbs of matrices that can be non-zero only where a symmetric `pattern` (n, n) is True; None if it has none.

    Rows with the most entries are moved to the trunk, one after another, until the other rows fall apart into limbs.
    """
    n = len(pattern)
    trunk: list[int] = []
    rest = np.arange(n)
    while LARGEST < n <= MOST_ROWS and len(trunk) <= LARGEST_TRUNK:
        meets = pattern[rest[:, None], rest] | np.eye(len(rest), dtype=bool)
        # rows are in one limb if they are connected by a chain of entries; each product doubles the length of chains
        connected = meets
        for _ in range(len(rest).bit_length()):
            connected = connected @ connected
        limb_size = np.sum(connected, axis=1)
        if trunk and np.max(limb_size, initial=0) <= LARGEST:
            limbs = sorted({tuple(rest[row].tolist()) for row in connected}, key=lambda limb: (-len(limb), limb))
            return Limbs(trunk=tuple(sorted(trunk)), limbs=tuple(limbs)) if len(limbs) > 1 else None
        next_one = rest[np.argmax(np.where(limb_size > LARGEST, np.sum(meets, axis=1), 0))]
        trunk.append(int(next_one))
        rest = np.setdiff1d(rest, trunk)
    return None


def factor(matrix: Array) -> Array:
    """Lower Cholesky factors L (..., n, n) of matrices (..., n, n); NaN for a matrix that is not positive definite."""
    return jnp.moveaxis(_eliminate(_last(matrix)), (0, 1), (-1, -2))


def solve(lower: Array, b: Array) -> Array:
    """x (..., n, k) with L L^T x = b, for lower factors L (..., n, n) and b (..., n, k)."""
    upper = _last(lower.mT)
    return jnp.moveaxis(_substitute(upper, _forward(upper, _last(b))), (0, 1), (-2, -1))


def factor_and_solve(matrix: Array, b: Array) -> Array:
    """x (..., n) with A x = b (..., n); b is one more column during the elimination."""
    n = b.shape[-1]
    rows = _eliminate(_last(jnp.concatenate([matrix, b[..., None]], axis=-1)))
    return jnp.moveaxis(_substitute(rows[:, :n], rows[:, n:])[:, 0], 0, -1)


def solve_limbs(matrices: Sequence[Array], diagonal: Array, b: Array, limbs: Limbs) -> Array:
    """x (m, n) with A x = b (m, n), for symmetric positive definite A (m, n, n) with limbs.

    The limbs l are eliminated first, side by side, and then the trunk t (sums are over limbs):

        A_ll = U^T U,   [W w] = U^-T [A_lt b_l],   (A_tt - sum W^T W) x_t = b_t - sum W^T w,   U x_l = w - W x_t

    Each core works on a few matrices at a time, so that all intermediate results fit into its cache. The elimination is
    written as loops, because each operation of a program takes tens of milliseconds to compile. Unrolled, it would take
    five times as long to compile.

    Args:
      matrices, diagonal: A is the sum of these matrices (m, n, n) and of this diagonal (m, n), or (m, 0) for none.
      b: (m, n) right-hand sides.
      limbs: the sparsity of A.
    """
    m, n = b.shape
    lanes = min(LANES, m)

    def share(first: int, size: int) -> Array:
        # the solutions (size, n) for the matrices from `first` on, which one core computes
        def solve_part(number: Array, x: Array) -> Array:
            # the last part starts early enough to have the same size; some of its matrices are solved twice
            start = jax.lax.min(number * lanes, size - lanes)
            some = [
                jnp.moveaxis(jax.lax.dynamic_slice_in_dim(term, first + start, lanes, **FROM_ZERO), 0, -1)
                for term in (*matrices, diagonal, b)
            ]
            return jax.lax.dynamic_update_slice(x, _solve_lanes(*some, limbs=limbs).T, (start, 0), **FROM_ZERO)

        return jax.lax.fori_loop(0, -(-size // lanes), solve_part, jnp.zeros((size, n), b.dtype))

    count = max(1, min(cores(), m // SMALLEST_SHARE))
    ends = [m * number // count for number in range(count + 1)]
    return jnp.concatenate([share(i, j - i) for i, j in itertools.pairwise(ends)])


def _solve_lanes(*terms: Array, limbs: Limbs) -> Array:
    """`solve_limbs` for a few matrices; they are the last axis of all arrays, along which XLA uses vector lanes."""
    *matrices, diagonal, b = terms
    n = len(b)
    height = max(map(len, limbs.limbs))
    trunk = np.asarray(limbs.trunk)
    # rows (row, limb) of the limbs; shorter limbs are padded with rows of the identity, whose indices are negative
    rows = np.array([[*limb, *range(-1, len(limb) - height - 1, -1)] for limb in limbs.limbs]).T

    def entries(row: np.ndarray, column: np.ndarray) -> Array:
        """(..., m) the entries of A at rows and columns (...); negative ones belong to the identity matrix."""
        row, column = np.broadcast_arrays(row, column)
        shape = row.shape
        row = row.reshape(-1)
        column = column.reshape(-1)
        exists = (row >= 0) & (column >= 0)
        on_diagonal = row == column
        place = np.where(exists, n * row + column, -1)
        addends = [pick_some(matrix.reshape(n * n, -1), place) for matrix in matrices]
        if len(diagonal):
            addends.append(pick_some(diagonal, np.where(exists & on_diagonal, row, -1)))
        unit = jnp.asarray(np.where(row < 0, on_diagonal, 0)[:, None], b.dtype)
        return functools.reduce(jnp.add, addends, unit).reshape(*shape, -1)

    def picked(row: np.ndarray, column: np.ndarray) -> tuple[Array, Array]:
        """[A, b] (rows, columns + 1, ..., m) at rows and columns (., ...), and the smallest pivots (rows, ..., m)."""
        matrix = jnp.concatenate([entries(row[:, None], column[None]), pick_some(b, row)[:, None]], axis=1)
        return matrix, lost_to_rounding(n) * entries(row, row)

    # eliminate the limbs; [W w] are the columns of the trunk and of b
    columns = np.concatenate([rows, np.broadcast_to(trunk[:, None], (len(trunk), rows.shape[1]))])
    upper, inverse = _eliminate_limbs(*picked(rows, columns))
    trunk_columns = upper[:, height:]

    def subtract(number: Array, rest: Array) -> Array:
        """Subtracts W^T [W w] of one limb."""
        w = _row(trunk_columns, number, 2)
        return rest - sum(w[i, :-1, None] * w[i][None] for i in range(height))

    # then eliminate the trunk, and substitute: first x_t, then x_l with the right-hand side w - W x_t
    rest, floor = picked(trunk, trunk)
    rest = jax.lax.fori_loop(0, rows.shape[1], subtract, rest)
    upper_trunk, inverse_trunk = _eliminate_limbs(rest, floor)
    x = _substitute_limbs(upper_trunk, inverse_trunk, upper_trunk[:, -1])
    right = trunk_columns[:, -1] - sum(trunk_columns[:, k] * x[k][None, None] for k in range(len(trunk)))
    x_limbs = _substitute_limbs(upper, inverse, right).reshape(rows.size, -1)
    listed = np.concatenate([trunk, rows.reshape(-1)])
    return pick(jnp.concatenate([x, x_limbs]), np.array([np.flatnonzero(listed == row)[0] for row in range(n)]))


def _eliminate_limbs(rows: Array, floor: Array) -> tuple[Array, Array]:
    """U (n, n + k, ...) and 1 / U_jj (n, ...) of rows [A, b]; pivots below their `floor` (n, ...) are raised to it.

    The entries below the diagonal of U are rounding errors. Sums are written out, because XLA would not compute a
    reduction in vector lanes.
    """

    def one_row(j: Array, done: tuple[Array, Array]) -> tuple[Array, Array]:
        upper, inverse = done
        weights = _row(upper, j, 1)
        row = _row(rows, j) - sum(weights[i][None] * upper[i] for i in range(len(rows)))
        pivot = _row(row, j)
        least = _row(floor, j)
        scale = 1 / jnp.sqrt(jax.lax.select(pivot < least, least, pivot))
        return _with_row(upper, row * scale[None], j), _with_row(inverse, scale, j)

    return jax.lax.fori_loop(0, len(rows), one_row, (jnp.zeros_like(rows), jnp.zeros_like(floor)))


def _substitute_limbs(upper: Array, inverse: Array, y: Array) -> Array:
    """x (n, ...) with U x = y, given U and 1 / U_jj, by moving one column of U after another to the right-hand side."""
    number = np.arange(len(y)).reshape(-1, *[1] * (y.ndim - 1))

    def one_row(turn: Array, y: Array) -> Array:
        j = len(y) - 1 - turn
        x = (_row(y, j) * _row(inverse, j))[None]
        column = _row(upper, j, 1)
        done = jax.lax.select(jnp.broadcast_to(number == j, y.shape), jnp.broadcast_to(x, y.shape), y)
        return jax.lax.select(jnp.broadcast_to(number < j, y.shape), y - column * x, done)

    return jax.lax.fori_loop(0, len(y), one_row, y)


def _last(matrix: Array) -> Array:
    """The matrices (..., n, k) with their batch axes last, (n, k, ...)."""
    return jnp.moveaxis(matrix, (-2, -1), (0, 1))


def _eliminate(rows: Array) -> Array:
    """[U, U^-T b] (n, n + k, ...) from [A, b], row by row."""
    column = np.arange(rows.shape[1]).reshape(-1, *(1,) * (rows.ndim - 2))

    def one_row(j: Array, done: Array) -> Array:
        row = _row(rows, j) - _combination(_row(done, j, 1), done)
        return _with_row(done, jnp.where(column >= j, row / jnp.sqrt(_entry(row, j)), 0), j)

    return _loop(one_row, rows)


def _forward(upper: Array, b: Array) -> Array:
    """y (n, k, ...) with U^T y = b: y_j = (b_j - sum_i U_ij y_i) / U_jj, i < j."""

    def one_row(j: Array, y: Array) -> Array:
        column = _row(upper, j, 1)
        return _with_row(y, (_row(b, j) - _combination(column, y)) / _entry(column, j), j)

    return _loop(one_row, b)


def _substitute(upper: Array, y: Array) -> Array:
    """x (n, k, ...) with U x = y: x_j = (y_j - sum_i U_ji x_i) / U_jj, i > j."""

    def one_row(turn: Array, x: Array) -> Array:
        j = len(y) - 1 - turn
        weights = _row(upper, j)
        return _with_row(x, (_row(y, j) - _combination(weights, x)) / _entry(weights, j), j)

    return _loop(one_row, y)


def _loop(one_row: Callable[[Array, Array], Array], like: Array) -> Array:
    """A loop over all rows; rows that are not computed yet are zero, and contribute nothing to sums."""
    return jax.lax.fori_loop(0, len(like), one_row, jnp.zeros_like(like), unroll=len(like) <= UNROLLED_ROWS)


def _combination(weights: Array, rows: Array) -> Array:
    """(k, ...) sum_i w_i row_i, for weights (n, ...) and rows (n, k, ...)."""
    return jnp.sum(weights[:, None] * rows, axis=0)


def _row(rows: Array, j: Array, axis: int = 0) -> Array:
    """Slice j along an axis."""
    return jax.lax.dynamic_index_in_dim(rows, j, axis, keepdims=False, **FROM_ZERO)


def _entry(row: Array, j: Array) -> Array:
    """(1, ...) entry j of a row (n, ...)."""
    return _row(row, j)[None]


def _with_row(rows: Array, row: Array, j: Array) -> Array:
    """The rows (n, ...) with row j replaced."""
    return jax.lax.dynamic_update_slice_in_dim(rows, row[None], j, 0, **FROM_ZERO)
