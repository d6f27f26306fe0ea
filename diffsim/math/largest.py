"""The largest of many values; on a GPU in two rounds: of each piece, then of what is left.

A GPU sorts a piece within one kernel; all at once it takes ten, each through all of the memory. A CPU sorts nothing to
find few, and would take six times as long in two rounds. Very few it takes out one after another, each by a plain
reduction, for XLA's search runs on one thread.
"""

import jax
import jax.numpy as jnp

from diffsim.math.ranked import INTEGERS
from diffsim.math.safe import clip
from diffsim.math.xla import for_cpu, for_gpu, stored

Array = jax.Array

# values that are sorted at once
PIECE = 1024
# how many are taken out one after another at most, and of how many
FEW, SOME = 16, 256
# values that a CPU compares at once; XLA for CPU finds the largest of more than `WINDOW` by a slow way of its own, and
# that of twice as many by a library
VECTOR, WINDOW = 16, 32
# what is beyond, or no number, counts as this, what is nearer to zero as less than zero by this much
FAR, NEAR = 1e30, 1e-30


def largest(values: Array, count: int) -> tuple[Array, Array]:
    """The `count` largest of values (n,), in falling order, and their indices; of equal ones the first come first.

    What `jax.lax.top_k` returns, no number first; but where very few are looked for on a CPU, values are equal if they
    differ by less than the last bits that an index takes.
    """
    if for_cpu() and count <= FEW and count < values.shape[0] <= SOME:
        index = extracted(values, count)
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
    values = jnp.where(jnp.isnan(values), FAR, clip(values, -FAR, FAR))
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
