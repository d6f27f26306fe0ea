"""Cholesky factors and solves on a CPU: of small matrices side by side, and of sums of matrices by LAPACK.

Small matrices are factored by operations on the same entry of all of them. A call of LAPACK for a matrix of six rows
takes ten times as long as its arithmetic. Here matrices are the last axes, along which XLA makes vectors of them, and
rows follow one another in a loop, so that the program is as short as a call:

    U_j = (A_j - sum_i U_ij U_i) / sqrt(pivot),      A = U^T U

A matrix of 2, 6 and 8 rows, one of 512, takes 4, 30 and 75 ns with one right side; LAPACK takes 136, 265 and 332, and
less than this from twelve rows on. Source: Golub and Van Loan 2013, sec. 4.2.

Matrices whose limbs meet in a trunk are eliminated in the same way, limbs side by side: 0.7 us for a humanoid's 27
rows, where LAPACK with all around it takes 3.

Solves with sums of matrices call LAPACK without what JAX puts around it. JAX passes matrices on by columns and writes
each factor once more, with zeros above the diagonal and nan where there is none. For a matrix of 27 rows that takes as
long as half of the factor. Here matrices stay by rows, which for symmetric ones is the same, and only x can become nan.
The right side is one more column of the matrix:

    [A   b]   [U^T 0] [U y]
    [b^T c] = [y^T d] [0 d],   y = U^-T b,

so that the factor brings the first of the two triangular solves with it (b is scaled to 1, as derivatives can be of any
size). The second, U x = y, is the first rows of

    [U y] [ x]   [ 0]
    [0 d] [-1] = [-d].

A sum of matrices in float32 can lose its least eigenvalues to rounding: the inertia of a chain of forty links has some
a million times below its largest, and stiff rows between its ends add to the largest. Then the sum has no factor, and
is solved again with more on its diagonal, about as much as rounding took.
"""

import functools
import itertools
import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jaxlib.version
import numpy as np
from jaxlib import lapack

from diffsim.xla.gather import pick, pick_some
from diffsim.xla.loops import cond

Array = jax.Array

# rows of the largest matrix that takes less time here than in LAPACK, also alone
LARGEST = 8
# rows of the largest matrix that is eliminated without a loop
WRITTEN_OUT = 2
# most rows of a matrix with limbs
MOST_ROWS = 128
# most rows of a trunk: a limb has a column for each of them
TRUNK = 12
# fewest matrices that are solved by limbs: as many as a core works on at once (LANES)
SIDE_BY_SIDE = 64
# matrices with limbs that a core works on at once
LANES = 64
# rows are never counted from the end
FROM_ZERO = {"allow_negative_indices": False}


class Limbs(NamedTuple):
    """How the rows of symmetric matrices fall apart: those of two limbs meet in zeros, and only the trunk's meet all.

    Attributes:
      trunk: its rows.
      limbs: rows of the limbs, at most `LARGEST` each.
    """

    trunk: tuple[int, ...]
    limbs: tuple[tuple[int, ...], ...]


def limbs_of(pattern: np.ndarray) -> Limbs | None:
    """The limbs of matrices that are zero where a symmetric pattern (n, n), bool, says so; None if there are none.

    Rows that meet most others become the trunk, one after another, until limbs are left.
    """
    n, trunk, rest = len(pattern), list[int](), np.arange(len(pattern))
    while LARGEST < n <= MOST_ROWS and len(trunk) <= TRUNK:
        meets = pattern[rest[:, None], rest] | np.eye(len(rest), dtype=bool)
        connected = meets
        for _ in range(len(rest).bit_length()):
            connected = connected @ connected
        crowd = np.sum(connected, axis=1)
        if trunk and np.max(crowd, initial=0) <= LARGEST:
            limbs = sorted({tuple(rest[row].tolist()) for row in connected}, key=lambda limb: (-len(limb), limb))
            return Limbs(tuple(sorted(trunk)), tuple(limbs)) if len(limbs) > 1 else None
        next_one = rest[np.argmax(np.where(crowd > LARGEST, np.sum(meets, axis=1), 0))]
        trunk.append(int(next_one))
        rest = np.setdiff1d(rest, trunk)
    return None


def factor(matrix: Array) -> Array:
    """Lower factors L (..., n, n) of symmetric positive definite matrices, nan where one is not."""
    return jnp.moveaxis(_eliminate(_last(matrix)), (0, 1), (-1, -2))


def solve(lower: Array, b: Array) -> Array:
    """x (..., n, k) with L L^T x = b, of lower factors (..., n, n) and b (..., n, k)."""
    upper = _last(lower.mT)
    return jnp.moveaxis(_substitute(upper, _forward(upper, _last(b))), (0, 1), (-2, -1))


def factor_and_solve(matrix: Array, b: Array) -> Array:
    """x (..., n) with A x = b (..., n): elimination takes b along as one more column."""
    n = b.shape[-1]
    rows = _eliminate(_last(jnp.concatenate([matrix, b[..., None]], axis=-1)))
    return jnp.moveaxis(_substitute(rows[:, :n], rows[:, n:])[:, 0], 0, -1)


def solve_limbs(matrices: Sequence[Array], diagonal: Array, b: Array, limbs: Limbs) -> Array:
    """x (m, n) with A x = b (m, n), for symmetric positive definite A that fall apart.

    Limbs are eliminated first, side by side, then what is left of the trunk:

        A_ll = U^T U,   [W w] = U^-T [A_lt b_l],   (A_tt - sum W^T W) x_t = b_t - sum W^T w,   U x_l = w - W x_t

    A few matrices at a time, so that a cache holds all that is computed of them; cores share them out. Steps are loops,
    because each operation of a program takes tens of milliseconds to compile: written out they took five times as long.

    Args:
      matrices, diagonal: A is the sum of these matrices (m, n, n) and of this diagonal (m, n), or (m, 0) for none.
    """
    (m, n), lanes = b.shape, min(LANES, len(b))

    def share(first: int, size: int) -> Array:
        def solve_part(number: Array, x: Array) -> Array:
            # the last part begins so early that it is whole
            start = jax.lax.min(number * lanes, size - lanes)
            some = [
                jnp.moveaxis(jax.lax.dynamic_slice_in_dim(term, first + start, lanes, **FROM_ZERO), 0, -1)
                for term in (*matrices, diagonal, b)
            ]
            return jax.lax.dynamic_update_slice(x, _solve_lanes(*some, limbs=limbs).T, (start, 0), **FROM_ZERO)

        return jax.lax.fori_loop(0, -(-size // lanes), solve_part, jnp.zeros((size, n), b.dtype))

    count = max(1, min(_cores(), m // SMALLEST_SHARE))
    ends = [m * number // count for number in range(count + 1)]
    return jnp.concatenate([share(i, j - i) for i, j in itertools.pairwise(ends)])


def _solve_lanes(*terms: Array, limbs: Limbs) -> Array:
    """`solve_limbs` of a few matrices, which are the last axis of all that is computed: XLA makes vectors of them."""
    *matrices, diagonal, b = terms
    n, height, trunk = len(b), max(map(len, limbs.limbs)), np.asarray(limbs.trunk)
    # rows (row, limb) of the limbs; the shorter ones go on with rows of the identity, whose numbers are below zero
    rows = np.array([[*limb, *range(-1, len(limb) - height - 1, -1)] for limb in limbs.limbs]).T

    def entries(row: np.ndarray, column: np.ndarray) -> Array:
        """(..., m) entries of matrices and diagonal, or of the identity, at rows and columns (...)."""
        row, column = np.broadcast_arrays(row, column)
        shape, row, column = row.shape, row.reshape(-1), column.reshape(-1)
        there, on_diagonal = (row >= 0) & (column >= 0), row == column
        place = np.where(there, n * row + column, -1)
        addends = [pick_some(matrix.reshape(n * n, -1), place) for matrix in matrices]
        if len(diagonal):
            addends.append(pick_some(diagonal, np.where(there & on_diagonal, row, -1)))
        unit = jnp.asarray(np.where(row < 0, on_diagonal, 0)[:, None], b.dtype)
        return functools.reduce(jnp.add, addends, unit).reshape(*shape, -1)

    def picked(row: np.ndarray, column: np.ndarray) -> tuple[Array, Array]:
        """(rows, columns + 1, ..., m) [A, b] and (rows, ..., m) the least pivots, of rows and columns (., ...)."""
        matrix = jnp.concatenate([entries(row[:, None], column[None]), pick_some(b, row)[:, None]], axis=1)
        return matrix, lost_to_rounding(n) * entries(row, row)

    columns = np.concatenate([rows, np.broadcast_to(trunk[:, None], (len(trunk), rows.shape[1]))])
    upper, inverse = _eliminate_limbs(*picked(rows, columns))
    above = upper[:, height:]

    def subtract(number: Array, rest: Array) -> Array:
        w = _row(above, number, 2)
        return rest - sum(w[i, :-1, None] * w[i][None] for i in range(height))

    rest, floor = picked(trunk, trunk)
    rest = jax.lax.fori_loop(0, rows.shape[1], subtract, rest)
    upper_trunk, inverse_trunk = _eliminate_limbs(rest, floor)
    x = _substitute_limbs(upper_trunk, inverse_trunk, upper_trunk[:, -1])
    right = above[:, -1] - sum(above[:, k] * x[k][None, None] for k in range(len(trunk)))
    x_limbs = _substitute_limbs(upper, inverse, right).reshape(rows.size, -1)
    listed = np.concatenate([trunk, rows.reshape(-1)])
    return pick(jnp.concatenate([x, x_limbs]), np.array([np.flatnonzero(listed == row)[0] for row in range(n)]))


def _eliminate_limbs(rows: Array, floor: Array) -> tuple[Array, Array]:
    """U (n, n + k, ...) and 1 / U_jj (n, ...) of rows [A, b]; no pivot is below its floor (n, ...).

    What stands below the diagonal of U is rounding. Sums are written out: a reduction would not be in vector lanes.
    """

    def one_row(j: Array, done: tuple[Array, Array]) -> tuple[Array, Array]:
        upper, inverse = done
        weights = _row(upper, j, 1)
        row = _row(rows, j) - sum(weights[i][None] * upper[i] for i in range(len(rows)))
        pivot, least = _row(row, j), _row(floor, j)
        scale = 1 / jnp.sqrt(jax.lax.select(pivot < least, least, pivot))
        return _with_row(upper, row * scale[None], j), _with_row(inverse, scale, j)

    return jax.lax.fori_loop(0, len(rows), one_row, (jnp.zeros_like(rows), jnp.zeros_like(floor)))


def _substitute_limbs(upper: Array, inverse: Array, y: Array) -> Array:
    """x (n, ...) with U x = y, of U and 1 / U_jj: one column of U after the other is moved to the right side."""
    number = np.arange(len(y)).reshape(-1, *[1] * (y.ndim - 1))

    def one_row(turn: Array, y: Array) -> Array:
        j = len(y) - 1 - turn
        x, column = (_row(y, j) * _row(inverse, j))[None], _row(upper, j, 1)
        done = jax.lax.select(jnp.broadcast_to(number == j, y.shape), jnp.broadcast_to(x, y.shape), y)
        return jax.lax.select(jnp.broadcast_to(number < j, y.shape), y - column * x, done)

    return jax.lax.fori_loop(0, len(y), one_row, y)


def _last(matrix: Array) -> Array:
    """(n, k, ...) of (..., n, k)."""
    return jnp.moveaxis(matrix, (-2, -1), (0, 1))


def _eliminate(rows: Array) -> Array:
    """Rows (n, n + k, ...) [U, U^-T b] of rows [A, b]."""
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
    """All rows in turn; those that are not yet done are zero, and add nothing."""
    return jax.lax.fori_loop(0, len(like), one_row, jnp.zeros_like(like), unroll=len(like) <= WRITTEN_OUT)


def _combination(weights: Array, rows: Array) -> Array:
    """sum_i w_i row_i, (k, ...) of weights (n, ...) and rows (n, k, ...)."""
    return jnp.sum(weights[:, None] * rows, axis=0)


def _row(rows: Array, j: Array, axis: int = 0) -> Array:
    return jax.lax.dynamic_index_in_dim(rows, j, axis, keepdims=False, **FROM_ZERO)


def _entry(row: Array, j: Array) -> Array:
    """(1, ...) of a row (n, ...)."""
    return _row(row, j)[None]


def _with_row(rows: Array, row: Array, j: Array) -> Array:
    return jax.lax.dynamic_update_slice_in_dim(rows, row[None], j, 0, **FROM_ZERO)


# the corner c, larger than b A^-1 b can be for b of size 1
CORNER = 1e30
# fewest matrices of a share; handing out fewer costs more than it saves
SMALLEST_SHARE = 64
# most shares; each is a call of its own in the program
MOST_SHARES = 8
# the first jaxlib whose calls share their matrices out
SHARED_OUT = (0, 10)
# flags of LAPACK, which sees our upper triangles by columns: as lower ones
LEFT, LOWER, TRANSPOSED, GENERAL = (np.uint8(ord(letter)) for letter in "LLTN")


def in_shares(function: Callable[..., Array], *batches: Array) -> Array:
    """A function of the matrices of batches (n, ...), one share of them for each core, side by side.

    One call of LAPACK takes its matrices one after another, while other cores wait; newer jaxlib shares them out.
    """
    count, size = 1 if jaxlib.version.__version_info__ >= SHARED_OUT else _cores(), batches[-1].shape[0]
    if size % count or size < SMALLEST_SHARE * count:
        return function(*batches)
    shares = zip(*(jnp.split(batch, count) for batch in batches), strict=True)
    return jnp.concatenate([function(*share) for share in shares])


def _cores() -> int:
    """How many cores share the work of one device, at most `MOST_SHARES`; a power of two, as batches are."""
    devices = jax.local_device_count() if jax.default_backend() == "cpu" else 1
    cores = (os.cpu_count() or 1) // devices
    return 1 << (max(1, min(cores, MOST_SHARES)).bit_length() - 1)


def solve_rounded(summed: Callable[[], Array], b: Array) -> Array:
    """x (..., n) with A x = b (..., n), for a sum A of float32 matrices; nan where it is far from positive definite."""
    x, lost = solve_bordered(summed(), b)

    def raised() -> Array:
        # summed again, so that nobody has to keep the sum
        total = summed()
        more = lost_to_rounding(b.shape[-1]) * jnp.eye(b.shape[-1], dtype=total.dtype)
        again, _ = solve_bordered(total + total * jnp.broadcast_to(more, total.shape), b)
        return jnp.where(lost[..., None], again, x)

    return cond(jnp.any(lost), raised, lambda: x)


def lost_to_rounding(n: int) -> float:
    """The share of the diagonal that rounding may take from a sum of float32 matrices of n rows."""
    return float(2 * np.sqrt(n) * np.finfo(np.float32).eps)


def solve_bordered(matrix: Array, b: Array) -> tuple[Array, Array]:
    """x (..., n) with A x = b (..., n), for symmetric positive definite A in float32; nan where one is not, and whether
    that is so for a finite b, (...).
    """
    n, size = b.shape[-1], jnp.max(jnp.abs(b), axis=-1, keepdims=True)
    size = jnp.where(size > 0, size, 1)
    b = b / size
    batch = [(0, 0)] * (b.ndim - 1)
    column = jnp.pad(b, [*batch, (0, 1)], constant_values=CORNER)[..., None]
    bordered = jnp.pad(matrix, [*batch, (0, 1), (0, 1)])
    # one pass, where joining b and a last row would be three
    is_last = np.arange(n + 1).reshape(*[1] * b.ndim, -1) == n
    upper, info = _factor(jnp.where(is_last, column, bordered))
    right = jnp.concatenate([jnp.zeros((*b.shape, 1), b.dtype), -upper[..., n:, n:]], axis=-2)
    x = jnp.where((info == 0)[..., None], size * _solve_upper(upper, right)[..., :n, 0], jnp.nan)
    return x, (info != 0) & jnp.isfinite(size[..., 0])


def _factor(matrix: Array) -> tuple[Array, Array]:
    """Upper factors (..., n, n), with what was there below their diagonals, and whether there are none (...)."""
    outputs = jax.ShapeDtypeStruct(matrix.shape, matrix.dtype), jax.ShapeDtypeStruct(matrix.shape[:-2], jnp.int32)
    name = lapack.prepare_lapack_call("potrf_ffi", matrix.dtype)
    upper, info = jax.ffi.ffi_call(name, outputs, input_output_aliases={0: 0})(matrix, uplo=LOWER)
    return upper, info


def _solve_upper(upper: Array, b: Array) -> Array:
    """x (..., n, 1) with U x = b, for upper factors U (..., n, n)."""
    name = lapack.prepare_lapack_call("trsm_ffi", b.dtype)
    call = jax.ffi.ffi_call(name, jax.ShapeDtypeStruct(b.shape, b.dtype), input_output_aliases={1: 0})
    return call(upper, b, side=LEFT, uplo=LOWER, trans_x=TRANSPOSED, diag=GENERAL)
