"""Where rays pass through boxes along the axes, by components, so that any layout of rays and boxes can be used.

Source: Ericson 2005, ch. 5.3.3; Ize 2013 for the rounding.
"""

import jax
import jax.numpy as jnp

from diffsim.math.vector import Components

Array = jax.Array

# a direction's component that is smaller counts as this: the ray then never leaves its slab
SMALLEST = 1e-20


def through_box(lower: Components, upper: Components, origin: Components, direction: Components) -> tuple[Array, Array]:
    """Distances (enter, leave) of rays through boxes, enter >= 0; enter > leave where the ray misses the box.

    Args:
      lower, upper: x, y and z of the boxes' corners, m. A box whose x are inside out is missed by every ray.
      origin, direction: x, y and z of the rays; distances are in units of |direction|.
    """
    near, far = [], []
    for low, high, start, along in zip(lower, upper, origin, direction, strict=True):
        inverse = 1 / jnp.where(jnp.abs(along) < SMALLEST, SMALLEST, along)
        ends = (low - start) * inverse, (high - start) * inverse
        near.append(jnp.minimum(*ends))
        far.append(jnp.maximum(*ends))
    enter = jnp.maximum(jnp.maximum(near[0], near[1]), jnp.maximum(near[2], 0))
    leave = jnp.minimum(jnp.minimum(far[0], far[1]), far[2])
    # rounding must not close a flat box
    return enter, jnp.where(lower[0] <= upper[0], leave * (1 + 8 * jnp.finfo(leave.dtype).eps), -jnp.inf)
