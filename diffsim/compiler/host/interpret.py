"""interpret: runs a JAX function once, in numpy, without compiling it.

The derived constants of a model are computed once per load, by physics written in JAX. XLA would take seconds to
compile what numpy runs in milliseconds. So the function is traced, and each operation of the trace is run by a numpy
function of `xla/numpy_rules.py`, or by JAX itself if there is none. The result is the same; only the time differs.
"""

import functools
import weakref
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend.core import (
    ClosedJaxpr,  # pyright: ignore[reportPrivateImportUsage]
    Literal,
)

from diffsim.xla.bilinear import FORMULAS
from diffsim.xla.loops import inlined
from diffsim.xla.numpy_rules import Rule, rule_of

Array = np.ndarray
Values = Sequence[Any]


def interpret(function: Callable[..., Any], *arguments: Any, written_out: bool = False) -> Any:
    """function(*arguments) as numpy arrays.

    Args:
      function: a function of pytrees of arrays.
      arguments: its arguments.
      written_out: whether compiled functions are written out while the function is traced (`inlined`), in 60% of the
        time; for functions whose loops are those of xla/loops.py.
    """
    # JAX caches a trace for as long as the traced function lives. This lambda dies with the call, and its trace with
    # it.
    with inlined() if written_out else nullcontext():
        closed, shape = jax.make_jaxpr(lambda *inputs: function(*inputs), return_shape=True)(*arguments)
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(arguments)]
    results = run_jaxpr(closed, leaves)
    return jax.tree.unflatten(jax.tree.structure(shape), results)


def run_jaxpr(closed: ClosedJaxpr, arguments: Values) -> list[Any]:
    """The results of a traced function, given the leaves of its arguments. Like XLA, it does not warn of overflows."""
    with np.errstate(all="ignore"):
        return _run(closed, *arguments)


class _Step(NamedTuple):
    """One operation of a program. Values are referred to by their numbers in the program.

    Attributes:
      rule: its function in numpy.
      inputs: the values that it reads.
      outputs: its result, or a list of several results.
      last: the inputs that no later operation reads.
      equation: JAX's equation.
    """

    rule: Rule
    inputs: Values
    outputs: int | list[int]
    last: Values
    equation: Any


class _Program:
    """A traced function as a list of steps.

    All values (literals, arguments, results of operations) are numbered. Results that nothing reads have the number 0.

    Attributes:
      literals: the value with each number if it is a literal, else None.
      numbers: the numbers of JAX's variables.
      arguments, results: the numbers of the arguments and of the results.
      steps: the operations in order.
    """

    def __init__(self, jaxpr: Any) -> None:
        self.literals: list[Any] = [None]
        self.numbers: dict[Any, int] = {}
        self.arguments = [self._number(variable) for variable in (*jaxpr.constvars, *jaxpr.invars)]
        self.results = [self._number(variable) for variable in jaxpr.outvars]
        # going backwards, the first time that a value is seen is the last time that it is read
        seen = {*self.results}
        steps = []
        for equation in reversed(jaxpr.eqns):
            outputs = [self._number(variable) for variable in equation.outvars]
            outputs = [output if output in seen else 0 for output in outputs]
            # nothing reads its results
            if not any(outputs) and not equation.effects:
                continue
            inputs = [self._number(variable) for variable in equation.invars]
            last = [read for read in dict.fromkeys(inputs) if read not in seen and self.literals[read] is None]
            seen.update(inputs)
            several = equation.primitive.multiple_results
            steps.append(_Step(self._rule(equation), inputs, outputs if several else outputs[0], last, equation))
        self.steps = steps[::-1]

    def _number(self, variable: Any) -> int:
        """The number of a variable or literal; a new one if it has none yet."""
        if isinstance(variable, Literal):
            self.literals.append(np.asarray(variable.val))
            return len(self.literals) - 1
        if variable not in self.numbers:
            self.numbers[variable] = len(self.literals)
            self.literals.append(None)
        return self.numbers[variable]

    def _rule(self, equation: Any) -> Rule:
        """The numpy function of an operation; it returns NotImplemented if JAX must run the operation."""
        name = equation.primitive.name
        params = equation.params
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
        return rule_of(name, params) or (lambda *inputs: NotImplemented)

    def run(self, arguments: Values) -> list[Any]:
        """The results for these arguments."""
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
            # frees the memory of values that nothing reads later
            for number in last:
                values[number] = None
        return [values[number] for number in self.results]


# programs, kept for as long as their traces
_PROGRAMS: weakref.WeakKeyDictionary[Any, _Program] = weakref.WeakKeyDictionary()


def _run(function: Any, *arguments: Any) -> list[Any]:
    """The results of a traced function; it may be closed over constants or not."""
    closed = isinstance(function, ClosedJaxpr)
    jaxpr, constants = (function.jaxpr, map(np.asarray, function.consts)) if closed else (function, ())
    if (program := _PROGRAMS.get(jaxpr)) is None:
        program = _PROGRAMS[jaxpr] = _Program(jaxpr)
    return program.run([*constants, *arguments])


@functools.cache
def _formula(name: str, *kinds: tuple[tuple[int, ...], Any]) -> ClosedJaxpr:
    """The trace of a product that `xla/bilinear.py` writes out, for operands of these shapes and types."""
    return jax.make_jaxpr(FORMULAS[name])(*(jax.ShapeDtypeStruct(*kind) for kind in kinds))


def _while(
    *inputs: Any, cond_jaxpr: Any, body_jaxpr: Any, cond_nconsts: int, body_nconsts: int, **params: Any
) -> Values:
    """`lax.while_loop`. The inputs are the constants of the condition and of the body, and the initial state.

    Under `vmap` each element of a batch has its own condition, and no longer changes once it is false.
    """
    of_condition = inputs[:cond_nconsts]
    of_body = inputs[cond_nconsts : cond_nconsts + body_nconsts]
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
    """`lax.scan`. The inputs are constants, the initial carry, and the arrays that are read row by row."""
    if "ft_in" in params:
        # jax 0.12 stores the numbers of constants and of carried values in a tree of the inputs
        num_consts, num_carry, _ = map(len, params["ft_in"].unpack())
    else:
        num_consts, num_carry = params["num_consts"], params["num_carry"]
    constants = inputs[:num_consts]
    carried = inputs[num_consts : num_consts + num_carry]
    rows = inputs[num_consts + num_carry :]
    steps: list[Values] = []
    for k in reversed(range(length)) if reverse else range(length):
        results = _run(jaxpr, *constants, *carried, *(array[k] for array in rows))
        carried = results[:num_carry]
        outputs = results[num_carry:]
        steps.append(outputs)
    if not steps:
        return [*carried, *(np.zeros((0, *aval.shape), aval.dtype) for aval in jaxpr.out_avals[num_carry:])]
    columns = zip(*(reversed(steps) if reverse else steps), strict=True)
    return [*carried, *map(np.stack, columns)]


LOOPS: dict[str, Callable[..., Values]] = {"while": _while, "scan": _scan}


# primitives that only call a function, and the parameter that holds it
CALLS = {"jit": "jaxpr", "pjit": "jaxpr", "remat2": "jaxpr", "custom_vmap_call": "call"}
CALLS |= dict.fromkeys(("custom_jvp_call", "custom_vjp_call"), "call_jaxpr")
