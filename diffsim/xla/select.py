"""Selection: branches for a whole batch, rows that need work, and the first or smallest of many values.

Each function has the form that XLA runs fastest. (To choose between two arrays, use `jnp.where`.)

- `greatest` finds the index of the largest value by comparing all values with it, and taking the `first` that is
  equal up to rounding. On a CPU that is several times faster than `argmax`, for which XLA compares one value after
  another.
- `argmin` takes a rule for ties. It is a reduction, whose result XLA stores, so that later operations read the index
  instead of computing it again.
- `ranked` puts an index into the last bits of each value, so that a plain reduction finds the smallest value and its
  index. (XLA for CPU runs a reduction of pairs on one thread, one comparison after another.)
- `if_anywhere` and `if_everywhere` run one branch for a whole batch; `rows_where` works only on the rows that need it.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.xla.barriers import for_cpu, stored
from diffsim.xla.bilinear import unpack
from diffsim.xla.gather import move
from diffsim.xla.loops import cond, scan
from diffsim.xla.reverse_mode import recomputed

Tree = TypeVar("Tree", bound=Any)


def where_tree(condition: Array, yes: Tree, no: Tree) -> Tree:
    """`jnp.where` for pytrees: chosen by a condition (), or for each row of leaves (b, ...) by a condition (b,)."""

    def of_leaf(x: Array, y: Array) -> Array:
        return jnp.where(jnp.expand_dims(condition, range(condition.ndim, x.ndim)), x, y)

    return jax.tree.map(of_leaf, yes, no)


@jax.custom_batching.custom_vmap
def anywhere(flag: Array) -> Array:
    """Whether a flag () is set; under `vmap`, whether it is set in any world, as one boolean for the whole batch.

    With this boolean, `lax.cond` runs only one branch, so that a batch does not pay for what none of its worlds needs.
    With one boolean per world, `lax.cond` would compute both branches.
    """
    return flag


@anywhere.def_vmap
def _anywhere_in_a_batch(size: int, batched: list[bool], flag: Array) -> tuple[Array, bool]:
    return anywhere(jnp.any(flag)), False


def if_anywhere(flag: Array, compute: Callable[[], Tree], otherwise: Tree, *, spares: bool = False) -> Tree:
    """`compute()` where a flag is set, and `otherwise` elsewhere. A CPU computes only if a flag of the batch is set.

    Args:
      flag: () or (n,), one for each row.
      compute: returns arrays with the shapes of `otherwise`.
      otherwise: the values where no flag is set.
      spares: whether the result of `compute` only saves work elsewhere. A GPU does all that work anyway, and then never
        calls `compute`.
    """
    chosen = lambda: where_tree(flag, compute(), otherwise)  # noqa: E731
    if for_cpu():
        return cond(anywhere(jnp.any(flag)), chosen, lambda: otherwise)
    return otherwise if spares else chosen()


# number of rounds that `rows_where` needs if all rows are near; it skips a round if no near rows are left
ROUNDS = 8
# with more values than this, XLA for CPU is slow at reducing integers (`first`, `count`)
MANY_INTEGERS = 32
# float32 represents all integers up to this one exactly
EXACT_INTEGERS = 1 << 24


def if_everywhere(flag: Array, quick: Callable[[], Tree], whole: Callable[[], Tree]) -> Tree:
    """`quick()` if a flag () is set in all worlds of a batch, else `whole()`.

    A GPU always computes `whole()`, which must therefore be right in both cases.
    """
    return cond(anywhere(~flag), whole, quick) if for_cpu() else whole()


def rows_where(near: Array, compute: Callable[..., Tree], arguments: tuple, otherwise: Tree) -> Tree:
    """`compute(*arguments)` for the rows that are `near` (n,), and `otherwise` for other rows.

    On a CPU the near rows of a whole batch are distributed evenly over its worlds, so that all worlds compute the same
    number of rows, and vector lanes are full. Each round computes an eighth of all rows; it is skipped if no near rows
    are left. On a GPU all rows are computed.

    Args:
      near: (n,) bool, the rows that need the computation.
      compute: a function of rows.
      arguments: pytrees whose leaves have n rows.
      otherwise: a pytree like the results, for the rows that are not near.
    """
    if not for_cpu():
        return compute(*arguments)
    near = stored(near)

    def in_rounds() -> Tree:
        turn, place, row, taken = stored(_deal(near))

        def play(rows: Tree, part: tuple[Array, Array, Array]) -> tuple[Tree, None]:
            number, row, taken = part

            def worked() -> Tree:
                mine = near & (turn == number)
                moved = jax.tree.map(lambda x: move(x, row, taken, place, mine), arguments)
                # a place without a row computes the first row of its own world
                moved = where_tree(taken, moved, jax.tree.map(lambda x: x[:1], arguments))
                results = jax.tree.map(lambda x: move(x, place, mine, row, taken), compute(*moved))
                return where_tree(mine, results, rows)

            return cond(anywhere(jnp.any(taken)), worked, lambda: rows), None

        numbers = jnp.arange(row.shape[0], dtype=jnp.int32)
        return scan(recomputed(play), otherwise, (numbers, row, taken))[0]

    return if_anywhere(jnp.any(near), in_rounds, otherwise)


# The near rows of all worlds are numbered in one sequence. Each round has P places, the same number in each world. Row
# number k is computed in round k // P at place k mod P, which may belong to another world. Under `vmap` a world does
# not know its own index. Therefore it counts rows and places from its own first row and place, as `move` expects.
def _dealt(near: Array) -> tuple[Array, ...]:
    """The distribution of the near rows (worlds, n) of several worlds over rounds and places.

    Returns:
      For each row (worlds, n), its round and its place, if it is near. For each place (worlds, rounds, places), its
      row, and whether it has one.
    """
    worlds, n = near.shape
    each = -(-n // ROUNDS)
    rounds = -(-n // each)
    places = worlds * each
    world = jnp.arange(worlds, dtype=jnp.int32)[:, None]
    rank = jnp.cumsum(near.reshape(-1), dtype=jnp.int32).reshape(worlds, n) - 1
    at = jnp.where(near, rank, rounds * places).reshape(-1)
    row = jnp.zeros(rounds * places, jnp.int32).at[at].set(jnp.arange(near.size, dtype=jnp.int32), mode="drop")
    taken = jnp.arange(rounds * places) < jnp.sum(near)
    row, taken = (x.reshape(rounds, worlds, each).swapaxes(0, 1) for x in (row, taken))
    return rank // places, rank % places - world * each, row - world[..., None] * n, taken


# the distribution for a single world, and, by the batch rule, for a batch
_deal = jax.custom_batching.custom_vmap(lambda near: tuple(x[0] for x in _dealt(near[None])))
_deal.def_vmap(lambda size, batched, near: (_dealt(near), (True,) * 4))


def first(true: Array) -> Array:
    """The index of the first True along the last axis; the last index if there is none."""
    size = true.shape[-1]
    number = jnp.arange(size, dtype=_counter_dtype(size))
    return jnp.min(jnp.where(true, number, size - 1), axis=-1).astype(jnp.int32)


def count(true: Array) -> Array:
    """() the number of True in (n,)."""
    return jnp.sum(true, dtype=_counter_dtype(true.size)).astype(jnp.int32)


def _counter_dtype(size: int) -> Any:
    """The fastest dtype for reducing `size` indices: XLA for CPU is slow at reducing many integers."""
    return jnp.float32 if for_cpu() and MANY_INTEGERS < size < EXACT_INTEGERS else jnp.int32


def greatest(values: Array, scale: Array | float) -> Array:
    """The index of the largest value along the last axis (..., n), and of the first one among equal values.

    Values count as equal if they differ by no more than rounding. `scale` is a bound of the terms of which the values
    are sums.
    """
    best = jnp.max(values, axis=-1, keepdims=True)
    return first(values >= best - rounding(values) * jnp.maximum(scale, jnp.abs(best)))


def one_of(place: Array, choices: Sequence[Tree]) -> Tree:
    """The choice with index `place` () among a few tuples of arrays (k,).

    It is computed as a sum, because XLA stores the results of reductions. An elementwise choice, with everything on
    which it depends, would be computed again in each operation that reads it.
    """
    chosen = jnp.arange(len(choices)) == place

    def of_leaves(*leaves: Array) -> Array:
        return jnp.sum(jnp.where(chosen[:, None], jnp.stack(leaves), 0), axis=0)

    return jax.tree.map(of_leaves, *choices)


def rounding(like: Array) -> float:
    """A bound for the rounding error of sums and products of a few values of size 1, in the dtype of an array."""
    return 2 * float(jnp.finfo(like.dtype).eps)


# (later value, earlier value, index of the later one) -> whether the later value counts as smaller
Precedes = Callable[[Array, Array, Array], Array]
# a value and its index
Indexed = tuple[Array, Array]
# up to this number of values, `argmin` compares them one after another on a CPU, with worlds in vector lanes
ONE_BY_ONE = 16


def argmin(values: Array, precedes: Precedes) -> Indexed:
    """(minimum, index) of `values` (n,); a later value replaces an earlier one if it `precedes`. No derivatives.

    It is a reduction, because XLA stores its result (see `one_of`). On a CPU, few values are compared one after
    another, with worlds in vector lanes, and then the result is stored.
    """
    values = jax.lax.stop_gradient(values)
    if for_cpu() and values.shape[0] <= ONE_BY_ONE:
        least, *others = ((value, jnp.asarray(k, jnp.int32)) for k, value in enumerate(unpack(values)))
        for other in others:
            least = _better(least, other, precedes)
        return stored(least)

    def better(one: Indexed, other: Indexed) -> Indexed:
        # a reduction may combine values in any order: put the one with the smaller index first
        a, i = one
        b, j = other
        swap = i > j
        first = jnp.where(swap, b, a), jnp.where(swap, j, i)
        second = jnp.where(swap, a, b), jnp.where(swap, i, j)
        return _better(first, second, precedes)

    none = (np.array(np.inf, values.dtype), np.int32(-1))
    indexed = (values, jnp.arange(values.shape[0], dtype=jnp.int32))
    value, index = jax.lax.reduce(indexed, none, better, (0,))
    return value, jnp.maximum(index, 0)


def _better(one: Indexed, other: Indexed, precedes: Precedes) -> Indexed:
    """The smaller of two indexed values; `other` comes later."""
    early, first = one
    late, second = other
    wins = precedes(late, early, second)
    return jnp.where(wins, late, early), jnp.where(wins, second, first)


# integer types with as many bits as the float types
INTEGERS = {np.dtype(np.float32): jnp.int32, np.dtype(np.float64): jnp.int64}


def ranked(values: Array, numbers: np.ndarray | int, slack: float, count: int) -> Array:
    """Sort keys (...): floats in the order of nonnegative values (...), and for equal values in the order of `numbers`.

    The last bits of each value are replaced by its number. Values count as equal if they differ by less than about
    `slack`, or only in these bits.

    Args:
      values: nonnegative floats.
      numbers: integers from 0 to `count` - 1.
      slack: differences below about this value are ignored.
      count: number of possible numbers.
    """
    kind = INTEGERS[values.dtype]
    bits = _bits(count)
    # an offset to all values, so large that the last bit that is kept is worth at least `slack`
    start = slack / (float(jnp.finfo(values.dtype).eps) * 2**bits)
    whole = jax.lax.bitcast_convert_type(jax.lax.stop_gradient(values) + start, kind)
    return jax.lax.bitcast_convert_type(whole >> bits << bits | jnp.asarray(numbers, kind), values.dtype)


def number_of(rank: Array, count: int) -> Array:
    """The number in the last bits of a sort key of `ranked`."""
    whole = jax.lax.bitcast_convert_type(rank, INTEGERS[rank.dtype])
    return (whole & (2 ** _bits(count) - 1)).astype(jnp.int32)


def _bits(count: int) -> int:
    """The number of bits of integers below `count`."""
    return (count - 1).bit_length()
