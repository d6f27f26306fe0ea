"""argmin with a tie rule of its own, for values that are nearly equal."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

Array = jax.Array
# whether a value is less than one that comes before it: (later, earlier, index of the later)
Precedes = Callable[[Array, Array, Array], Array]
# a value and its index
Indexed = tuple[Array, Array]


def argmin(values: Array, precedes: Precedes) -> Indexed:
    """(minimum, index) of `values` (n,); a later one replaces an earlier one where it `precedes`. No derivatives.

    A reduction, so that what follows finds the index computed: XLA would compile an elementwise choice, and all that
    it depends on, into each of its uses.
    """

    def better(one: Indexed, other: Indexed) -> Indexed:
        (early, first), (late, second) = _in_order(one, other)
        wins = precedes(late, early, second)
        return jnp.where(wins, late, early), jnp.where(wins, second, first)

    none = (np.array(np.inf, values.dtype), np.int32(-1))
    indexed = (jax.lax.stop_gradient(values), jnp.arange(values.shape[0], dtype=jnp.int32))
    value, index = jax.lax.reduce(indexed, none, better, (0,))
    return value, jnp.maximum(index, 0)


def _in_order(one: Indexed, other: Indexed) -> tuple[Indexed, Indexed]:
    """Two indexed values by index: a reduction may take them in any order."""
    swap = one[1] > other[1]
    (a, i), (b, j) = one, other
    return (jnp.where(swap, b, a), jnp.where(swap, j, i)), (jnp.where(swap, a, b), jnp.where(swap, i, j))
