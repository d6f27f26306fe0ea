"""The primitives of JAX in numpy: the table `RULES`, by the names of primitives.

Three modules use it. `compiler/host/interpret.py` runs a traced function once, without compiling it. `warp/machine.py`
runs GPU kernels in numpy, for machines without a GPU. `warp/translate.py` applies rules to arrays of indices, to find
out where a primitive that only moves values puts them. Control flow is not in the table; the interpreters handle it.

A rule is a function of the primitive's inputs and, by keyword, of its parameters. If the rule is a ufunc of numpy, it
gets no parameters, because they are only shapes and types. A rule may return `NotImplemented` for parameters that it
cannot handle. diffsim's own primitives add their rules in the modules that define them.
"""

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

Array = np.ndarray
# a parameter with one entry for each axis or each input
Values = Sequence[Any]
# (inputs, parameters by name) -> results
Rule = Callable[..., Any]


def rule_of(name: str, params: dict[str, Any]) -> Rule | None:
    """The rule of a primitive as a function of its inputs only; None if the table does not have the primitive."""
    rule = RULES.get(name)
    return rule if rule is None or isinstance(rule, np.ufunc) else functools.partial(rule, **params)


def _over_axes(operation: Callable[..., Any]) -> Rule:
    """The rule of a reduction over some axes, from the function of numpy."""
    return lambda operand, *, axes, **params: operation(operand, axis=tuple(axes))


# number of elements up to which copying an array is faster than making a broadcast view of it
SMALL = 5_000


def _broadcast(operand: Array, *, shape: Values, broadcast_dimensions: Values, **params: Any) -> Array:
    """`lax.broadcast_in_dim`: axis k of the operand becomes axis `broadcast_dimensions[k]` of the result."""
    spread = [1] * len(shape)
    for axis, size in zip(broadcast_dimensions, operand.shape, strict=True):
        spread[axis] = size
    aligned = operand.reshape(spread)
    if aligned.shape == tuple(shape):
        return aligned
    if math.prod(shape) > SMALL:
        return np.broadcast_to(aligned, shape)
    copied = np.empty(shape, operand.dtype)
    copied[...] = aligned
    return copied


def _dynamic_slice(operand: Array, *starts: Array, slice_sizes: Values) -> Array:
    """`lax.dynamic_slice`: the starts are clamped so that the slice is inside the operand."""
    sizes = zip(starts, slice_sizes, operand.shape, strict=True)
    first = [min(max(int(start), 0), length - size) for start, size, length in sizes]
    return operand[tuple(slice(start, start + size) for start, size in zip(first, slice_sizes, strict=True))]


def _split(x: Array, *, sizes: Values, axis: int) -> list[Array]:
    """`lax.split`: consecutive parts of these sizes along an axis."""
    before = (slice(None),) * axis
    ends = itertools.accumulate(sizes)
    return [x[(*before, slice(end - size, end))] for size, end in zip(sizes, ends, strict=True)]


def _pad(x: Array, value: Array, *, padding_config: Values) -> Any:
    """`lax.pad`; NotImplemented if it cuts off elements or pads between them."""
    plain = all(low >= 0 and high >= 0 and not inside for low, high, inside in padding_config)
    return np.pad(x, [ends[:2] for ends in padding_config], constant_values=value) if plain else NotImplemented


class _Axes(NamedTuple):
    """The roles of the axes of a gather or scatter.

    Attributes:
      mapped: axes of the operand to which the components of the indices belong.
      dropped: axes of the operand that the result does not have.
      batching: axes of the operand that are batch axes, and the axis of the indices that belongs to each of them.
      windows: axes of the result that are inside a window.
    """

    mapped: Values
    dropped: Values
    batching: dict[int, int]
    windows: Values


def _along(shape: Values, axis: int) -> Array:
    """The indices 0, 1, ... along one axis of a shape, with length 1 along the other axes."""
    return np.arange(shape[axis]).reshape([-1 if other == axis else 1 for other in range(len(shape))])


def _window(operand: Array, indices: Array, axes: _Axes, shape: Values) -> Any:
    """Index arrays, one per axis of the operand, for the windows of a gather or scatter; they broadcast to `shape`.

    `indices` has the first element of each window. The result is None if a window is not inside the operand.
    """
    # Along each axis of the operand, an index is the sum of up to three parts: the position inside the window, the
    # position along a batch axis, and the start of the window.
    left = [axis for axis in range(operand.ndim) if axis not in axes.dropped and axis not in axes.batching]
    kept = dict(zip(left, axes.windows, strict=True))
    outer = [axis for axis in range(len(shape)) if axis not in axes.windows]

    result = []
    for axis in range(operand.ndim):
        index = np.zeros([1] * len(shape), int)
        if axis in kept:
            index = index + _along(shape, kept[axis])
        if axis in axes.batching:
            index = index + _along(shape, outer[axes.batching[axis]])
        if axis in axes.mapped:
            spread = [1] * len(shape)
            for place, size in zip(outer, indices.shape[:-1], strict=True):
                spread[place] = size
            index = index + indices[..., list(axes.mapped).index(axis)].reshape(spread)
        if np.any((index < 0) | (index >= operand.shape[axis])):
            return None
        result.append(index)
    return tuple(result)


def gather(operand: Array, indices: Array, *, dimension_numbers: Any, slice_sizes: Values, **params: Any) -> Any:
    """`lax.gather`: windows of the operand; NotImplemented if one is not inside it."""
    numbers = dimension_numbers
    windows = numbers.offset_dims
    rank = indices.ndim - 1 + len(windows)
    batching = dict(zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True))
    left_out = (*numbers.collapsed_slice_dims, *batching)
    sizes = [size for axis, size in enumerate(slice_sizes) if axis not in left_out]
    batch = iter(indices.shape[:-1])
    shape = [sizes[list(windows).index(axis)] if axis in windows else next(batch) for axis in range(rank)]
    axes = _Axes(
        mapped=numbers.start_index_map, dropped=numbers.collapsed_slice_dims, batching=batching, windows=windows
    )
    index = _window(operand, indices, axes, shape)
    return NotImplemented if index is None else operand[index]


def scatter(combine: Callable[[Array, Any, Array], None]) -> Callable[..., Any]:
    """The rule of `operand.at[...].set`, `add` or `max`: `combine(result, index, updates)` changes the result."""

    def rule(operand: Array, indices: Array, updates: Array, *, dimension_numbers: Any, **params: Any) -> Any:
        numbers = dimension_numbers
        axes = _Axes(
            mapped=numbers.scatter_dims_to_operand_dims,
            dropped=numbers.inserted_window_dims,
            batching=dict(zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, strict=True)),
            windows=numbers.update_window_dims,
        )
        index = _window(operand, indices, axes, updates.shape)
        if index is None:
            return NotImplemented
        result = operand.copy()
        combine(result, index, updates)
        return result

    return rule


def dot_general(a: Array, b: Array, *, dimension_numbers: Any, **params: Any) -> Array:
    """`lax.dot_general`: a product that sums over some axes and has others as batch axes."""
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


# a triangular system with at most this many rows is solved faster row by row than LAPACK is imported
FEW_ROWS = 300


def triangular_solve(
    a: Array, b: Array, *, left_side: bool, lower: bool, transpose_a: bool, unit_diagonal: bool, **params: Any
) -> Any:
    """`lax.linalg.triangular_solve` from the left; NotImplemented from the right."""
    if not left_side:
        return NotImplemented
    if not b.size:
        return b
    many = a.size > a.shape[-1] ** 2
    if (many or a.shape[-1] <= FEW_ROWS) and lower and not transpose_a and not unit_diagonal:
        # row by row, for a batch of matrices at once, which is faster than calling LAPACK for each of them
        x = np.zeros_like(b)
        for row in range(a.shape[-1]):
            known = a[..., row : row + 1, :row] @ x[..., :row, :]
            x[..., row : row + 1, :] = (b[..., row : row + 1, :] - known) / a[..., row, row, None, None]
        return x
    # here, because importing it takes 0.1 s, and few models need it
    from scipy.linalg import solve_triangular

    options = {"lower": lower, "trans": int(transpose_a), "unit_diagonal": unit_diagonal, "check_finite": False}
    pairs = zip(a.reshape(-1, *a.shape[-2:]), b.reshape(-1, *b.shape[-2:]), strict=True)
    return np.stack([solve_triangular(*pair, **options) for pair in pairs]).reshape(b.shape)


def cholesky(matrix: Array, **params: Any) -> Array:
    """`lax.linalg.cholesky`: the lower factor; NaN, as in JAX, for a matrix that has none."""
    try:
        return np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return np.stack([cholesky(one) for one in matrix]) if matrix.ndim > 2 else np.full_like(matrix, np.nan)


def _divided(a: Array, b: Array) -> Array:
    """`lax.div`, which rounds quotients of integers towards zero; numpy's `//` rounds down."""
    return (a - np.fmod(a, b)) // b if np.issubdtype(a.dtype, np.integer) else a / b


def unchanged(x: Array, **params: Any) -> Array:
    """The value itself: the rule of primitives that matter only for derivatives or for a compiler."""
    return np.asarray(x)


TO_EVEN = jax.lax.RoundingMethod.TO_NEAREST_EVEN

RULES: dict[str, np.ufunc | Rule] = {
    "abs": np.abs,
    "acos": np.arccos,
    "add": np.add,
    "add_any": np.add,
    "and": np.bitwise_and,
    "argmax": lambda x, *, axes, index_dtype: np.argmax(x, axis=axes[0]).astype(index_dtype),
    "argmin": lambda x, *, axes, index_dtype: np.argmin(x, axis=axes[0]).astype(index_dtype),
    "asin": np.arcsin,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "broadcast_in_dim": _broadcast,
    "cholesky": cholesky,
    "concatenate": lambda *inputs, dimension, **params: np.concatenate(inputs, dimension),
    "convert_element_type": lambda x, *, new_dtype, **params: x.astype(new_dtype),
    "copy": unchanged,
    "cos": np.cos,
    "div": _divided,
    "dot_general": dot_general,
    "dynamic_slice": _dynamic_slice,
    "eq": np.equal,
    "exp": np.exp,
    "expm1": np.expm1,
    "floor": lambda x, **params: np.floor(x),
    "gather": gather,
    "ge": np.greater_equal,
    "gt": np.greater,
    "integer_pow": lambda x, *, y, **params: x**y,
    "iota": lambda *, dtype, shape, dimension, **_: np.broadcast_to(_along(shape, dimension).astype(dtype), shape),
    "is_finite": np.isfinite,
    "le": np.less_equal,
    "log": np.log,
    "log1p": np.log1p,
    "lt": np.less,
    "max": np.maximum,
    "min": np.minimum,
    "mul": np.multiply,
    "name": unchanged,
    "ne": np.not_equal,
    "neg": np.negative,
    "not": np.invert,
    "optimization_barrier": lambda *inputs, **params: inputs,
    "or": np.bitwise_or,
    "pad": _pad,
    # an operation with a variant per platform: take the one for the CPU; None stands for all other platforms
    "platform_index": lambda *, platforms: next(i for i, names in enumerate(platforms) if not names or "cpu" in names),
    "pow": np.power,
    "reduce_and": _over_axes(np.all),
    "reduce_max": _over_axes(np.max),
    "reduce_min": _over_axes(np.min),
    "reduce_or": _over_axes(np.any),
    # numpy would sum int32 in int64
    "reduce_sum": _over_axes(lambda x, axis: np.sum(x, axis, dtype=x.dtype)),
    "rem": np.fmod,
    # how an array is distributed over devices; its values stay
    "reshard": unchanged,
    "reshape": lambda x, *, new_sizes, dimensions, **_: x.transpose(dimensions or [*range(x.ndim)]).reshape(new_sizes),
    "rev": lambda x, *, dimensions: np.flip(x, dimensions),
    "round": lambda x, *, rounding_method: np.round(x) if rounding_method == TO_EVEN else NotImplemented,
    "rsqrt": lambda x, **params: 1 / np.sqrt(x),
    "scatter": scatter(lambda target, where, rows: target.__setitem__(where, rows)),
    "scatter-add": scatter(np.add.at),
    "scatter-max": scatter(np.maximum.at),
    "select_n": lambda which, *cases: np.where(which, *cases[::-1]) if len(cases) == 2 else np.choose(which, cases),
    "sign": np.sign,
    "sin": np.sin,
    "slice": lambda x, *, start_indices, limit_indices, strides, **params: x[
        tuple(map(slice, start_indices, limit_indices, strides or [1] * x.ndim))
    ],
    "split": _split,
    "sqrt": np.sqrt,
    "square": np.square,
    "squeeze": lambda x, *, dimensions, **params: x.reshape([n for i, n in enumerate(x.shape) if i not in dimensions]),
    "stack": lambda *inputs, axis, **params: np.stack(inputs, axis),
    "stop_gradient": unchanged,
    "sub": np.subtract,
    "tan": np.tan,
    "tanh": np.tanh,
    "tile": lambda x, *, reps: np.tile(x, reps),
    "transpose": lambda x, *, permutation, **params: x.transpose(permutation),
    "triangular_solve": triangular_solve,
    "unstack": lambda x, *, axis: list(np.moveaxis(x, axis, 0)),
}
