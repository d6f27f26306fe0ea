"""Loops and searches of a batch that do not wait for its slowest member.

`jax.vmap` of a while loop goes on with all members until the last one is done: of 512 humanoids the solver takes 8
iterations, where the mean world needs 3. The functions here are written for one member. Under `vmap` they share out the
work of the batch, and each member goes through the iterations that it would go through alone. They have no derivatives.

`run` runs a `Loop` by a policy for each platform:

| policy | how the members of a batch run |
|---|---|
| `together` | all of them until the last one is done, as under `jax.vmap` |
| `quarters` | a quarter of the batch at a time, and what is left of all quarters in the end |
| `rest` | all of them until an eighth is left, then that eighth: for iterations too short to pay for copies |
| `slots(n)` | n side by side; where one has ended, the next one begins |
| `kernel` | as one CUDA kernel, in which each warp runs the loop of one world (warp/loop.py); else as `rest` |

`in_groups` computes something for the members that need it, one group after another. `short_scan` and `one_by_one` go
through the few parts of one member.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.core
import jax.numpy as jnp
from jax import Array
from jax.ad_checkpoint import checkpoint_name
from jax.interpreters.partial_eval import dce_jaxpr

from diffsim.xla.barriers import for_cpu, for_gpu
from diffsim.xla.gather import Packed, packed
from diffsim.xla.loops import cond, fori_loop, scan, while_loop
from diffsim.xla.reverse_mode import SEARCH_RESULT
from diffsim.xla.select import where_tree
from diffsim.xla.warp.loop import Translated

Tree = TypeVar("Tree")

# `in_groups`: members that are searched side by side, which fill the vector lanes of a CPU; of a larger group all would
# wait longer for the slowest
GROUP = 16
# `in_groups`: numbers up to which a wide computation of all members is made at once (64 MiB in float32)
WHOLE = 1 << 24
# `in_groups`: numbers of one part of a wider computation, which a cache holds (1 MiB in float32)
PART = 1 << 18
# `quarters`: parts of a batch; a part goes on until 1 / PARTS of it is left, so that the rest of all is one more part
PARTS = 4
# `quarters`: worlds of the smallest batch that is taken apart; copying parts of a smaller one costs more than it saves
FEWEST = 128
# `rest`: 1 / REST of the batch is copied and goes on alone
REST = 8
# numbers of the state of one member that fill vector lanes and caches; on a CPU such members run one after another
LARGE = 5000
# numbers of the states of a batch from which on an iteration takes a GPU longer than its kernel launches
MANY = 1 << 20


def spread(size: int, values: Array, batched: bool) -> Array:
    """Values with a leading batch axis; what is not batched may be a plain number."""
    return values if batched else jnp.broadcast_to(values, (size, *jnp.shape(values)))


def with_batch_rule(function: Callable[..., Tree], rule: Callable[..., Tree]) -> Callable[..., Tree]:
    """A function of pytrees with a `vmap` of its own: `rule(size, batched, *arguments)`, results with a batch axis."""
    alone = jax.custom_batching.custom_vmap(function)

    @alone.def_vmap
    def of_a_batch(size: int, batched: Any, *arguments: Any) -> tuple[Tree, Any]:
        results = rule(size, batched, *arguments)
        return results, jax.tree.map(lambda _: True, results)

    return alone


def _axes(batched: Any) -> Any:
    """The axes of `jax.vmap` for what is batched."""
    return jax.tree.map(lambda has_axis: 0 if has_axis else None, batched)


class Loop(NamedTuple):
    """A loop of one world: `state = start`; while `unfinished(state)`: `state = advance(ready(problem), state)`.

    Its functions may hold values that are traced outside only under the policy `slots`.

    Attributes:
      unfinished: state -> whether it goes on.
      advance: (problem, state) -> the next state.
      ready: problem -> what all iterations read. It is computed once, and what it adds is not copied with the problem.
    """

    unfinished: Callable[[Any], Array]
    advance: Callable[[Any, Any], Any]
    ready: Callable[[Any], Any] = lambda problem: problem

    def run(self, problem: Any, start: Any) -> Any:
        """The last state."""
        return while_loop(self.unfinished, partial(self.advance, self.ready(problem)), start)

    def advance_unfinished(self, problem: Any, state: Any) -> Any:
        """The next state, or the same one where the loop does not go on."""
        later, goes_on = self.advance(problem, state), self.unfinished(state)
        return where_tree(goes_on, later, state)

    def made_ready(self, problem: Any) -> tuple["Loop", Any]:
        """The loop of a problem that is ready, and that problem."""
        return self._replace(ready=lambda ready: ready), self.ready(problem)


# (loop, problem, start) -> the last state of one world, with a batch rule of its own
Policy = Callable[[Loop, Any, Any], Any]


def run(loop: Loop, problem: Any, start: Any, *, cpu: Policy, gpu: Policy) -> Any:
    """The last state of a loop.

    Args:
      loop: its functions.
      problem: pytree of arrays that all iterations read.
      start: pytree of arrays, the first state.
      cpu: how a batch of loops runs on a CPU.
      gpu: how it runs elsewhere.
    """
    return (cpu if for_cpu() else gpu)(loop, problem, start)


def together(loop: Loop, problem: Any, start: Any) -> Any:
    """The last state; a batch runs until its last world is done."""
    return loop.run(problem, start)


def quarters(loop: Loop, problem: Any, start: Any) -> Any:
    """The last state; a quarter of the batch at a time goes on until no more than a quarter of it is left.

    What is left of all quarters is one more part, which goes on to the end. The body of the loop is compiled once.
    """

    def of_a_batch(size: int, batched: Any, problem: Any, start: Any) -> Any:
        if size < FEWEST or size % PARTS:
            return jax.vmap(loop.run, (_axes(batched), 0))(problem, start)
        return _Quarters(loop=loop, problem=problem, batched=tuple(jax.tree.leaves(batched)), size=size).run(start)

    return _with_batches(loop, of_a_batch)(problem, start)


def rest(loop: Loop, problem: Any, start: Any) -> Any:
    """The last state; all worlds go on until an eighth of them is left, and only the problems of those are copied.

    Of 64 worlds of ten humanoids most need one or two products with the Hessian, and one world needs twelve.
    """

    def of_a_batch(size: int, batched: Any, problem: Any, start: Any) -> Any:
        few, axes = size // REST, _axes(batched)
        if few < 2:
            return jax.vmap(loop.run, (axes, 0))(problem, start)
        unfinished, advance = jax.vmap(loop.unfinished), partial(jax.vmap(loop.advance_unfinished, (axes, 0)), problem)
        state = while_loop(lambda x: jnp.sum(unfinished(x)) > few, advance, start)
        left = jnp.nonzero(unfinished(state), size=few, fill_value=size)[0]
        of_left = jax.tree.map(lambda x, has_axis: x.at[left].get(mode="clip") if has_axis else x, problem, batched)
        last = jax.vmap(loop.run, (axes, 0))(of_left, jax.tree.map(lambda x: x.at[left].get(mode="clip"), state))
        return jax.tree.map(lambda x, end: x.at[left].set(end, mode="drop"), state, last)

    return _with_batches(loop, of_a_batch)(problem, start)


def kernel(loop: Loop, problem: Any, start: Any) -> Any:
    """The last state, by one CUDA kernel, in which each warp runs the loop of one world; `rest` of loops with
    operations that a warp does not know.
    """
    loop, problem = loop.made_ready(problem)
    in_a_warp = Translated.of(loop.unfinished, loop.advance, problem, start)
    return in_a_warp(problem, start) if in_a_warp else rest(loop, problem, start)


def slots(count: int) -> Policy:
    """The policy that runs `count` loops of a batch side by side; 0 for all. Where one has ended, the next one begins,
    so that the work is the sum of all iterations.

    Functions of the loop may hold values that are traced outside, as functions of a user do.
    """

    def policy(loop: Loop, problem: Any, start: Any) -> Any:
        loop, problem = loop.made_ready(problem)
        explicit = Explicit.of(loop.advance, problem, start)

        def alone(held: list[Array], problem: Any, start: Any) -> Any:
            return while_loop(loop.unfinished, partial(explicit.call, held, problem), start)

        def of_a_batch(size: int, batched: Any, *arguments: Any) -> Any:
            if not 0 < count < size:
                return jax.vmap(alone, _axes(tuple(batched)))(*arguments)
            starts = jax.vmap(lambda x: x, (_axes(batched[2]),), axis_size=size)(arguments[2])

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
    """The loop with a batch rule: `of_a_batch(size, batched, problem, starts)` makes the last states.

    Small batches on a GPU run together: its launches take longer than their work. Large members on a CPU run one after
    another: one of them fills its vector lanes, and several would not fit into the cache.
    """

    def rule(size: int, batched: Any, problem: Any, start: Any) -> Any:
        starts = jax.vmap(lambda x: x, (_axes(batched[1]),), axis_size=size)(start)
        numbers = sum(x.size for x in jax.tree.leaves(starts))
        if not for_cpu() and numbers < MANY:
            return jax.vmap(loop.run, (_axes(batched[0]), 0))(problem, starts)
        if not for_cpu() or numbers < LARGE * size:
            return of_a_batch(size, batched[0], problem, starts)

        def member(number: Array) -> Any:
            return run_one(*jax.tree.map(lambda x, has: x[number] if has else x, (problem, start), tuple(batched)))

        return jax.lax.map(member, jnp.arange(size))

    return (run_one := with_batch_rule(loop.run, rule))


class _Quarters(NamedTuple):
    """The policy `quarters` for a batch of `size` worlds.

    Problems and states are a table each, with a row for each world, so that one copy takes a part of all of them. The
    table of states has room for one more part behind the batch. Pass k of the first PARTS passes advances rows
    k * part to (k + 1) * part in their place, until at most 1 / PARTS of them goes on. The last pass gathers what is
    left of all quarters, at most one part, advances it to the end, and stores it behind the batch, from where the rows
    are read in the end. All passes are iterations of one `fori_loop`, so that the body of the loop is compiled once.

    Attributes:
      loop: the loop.
      problem: of all worlds.
      batched: which leaves of the problem have a batch axis.
      size: number of worlds, a multiple of PARTS.
    """

    loop: Loop
    problem: Any
    batched: tuple[bool, ...]
    size: int

    def run(self, start: Any) -> Any:
        """The last states; those at the start where no world goes on, as where nothing touches."""
        goes_on = jnp.any(jax.vmap(self.loop.unfinished)(start))
        return cond(goes_on, self._all_passes, lambda states: states, start)

    def _all_passes(self, start: Any) -> Any:
        """The last states."""
        leaves = zip(jax.tree.leaves(self.problem), self.batched, strict=True)
        problems = packed([x for x, batched in leaves if batched])
        states, part = packed(start), self.size // PARTS

        def one_pass(number: Array, room: Array) -> Array:
            first, is_last, tables = number * part, number == PARTS, (problems.rows, room)

            def quarter() -> tuple[Array, ...]:
                return tuple(jax.lax.dynamic_slice_in_dim(x, first, part) for x in tables)

            def leftovers() -> tuple[Array, ...]:
                index = jnp.argsort(~self._left(states, room))[:part]
                return tuple(x[index] for x in tables)

            problem, state = cond(is_last, leftovers, quarter)
            state = self._advance(problems.unpack(problem), states.unpack(state), is_last)
            return jax.lax.dynamic_update_slice_in_dim(room, packed(state).rows, first, 0)

        # with room for what is left of all quarters
        room = jnp.concatenate([states.rows, states.rows[:part]])
        room = fori_loop(0, PARTS + 1, one_pass, room)
        left = self._left(states, room)
        # the last pass took them in their order
        place = jnp.where(left, self.size - 1 + jnp.cumsum(left), jnp.arange(self.size))
        return states.unpack(room[place])

    def _left(self, states: Packed, room: Array) -> Array:
        """(size,) which worlds were not done when their part was left."""
        return jax.vmap(self.loop.unfinished)(states.unpack(room[: self.size]))

    def _advance(self, of_part: list[Array], state: Any, is_last: Array) -> Any:
        """The states of a part when at most 1 / PARTS of them goes on, or none in the last pass."""
        leaves, tree = jax.tree.flatten(self.problem)
        unfinished = jax.vmap(self.loop.unfinished)

        def ready(of_world: list[Array]) -> Any:
            rest = iter(of_world)
            parts = [next(rest) if batched else x for x, batched in zip(leaves, self.batched, strict=True)]
            return self.loop.ready(tree.unflatten(parts))

        allowed = jnp.where(is_last, 0, self.size // PARTS // PARTS)
        advance = partial(jax.vmap(self.loop.advance_unfinished), jax.vmap(ready)(of_part))
        return while_loop(lambda x: jnp.sum(unfinished(x)) > allowed, advance, state)


class _Board(NamedTuple):
    """What `work_through` carries.

    Attributes:
      results: of all jobs.
      states: (b, ...) in the slots.
      job: (b,) the number of the job in each slot.
      following: () the number of the next job in line.
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
    """The results (n, ...), with new rows for the jobs 0 to `count` (); the other rows stay as they are.

    A few slots go through the jobs side by side: where one has ended, the next in line begins. This is the engine of
    the policy `slots`, for work whose slots share more than a `vmap` says.

    Args:
      results: one row for each job.
      count: number of jobs ().
      slots: number b of slots.
      start: numbers of jobs (b,) -> their first states.
      advance: (numbers (b,), states, whether no job waits ()) -> states after some work. A job that has ended, or
        that does not exist (its number is `count` or more), keeps its state.
      ended: states -> (b,) whether each has ended.
      result: states -> the rows of results of those that ended.
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
    """A function whose values from outside are an argument.

    A batch rule must be told of all values that may have a batch axis, and what a function holds is no argument of it.

    Attributes:
      call: (held, *arguments) -> its results.
      held: what the function holds from outside.
      shapes: of its results.
    """

    call: Callable[..., Any]
    held: list[Array]
    shapes: Any

    @classmethod
    def of(cls, function: Callable[..., Any], *arguments: Any) -> "Explicit":
        """The function for arguments like these, traced once, without what nothing reads."""
        closed, shapes = jax.make_jaxpr(function, return_shape=True)(*arguments)
        tree, jaxpr = jax.tree.structure(shapes), dce_jaxpr(closed.jaxpr, [True] * len(closed.jaxpr.outvars), True)[0]

        @jax.jit
        def call(held: list[Array], *arguments: Any) -> Any:
            return jax.tree.unflatten(tree, jax.core.eval_jaxpr(jaxpr, held, *jax.tree.leaves(arguments)))

        return cls(call=call, held=list(closed.consts), shapes=shapes)

    def zeros(self) -> Any:
        """Zeros like its results."""
        return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), self.shapes)


# (needed (), arguments) -> results of one member
Search = Callable[[Array, Any], Tree]
# number of members -> how many of them are worked on at once; None for all
Grouping = Callable[[int], int | None]


def in_groups(
    compute: Search[Tree],
    needed: Array | bool,
    arguments: Any,
    *,
    at_once: int = GROUP,
    numbers: int | None = None,
) -> Tree:
    """The results of `compute(needed, arguments)` where it is `needed` (); elsewhere anything finite. No derivatives.

    On a CPU the members of a batch that need it are computed in groups, one after another; the others cost nothing, and
    a loop in a group does not wait for the others. Elsewhere all members are computed at once. Reverse mode stores the
    results.

    Args:
      compute: of one member; it holds no value that is traced outside (see `Explicit`). Places of a group that no
        member needs compute with `needed` False.
      needed: (); a plain truth where it is known.
      arguments: pytree of arrays.
      at_once: members of a group.
      numbers: numbers that one member computes. With it a batch is taken apart only if it would not fit into memory
        well, into parts that a cache holds.
    """
    if isinstance(needed, bool) and numbers is None:
        return checkpoint_name(compute(jnp.asarray(needed), arguments), SEARCH_RESULT)

    def group(count: int) -> int | None:
        if numbers is None:
            return min(at_once, count)
        return None if count * numbers <= WHOLE else max(GROUP, PART // numbers)

    return checkpoint_name(_shared_out(compute, jnp.asarray(needed), arguments, group), SEARCH_RESULT)


def fold_wanted(wanted: Array, group: int, work: Callable[[Array, Tree], Tree], start: Tree) -> Tree:
    """The last carry of `work(places (group,), carry)`, called for one group after another of the wanted places (n,).

    Places come in their order; n stands where the last group has no more.
    """
    count = len(wanted)
    order = jnp.nonzero(wanted, size=-(-count // group) * group, fill_value=count)[0].astype(jnp.int32)
    places, groups = partial(jax.lax.dynamic_slice, order), -(-jnp.sum(wanted, dtype=jnp.int32) // group)
    return fori_loop(0, groups, lambda k, carry: work(places((k * group,), (group,)), carry), start)


class _Axes(NamedTuple):
    """Whether a leaf has a value for each of m worlds, and for each of n cases: its leading axes, in this order."""

    worlds: bool = False
    cases: bool = False

    def taken(self, leaf: Array, row: Array, cases: int) -> Array:
        """The values of rows (k,) of the flattened table; the leaf itself where all share it."""
        if self.worlds and self.cases:
            return leaf.reshape(-1, *leaf.shape[2:])[row]
        return leaf[row // cases] if self.worlds else leaf[row % cases] if self.cases else leaf


# the search of one member, with the leaves of its arguments
LeafSearch = Callable[[Array, list[Array]], Tree]


# Groups are taken of the whole batch, also where several `vmap` make it: the pairs of geoms of a world, then worlds.
# The first map is a rule with one axis, cases; it calls the search of a table of one world. Each further map is a rule
# of that search, which makes the batch more worlds. A leaf that cases or worlds share keeps no axis for them, so that
# a mesh is not copied for each pair.
def _shared_out(search: Search[Tree], needed: Array, arguments: Any, group: Grouping) -> Tree:
    """The search of one member; batches are flattened, whatever the order of their maps."""
    leaves, structure = jax.tree.flatten(arguments)

    # traced once for all levels below
    @jax.jit
    def of_leaves(needed: Array, leaves: list[Array]) -> Tree:
        return search(needed, jax.tree.unflatten(structure, leaves))

    def of_cases(size: int, batched: Any, needed: Array, leaves: list[Array]) -> Tree:
        table = _table(of_leaves, [_Axes(cases=is_batched) for is_batched in batched[1]], group)
        return jax.tree.map(lambda x: x[0], table(spread(size, needed, batched[0])[None], leaves))

    return with_batch_rule(lambda needed, leaves: of_leaves(needed, leaves), of_cases)(needed, leaves)


def _table(search: LeafSearch[Tree], axes: list[_Axes], group: Grouping) -> LeafSearch[Tree]:
    """The search of m worlds with n cases each: `needed` (m, n), and leaves with these axes.

    What worlds or cases share is not copied for each of them.
    """

    def table(needed: Array, leaves: list[Array]) -> Tree:
        at_once = group(needed.size)
        if not for_cpu() or at_once is None:
            of_cases = jax.vmap(search, (0, [0 if axis.cases else None for axis in axes]))
            return jax.vmap(of_cases, (0, [0 if axis.worlds else None for axis in axes]))(needed, leaves)
        return _group_by_group(search, axes, needed, leaves, at_once)

    def of_more_worlds(size: int, batched: Any, needed: Array, leaves: list[Array]) -> Tree:
        worlds = needed.shape[-2]

        def of_worlds(leaf: Array, axis: _Axes, is_batched: bool) -> Array:
            if not (axis.worlds or is_batched):
                return leaf
            whole = spread(size, leaf, is_batched)
            if not axis.worlds:
                whole = jnp.broadcast_to(whole[:, None], (size, worlds, *whole.shape[1:]))
            return whole.reshape(size * worlds, *whole.shape[2:])

        more = [of_worlds(*leaf) for leaf in zip(leaves, axes, batched[1], strict=True)]
        now = [axis._replace(worlds=axis.worlds or by) for axis, by in zip(axes, batched[1], strict=True)]
        results = _table(search, now, group)(of_worlds(needed, _Axes(True, True), batched[0]), more)
        return jax.tree.map(lambda x: x.reshape(size, worlds, *x.shape[1:]), results)

    return with_batch_rule(table, of_more_worlds)


def _group_by_group(
    search: LeafSearch[Tree], axes: list[_Axes], needed: Array, leaves: list[Array], group: int
) -> Tree:
    """The table, by groups of the members that need it, in their order; zeros for the others."""
    worlds, cases = needed.shape
    count = worlds * cases

    def some(place: Array) -> Tree:
        row = jnp.minimum(place, count - 1)
        parts = [axis.taken(leaf, row, cases) for leaf, axis in zip(leaves, axes, strict=True)]
        return jax.vmap(search, (0, [0 if any(axis) else None for axis in axes]))(place < count, parts)

    def work(place: Array, results: Tree) -> Tree:
        return jax.tree.map(lambda all, new: all.at[place].set(new, mode="drop"), results, some(place))

    shapes = jax.eval_shape(some, jax.ShapeDtypeStruct((group,), jnp.int32))
    nothing = jax.tree.map(lambda x: jnp.zeros((count, *x.shape[1:]), x.dtype), shapes)
    results = fold_wanted(needed.reshape(-1), group, work, nothing)
    return jax.tree.map(lambda x: x.reshape(worlds, cases, *x.shape[1:]), results)


def short_scan(step: Callable[..., Any], start: Any, parts: Any) -> tuple[Any, Any]:
    """`jax.lax.scan` over a few parts, written out on a GPU."""
    return scan(step, start, parts, unroll=for_gpu())


def one_by_one(function: Callable[[Any], Any], parts: Any) -> Any:
    """The results of a function for each of a few parts, along their leading axes.

    On a CPU by a scan: under `vmap` XLA would compile what the parts share into each of them. On a GPU by `vmap`: in a
    scan each part would have kernels of its own.
    """
    return jax.vmap(function)(parts) if for_gpu() else scan(lambda _, part: (None, function(part)), None, parts)[1]
