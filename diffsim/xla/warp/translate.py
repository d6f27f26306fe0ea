"""The translation of jaxprs into instructions of a warp: a function of one world, operation by operation.

The elements of an array are distributed, in row-major order, over the lanes of a warp and over its registers. Arrays of
the problem stay in memory. The machine (machine.py) writes a program for a GPU, or computes with numpy.

There are rules for the operations of a search: arithmetic, comparisons, slices and concatenations, sums, products of
matrices in memory with vectors, and diffsim's own primitives in `TRANSLATIONS`. For any other operation `translate`
raises `UntranslatedError`. Primitives that only move elements have one common rule: the primitive's rule in numpy
(`xla/numpy_rules.py`) is applied to an array of indices, which shows where each element goes, and lanes exchange the
elements that are not in their place.
Source: jaxprs as in JAX's documentation, "Understanding Jaxprs".
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jax.extend import core

from diffsim.xla.numpy_rules import rule_of
from diffsim.xla.warp.machine import LANES, Machine
from diffsim.xla.warp.machine import elementwise as numpy_elementwise
from diffsim.xla.warp.ptx import KNOWN


class UntranslatedError(Exception):
    """There is no rule to translate an operation."""


class InMemory(NamedTuple):
    """An array of the problem, which begins at an element of an array in memory."""

    array: Any
    start: int


class Numbers(NamedTuple):
    """An array of a world. Element e, in row-major order, is in lane e % 32 of register e // 32.

    An array of a single element has it in all lanes.

    Attributes:
      shape: its shape.
      held: its registers, whose last lanes may have any values; or its place in memory; or constants, a numpy array.
    """

    shape: tuple[int, ...]
    held: list[Any] | InMemory | np.ndarray

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)


def known(numbers: Any) -> Numbers:
    """An array of constants."""
    array = np.asarray(numbers)
    return Numbers(array.shape, array)


def registers(w: Machine, x: Numbers) -> list[Any]:
    """The registers with the elements of an array, which are loaded if they are in memory."""
    if isinstance(x.held, list) or not x.size:
        return list(x.held)
    if isinstance(x.held, InMemory):
        array, start = x.held
        if x.size == 1:
            return [w.scalar(array, start)]
        return [w.load(array, start + place, x.size - place) for place in range(0, x.size, LANES)]
    flat = x.held.reshape(-1)
    if np.all(flat == flat[:1]):
        return [w.constant(flat[0])] * -(-flat.size // LANES)
    parts = np.split(np.pad(flat, (0, -flat.size % LANES)), -(-flat.size // LANES))
    return [w.constant(part) for part in parts]


def moved(w: Machine, sources: Sequence[Numbers], index: np.ndarray) -> Numbers:
    """An array whose elements come from some source arrays; `index` counts through the elements of all sources."""
    if all(isinstance(x.held, np.ndarray) for x in sources):
        return known(np.concatenate([np.asarray(x.held).reshape(-1) for x in sources])[index])
    flat = index.reshape(-1)
    held = sources[0].held
    if len(sources) == 1 and isinstance(held, InMemory) and np.array_equal(flat, flat[0] + np.arange(flat.size)):
        return Numbers(index.shape, InMemory(held.array, held.start + int(flat[0])))
    # for each element of the sources, its register and its lane; -1 for a single element, which is in all lanes
    parts = list[Any]()
    part_of = list[np.ndarray]()
    lane_of = list[np.ndarray]()
    for x in sources:
        place = np.arange(x.size)
        part_of.append(len(parts) + place // LANES)
        lane_of.append(np.full(1, -1) if x.size == 1 else place % LANES)
        parts += registers(w, x)
    part = np.concatenate(part_of)[flat]
    lane = np.concatenate(lane_of)[flat]

    def gathered(part: np.ndarray, lane: np.ndarray) -> Any:
        """One register of the result, put together from the registers `part` at lanes `lane`."""
        result = None
        for number in np.unique(part):
            here = part == number
            source = np.where(lane < 0, np.arange(len(lane)), lane)
            value = parts[number]
            if not np.array_equal(source[here], np.flatnonzero(here)):
                value = w.shuffled(value, np.pad(np.where(here, source, 0), (0, LANES - len(lane))))
            mask = np.pad(here, (0, LANES - len(lane)))
            result = value if result is None else w.chosen(mask, value, result)
        return result

    if np.all(part == part[0]) and np.all(lane == lane[0]):
        # one element many times
        value = parts[part[0]] if lane[0] < 0 else w.lane(parts[part[0]], int(lane[0]))
        return Numbers(index.shape, [value] * -(-flat.size // LANES))
    starts = range(0, flat.size, LANES)
    return Numbers(index.shape, [gathered(part[s : s + LANES], lane[s : s + LANES]) for s in starts])


def elementwise(w: Machine, operation: str, inputs: Sequence[Numbers], shape: tuple[int, ...]) -> Numbers:
    """The result of an elementwise operation; arrays with a single element broadcast."""
    if all(isinstance(x.held, np.ndarray) for x in inputs):
        return known(numpy_elementwise(operation, *(np.asarray(x.held) for x in inputs)))
    parts = []
    for x in inputs:
        if x.size > 1 and x.shape != shape:
            x = moved(w, [x], np.broadcast_to(np.arange(x.size).reshape(x.shape), shape))
        parts.append(registers(w, x))
    count = -(-math.prod(shape) // LANES)
    columns = [part if len(part) == count else part * count for part in parts]
    return Numbers(shape, [w.elementwise(operation, *values) for values in zip(*columns, strict=True)])


def masked(w: Machine, x: Numbers, rest: Any) -> list[Any]:
    """The registers of an array, with the constant `rest` in the lanes after its last element."""
    parts = list(registers(w, x))
    left = x.size % LANES
    if left and x.size > 1:
        parts[-1] = w.chosen(np.arange(LANES) < left, parts[-1], w.constant(np.asarray(rest)))
    return parts


def _added(w: Machine, parts: Sequence[Any]) -> Any:
    """The sum of registers, lane by lane."""
    return functools.reduce(functools.partial(w.elementwise, "add"), parts)


def _sum(w: Machine, x: Numbers) -> Any:
    """The sum of all elements."""
    return w.sum(_added(w, masked(w, x, np.float32(0)))) if x.size > 1 else registers(w, x)[0]


def _reduce(w: Machine, operation: str, x: Numbers, axes: tuple[int, ...]) -> Numbers:
    """The reduction over some axes by the operation "add" or "and"."""
    kept = [axis for axis in range(len(x.shape)) if axis not in axes]
    shape = tuple(x.shape[axis] for axis in kept)
    if math.prod(shape) > 1:
        place = np.arange(x.size).reshape(x.shape).transpose(*axes, *kept).reshape(-1, *shape)
        parts = [moved(w, [x], one) for one in place]
        return functools.reduce(lambda a, b: elementwise(w, operation, (a, b), shape), parts)
    if operation == "add":
        return Numbers(shape, [_sum(w, x)])
    truths = masked(w, x, np.bool_(True))
    return Numbers(shape, [w.all(functools.reduce(functools.partial(w.elementwise, "and"), truths))])


def _product(w: Machine, left: Numbers, right: Numbers, axes: tuple[int, int]) -> Numbers:
    """The product of two vectors, or of a matrix in memory and a vector, contracted over one axis of each."""
    if len(left.shape) == len(right.shape) == 1:
        return Numbers((), [_sum(w, elementwise(w, "mul", (left, right), left.shape))])
    matrix, vector, axis = (left, right, axes[0]) if len(left.shape) == 2 else (right, left, axes[1])
    if not matrix.size:
        return known(np.zeros(matrix.shape[1 - axis], np.float32))
    if len(matrix.shape) != 2 or len(vector.shape) != 1 or not isinstance(matrix.held, InMemory):
        raise UntranslatedError("a product of these shapes, or with a matrix that is computed")
    numbers = masked(w, vector, np.float32(0))
    places = range(0, matrix.shape[1], LANES)
    starts = (matrix.held.start + row * matrix.shape[1] for row in range(matrix.shape[0]))
    # the rows of the matrix, in registers of 32 elements
    rows = [[w.load(matrix.held.array, start + g, matrix.shape[1] - g) for g in places] for start in starts]
    if axis == 1:
        parts = [_added(w, [x * y for x, y in zip(row, numbers, strict=True)]) for row in rows]
        if len(parts) == 1:
            return Numbers((1,), [w.sum(parts[0])])
        return Numbers((len(parts),), [w.sums(parts[place : place + LANES]) for place in range(0, len(parts), LANES)])
    everywhere = [number for part in numbers for number in w.lanes(part)] if vector.size > 1 else numbers
    products = [[x * number for x in row] for row, number in zip(rows, everywhere, strict=False)]
    columns = [_added(w, column) for column in zip(*products, strict=True)]
    return Numbers((matrix.shape[1],), columns if matrix.shape[1] > 1 else [w.lane(columns[0], 0)])


# Rules for diffsim's own primitives: (machine, operands) -> results. The module of a primitive adds its rule here.
TRANSLATIONS: dict[str, Callable[[Machine, Sequence["Numbers"]], list["Numbers"]]] = {}
# primitives that only move elements; their rule in numpy, applied to indices, says where
MOVES = {"reshape", "squeeze", "transpose", "slice", "broadcast_in_dim", "concatenate", "stack", "unstack", "split"}
REDUCTIONS = {"reduce_sum": "add", "reduce_and": "and"}
# operations that return their inputs
NOTHING = ("stop_gradient", "optimization_barrier", "copy", "copy_p", "reshard")
# operations that contain a jaxpr
PROGRAMS = ("jit", "pjit", "closed_call", "custom_jvp_call")


def translate(w: Machine, program: Any, arguments: Sequence[Numbers]) -> list[Numbers]:
    """The results of a jaxpr, computed by a warp."""
    jaxpr = program.jaxpr
    values = dict(zip(jaxpr.constvars, map(known, program.consts), strict=True))
    values |= dict(zip(jaxpr.invars, arguments, strict=True))

    def value(variable: Any) -> Numbers:
        return known(variable.val) if isinstance(variable, core.Literal) else values[variable]

    for equation in jaxpr.eqns:
        shapes = [(variable.aval.shape, variable.aval.dtype) for variable in equation.outvars]
        if any(math.prod(shape) for shape, _ in shapes):
            results = operation(w, equation, [value(variable) for variable in equation.invars])
        else:
            results = [known(np.zeros(*pair)) for pair in shapes]
        values |= dict(zip(equation.outvars, results, strict=True))
    return [value(variable) for variable in jaxpr.outvars]


def operation(w: Machine, equation: Any, inputs: Sequence[Numbers]) -> list[Numbers]:
    """The results of one equation of a jaxpr.

    Raises:
      UntranslatedError: there is no rule for the operation.
    """
    name = equation.primitive.name
    params = equation.params
    shape = tuple(equation.outvars[0].aval.shape)
    if name in PROGRAMS:
        return translate(w, params.get("jaxpr", params.get("call_jaxpr")), inputs)
    if name in NOTHING:
        return list(inputs)
    if name == "iota":
        return [known(np.indices(shape, params["dtype"])[params["dimension"]])]
    if name in MOVES:
        starts = np.cumsum([0, *(x.size for x in inputs)])
        places = [start + np.arange(x.size).reshape(x.shape) for start, x in zip(starts, inputs, strict=False)]
        rule = rule_of(name, params)
        assert rule is not None, name
        moves = rule(*places)
        return [moved(w, inputs, index) for index in (moves if isinstance(moves, list) else [moves])]
    # Integers are refused where numpy and a warp differ: in logical operations, which act on bits, and in sums.
    # the list is repeated, because an operation may have only one input
    first, *_, last = 2 * [np.dtype(variable.aval.dtype).kind for variable in equation.invars]
    if name == "select_n" and first != "b":
        raise UntranslatedError("a choice by an integer")
    if name in KNOWN[last] and (name != "convert_element_type" or params["new_dtype"] == np.float32):
        return [elementwise(w, name, inputs, shape)]
    if last != ("b" if name == "reduce_and" else "f"):
        raise UntranslatedError(f"{name} of integers or booleans")
    if name == "square":
        return [elementwise(w, "mul", (*inputs, *inputs), shape)]
    if name in REDUCTIONS:
        return [_reduce(w, REDUCTIONS[name], inputs[0], params["axes"])]
    if name == "dot_general" and params["dimension_numbers"][1] == ((), ()):
        (of_left, of_right), _ = params["dimension_numbers"]
        if len(of_left) == 1:
            return [_product(w, inputs[0], inputs[1], (of_left[0], of_right[0]))]
    if name in TRANSLATIONS:
        return TRANSLATIONS[name](w, inputs)
    raise UntranslatedError(name)
