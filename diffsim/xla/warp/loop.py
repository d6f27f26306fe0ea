"""While loops as CUDA kernels, in which each warp runs the loop of one world until this world has ended.

XLA runs each operation of a loop for all worlds, with dozens of kernel launches per iteration, until the last world has
ended. Here `translate` turns the functions of the loop, which JAX traces for one world, into the program of a warp. So
what a loop computes is written only once, in JAX. A loop with an operation for which `translate` has no rule is left to
XLA (`Translated.of` returns None).
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.extend import core
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from diffsim.xla.compiled import define_eager
from diffsim.xla.loops import while_loop
from diffsim.xla.warp.machine import LANES, Machine, interpret
from diffsim.xla.warp.ptx import call
from diffsim.xla.warp.translate import InMemory, Numbers, UntranslatedError, known, registers, translate

# Checks of loop kernels on this machine's GPU, which run before a program uses them. A module that adds a rule to
# `translate` adds a check here (`solves/cholesky.py`).
CHECKS: list[Callable[[], bool]] = []


@functools.cache
def cuda_loops() -> bool:
    """Whether loop kernels pass all checks on this machine's GPU."""
    return bool(CHECKS) and all(check() for check in CHECKS)


class Translated:
    """A loop of one world that can run as a kernel.

    Attributes:
      unfinished: jaxpr, leaves of the state -> whether the loop goes on.
      advance: jaxpr, leaves of problem and state -> leaves of the next state.
      count: number of leaves of the problem.
      avals: shapes and dtypes of the leaves of problem and state.
    """

    def __init__(self, unfinished: Any, advance: Any, count: int) -> None:
        self.unfinished = unfinished
        self.advance = advance
        self.count = count
        self.avals = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in advance.in_avals]

    @classmethod
    def of(cls, unfinished: Callable[..., Any], advance: Callable[..., Any], problem: Any, start: Any) -> Any:
        """The loop for a problem and an initial state of one world; None if no kernel can run it."""
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
        """The last state of a world; under `vmap` each world has a warp."""
        results = loop_p.bind(*[x[None] for x in jax.tree.leaves((problem, start))], loop=self)
        return jax.tree.unflatten(jax.tree.structure(start), [x[0] for x in results])

    def is_known(self) -> bool:
        """Whether all operations can be translated, found out by running one iteration in numpy with zeros."""
        if any(x.dtype not in (np.float32, np.int32, np.bool_) for x in self.avals):
            return False
        # a batch of one world
        operands = [np.zeros((1, *x.shape), x.dtype) for x in self.avals]
        try:
            self.run(operands, functools.partial(interpret, functools.partial(self.kernel, once=True)))
        except UntranslatedError:
            return False
        return True

    def results(self, worlds: int) -> list[jax.ShapeDtypeStruct]:
        """Shapes and dtypes of the last states of a batch."""
        return [jax.ShapeDtypeStruct((worlds, *x.shape), x.dtype) for x in self.avals[self.count :]]

    def run(self, operands: Sequence[Any], call: Callable[..., list[Any]]) -> list[Any]:
        """The last states of a batch, by `call(operands, results)`, which runs the kernel without arrays of size 0."""
        results = self.results(max(map(len, operands)))
        found = iter(call([x for x in operands if x.size], [x for x in results if x.size]))
        return [next(found) if x.size else np.zeros(x.shape, x.dtype) for x in results]

    def kernel(self, w: Machine, *arrays: Any, once: bool = False) -> None:
        """The kernel: the loop of one world.

        Args:
          w: the machine.
          arrays: arrays of the problem, of the initial state, and of the last state, which are written; without arrays
            of size 0.
          once: whether to run exactly one iteration.
        """
        rest = iter(arrays)
        inputs = [
            Numbers(aval.shape, InMemory(next(rest), 0)) if aval.size else known(np.zeros(aval.shape, aval.dtype))
            for aval in self.avals
        ]
        problem = inputs[: self.count]
        start = inputs[self.count :]
        # how many registers each array of the state has, and where they end in the carry of the loop
        counts = [-(-x.size // LANES) for x in start]
        ends = np.cumsum(counts)

        def flat(state: Sequence[Numbers]) -> list[Any]:
            """The registers of all arrays of a state."""
            return [part for x in state for part in (registers(w, x) if x.size else [])]

        def state(carry: list[Any]) -> list[Numbers]:
            """The arrays of the state with these registers."""
            places = zip(start, counts, ends, strict=True)
            return [Numbers(x.shape, carry[end - count : end]) if x.size else x for x, count, end in places]

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
        """The last states of a batch, by the kernel if kernels pass their checks on this machine's GPU."""
        if not cuda_loops():
            return self.plain(*operands)
        return self.run(operands, functools.partial(call, "loop", self.kernel))

    def plain(self, *operands: Any) -> list[Any]:
        """The last states of a batch, by XLA: the definition of the primitive."""
        worlds = max(map(len, operands))
        advance, unfinished = map(core.jaxpr_as_fun, (self.advance, self.unfinished))

        def one(*leaves: Any) -> tuple[Any, ...]:
            problem = leaves[: self.count]
            start = leaves[self.count :]
            return while_loop(lambda x: unfinished(*x)[0], lambda x: tuple(advance(*problem, *x)), start)

        shared = [len(x) == 1 < worlds for x in operands]
        arguments = [x[0] if by_all else x for x, by_all in zip(operands, shared, strict=True)]
        return list(jax.vmap(one, [None if by_all else 0 for by_all in shared])(*arguments))


def _batch(operands: Sequence[Any], dims: Sequence[int | None], *, loop: Translated) -> tuple[list[Any], list[int]]:
    """The batch rule: nested batches become one batch with more worlds."""
    size = next(x.shape[dim] for x, dim in zip(operands, dims, strict=True) if dim is not None)
    whole = [x if dim is None else jnp.moveaxis(x, dim, 0) for x, dim in zip(operands, dims, strict=True)]
    # the axis of worlds is the first one, or the second one after a batch axis
    worlds = max(x.shape[0 if dim is None else 1] for x, dim in zip(whole, dims, strict=True))

    def of_all(x: Any, dim: int | None) -> Any:
        if dim is None and len(x) == 1:
            return x
        shape = x.shape[1:] if dim is None else x.shape[2:]
        return jnp.broadcast_to(x, (size, worlds, *shape)).reshape(size * worlds, *shape)

    results = loop_p.bind(*map(of_all, whole, dims), loop=loop)
    return [x.reshape(size, worlds, *x.shape[1:]) for x in results], [0] * len(results)


loop_p = Primitive("warp_loop")
loop_p.multiple_results = True
define_eager(loop_p, lambda *operands, loop: loop.plain(*operands), ("loop",))
loop_p.def_abstract_eval(
    lambda *operands, loop: [ShapedArray(x.shape, x.dtype) for x in loop.results(max(x.shape[0] for x in operands))]
)
batching.primitive_batchers[loop_p] = _batch
# the functions that compute the primitive on CUDA and, under None, on other platforms
LOWERED: dict[str | None, Callable[..., list[Any]]] = {
    None: lambda *operands, loop: loop.plain(*operands),
    "cuda": lambda *operands, loop: loop.on_cuda(*operands),
}
for platform, computed in LOWERED.items():
    mlir.register_lowering(loop_p, mlir.lower_fun(computed, multiple_results=True), platform=platform)
