"""Matrix products of one world, in the form that is fastest for a batch of worlds."""

import jax
import jax.numpy as jnp
from jax import Array

from diffsim.xla.barriers import for_tpu

# numbers of the largest result of two matrices that a TPU makes as sums: larger ones fill tiles by themselves
LARGEST = 4096


def matmul(a: Array, b: Array) -> Array:
    """a @ b at the highest precision.

    On a TPU products of two small matrices, one pair in each world, are sums over the axis that both share, with
    worlds in the lanes of tiles. As matrix products they would first be copied into tiles of 8 x 128 each.
    """
    if for_tpu() and a.ndim == b.ndim == 2 and a.shape[0] * b.shape[1] <= LARGEST:
        return jnp.sum(a.T[:, :, None] * b[:, None], axis=0)
    return jnp.matmul(a, b, precision=jax.lax.Precision.HIGHEST)
