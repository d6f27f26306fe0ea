"""where: one of two trees in each world of a batch."""

from typing import TypeVar

import jax
import jax.numpy as jnp

Array = jax.Array
Tree = TypeVar("Tree")


def where(chosen: Array, first: Tree, second: Tree) -> Tree:
    """Leaves of `first` in the worlds that are chosen (worlds,), else of `second`; or of one world, chosen ()."""

    def choose(one: Array, other: Array) -> Array:
        mask = chosen.reshape(chosen.shape + (1,) * (one.ndim - chosen.ndim))
        return jnp.where(mask, one, other)

    return jax.tree.map(choose, first, second)
