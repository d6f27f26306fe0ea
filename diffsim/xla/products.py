"""Matrix products of one world, in the form that is fastest for a batch of worlds."""

import jax
import jax.numpy as jnp
from jax import Array

from diffsim.xla.barriers import for_tpu

# a TPU computes products with up to this many entries as sums; larger ones fill tiles by themselves
LARGEST = 4096


def matmul(a: Array, b: Array) -> Array:
    """a @ b at the highest precision.

    On a TPU, if each world has a pair of small matrices, their products are computed as sums over the common axis, with
    worlds in the lanes of tiles. For matrix products, each matrix would first be copied into tiles of 8 x 128.
    """
    if for_tpu() and a.ndim == b.ndim == 2 and a.shape[0] * b.shape[1] <= LARGEST:
        return jnp.sum(a.T[:, :, None] * b[:, None], axis=0)
    return jnp.matmul(a, b, precision=jax.lax.Precision.HIGHEST)
