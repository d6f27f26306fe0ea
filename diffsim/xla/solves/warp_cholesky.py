"""CUDA kernels for Cholesky factors of and solves with many small matrices, and their sums with J^T K J.

Each warp (32 threads, or lanes) works on the matrices of one world. Each lane has a row, so that a column of up to 32
rows is one register, and a longer column has one register for each 32 rows. A matrix is a list of columns and stays in
registers (for 64 rows about 130 bytes do not fit). Arrays are read once, in JAX's order.

- factor: right-looking, A = L L^T from the first column on. When column j is known, its product with the entry L_kj is
  subtracted from each later column k.
- solve: first y = L^-1 b, column by column; then x = L^-T y, subtracting from each entry the product of its column with
  the entries after it.
- solve_sum, solve_gram: both steps, for matrices that are added while they are read. The factor is not stored: y is
  computed together with the columns of L, and x without sums over lanes. Pivots are raised to at least the rounding
  error of the sum. (Gauss-Jordan elimination would need no second pass, but its residuals are a hundred times as
  large.)
- gram: for each constraint of d rows, J^T K J is a sum of d products of a column, from J, with a row, from K J.

Source: Golub and Van Loan 2013, sec. 4.2 (outer product Cholesky) and 3.1 (column-oriented substitution).
"""

import functools
import operator
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.xla.solves.lapack import lost_to_rounding
from diffsim.xla.warp.machine import LANES, Kernel, Machine
from diffsim.xla.warp.machine import interpret as interpreted
from diffsim.xla.warp.ptx import call
from diffsim.xla.warp.translate import InMemory, Numbers, UntranslatedError, masked, registers

Array = jax.Array
# registers with 32 rows each, beginning with the register that has the column's first non-zero entry
Column = list[Any]
# number of constraints whose rows are read before any of them is added, to hide the latency of memory
AT_ONCE = 4


def _load(w: Machine, array: Any, start: int, n: int, first: int = 0) -> Column:
    """n values of an array from `start` on, without the registers before the one that holds the value `first`."""
    return [w.load(array, start + g, n - g) for g in range(first // LANES * LANES, n, LANES)]


def _store(w: Machine, array: Any, start: int, n: int, column: Column, first: int = 0) -> None:
    """Writes a column of n values to an array from `start` on; `first` as in `_load`."""
    for value, g in zip(column, range(first // LANES * LANES, n, LANES), strict=True):
        w.store(array, start + g, n - g, value)


def _entry(w: Machine, values: Column, row: int) -> Any:
    """Entry `row` of a vector, in all lanes."""
    return w.lane(values[row // LANES], row % LANES)


def _put(w: Machine, values: Column, row: int, value: Any) -> None:
    """Sets entry `row` of a vector."""
    values[row // LANES] = w.put(values[row // LANES], row % LANES, value)


def _everywhere(w: Machine, values: Column) -> list[Any]:
    """All entries of a vector, each in all lanes."""
    return [number for value in values for number in w.lanes(value)]


def _total(terms: Sequence[Any]) -> Any:
    """The sum of the terms. (Python's `sum` starts with 0, which would be one more instruction.)"""
    return functools.reduce(operator.add, terms)


def _read_sum(w: Machine, matrices: Sequence[Any], shift: Column, n: int) -> list[Column]:
    """The columns of a sum of symmetric matrices and a diagonal, each from its diagonal entry on.

    In memory they are rows, which is the same for symmetric matrices.
    """
    columns = []
    for k in range(n):
        read = [_load(w, matrix, k * n, n, first=k) for matrix in matrices]
        column = [_total(terms) for terms in zip(*read, strict=True)]
        columns.append([w.put(column[0], k % LANES, column[0] + shift[k // LANES]), *column[1:]])
    return columns


def _add_gram(w: Machine, matrix: list[Column], jacobian: Any, weight: Any, size: tuple[int, int, int]) -> list[Column]:
    """The matrix plus J^T K J of a group of `count` constraints with `dim` rows each.

    Args:
      w: the machine.
      matrix: its columns.
      jacobian: J (dim, count, n) in memory: the first rows of all constraints, then the second ones, and so on.
      weight: K (dim, count, dim) in memory.
      size: index of the group's first row in J, dim and count.
    """
    above, dim, count = size
    n = len(matrix)

    def add(number: int, first: int, columns: list[Column], jacobian: Any, weight: Any) -> list[Column]:
        """The columns plus J^T K J of `number` constraints from `first` on; all rows are read before any is added."""
        places = [[i * count + first + c for i in range(dim)] for c in range(number)]
        rows = [[_load(w, jacobian, (above + place) * n, n) for place in constraint] for constraint in places]
        blocks = [[[w.scalar(weight, p * dim + k) for k in range(dim)] for p in constraint] for constraint in places]
        for j, block in zip(rows, blocks, strict=True):
            for column_of_j, weights in zip(j, block, strict=True):
                products = ([k * x for k, x in zip(weights, group, strict=True)] for group in zip(*j, strict=True))
                row = _everywhere(w, [_total(terms) for terms in products])
                columns = [
                    [value + row[k] * x for value, x in zip(column, column_of_j[k // LANES :], strict=True)]
                    for k, column in enumerate(columns)
                ]
        return columns

    # a loop over AT_ONCE constraints at a time, then those that are left
    turns, left = divmod(count, AT_ONCE)
    if turns:
        values, structure = jax.tree.flatten(matrix)

        def turn(index: Any, values: list[Any]) -> list[Any]:
            moved = w.moved(jacobian, index, AT_ONCE * n), w.moved(weight, index, AT_ONCE * dim)
            return jax.tree.leaves(add(AT_ONCE, 0, jax.tree.unflatten(structure, values), *moved))

        matrix = jax.tree.unflatten(structure, w.loop(turns, turn, values))
    return add(left, turns * AT_ONCE, matrix, jacobian, weight) if left else matrix


def _take_products(columns: list[Column], j: int, entries: Sequence[Any]) -> None:
    """Subtracts from each column k after j the product of column j with its entry `entries[k]`."""
    for k in range(j + 1, len(columns)):
        tail = columns[j][k // LANES - j // LANES :]
        columns[k] = [x - entries[k] * value for x, value in zip(columns[k], tail, strict=True)]


def _solve(w: Machine, lower: list[Column], inverse: Column, b: Column) -> Column:
    """x with L L^T x = b, given the columns of L and 1 / L_jj."""
    left = list(b)
    y = [w.zero() for _ in b]
    x = [w.zero() for _ in b]
    for j, column in enumerate(lower):
        entry = _entry(w, left, j) * _entry(w, inverse, j)
        _put(w, y, j, entry)
        for g, value in enumerate(column, j // LANES):
            left[g] = left[g] - entry * value
    for j in reversed(range(len(lower))):
        g = j // LANES
        known = w.sum(_total([value * entry for value, entry in zip(lower[j], x[g:], strict=True)]))
        _put(w, x, j, (y[g] - known) * inverse[g])
    return x


def _factor_kernel(w: Machine, matrix: Any, lower: Any, *, n: int) -> None:
    """Writes the columns of L, with L L^T = `matrix`, and zeros above the diagonal."""
    columns = [_load(w, matrix, k * n, n, first=k) for k in range(n)]
    zeros = [w.zero()] * -(-n // LANES)
    for j in range(n):
        first, *others = columns[j]
        root = w.rsqrt(w.lane(first, j % LANES))
        above = zeros[: j // LANES]
        columns[j] = [value * root for value in (w.from_lane_on(first, j % LANES), *others)]
        _store(w, lower, j * n, n, [*above, *columns[j]])
        if j + 1 < n:
            _take_products(columns, j, _everywhere(w, [*above, *columns[j]]))


def _solve_kernel(w: Machine, lower: Any, b: Any, x: Any, *, n: int, count: int) -> None:
    """Solves for `count` right-hand sides, which follow one another in memory, with L stored by columns."""
    columns = [_load(w, lower, k * n, n, first=k) for k in range(n)]
    diagonal = [w.zero() for _ in range(0, n, LANES)]
    for k, column in enumerate(columns):
        _put(w, diagonal, k, column[0])
    inverse = [1.0 / value for value in diagonal]

    def one(index: Any, _: list[Any]) -> list[Any]:
        _store(w, w.moved(x, index, n), 0, n, _solve(w, columns, inverse, _load(w, w.moved(b, index, n), 0, n)))
        return []

    w.loop(count, one, [])


# a group of constraints: index of its first row in J, number of rows of each constraint, and number of constraints
Group = tuple[int, int, int]


def groups_of(shapes: Sequence[tuple[int, ...]]) -> tuple[Group, ...]:
    """The groups of constraints whose weights K have these shapes (..., dim, count, dim)."""
    groups = []
    above = 0
    for *_, dim, count, _ in shapes:
        groups.append((above, dim, count))
        above += dim * count
    return tuple(groups)


def solve_assembled(w: Machine, matrix: list[Column], b: Column) -> Column:
    """x with A x = b, given the columns of a symmetric matrix whose pivots may vanish by rounding.

    Column j of L, without its diagonal entry, is stored as row j of an array in shared memory. In the first pass all
    lanes read the same entries of a row; in the second pass each lane reads an entry of its own row. The length of rows
    is an odd multiple of four, so that these reads are spread over eight memory banks.
    """
    n = len(matrix)
    least = lost_to_rounding(n)
    length = 4 * (-(-n // 4) | 1)
    columns = list(matrix)
    left = list(b)
    inverse = [w.zero() for _ in b]
    below = w.scratch(n * length)
    # first pass: the columns of L, and y = L^-1 b along with them
    for j in range(n):
        g, lane = divmod(j, LANES)
        first, *others = columns[j]
        root = w.rsqrt(w.lane(w.at_least(first, least * matrix[j][0]), lane))
        _put(w, inverse, j, root)
        if j + 1 < n:
            columns[j] = [value * root for value in (w.from_lane_on(first, lane + 1), *others)]
            _store(w, below, j * length, n, columns[j], first=j)
            w.meet()
            _take_products(columns, j, w.scalars(below, j * length, n))
            y = _entry(w, left, j) * root
            left[g:] = [x - y * value for x, value in zip(left[g:], columns[j], strict=True)]
    # second pass: x = L^-T y, from the last entry on
    left = [value * factor for value, factor in zip(left, inverse, strict=True)]
    for j in reversed(range(1, n)):
        x = _entry(w, left, j) * _entry(w, inverse, j)
        for g in range(j // LANES + 1):
            left[g] = left[g] - x * w.load(below, g * LANES * length + j, min(j - g * LANES, LANES), stride=length)
    w.meet()
    return [value * factor for value, factor in zip(left, inverse, strict=True)]


def read_gram(
    w: Machine, matrices: Sequence[Any], shift: Column, rows: tuple[Any, Sequence[Any], Sequence[Group]], n: int
) -> list[Column]:
    """The columns of a sum of matrices and a diagonal, plus J^T K J; `rows` is J, and the K and Group of each group."""
    jacobian, weights, groups = rows
    matrix = _read_sum(w, matrices, shift, n)
    for weight, group in zip(weights, groups, strict=True):
        matrix = _add_gram(w, matrix, jacobian, weight, group)
    return matrix


def _solve_sum_kernel(w: Machine, *arrays: Any, n: int, groups: tuple[Group, ...] | None = None) -> None:
    """Solves with the sum of symmetric matrices and a diagonal, or with M + diagonal + J^T K J of some groups."""
    *terms, b, x = arrays
    if groups is None:
        *matrices, diagonal = terms
        rows = None, (), ()
    else:
        m, diagonal, jacobian, *weights = terms
        matrices = [m]
        rows = (jacobian, weights, groups)
    matrix = read_gram(w, matrices, _load(w, diagonal, 0, n), rows, n)
    _store(w, x, 0, n, solve_assembled(w, matrix, _load(w, b, 0, n)))


@functools.cache
def _sized(kernel: Kernel, **sizes: Any) -> Kernel:
    """The kernel for arrays of these sizes; always the same object for the same sizes, so that its text is cached."""
    return functools.partial(kernel, **sizes)


def _run(name: str, kernel: Kernel, operands: Sequence[Array], shape: tuple[int, ...], interpret: bool) -> Any:
    """The result of a kernel, an array of this shape; in numpy if `interpret`."""
    results = [jax.ShapeDtypeStruct(shape, jnp.float32)]
    return (interpreted(kernel, operands, results) if interpret else call(name, kernel, operands, results))[0]


def factor(matrix: Array, interpret: bool = False) -> Array:
    """Lower Cholesky factors L (batch, n, n) of matrices (batch, n, n); NaN for one that is not positive definite.

    Only the upper triangles are read. `interpret` runs the kernel in numpy.
    """
    kernel = _sized(_factor_kernel, n=matrix.shape[1])
    return jnp.swapaxes(_run("factor", kernel, [matrix], matrix.shape, interpret), 1, 2)


def solve(lower: Array, b: Array, interpret: bool = False) -> Array:
    """x (batch, n, k) with L L^T x = b, for factors L (batch, n, n) and b (batch, n, k)."""
    _, n, count = b.shape
    sides = jnp.swapaxes(b, 1, 2)
    kernel = _sized(_solve_kernel, n=n, count=count)
    return jnp.swapaxes(_run("solve", kernel, [jnp.swapaxes(lower, 1, 2), sides], sides.shape, interpret), 1, 2)


def solve_sum(*arguments: Array, interpret: bool = False) -> Array:
    """x (batch, n) with A x = b, where A is a sum of matrices and a diagonal; NaN as for `factor`.

    Args:
      arguments: the matrices (batch, n, n), the diagonal (batch, n), and b (batch, n).
      interpret: whether the kernel runs in numpy.
    """
    b = arguments[-1]
    return _run("solve_sum", _sized(_solve_sum_kernel, n=b.shape[1]), arguments, b.shape, interpret)


def solve_gram(*arguments: Array, interpret: bool = False) -> Array:
    """x (batch, n) with (M + diagonal + J^T K J) x = b; NaN as for `factor`.

    Args:
      arguments: M (batch, n, n), the diagonal (batch, n), J (batch, rows, n), the K (batch, dim, count, dim) of each
        group of its rows, and b (batch, n).
      interpret: whether the kernel runs in numpy.
    """
    _, _, _, *weights, b = arguments
    kernel = _sized(_solve_sum_kernel, n=b.shape[1], groups=groups_of([weight.shape for weight in weights]))
    return _run("solve_gram", kernel, arguments, b.shape, interpret)


# largest number of rows of J in a loop kernel, so that an iteration has no more than some thousand instructions
TALLEST = 512
# largest number of rows of M in a loop kernel, so that its columns stay in registers
WIDEST = 64


def gram_in_loop(w: Machine, operands: Sequence[Numbers]) -> list[Numbers]:
    """`solve_gram` inside a loop kernel (see `TRANSLATIONS`)."""
    matrix, diagonal, jacobian, *weights, b = operands
    return [_solve_in_loop(w, (matrix, jacobian), diagonal, weights, b)]


def sum_in_loop(w: Machine, operands: Sequence[Numbers]) -> list[Numbers]:
    """`solve_sum` inside a loop kernel (see `TRANSLATIONS`), with a single matrix."""
    if len(operands) != 3:
        raise UntranslatedError("a solve with a sum of several matrices")
    matrix, diagonal, b = operands
    return [_solve_in_loop(w, (matrix,), diagonal, (), b)]


def _solve_in_loop(
    w: Machine, matrices: Sequence[Numbers], diagonal: Numbers, weights: Sequence[Numbers], b: Numbers
) -> Numbers:
    """x with (M + diagonal + J^T K J) x = b, for matrices M and J in memory; without J only M and the diagonal."""
    (n,) = b.shape
    places = [x.held for x in matrices if isinstance(x.held, InMemory) and not x.held.start]
    if len(places) < len(matrices):
        raise UntranslatedError("a solve with matrices that are computed, or are parts of others")
    if n > WIDEST or matrices[-1].shape[0] > TALLEST:
        raise UntranslatedError("a solve with large matrices")
    arrays = []
    for weight in weights:
        # the loop over constraints reads them from memory
        array = w.scratch(weight.size)
        for number, part in enumerate(registers(w, weight)):
            w.store(array, number * LANES, weight.size - number * LANES, part)
        arrays.append(array)
    w.meet()
    groups = groups_of([weight.shape for weight in weights])
    shift = masked(w, diagonal, np.float32(0)) if diagonal.size else [w.zero()] * -(-n // LANES)
    matrix = read_gram(w, [places[0].array], shift, (places[-1].array, arrays, groups), n)
    w.meet()
    x = solve_assembled(w, matrix, registers(w, b))
    # an array of a single element has it in all lanes
    return Numbers((n,), x if n > 1 else [w.lane(x[0], 0)])
