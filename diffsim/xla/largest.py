"""largest: the `count` largest of n values, in one of four ways.

- On a GPU it runs `top_k` within pieces of 1024 values, each of which one kernel sorts, and then `top_k` over the
  results. Sorting all values would take ten kernels that each read and write all of them.
- On a CPU, for few values (`extracted`), it makes `count` passes. Each pass takes the maximum of the values below the
  previous one, with worlds in vector lanes.
- On a CPU, for many values in many worlds (`taken_out`), it makes the same passes, but keeps the maximum of each piece
  of the values, so that only the piece of the previous value is searched again.
- Otherwise it is `jax.lax.top_k`, which on a CPU handles one world after another on one thread.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from diffsim.xla.barriers import for_cpu, for_gpu, stored
from diffsim.xla.loops import scan
from diffsim.xla.select import INTEGERS

# number of values that a GPU sorts in one kernel
PIECE = 1024
# number of values that a CPU compares at once: the vector lanes of two registers
VECTOR = 16
# the largest `count` for which a CPU uses `extracted`, which makes `count` passes over all values
FEW = 40
# the largest number of values for which a CPU uses `extracted`: with more, `top_k` is faster than these passes
SOME = 512
# with more values than this, and in as many worlds as WORLDS or more, `taken_out` is faster on a CPU than `top_k`
SEARCHED_ABOVE = 1024
# with more values than this, it is slower again
SEARCHED_MOST = 32768
# the smallest number of worlds in which `taken_out` is faster
WORLDS = 32
# length of a piece in `taken_out` if there are at most MANY values
SHORT = 32
# number of values up to which pieces are short
MANY = 8192
# length of a piece in `taken_out` if there are more than MANY values
LONG = 128
# the largest magnitude in the keys of `extracted`: larger values are clipped to it, and NaN is replaced by it
FAR = 1e30
# smaller magnitudes are replaced by -NEAR in the keys of `extracted`, so that no key with an index in its bits is
# subnormal
NEAR = 1e-30


def largest(values: Array, count: int) -> tuple[Array, Array]:
    """The `count` largest of values (n,), in decreasing order, and their indices; equal values in order of indices.

    The result is the same as from `jax.lax.top_k`, for which NaN is the largest value. Where `extracted` is used,
    values count as equal if they differ only in the last bits, which hold an index there.
    """
    n = values.shape[0]
    few = count <= FEW and count < n <= SOME
    many = SEARCHED_ABOVE < n <= SEARCHED_MOST
    if for_cpu() and (few or many):
        index = (extracted if few else _searched)(values, count)
        return values.at[index].get(mode="promise_in_bounds", wrap_negative_indices=False), index
    pieces = -(-values.shape[0] // PIECE)
    if not for_gpu() or pieces <= 2 or pieces * count > values.shape[0] // 2:
        return jax.lax.top_k(values, count)
    padding = jnp.full((pieces * PIECE - values.shape[0],), -jnp.inf, values.dtype)
    best, index = jax.lax.top_k(jnp.concatenate([values, padding]).reshape(pieces, PIECE), count)
    # the pieces are in order, so equal values are still in the order of their indices
    index = (index + PIECE * jnp.arange(pieces, dtype=index.dtype)[:, None]).reshape(-1)
    greatest_values, which = jax.lax.top_k(best.reshape(-1), count)
    return greatest_values, index[which]


def extracted(values: Array, count: int) -> Array:
    """Indices (count,) of the largest of values (n,), by keys, which are the values with an index in their last bits.

    All keys are different, so the next largest one is the maximum of all keys below the previous one. In a batch,
    `count` such passes handle all worlds side by side.
    """
    n = values.shape[0]
    kind = INTEGERS[values.dtype]
    last = 2 ** (n - 1).bit_length() - 1
    number = jnp.arange(n, dtype=kind)
    values = jax.lax.stop_gradient(values)
    values = jnp.where(jnp.isnan(values), FAR, jnp.clip(values, -FAR, FAR))
    values = jnp.where(jnp.abs(values) < NEAR, -NEAR, values)
    # A negative float decreases when its bits increase as an integer. With the index itself for negative values, and
    # its complement for others, the first of equal values gets the largest key.
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
    """Indices (count,) of the largest of values (n,), by `taken_out` in a large batch, else by `top_k`."""

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
    """Indices (count,) of the largest of values (n,) in decreasing order; equal values in the order of indices.

    Values are split into pieces, and the carry of a scan has the maximum of the values that are left in each piece. The
    next value v is the largest of these maxima. It is taken from the first piece with this maximum: the first v there,
    or, if v was also the previous value, the first v after it. Then only the maximum of this piece changes.
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


# the carry: the largest value left in each piece, the value that was taken last, and its index
_Taken = tuple[Array, Array, Array]


def _ordered(values: Array) -> Array:
    """The values with NaN replaced by infinity, and -inf by the smallest finite number, since -inf means no value."""
    return jnp.where(jnp.isnan(values), jnp.inf, jnp.maximum(values, jnp.finfo(values.dtype).min))


def _padded(values: Array, size: int) -> Array:
    """Values (n,), padded with -inf to a multiple of `size`."""
    return jnp.pad(values, (0, -values.shape[0] % size), constant_values=-jnp.inf)


def _halved(of_two: Callable[..., Array], of_all: Callable[..., Array], values: Array) -> Array:
    """Maximum or minimum along the last axis, by comparing halves as vectors; XLA would compare one by one."""
    while values.shape[-1] > VECTOR and values.shape[-1] % 2 == 0:
        half = values.shape[-1] // 2
        values = of_two(values[..., :half], values[..., half:])
    return of_all(values, axis=-1)
