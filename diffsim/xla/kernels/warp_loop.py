"""A while loop of one world as a kernel: a warp for each world of a batch, which ends its loop by itself.

XLA runs each operation of a loop for all worlds, with dozens of launches an iteration, until the last world is done.
Here the functions of the loop, as JAX traced them for one world, are translated, operation by operation, into what a
warp does (warp.py): numbers of an array lie row after row over its lanes and registers, arrays of the problem stay in
memory, and sums go over lanes. What a loop says is written once, in JAX, whoever runs it.

The translation knows the operations of a search: arithmetic, comparisons, parts and joins of arrays, sums, products of
matrices in memory with vectors, and solves with what is assembled of them. A loop with any other stays XLA's
(`Translated.of` says None).
Source of the idea: single program, multiple data; jaxprs as in JAX's documentation, "Understanding Jaxprs".
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.extend import core
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from diffsim.xla.compiled import run_alone
from diffsim.xla.kernels.probe import cuda_loops
from diffsim.xla.kernels.ptx import KNOWN, call
from diffsim.xla.kernels.warp import LANES, NUMPY, Machine, interpret
from diffsim.xla.kernels.warp_kernels import groups_of, read_gram, solve_assembled

# rows of J, and rows of M, of a problem whose iteration is a program of some thousand instructions
TALLEST, WIDEST = 512, 64


class UntranslatedError(Exception):
    """An operation that a warp does not know."""


class InMemory(NamedTuple):
    """Where an array of the problem begins."""

    array: Any
    start: int


class Numbers(NamedTuple):
    """An array of a world. Number e, row after row, is in lane e % 32 of register e // 32; a single one in all lanes.

    `held`: registers, whose last lanes may hold anything; or where they are in memory; or, as an array, known numbers.
    """

    shape: tuple[int, ...]
    held: list[Any] | InMemory | np.ndarray

    @property
    def size(self) -> int:
        """How many numbers."""
        return math.prod(self.shape)


def known(numbers: Any) -> Numbers:
    """Numbers that the program knows."""
    array = np.asarray(numbers)
    return Numbers(array.shape, array)


def registers(w: Machine, x: Numbers) -> list[Any]:
    """The numbers in registers."""
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
    """An array of numbers that are somewhere in some arrays, counted through all of them."""
    if all(isinstance(x.held, np.ndarray) for x in sources):
        return known(np.concatenate([np.asarray(x.held).reshape(-1) for x in sources])[index])
    flat = index.reshape(-1)
    held = sources[0].held
    if len(sources) == 1 and isinstance(held, InMemory) and np.array_equal(flat, flat[0] + np.arange(flat.size)):
        return Numbers(index.shape, InMemory(held.array, held.start + int(flat[0])))
    # of each number of the sources, its register, and its lane; of a single one, which is in all lanes, none
    parts, part_of, lane_of = list[Any](), list[np.ndarray](), list[np.ndarray]()
    for x in sources:
        place = np.arange(x.size)
        part_of.append(len(parts) + place // LANES)
        lane_of.append(np.full(1, -1) if x.size == 1 else place % LANES)
        parts += registers(w, x)
    part, lane = (np.concatenate(column)[flat] for column in (part_of, lane_of))

    def gathered(part: np.ndarray, lane: np.ndarray) -> Any:
        """One register, from those that have its numbers."""
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
        # one number many times
        value = parts[part[0]] if lane[0] < 0 else w.lane(parts[part[0]], int(lane[0]))
        return Numbers(index.shape, [value] * -(-flat.size // LANES))
    starts = range(0, flat.size, LANES)
    return Numbers(index.shape, [gathered(part[s : s + LANES], lane[s : s + LANES]) for s in starts])


def elementwise(w: Machine, operation: str, inputs: Sequence[Numbers], shape: tuple[int, ...]) -> Numbers:
    """An operation on each number; arrays of one number go with all."""
    if all(isinstance(x.held, np.ndarray) for x in inputs):
        return known(NUMPY[operation](*(x.held for x in inputs)))
    parts = []
    for x in inputs:
        if x.size > 1 and x.shape != shape:
            x = moved(w, [x], np.broadcast_to(np.arange(x.size).reshape(x.shape), shape))
        parts.append(registers(w, x))
    count = -(-math.prod(shape) // LANES)
    columns = [part if len(part) == count else part * count for part in parts]
    return Numbers(shape, [w.elementwise(operation, *values) for values in zip(*columns, strict=True)])


def masked(w: Machine, x: Numbers, rest: Any) -> list[Any]:
    """Its registers, with another number in lanes that hold none of its own."""
    parts, left = list(registers(w, x)), x.size % LANES
    if left and x.size > 1:
        parts[-1] = w.chosen(np.arange(LANES) < left, parts[-1], w.constant(np.asarray(rest)))
    return parts


def _added(w: Machine, parts: Sequence[Any]) -> Any:
    return functools.reduce(functools.partial(w.elementwise, "add"), parts)


def _sum(w: Machine, x: Numbers) -> Any:
    """The sum of all numbers."""
    return w.sum(_added(w, masked(w, x, np.float32(0)))) if x.size > 1 else registers(w, x)[0]


def _reduce(w: Machine, operation: str, x: Numbers, axes: tuple[int, ...]) -> Numbers:
    """Sums, or whether all are true, over some axes."""
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
    """The sum of products over an axis of each, of two vectors, or of a matrix in memory and a vector."""
    if len(left.shape) == len(right.shape) == 1:
        return Numbers((), [_sum(w, elementwise(w, "mul", (left, right), left.shape))])
    matrix, vector, axis = (left, right, axes[0]) if len(left.shape) == 2 else (right, left, axes[1])
    if not matrix.size:
        return known(np.zeros(matrix.shape[1 - axis], np.float32))
    if len(matrix.shape) != 2 or len(vector.shape) != 1 or not isinstance(matrix.held, InMemory):
        raise UntranslatedError("a product of these shapes, or with a matrix that is computed")
    numbers, places = masked(w, vector, np.float32(0)), range(0, matrix.shape[1], LANES)
    starts = (matrix.held.start + row * matrix.shape[1] for row in range(matrix.shape[0]))
    # each row by 32 numbers
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


def _solve(
    w: Machine, matrices: Sequence[Numbers], diagonal: Numbers, weights: Sequence[Numbers], b: Numbers
) -> Numbers:
    """x with (M + diagonal + J^T K J) x = b, of matrices M and J in memory, or M alone."""
    (n,), arrays, places = b.shape, [], [x.held for x in matrices if isinstance(x.held, InMemory) and not x.held.start]
    if len(places) < len(matrices):
        raise UntranslatedError("a solve with matrices that are computed, or are parts of others")
    if n > WIDEST or matrices[-1].shape[0] > TALLEST:
        raise UntranslatedError("a solve with matrices that are large")
    for weight in weights:
        # where a loop over constraints finds them
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
    return Numbers((n,), x if n > 1 else [w.lane(x[0], 0)])


# where operations that only move numbers put them: (equation's parameters, shape of the result, places) -> places
MOVES: dict[str, Callable[..., list[np.ndarray]]] = {
    "reshape": lambda _, shape, x: [x.reshape(shape)],
    "squeeze": lambda _, shape, x: [x.reshape(shape)],
    "transpose": lambda params, _, x: [x.transpose(params["permutation"])],
    "slice": lambda params, _, x: [
        x[tuple(map(slice, params["start_indices"], params["limit_indices"], params["strides"] or [None] * x.ndim))]
    ],
    "broadcast_in_dim": lambda params, shape, x: [
        np.broadcast_to(np.expand_dims(x, tuple(set(range(len(shape))) - set(params["broadcast_dimensions"]))), shape)
    ],
    "concatenate": lambda params, _, *parts: [np.concatenate(parts, params["dimension"])],
    "stack": lambda params, _, *parts: [np.stack(parts, params["axis"])],
    "unstack": lambda params, _, x: list(np.moveaxis(x, params["axis"], 0)),
    "split": lambda params, _, x: np.split(x, np.cumsum(params["sizes"])[:-1], params["axis"]),
}
REDUCTIONS = {"reduce_sum": "add", "reduce_and": "and"}
# operations that change nothing, and those that are programs of their own
NOTHING = ("stop_gradient", "optimization_barrier", "copy", "copy_p")
PROGRAMS = ("jit", "pjit", "closed_call", "custom_jvp_call")


def translate(w: Machine, program: Any, arguments: Sequence[Numbers]) -> list[Numbers]:
    """What a jaxpr computes, by a warp."""
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
    """The results of an equation of a jaxpr.

    Raises:
      UntranslatedError: of what a warp does not know.
    """
    name, params, shape = equation.primitive.name, equation.params, tuple(equation.outvars[0].aval.shape)
    if name in PROGRAMS:
        return translate(w, params.get("jaxpr", params.get("call_jaxpr")), inputs)
    if name in NOTHING:
        return list(inputs)
    if name == "iota":
        return [known(np.indices(shape, params["dtype"])[params["dimension"]])]
    if name in MOVES:
        starts = np.cumsum([0, *(x.size for x in inputs)])
        places = [start + np.arange(x.size).reshape(x.shape) for start, x in zip(starts, inputs, strict=False)]
        return [moved(w, inputs, index) for index in MOVES[name](params, shape, *places)]
    # numpy would take bits of integers for truths, and sums of integers are floats to a warp
    first, *_, last = 2 * [np.dtype(variable.aval.dtype).kind for variable in equation.invars]
    if name == "select_n" and first != "b":
        raise UntranslatedError("a choice by an integer")
    if name in KNOWN[last] and (name != "convert_element_type" or params["new_dtype"] == np.float32):
        return [elementwise(w, name, inputs, shape)]
    if last != ("b" if name == "reduce_and" else "f"):
        raise UntranslatedError(f"{name} of integers or truths")
    if name == "square":
        return [elementwise(w, "mul", (*inputs, *inputs), shape)]
    if name in REDUCTIONS:
        return [_reduce(w, REDUCTIONS[name], inputs[0], params["axes"])]
    if name == "dot_general" and params["dimension_numbers"][1] == ((), ()):
        (of_left, of_right), _ = params["dimension_numbers"]
        if len(of_left) == 1:
            return [_product(w, inputs[0], inputs[1], (of_left[0], of_right[0]))]
    if name == "small_cholesky_solve_gram":
        m, diagonal, jacobian, *weights, b = inputs
        return [_solve(w, (m, jacobian), diagonal, weights, b)]
    if name == "small_cholesky_solve_sum" and len(inputs) == 3:
        m, diagonal, b = inputs
        return [_solve(w, (m,), diagonal, (), b)]
    raise UntranslatedError(name)


class Translated:
    """A loop of one world, as jaxprs: (state) -> whether it goes on, (problem, state) -> state, all of them leaves."""

    def __init__(self, unfinished: Any, advance: Any, count: int) -> None:
        self.unfinished, self.advance, self.count = unfinished, advance, count
        self.avals = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in advance.in_avals]

    @classmethod
    def of(cls, unfinished: Callable[..., Any], advance: Callable[..., Any], problem: Any, start: Any) -> Any:
        """The loop of a problem and a start of one world; None if a warp cannot run it."""
        structures = [jax.tree.structure(x) for x in (problem, start)]
        leaves = [jax.tree.leaves(x) for x in (problem, start)]

        def of_leaves(problem: list[Any], state: list[Any]) -> list[Any]:
            trees = (jax.tree.unflatten(*pair) for pair in zip(structures, (problem, state), strict=True))
            return jax.tree.leaves(advance(*trees))

        shapes = [[jax.ShapeDtypeStruct(x.shape, x.dtype) for x in part] for part in leaves]
        goes_on = jax.make_jaxpr(lambda state: unfinished(jax.tree.unflatten(structures[1], state)))(shapes[1])
        loop = cls(goes_on, jax.make_jaxpr(of_leaves)(*shapes), len(leaves[0]))
        return loop if loop.is_known() else None

    def __call__(self, problem: Any, start: Any) -> Any:
        """The last state of a world; under `vmap` a warp for each world."""
        results = loop_p.bind(*[x[None] for x in jax.tree.leaves((problem, start))], loop=self)
        return jax.tree.unflatten(jax.tree.structure(start), [x[0] for x in results])

    def is_known(self) -> bool:
        """Whether a warp knows all operations: an iteration is tried with zeros, in numpy."""
        if any(x.dtype not in (np.float32, np.int32, np.bool_) for x in self.avals):
            return False
        # the warp of one world, whose loop ends at once
        operands = [np.zeros((1, *x.shape), x.dtype) for x in self.avals]
        try:
            self.run(operands, functools.partial(interpret, functools.partial(self.kernel, once=True)))
        except UntranslatedError:
            return False
        return True

    def results(self, worlds: int) -> list[jax.ShapeDtypeStruct]:
        """Shapes and types of the last states."""
        return [jax.ShapeDtypeStruct((worlds, *x.shape), x.dtype) for x in self.avals[self.count :]]

    def run(self, operands: Sequence[Any], call: Callable[..., list[Any]]) -> list[Any]:
        """The last states of a batch, by a `call` of the kernel with operands and results that have numbers."""
        results = self.results(max(map(len, operands)))
        found = iter(call([x for x in operands if x.size], [x for x in results if x.size]))
        return [next(found) if x.size else np.zeros(x.shape, x.dtype) for x in results]

    def kernel(self, w: Machine, *arrays: Any, once: bool = False) -> None:
        """The loop of one world: arrays of the problem, of the start, and of the last state, which is written; without
        those that have no numbers. With `once`, one iteration, whatever the state.
        """
        rest = iter(arrays)
        inputs = [
            Numbers(aval.shape, InMemory(next(rest), 0)) if aval.size else known(np.zeros(aval.shape, aval.dtype))
            for aval in self.avals
        ]
        problem, start = inputs[: self.count], inputs[self.count :]
        counts = np.cumsum([-(-x.size // LANES) for x in start])

        def flat(state: Sequence[Numbers]) -> list[Any]:
            return [part for x in state for part in (registers(w, x) if x.size else [])]

        def state(carry: list[Any]) -> list[Numbers]:
            ends = zip(start, counts, strict=True)
            return [Numbers(x.shape, carry[end - -(-x.size // LANES) : end]) if x.size else x for x, end in ends]

        def advance(carry: list[Any]) -> list[Any]:
            return flat(translate(w, self.advance, [*problem, *state(carry)]))

        def unfinished(carry: list[Any]) -> Any:
            return registers(w, translate(w, self.unfinished, state(carry))[0])[0]

        carry = flat(start)
        last = state(advance(carry) if once else w.repeat(unfinished, advance, carry))
        for x, array in zip((x for x in last if x.size), rest, strict=True):
            for number, part in enumerate(registers(w, x)):
                w.store(array, number * LANES, x.size - number * LANES, part)

    def on_cuda(self, *operands: Any) -> list[Any]:
        """The last states of a batch, by the kernel if that is right on the GPU that is there."""
        if not cuda_loops():
            return self.plain(*operands)
        return self.run(operands, functools.partial(call, "loop", self.kernel))

    def plain(self, *operands: Any) -> list[Any]:
        """The last states of a batch, as XLA computes them: the definition."""
        worlds = max(map(len, operands))
        advance, unfinished = map(core.jaxpr_as_fun, (self.advance, self.unfinished))

        def one(*leaves: Any) -> tuple[Any, ...]:
            problem, start = leaves[: self.count], leaves[self.count :]
            return jax.lax.while_loop(lambda x: unfinished(*x)[0], lambda x: tuple(advance(*problem, *x)), start)

        shared = [len(x) == 1 < worlds for x in operands]
        arguments = [x[0] if by_all else x for x, by_all in zip(operands, shared, strict=True)]
        return list(jax.vmap(one, [None if by_all else 0 for by_all in shared])(*arguments))


def _batch(operands: Sequence[Any], dims: Sequence[int | None], *, loop: Translated) -> tuple[list[Any], list[int]]:
    """Batches of batches are more worlds."""
    size = next(x.shape[dim] for x, dim in zip(operands, dims, strict=True) if dim is not None)
    whole = [x if dim is None else jnp.moveaxis(x, dim, 0) for x, dim in zip(operands, dims, strict=True)]
    worlds = max(x.shape[dim is not None] for x, dim in zip(whole, dims, strict=True))

    def of_all(x: Any, dim: int | None) -> Any:
        if dim is None and len(x) == 1:
            return x
        shape = x.shape[1:] if dim is None else x.shape[2:]
        return jnp.broadcast_to(x, (size, worlds, *shape)).reshape(size * worlds, *shape)

    results = loop_p.bind(*map(of_all, whole, dims), loop=loop)
    return [x.reshape(size, worlds, *x.shape[1:]) for x in results], [0] * len(results)


loop_p = Primitive("warp_loop")
loop_p.multiple_results = True
run_alone(loop_p, lambda *operands, loop: loop.plain(*operands), ("loop",))
loop_p.def_abstract_eval(
    lambda *operands, loop: [ShapedArray(x.shape, x.dtype) for x in loop.results(max(x.shape[0] for x in operands))]
)
batching.primitive_batchers[loop_p] = _batch
LOWERED: dict[str | None, Callable[..., list[Any]]] = {
    None: lambda *operands, loop: loop.plain(*operands),
    "cuda": lambda *operands, loop: loop.on_cuda(*operands),
}
for platform, computed in LOWERED.items():
    mlir.register_lowering(loop_p, mlir.lower_fun(computed, multiple_results=True), platform=platform)
