"""The largest of many values; on a GPU in two rounds: of each piece, then of what is left.

A GPU sorts a piece within one kernel; all at once it takes ten, each through all of the memory. A CPU sorts nothing to
find few: it takes them out one after another, for many worlds at once. Of a few values each is found by a plain
reduction; of many, pieces know their largest, and only the piece that has the next one is looked through again. For few
worlds XLA's search is faster, which goes through all values of one world after another on one thread.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from diffsim.xla.barriers import for_cpu, for_gpu, stored
from diffsim.xla.ranked import INTEGERS

Array = jax.Array

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
    found, which = jax.lax.top_k(best.reshape(-1), count)
    return found, index[which]


def _room(n: int) -> int:
    """How many values the search for the largest of n is faster for."""
    return 2 * WINDOW if WINDOW < n < 2 * WINDOW else -(-n // VECTOR) * VECTOR


def extracted(values: Array, count: int) -> Array:
    """Indices (count,) of the largest of values (n,), whose last bits are replaced by what tells equal ones apart."""
    n, kind = values.shape[0], INTEGERS[values.dtype]
    last = 2 ** (n - 1).bit_length() - 1
    number = jnp.arange(n, dtype=kind)
    values = stored(jax.lax.stop_gradient(values))
    values = jnp.where(jnp.isnan(values), FAR, jnp.clip(values, -FAR, FAR))
    values = jnp.where(jnp.abs(values) < NEAR, -NEAR, values)
    # what is below zero falls as its bits go up
    own = jnp.where(values < 0, number, last - number)
    keys = jax.lax.bitcast_convert_type(jax.lax.bitcast_convert_type(values, kind) & ~last | own, values.dtype)
    keys = jnp.pad(keys, (0, _room(n) - n), constant_values=-jnp.inf)

    def next_largest(before: Array, _: None) -> tuple[Array, Array]:
        best = jnp.max(jnp.where(keys < before, keys, -jnp.inf))
        return best, best

    found = jax.lax.scan(next_largest, jnp.full_like(values[0], jnp.inf), length=count)[1]
    bits = jax.lax.bitcast_convert_type(found, kind) & last
    index = jnp.where(found < 0, bits, last - bits)
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
        own = _most(jnp.minimum, jnp.min, jnp.where(best == value, piece, len(best)))
        row = _ordered(rows.at[own].get(mode="promise_in_bounds", wrap_negative_indices=False))
        left = (row == value) & ((value < last) | (own * size + place > index))
        at = _most(jnp.minimum, jnp.min, jnp.where(left, place, size))
        below = (row < value) | ((row == value) & (place > at))
        rest = _most(jnp.maximum, jnp.max, jnp.where(below, row, -jnp.inf))
        index = own * size + at
        return (jnp.where(piece == own, rest, best), value, index), index

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
