"""interpret: run a JAX function once, in numpy, without compiling it.

The derived constants of a model are computed once per load, by physics written in JAX. XLA would take seconds to
compile what numpy runs in milliseconds, so the traced function is interpreted: each of its operations by the numpy
function in `NUMPY`, or by JAX itself where the table has none. The result is the same; only the time differs.
"""

import functools
import itertools
import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend.core import (
    ClosedJaxpr,  # pyright: ignore[reportPrivateImportUsage]
    Literal,
)
from scipy.linalg import solve_triangular

from diffsim.xla.bilinear import FORMULAS
from diffsim.xla.gather import numpy_gather_rows
from diffsim.xla.tree_sums import numpy_mask_product

Array = np.ndarray
Values = Sequence[Any]
Rule = Callable[..., Any]


def interpret(function: Callable[..., Any], *arguments: Any) -> Any:
    """function(*arguments) as numpy arrays; arguments are pytrees of arrays."""
    # jax keeps what it traced for as long as the function lives: this one goes with the call
    closed, shape = jax.make_jaxpr(lambda *inputs: function(*inputs), return_shape=True)(*arguments)
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(arguments)]
    results = run_jaxpr(closed, leaves)
    return jax.tree.unflatten(jax.tree.structure(shape), results)


def run_jaxpr(closed: ClosedJaxpr, arguments: Values) -> list[Any]:
    """The results of a traced function, given the leaves of its arguments; as XLA, it says nothing of overflows."""
    with np.errstate(all="ignore"):
        return _run(closed, *arguments)


class _Step(NamedTuple):
    """One operation; values are numbered.

    Attributes:
      rule: its function in numpy.
      inputs: the values that it reads.
      outputs: the value that it gives, or a list of them.
      last: values that nothing reads later.
      equation: JAX's equation.
    """

    rule: Rule
    inputs: Values
    outputs: int | list[int]
    last: Values
    equation: Any


class _Program:
    """A traced function whose values are numbered: literals, arguments, and what is computed; nothing reads 0."""

    def __init__(self, jaxpr: Any) -> None:
        self.literals: list[Any] = [None]
        self.numbers: dict[Any, int] = {}
        self.arguments = [self._number(variable) for variable in (*jaxpr.constvars, *jaxpr.invars)]
        self.results = [self._number(variable) for variable in jaxpr.outvars]
        # backwards: what has not been seen so far is read for the last time
        seen, steps = {*self.results}, []
        for equation in reversed(jaxpr.eqns):
            outputs = [self._number(variable) for variable in equation.outvars]
            outputs = [output if output in seen else 0 for output in outputs]
            # nothing reads it
            if not any(outputs) and not equation.effects:
                continue
            inputs = [self._number(variable) for variable in equation.invars]
            last = [read for read in dict.fromkeys(inputs) if read not in seen and self.literals[read] is None]
            seen.update(inputs)
            several = equation.primitive.multiple_results
            steps.append(_Step(self._rule(equation), inputs, outputs if several else outputs[0], last, equation))
        self.steps = steps[::-1]

    def _number(self, variable: Any) -> int:
        if isinstance(variable, Literal):
            self.literals.append(np.asarray(variable.val))
            return len(self.literals) - 1
        if variable not in self.numbers:
            self.numbers[variable] = len(self.literals)
            self.literals.append(None)
        return self.numbers[variable]

    def _rule(self, equation: Any) -> Rule:
        """An operation as a function of its inputs alone."""
        name, params = equation.primitive.name, equation.params
        if name in CALLS:
            return functools.partial(_run, params[CALLS[name]])
        if name == "cond":
            branches = params["branches"]
            return lambda which, *inputs: _run(branches[int(np.clip(which, 0, len(branches) - 1))], *inputs)
        if name in LOOPS:
            return functools.partial(LOOPS[name], **params)
        if name in FORMULAS:
            formula = _formula(name, *((v.aval.shape, v.aval.dtype) for v in equation.invars))
            return lambda *inputs: _run(formula, *inputs)[0]
        if name in UFUNCS:
            return UFUNCS[name]
        rule = NUMPY.get(name)
        return functools.partial(rule, **params) if rule else lambda *inputs: NotImplemented

    def run(self, arguments: Values) -> list[Any]:
        """The results."""
        values = self.literals.copy()
        for number, value in zip(self.arguments, arguments, strict=True):
            values[number] = value
        for rule, inputs, outputs, last, equation in self.steps:
            read = [values[number] for number in inputs]
            result = rule(*read)
            if result is NotImplemented:
                result = equation.primitive.bind(*map(jax.numpy.asarray, read), **equation.params)
            if isinstance(outputs, int):
                values[outputs] = result if type(result) is np.ndarray else np.asarray(result)
            else:
                for number, value in zip(outputs, result, strict=True):
                    values[number] = value if type(value) is np.ndarray else np.asarray(value)
            # what nothing reads later is let go
            for number in last:
                values[number] = None
        return [values[number] for number in self.results]


# kept for as long as what was traced
_PROGRAMS: weakref.WeakKeyDictionary[Any, _Program] = weakref.WeakKeyDictionary()


def _run(function: Any, *arguments: Any) -> list[Any]:
    """The results of a traced function, closed or without constants."""
    closed = isinstance(function, ClosedJaxpr)
    jaxpr, constants = (function.jaxpr, map(np.asarray, function.consts)) if closed else (function, ())
    if (program := _PROGRAMS.get(jaxpr)) is None:
        program = _PROGRAMS[jaxpr] = _Program(jaxpr)
    return program.run([*constants, *arguments])


@functools.cache
def _formula(name: str, *kinds: tuple[tuple[int, ...], Any]) -> ClosedJaxpr:
    """A product written out, for operands of these shapes and types."""
    return jax.make_jaxpr(FORMULAS[name])(*(jax.ShapeDtypeStruct(*kind) for kind in kinds))


def _while(
    *inputs: Any, cond_jaxpr: Any, body_jaxpr: Any, cond_nconsts: int, body_nconsts: int, **params: Any
) -> Values:
    """`lax.while_loop`: the constants of the condition come first, then those of the body, then what is carried.

    Under `vmap` each element of a batch has its own condition, and stays as it is once that fails.
    """
    of_condition, of_body = inputs[:cond_nconsts], inputs[cond_nconsts : cond_nconsts + body_nconsts]
    state = inputs[cond_nconsts + body_nconsts :]
    while (goes_on := np.asarray(_run(cond_jaxpr, *of_condition, *state)[0])).any():
        after = _run(body_jaxpr, *of_body, *state)
        if goes_on.all():
            state = after
            continue
        here = (goes_on.reshape(goes_on.shape + (1,) * (np.ndim(new) - goes_on.ndim)) for new in after)
        state = [np.where(go, new, old) for go, new, old in zip(here, after, state, strict=True)]
    return state


def _scan(*inputs: Any, jaxpr: Any, length: int, reverse: bool, **params: Any) -> Values:
    """`lax.scan`: constants come first, then what is carried, then arrays that are read row by row."""
    if "ft_in" in params:
        # jax 0.12 keeps the numbers of constants and of what is carried in a tree of the inputs
        num_consts, num_carry, _ = map(len, params["ft_in"].unpack())
    else:
        num_consts, num_carry = params["num_consts"], params["num_carry"]
    constants, carried = inputs[:num_consts], inputs[num_consts : num_consts + num_carry]
    rows = inputs[num_consts + num_carry :]
    steps: list[Values] = []
    for k in reversed(range(length)) if reverse else range(length):
        results = _run(jaxpr, *constants, *carried, *(array[k] for array in rows))
        carried, outputs = results[:num_carry], results[num_carry:]
        steps.append(outputs)
    if not steps:
        return [*carried, *(np.zeros((0, *aval.shape), aval.dtype) for aval in jaxpr.out_avals[num_carry:])]
    columns = zip(*(reversed(steps) if reverse else steps), strict=True)
    return [*carried, *map(np.stack, columns)]


LOOPS: dict[str, Callable[..., Values]] = {"while": _while, "scan": _scan}


def _over_axes(operation: Callable[..., Any]) -> Rule:
    return lambda operand, *, axes, **params: operation(operand, axis=tuple(axes))


# a copy of so many elements takes less time than numpy's view of them
SMALL = 5_000


def _broadcast(operand: Array, *, shape: Values, broadcast_dimensions: Values, **params: Any) -> Array:
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
    """As many elements along each axis, from where they all lie inside."""
    sizes = zip(starts, slice_sizes, operand.shape, strict=True)
    first = [min(max(int(start), 0), length - size) for start, size, length in sizes]
    return operand[tuple(slice(start, start + size) for start, size in zip(first, slice_sizes, strict=True))]


def _split(x: Array, *, sizes: Values, axis: int) -> list[Array]:
    before, ends = (slice(None),) * axis, itertools.accumulate(sizes)
    return [x[(*before, slice(end - size, end))] for size, end in zip(sizes, ends, strict=True)]


def _pad(x: Array, value: Array, *, padding_config: Values) -> Any:
    plain = all(low >= 0 and high >= 0 and not inside for low, high, inside in padding_config)
    return np.pad(x, [ends[:2] for ends in padding_config], constant_values=value) if plain else NotImplemented


class _Axes(NamedTuple):
    """The roles of the axes of a gather or scatter.

    mapped: axes of the operand that the indices are for. dropped: axes of the operand that the result lacks. batching:
    axes of the operand that run together with one of the indices. windows: axes of the result that run inside a window.
    """

    mapped: Values
    dropped: Values
    batching: dict[int, int]
    windows: Values


def _along(shape: Values, axis: int) -> Array:
    """The indices along one axis of a shape, to be broadcast over the others."""
    return np.arange(shape[axis]).reshape([-1 if other == axis else 1 for other in range(len(shape))])


def _window(operand: Array, indices: Array, axes: _Axes, shape: Values) -> Any:
    """Index arrays that pick the windows of a gather or scatter, one per axis of the operand; they have `shape`.

    indices: first element of each window. None where an index lies outside of the operand.
    """
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
    """Windows of the operand; anything out of the ordinary is left to JAX."""
    numbers = dimension_numbers
    windows, rank = numbers.offset_dims, indices.ndim - 1 + len(numbers.offset_dims)
    batching = dict(zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True))
    gone = (*numbers.collapsed_slice_dims, *batching)
    sizes = [size for axis, size in enumerate(slice_sizes) if axis not in gone]
    batch = iter(indices.shape[:-1])
    shape = [sizes[list(windows).index(axis)] if axis in windows else next(batch) for axis in range(rank)]
    axes = _Axes(numbers.start_index_map, numbers.collapsed_slice_dims, batching, windows)
    index = _window(operand, indices, axes, shape)
    return NotImplemented if index is None else operand[index]


def scatter(combine: Callable[[Array, Any, Array], None]) -> Callable[..., Any]:
    """operand.at[...].set, add or max."""

    def rule(operand: Array, indices: Array, updates: Array, *, dimension_numbers: Any, **params: Any) -> Any:
        numbers, result = dimension_numbers, operand.copy()
        mapped, dropped = numbers.scatter_dims_to_operand_dims, numbers.inserted_window_dims
        batching = dict(zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, strict=True))
        axes = _Axes(mapped, dropped, batching, numbers.update_window_dims)
        index = _window(operand, indices, axes, updates.shape)
        if index is None:
            return NotImplemented
        combine(result, index, updates)
        return result

    return rule


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
        # row by row for many matrices side by side; a call of LAPACK for each would take longer
        x = np.zeros_like(b)
        for row in range(a.shape[-1]):
            known = a[..., row : row + 1, :row] @ x[..., :row, :]
            x[..., row : row + 1, :] = (b[..., row : row + 1, :] - known) / a[..., row, row, None, None]
        return x
    options = {"lower": lower, "trans": int(transpose_a), "unit_diagonal": unit_diagonal, "check_finite": False}
    pairs = zip(a.reshape(-1, *a.shape[-2:]), b.reshape(-1, *b.shape[-2:]), strict=True)
    return np.stack([solve_triangular(*pair, **options) for pair in pairs]).reshape(b.shape)


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


def cholesky_solve_sum(*arguments: Array, **params: Any) -> Array:
    """x (..., n) with A x = b, the last argument; A is the sum of matrices (..., n, n) and, after them, a diagonal,
    which may be empty.
    """
    *matrices, diagonal, b = arguments
    unit = np.eye(b.shape[-1], dtype=b.dtype)
    total = sum(matrices, unit * diagonal[..., None, :] if diagonal.shape[-1] else 0 * unit)
    return cholesky_solve(cholesky(total), b[..., None])[..., 0]


def cholesky_solve_gram(matrix: Array, diagonal: Array, jacobian: Array, *others: Array) -> Array:
    """x (..., n) with (M + diagonal + J^T K J) x = b: rows of J, K (..., dim, count, dim) of all of them, and b."""
    *weights, b = others
    products, start = [], 0
    for weight in weights:
        dim, count, _ = weight.shape[-3:]
        rows = jacobian[..., start : start + dim * count, :]
        apart = rows.reshape(*rows.shape[:-2], dim, count, rows.shape[-1])
        products.append(np.einsum("...icn,...ick,...kcm->...nm", apart, weight, apart))
        start += dim * count
    return cholesky_solve_sum(matrix, *products, diagonal, b)


TO_EVEN = jax.lax.RoundingMethod.TO_NEAREST_EVEN

# operations that only call a function, and the parameter that holds it
CALLS = {"jit": "jaxpr", "pjit": "jaxpr", "remat2": "jaxpr", "custom_vmap_call": "call"}
CALLS |= dict.fromkeys(("custom_jvp_call", "custom_vjp_call"), "call_jaxpr")

# operations whose parameters say nothing more than the shapes and types of their inputs, and numpy's names for them
NAMES = (
    "abs acos:arccos add add_any:add and:bitwise_and asin:arcsin atan:arctan atan2:arctan2 copy:asarray cos eq:equal "
    "exp expm1 ge:greater_equal gt:greater in_order:asarray is_finite:isfinite le:less_equal log log1p lt:less "
    "max:maximum min:minimum mul:multiply ne:not_equal neg:negative not:invert or:bitwise_or pow:power rem:fmod sign "
    "sin sqrt square stop_gradient:asarray sub:subtract tan tanh"
)
UFUNCS: dict[str, Rule] = {name.partition(":")[0]: getattr(np, name.split(":")[-1]) for name in NAMES.split()}

NUMPY: dict[str, Rule] = {
    "argmax": lambda x, *, axes, index_dtype: np.argmax(x, axis=axes[0]).astype(index_dtype),
    "argmin": lambda x, *, axes, index_dtype: np.argmin(x, axis=axes[0]).astype(index_dtype),
    "broadcast_in_dim": _broadcast,
    "cholesky": cholesky,
    "concatenate": lambda *inputs, dimension, **params: np.concatenate(inputs, dimension),
    "convert_element_type": lambda x, *, new_dtype, **params: x.astype(new_dtype),
    "div": lambda a, b: a // b if np.issubdtype(a.dtype, np.integer) else a / b,
    "dot_general": dot_general,
    "dynamic_slice": _dynamic_slice,
    "floor": lambda x, **params: np.floor(x),
    "gather": gather,
    "gather_rows": numpy_gather_rows,
    "integer_pow": lambda x, *, y, **params: x**y,
    "iota": lambda *, dtype, shape, dimension, **_: np.broadcast_to(_along(shape, dimension).astype(dtype), shape),
    "mask_product": numpy_mask_product,
    "name": lambda x, *, name: x,
    "optimization_barrier": lambda *inputs, **params: inputs,
    "pad": _pad,
    # of the variants of an operation the one for the CPU; None is for all other platforms
    "platform_index": lambda *, platforms: next(i for i, names in enumerate(platforms) if not names or "cpu" in names),
    "reduce_and": _over_axes(np.all),
    "reduce_max": _over_axes(np.max),
    "reduce_min": _over_axes(np.min),
    "reduce_or": _over_axes(np.any),
    # numpy sums small integers as large ones
    "reduce_sum": _over_axes(lambda x, axis: np.sum(x, axis, dtype=x.dtype)),
    "reshape": lambda x, *, new_sizes, dimensions, **_: x.transpose(dimensions or [*range(x.ndim)]).reshape(new_sizes),
    "rev": lambda x, *, dimensions: np.flip(x, dimensions),
    "round": lambda x, *, rounding_method: np.round(x) if rounding_method == TO_EVEN else NotImplemented,
    "rsqrt": lambda x, **params: 1 / np.sqrt(x),
    "scatter": scatter(lambda target, where, rows: target.__setitem__(where, rows)),
    "scatter-add": scatter(np.add.at),
    "scatter-max": scatter(np.maximum.at),
    "select_n": lambda which, *cases: np.where(which, *cases[::-1]) if len(cases) == 2 else np.choose(which, cases),
    "slice": lambda x, *, start_indices, limit_indices, strides, **params: x[
        tuple(map(slice, start_indices, limit_indices, strides or [1] * x.ndim))
    ],
    "small_cholesky": cholesky,
    "small_cholesky_solve": cholesky_solve,
    "small_cholesky_solve_gram": cholesky_solve_gram,
    "small_cholesky_solve_sum": cholesky_solve_sum,
    "split": _split,
    "squeeze": lambda x, *, dimensions, **params: x.reshape([n for i, n in enumerate(x.shape) if i not in dimensions]),
    "stack": lambda *inputs, axis, **params: np.stack(inputs, axis),
    "triangular_solve": triangular_solve,
    "tile": lambda x, *, reps: np.tile(x, reps),
    "transpose": lambda x, *, permutation, **params: x.transpose(permutation),
    "unstack": lambda x, *, axis: list(np.moveaxis(x, axis, 0)),
    "with_pose_rates": lambda qpos, *poses, **params: poses,
}
