"""interpret: run a JAX function once, in numpy, without compiling it.

The derived constants of a model are computed once per load, by physics written in JAX. XLA would take seconds to
compile what numpy runs in milliseconds, so the traced function is interpreted: each of its operations by the numpy
function in `NUMPY`, or by JAX itself where the table has none. The result is the same; only the time differs.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import (
    ClosedJaxpr,  # pyright: ignore[reportPrivateImportUsage]
    Literal,
)

from diffsim.compiler.host.matrices import (
    cholesky,
    cholesky_solve,
    cholesky_solve_gram,
    cholesky_solve_sum,
    dot_general,
    triangular_solve,
)
from diffsim.compiler.host.windows import gather, scatter
from diffsim.xla.bilinear import FORMULAS
from diffsim.xla.gather import numpy_gather_rows

Array = np.ndarray
Values = Sequence[Any]
Rule = Callable[..., Any]


def interpret(function: Callable[..., Any], *arguments: Any) -> Any:
    """function(*arguments) as numpy arrays; arguments are pytrees of arrays."""
    # jax keeps what it traced for as long as the function lives: this one goes with the call
    closed, shape = jax.make_jaxpr(lambda *given: function(*given), return_shape=True)(*arguments)
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(arguments)]
    results = run_jaxpr(closed, leaves)
    return jax.tree.unflatten(jax.tree.structure(shape), results)


def run_jaxpr(closed: ClosedJaxpr, arguments: Values) -> list[Any]:
    """The results of a traced function, given the leaves of its arguments."""
    jaxpr = closed.jaxpr
    known: dict[Any, Any] = dict(zip(jaxpr.constvars, map(np.asarray, closed.consts), strict=True))
    known.update(zip(jaxpr.invars, arguments, strict=True))
    # what nothing reads later is let go
    last = {v: equation for equation in jaxpr.eqns for v in equation.invars if not isinstance(v, Literal)}
    kept = {v for v in jaxpr.outvars if not isinstance(v, Literal)}
    for equation in jaxpr.eqns:
        inputs = [np.asarray(v.val) if isinstance(v, Literal) else known[v] for v in equation.invars]
        outputs = _apply(equation.primitive, inputs, equation.params)
        known.update((v, x) for v, x in zip(equation.outvars, outputs, strict=True) if v in last or v in kept)
        for v in equation.invars:
            if not isinstance(v, Literal) and last[v] is equation and v not in kept:
                known.pop(v, None)
    return [np.asarray(v.val) if isinstance(v, Literal) else known[v] for v in jaxpr.outvars]


def _apply(primitive: Any, inputs: Values, params: dict[str, Any]) -> Values:
    """The outputs of one operation."""
    if primitive.name in CALLS:
        inside = params[CALLS[primitive.name]]
        return run_jaxpr(inside if isinstance(inside, ClosedJaxpr) else ClosedJaxpr(inside, ()), inputs)
    if primitive.name == "cond":
        branches = params["branches"]
        return run_jaxpr(branches[int(np.clip(inputs[0], 0, len(branches) - 1))], inputs[1:])
    if primitive.name in LOOPS:
        return LOOPS[primitive.name](inputs, **params)
    if primitive.name in FORMULAS:
        return run_jaxpr(_formula(primitive.name, *((x.shape, x.dtype) for x in inputs)), inputs)
    rule = NUMPY.get(primitive.name)
    result = NotImplemented if rule is None else rule(*inputs, **params)
    if result is NotImplemented:
        result = primitive.bind(*map(jax.numpy.asarray, inputs), **params)
    return [np.asarray(each) for each in (result if primitive.multiple_results else [result])]


@functools.cache
def _formula(name: str, *kinds: tuple[tuple[int, ...], Any]) -> ClosedJaxpr:
    """A product written out, for operands of these shapes and types."""
    return jax.make_jaxpr(FORMULAS[name])(*(jax.ShapeDtypeStruct(*kind) for kind in kinds))


def _while(
    inputs: Values, *, cond_jaxpr: Any, body_jaxpr: Any, cond_nconsts: int, body_nconsts: int, **params: Any
) -> Values:
    """`lax.while_loop`: the constants of the condition come first, then those of the body, then what is carried.

    Under `vmap` each element of a batch has its own condition, and stays as it is once that fails.
    """
    of_condition, of_body = inputs[:cond_nconsts], inputs[cond_nconsts : cond_nconsts + body_nconsts]
    state = inputs[cond_nconsts + body_nconsts :]
    while (goes_on := np.asarray(run_jaxpr(cond_jaxpr, [*of_condition, *state])[0])).any():
        after = run_jaxpr(body_jaxpr, [*of_body, *state])
        if goes_on.all():
            state = after
            continue
        here = (goes_on.reshape(goes_on.shape + (1,) * (np.ndim(new) - goes_on.ndim)) for new in after)
        state = [np.where(*each) for each in zip(here, after, state, strict=True)]
    return state


def _scan(inputs: Values, *, jaxpr: Any, length: int, reverse: bool, **params: Any) -> Values:
    """`lax.scan`: constants come first, then what is carried, then arrays that are read row by row."""
    num_consts, num_carry = _scan_numbers(**params)
    constants, carried = inputs[:num_consts], inputs[num_consts : num_consts + num_carry]
    rows = inputs[num_consts + num_carry :]
    made: list[Values] = []
    for k in reversed(range(length)) if reverse else range(length):
        results = run_jaxpr(jaxpr, [*constants, *carried, *(each[k] for each in rows)])
        carried, outputs = results[:num_carry], results[num_carry:]
        made.append(outputs)
    if not made:
        return [*carried, *(np.zeros((0, *aval.shape), aval.dtype) for aval in jaxpr.out_avals[num_carry:])]
    columns = zip(*(reversed(made) if reverse else made), strict=True)
    return [*carried, *map(np.stack, columns)]


def _scan_numbers(ft_in: Any = None, num_consts: int = 0, num_carry: int = 0, **params: Any) -> tuple[int, int]:
    """Numbers of constants and of what is carried; jax 0.12 keeps them in a tree of the inputs."""
    if ft_in is None:
        return num_consts, num_carry
    constants, carried, _ = ft_in.unpack()
    return len(constants), len(carried)


LOOPS: dict[str, Callable[..., Values]] = {"while": _while, "scan": _scan}


def _plain(operation: Callable[..., Any]) -> Rule:
    """An operation whose parameters say nothing more than the shapes and types of its inputs."""
    return lambda *inputs, **params: operation(*inputs)


def _over_axes(operation: Callable[..., Any]) -> Rule:
    return lambda operand, *, axes, **params: operation(operand, axis=tuple(axes))


def _select(which: Array, *cases: Array, **params: Any) -> Array:
    return np.choose(which.astype(int), np.broadcast_arrays(*cases))


def _slice(
    operand: Array, *, start_indices: Values, limit_indices: Values, strides: Values | None, **params: Any
) -> Array:
    steps = strides or [1] * operand.ndim
    return operand[tuple(map(slice, start_indices, limit_indices, steps))]


def _broadcast(operand: Array, *, shape: Values, broadcast_dimensions: Values, **params: Any) -> Array:
    spread = [1] * len(shape)
    for axis, size in zip(broadcast_dimensions, operand.shape, strict=True):
        spread[axis] = size
    return np.broadcast_to(operand.reshape(spread), shape)


def _iota(*, dtype: Any, shape: Values, dimension: int, **params: Any) -> Array:
    line = np.arange(shape[dimension], dtype=dtype)
    return np.broadcast_to(line.reshape([-1 if axis == dimension else 1 for axis in range(len(shape))]), shape)


def _pad(x: Array, value: Array, *, padding_config: Values) -> Any:
    plain = all(low >= 0 and high >= 0 and not inside for low, high, inside in padding_config)
    return np.pad(x, [ends[:2] for ends in padding_config], constant_values=value) if plain else NotImplemented


def _round(x: Array, *, rounding_method: Any) -> Any:
    return np.round(x) if rounding_method == jax.lax.RoundingMethod.TO_NEAREST_EVEN else NotImplemented


def _cpu(*, platforms: Sequence[Sequence[str] | None]) -> int:
    """Which of the variants of an operation is the one for the CPU; None is for all other platforms."""
    return next(index for index, names in enumerate(platforms) if names is None or "cpu" in names)


def _quiet(operation: Callable[..., Any]) -> Rule:
    """A plain operation that says nothing where it has no value, or one beyond all numbers."""

    def rule(*inputs: Array, **params: Any) -> Any:
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return operation(*inputs)

    return rule


# operations that only call a function, and the parameter that holds it
CALLS = {"jit": "jaxpr", "pjit": "jaxpr", "remat2": "jaxpr", "custom_vmap_call": "call"}
CALLS |= dict.fromkeys(("custom_jvp_call", "custom_vjp_call"), "call_jaxpr")

NUMPY: dict[str, Rule] = {
    "abs": _plain(np.abs),
    "add": _plain(np.add),
    "add_any": _plain(np.add),
    "and": _plain(np.bitwise_and),
    "argmax": lambda x, *, axes, index_dtype: np.argmax(x, axis=axes[0]).astype(index_dtype),
    "argmin": lambda x, *, axes, index_dtype: np.argmin(x, axis=axes[0]).astype(index_dtype),
    "asin": _quiet(np.arcsin),
    "atan2": _plain(np.arctan2),
    "broadcast_in_dim": _broadcast,
    "carried_poses": lambda qpos, *poses, **params: poses,
    "cholesky": cholesky,
    "concatenate": lambda *inputs, dimension, **params: np.concatenate(inputs, dimension),
    "convert_element_type": lambda x, *, new_dtype, **params: x.astype(new_dtype),
    "copy": _plain(np.asarray),
    "cos": _plain(np.cos),
    "div": _quiet(lambda a, b: a // b if np.issubdtype(a.dtype, np.integer) else a / b),
    "dot_general": dot_general,
    "eq": _plain(np.equal),
    "floor": lambda x, **params: np.floor(x),
    "gather": gather,
    "gather_rows": numpy_gather_rows,
    "ge": _plain(np.greater_equal),
    "gt": _plain(np.greater),
    "integer_pow": lambda x, *, y, **params: x**y,
    "iota": _iota,
    "le": _plain(np.less_equal),
    "lt": _plain(np.less),
    "max": _plain(np.maximum),
    "min": _plain(np.minimum),
    "mul": _quiet(np.multiply),
    "ne": _plain(np.not_equal),
    "neg": _plain(np.negative),
    "not": _plain(np.invert),
    "optimization_barrier": lambda *inputs, **params: inputs,
    "or": _plain(np.bitwise_or),
    "pad": _pad,
    "platform_index": _cpu,
    "reduce_and": _over_axes(np.all),
    "reduce_max": _over_axes(np.max),
    "reduce_min": _over_axes(np.min),
    "reduce_or": _over_axes(np.any),
    # numpy sums small integers as large ones
    "reduce_sum": _over_axes(lambda x, axis: np.sum(x, axis, dtype=x.dtype)),
    "reshape": lambda x, *, new_sizes, dimensions, **_: x.transpose(dimensions or [*range(x.ndim)]).reshape(new_sizes),
    "round": _round,
    "rsqrt": _quiet(lambda x: 1 / np.sqrt(x)),
    "scatter": scatter(lambda target, where, rows: target.__setitem__(where, rows)),
    "scatter-add": scatter(np.add.at),
    "scatter-max": scatter(np.maximum.at),
    "select_n": _select,
    "sign": _plain(np.sign),
    "sin": _plain(np.sin),
    "slice": _slice,
    "small_cholesky": cholesky,
    "small_cholesky_solve": cholesky_solve,
    "small_cholesky_solve_gram": cholesky_solve_gram,
    "small_cholesky_solve_sum": cholesky_solve_sum,
    "split": lambda x, *, sizes, axis, **params: np.split(x, np.cumsum(sizes)[:-1], axis),
    "sqrt": _quiet(np.sqrt),
    "square": _plain(np.square),
    "squeeze": lambda x, *, dimensions, **params: x.reshape([n for i, n in enumerate(x.shape) if i not in dimensions]),
    "stack": lambda *inputs, axis, **params: np.stack(inputs, axis),
    "stop_gradient": _plain(np.asarray),
    "sub": _plain(np.subtract),
    "triangular_solve": triangular_solve,
    "transpose": lambda x, *, permutation, **params: np.transpose(x, permutation),
}
