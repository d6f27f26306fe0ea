"""Bounding spheres and boxes of primitive shapes, from their type and size."""

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.enums import GeomType
from diffsim.math import safe
from diffsim.math.vector import unpack

Array = jax.Array


def bounding_boxes(types: np.ndarray, size: Array) -> Array:
    """(n, 3) half sides, m, of boxes around spheres, capsules, ellipsoids, cylinders and boxes of sizes (n, 3)."""
    radius, half, _ = unpack(size)
    around = jnp.stack([radius, radius, radius], axis=-1)
    long = jnp.stack([radius, radius, radius + half], axis=-1)
    flat = jnp.stack([radius, radius, half], axis=-1)
    shape = {GeomType.SPHERE: around, GeomType.CAPSULE: long, GeomType.CYLINDER: flat}
    for kind, sides in shape.items():
        size = jnp.where((types == kind)[:, None], sides, size)
    return size


def bounding_radii(types: np.ndarray, size: Array) -> Array:
    """(n,) radii, m, of spheres around shapes as in `bounding_boxes`."""
    x, y, z = unpack(bounding_boxes(types, size))
    longest = jnp.maximum(x, jnp.maximum(y, z))
    corner = safe.norm(jnp.stack([x, y, z], axis=-1))
    rim = safe.norm(jnp.stack([x, z], axis=-1))
    radius = jnp.where(types == GeomType.BOX, corner, longest)
    return jnp.where(types == GeomType.CYLINDER, rim, radius)
