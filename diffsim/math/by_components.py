"""Vectors (n, k) with each component of all of them in one piece of a CPU's memory.

What is computed of components is then computed for several vectors at once, and sums along trees, which are products
with a mask from the right, read them as they are. The vectors are stored in their order first, for kernels write them
that way, and copied. The derivative is the identity, in whatever order.
"""

import jax
import jax.numpy as jnp

from diffsim.math.xla import for_cpu, stored

Array = jax.Array


@jax.custom_jvp
def by_components(vectors: Array) -> Array:
    """The same vectors (n, k); elsewhere than on a CPU as they are."""
    return jnp.swapaxes(stored(jnp.swapaxes(stored(vectors), 0, 1)), 0, 1) if for_cpu() else vectors


@by_components.defjvp
def _derivative(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    return by_components(*primals), tangents[0]
