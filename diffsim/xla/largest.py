"""largest: the `count` largest of n values, in one of four ways.

- On a GPU it runs `top_k` within pieces of 1024 values, each of which one kernel sorts, and then `top_k` over the
  results. Sorting all values would take ten kernels that each read and write all of them.
- On a CPU, for few values, it makes `count` passes (`by_passes`). Each pass finds the largest of the values below the
  previous one, with worlds in vector lanes.
- On a CPU, for many values in many worlds, it splits the values into pieces (`by_pieces`). It keeps the maximum of each
  piece, so that a pass searches only the piece of the previous value again.
- Otherwise it is `jax.lax.top_k`, which on a CPU handles one world after another on one thread.

`above` lists the values above a limit, at a cost that grows with their number; `present` chooses between `above` and
`largest`.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.xla.barriers import for_cpu, for_gpu, stored
from diffsim.xla.loops import scan, while_loop
from diffsim.xla.select import INTEGERS

# number of values that a GPU sorts in one kernel
GPU_PIECE = 1024
# number of values that a CPU compares at once: the vector lanes of two registers
VECTOR = 16
# the largest `count` for which a CPU uses `by_passes`, which makes `count` passes over all values
MOST_PASSES = 40
# the largest number of values for which a CPU uses `by_passes`; with more, `top_k` is faster
PASSES_VALUES = 512
# with more values than this, in at least PIECES_WORLDS worlds, `by_pieces` is faster on a CPU than `top_k` ...
PIECES_FROM = 1024
# ... and with more values than this it is slower again
PIECES_UP_TO = 32768
# the smallest number of worlds in which `by_pieces` is faster
PIECES_WORLDS = 32
# length of a piece in `by_pieces` if there are at most SHORT_UP_TO values
SHORT_PIECE = 32
# number of values up to which pieces are short
SHORT_UP_TO = 8192
# length of a piece in `by_pieces` if there are more values
LONG_PIECE = 128
# the largest number of values for which `present` uses `above`: each value that it finds costs a pass over all values
LISTED_MOST = 2048
# the largest magnitude of a key: larger values are clipped to it, and NaN is replaced by it
LARGEST_KEY = 1e30
# smaller magnitudes are replaced by minus this number in keys, so that no key with an index in its bits is subnormal
SMALLEST_KEY = 1e-30


def largest(values: Array, count: int) -> tuple[Array, Array]:
    """The `count` largest of values (n,), in decreasing order, and their indices; equal values in order of indices.

    The result is the same as from `jax.lax.top_k`, for which NaN is the largest value. But `by_passes` replaces
    the last bits of values by an index, so that values count as equal if they differ only in these bits.
    """
    n = values.shape[0]
    few = count <= MOST_PASSES and count < n <= PASSES_VALUES
    many = PIECES_FROM < n <= PIECES_UP_TO
    if for_cpu() and (few or many):
        index = (by_passes if few else _by_pieces_or_top_k)(values, count)
        return values.at[index].get(mode="promise_in_bounds", wrap_negative_indices=False), index
    pieces = -(-values.shape[0] // GPU_PIECE)
    if not for_gpu() or pieces <= 2 or pieces * count > values.shape[0] // 2:
        return jax.lax.top_k(values, count)
    padding = jnp.full((pieces * GPU_PIECE - values.shape[0],), -jnp.inf, values.dtype)
    best, index = jax.lax.top_k(jnp.concatenate([values, padding]).reshape(pieces, GPU_PIECE), count)
    # the pieces are in order, so equal values are still in the order of their indices
    index = (index + GPU_PIECE * jnp.arange(pieces, dtype=index.dtype)[:, None]).reshape(-1)
    greatest_values, which = jax.lax.top_k(best.reshape(-1), count)
    return greatest_values, index[which]


def by_passes(values: Array, count: int) -> Array:
    """Indices (count,) of the largest of values (n,), by `count` passes over keys.

    A key is a value with its index in the last bits. All keys are different, so the next largest key is the maximum of
    all keys below the previous one. In a batch, each pass handles all worlds side by side.
    """
    keys = _keys(values)

    @jax.custom_batching.custom_vmap
    def search(keys: Array) -> Array:
        return jax.lax.top_k(keys, count)[0]

    @search.def_vmap
    def _of_a_batch(size: int, batched: list[bool], keys: Array) -> tuple[Array, bool]:
        # (n, worlds): a maximum over the first axis is a maximum of vectors
        keys = stored(keys.T)

        def next_largest(before: Array, _: None) -> tuple[Array, Array]:
            best = _next_key(keys, before)
            return best, best

        return scan(next_largest, jnp.full((size,), jnp.inf, keys.dtype), length=count)[1].T, True

    return _places(search(keys), values.shape[0])


def above(values: Array, floor: float, count: int) -> tuple[Array, Array]:
    """(indices (count,), whether each exists) of the values (n,) above `floor`, the largest first, at most `count`.

    A batch makes as many passes over its values as the world with the most values above `floor` has such values. NaN is
    the largest value, as in `largest`. It is meant for a CPU.
    """
    keys = _keys(stored(values))

    def of_worlds(keys: Array) -> Array:
        """(count, worlds) the largest of the keys (n, worlds); at most `floor` after the last one above it."""
        start = jnp.full(keys.shape[1:], jnp.inf, keys.dtype)
        found = jnp.full((count, *keys.shape[1:]), -jnp.inf, keys.dtype)

        def unfinished(search: tuple[Array, Array, Array]) -> Array:
            number, before, _ = search
            return (number < count) & jnp.any(before > floor)

        def take_next(search: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            number, before, found = search
            best = _next_key(keys, before)
            return number + 1, best, jax.lax.dynamic_update_index_in_dim(found, best, number, 0)

        return while_loop(unfinished, take_next, (jnp.zeros((), jnp.int32), start, found))[2]

    @jax.custom_batching.custom_vmap
    def search(keys: Array) -> Array:
        return of_worlds(keys[:, None])[:, 0]

    @search.def_vmap
    def _of_a_batch(size: int, batched: list[bool], keys: Array) -> tuple[Array, bool]:
        return of_worlds(stored(keys.T)).T, True

    found = search(keys)
    exists = stored(found > floor)
    return jnp.where(exists, _places(found, values.shape[0]), 0), exists


def present(values: Array, floor: float, count: int) -> tuple[Array, Array | np.ndarray]:
    """`above` on a CPU, if there are not too many values; otherwise the `count` largest values, all of which exist."""
    if for_cpu() and values.shape[0] <= LISTED_MOST:
        return above(values, floor, count)
    return largest(values, count)[1], np.ones(count, bool)


def _keys(values: Array) -> Array:
    """Keys (n,), all different, in the order of the values, with indices in their last bits; without derivatives."""
    n = values.shape[0]
    kind, last = INTEGERS[values.dtype], _last(n)
    number = jnp.arange(n, dtype=kind)
    values = jax.lax.stop_gradient(values)
    values = jnp.where(jnp.isnan(values), LARGEST_KEY, jnp.clip(values, -LARGEST_KEY, LARGEST_KEY))
    values = jnp.where(jnp.abs(values) < SMALLEST_KEY, -SMALLEST_KEY, values)
    # A negative float decreases when its bits increase as an integer. With the index itself for negative values, and
    # its complement for others, the first of equal values gets the largest key.
    place_bits = jnp.where(values < 0, number, last - number)
    return jax.lax.bitcast_convert_type(jax.lax.bitcast_convert_type(values, kind) & ~last | place_bits, values.dtype)


def _last(n: int) -> int:
    """The bits of a key that hold an index below `n`."""
    return 2 ** (n - 1).bit_length() - 1


def _next_key(keys: Array, before: Array) -> Array:
    """(worlds,) the largest of the keys (n, worlds) below `before` (worlds,); -inf if there is none."""
    return jnp.max(jnp.where(keys < before[None], keys, -jnp.inf), axis=0)


def _places(keys: Array, n: int) -> Array:
    """The indices in the keys of n values."""
    last = _last(n)
    bits = jax.lax.bitcast_convert_type(keys, INTEGERS[keys.dtype]) & last
    return stored(jnp.where(keys < 0, bits, last - bits).astype(jnp.int32))


def _by_pieces_or_top_k(values: Array, count: int) -> Array:
    """Indices (count,) of the largest of values (n,), by `by_pieces` in a large batch, otherwise by `top_k`."""

    @jax.custom_batching.custom_vmap
    def search(values: Array) -> Array:
        return jax.lax.top_k(values, count)[1]

    @search.def_vmap
    def _of_a_batch(size: int, batched: list[bool], values: Array) -> tuple[Array, bool]:
        def one(values: Array) -> Array:
            return by_pieces(values, count) if size >= PIECES_WORLDS else jax.lax.top_k(values, count)[1]

        return jax.vmap(one)(values), True

    return search(jax.lax.stop_gradient(values))


def by_pieces(values: Array, count: int) -> Array:
    """Indices (count,) of the largest of values (n,) in decreasing order; equal values in the order of indices.

    Values are split into pieces. The carry of a scan has, for each piece, the maximum of the values that have not been
    taken yet. The next value v is the largest of these maxima. It is taken from the first piece with this maximum: the
    first v there, or, if v was also the previous value, the first v after that one. Then only the maximum of this piece
    changes.
    """
    size = SHORT_PIECE if values.shape[0] <= SHORT_UP_TO else LONG_PIECE
    rows = stored(_padded(values, size).reshape(-1, size))
    best = stored(_padded(_halved(jnp.maximum, jnp.max, _ordered(rows)), VECTOR))
    piece, place = (jnp.arange(n, dtype=jnp.int32) for n in (len(best), size))

    def take_next(before: _Carry, _: None) -> tuple[_Carry, Array]:
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


# the carry of `by_pieces`: the largest value left in each piece, the value that was taken last, and its index
_Carry = tuple[Array, Array, Array]


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
