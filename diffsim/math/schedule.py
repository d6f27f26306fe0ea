"""When XLA computes what: once, not anew in each use or in reverse mode, and one LAPACK call after the other."""

from typing import TypeVar

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

Array = jax.Array
T = TypeVar("T")

# marks what is computed once: XLA would otherwise fuse cheap operations into each consumer, and compute them again for
# each of its elements
settle = jax.lax.optimization_barrier

# what a search found has this name for policies of `jax.checkpoint`
FOUND = "diffsim_found"


def keep(value: T) -> T:
    """The same arrays, kept where reverse mode computes a step again: what a search found is not searched for again."""
    return checkpoint_name(value, FOUND)


def after(value: T, earlier: Array) -> T:
    """The same arrays, but not before `earlier` is computed. Orders LAPACK calls that do not depend on each other.

    Two batched LAPACK calls at once can wait for each other forever: on a CPU each holds a thread of XLA's pool (as
    many as cores) while it waits for its part of the batch (`ParallelBatchMap` of jaxlib 0.10). This is so for factors,
    triangular solves and eigenvalues, in derivatives too. XLA drops optimization barriers on the CPU, so that only a
    dependence of numbers helps. In reverse mode the order is the reverse one. Integers in `value` are left as they are.
    """
    if not earlier.size:
        return value
    zero = 0 * jnp.ravel(earlier)[0]
    return jax.tree.map(lambda leaf: leaf + zero if jnp.issubdtype(leaf.dtype, jnp.inexact) else leaf, value)
