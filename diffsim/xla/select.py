"""Choices: one of two arrays, the first true place, the least, the largest few; each in the form that XLA runs fast.

- `where` is one operation. `jnp.where` is a function of its own in each program: reverse mode traces, differentiates
  and splits each of its calls, which took a tenth of the time of tracing a gradient.
- `first` and `greatest` compare all values with the best one. On CPUs that is several times quicker than `argmax`,
  which XLA compares one by one. Values within rounding of the greatest count as equal to it: the first of them counts.
- `argmin` takes a tie rule; it is a reduction, so that what follows reads the index instead of computing it again.
- `ranked` puts a number in the last bits of a value, so that a plain reduction finds the least value and its number. A
  reduction of pairs XLA for CPU runs on one thread, one comparison after another.
- `largest` finds the few largest of many values. A GPU sorts a piece within one kernel, and then what is left of all
  pieces; a sort of everything would take ten kernels, each through all of the memory. A CPU sorts nothing to find few:
  it takes them out one after another, for many worlds at once. Of a few values each is found by a plain reduction; of
  many, pieces know their largest, and only the piece that has the next one is looked through again. For few worlds
  XLA's search is faster, which goes through all values of one world after another on one thread.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.xla.barriers import for_cpu, for_gpu, stored
from diffsim.xla.bilinear import unpack

Array = jax.Array


def where(condition: Array | np.ndarray, x: Array | float, y: Array | float) -> Array:
    """jnp.where(condition, x, y): x where the condition holds, else y."""
    if _is_weak(x) and _is_weak(y):
        return jnp.where(condition, x, y)
    dtype = jnp.result_type(x, y)
    shape = jnp.broadcast_shapes(*(jnp.shape(part) for part in (condition, x, y)))
    return jax.lax.select(jnp.broadcast_to(condition, shape), _spread(x, shape, dtype), _spread(y, shape, dtype))


def _is_weak(value: Array | float) -> bool:
    """Whether a value takes its type from what it meets, as the numbers of Python do."""
    return isinstance(value, (bool, int, float)) or (isinstance(value, jax.Array) and jax.typeof(value).weak_type)


def _spread(value: Array | float, shape: tuple[int, ...], dtype: jnp.dtype) -> Array:
    if isinstance(value, (bool, int, float)):
        return jax.lax.full(shape, value, dtype)
    return jnp.broadcast_to(jnp.asarray(value, dtype), shape)


# how many numbers XLA for CPU reduces at once, and how many float32 tells apart
WINDOW, EXACT = 32, 1 << 24
Tree = TypeVar("Tree", bound=Any)


def first(true: Array) -> Array:
    """The first place along the last axis that is true; the last place if none is."""
    size = true.shape[-1]
    number = jnp.arange(size, dtype=_kind(size))
    return jnp.min(where(true, number, size - 1), axis=-1).astype(jnp.int32)


def count(true: Array) -> Array:
    """How many of (n,) are true."""
    return jnp.sum(true, dtype=_kind(true.size)).astype(jnp.int32)


def _kind(size: int) -> Any:
    """What so many are numbered by: XLA for CPU has a slow way of reducing many numbers, unless they are floats."""
    return jnp.float32 if for_cpu() and WINDOW < size < EXACT else jnp.int32


def greatest(values: Array, scale: Array | float) -> Array:
    """The place of the greatest along the last axis of values (..., n) that were summed of terms up to a `scale`."""
    best = jnp.max(values, axis=-1, keepdims=True)
    return first(values >= best - rounding(values) * jnp.maximum(scale, jnp.abs(best)))


def one_of(place: Array, choices: Sequence[Tree]) -> Tree:
    """One of a few tuples of arrays (k,), by its place ().

    A sum, for what follows finds it computed: XLA would compile a choice, and all that it depends on, into each of its
    uses.
    """
    chosen = jnp.arange(len(choices)) == place

    def of_leaves(*leaves: Array) -> Array:
        return jnp.sum(where(chosen[:, None], jnp.stack(leaves), 0), axis=0)

    return jax.tree.map(of_leaves, *choices)


def rounding(like: Array) -> float:
    """What rounding may add to sums and products of a few numbers up to 1, in the dtype of an array."""
    return 2 * float(jnp.finfo(like.dtype).eps)


# whether a value is less than one that comes before it: (later, earlier, index of the later)
Precedes = Callable[[Array, Array, Array], Array]
# a value and its index
Indexed = tuple[Array, Array]
# how many values are compared one by one on a CPU
FEW = 16


def argmin(values: Array, precedes: Precedes) -> Indexed:
    """(minimum, index) of `values` (n,); a later one replaces an earlier one where it `precedes`. No derivatives.

    A reduction, so that what follows finds the index computed: XLA would compile an elementwise choice, and all that
    it depends on, into each of its uses. On a CPU few values are compared one by one, which runs for several cases at
    once, and what is chosen is stored.
    """

    values = jax.lax.stop_gradient(values)
    if for_cpu() and values.shape[0] <= FEW:
        return _one_by_one(values, precedes)

    def better(one: Indexed, other: Indexed) -> Indexed:
        return _better(*_in_order(one, other), precedes)

    none = (np.array(np.inf, values.dtype), np.int32(-1))
    indexed = (values, jnp.arange(values.shape[0], dtype=jnp.int32))
    value, index = jax.lax.reduce(indexed, none, better, (0,))
    return value, jnp.maximum(index, 0)


def _one_by_one(values: Array, precedes: Precedes) -> Indexed:
    least, *others = ((value, jnp.asarray(k, jnp.int32)) for k, value in enumerate(unpack(values)))
    for other in others:
        least = _better(least, other, precedes)
    return stored(least)


def _better(one: Indexed, other: Indexed, precedes: Precedes) -> Indexed:
    """One of two indexed values, of which the other comes later."""
    (early, first), (late, second) = one, other
    wins = precedes(late, early, second)
    return where(wins, late, early), where(wins, second, first)


def _in_order(one: Indexed, other: Indexed) -> tuple[Indexed, Indexed]:
    """Two indexed values by index: a reduction may take them in any order."""
    swap = one[1] > other[1]
    (a, i), (b, j) = one, other
    return (jnp.where(swap, b, a), jnp.where(swap, j, i)), (jnp.where(swap, a, b), jnp.where(swap, i, j))


INTEGERS = {np.dtype(np.float32): jnp.int32, np.dtype(np.float64): jnp.int64}


def ranked(values: Array, numbers: np.ndarray | int, slack: float, count: int) -> Array:
    """Floats (...) in the order of values (...), not negative, and for equal ones of their numbers below `count`.

    Equal are values that differ by less than about `slack`, or by less than the last bits that the numbers take.
    """
    kind, bits = INTEGERS[values.dtype], _bits(count)
    # from here on what is left of the bits is at least as coarse as the slack
    start = slack / (float(jnp.finfo(values.dtype).eps) * 2**bits)
    whole = jax.lax.bitcast_convert_type(jax.lax.stop_gradient(values) + start, kind)
    return jax.lax.bitcast_convert_type(whole >> bits << bits | jnp.asarray(numbers, kind), values.dtype)


def number_of(rank: Array, count: int) -> Array:
    """The number in a rank."""
    whole = jax.lax.bitcast_convert_type(rank, INTEGERS[rank.dtype])
    return (whole & (2 ** _bits(count) - 1)).astype(jnp.int32)


def _bits(count: int) -> int:
    """The number of bits that numbers below `count` take."""
    return (count - 1).bit_length()


# values that are sorted at once
PIECE = 1024
# how many are taken out one after another at most, and of how many
FEW, SOME = 16, 256
# values that a CPU compares at once; XLA for CPU finds the largest of more than `WINDOW` by a slow way of its own, and
# that of twice as many by a library
VECTOR, WINDOW = 16, 32
# where pieces are looked through on a CPU: of more values than the first, at most the second, for as many worlds
SEARCHED, WORLDS = (1024, 32768), 32
# values of a piece, of at most so many values; and of more
SHORT, MANY, LONG = 32, 8192, 128
# what is beyond, or no number, counts as this, what is nearer to zero as less than zero by this much
FAR, NEAR = 1e30, 1e-30


def largest(values: Array, count: int) -> tuple[Array, Array]:
    """The `count` largest of values (n,), in falling order, and their indices; of equal ones the first come first.

    What `jax.lax.top_k` returns, no number first; but where very few are looked for on a CPU, values are equal if they
    differ by less than the last bits that an index takes.
    """
    few, many = count <= FEW and count < values.shape[0] <= SOME, SEARCHED[0] < values.shape[0] <= SEARCHED[1]
    if for_cpu() and (few or many):
        index = (extracted if few else _searched)(values, count)
        return values.at[index].get(mode="promise_in_bounds", wrap_negative_indices=False), index
    pieces = -(-values.shape[0] // PIECE)
    if not for_gpu() or pieces <= 2 or pieces * count > values.shape[0] // 2:
        return jax.lax.top_k(values, count)
    padding = jnp.full((pieces * PIECE - values.shape[0],), -jnp.inf, values.dtype)
    best, index = jax.lax.top_k(jnp.concatenate([values, padding]).reshape(pieces, PIECE), count)
    # pieces follow one another, so that equal values are still in their order
    index = (index + PIECE * jnp.arange(pieces, dtype=index.dtype)[:, None]).reshape(-1)
    greatest_values, which = jax.lax.top_k(best.reshape(-1), count)
    return greatest_values, index[which]


def extracted(values: Array, count: int) -> Array:
    """Indices (count,) of the largest of values (n,), whose last bits are replaced by what tells equal ones apart."""
    n, kind = values.shape[0], INTEGERS[values.dtype]
    last = 2 ** (n - 1).bit_length() - 1
    number = jnp.arange(n, dtype=kind)
    values = stored(jax.lax.stop_gradient(values))
    values = jnp.where(jnp.isnan(values), FAR, jnp.clip(values, -FAR, FAR))
    values = jnp.where(jnp.abs(values) < NEAR, -NEAR, values)
    # what is below zero falls as its bits go up
    place_bits = jnp.where(values < 0, number, last - number)
    keys = jax.lax.bitcast_convert_type(jax.lax.bitcast_convert_type(values, kind) & ~last | place_bits, values.dtype)
    # as many values as the search is faster for
    room = 2 * WINDOW if WINDOW < n < 2 * WINDOW else -(-n // VECTOR) * VECTOR
    keys = jnp.pad(keys, (0, room - n), constant_values=-jnp.inf)

    def next_largest(before: Array, _: None) -> tuple[Array, Array]:
        best = jnp.max(jnp.where(keys < before, keys, -jnp.inf))
        return best, best

    largest_keys = jax.lax.scan(next_largest, jnp.full_like(values[0], jnp.inf), length=count)[1]
    bits = jax.lax.bitcast_convert_type(largest_keys, kind) & last
    index = jnp.where(largest_keys < 0, bits, last - bits)
    # beyond where there were not as many numbers
    return stored(jnp.minimum(index, n - 1).astype(jnp.int32))


def _searched(values: Array, count: int) -> Array:
    """Indices (count,) of the largest of values (n,), as found by what is faster for as many worlds."""

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
    """Indices (count,) of the largest of values (n,) in falling order, of equal ones the first come first.

    Of the pieces with the largest value v the first has the next one: its first v behind what was taken out last.
    """
    size = SHORT if values.shape[0] <= MANY else LONG
    rows = stored(_padded(values, size).reshape(-1, size))
    best = stored(_padded(_most(jnp.maximum, jnp.max, _ordered(rows)), VECTOR))
    piece, place = (jnp.arange(n, dtype=jnp.int32) for n in (len(best), size))

    def take_next(before: _Taken, _: None) -> tuple[_Taken, Array]:
        best, last, index = before
        value = _most(jnp.maximum, jnp.max, best)
        first_piece = _most(jnp.minimum, jnp.min, jnp.where(best == value, piece, len(best)))
        row = _ordered(rows.at[first_piece].get(mode="promise_in_bounds", wrap_negative_indices=False))
        left = (row == value) & ((value < last) | (first_piece * size + place > index))
        at = _most(jnp.minimum, jnp.min, jnp.where(left, place, size))
        below = (row < value) | ((row == value) & (place > at))
        rest = _most(jnp.maximum, jnp.max, jnp.where(below, row, -jnp.inf))
        index = first_piece * size + at
        return (jnp.where(piece == first_piece, rest, best), value, index), index

    start = best, jnp.full_like(best[0], jnp.inf), jnp.full_like(piece[0], -1)
    return jax.lax.scan(take_next, start, length=count)[1]


# the largest value of each piece, the value that was taken out last, and its index
_Taken = tuple[Array, Array, Array]


def _ordered(values: Array) -> Array:
    """No number as infinity, and all above the value -inf of what is not there."""
    return jnp.where(jnp.isnan(values), jnp.inf, jnp.maximum(values, jnp.finfo(values.dtype).min))


def _padded(values: Array, size: int) -> Array:
    """Values (n,) and as many of the least as make whole pieces."""
    return jnp.pad(values, (0, -values.shape[0] % size), constant_values=-jnp.inf)


def _most(of_two: Callable[..., Array], of_all: Callable[..., Array], values: Array) -> Array:
    """The largest or the least along the last axis, by halves, as vectors; XLA's reductions compare one by one."""
    while values.shape[-1] > VECTOR and values.shape[-1] % 2 == 0:
        half = values.shape[-1] // 2
        values = of_two(values[..., :half], values[..., half:])
    return of_all(values, axis=-1)
