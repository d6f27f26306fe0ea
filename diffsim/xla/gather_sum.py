"""Rows gathered by numbers known when tracing, and the transpose: the sum of all that was gathered of each row.

A primitive of JAX: the transpose gathers too, where JAX's own adds rows in kernels of their own on a GPU, and in a loop
on a CPU: of row i what stands at the first place where i was gathered, then at the second, ... as far as most rows go;
the few rows that go further sum the rest. On a CPU what is summed, and the sums, are stored, for XLA would compute them
again for each place where they are read.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from diffsim.xla.barriers import stored
from diffsim.xla.kernels.primitive import run_alone

Array = jax.Array
Ids = tuple[int, ...]

# rounds that are looked at, and how many times as much as rows may be read before they are rather added one by one
MOST_ROUNDS, WASTE = 8, 8


def gather_rows(values: Array, ids: np.ndarray, axis: int = 0) -> Array:
    """Rows along an axis at ids (n,), zero where an id is -1."""
    return gather_rows_p.bind(values, ids=tuple(ids.tolist()), axis=axis)


class Places(NamedTuple):
    """Where each of some rows was gathered: `rounds` (size,) each, -1 where a row was gathered less often.

    `heavy` (h,) are the rows that go on after the rounds, `rest` (h, r) where; -1 as above.
    """

    rounds: tuple[np.ndarray, ...]
    heavy: np.ndarray
    rest: np.ndarray

    @property
    def single(self) -> bool:
        """Whether no row was gathered twice."""
        return len(self.rounds) == 1 and not len(self.heavy)


@functools.cache
def places(ids: Ids, size: int) -> Places | None:
    """The places of `size` rows, with as many rounds as cost least; None where all would cost far more than the sum."""
    there = np.flatnonzero(np.asarray(ids) >= 0)
    order = there[np.argsort(np.asarray(ids)[there], kind="stable")]
    counts = np.bincount(np.asarray(ids)[there], minlength=size)
    most = max(int(np.max(counts, initial=1)), 1)

    def cost(rounds: int) -> int:
        return rounds * size + int(np.count_nonzero(counts > rounds)) * (most - rounds)

    best = min(range(1, min(most, MOST_ROUNDS) + 1), key=cost)
    if cost(best) > WASTE * (len(ids) + size):
        return None
    start = np.cumsum(counts) - counts

    def at(row: np.ndarray, k: np.ndarray | int) -> np.ndarray:
        """Where a row was gathered for the k-th time, or -1."""
        found = np.append(order, -1)[np.minimum(start[row] + k, len(order))]
        return np.where(k < counts[row], found, -1)

    heavy = np.flatnonzero(counts > best)
    rest = at(heavy[:, None], np.arange(best, most)[None])
    return Places(tuple(at(np.arange(size), k) for k in range(best)), heavy, rest)


def sum_gathered(values: Array, ids: Ids, size: int, axis: int) -> Array:
    """What the rows of `values` along an axis, gathered by `ids`, add up to for each of `size` rows."""
    found = places(ids, size)
    if found is None:
        return _added(values, ids, size, axis)
    if found.single:
        return gather_rows(values, found.rounds[0], axis)
    return stored(_sum_at(stored(values), found, axis))


def _sum_at(values: Array, found: Places, axis: int) -> Array:
    """The same, given the places."""
    total = functools.reduce(jnp.add, (gather_rows(values, place, axis) for place in found.rounds))
    if not len(found.heavy):
        return total
    spread = gather_rows(values, found.rest.reshape(-1), axis)
    sums = jnp.sum(spread.reshape(*values.shape[:axis], *found.rest.shape, *values.shape[axis + 1 :]), axis=axis + 1)
    row = np.full(len(found.rounds[0]), -1)
    row[found.heavy] = np.arange(len(found.heavy))
    return total + gather_rows(sums, row, axis)


def _added(values: Array, ids: Ids, size: int, axis: int) -> Array:
    """The same row after row."""
    # what is nowhere is dropped
    where = np.where(np.asarray(ids) >= 0, ids, size)
    empty = jnp.zeros((*values.shape[:axis], size, *values.shape[axis + 1 :]), values.dtype)
    return empty.at[(slice(None),) * axis + (where,)].add(values, mode="drop")


def _plain(values: Array, *, ids: Ids, axis: int) -> Array:
    """The definition."""
    given, rank = np.asarray(ids, np.int32), values.ndim
    flat, rest = np.maximum(given, 0), tuple(i for i in range(rank) if i != axis)
    rows = jax.lax.gather(
        values,
        flat[:, None],
        jax.lax.GatherDimensionNumbers(offset_dims=rest, collapsed_slice_dims=(axis,), start_index_map=(axis,)),
        tuple(1 if i == axis else n for i, n in enumerate(values.shape)),
        indices_are_sorted=bool(np.all(np.diff(flat) >= 0)),
        unique_indices=len(np.unique(flat)) == len(flat),
        mode=jax.lax.GatherScatterMode.PROMISE_IN_BOUNDS,
    )
    if np.all(given >= 0):
        return rows
    there = (given >= 0).reshape([-1 if i == axis else 1 for i in range(rank)])
    return jax.lax.select(jnp.broadcast_to(there, rows.shape), rows, jnp.zeros_like(rows))


def numpy_gather_rows(values: np.ndarray, *, ids: Ids, axis: int) -> np.ndarray:
    """The same in numpy."""
    given = np.asarray(ids)
    there = (given >= 0).reshape([-1 if i == axis else 1 for i in range(values.ndim)])
    return np.where(there, np.take(values, np.maximum(given, 0), axis), np.zeros((), values.dtype))


def _shape(values: ShapedArray, *, ids: Ids, axis: int) -> ShapedArray:
    return values.update(shape=(*values.shape[:axis], len(ids), *values.shape[axis + 1 :]))


def _transpose(cotangent: Array, values: ad.UndefinedPrimal, *, ids: Ids, axis: int) -> list[Array]:
    return [sum_gathered(cotangent, ids, values.aval.shape[axis], axis)]


def _batch(arguments: Sequence[Array], dims: Sequence[int], *, ids: Ids, axis: int) -> tuple[Array, int]:
    """Where the batch axis is, it stays."""
    (values,), (batch,) = arguments, dims
    return gather_rows_p.bind(values, ids=ids, axis=axis + (batch <= axis)), batch


gather_rows_p = Primitive("gather_rows")
run_alone(gather_rows_p, _plain, ("ids", "axis"))
gather_rows_p.def_abstract_eval(_shape)
ad.deflinear2(gather_rows_p, _transpose)
batching.primitive_batchers[gather_rows_p] = _batch
mlir.register_lowering(gather_rows_p, mlir.lower_fun(_plain, multiple_results=False))
