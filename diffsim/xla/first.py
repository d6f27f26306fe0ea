"""Places of the greatest of a few values, found by comparing all with it, and what is at a place.

On CPUs several times quicker than `argmax`, which XLA compares one by one. What is computed twice may round twice, so
that values within rounding of the greatest count as equal to it: the first of them is found.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from diffsim.xla.barriers import for_cpu
from diffsim.xla.where import where

Array = jax.Array
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
