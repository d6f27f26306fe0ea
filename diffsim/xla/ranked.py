"""Values whose last bits are their numbers: a plain reduction finds the least value and tells which it is.

A reduction of pairs XLA for CPU runs on one thread, one comparison after another.
"""

import jax
import jax.numpy as jnp
import numpy as np

Array = jax.Array

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
    """That numbers below `count` take."""
    return (count - 1).bit_length()
