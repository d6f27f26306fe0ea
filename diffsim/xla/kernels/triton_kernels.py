"""Cholesky factors and solves of many small matrices, and their sums with J^T K J: Pallas kernels for CUDA (Triton).

A program of a factor or a solve takes some worlds, which lie side by side on the last axis of all that it computes
with; rows are the other axis. Factors are stored in that order too, (column, row, world), so that neighbouring threads
read neighbouring numbers; matrices and vectors are read once, in the order in which JAX has them. All loops stay loops:
n = 128 is the same code as n = 2.

factor: left-looking, column j of L is (A - sum_{k<j} L_k L_kj) / sqrt(d), d its entry on the diagonal.
solve: y = L^-1 b column by column, then x = L^-T y.
solve_sum, solve_packed: both, of matrices that are added while they are read, or of triangles; their factors, which
nobody reads again, are packed: columns from the diagonal on, one after another. No pivot of theirs is less than what
rounding may take from a sum.
Source: Golub and Van Loan 2013, sec. 4.2 (gaxpy Cholesky) and 3.1 (column-oriented substitution).

gram: M + diagonal + J^T K J. A program takes one world. It reads M once, then rows of J, some at a time, and adds their
product with K J, which is made of the same rows and stays in registers. Of the sum, which is symmetric, it writes what
lies on and above the diagonal, row after row; that is where `solve_packed` reads it.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from diffsim.xla.kernels.cpu_cholesky import lost_to_rounding

Array = jax.Array

# entries of a column, of all worlds of a program together, and those that one warp of 32 threads takes
TILE, WARP_TILE = 256, 512
# fewest worlds of a program: 8 numbers fill what memory delivers at once
WORLDS = 8
# columns of the factor that are read at once, so that one waits for memory while another is added
AT_ONCE = 4


class _Lanes(NamedTuple):
    """Which entries a program computes with: row and world, both (rows, worlds), and whether there is such an entry.

    `one` and `is_one` are world and whether it exists for a single row, (1, worlds).
    """

    n: int
    row: Array
    world: Array
    exists: Array
    one: Array
    is_one: Array


def _lanes(n: int, batch: int, program: Array) -> _Lanes:
    rows, worlds = _tile(n)
    row = jax.lax.broadcasted_iota(jnp.int32, (rows, worlds), 0)
    world, one = (program * worlds + jax.lax.broadcasted_iota(jnp.int32, (k, worlds), 1) for k in (rows, 1))
    return _Lanes(n, row, world, (row < n) & (world < batch), one, one < batch)


def _tile(n: int) -> tuple[int, int]:
    """Rows, a power of two, and worlds of a program."""
    rows = max(1 << (n - 1).bit_length(), 2)
    return rows, max(TILE // rows, WORLDS)


def _at_row(lanes: _Lanes, values: Array, j: Array) -> Array:
    """Row j (1, worlds) of values (rows, worlds)."""
    return jnp.sum(jnp.where(lanes.row == j, values, 0.0), axis=0)[None]


def packed_size(n: int) -> int:
    """Number of entries on and below the diagonal of an (n, n) matrix."""
    return n * (n + 1) // 2


def offset(n: int, column: Array) -> Array:
    """Where a column (or, above the diagonal, a row) of a packed triangle would begin, if it had all n entries."""
    return column * n - column * (column + 1) // 2


def _place(l_ref: Any, n: int, column: Array, row: Array, world: Array) -> Any:
    """Entries of factors: of whole ones (n columns, n rows, worlds), or of packed ones (n (n + 1) / 2, worlds)."""
    return l_ref.at[column, row, world] if len(l_ref.shape) == 3 else l_ref.at[offset(n, column) + row, world]


def _column(lanes: _Lanes, l_ref: Any, k: Array, mask: Array) -> Array:
    """Column k of the factors, (rows, worlds), and zero where the mask is false."""
    return triton.load(_place(l_ref, lanes.n, k, lanes.row, lanes.world), mask=mask & (lanes.row >= k), other=0.0)


def _row(lanes: _Lanes, a_ref: Any, j: Array) -> Array:
    """Row j of symmetric matrices (worlds, n, n), which is their column j, (rows, worlds)."""
    return triton.load(a_ref.at[lanes.world, j, lanes.row], mask=lanes.exists, other=0.0)


def _vector(lanes: _Lanes, ref: Any) -> Array:
    """Vectors (worlds, n) as (rows, worlds)."""
    return triton.load(ref.at[lanes.world, lanes.row], mask=lanes.exists, other=0.0)


def _factor(
    lanes: _Lanes, read: Callable[[Array], Array], l_ref: Any, barrier: Callable[[], None], least: float = 0.0
) -> None:
    """Writes the factors, whole or packed, of matrices whose columns are read by number.

    No pivot is below the share `least` of the entry on the diagonal.
    """

    def column(j: Array, _: None) -> None:
        value, left = read(j), lanes.exists & (lanes.row >= j)
        floor = least * _at_row(lanes, value, j)

        def minus(step: Array, value: Array) -> Array:
            for k in [AT_ONCE * step + i for i in range(AT_ONCE)]:
                # of a column: the rows that are left, and row j; all of it only if it comes before j
                here = triton.load(_place(l_ref, lanes.n, k, j, lanes.one), mask=lanes.is_one & (k < j), other=0.0)
                value = value - _column(lanes, l_ref, k, left & (k < j)) * here
            return value

        value = jax.lax.fori_loop(0, (j + AT_ONCE - 1) // AT_ONCE, minus, value)
        squared = _at_row(lanes, value, j)
        pivot = jnp.sqrt(jnp.where(squared < floor, floor, squared) if least else squared)
        column_j: Any = jnp.where(lanes.row >= j, value / pivot, 0.0)
        # packed ones have no room for the zeros
        mask = lanes.exists if len(l_ref.shape) == 3 else left
        triton.store(_place(l_ref, lanes.n, j, lanes.row, lanes.world), column_j, mask=mask)
        # other threads read it next
        barrier()

    jax.lax.fori_loop(0, lanes.n, column, None)


def _factor_kernel(a_ref: Any, l_ref: Any, *, barrier: Callable[[], None]) -> None:
    """Writes the factors of symmetric matrices (worlds, n, n)."""
    lanes = _lanes(a_ref.shape[-1], a_ref.shape[0], pl.program_id(0))
    _factor(lanes, lambda j: _row(lanes, a_ref, j), l_ref, barrier)


def _solve(lanes: _Lanes, l_ref: Any, b: Array) -> Array:
    """x (rows, worlds) with L L^T x = b."""

    def forward(j: Array, y: Array) -> Array:
        column = _column(lanes, l_ref, j, lanes.exists)
        y_j = _at_row(lanes, y, j) / _at_row(lanes, column, j)
        return jnp.where(lanes.row == j, y_j, jnp.where(lanes.row > j, y - column * y_j, y))

    def backward(step: Array, x: Array) -> Array:
        j = lanes.n - 1 - step
        column = _column(lanes, l_ref, j, lanes.exists)
        left = _at_row(lanes, x, j) - jnp.sum(jnp.where(lanes.row > j, column * x, 0.0), axis=0)[None]
        return jnp.where(lanes.row == j, left / _at_row(lanes, column, j), x)

    return jax.lax.fori_loop(0, lanes.n, backward, jax.lax.fori_loop(0, lanes.n, forward, b))


def _solve_kernel(l_ref: Any, b_ref: Any, x_ref: Any) -> None:
    """Solves for one of the right sides (worlds, n, k); programs of the same worlds follow one another."""
    batch, n, count = b_ref.shape
    lanes, right = _lanes(n, batch, pl.program_id(0) // count), pl.program_id(0) % count
    b = triton.load(b_ref.at[lanes.world, lanes.row, right], mask=lanes.exists, other=0.0)
    triton.store(x_ref.at[lanes.world, lanes.row, right], _solve(lanes, l_ref, b), mask=lanes.exists)


def _solve_read(lanes: _Lanes, read: Callable[[Array], Array], refs: Any, barrier: Callable[[], None]) -> None:
    """Solves with matrices whose columns are read by number; packed factors are kept only until then."""
    b_ref, l_ref, x_ref = refs
    _factor(lanes, read, l_ref, barrier, lost_to_rounding(lanes.n))
    x = _solve(lanes, l_ref, _vector(lanes, b_ref))
    triton.store(x_ref.at[lanes.world, lanes.row], x, mask=lanes.exists)


def _solve_sum_kernel(*refs: Any, barrier: Callable[[], None]) -> None:
    """Solves with the sum of matrices (worlds, n, n) and a diagonal."""
    *matrices, diagonal_ref, b_ref, l_ref, x_ref = refs
    lanes = _lanes(b_ref.shape[1], b_ref.shape[0], pl.program_id(0))
    diagonal = _vector(lanes, diagonal_ref)

    def read(j: Array) -> Array:
        first, *others = (_row(lanes, ref, j) for ref in matrices)
        return sum(others, first + jnp.where(lanes.row == j, diagonal, 0.0))

    _solve_read(lanes, read, (b_ref, l_ref, x_ref), barrier)


def _solve_packed_kernel(a_ref: Any, *refs: Any, barrier: Callable[[], None]) -> None:
    """Solves with symmetric matrices whose upper triangles are packed by rows (worlds, n (n + 1) / 2)."""
    lanes = _lanes(refs[0].shape[1], refs[0].shape[0], pl.program_id(0))

    def read(j: Array) -> Array:
        mask = lanes.exists & (lanes.row >= j)
        return triton.load(a_ref.at[lanes.world, offset(lanes.n, j) + lanes.row], mask=mask, other=0.0)

    _solve_read(lanes, read, refs, barrier)


def _launch(kernel: Callable[..., None], out: Any, n: int, grid: int, interpret: bool) -> Callable:
    """The call of a kernel by `grid` programs."""
    rows, worlds = _tile(n)
    params = triton.CompilerParams(num_warps=max(rows * worlds // WARP_TILE, 1), num_stages=1)
    return pl.pallas_call(kernel, out_shape=out, grid=(grid,), compiler_params=params, interpret=interpret)


def _barrier(interpret: bool) -> Callable[[], None]:
    """Waits until all threads of a program have written; the interpreter, one thread, neither needs nor knows it."""
    return (lambda: None) if interpret else triton.debug_barrier


@functools.partial(jax.jit, static_argnames="interpret")
def factor(matrix: Array, interpret: bool = False) -> Array:
    """Lower factors L (batch, n, n) of symmetric positive definite matrices (batch, n, n); nan where one is not.

    Reads the upper triangles. `interpret` runs the kernel without a GPU.
    """
    batch, n, _ = matrix.shape
    out = jax.ShapeDtypeStruct((n, n, batch), matrix.dtype)
    kernel = functools.partial(_factor_kernel, barrier=_barrier(interpret))
    factor = _launch(kernel, out, n, pl.cdiv(batch, _tile(n)[1]), interpret)(matrix)
    return jnp.transpose(factor, (2, 1, 0))


@functools.partial(jax.jit, static_argnames="interpret")
def solve(lower: Array, b: Array, interpret: bool = False) -> Array:
    """x (batch, n, k) with L L^T x = b, for factors L (batch, n, n) and b (batch, n, k)."""
    batch, n, count = b.shape
    out = jax.ShapeDtypeStruct(b.shape, b.dtype)
    call = _launch(_solve_kernel, out, n, pl.cdiv(batch, _tile(n)[1]) * count, interpret)
    return call(jnp.transpose(lower, (2, 1, 0)), b)


@functools.partial(jax.jit, static_argnames="interpret")
def solve_sum(*arguments: Array, interpret: bool = False) -> Array:
    """x (batch, n) with A x = b, A the sum of matrices (batch, n, n) and a diagonal (batch, n); nan as in `factor`.

    Args:
      arguments: the matrices, the diagonal and b (batch, n).
      interpret: runs the kernel without a GPU.
    """
    return _solve_once(_solve_sum_kernel, arguments, interpret)


@functools.partial(jax.jit, static_argnames="interpret")
def solve_packed(matrix: Array, b: Array, interpret: bool = False) -> Array:
    """x (batch, n) with A x = b, of the upper triangles of A by rows, (batch, n (n + 1) / 2); nan as in `factor`."""
    return _solve_once(_solve_packed_kernel, (matrix, b), interpret)


def _solve_once(kernel: Callable[..., None], arguments: tuple[Array, ...], interpret: bool) -> Array:
    """x (batch, n), for the last of the arguments; the kernel writes packed factors too."""
    b = arguments[-1]
    batch, n = b.shape
    out = jax.ShapeDtypeStruct((packed_size(n), batch), b.dtype), jax.ShapeDtypeStruct(b.shape, b.dtype)
    with_barrier = functools.partial(kernel, barrier=_barrier(interpret))
    return _launch(with_barrier, out, n, pl.cdiv(batch, _tile(n)[1]), interpret)(*arguments)[1]


# the smallest matrix that Triton multiplies, and the most rows of J that are added at once
SMALLEST, AT_ONCE = 16, 32
# of a product A^T B, and full precision
TRANSPOSED, HIGHEST = (((0,), (0,)), ((), ())), jax.lax.Precision.HIGHEST
# entries of the sum that one warp of 32 threads takes
WARP_TILE = 1024


class _Group(NamedTuple):
    """Rows of J from `start` on: `number` of constraints of `dim` rows each, first components first."""

    start: int
    dim: int
    number: int

    @property
    def height(self) -> int:
        """Number of rows."""
        return self.dim * self.number


def _groups(weights: tuple[Any, ...]) -> list[_Group]:
    """Where the rows of each weight (batch, dim, count, dim) are."""
    groups, start = [], 0
    for weight in weights:
        groups.append(_Group(start, weight.shape[1], weight.shape[2]))
        start += groups[-1].height
    return groups


def _power(number: int) -> int:
    """The next power of two, at least `SMALLEST`."""
    return max(1 << (number - 1).bit_length(), SMALLEST)


def _iota(rows: int, columns: int, axis: int) -> Array:
    return jax.lax.broadcasted_iota(jnp.int32, (rows, columns), axis)


def _add(group: _Group, refs: tuple[Any, Any], total: Array) -> Array:
    """The sum with J^T K J of a group; `refs` are J (batch, rows, n) and K (batch, dim, count, dim)."""
    (j_ref, k_ref), world, n = refs, pl.program_id(0), refs[0].shape[-1]
    height = min(_power(group.height), AT_ONCE)
    tall, column = (height, total.shape[1]), _iota(height, total.shape[1], 1)

    def rows(index: Array, is_one: Array) -> Array:
        place = jnp.broadcast_to(group.start + index, tall)
        return triton.load(j_ref.at[world, place, column], mask=is_one & (column < n), other=0.0)

    def some(step: Array, total: Array) -> Array:
        row = step * height + _iota(height, 1, 0)
        is_one = row < group.height
        component, contact = row // group.number, row % group.number
        weighted = jnp.zeros(tall, total.dtype)
        for other in range(group.dim):
            # K of this row and that of another component of the same constraint
            weight = triton.load(k_ref.at[world, component, contact, other], mask=is_one, other=0.0)
            weighted += weight * rows(other * group.number + contact, is_one)
        return total + jax.lax.dot_general(rows(row, is_one), weighted, TRANSPOSED, precision=HIGHEST)

    return jax.lax.fori_loop(0, pl.cdiv(group.height, height), some, total)


def _gram_kernel(m_ref: Any, d_ref: Any, j_ref: Any, *refs: Any) -> None:
    """Writes the upper triangles (batch, n (n + 1) / 2)."""
    *weights, out_ref = refs
    world, n = pl.program_id(0), m_ref.shape[-1]
    size = _power(n)
    row, column = (_iota(size, size, axis) for axis in (0, 1))
    is_upper = (row <= column) & (column < n)
    total = triton.load(m_ref.at[world, row, column], mask=is_upper, other=0.0)
    total += triton.load(d_ref.at[world, row], mask=is_upper & (row == column), other=0.0)
    for group, k_ref in zip(_groups(tuple(weights)), weights, strict=True):
        total = _add(group, (j_ref, k_ref), total)
    # the interpreter puts back what was there where the mask is false: nowhere
    place = jnp.where(is_upper, offset(n, row) + column, out_ref.shape[-1])
    triton.store(out_ref.at[world, place], total, mask=is_upper)


@functools.partial(jax.jit, static_argnames="interpret")
def gram(matrix: Array, diagonal: Array, jacobian: Array, *weights: Array, interpret: bool = False) -> Array:
    """M + diagonal + J^T K J, its upper triangles (batch, n (n + 1) / 2) by rows.

    Args:
      matrix: M (batch, n, n), symmetric.
      diagonal: (batch, n).
      jacobian: J (batch, rows, n).
      weights: K (batch, dim, count, dim) of all rows, each for `count` constraints of `dim` rows.
      interpret: runs the kernel without a GPU.
    """
    batch, n, _ = matrix.shape
    out = jax.ShapeDtypeStruct((batch, packed_size(n)), matrix.dtype)
    params = triton.CompilerParams(num_warps=max(_power(n) ** 2 // WARP_TILE, 1), num_stages=1)
    call = pl.pallas_call(_gram_kernel, out_shape=out, grid=(batch,), compiler_params=params, interpret=interpret)
    return call(matrix, diagonal, jacobian, *weights)
