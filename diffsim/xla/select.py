"""Selection: branches for a whole batch, rows that need work, the first, least or largest of many values.

Each is in the form that XLA runs fast; one of two arrays is `jnp.where`.

- `first` and `greatest` compare all values with the best one. On a CPU that is several times faster than `argmax`,
  which XLA compares one value after another. Values within rounding of the greatest count as equal to it, and the first
  of them is taken.
- `argmin` takes a tie rule. It is a reduction, so that later operations read the index instead of computing it again.
- `ranked` puts a number in the last bits of a value, so that a plain reduction finds the least value and its number.
  (XLA for CPU runs a reduction of pairs on one thread, one comparison after another.)
- `if_anywhere` and `if_everywhere` take one branch for a whole batch; `rows_where` works on the rows that need it.
- `largest` finds the `count` largest of n values in one of four ways:
  - on a GPU by `top_k` within pieces of 1024, each sorted in one kernel, then by `top_k` of the best of all pieces; a
    sort of all values would take ten kernels, each of which reads and writes all of them;
  - on a CPU, for few values (`extracted`), by `count` passes, each of which takes the maximum of the values below the
    last one, with worlds in vector lanes;
  - on a CPU, for many values in many worlds (`taken_out`), by the same passes with the maximum of each piece stored, so
    that only the piece of the last value is searched again;
  - otherwise by `jax.lax.top_k`, which on a CPU goes through one world after another on one thread.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.xla.barriers import for_cpu, for_gpu, stored
from diffsim.xla.bilinear import unpack
from diffsim.xla.gather import move
from diffsim.xla.loops import cond, scan
from diffsim.xla.reverse_mode import recomputed

Tree = TypeVar("Tree", bound=Any)


def where_tree(condition: Array, yes: Tree, no: Tree) -> Tree:
    """One of two pytrees by a condition (), or row by row of leaves (b, ...) by a condition (b,)."""

    def of_leaf(x: Array, y: Array) -> Array:
        return jnp.where(jnp.expand_dims(condition, range(condition.ndim, x.ndim)), x, y)

    return jax.tree.map(of_leaf, yes, no)


@jax.custom_batching.custom_vmap
def anywhere(flag: Array) -> Array:
    """Whether a flag () is set; under `vmap`, whether it is set in any world: one boolean for the whole batch.

    `lax.cond` of it runs one branch, so that a batch does not pay for what none of its worlds needs. A `lax.cond` of
    one boolean for each world would compute both branches.
    """
    return flag


@anywhere.def_vmap
def _anywhere_in_a_batch(size: int, batched: list[bool], flag: Array) -> tuple[Array, bool]:
    return anywhere(jnp.any(flag)), False


def if_anywhere(flag: Array, compute: Callable[[], Tree], otherwise: Tree, *, spares: bool = False) -> Tree:
    """`compute()` where a flag is set, `otherwise` elsewhere. A CPU computes only if some world has a flag set.

    Args:
      flag: () or one for each row.
      compute: makes arrays with the shapes of `otherwise`.
      otherwise: the values where no flag is set.
      spares: whether `compute` only saves other work. A GPU computes everything, and then leaves it out.
    """
    chosen = lambda: where_tree(flag, compute(), otherwise)  # noqa: E731
    if for_cpu():
        return cond(anywhere(jnp.any(flag)), chosen, lambda: otherwise)
    return otherwise if spares else chosen()


# `rows_where`: rounds in which all rows have their turn; a round is skipped where no row is left
ROUNDS = 8
# `first`, `count`: values above which XLA for CPU is slow at reducing integers
WINDOW = 32
# `first`, `count`: integers up to this are exact in float32
EXACT = 1 << 24


def if_everywhere(flag: Array, quick: Callable[[], Tree], whole: Callable[[], Tree]) -> Tree:
    """`quick()` if a flag () is set in all worlds of a batch, else `whole()`. A GPU always computes `whole()`, which is
    right with any flag.
    """
    return cond(anywhere(~flag), whole, quick) if for_cpu() else whole()


def rows_where(near: Array, compute: Callable[..., Tree], arguments: tuple, otherwise: Tree) -> Tree:
    """`compute(*arguments)` at the rows that are `near` (n,); the other rows may be `otherwise`.

    On a CPU the near rows of a whole batch are dealt out evenly over its worlds, so that all worlds have the same
    number of rows to work on, and vector lanes are full. A round deals an eighth of all rows, and is skipped when none
    are left.

    Args:
      near: which rows need it.
      compute: a function of rows.
      arguments: pytrees whose leaves have n rows.
      otherwise: rows where none are near.
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
                # a place without a row works on the first of its own world
                moved = where_tree(taken, moved, jax.tree.map(lambda x: x[:1], arguments))
                results = jax.tree.map(lambda x: move(x, place, mine, row, taken), compute(*moved))
                return where_tree(mine, results, rows)

            return cond(anywhere(jnp.any(taken)), worked, lambda: rows), None

        numbers = jnp.arange(row.shape[0], dtype=jnp.int32)
        return scan(recomputed(play), otherwise, (numbers, row, taken))[0]

    return if_anywhere(jnp.any(near), in_rounds, otherwise)


# The near rows of all worlds are counted through. The k-th of them has place k mod P of round k // P, where P is the
# number of places of a round, the same number in each world. So a row may be worked on in another world, and `move`
# takes rows and places relative to the first of their own world, which is what one world can say under `vmap`.
def _dealt(near: Array) -> tuple[Array, ...]:
    """The deal of several worlds (worlds, n).

    Returns:
      For each row (worlds, n), if it is near, its round and its place there; for each place (worlds, rounds, places)
      its row, and whether it has one.
    """
    worlds, n = near.shape
    each = -(-n // ROUNDS)
    rounds, places = -(-n // each), worlds * each
    world = jnp.arange(worlds, dtype=jnp.int32)[:, None]
    rank = jnp.cumsum(near.reshape(-1), dtype=jnp.int32).reshape(worlds, n) - 1
    at = jnp.where(near, rank, rounds * places).reshape(-1)
    row = jnp.zeros(rounds * places, jnp.int32).at[at].set(jnp.arange(near.size, dtype=jnp.int32), mode="drop")
    taken = jnp.arange(rounds * places) < jnp.sum(near)
    row, taken = (x.reshape(rounds, worlds, each).swapaxes(0, 1) for x in (row, taken))
    return rank // places, rank % places - world * each, row - world[..., None] * n, taken


# the deal of one world, and of a batch
_deal = jax.custom_batching.custom_vmap(lambda near: tuple(x[0] for x in _dealt(near[None])))
_deal.def_vmap(lambda size, batched, near: (_dealt(near), (True,) * 4))


def first(true: Array) -> Array:
    """The index of the first true value along the last axis; the last index if none is true."""
    size = true.shape[-1]
    number = jnp.arange(size, dtype=_counter_dtype(size))
    return jnp.min(jnp.where(true, number, size - 1), axis=-1).astype(jnp.int32)


def count(true: Array) -> Array:
    """The number of true values of (n,)."""
    return jnp.sum(true, dtype=_counter_dtype(true.size)).astype(jnp.int32)


def _counter_dtype(size: int) -> Any:
    """The dtype for indices of `size` values: XLA for CPU is slow at reducing many integers."""
    return jnp.float32 if for_cpu() and WINDOW < size < EXACT else jnp.int32


def greatest(values: Array, scale: Array | float) -> Array:
    """The index of the greatest value along the last axis (..., n). `scale` bounds the terms that values are sums of.

    Values within rounding of the greatest count as equal, and the first of them is taken.
    """
    best = jnp.max(values, axis=-1, keepdims=True)
    return first(values >= best - rounding(values) * jnp.maximum(scale, jnp.abs(best)))


def one_of(place: Array, choices: Sequence[Tree]) -> Tree:
    """One of a few tuples of arrays (k,), by its index ().

    It is computed as a sum, a reduction whose result is stored. XLA would compile an elementwise choice, and everything
    that it depends on, into each operation that reads it.
    """
    chosen = jnp.arange(len(choices)) == place

    def of_leaves(*leaves: Array) -> Array:
        return jnp.sum(jnp.where(chosen[:, None], jnp.stack(leaves), 0), axis=0)

    return jax.tree.map(of_leaves, *choices)


def rounding(like: Array) -> float:
    """A bound of the rounding error of sums and products of a few numbers up to 1, in the dtype of an array."""
    return 2 * float(jnp.finfo(like.dtype).eps)


# (later, earlier, index of the later) -> whether the later value is less
Precedes = Callable[[Array, Array, Array], Array]
# a value and its index
Indexed = tuple[Array, Array]
# `argmin`: values up to which a CPU compares one after another, which is vectorized over a batch
ONE_BY_ONE = 16


def argmin(values: Array, precedes: Precedes) -> Indexed:
    """(minimum, index) of `values` (n,). A later value replaces an earlier one where it `precedes`. No derivatives.

    It is a reduction for the reason in `one_of`. On a CPU few values are compared one after another, which is
    vectorized over a batch, and the result is stored.
    """

    values = jax.lax.stop_gradient(values)
    if for_cpu() and values.shape[0] <= ONE_BY_ONE:
        least, *others = ((value, jnp.asarray(k, jnp.int32)) for k, value in enumerate(unpack(values)))
        for other in others:
            least = _better(least, other, precedes)
        return stored(least)

    def better(one: Indexed, other: Indexed) -> Indexed:
        # by index: a reduction may take values in any order
        swap = one[1] > other[1]
        (a, i), (b, j) = one, other
        first, second = (jnp.where(swap, b, a), jnp.where(swap, j, i)), (jnp.where(swap, a, b), jnp.where(swap, i, j))
        return _better(first, second, precedes)

    none = (np.array(np.inf, values.dtype), np.int32(-1))
    indexed = (values, jnp.arange(values.shape[0], dtype=jnp.int32))
    value, index = jax.lax.reduce(indexed, none, better, (0,))
    return value, jnp.maximum(index, 0)


def _better(one: Indexed, other: Indexed, precedes: Precedes) -> Indexed:
    """The lesser of two indexed values. `other` comes later."""
    (early, first), (late, second) = one, other
    wins = precedes(late, early, second)
    return jnp.where(wins, late, early), jnp.where(wins, second, first)


INTEGERS = {np.dtype(np.float32): jnp.int32, np.dtype(np.float64): jnp.int64}


def ranked(values: Array, numbers: np.ndarray | int, slack: float, count: int) -> Array:
    """Floats (...) in the order of nonnegative values (...), and equal values in the order of their numbers.

    The number replaces the last bits of the value. Values count as equal if they differ by less than about `slack`, or
    by less than these bits.

    Args:
      values: nonnegative.
      numbers: integers from 0 to `count` - 1.
      slack: differences that do not count.
      count: bounds the numbers.
    """
    kind, bits = INTEGERS[values.dtype], _bits(count)
    # added to all values, this makes the bits that are left at least as coarse as the slack
    start = slack / (float(jnp.finfo(values.dtype).eps) * 2**bits)
    whole = jax.lax.bitcast_convert_type(jax.lax.stop_gradient(values) + start, kind)
    return jax.lax.bitcast_convert_type(whole >> bits << bits | jnp.asarray(numbers, kind), values.dtype)


def number_of(rank: Array, count: int) -> Array:
    """The number in the last bits of a rank (`ranked`)."""
    whole = jax.lax.bitcast_convert_type(rank, INTEGERS[rank.dtype])
    return (whole & (2 ** _bits(count) - 1)).astype(jnp.int32)


def _bits(count: int) -> int:
    """The number of bits of numbers below `count`."""
    return (count - 1).bit_length()


# values of a piece that a GPU sorts in one kernel
PIECE = 1024
# values that a CPU compares at once: the vector lanes of two registers
VECTOR = 16
# `extracted` on a CPU: most values that are asked for; each is one pass over all values
FEW = 40
# `extracted` on a CPU: most values for which such passes take less time than `top_k`
SOME = 512
# `taken_out` on a CPU: values above which it takes less time than `top_k`
SEARCHED_ABOVE = 1024
# `taken_out` on a CPU: most values for which that is so
SEARCHED_MOST = 32768
# `taken_out` on a CPU: fewest worlds for which that is so
WORLDS = 32
# `taken_out`: values of a piece, of up to MANY values
SHORT = 32
# `taken_out`: values up to which pieces are short
MANY = 8192
# `taken_out`: values of a piece, of more than MANY values
LONG = 128
# keys of `extracted`: magnitudes are cut off here, and NaN counts as this much
FAR = 1e30
# keys of `extracted`: what is smaller becomes -NEAR, so that no key with the bits of an index is subnormal
NEAR = 1e-30


def largest(values: Array, count: int) -> tuple[Array, Array]:
    """The `count` largest of values (n,), in falling order, and their indices; equal values in the order of indices.

    It equals `jax.lax.top_k`, which counts NaN as the largest. Where `extracted` is used, values count as equal if they
    differ by less than the last bits that an index takes.
    """
    n = values.shape[0]
    few, many = count <= FEW and count < n <= SOME, SEARCHED_ABOVE < n <= SEARCHED_MOST
    if for_cpu() and (few or many):
        index = (extracted if few else _searched)(values, count)
        return values.at[index].get(mode="promise_in_bounds", wrap_negative_indices=False), index
    pieces = -(-values.shape[0] // PIECE)
    if not for_gpu() or pieces <= 2 or pieces * count > values.shape[0] // 2:
        return jax.lax.top_k(values, count)
    padding = jnp.full((pieces * PIECE - values.shape[0],), -jnp.inf, values.dtype)
    best, index = jax.lax.top_k(jnp.concatenate([values, padding]).reshape(pieces, PIECE), count)
    # pieces follow one another, so that equal values are still in the order of their indices
    index = (index + PIECE * jnp.arange(pieces, dtype=index.dtype)[:, None]).reshape(-1)
    greatest_values, which = jax.lax.top_k(best.reshape(-1), count)
    return greatest_values, index[which]


def extracted(values: Array, count: int) -> Array:
    """Indices (count,) of the largest of values (n,), by keys: values whose last bits are replaced by their indices.

    Keys are distinct, so that the next largest is the maximum of the keys below the last one. In a batch `count` such
    passes take all worlds side by side.
    """
    n, kind = values.shape[0], INTEGERS[values.dtype]
    last = 2 ** (n - 1).bit_length() - 1
    number = jnp.arange(n, dtype=kind)
    values = jax.lax.stop_gradient(values)
    values = jnp.where(jnp.isnan(values), FAR, jnp.clip(values, -FAR, FAR))
    values = jnp.where(jnp.abs(values) < NEAR, -NEAR, values)
    # a negative float falls as its bits grow; with either sign the first of equal values gets the largest key
    place_bits = jnp.where(values < 0, number, last - number)
    keys = jax.lax.bitcast_convert_type(jax.lax.bitcast_convert_type(values, kind) & ~last | place_bits, values.dtype)

    @jax.custom_batching.custom_vmap
    def search(keys: Array) -> Array:
        return jax.lax.top_k(keys, count)[0]

    @search.def_vmap
    def _of_a_batch(size: int, batched: list[bool], keys: Array) -> tuple[Array, bool]:
        # (n, worlds): a maximum over the first axis is a maximum of vectors
        keys = stored(keys.T)

        def next_largest(before: Array, _: None) -> tuple[Array, Array]:
            best = jnp.max(jnp.where(keys < before[None], keys, -jnp.inf), axis=0)
            return best, best

        return scan(next_largest, jnp.full((size,), jnp.inf, keys.dtype), length=count)[1].T, True

    largest_keys = search(keys)
    bits = jax.lax.bitcast_convert_type(largest_keys, kind) & last
    return stored(jnp.where(largest_keys < 0, bits, last - bits).astype(jnp.int32))


def _searched(values: Array, count: int) -> Array:
    """Indices (count,) of the largest of values (n,), by `taken_out` in a batch of enough worlds, else by `top_k`."""

    @jax.custom_batching.custom_vmap
    def search(values: Array) -> Array:
        return jax.lax.top_k(values, count)[1]

    @search.def_vmap
    def _of_a_batch(size: int, batched: list[bool], values: Array) -> tuple[Array, bool]:
        def one(values: Array) -> Array:
            return taken_out(values, count) if size >= WORLDS else jax.lax.top_k(values, count)[1]

        return jax.vmap(one)(values), True

    return search(jax.lax.stop_gradient(values))


def taken_out(values: Array, count: int) -> Array:
    """Indices (count,) of the largest of values (n,) in falling order; equal values in the order of indices.

    Values are in pieces, and the carry holds the maximum of what is left of each piece. The next value v is the largest
    of these maxima. It is in the first piece with this maximum: the first v there or, if the value before was v too,
    the first v after it. Only the maximum of that piece changes.
    """
    size = SHORT if values.shape[0] <= MANY else LONG
    rows = stored(_padded(values, size).reshape(-1, size))
    best = stored(_padded(_halved(jnp.maximum, jnp.max, _ordered(rows)), VECTOR))
    piece, place = (jnp.arange(n, dtype=jnp.int32) for n in (len(best), size))

    def take_next(before: _Taken, _: None) -> tuple[_Taken, Array]:
        best, last, index = before
        value = _halved(jnp.maximum, jnp.max, best)
        first_piece = _halved(jnp.minimum, jnp.min, jnp.where(best == value, piece, len(best)))
        row = _ordered(rows.at[first_piece].get(mode="promise_in_bounds", wrap_negative_indices=False))
        left = (row == value) & ((value < last) | (first_piece * size + place > index))
        at = _halved(jnp.minimum, jnp.min, jnp.where(left, place, size))
        below = (row < value) | ((row == value) & (place > at))
        rest = _halved(jnp.maximum, jnp.max, jnp.where(below, row, -jnp.inf))
        index = first_piece * size + at
        return (jnp.where(piece == first_piece, rest, best), value, index), index

    start = best, jnp.full_like(best[0], jnp.inf), jnp.full_like(piece[0], -1)
    return scan(take_next, start, length=count)[1]


# the largest value left in each piece, the value that was taken out last, and its index
_Taken = tuple[Array, Array, Array]


def _ordered(values: Array) -> Array:
    """The values with NaN as infinity, and -inf as the least finite number: -inf stands for no value."""
    return jnp.where(jnp.isnan(values), jnp.inf, jnp.maximum(values, jnp.finfo(values.dtype).min))


def _padded(values: Array, size: int) -> Array:
    """Values (n,), padded with -inf to a multiple of `size`."""
    return jnp.pad(values, (0, -values.shape[0] % size), constant_values=-jnp.inf)


def _halved(of_two: Callable[..., Array], of_all: Callable[..., Array], values: Array) -> Array:
    """Maximum or minimum along the last axis, half against half, as vectors; XLA would compare one by one."""
    while values.shape[-1] > VECTOR and values.shape[-1] % 2 == 0:
        half = values.shape[-1] // 2
        values = of_two(values[..., :half], values[..., half:])
    return of_all(values, axis=-1)
