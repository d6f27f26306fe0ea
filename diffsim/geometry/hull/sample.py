"""A few of many points: none twice, and those that are far from each other."""

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.geometry.shapes import negligible
from diffsim.math.vector import dot

Array = jax.Array

FAR = 1e20  # square metres


def repeated(point: Array, wanted: Array) -> Array:
    """Which of points (n, 3) are where an earlier one that is wanted (n,) is. No derivatives."""
    point = jax.lax.stop_gradient(point)
    offset = point[:, None] - point[None]
    same = dot(offset, offset) < negligible(point) ** 2
    earlier = np.tri(len(point), k=-1, dtype=bool)
    return jnp.any(same & earlier & wanted[None], axis=1)


def spread(point: Array, value: Array, wanted: Array, count: int) -> tuple[Array, Array]:
    """Indices (count,) of points (n, 3), and which of them there are. No derivatives.

    The first is that of least value (n,) among the wanted (n,), each next one the farthest from those before it.
    """
    point, value = jax.lax.stop_gradient((point, value))

    def step(apart: Array, _: None) -> tuple[Array, tuple[Array, Array]]:
        index = jnp.argmax(apart)
        offset = point - point[index][None]
        after = jnp.minimum(apart, dot(offset, offset)).at[index].set(-1)
        return after, (index, apart[index] >= 0)

    first = jnp.argmin(jnp.where(wanted, value, jnp.inf))
    apart = jnp.where(wanted, FAR, -1).astype(point.dtype).at[first].multiply(2)
    return jax.lax.scan(step, apart, length=count)[1]
