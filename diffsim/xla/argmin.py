"""argmin with a tie rule of its own, for values that are nearly equal."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.xla.barriers import for_cpu, stored
from diffsim.xla.layout import unpack
from diffsim.xla.where import where

Array = jax.Array
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
