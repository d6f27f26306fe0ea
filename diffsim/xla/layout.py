"""How vectors lie in memory: their elements as separate arrays, and one component of all of them after another.

Arithmetic on vectors (n, k) that lie by components runs for several vectors at once, and sums along trees, which are
products with a mask from the right, read them as they lie.
"""

import jax
import jax.numpy as jnp

from diffsim.xla.barriers import for_cpu, stored

Array = jax.Array


def unpack(v: Array, axis: int = -1) -> list[Array]:
    """The elements along an axis as separate arrays."""
    axis = axis % v.ndim
    return [jax.lax.squeeze(part, [axis]) for part in jax.lax.split(v, (1,) * v.shape[axis], axis)]


@jax.custom_jvp
def by_components(vectors: Array) -> Array:
    """The same vectors (n, k), on a CPU with each component of all of them in one piece of memory.

    They are stored in their order first, for kernels write them that way, and copied.
    """
    return jnp.swapaxes(stored(jnp.swapaxes(stored(vectors), 0, 1)), 0, 1) if for_cpu() else vectors


@by_components.defjvp
def _derivative(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    return by_components(*primals), tangents[0]
