"""A search that few of a batch need: those that do are worked on in small groups, the others cost nothing.

`vmap` of a loop goes on for all until the last is done. Here a batch is flattened, whatever the order of its maps, and
those that need the search are taken up a group after the other, each with a loop of its own. Wide computations of large
batches go in parts likewise, so that what they need at once stays in caches. That is for CPUs: a device that works on
all at once has the whole batch.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from diffsim.xla.barriers import for_cpu

Array = jax.Array
Tree = TypeVar("Tree")
# (whether it is needed (), its arguments) -> what it finds, anything where it is not needed
Search = Callable[[Array, Any], Tree]

# how many of so many are worked on at once; None for all
Grouping = Callable[[int], int | None]

# how many are worked on at once
GROUP = 16
# numbers that are computed at once before a computation is cut into parts, and those of a part, which caches hold
WHOLE, PART = 1 << 24, 1 << 18


def where_needed(search: Search[Tree], needed: Array, arguments: Any) -> Tree:
    """What `search(needed, arguments)` finds where it is `needed` (); elsewhere anything. No derivatives."""
    return _in_a_batch(search, needed, arguments, lambda count: min(GROUP, count))


def in_parts(compute: Callable[[Any], Tree], size: int, arguments: Any) -> Tree:
    """What `compute(arguments)` finds, by way of so many numbers: of a large batch on a CPU part after part.

    No derivatives.
    """

    def group(count: int) -> int | None:
        return None if count * size <= WHOLE else max(GROUP, PART // size)

    return _in_a_batch(lambda needed, given: compute(given), jnp.asarray(True), arguments, group)


def _in_a_batch(search: Search[Tree], needed: Array, arguments: Any, group: Grouping) -> Tree:
    leaves, structure = jax.tree.flatten(arguments)

    # traced once for all levels below
    @jax.jit
    def of_leaves(needed: Array, leaves: list[Array]) -> Tree:
        return search(needed, jax.tree.unflatten(structure, leaves))

    @jax.custom_batching.custom_vmap
    def one(needed: Array, leaves: list[Array]) -> Tree:
        return of_leaves(needed, leaves)

    @one.def_vmap
    def row(size: int, batched: Any, needed: Array, leaves: list[Array]) -> tuple[Tree, Tree]:
        needed, leaves = jax.tree.map(partial(spread, size), (needed, leaves), tuple(batched))
        found = _table(of_leaves, [False] * len(leaves), group)(needed[None], leaves)
        return jax.tree.map(lambda x: x[0], found), jax.tree.map(lambda _: True, found)

    return one(needed, leaves)


def _table(search: Search[Tree], own: list[bool], group: Grouping) -> Search[Tree]:
    """The search of worlds (m) with n cases each: `needed` (m, n), leaves (m, n, ...), or (n, ...) if not their `own`.

    What worlds share is not copied for each of them.
    """

    @jax.custom_batching.custom_vmap
    def table(needed: Array, leaves: list[Array]) -> Tree:
        at_once = group(needed.size)
        if not for_cpu() or at_once is None:
            cases = jax.vmap(search)
            return jax.vmap(cases, (0, [0 if each else None for each in own]))(needed, leaves)
        return _in_groups(search, own, needed, leaves, at_once)

    @table.def_vmap
    def longer(size: int, batched: Any, needed: Array, leaves: list[Array]) -> tuple[Tree, Tree]:
        worlds = needed.shape[-2]

        def joined(values: Array, is_batched: bool) -> Array:
            whole = spread(size, values, is_batched)
            return whole.reshape(size * worlds, *whole.shape[2:])

        def of_world(values: Array, is_own: bool, is_batched: bool) -> Array:
            if not (is_own or is_batched):
                return values
            each = values if is_own else jnp.broadcast_to(values[:, None], (size, worlds, *values.shape[1:]))
            return joined(each, is_batched or not is_own)

        now_own = [is_own or is_batched for is_own, is_batched in zip(own, batched[1], strict=True)]
        flat = [of_world(*each) for each in zip(leaves, own, batched[1], strict=True)]
        found = _table(search, now_own, group)(joined(needed, batched[0]), flat)
        found = jax.tree.map(lambda x: x.reshape(size, worlds, *x.shape[1:]), found)
        return found, jax.tree.map(lambda _: True, found)

    return table


def _in_groups(search: Search[Tree], own: list[bool], needed: Array, leaves: list[Array], group: int) -> Tree:
    """The table on a CPU: groups of those that are needed, in their order."""
    worlds, cases = needed.shape
    count = worlds * cases
    order = jnp.nonzero(needed.reshape(-1), size=-(-count // group) * group, fill_value=count)[0]
    tables = [x.reshape(count, *x.shape[2:]) if is_own else x for x, is_own in zip(leaves, own, strict=True)]

    def some(place: Array) -> Tree:
        rows = jnp.minimum(place, count - 1)
        parts = [x[rows if is_own else rows % cases] for x, is_own in zip(tables, own, strict=True)]
        return jax.vmap(search)(place < count, parts)

    def work(k: Array, found: Tree) -> Tree:
        place = jax.lax.dynamic_slice(order, (k * group,), (group,))
        return jax.tree.map(lambda all, new: all.at[place].set(new, mode="drop"), found, some(place))

    shapes = jax.eval_shape(some, order[:group])
    nothing = jax.tree.map(lambda x: jnp.zeros((count, *x.shape[1:]), x.dtype), shapes)
    found = jax.lax.fori_loop(0, -(-jnp.sum(needed, dtype=jnp.int32) // group), work, nothing)
    return jax.tree.map(lambda x: x.reshape(worlds, cases, *x.shape[1:]), found)


def spread(size: int, values: Array, batched: bool) -> Array:
    """Values with a leading batch axis; what is not batched may be a plain number."""
    return values if batched else jnp.broadcast_to(values, (size, *jnp.shape(values)))
