"""A loop whose batch, on a CPU, does not wait for its slowest worlds.

`jax.vmap` of a `while_loop` goes on with all worlds until the last is done: of 512 humanoids that takes 8 iterations
of the solver, where the mean world needs 3. Here a quarter of the batch at a time goes on until no more than a quarter
of it is left, and what is left of all quarters is one more part, which goes on to the end. Each world goes through the
iterations that it would go through by itself. The body of the loop is compiled once.

Where trips are too short to pay for copies of all problems, all worlds go on until an eighth of them is left, and the
problems of those alone are copied. Of 64 worlds with ten humanoids each most need one product of conjugate gradients or
two, and one needs twelve.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.xla.barriers import for_cpu

Array = jax.Array
Tree = Any

PARTS = 4
# worlds of the smallest batch that is taken apart
FEWEST = 128
# the share of a batch that goes on by itself
REST = 8


class Search(NamedTuple):
    """A loop of one world: state -> whether it goes on, (problem, state) -> state.

    `ready` makes of a problem what all iterations read; what it adds is not carried from part to part.
    """

    unfinished: Callable[[Tree], Array]
    advance: Callable[[Tree, Tree], Tree]
    ready: Callable[[Tree], Tree] = lambda problem: problem

    def run(self, problem: Tree, start: Tree) -> Tree:
        """The last state."""
        problem = self.ready(problem)
        return jax.lax.while_loop(self.unfinished, lambda state: self.advance(problem, state), start)

    def advance_unfinished(self, problem: Tree, state: Tree) -> Tree:
        """The next state, or the same where it does not go on."""
        later, goes_on = self.advance(problem, state), self.unfinished(state)
        return jax.tree.map(lambda new, old: jnp.where(goes_on, new, old), later, state)


def run(search: Search, problem: Tree, start: Tree) -> Tree:
    """The last state of a loop that is not differentiated; nothing else that is traced may be in its functions."""

    def in_parts(problem: Tree, batched: Tree, start: Tree, size: int) -> Tree:
        if size < FEWEST or size % PARTS:
            return jax.vmap(search.run, (_axes(batched), 0))(problem, start)
        return _Batch(search, problem, tuple(jax.tree.leaves(batched)), size).run(start)

    return _of_a_batch(search, in_parts, problem, start)


def run_short(search: Search, problem: Tree, start: Tree) -> Tree:
    """`run` of a loop of short trips."""

    def without_rest(problem: Tree, batched: Tree, start: Tree, size: int) -> Tree:
        few, go_on = size // REST, jax.vmap(search.run, (_axes(batched), 0))
        if few < 2:
            return go_on(problem, start)
        unfinished, advance = jax.vmap(search.unfinished), jax.vmap(search.advance_unfinished, (_axes(batched), 0))
        state = jax.lax.while_loop(lambda x: jnp.sum(unfinished(x)) > few, lambda x: advance(problem, x), start)
        rest = jnp.argsort(~unfinished(state))[:few]
        own = jax.tree.map(lambda x, of_each: x[rest] if of_each else x, problem, batched)
        ended = go_on(own, jax.tree.map(lambda x: x[rest], state))
        return jax.tree.map(lambda x, last: x.at[rest].set(last), state, ended)

    return _of_a_batch(search, without_rest, problem, start)


def _of_a_batch(search: Search, batch: Callable[[Tree, Tree, Tree, int], Tree], problem: Tree, start: Tree) -> Tree:
    """The last state; on a CPU `batch` finds those of all worlds, of the problem, which of its leaves have a batch
    axis, the states and their number.
    """
    if not for_cpu():
        return search.run(problem, start)
    alone = jax.custom_batching.custom_vmap(search.run)

    @alone.def_vmap
    def of_all(size: int, in_batched: list, problem: Tree, start: Tree) -> tuple[Tree, Tree]:
        start = jax.vmap(lambda x: x, (_axes(in_batched[1]),), axis_size=size)(start)
        found = batch(problem, in_batched[0], start, size)
        return found, jax.tree.map(lambda _: True, found)

    return alone(problem, start)


def _axes(batched: Tree) -> Tree:
    """The axes of a `vmap`."""
    return jax.tree.map(lambda of_each: 0 if of_each else None, batched)


class _Batch(NamedTuple):
    """A loop of `size` worlds, and which leaves of their problem have a batch axis."""

    search: Search
    problem: Tree
    batched: tuple[bool, ...]
    size: int

    @property
    def part(self) -> int:
        """Worlds of one part."""
        return self.size // PARTS

    def run(self, start: Tree) -> Tree:
        """The last states: those at the start where no world goes on, as where nothing touches."""
        left = jnp.any(jax.vmap(self.search.unfinished)(start))
        return jax.lax.cond(left, self._go_on, lambda states: states, start)

    def _go_on(self, start: Tree) -> Tree:
        """The last states; problems and states are a table each, so that a part is taken of all leaves at once."""
        own = [x for x, batched in zip(jax.tree.leaves(self.problem), self.batched, strict=True) if batched]
        problems, states = _table(own), _table(start)

        def one_pass(number: Array, room: Array) -> Array:
            first, is_last, tables = number * self.part, number == PARTS, (problems.rows, room)

            def quarter() -> tuple[Array, ...]:
                return tuple(jax.lax.dynamic_slice_in_dim(x, first, self.part) for x in tables)

            def leftovers() -> tuple[Array, ...]:
                index = jnp.argsort(~self._left(states, room))[: self.part]
                return tuple(x[index] for x in tables)

            problem, state = jax.lax.cond(is_last, leftovers, quarter)
            state = self._advance(problems.unpack(problem), states.unpack(state), is_last)
            return jax.lax.dynamic_update_slice_in_dim(room, _table(state).rows, first, 0)

        # with room for those that are left
        room = jnp.concatenate([states.rows, states.rows[: self.part]])
        room = jax.lax.fori_loop(0, PARTS + 1, one_pass, room)
        left = self._left(states, room)
        place = jnp.where(left, self.size - 1 + jnp.cumsum(left), jnp.arange(self.size))
        return states.unpack(room[place])

    def _left(self, states: "_Table", room: Array) -> Array:
        """(size,) which worlds were not done when their part was left."""
        return jax.vmap(self.search.unfinished)(states.unpack(room[: self.size]))

    def _advance(self, own: list[Array], state: Tree, is_last: Array) -> Tree:
        """A part, until no more than some worlds go on, or none in the last pass."""
        leaves, tree = jax.tree.flatten(self.problem)
        unfinished = jax.vmap(self.search.unfinished)

        def ready(own: list[Array]) -> Tree:
            rest = iter(own)
            mine = [next(rest) if batched else x for x, batched in zip(leaves, self.batched, strict=True)]
            return self.search.ready(jax.tree.unflatten(tree, mine))

        problem = jax.vmap(ready)(own)

        allowed = jnp.where(is_last, 0, self.part // PARTS)
        return jax.lax.while_loop(
            lambda state: jnp.sum(unfinished(state)) > allowed,
            lambda state: jax.vmap(self.search.advance_unfinished)(problem, state),
            state,
        )


class _Table(NamedTuple):
    """All leaves of the trees of a batch as `rows` (size, k); `like` is a tree of their shapes."""

    rows: Array
    like: Tree

    def unpack(self, rows: Array) -> Tree:
        """The tree of some rows."""
        leaves, tree = jax.tree.flatten(self.like)
        ends = np.cumsum([math.prod(leaf.shape[1:]) for leaf in leaves])
        parts = zip(leaves, jnp.split(rows, ends[:-1], axis=1), strict=True)
        return jax.tree.unflatten(tree, [x.reshape(len(x), *leaf.shape[1:]).astype(leaf.dtype) for leaf, x in parts])


def _table(tree: Tree) -> _Table:
    """Integers, which are small here, and truths as floats."""
    leaves = jax.tree.leaves(tree)
    kind = jnp.result_type(*(x for x in leaves if jnp.issubdtype(x.dtype, jnp.floating)))
    rows = jnp.concatenate([x.reshape(len(x), math.prod(x.shape[1:])).astype(kind) for x in leaves], axis=1)
    return _Table(rows, jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), tree))
