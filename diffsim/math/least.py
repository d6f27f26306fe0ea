"""The least of a few values, by a rule of its own for those that are nearly equal."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

Array = jax.Array
# whether a value beats one that comes before it: (later, earlier, index of the later)
Beats = Callable[[Array, Array, Array], Array]
# a value and its index
Numbered = tuple[Array, Array]


def least(values: Array, beats: Beats) -> Numbered:
    """The value and index of that of `values` (n,) which nothing beats, the first in doubt; without derivatives.

    A reduction, so that what follows finds the index computed: XLA would compile an elementwise choice, and all that
    it depends on, into each of its uses.
    """

    def better(one: Numbered, other: Numbered) -> Numbered:
        (early, first), (late, second) = _in_order(one, other)
        wins = beats(late, early, second)
        return jnp.where(wins, late, early), jnp.where(wins, second, first)

    none = (np.array(np.inf, values.dtype), np.int32(-1))
    numbered = (jax.lax.stop_gradient(values), jnp.arange(values.shape[0], dtype=jnp.int32))
    value, index = jax.lax.reduce(numbered, none, better, (0,))
    return value, jnp.maximum(index, 0)


def _in_order(one: Numbered, other: Numbered) -> tuple[Numbered, Numbered]:
    """Two numbered values by number: a reduction may take them in any order."""
    swap = one[1] > other[1]
    (a, i), (b, j) = one, other
    return (jnp.where(swap, b, a), jnp.where(swap, j, i)), (jnp.where(swap, a, b), jnp.where(swap, i, j))
