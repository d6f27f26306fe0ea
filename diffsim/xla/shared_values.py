"""Stores those values of a function on a CPU that several loops of XLA would otherwise compute again.

XLA for CPU fuses elementwise operations: each result that a program writes becomes one loop, which computes everything
that leads to that result. A value that several results need is computed again for each of them, in reverse mode up to
twenty times. `stored_where_shared` traces a function, counts how often each of its values would be computed, and puts a
barrier (`barriers.py`) behind a value if computing it again costs more than writing and reading it. So formulas need no
barriers of their own.

The count is a model of XLA's fusion:

- A value is computed in the loops of all results that depend on it through fused operations. In one loop, an element is
  computed once if all operations that read it do so at the same index.
- The parts of a concatenation are branches of a loop: a value that two parts read is computed in both.
- Reductions, searches, loops and calls read stored arrays, and store their results.
- XLA itself stores the result of a division, a root and the like if several operations read it.

Reverse mode also reads values of the function, and passes cotangents from results back to operands. If a function is
differentiated, the same count over both computations together determines which values are stored.
"""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jax.extend.core import Literal

from diffsim.xla.barriers import for_cpu, stored

Function = TypeVar("Function", bound=Callable[..., Any])

# A value is stored if computing it again costs at least this many operations per element. With a lower limit, storing
# costs more than it saves; with a higher limit, the gradient of a capsule and a box takes 1.4 times as long.
REPEATED = 4.0
# the limit for values that only derivatives repeat; with half of it, programs take longer to compile and none is faster
REPEATED_IN_REVERSE = 8.0
# how often the choice is revised: if one value is stored, it may no longer be worth storing another
REVISIONS = 2

# operations that only move values, and cost nothing inside a loop
JOINS = frozenset({"concatenate", "pad", "slice", "split", "stack"})
MOVES = JOINS | {
    "broadcast_in_dim",
    "convert_element_type",
    "copy",
    "reshape",
    "rev",
    "squeeze",
    "stop_gradient",
    "transpose",
}
CHEAP = MOVES | {"abs", "neg", "not", "sign"}
# elementwise operations that XLA for CPU fuses, at one unit each
ARITHMETIC = frozenset(
    {"add", "add_any", "ceil", "clamp", "floor", "integer_pow", "max", "min", "mul", "square", "sub"}
)
CHOICES = frozenset({"and", "eq", "ge", "gt", "is_finite", "le", "lt", "ne", "or", "round", "select_n", "xor"})
BITS = frozenset({"bitcast_convert_type", "iota", "shift_left", "shift_right_arithmetic", "shift_right_logical"})
PLAIN = ARITHMETIC | CHOICES | BITS
# elementwise operations that take longer, in the same unit; XLA itself stores their results if several operations read
# them
EXPENSIVE = {
    "cos": 20.0,
    "div": 6.0,
    "exp": 15.0,
    "log": 15.0,
    "pow": 30.0,
    "rem": 8.0,
    "rsqrt": 6.0,
    "sin": 20.0,
    "sqrt": 6.0,
    "tan": 30.0,
    "tanh": 15.0,
}
# products of vectors (math/vector.py): three products and two sums
PRODUCT = 5.0


class _Read(NamedTuple):
    """How an operation reads one of its operands.

    Attributes:
      value: the number of the operand.
      part: the branch of a loop that reads the operand; an operand that several branches read is computed in each.
      times: number of elements of the operand that one element of the result reads.
    """

    value: int
    part: int | None = None
    times: float = 1.0


class _Operation(NamedTuple):
    """An operation of a traced function, with the numbers of its operands (None for constants) and its results."""

    name: str
    operands: tuple[int | None, ...]
    results: tuple[int, ...]


class _Graph:
    """The values of a computation, each after the values from which it is computed.

    Attributes (lists with one entry per value, except `ends`):
      size: number of elements.
      cost: number of operations for one element.
      reads: the values from which it is computed.
      fuses: whether XLA computes it in the loops that read it; otherwise it is stored.
      storable: whether a barrier behind it can be worth its cost.
      expensive: whether XLA itself stores it if several operations read it.
      ends: the values that the computation returns.
    """

    def __init__(self) -> None:
        self.size: list[int] = []
        self.cost: list[float] = []
        self.reads: list[tuple[_Read, ...]] = []
        self.fuses: list[bool] = []
        self.storable: list[bool] = []
        self.expensive: list[bool] = []
        self.ends: list[int] = []

    def add(self, size: int, name: str | None, cost: float, reads: Sequence[_Read]) -> int:
        """Adds a value; `name` is the name of its operation if XLA fuses the operation."""
        self.size.append(size)
        self.cost.append(cost)
        self.reads.append(tuple(reads))
        self.fuses.append(name is not None)
        self.storable.append(name is not None and name not in MOVES)
        self.expensive.append(name in EXPENSIVE)
        return len(self.size) - 1

    def behind(self, cut: set[int]) -> list[int]:
        """For each value, the operations that compute it from stored values: from those in `cut`, and those of XLA.

        A set of operations is an integer with one bit for each operation.
        """
        behind = [0] * len(self.size)
        for value, fuses in enumerate(self.fuses):
            if not fuses:
                continue
            needed = 1 << value
            for read in self.reads[value]:
                if read.value not in cut:
                    needed |= behind[read.value]
            behind[value] = needed
        return behind

    def costly(self, limit: float, cut: set[int]) -> Callable[[int, float], bool]:
        """(value, repeats) -> whether repeating the value costs at least `limit`, if the values in `cut` are stored."""
        behind = self.behind(cut)
        of_cost: dict[float, int] = {}
        for value, cost in enumerate(self.cost):
            if cost:
                of_cost[cost] = of_cost.get(cost, 0) | (1 << value)

        def decide(value: int, repeats: float) -> bool:
            if repeats <= 1:
                return False
            work = sum(cost * (behind[value] & those).bit_count() for cost, those in of_cost.items())
            return (repeats - 1) * work >= limit

        return decide

    def repeats(self, cut: set[int], decide: Callable[[int, float], bool] | None = None) -> list[float]:
        """How often each value is computed, if the values in `cut` are stored.

        On the way from results to operands, `decide(value, repeats)` says whether a further value is put into `cut`.
        """
        # for each value, the loops that compute it, and how many of its elements each loop computes: the largest number
        # that one operation in the loop reads, not the sum over operations
        loops: list[dict[Any, float]] = [{} for _ in self.size]
        repeats = [0.0] * len(self.size)
        for number, value in enumerate(self.ends):
            loops[value]["end", number] = self.size[value]
        for value in reversed(range(len(self.size))):
            mine = loops[value]
            if not self.fuses[value]:
                for read in self.reads[value]:
                    loops[read.value]["whole", value, read.part] = self.size[read.value]
            if not mine:
                continue
            size = self.size[value]
            repeats[value] = count = sum(mine.values()) / size
            by_xla = count > 1 and self.expensive[value]
            if decide and self.storable[value] and not by_xla and decide(value, count):
                cut.add(value)
            if not self.fuses[value]:
                continue
            if value in cut or by_xla:
                mine = {("stored", value): size}
            for read in self.reads[value]:
                target = loops[read.value]
                for loop, elements in mine.items():
                    key = loop if read.part is None else (loop, value, read.part)
                    wanted = elements * read.times
                    if wanted > target.get(key, 0):
                        target[key] = wanted
        return repeats

    def shared(self, known: set[int], limit: float) -> set[int]:
        """The values to store: those in `known`, and those whose repetition costs at least `limit` per element."""
        cut = set(known)
        self.repeats(cut, self.costly(limit, known))
        for _ in range(REVISIONS):
            repeats = self.repeats(cut)
            costly = self.costly(limit, cut)
            kept = {value for value in cut if value in known or costly(value, repeats[value])}
            if kept != cut:
                costly = self.costly(limit, kept)
            cut = kept
            self.repeats(cut, costly)
        return cut


def _size(aval: Any) -> int:
    """The number of elements of a value, at least 1."""
    return max(1, math.prod(aval.shape))


def _is_barrier(equation: Any) -> bool:
    """Whether it is a call of `barrier`."""
    return equation.primitive.name in ("jit", "pjit") and "optimization_barrier" in equation.params["name"]


# (equation, its operands) -> its results
Step = Callable[[Any, list[Any]], Sequence[Any]]


def _walk(jaxpr: Any, constants: Sequence[Any], inputs: Sequence[Any], step: Step) -> list[Any]:
    """Evaluates a traced function with `step` for each equation, also for the equations of jitted functions inside."""
    values = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*constants, *inputs], strict=True))
    for equation in jaxpr.eqns:
        operands = [v.val if isinstance(v, Literal) else values[v] for v in equation.invars]
        if equation.primitive.name in ("jit", "pjit") and not _is_barrier(equation):
            inner = equation.params["jaxpr"]
            results = _walk(inner.jaxpr, inner.consts, operands, step)
        else:
            results = step(equation, operands)
        values.update(zip(equation.outvars, results, strict=True))
    return [v.val if isinstance(v, Literal) else values[v] for v in jaxpr.outvars]


class _Value(NamedTuple):
    """Stands for an array while `_walk` builds the graph: the number of the value in the graph."""

    number: int


class _Traced(NamedTuple):
    """A traced function: the graph of its values, its operations, the values that are inputs, and those of floats."""

    graph: _Graph
    operations: list[_Operation]
    inputs: list[int]
    floating: set[int]


def _traced(closed: Any) -> _Traced:
    """The graph of a traced function."""
    graph = _Graph()
    operations = list[_Operation]()
    floating = set[int]()

    def value(aval: Any, name: str | None, cost: float, reads: Sequence[_Read]) -> int:
        number = graph.add(_size(aval), name, cost, reads)
        if jnp.issubdtype(aval.dtype, jnp.floating):
            floating.add(number)
        return number

    def step(equation: Any, operands: list[Any]) -> list[_Value]:
        name = equation.primitive.name
        numbers = tuple(each.number if isinstance(each, _Value) else None for each in operands)
        cost = _cost(name)
        reads = _reads(name, numbers, graph.size, [_size(v.aval) for v in equation.outvars], _is_barrier(equation))
        results = tuple(value(v.aval, None if cost is None else name, cost or 0, reads) for v in equation.outvars)
        operations.append(_Operation(name=name, operands=numbers, results=results))
        return [_Value(number) for number in results]

    jaxpr = closed.jaxpr
    constants = [_Value(value(v.aval, None, 0, ())) for v in jaxpr.constvars]
    inputs = [_Value(value(v.aval, None, 0, ())) for v in jaxpr.invars]
    returned = _walk(jaxpr, constants, inputs, step)
    graph.ends = [each.number for each in returned if isinstance(each, _Value)]
    return _Traced(graph=graph, operations=operations, inputs=[each.number for each in inputs], floating=floating)


def _cost(name: str) -> float | None:
    """Operations for one element of a result, if XLA fuses it."""
    if name in CHEAP:
        return 0
    if name.startswith("vector_"):
        return PRODUCT
    return 1 if name in PLAIN else EXPENSIVE.get(name)


def _reads(
    name: str, operands: tuple[int | None, ...], size: list[int], results: list[int], is_barrier: bool
) -> list[_Read]:
    """How an operation reads its operands."""
    reads = []
    for place, value in enumerate(operands):
        if value is None:
            continue
        part: int | None = None
        times = 1.0
        if name in ("slice", "split"):
            part = 0
        elif name in ("concatenate", "stack"):
            part = place
            times = min(1.0, size[value] / results[0])
        elif name.startswith("vector_"):
            # a sum over three elements, or a cross product, whose components read two each
            part = 0
            times = max(2.0, size[value] / results[0])
        elif is_barrier:
            part = place
        reads.append(_Read(value=value, part=part, times=times))
    return reads


class _Reverse:
    """The graph of a function and of its reverse mode together.

    Attributes:
      graph: the values of the function, then terms of cotangents and their sums.
      cotangent: for each value of the function that has one, the number of its cotangent.
    """

    def __init__(self, traced: _Traced) -> None:
        self.graph = traced.graph
        self.cotangent: dict[int, int] = {}
        self._contributions: dict[int, list[int]] = {}
        moving = self._moving(traced)
        for end in {end for end in self.graph.ends if end in moving}:
            self._contribute(end, None, 0, ())
        for operation in reversed(traced.operations):
            given = {value: self._total(value) for value in operation.results if value in self._contributions}
            if given and operation.name != "stop_gradient":
                self._transpose(operation, given, moving)
        self.graph.ends = [*self.graph.ends, *(self._total(v) for v in traced.inputs if v in self._contributions)]

    @staticmethod
    def _moving(traced: _Traced) -> set[int]:
        """Values that depend on inputs and can have derivatives."""
        moving = set(traced.inputs) & traced.floating
        for operation in traced.operations:
            if operation.name != "stop_gradient" and any(value in moving for value in operation.operands):
                moving |= set(operation.results) & traced.floating
        return moving

    def _contribute(self, value: int, name: str | None, cost: float, reads: Sequence[_Read]) -> None:
        """A term of the cotangent of a value."""
        term = self.graph.add(self.graph.size[value], name, cost, reads)
        self._contributions.setdefault(value, []).append(term)

    def _total(self, value: int) -> int:
        """The cotangent of a value: the sum of its terms."""
        if value not in self.cotangent:
            terms = self._contributions[value]
            reads = [_Read(term) for term in terms]
            self.cotangent[value] = (
                terms[0] if len(terms) == 1 else self.graph.add(self.graph.size[value], "add", len(terms) - 1, reads)
            )
        return self.cotangent[value]

    def _transpose(self, operation: _Operation, given: dict[int, int], moving: set[int]) -> None:
        """Passes the cotangents `given` of an operation's results back to its operands.

        A term also reads values of the function: the other factor of a product, the result of a root, or the condition
        of a choice.
        """
        name = operation.name
        operands = operation.operands
        results = operation.results
        first = given.get(results[0])
        for place, value in enumerate(operands):
            if value is None or value not in moving:
                continue
            others = [other for other in operands[:place] + operands[place + 1 :] if other is not None]
            cost = _cost(name)
            if name == "split":
                size = self.graph.size
                parts = [_Read(term, k, size[term] / size[value]) for k, term in enumerate(given.values())]
                self._contribute(value, name, 0, parts)
            elif name in ("concatenate", "stack"):
                self._contribute(value, name, 0, [_Read(first, place)])  # type: ignore[arg-type]
            elif cost is None or (name == "broadcast_in_dim" and self.graph.size[value] < self.graph.size[results[0]]):
                # a sum, or something that XLA does not fuse
                self._contribute(value, None, 0, [_Read(term) for term in given.values()])
            elif name.startswith("vector_"):
                self._contribute(value, name, cost, [_Read(first), *(_Read(other, 0, 2) for other in others)])  # type: ignore[arg-type]
            else:
                others_read = _read_by_derivative(name, value, others, results[0], place)
                unit = 0 if name in MOVES or name in ("add", "add_any", "sub") else cost or 1
                self._contribute(value, name, unit, [_Read(number) for number in (first, *others_read)])  # type: ignore[arg-type]


def _read_by_derivative(name: str, value: int, others: list[int], result: int, place: int) -> list[int]:
    """The values that the derivative of an elementwise operation with respect to its operand `value` reads."""
    if name == "mul":
        return others
    if name == "div":
        return others if place == 0 else [value, result]
    if name in ("sqrt", "rsqrt", "exp", "tanh"):
        return [result]
    if name == "select_n":
        # the condition comes first
        return others[:1]
    if name in ("max", "min", "pow"):
        return [value, *others]
    if name in ("abs", "integer_pow", "square", "log", "sin", "cos"):
        return [value]
    return []


class _Plan(NamedTuple):
    """The values to store always, the values to store only in derivatives, and those whose cotangents are stored."""

    always: frozenset[int]
    in_derivatives: frozenset[int]
    cotangents: frozenset[int]


def _plan(closed: Any) -> _Plan:
    """The values of a traced function that should be stored."""
    traced = _traced(closed)
    count = len(traced.graph.size)
    always = traced.graph.shared(set(), REPEATED)
    reverse = _Reverse(traced)
    known = always | {reverse.cotangent[value] for value in always if value in reverse.cotangent}
    further = reverse.graph.shared(known, REPEATED_IN_REVERSE) - known
    return _Plan(
        always=frozenset(always),
        in_derivatives=frozenset(value for value in further if value < count) & frozenset(traced.floating),
        cotangents=frozenset(value for value, number in reverse.cotangent.items() if number in further),
    )


@functools.cache
def _keep(values: tuple[bool, ...], cotangents: tuple[bool, ...]) -> Callable[..., tuple[Any, ...]]:
    """The identity. Its derivative stores the arrays and the tangents that `values` and `cotangents` mark as True."""

    @jax.custom_jvp
    def keep(*arrays: jax.Array) -> tuple[jax.Array, ...]:
        return arrays

    def derivative(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        moves = [not isinstance(tangent, SymbolicZero) for tangent in tangents]
        chosen = [move and stores for move, stores in zip(moves, cotangents, strict=True)]
        return _store_some(primals, values), _store_some(tangents, chosen)

    keep.defjvp(derivative, symbolic_zeros=True)
    return keep


def _store_some(arrays: Sequence[Any], which: Sequence[bool]) -> tuple[Any, ...]:
    """The arrays, some of them behind one barrier."""
    held: Iterator[Any] = iter(stored([array for array, chosen in zip(arrays, which, strict=True) if chosen]))
    return tuple(next(held) if chosen else array for array, chosen in zip(arrays, which, strict=True))


class _Held:
    """A value that waits to be stored, together with other values, until an operation reads one of them."""

    def __init__(self, number: int, array: Any) -> None:
        self.number = number
        self.array = array
        self.waits = True


class _Evaluation:
    """Evaluates the function again, with barriers. Values that wait at the same time share one, to compile faster."""

    def __init__(self, plan: _Plan, first: int) -> None:
        self.plan = plan
        # the number of the next value
        self.number = first
        self.waiting: list[_Held] = []

    def step(self, equation: Any, operands: list[Any]) -> list[Any]:
        """One operation."""
        arrays = [self.read(operand) for operand in operands]
        bound = equation.primitive.get_bind_params(equation.params)
        # before jax 0.10, functions are returned separately from the other parameters
        functions, parameters = bound if isinstance(bound, tuple) else ((), bound)
        with equation.ctx.manager:
            results = equation.primitive.bind(*functions, *arrays, **parameters)
        return [self._held(array) for array in (results if equation.primitive.multiple_results else [results])]

    def _held(self, array: Any) -> Any:
        """The array, or, if the plan stores it, a `_Held` that waits to be stored."""
        plan = self.plan
        number = self.number
        self.number += 1
        if number not in plan.always and number not in plan.in_derivatives and number not in plan.cotangents:
            return array
        self.waiting.append(_Held(number, array))
        return self.waiting[-1]

    def read(self, operand: Any) -> Any:
        """The array of an operand; if the operand waits to be stored, all waiting values are stored first."""
        if not isinstance(operand, _Held):
            return operand
        if operand.waits:
            self._store()
        return operand.array

    def _store(self) -> None:
        """Stores all values that wait, with one barrier."""
        plan = self.plan
        waiting = self.waiting
        always = [held.number in plan.always for held in waiting]
        arrays = _store_some([held.array for held in waiting], always)
        if not all(always):
            values = tuple(held.number in plan.in_derivatives for held in waiting)
            cotangents = tuple(held.number in plan.cotangents for held in waiting)
            arrays = _keep(values, cotangents)(*arrays)
        for held, array in zip(waiting, arrays, strict=True):
            held.array = array
            held.waits = False
        self.waiting = []


def stored_where_shared(function: Function) -> Function:
    """The function; on a CPU, with a barrier after each value that would otherwise be computed several times.

    Its arguments and results are pytrees; leaves of arguments that are not arrays stay as they are. Loops and searches
    inside it stay unchanged.
    """

    @functools.wraps(function)
    def once(*arguments: Any) -> Any:
        if not for_cpu():
            return function(*arguments)
        leaves, structure = jax.tree.flatten(arguments)
        places = [k for k, leaf in enumerate(leaves) if isinstance(leaf, jax.Array | np.ndarray)]

        def of_arrays(*arrays: Any) -> Any:
            whole = list(leaves)
            for place, array in zip(places, arrays, strict=True):
                whole[place] = array
            return function(*jax.tree.unflatten(structure, whole))

        inputs = [leaves[place] for place in places]
        closed, shapes = jax.make_jaxpr(of_arrays, return_shape=True)(*inputs)
        evaluation = _Evaluation(_plan(closed), len(closed.consts) + len(inputs))
        results = _walk(closed.jaxpr, closed.consts, inputs, evaluation.step)
        return jax.tree.unflatten(jax.tree.structure(shapes), [evaluation.read(result) for result in results])

    return once  # type: ignore[return-value]
