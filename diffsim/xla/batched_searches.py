"""Searches that only some worlds of a batch need: `in_groups` computes them for groups of these worlds.

`short_scan` and `one_by_one` evaluate a function for a few parts of one world.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.core
import jax.numpy as jnp
from jax import Array
from jax.ad_checkpoint import checkpoint_name

from diffsim.xla.barriers import for_cpu, for_gpu
from diffsim.xla.batched_loops import Tree, spread, with_batch_rule
from diffsim.xla.loops import fori_loop, scan
from diffsim.xla.reverse_mode import SEARCH_RESULT

# number of worlds in a group of `in_groups`: these fill the vector lanes of a CPU, and in a larger group more worlds
# would wait for the slowest one
GROUP = 16
# `in_groups` does not split computations that store up to this many values (64 MiB in float32)
LARGEST_WHOLE = 1 << 24
# number of values in each part of a larger computation; they fit into a cache (1 MiB in float32)
PART_VALUES = 1 << 18
# (needed (), arguments) -> results of one world
Search = Callable[[Array, Any], Tree]
# number of worlds -> how many of them are computed at once; None for all
Grouping = Callable[[int], int | None]


def in_groups(
    compute: Search[Tree],
    needed: Array | bool,
    arguments: Any,
    *,
    at_once: int = GROUP,
    numbers: int | None = None,
) -> Tree:
    """The results of `compute(needed, arguments)` if `needed`; otherwise any finite values. No derivatives.

    On a CPU, the worlds of a batch that need the results are computed in groups, one group after another. The other
    worlds cost nothing, and loops in one group do not wait for another group. On other devices all worlds are computed
    at once. Reverse mode stores the results.

    Args:
      compute: the function for one world; it may not close over traced values (see `Explicit`). The last group is
        filled with worlds whose `needed` is False.
      needed: () whether the results are needed; a Python bool if this is known when tracing.
      arguments: pytree of arrays.
      at_once: worlds per group.
      numbers: number of values that the computation of one world stores. If given, a batch is split only if it is too
        large for memory, into parts that fit into a cache.
    """
    if isinstance(needed, bool) and numbers is None:
        return checkpoint_name(compute(jnp.asarray(needed), arguments), SEARCH_RESULT)

    def group(count: int) -> int | None:
        if numbers is None:
            return min(at_once, count)
        return None if count * numbers <= LARGEST_WHOLE else max(GROUP, PART_VALUES // numbers)

    return checkpoint_name(_flattened(compute, jnp.asarray(needed), arguments, group), SEARCH_RESULT)


def fold_wanted(wanted: Array, group: int, work: Callable[[Array, Tree], Tree], start: Tree) -> Tree:
    """The last carry of `work(indices (group,), carry)`, called for one group of indices after another.

    The indices are those at which `wanted` (n,) is True, in their order; the last group is padded with n.
    """
    count = len(wanted)
    order = jnp.nonzero(wanted, size=-(-count // group) * group, fill_value=count)[0].astype(jnp.int32)
    groups = -(-jnp.sum(wanted, dtype=jnp.int32) // group)

    def one_group(k: Array, carry: Tree) -> Tree:
        return work(jax.lax.dynamic_slice(order, (k * group,), (group,)), carry)

    return fori_loop(0, groups, one_group, start)


class _LeafAxes(NamedTuple):
    """Which leading axes a leaf has: one for m worlds, and after it one for n cases in each world."""

    worlds: bool = False
    cases: bool = False

    def taken(self, leaf: Array, row: Array, cases: int) -> Array:
        """The values at rows (k,) of the flattened (worlds, cases) table; the leaf itself if it has neither axis."""
        if self.worlds and self.cases:
            return leaf.reshape(-1, *leaf.shape[2:])[row]
        return leaf[row // cases] if self.worlds else leaf[row % cases] if self.cases else leaf


# the search of one world, as a function of the leaves of its arguments
LeafSearch = Callable[[Array, list[Array]], Tree]


# Groups are formed from the whole batch, even if it comes from nested `vmap`s, such as one over the pairs of geoms in a
# world and one over worlds. The batch rule of the innermost `vmap` calls its axis "cases", and searches the table
# (1, n) of one world. That search has a batch rule of its own, by which each further `vmap` multiplies the number of
# worlds. A leaf that all cases or all worlds share gets no axis for them, so that a mesh is not copied for each pair.
def _flattened(search: Search[Tree], needed: Array, arguments: Any, group: Grouping) -> Tree:
    """The search of one world, whose batch rules flatten nested batches to one table."""
    leaves, structure = jax.tree.flatten(arguments)

    # jitted, so that the batch rules below trace it once
    @jax.jit
    def of_leaves(needed: Array, leaves: list[Array]) -> Tree:
        return search(needed, jax.tree.unflatten(structure, leaves))

    def of_cases(size: int, batched: Any, needed: Array, leaves: list[Array]) -> Tree:
        table = _table(of_leaves, [_LeafAxes(cases=is_batched) for is_batched in batched[1]], group)
        return jax.tree.map(lambda x: x[0], table(spread(size, needed, batched[0])[None], leaves))

    return with_batch_rule(lambda needed, leaves: of_leaves(needed, leaves), of_cases)(needed, leaves)


def _table(search: LeafSearch[Tree], axes: list[_LeafAxes], group: Grouping) -> LeafSearch[Tree]:
    """The search of m worlds with n cases each, as a function of `needed` (m, n) and of leaves with these `axes`.

    Leaves that worlds or cases share are not copied for each of them.
    """

    def table(needed: Array, leaves: list[Array]) -> Tree:
        at_once = group(needed.size)
        if not for_cpu() or at_once is None:
            of_cases = jax.vmap(search, (0, [0 if axis.cases else None for axis in axes]))
            return jax.vmap(of_cases, (0, [0 if axis.worlds else None for axis in axes]))(needed, leaves)
        return _group_by_group(search, axes, needed, leaves, at_once)

    def of_more_worlds(size: int, batched: Any, needed: Array, leaves: list[Array]) -> Tree:
        worlds = needed.shape[-2]

        def of_worlds(leaf: Array, axis: _LeafAxes, is_batched: bool) -> Array:
            if not (axis.worlds or is_batched):
                return leaf
            whole = spread(size, leaf, is_batched)
            if not axis.worlds:
                whole = jnp.broadcast_to(whole[:, None], (size, worlds, *whole.shape[1:]))
            return whole.reshape(size * worlds, *whole.shape[2:])

        more = [of_worlds(*leaf) for leaf in zip(leaves, axes, batched[1], strict=True)]
        now = [axis._replace(worlds=axis.worlds or by) for axis, by in zip(axes, batched[1], strict=True)]
        results = _table(search, now, group)(of_worlds(needed, _LeafAxes(True, True), batched[0]), more)
        return jax.tree.map(lambda x: x.reshape(size, worlds, *x.shape[1:]), results)

    return with_batch_rule(table, of_more_worlds)


def _group_by_group(
    search: LeafSearch[Tree], axes: list[_LeafAxes], needed: Array, leaves: list[Array], group: int
) -> Tree:
    """The results (m, n, ...). Those that are needed are computed in groups, in their order; the others are zero."""
    worlds, cases = needed.shape
    count = worlds * cases

    def some(place: Array) -> Tree:
        row = jnp.minimum(place, count - 1)
        parts = [axis.taken(leaf, row, cases) for leaf, axis in zip(leaves, axes, strict=True)]
        return jax.vmap(search, (0, [0 if any(axis) else None for axis in axes]))(place < count, parts)

    def work(place: Array, results: Tree) -> Tree:
        return jax.tree.map(lambda all, new: all.at[place].set(new, mode="drop"), results, some(place))

    shapes = jax.eval_shape(some, jax.ShapeDtypeStruct((group,), jnp.int32))
    zeros = jax.tree.map(lambda x: jnp.zeros((count, *x.shape[1:]), x.dtype), shapes)
    results = fold_wanted(needed.reshape(-1), group, work, zeros)
    return jax.tree.map(lambda x: x.reshape(worlds, cases, *x.shape[1:]), results)


def short_scan(step: Callable[..., Any], start: Any, parts: Any) -> tuple[Any, Any]:
    """The results of `jax.lax.scan` over a few parts; on a GPU the loop is written out."""
    return scan(step, start, parts, unroll=for_gpu())


def one_by_one(function: Callable[[Any], Any], parts: Any) -> Any:
    """The results of a function for each of a few parts, along their first axis.

    On a CPU it uses a scan, because under `vmap` XLA would compute values that the parts share again for each part. On
    a GPU it uses `vmap`, because a scan would launch separate kernels for each part.
    """
    return jax.vmap(function)(parts) if for_gpu() else scan(lambda _, part: (None, function(part)), None, parts)[1]
