"""While loops for a batch that do not wait for the slowest world.

A while loop under `jax.vmap` iterates for all worlds until the last one has converged: the solver takes 8 iterations
for 512 humanoids, though they need 3 on average. The functions here are written for one world. Under `vmap` they
distribute the work differently, so that each world has about as many iterations as it needs, with the same results.
They have no derivatives.

`run` runs a `Loop` by a policy, which may differ between platforms:

| policy | how the worlds of a batch run |
|---|---|
| `together` | all worlds, until the last one has ended, as under `jax.vmap` |
| `quarters` | one quarter of the batch at a time, until few of its worlds are left; then what is left of all quarters |
| `last_eighth` | all worlds until one eighth is left, then only these; for short iterations |
| `slots(n)` | n worlds side by side; when one has ended, the next one takes its slot |
| `kernel` | one CUDA kernel, each warp of which runs one world (warp/loop.py); otherwise `last_eighth` |

Searches that only some worlds need are in batched_searches.py.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.core
import jax.numpy as jnp
from jax import Array
from jax.interpreters.partial_eval import dce_jaxpr

from diffsim.xla.barriers import for_cpu
from diffsim.xla.gather import Packed, packed
from diffsim.xla.loops import cond, fori_loop, while_loop
from diffsim.xla.select import where_tree
from diffsim.xla.warp.loop import Translated

Tree = TypeVar("Tree")

# number of parts into which `quarters` splits a batch. Each part runs until 1 / PARTS of its worlds is left, so that
# the worlds that are left of all parts form one more part of the same size
PARTS = 4
# number of worlds in the smallest batch that `quarters` splits; copying the parts of a smaller batch costs more than it
# saves
SMALLEST_SPLIT = 128
# `last_eighth` copies the last 1 / EIGHTH of the batch, and runs it by itself
EIGHTH = 8
# if the state of one world has this many values, it fills vector lanes and caches; on a CPU such worlds run one after
# another
LARGE_STATE = 5000
# if the states of a batch have more values than this, a GPU takes longer for an iteration than for launching its
# kernels
BUSY_GPU = 1 << 20


def spread(size: int, values: Array, batched: bool) -> Array:
    """The values with a leading batch axis of this size; values that are not batched may be a plain number."""
    return values if batched else jnp.broadcast_to(values, (size, *jnp.shape(values)))


def with_batch_rule(function: Callable[..., Tree], rule: Callable[..., Tree]) -> Callable[..., Tree]:
    """The function with a batch rule of its own: under `vmap`, `rule(size, batched, *arguments)` computes the results.

    `batched` says for each leaf of the arguments whether it has a batch axis; all results have one.
    """
    alone = jax.custom_batching.custom_vmap(function)

    @alone.def_vmap
    def of_a_batch(size: int, batched: Any, *arguments: Any) -> tuple[Tree, Any]:
        results = rule(size, batched, *arguments)
        return results, jax.tree.map(lambda _: True, results)

    return alone


def _in_axes(batched: Any) -> Any:
    """The `in_axes` of `jax.vmap` for leaves that are `batched` or not."""
    return jax.tree.map(lambda has_axis: 0 if has_axis else None, batched)


class Loop(NamedTuple):
    """A loop of one world: `state = start`; while `unfinished(state)`: `state = advance(prepare(problem), state)`.

    Only under the policy `slots` may its functions close over traced values.

    Attributes:
      unfinished: state -> whether the loop goes on.
      advance: (prepared problem, state) -> the next state.
      prepare: problem -> the values that every iteration reads. They are computed once. A policy that copies problems
        copies the original problem and not these values.
    """

    unfinished: Callable[[Any], Array]
    advance: Callable[[Any, Any], Any]
    prepare: Callable[[Any], Any] = lambda problem: problem

    def run(self, problem: Any, start: Any) -> Any:
        """The last state."""
        return while_loop(self.unfinished, partial(self.advance, self.prepare(problem)), start)

    def advance_unfinished(self, problem: Any, state: Any) -> Any:
        """The next state, or the same state if the loop has ended."""
        later = self.advance(problem, state)
        goes_on = self.unfinished(state)
        return where_tree(goes_on, later, state)

    def prepared(self, problem: Any) -> tuple["Loop", Any]:
        """The loop for problems that are prepared already, and the prepared problem."""
        return self._replace(prepare=lambda problem: problem), self.prepare(problem)


# (loop, problem, start) -> the last state of one world, with a batch rule
Policy = Callable[[Loop, Any, Any], Any]


def run(loop: Loop, problem: Any, start: Any, *, cpu: Policy, gpu: Policy) -> Any:
    """The last state of a loop.

    Args:
      loop: its functions.
      problem: pytree of arrays that all iterations read.
      start: pytree of arrays, the first state.
      cpu: the policy for a batch on a CPU.
      gpu: the policy for a batch on other devices.
    """
    return (cpu if for_cpu() else gpu)(loop, problem, start)


def together(loop: Loop, problem: Any, start: Any) -> Any:
    """The last state; a batch runs until its last world has ended."""
    return loop.run(problem, start)


def quarters(loop: Loop, problem: Any, start: Any) -> Any:
    """The last state. One quarter of a batch at a time runs until at most a quarter of its worlds is left.

    The worlds that are left of all quarters are one more part, which runs to the end. The body of the loop is compiled
    once.
    """

    def of_a_batch(size: int, batched: Any, problem: Any, start: Any) -> Any:
        if size < SMALLEST_SPLIT or size % PARTS:
            return jax.vmap(loop.run, (_in_axes(batched), 0))(problem, start)
        return _Quarters(loop=loop, problem=problem, batched=tuple(jax.tree.leaves(batched)), size=size).run(start)

    return _with_batches(loop, of_a_batch)(problem, start)


def last_eighth(loop: Loop, problem: Any, start: Any) -> Any:
    """The last state. A batch runs until an eighth of its worlds is left; then only these run, with copied problems.

    It suits loops in which a few worlds need far more iterations than the others: of 64 worlds with ten humanoids, most
    need one or two products with the Hessian, and one world needs twelve.
    """

    def of_a_batch(size: int, batched: Any, problem: Any, start: Any) -> Any:
        few = size // EIGHTH
        axes = _in_axes(batched)
        if few < 2:
            return jax.vmap(loop.run, (axes, 0))(problem, start)
        unfinished = jax.vmap(loop.unfinished)
        advance = partial(jax.vmap(loop.advance_unfinished, (axes, 0)), problem)
        state = while_loop(lambda x: jnp.sum(unfinished(x)) > few, advance, start)
        left = jnp.nonzero(unfinished(state), size=few, fill_value=size)[0]
        of_left = jax.tree.map(lambda x, has_axis: x.at[left].get(mode="clip") if has_axis else x, problem, batched)
        last = jax.vmap(loop.run, (axes, 0))(of_left, jax.tree.map(lambda x: x.at[left].get(mode="clip"), state))
        return jax.tree.map(lambda x, end: x.at[left].set(end, mode="drop"), state, last)

    return _with_batches(loop, of_a_batch)(problem, start)


def kernel(loop: Loop, problem: Any, start: Any) -> Any:
    """The last state, by one CUDA kernel in which each warp runs the loop of one world.

    A loop with an operation for which the kernel compiler has no rule runs by the policy `last_eighth`.
    """
    loop, problem = loop.prepared(problem)
    in_a_warp = Translated.of(loop.unfinished, loop.advance, problem, start)
    return in_a_warp(problem, start) if in_a_warp else last_eighth(loop, problem, start)


def slots(count: int) -> Policy:
    """The policy that runs the loops of `count` worlds side by side, 0 for all.

    When one has ended, the next world takes its slot, so that no slot waits for the slowest world. The functions of the
    loop may close over traced values, as functions of users do.
    """

    def policy(loop: Loop, problem: Any, start: Any) -> Any:
        loop, problem = loop.prepared(problem)
        explicit = Explicit.of(loop.advance, problem, start)

        def alone(held: list[Array], problem: Any, start: Any) -> Any:
            return while_loop(loop.unfinished, partial(explicit.call, held, problem), start)

        def of_a_batch(size: int, batched: Any, *arguments: Any) -> Any:
            if not 0 < count < size:
                return jax.vmap(alone, _in_axes(tuple(batched)))(*arguments)
            starts = jax.vmap(lambda x: x, (_in_axes(batched[2]),), axis_size=size)(arguments[2])

            def of_job(job: Array) -> Any:
                return jax.tree.map(lambda x, has_axis: x[job] if has_axis else x, arguments[:2], tuple(batched[:2]))

            def advance(job: Array, states: Any, _: Array) -> Any:
                later = jax.vmap(lambda job, state: explicit.call(*of_job(job), state))
                return where_tree(unfinished(states), later(jnp.minimum(job, size - 1), states), states)

            unfinished = jax.vmap(loop.unfinished)
            return work_through(
                starts,
                count=jnp.asarray(size, jnp.int32),
                slots=count,
                start=lambda job: jax.tree.map(lambda x: x[jnp.minimum(job, size - 1)], starts),
                advance=advance,
                ended=lambda states: ~unfinished(states),
                result=lambda states: states,
            )

        return with_batch_rule(alone, of_a_batch)(explicit.held, problem, start)

    return policy


def _with_batches(loop: Loop, of_a_batch: Callable[..., Any]) -> Callable[..., Any]:
    """The loop with a batch rule: `of_a_batch(size, batched, problem, starts)` computes the last states.

    The rule is not used in two cases. On a GPU, small batches run `together`, because launching kernels takes longer
    than the iterations themselves. On a CPU, worlds with large states run one after another, because one world fills
    the vector lanes, and several would not fit into the cache.
    """

    def rule(size: int, batched: Any, problem: Any, start: Any) -> Any:
        starts = jax.vmap(lambda x: x, (_in_axes(batched[1]),), axis_size=size)(start)
        numbers = sum(x.size for x in jax.tree.leaves(starts))
        if not for_cpu() and numbers < BUSY_GPU:
            return jax.vmap(loop.run, (_in_axes(batched[0]), 0))(problem, starts)
        if not for_cpu() or numbers < LARGE_STATE * size:
            return of_a_batch(size, batched[0], problem, starts)

        def member(number: Array) -> Any:
            return run_one(*jax.tree.map(lambda x, has: x[number] if has else x, (problem, start), tuple(batched)))

        return jax.lax.map(member, jnp.arange(size))

    return (run_one := with_batch_rule(loop.run, rule))


class _Quarters(NamedTuple):
    """The policy `quarters` for a batch of `size` worlds.

    All problems form one table, and all states another, with one row per world, so that one copy moves a whole part.
    The table of states has room for one more part at its end.

    Each of the first PARTS passes advances one part in place, until at most 1 / PARTS of its worlds is left. The last
    pass gathers the worlds that are left of all parts, advances them until all have ended, and stores them in the
    additional rows of the table. All passes are iterations of one `fori_loop`, so that the body of the loop is compiled
    once.

    Attributes:
      loop: the loop.
      problem: the problems of all worlds.
      batched: for each leaf of the problem, whether it has a batch axis.
      size: number of worlds, a multiple of PARTS.
    """

    loop: Loop
    problem: Any
    batched: tuple[bool, ...]
    size: int

    def run(self, start: Any) -> Any:
        """The last states; `start` itself if no world has to iterate, for example because nothing touches."""
        goes_on = jnp.any(jax.vmap(self.loop.unfinished)(start))
        return cond(goes_on, self._all_passes, lambda states: states, start)

    def _all_passes(self, start: Any) -> Any:
        """The last states, after a pass over each quarter and one over the worlds that are left."""
        leaves = zip(jax.tree.leaves(self.problem), self.batched, strict=True)
        problems = packed([x for x, batched in leaves if batched])
        states = packed(start)
        part = self.size // PARTS

        def one_pass(number: Array, state_rows: Array) -> Array:
            first = number * part
            is_last = number == PARTS
            tables = (problems.rows, state_rows)

            def quarter() -> tuple[Array, ...]:
                return tuple(jax.lax.dynamic_slice_in_dim(x, first, part) for x in tables)

            def leftovers() -> tuple[Array, ...]:
                index = jnp.argsort(~self._left(states, state_rows))[:part]
                return tuple(x[index] for x in tables)

            problem, state = cond(is_last, leftovers, quarter)
            state = self._advance(problems.unpack(problem), states.unpack(state), is_last)
            return jax.lax.dynamic_update_slice_in_dim(state_rows, packed(state).rows, first, 0)

        # with room for the worlds that are left of all quarters
        state_rows = jnp.concatenate([states.rows, states.rows[:part]])
        state_rows = fori_loop(0, PARTS + 1, one_pass, state_rows)
        left = self._left(states, state_rows)
        # the last pass has stored the worlds that were left in their order
        place = jnp.where(left, self.size - 1 + jnp.cumsum(left), jnp.arange(self.size))
        return states.unpack(state_rows[place])

    def _left(self, states: Packed, state_rows: Array) -> Array:
        """(size,) bool: the worlds that had not ended when their part stopped."""
        return jax.vmap(self.loop.unfinished)(states.unpack(state_rows[: self.size]))

    def _advance(self, of_part: list[Array], state: Any, is_last: Array) -> Any:
        """The states of a part, advanced until at most 1 / PARTS of its worlds is left, or none in the last pass."""
        leaves, tree = jax.tree.flatten(self.problem)
        unfinished = jax.vmap(self.loop.unfinished)

        def prepare(of_world: list[Array]) -> Any:
            leaves_of_world = iter(of_world)
            parts = [next(leaves_of_world) if batched else x for x, batched in zip(leaves, self.batched, strict=True)]
            return self.loop.prepare(tree.unflatten(parts))

        allowed = jnp.where(is_last, 0, self.size // PARTS // PARTS)
        advance = partial(jax.vmap(self.loop.advance_unfinished), jax.vmap(prepare)(of_part))
        return while_loop(lambda x: jnp.sum(unfinished(x)) > allowed, advance, state)


class _Board(NamedTuple):
    """The carry of `work_through`.

    Attributes:
      results: the results of all jobs.
      states: (b, ...) the states of the jobs in the slots.
      job: (b,) the index of the job in each slot.
      following: () the index of the next job that waits for a slot.
    """

    results: Any
    states: Any
    job: Array
    following: Array


def work_through(
    results: Any,
    *,
    count: Array,
    slots: int,
    start: Callable[[Array], Any],
    advance: Callable[[Array, Any, Array], Any],
    ended: Callable[[Any], Array],
    result: Callable[[Any], Any],
) -> Any:
    """The table `results` (n, ...), with new rows for the jobs 0 to `count` ().

    Jobs run side by side in `slots` slots; when one has ended, the next job takes its slot. The policy `slots` uses
    this function; call it directly if the slots share values in a way that `vmap` cannot express.

    Args:
      results: a table with one row per job; rows of jobs that do not exist stay as they are.
      count: () number of jobs.
      slots: number b of slots.
      start: indices of jobs (b,) -> their initial states.
      advance: (indices (b,), states, whether no job waits ()) -> states after some work. A job that has ended, or
        that does not exist (its index is `count` or more), keeps its state.
      ended: states -> (b,) whether each job has ended.
      result: states -> rows of the table.
    """
    size = len(jax.tree.leaves(results)[0])

    def turn(board: _Board) -> _Board:
        states = advance(board.job, board.states, board.following >= count)
        done = ended(states)
        place = jnp.where(done & (board.job < count), board.job, size)
        results = jax.tree.map(lambda all, new: all.at[place].set(new, mode="drop"), board.results, result(states))
        job = jnp.where(done, board.following + jnp.cumsum(done, dtype=jnp.int32) - 1, board.job)
        following = jnp.minimum(board.following + jnp.sum(done, dtype=jnp.int32), size)
        return _Board(results=results, states=where_tree(done, start(job), states), job=job, following=following)

    first = jnp.arange(slots, dtype=jnp.int32)
    board = _Board(results=results, states=start(first), job=first, following=jnp.asarray(slots, jnp.int32))
    return while_loop(lambda board: jnp.any(board.job < count), turn, board).results


class Explicit(NamedTuple):
    """A function whose closed-over traced values have become an explicit argument.

    A batch rule needs all values that may have a batch axis as arguments.

    Attributes:
      call: (held, *arguments) -> the results of the function.
      held: the values that the function closed over.
      shapes: the shapes of its results.
    """

    call: Callable[..., Any]
    held: list[Array]
    shapes: Any

    @classmethod
    def of(cls, function: Callable[..., Any], *arguments: Any) -> "Explicit":
        """The function, traced once for arguments of these shapes, without values that its results do not need."""
        closed, shapes = jax.make_jaxpr(function, return_shape=True)(*arguments)
        tree = jax.tree.structure(shapes)
        jaxpr, _ = dce_jaxpr(closed.jaxpr, [True] * len(closed.jaxpr.outvars), True)

        @jax.jit
        def call(held: list[Array], *arguments: Any) -> Any:
            return jax.tree.unflatten(tree, jax.core.eval_jaxpr(jaxpr, held, *jax.tree.leaves(arguments)))

        return cls(call=call, held=list(closed.consts), shapes=shapes)

    def zeros(self) -> Any:
        """Zeros with the shapes of the results."""
        return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), self.shapes)
