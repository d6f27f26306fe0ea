"""Gathers of rows at indices that are known when JAX traces, and their transposes.

`pick` replaces indexing. It is a slice if the indices are evenly spaced, and otherwise a gather without checks. Plain
indexing would compare, shift and clamp the indices in every step, and gather where a slice would do.

`gather_rows` is a primitive of its own because of its transpose. The transpose of JAX's gather is a scatter-add, which
adds rows in separate kernels on a GPU, and in a loop on a CPU. The transpose here consists of gathers: row i is the
value at the first position to which i was gathered, plus the value at the second one, and so on. After a few such
rounds, the values that remain of rows that were gathered more often are summed separately.

`move` permutes rows. The inverse permutation is another argument, by which the transpose moves the rows back. Under
`vmap`, rows can move between the worlds of a batch.
"""

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from diffsim.xla.barriers import for_cpu, for_gpu, for_tpu, stored
from diffsim.xla.bilinear import stored_in_order
from diffsim.xla.compiled import define_eager
from diffsim.xla.loops import scan, varying
from diffsim.xla.numpy_rules import RULES

Tree = TypeVar("Tree")


def pick(values: Array, ids: np.ndarray | Array) -> Array:
    """values[ids], of shape ids.shape + values.shape[1:]; negative static ids count from the end.

    Ids that are known only at run time are clamped, as in plain indexing.

    Raises:
      IndexError: a static id is out of range.
    """
    if isinstance(ids, Array):
        return by_masks(values, jnp.where(ids < 0, ids + len(values), ids)) if _masks_pay(values, ids) else values[ids]
    size = values.shape[0]
    flat = np.asarray(ids).reshape(-1)
    if np.any((flat < -size) | (flat >= size)):
        raise IndexError(f"ids go from {flat.min()} to {flat.max()}, but there are {size} rows")
    flat = np.where(flat < 0, flat + size, flat)
    # ids that increase in equal steps are a slice
    steps = np.diff(flat)
    step = 1 if not len(steps) else max(int(steps[0]), 0) if np.all(steps == steps[0]) else 0
    if not len(flat) or (step and len(flat) == size):
        rows = values[: len(flat)]
    elif step:
        rows = jax.lax.slice_in_dim(values, flat[0], flat[-1] + 1, step)
    else:
        rows = gather_rows(values, flat)
    return rows if np.ndim(ids) == 1 else rows.reshape(*np.shape(ids), *values.shape[1:])


def pick_some(values: Array, ids: np.ndarray, default: np.ndarray | float = 0) -> Array:
    """values[ids], as `pick`, with the constant row `default` where an id is -1."""
    if np.all(ids >= 0):
        return pick(values, ids)
    if ids.ndim > 1:
        return pick_some(values, ids.reshape(-1), default).reshape(*ids.shape, *values.shape[1:])
    missing = (ids < 0).reshape(-1, *[1] * (values.ndim - 1))
    constant = np.where(missing, default, 0)
    if not values.shape[0]:
        return jnp.broadcast_to(jnp.asarray(constant, values.dtype), (len(ids), *values.shape[1:]))
    rows = gather_rows(values, ids)
    return rows + jnp.asarray(constant, values.dtype) if np.any(constant) else rows


def pick_existing(values: Array, ids: np.ndarray | Array) -> Array:
    """values[ids], as `pick`, but ids that are known only at run time must be valid; this is not checked."""
    if isinstance(ids, Array):
        if _masks_pay(values, ids):
            return by_masks(values, ids)
        return values.at[ids].get(mode="promise_in_bounds", wrap_negative_indices=False)
    return pick(values, ids)


def rows_at(values: Array, ids: np.ndarray | Array, axis: int = 0) -> Array:
    """values[ids], or values[:, ids] for axis 1, by plain indexing; on a TPU by `pick` where that is faster."""
    if isinstance(values, Array) and for_tpu():
        return jnp.moveaxis(pick(jnp.moveaxis(values, axis, 0), ids), range(ids.ndim), range(axis, axis + ids.ndim))
    return values[(slice(None),) * axis + (ids,)]


def entries_at(table: Array, row: Array, column: Array) -> Array:
    """table[row, column], by plain indexing; on a TPU by `pick` where that is faster."""
    if not for_tpu():
        return table[row, column]
    size, width = table.shape[:2]
    row = jnp.where(row < 0, row + size, row)
    column = jnp.where(column < 0, column + width, column)
    flat = jnp.clip(row, 0, size - 1) * width + jnp.clip(column, 0, width - 1)
    return pick(table.reshape(size * width, *table.shape[2:]), flat)


# the largest number of values of a world that a TPU masks and adds to pick rows; for more, a gather is cheaper
MOST_COMPARED = 1 << 16


def _masks_pay(values: Array, ids: Array) -> bool:
    """Whether rows of small tables are picked by masks: on a TPU, at ids that are known only at run time."""
    return for_tpu() and 0 < values.size * max(1, ids.size) <= MOST_COMPARED


def by_masks(values: Array, ids: Array) -> Array:
    """values[ids] (*ids.shape, ...), each row by a sum in which all other rows are zero; ids are clamped to the rows.

    A TPU keeps worlds in the lanes of its tiles. A gather would put each row into tiles of its own, while a sum over a
    small axis, and its derivative, stay in the lanes.
    """
    size = len(values)
    tail = [1] * (values.ndim - 1)
    number = jnp.arange(size, dtype=ids.dtype).reshape(*[1] * ids.ndim, size, *tail)
    chosen = jnp.clip(ids, 0, size - 1).reshape(*ids.shape, 1, *tail) == number
    values = values.reshape(*[1] * ids.ndim, *values.shape)
    if values.dtype == bool:
        return jnp.any(chosen & values, axis=ids.ndim)
    return jnp.sum(jnp.where(chosen, values, jnp.zeros((), values.dtype)), axis=ids.ndim, dtype=values.dtype)


def pick_columns(values: Array, ids: Array) -> Array:
    """(k, ..., n) the rows of values (size, ...) at ids (k, n), as `pick_existing`, with n the last axis in memory."""
    return stored_in_order(jnp.moveaxis(pick_existing(values, ids), 1, -1))


def pick_static(values: Array | np.ndarray, ids: Array | np.ndarray) -> Array | np.ndarray:
    """values[ids], as `pick_existing`; a numpy array if both arguments are numpy arrays."""
    if isinstance(values, Array) or isinstance(ids, Array):
        return pick_existing(jnp.asarray(values), ids)
    return values[ids]


def pick_computed(values: Tree, ids: np.ndarray, compute: Callable[[], Tree]) -> Tree:
    """The rows `ids` (n,) of arrays; `compute()` computes only these rows.

    On a CPU, `compute` is called. If nothing reads the other rows, XLA then does not compute the arrays at all.
    """
    count = len(jax.tree.leaves(values)[0])
    if for_cpu() and len(ids) < count:
        return compute()
    return jax.tree.map(lambda x: pick(x, ids), values)


def on_rows(function: Callable[..., tuple], tables: list[tuple]) -> list[tuple]:
    """The results of an elementwise function of rows, for each of a few tables.

    A table is a tuple of columns (n, ...), numpy or JAX arrays. On a CPU the function is called for each table, so that
    XLA leaves out results that nothing reads. On other devices it is called once for the rows of all tables, which
    makes one kernel.
    """
    if for_cpu():
        return [function(*table) for table in tables]
    columns = list(zip(*tables, strict=True))
    libraries = [jnp if any(isinstance(part, jax.Array) for part in column) else np for column in columns]
    results = function(*(lib.concatenate(column) for lib, column in zip(libraries, columns, strict=True)))
    ends = np.cumsum([len(table[0]) for table in tables])[:-1]
    return list(zip(*(jnp.split(column, ends) for column in results), strict=True))


def place(size: int, ids: np.ndarray, values: Array) -> Array:
    """(size, ...) with `values` (n, ...) at the distinct indices `ids` (n,), and zeros elsewhere; done by a gather."""
    row = np.full(size, -1)
    row[ids] = np.arange(len(ids))
    return pick_some(values, row)


def add_rows(values: Array, row: Array, size: int) -> Array:
    """(size, ...) sums of `values` (n, ...), each added to the row `row` (n,); rows beyond `size` are left out.

    On a GPU it is a product with a 0/1 matrix, because a scatter by many threads would add in a random order, and its
    result would not be reproducible.
    """
    if not for_gpu():
        return jnp.zeros((size, *values.shape[1:]), values.dtype).at[row].add(values, mode="drop")
    one_hot = (jnp.arange(size)[:, None] == row[None]).astype(values.dtype)
    sums = jnp.matmul(one_hot, values.reshape(len(values), -1), precision=jax.lax.Precision.HIGHEST)
    return sums.reshape(size, *values.shape[1:])


# up to this number of columns d, `add_products` computes all products at once on a CPU
AT_ONCE_COLUMNS = 8
# number of values of larger products that `add_products` computes at once on a CPU: 24 KiB in float32, which fit into
# the L1 cache
CHUNK = 6144


def add_products(left: Array, right: Array, row: Array, size: int) -> Array:
    """(size, d, d) sums of products left_i^T right_i of `left` and `right` (n, k, d), each added to row `row` (n,).

    Rows beyond `size` are left out.
    """
    n, _, d = left.shape
    if not for_cpu() or d <= AT_ONCE_COLUMNS:
        listed = (jnp.swapaxes(stored_in_order(x), 0, 1) for x in (left, right))
        products = functools.reduce(operator.add, (x[:, :, None] * y[:, None] for x, y in zip(*listed, strict=True)))
        return add_rows(stored(products), row, size)
    each = max(1, CHUNK // (d * d))
    rounds = -(-n // each)

    def chunks(x: Array, fill: int = 0) -> Array:
        padded = jnp.pad(x, [(0, rounds * each - n)] + [(0, 0)] * (x.ndim - 1), constant_values=fill)
        return stored_in_order(padded.reshape(rounds, each, *x.shape[1:]))

    def add(sums: Array, part: tuple[Array, Array, Array]) -> tuple[Array, None]:
        left, right, row = part
        products = jnp.matmul(jnp.swapaxes(left, 1, 2), right, precision=jax.lax.Precision.HIGHEST)
        return sums.at[row].add(products, mode="drop"), None

    return scan(add, jnp.zeros((size, d, d), left.dtype), (chunks(left), chunks(right), chunks(row, size)))[0]


# indices as a hashable parameter of a primitive
Ids = tuple[int, ...]

# the largest number of rounds of `sum_gathered`; each round gathers one position of each row
MOST_ROUNDS = 8
# if gathers would read more rows than this number times the rows that exist, `sum_gathered` uses a scatter-add
WASTE = 8
# the largest number of slices that a TPU concatenates; more slices would take too long to compile
MOST_SLICES = 512


def gather_rows(values: Array, ids: np.ndarray, axis: int = 0) -> Array:
    """The rows of `values` along an axis at `ids` (n,); zero where an id is -1."""
    return gather_rows_p.bind(values, ids=tuple(ids.tolist()), axis=axis)


class Places(NamedTuple):
    """The positions at which each of `size` rows was gathered.

    Attributes:
      rounds: round k has the k-th position (size,) of each row, -1 for a row that was gathered less often.
      heavy: (h,) the rows that were gathered more often than there are rounds.
      rest: (h, r) the remaining positions of these rows, padded with -1.
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
    """The positions of `size` rows in `ids`, with the cheapest number of rounds; None if a scatter-add is cheaper."""
    exists = np.flatnonzero(np.asarray(ids) >= 0)
    order = exists[np.argsort(np.asarray(ids)[exists], kind="stable")]
    counts = np.bincount(np.asarray(ids)[exists], minlength=size)
    most = max(int(np.max(counts, initial=1)), 1)

    def cost(rounds: int) -> int:
        return rounds * size + int(np.count_nonzero(counts > rounds)) * (most - rounds)

    best = min(range(1, min(most, MOST_ROUNDS) + 1), key=cost)
    if cost(best) > WASTE * (len(ids) + size):
        return None
    start = np.cumsum(counts) - counts

    def at(row: np.ndarray, k: np.ndarray | int) -> np.ndarray:
        """The k-th position of a row, or -1."""
        row_ids = np.append(order, -1)[np.minimum(start[row] + k, len(order))]
        return np.where(k < counts[row], row_ids, -1)

    heavy = np.flatnonzero(counts > best)
    rest = at(heavy[:, None], np.arange(best, most)[None])
    return Places(rounds=tuple(at(np.arange(size), k) for k in range(best)), heavy=heavy, rest=rest)


def sum_gathered(values: Array, ids: Ids, size: int, axis: int) -> Array:
    """The transpose of `gather_rows`: for each of `size` rows the sum of the `values` that were gathered from it."""
    lists = places(ids, size)
    if lists is None:
        # values with id -1 were not gathered from any row, and are dropped
        where = np.where(np.asarray(ids) >= 0, ids, size)
        empty = jnp.zeros((*values.shape[:axis], size, *values.shape[axis + 1 :]), values.dtype)
        return empty.at[(slice(None),) * axis + (where,)].add(values, mode="drop")
    if lists.single:
        return gather_rows(values, lists.rounds[0], axis)
    values = stored(values)
    total = functools.reduce(jnp.add, (gather_rows(values, place, axis) for place in lists.rounds))
    if len(lists.heavy):
        rest = gather_rows(values, lists.rest.reshape(-1), axis)
        shape = *values.shape[:axis], *lists.rest.shape, *values.shape[axis + 1 :]
        row = np.full(size, -1)
        row[lists.heavy] = np.arange(len(lists.heavy))
        total = total + gather_rows(jnp.sum(rest.reshape(shape), axis=axis + 1), row, axis)
    return stored(total)


def _gather_rows(values: Array, *, ids: Ids, axis: int) -> Array:
    """The definition of `gather_rows`."""
    index = np.asarray(ids, np.int32)
    rank = values.ndim
    flat = np.maximum(index, 0)
    rest = tuple(i for i in range(rank) if i != axis)
    rows = jax.lax.gather(
        values,
        flat[:, None],
        jax.lax.GatherDimensionNumbers(offset_dims=rest, collapsed_slice_dims=(axis,), start_index_map=(axis,)),
        tuple(1 if i == axis else n for i, n in enumerate(values.shape)),
        indices_are_sorted=bool(np.all(np.diff(flat) >= 0)),
        unique_indices=len(np.unique(flat)) == len(flat),
        mode=jax.lax.GatherScatterMode.PROMISE_IN_BOUNDS,
    )
    if np.all(index >= 0):
        return rows
    exists = (index >= 0).reshape([-1 if i == axis else 1 for i in range(rank)])
    return jax.lax.select(jnp.broadcast_to(exists, rows.shape), rows, jnp.zeros_like(rows))


def _gather_by_slices(values: Array, *, ids: Ids, axis: int) -> Array:
    """`gather_rows` as a concatenation of slices, one for each run of ids that follow one another.

    A TPU keeps worlds in the lanes of its tiles, where a slice only moves data. A gather would first put each row into
    tiles of its own, which for a 3 x 3 matrix take 57 times as much memory.
    """
    size = values.shape[axis]

    def part(start: int, count: int) -> Array:
        if start >= 0:
            return jax.lax.slice_in_dim(values, start, start + count, axis=axis)
        return jnp.zeros((*values.shape[:axis], count, *values.shape[axis + 1 :]), values.dtype)

    runs = runs_of(ids)
    if size == 0 or not 0 < len(runs) <= MOST_SLICES:
        return _gather_rows(values, ids=ids, axis=axis)
    return jax.lax.concatenate([part(*run) for run in runs], axis)


def runs_of(ids: Ids) -> list[tuple[int, int]]:
    """The first id and the length of each run of ids that follow one another, or that are all -1."""
    runs: list[tuple[int, int]] = []
    for each in ids:
        start, count = runs[-1] if runs else (-2, 0)
        if count and each == (start + count if start >= 0 else -1):
            runs[-1] = start, count + 1
        else:
            runs.append((each, 1))
    return runs


def _gather_in_numpy(values: np.ndarray, *, ids: Ids, axis: int) -> np.ndarray:
    """`gather_rows` in numpy."""
    index = np.asarray(ids)
    exists = (index >= 0).reshape([-1 if i == axis else 1 for i in range(values.ndim)])
    return np.where(exists, np.take(values, np.maximum(index, 0), axis), np.zeros((), values.dtype))


gather_rows_p = Primitive("gather_rows")
RULES["gather_rows"] = _gather_in_numpy
define_eager(gather_rows_p, _gather_rows, ("ids", "axis"))
gather_rows_p.def_abstract_eval(
    lambda values, *, ids, axis: values.update(shape=(*values.shape[:axis], len(ids), *values.shape[axis + 1 :]))
)
ad.deflinear2(
    gather_rows_p,
    lambda cotangent, values, *, ids, axis: [sum_gathered(cotangent, ids, values.aval.shape[axis], axis)],
)
# the batch axis stays where it is
batching.primitive_batchers[gather_rows_p] = lambda values, dims, *, ids, axis: (
    gather_rows_p.bind(*values, ids=ids, axis=axis + (dims[0] <= axis)),
    dims[0],
)
mlir.register_lowering(gather_rows_p, mlir.lower_fun(_gather_rows, multiple_results=False))
mlir.register_lowering(gather_rows_p, mlir.lower_fun(_gather_by_slices, multiple_results=False), platform="tpu")


def move(values: Array, source: Array, taken: Array, target: Array, exists: Array) -> Array:
    """(m, ...) the rows of `values` (n, ...) at `source` (m,) where `taken` (m,) is True, and zero elsewhere.

    `target` (n,) is the inverse, which the transpose uses: the position of each row in the result, where `exists` (n,)
    is True. In a batch, `source` and `target` count from the first row and position of the same world, and may point
    into other worlds.
    """
    return move_p.bind(*varying((values, source, taken, target, exists)))


def _moved(values: Array, source: Array, taken: Array, target: Array, exists: Array) -> Array:
    """The definition of `move`."""
    rows = values.at[source].get(mode="promise_in_bounds", wrap_negative_indices=False)
    return jnp.where(taken.reshape(-1, *[1] * (rows.ndim - 1)), rows, jnp.zeros((), rows.dtype))


def _moved_in_a_batch(arguments: Sequence[Array], dims: Sequence[int | None]) -> tuple[Array, int]:
    """The batch rule of `move`: all worlds are one world, row after row."""
    size = next(x.shape[dim] for x, dim in zip(arguments, dims, strict=True) if dim is not None)
    values, source, taken, target, exists = (
        jnp.broadcast_to(x, (size, *x.shape)) if dim is None else jnp.moveaxis(x, dim, 0)
        for x, dim in zip(arguments, dims, strict=True)
    )
    n = values.shape[1]
    m = source.shape[1]
    world = jnp.arange(size, dtype=jnp.int32)[:, None]
    places = (x.reshape(-1) for x in (source + world * n, taken, target + world * m, exists))
    return move(values.reshape(size * n, *values.shape[2:]), *places).reshape(size, m, *values.shape[2:]), 0


move_p = Primitive("move_rows")
define_eager(move_p, _moved)
move_p.def_abstract_eval(lambda values, source, *_: values.update(shape=(*source.shape, *values.shape[1:])))
ad.defjvp(move_p, lambda change, _, *places: move(change, *places), *[None] * 4)
ad.primitive_transposes[move_p] = lambda cotangent, _, source, taken, target, exists: [
    None if type(cotangent) is ad.Zero else move(cotangent, target, exists, source, taken),
    *[None] * 4,
]
batching.primitive_batchers[move_p] = _moved_in_a_batch
mlir.register_lowering(move_p, mlir.lower_fun(_moved, multiple_results=False))


class Packed(NamedTuple):
    """All leaves of a batch of trees, side by side in `rows` (size, k); `like` is the tree of their shapes."""

    rows: Array
    like: Any

    def unpack(self, rows: Array) -> Any:
        """The batch of trees of some rows."""
        leaves, tree = jax.tree.flatten(self.like)
        ends = np.cumsum([math.prod(leaf.shape[1:]) for leaf in leaves])
        parts = zip(leaves, jnp.split(rows, ends[:-1], axis=1), strict=True)
        return jax.tree.unflatten(tree, [x.reshape(len(x), *leaf.shape[1:]).astype(leaf.dtype) for leaf, x in parts])


def packed(tree: Any) -> Packed:
    """A batch of trees as rows of floats. Booleans and integers become floats; integers must be small."""
    leaves = jax.tree.leaves(tree)
    kind = jnp.result_type(*(x for x in leaves if jnp.issubdtype(x.dtype, jnp.floating)))
    rows = jnp.concatenate([x.reshape(len(x), math.prod(x.shape[1:])).astype(kind) for x in leaves], axis=1)
    return Packed(rows, jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), tree))
