"""The largest of very many values; on a GPU in two rounds: of each piece, then of what is left.

A GPU sorts a piece within one kernel; all at once it takes ten, each through all of the memory. A CPU sorts nothing to
find few, and would take six times as long in two rounds.
"""

import jax
import jax.numpy as jnp

from diffsim.math.xla import for_gpu

Array = jax.Array

# values that are sorted at once
PIECE = 1024


def largest(values: Array, count: int) -> tuple[Array, Array]:
    """The `count` largest of values (n,), in falling order, and their indices; of equal ones the first come first.

    What `jax.lax.top_k` returns.
    """
    pieces = -(-values.shape[0] // PIECE)
    if not for_gpu() or pieces <= 2 or pieces * count > values.shape[0] // 2:
        return jax.lax.top_k(values, count)
    padding = jnp.full((pieces * PIECE - values.shape[0],), -jnp.inf, values.dtype)
    best, index = jax.lax.top_k(jnp.concatenate([values, padding]).reshape(pieces, PIECE), count)
    # pieces follow one another, so that equal values are still in their order
    index = (index + PIECE * jnp.arange(pieces, dtype=index.dtype)[:, None]).reshape(-1)
    found, which = jax.lax.top_k(best.reshape(-1), count)
    return found, index[which]
