"""Loops and searches of a batch that do not wait for its slowest member.

`jax.vmap` of a while loop goes on with all members until the last is done: of 512 humanoids the solver takes 8
iterations, where the mean world needs 3. The functions here are those of one member; under `vmap` they share out the
work of all, and each member goes through the trips that it would go through by itself. None is differentiated:

- `where_needed`: those that need a search come first, a group after the other; the others cost nothing.
- `in_parts`: a wide computation of a large batch goes in parts that caches hold.
- `run`: a loop, on a CPU a quarter of the batch at a time, and what is left of all quarters at the end; on a GPU one
  kernel, of which each warp runs the loop of a world (kernels/warp_loop.py).
- `run_short`: a loop whose trips are too short to pay for copies: all go on until an eighth of them is left.
- `run_in_slots`: a few slots side by side; what has ended leaves, and the next takes its place.
- `in_turn`: no loop; a few members are computed side by side, one group after another, those that need it.
"""

import importlib
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
from diffsim.xla.reverse_mode import SEARCH_RESULT
from diffsim.xla.select import where_tree

Tree = TypeVar("Tree")

# it makes kernels of loops, and is read only where a program is made for a GPU
WARPS = "diffsim.xla.kernels.warp_loop"
# members that are searched at once
GROUP = 16
# numbers that are computed at once before a computation is cut into parts, and those of a part, which caches hold
WHOLE, PART = 1 << 24, 1 << 18
# parts of a loop's batch, the fewest worlds that are taken apart, and which share of them goes on by itself
PARTS, FEWEST, REST = 4, 128, 8
# numbers of a member's state that fill vector units and caches: loops of such members run one after another
LARGE = 5000
# numbers of all states from which on an iteration of a GPU takes longer than its launches
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
    """Axes of a `vmap`, of what is batched."""
    return jax.tree.map(lambda has_axis: 0 if has_axis else None, batched)


def fold_wanted(wanted: Array, group: int, work: Callable[[Array, Tree], Tree], start: Tree) -> Tree:
    """The last carry of `work(places (group,), carry)`, called for one group after another of the wanted places (n,).

    Places come in their order; n stands where the last group has no more.
    """
    count = len(wanted)
    order = jnp.nonzero(wanted, size=-(-count // group) * group, fill_value=count)[0].astype(jnp.int32)
    places, groups = partial(jax.lax.dynamic_slice, order), -(-jnp.sum(wanted, dtype=jnp.int32) // group)
    return jax.lax.fori_loop(0, groups, lambda k, carry: work(places((k * group,), (group,)), carry), start)


def where_needed(search: Callable[[Array, Any], Tree], needed: Array | bool, arguments: Any) -> Tree:
    """The results of `search(needed, arguments)` where it is `needed` (); elsewhere anything finite. No derivatives."""
    if isinstance(needed, bool):
        return checkpoint_name(search(jnp.asarray(needed), arguments), SEARCH_RESULT)
    return checkpoint_name(_shared_out(search, needed, arguments, partial(min, GROUP)), SEARCH_RESULT)


def in_parts(compute: Callable[[Any], Tree], size: int, arguments: Any) -> Tree:
    """The results of `compute(arguments)`, by way of `size` numbers; of a large batch in parts. No derivatives."""

    def group(count: int) -> int | None:
        return None if count * size <= WHOLE else max(GROUP, PART // size)

    return _shared_out(lambda _, arguments: compute(arguments), jnp.asarray(True), arguments, group)


# how many of so many members are worked on at once; None for all
Grouping = Callable[[int], int | None]
Search = Callable[[Array, list[Array]], Tree]


class _Axes(NamedTuple):
    """Whether a leaf has a value for each of m worlds, and for each of n cases: its leading axes, in this order."""

    worlds: bool = False
    cases: bool = False

    def taken(self, leaf: Array, row: Array, cases: int) -> Array:
        """The values of rows (k,) of the flattened table; of what all share the leaf itself."""
        if self.worlds and self.cases:
            return leaf.reshape(-1, *leaf.shape[2:])[row]
        return leaf[row // cases] if self.worlds else leaf[row % cases] if self.cases else leaf


def _shared_out(search: Callable[[Array, Any], Tree], needed: Array, arguments: Any, group: Grouping) -> Tree:
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


def _table(search: Search[Tree], axes: list[_Axes], group: Grouping) -> Search[Tree]:
    """The search of m worlds with n cases each: `needed` (m, n), and leaves with these axes.

    What worlds or cases share is not copied for each of them.
    """

    def table(needed: Array, leaves: list[Array]) -> Tree:
        at_once = group(needed.size)
        if not for_cpu() or at_once is None:
            of_cases = jax.vmap(search, (0, [0 if axis.cases else None for axis in axes]))
            return jax.vmap(of_cases, (0, [0 if axis.worlds else None for axis in axes]))(needed, leaves)
        return _in_groups(search, axes, needed, leaves, at_once)

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


def _in_groups(search: Search[Tree], axes: list[_Axes], needed: Array, leaves: list[Array], group: int) -> Tree:
    """The table, groups of those that are needed in their order."""
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


class WhileLoop(NamedTuple):
    """A loop of one world: state -> whether it goes on, (problem, state) -> state. Nothing else may be traced in it.

    `ready` makes of a problem what all iterations read; what it adds is not carried from part to part.
    """

    unfinished: Callable[[Any], Array]
    advance: Callable[[Any, Any], Any]
    ready: Callable[[Any], Any] = lambda problem: problem

    def run(self, problem: Any, start: Any) -> Any:
        """The last state."""
        return jax.lax.while_loop(self.unfinished, partial(self.advance, self.ready(problem)), start)

    def advance_unfinished(self, problem: Any, state: Any) -> Any:
        """The next state, or the same where it does not go on."""
        later, goes_on = self.advance(problem, state), self.unfinished(state)
        return where_tree(goes_on, later, state)


def run(loop: WhileLoop, problem: Any, start: Any) -> Any:
    """The last state; on a CPU a quarter of the batch at a time goes on until no more than a quarter of it is left, and
    what is left of all quarters is one more part, which goes on to the end. The body of the loop is compiled once.
    """

    def of_a_batch(size: int, batched: Any, problem: Any, start: Any) -> Any:
        if size < FEWEST or size % PARTS:
            return jax.vmap(loop.run, (_axes(batched), 0))(problem, start)
        return _Batch(loop, problem, tuple(jax.tree.leaves(batched)), size).run(start)

    if for_cpu():
        return _batched_by(loop, of_a_batch)(problem, start)
    problem, loop = loop.ready(problem), loop._replace(ready=lambda ready: ready)
    in_a_warp = importlib.import_module(WARPS).Translated.of(loop.unfinished, loop.advance, problem, start)
    return in_a_warp(problem, start) if in_a_warp else run_short(loop, problem, start)


def run_short(loop: WhileLoop, problem: Any, start: Any) -> Any:
    """`run` of a loop of short trips: all worlds go on until an eighth of them is left, and the problems of those alone
    are copied. Of 64 worlds of ten humanoids most need one or two products, and one needs twelve.
    """

    def of_a_batch(size: int, batched: Any, problem: Any, start: Any) -> Any:
        few, axes = size // REST, _axes(batched)
        if few < 2:
            return jax.vmap(loop.run, (axes, 0))(problem, start)
        unfinished, advance = jax.vmap(loop.unfinished), partial(jax.vmap(loop.advance_unfinished, (axes, 0)), problem)
        state = jax.lax.while_loop(lambda x: jnp.sum(unfinished(x)) > few, advance, start)
        rest = jnp.nonzero(unfinished(state), size=few, fill_value=size)[0]
        of_rest = jax.tree.map(lambda x, has_axis: x.at[rest].get(mode="clip") if has_axis else x, problem, batched)
        last = jax.vmap(loop.run, (axes, 0))(of_rest, jax.tree.map(lambda x: x.at[rest].get(mode="clip"), state))
        return jax.tree.map(lambda x, end: x.at[rest].set(end, mode="drop"), state, last)

    return _batched_by(loop, of_a_batch)(problem, start)


def _batched_by(loop: WhileLoop, of_a_batch: Callable[..., Any]) -> Callable[..., Any]:
    """The loop, of whose batches `of_a_batch` makes the last states, on a GPU if they are large; on a CPU large members
    go one after another.
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


class _Batch(NamedTuple):
    """A loop of `size` worlds, and which leaves of their problem have a batch axis."""

    loop: WhileLoop
    problem: Any
    batched: tuple[bool, ...]
    size: int

    def run(self, start: Any) -> Any:
        """The last states: those at the start where no world goes on, as where nothing touches."""
        goes_on = jnp.any(jax.vmap(self.loop.unfinished)(start))
        return jax.lax.cond(goes_on, self._all_passes, lambda states: states, start)

    def _all_passes(self, start: Any) -> Any:
        """The last states; problems and states are a table each, so that a part is taken of all leaves at once."""
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

            problem, state = jax.lax.cond(is_last, leftovers, quarter)
            state = self._advance(problems.unpack(problem), states.unpack(state), is_last)
            return jax.lax.dynamic_update_slice_in_dim(room, packed(state).rows, first, 0)

        # with room for those that are left
        room = jnp.concatenate([states.rows, states.rows[:part]])
        room = jax.lax.fori_loop(0, PARTS + 1, one_pass, room)
        left = self._left(states, room)
        place = jnp.where(left, self.size - 1 + jnp.cumsum(left), jnp.arange(self.size))
        return states.unpack(room[place])

    def _left(self, states: Packed, room: Array) -> Array:
        """(size,) which worlds were not done when their part was left."""
        return jax.vmap(self.loop.unfinished)(states.unpack(room[: self.size]))

    def _advance(self, of_part: list[Array], state: Any, is_last: Array) -> Any:
        """A part, until no more than some worlds go on, or none in the last pass."""
        leaves, tree = jax.tree.flatten(self.problem)
        unfinished = jax.vmap(self.loop.unfinished)

        def ready(of_world: list[Array]) -> Any:
            rest = iter(of_world)
            parts = [next(rest) if batched else x for x, batched in zip(leaves, self.batched, strict=True)]
            return self.loop.ready(tree.unflatten(parts))

        allowed = jnp.where(is_last, 0, self.size // PARTS // PARTS)
        advance = partial(jax.vmap(self.loop.advance_unfinished), jax.vmap(ready)(of_part))
        return jax.lax.while_loop(lambda x: jnp.sum(unfinished(x)) > allowed, advance, state)


class Jobs(NamedTuple):
    """Work that a few slots go through side by side.

    Attributes:
      start: numbers of jobs (b,) -> their first carries.
      advance: (numbers (b,), carries, whether no job waits ()) -> carries after some work; a job that has ended, or
        that does not exist (its number is the count or more), keeps its carry.
      ended: carries -> (b,) whether.
      result: carries -> the rows that are kept of those that ended.
    """

    start: Callable[[Array], Any]
    advance: Callable[[Array, Any, Array], Any]
    ended: Callable[[Any], Array]
    result: Callable[[Any], Any]


class _Board(NamedTuple):
    """Results of all jobs, carries in the slots (b), whose they are (b,), and the number of the next in line ()."""

    results: Any
    carries: Any
    job: Array
    following: Array


def work_through(jobs: Jobs, results: Any, count: Array, slots: int) -> Any:
    """The results (n, ...) with those of jobs 0 to `count` () in their rows; the others stay as they are."""
    size = len(jax.tree.leaves(results)[0])

    def turn(board: _Board) -> _Board:
        carries = jobs.advance(board.job, board.carries, board.following >= count)
        done = jobs.ended(carries)
        place = jnp.where(done & (board.job < count), board.job, size)
        results = jax.tree.map(
            lambda all, new: all.at[place].set(new, mode="drop"), board.results, jobs.result(carries)
        )
        job = jnp.where(done, board.following + jnp.cumsum(done, dtype=jnp.int32) - 1, board.job)
        carries = where_tree(done, jobs.start(job), carries)
        following = jnp.minimum(board.following + jnp.sum(done, dtype=jnp.int32), size)
        return _Board(results, carries, job, following)

    first = jnp.arange(slots, dtype=jnp.int32)
    board = _Board(results, jobs.start(first), first, jnp.asarray(slots, jnp.int32))
    return jax.lax.while_loop(lambda board: jnp.any(board.job < count), turn, board).results


class Loop(NamedTuple):
    """carry = start(*arguments); while not ended(carry): carry = advance(carry, *arguments). All of one problem."""

    start: Callable[..., Any]
    advance: Callable[..., Any]
    ended: Callable[[Any], Array]


def run_in_slots(loop: Loop, arguments: tuple, slots: int) -> Any:
    """The last carry; under `jax.vmap` those of a batch, so that the work is that of the sum of all lengths.

    Args:
      loop: what runs; its functions may hold values of transformations outside.
      arguments: pytrees, batched or not.
      slots: how many loops of a batch run side by side; 0 for all.
    """
    start, constants = _explicit(loop.start, *arguments)
    advance, more_constants = _explicit(loop.advance, jax.eval_shape(start, constants, *arguments), *arguments)

    def whole(constants: tuple, arguments: tuple) -> Any:
        step, first = partial(advance, constants[1]), start(constants[0], *arguments)
        return jax.lax.while_loop(lambda carry: ~loop.ended(carry), lambda carry: step(carry, *arguments), first)

    def of_a_batch(size: int, batched: Any, *problem: Any) -> Any:
        if not 0 < slots < size:
            return jax.vmap(whole, _axes(tuple(batched)))(*problem)
        starts = jax.vmap(lambda c, arguments: start(c[0], *arguments), _axes(tuple(batched)))(*problem)

        def one_step(job: Array, carry: Any) -> Any:
            constants, arguments = jax.tree.map(lambda x, has_axis: x[job] if has_axis else x, problem, tuple(batched))
            return advance(constants[1], carry, *arguments)

        def step(job: Array, carries: Any, _: Array) -> Any:
            return where_tree(
                jax.vmap(loop.ended)(carries), carries, jax.vmap(one_step)(jnp.minimum(job, size - 1), carries)
            )

        def first(job: Array) -> Any:
            return jax.tree.map(lambda x: x[jnp.minimum(job, size - 1)], starts)

        jobs = Jobs(first, step, jax.vmap(loop.ended), lambda carries: carries)
        return work_through(jobs, starts, jnp.asarray(size, jnp.int32), slots)

    return with_batch_rule(whole, of_a_batch)((constants, more_constants), arguments)


def in_turn(function: Callable[..., Any], arguments: tuple, width: int, needed: Array) -> Any:
    """The result where it is `needed` (), else zeros; under `jax.vmap` by groups of `width`; 0: all, needed or not."""
    whole, constants = _explicit(function, *arguments)
    shapes = jax.eval_shape(whole, constants, *arguments)

    def zeros(*sizes: int) -> Any:
        return jax.tree.map(lambda x: jnp.zeros((*sizes, *x.shape), x.dtype), shapes)

    def alone(needed: Array, held: list[Array], rest: tuple) -> Any:
        return jax.lax.cond(needed, lambda: whole(held, *rest), zeros)

    def of_a_batch(size: int, batched: Any, needed: Array, *problem: Any) -> Any:
        if not 0 < width < size:
            return jax.vmap(alone, _axes(tuple(batched)))(needed, *problem)

        def work(places: Array, results: Any) -> Any:
            axes = tuple(batched[1:])
            members = jax.tree.map(lambda x, axis: x.at[places].get(mode="clip") if axis else x, problem, axes)
            new = jax.vmap(lambda held, rest: whole(held, *rest), _axes(axes))(*members)
            return jax.tree.map(lambda all, some: all.at[places].set(some, mode="drop"), results, new)

        return fold_wanted(spread(size, needed, batched[0]), width, work, zeros(size))

    return with_batch_rule(alone, of_a_batch)(needed, constants, arguments)


def _explicit(function: Callable[..., Any], *arguments: Any) -> tuple[Callable[..., Any], list[Array]]:
    """The function, with what it holds from outside as its first argument; and what it holds.

    A rule for batches must be told of everything that may have a batch axis. Traced once, without what nothing reads.
    """
    closed, shape = jax.make_jaxpr(function, return_shape=True)(*arguments)
    tree, jaxpr = jax.tree.structure(shape), dce_jaxpr(closed.jaxpr, [True] * len(closed.jaxpr.outvars), True)[0]

    @jax.jit
    def call(constants: list[Array], *arguments: Any) -> Any:
        return jax.tree.unflatten(tree, jax.core.eval_jaxpr(jaxpr, constants, *jax.tree.leaves(arguments)))

    return call, list(closed.consts)


def short_scan(step: Callable[..., Any], start: Any, parts: Any) -> tuple[Any, Any]:
    """`jax.lax.scan` over a few parts, written out on a GPU."""
    return jax.lax.scan(step, start, parts, unroll=for_gpu())


def one_by_one(function: Callable[[Any], Any], parts: Any) -> Any:
    """The results of a function for each of a few parts, along their leading axes.

    On a CPU by a scan: under `vmap` XLA would compile what the parts share into each of them. On a GPU by `vmap`: in a
    scan each part would have kernels of its own.
    """
    return (
        jax.vmap(function)(parts) if for_gpu() else jax.lax.scan(lambda _, part: (None, function(part)), None, parts)[1]
    )
