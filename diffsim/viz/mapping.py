"""Where a point of an object lies on its texture.

An image is laid on from above, repeated over the plane of x and y: from edge to edge of the object, or every metre
where the material is `texuniform`. A cube is seen from the object's middle. A mesh with texture coordinates has these.
Source: MuJoCo "XML reference", texture and material; OpenGL 4.6, section 8.13 (faces of cubes).
"""

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.enums import GeomType
from diffsim.math import safe
from diffsim.math.vector import dot, pack, unpack
from diffsim.viz.material import Looks

Array = jax.Array

# sizes (x, y, z) of an object, by columns of geom_size
EXTENTS = {
    GeomType.SPHERE: (0, 0, 0),
    GeomType.CAPSULE: (0, 0, 1),
    GeomType.CYLINDER: (0, 0, 1),
}
# objects whose coordinates MuJoCo does not scale by their size
METRIC = (GeomType.PLANE, GeomType.MESH, GeomType.HFIELD)
# of each face: what of (x, y, z) is the place to the right and down, and their signs
RIGHT = np.array([[0, 0, -1], [0, 0, 1], [1, 0, 0], [1, 0, 0], [1, 0, 0], [-1, 0, 0]])
DOWN = np.array([[0, -1, 0], [0, -1, 0], [0, 0, 1], [0, 0, -1], [0, -1, 0], [0, -1, 0]])


def factors(kinds: np.ndarray, size: np.ndarray, looks: Looks) -> tuple[np.ndarray, np.ndarray]:
    """What points (m) are multiplied by: (n, 2) to the repeats of an image, (n, 3) to a direction in a cube."""
    columns = np.array([EXTENTS.get(GeomType(kind), (0, 1, 2)) for kind in kinds.tolist()], int).reshape(-1, 3)
    extent = np.take_along_axis(size, columns, axis=1)
    extent = np.where(extent > 0, extent, 1)
    uniform, metric = looks.uniform[:, None], np.isin(kinds, METRIC)[:, None]
    flat = 0.5 * looks.repeat * np.where(uniform, 1, 1 / extent[:, :2]) * (1, -1)
    cube = np.where(metric, np.where(uniform, extent, 1), np.where(uniform, 1, 1 / extent))
    return flat.astype(np.float32), cube.astype(np.float32)


def on_image(factor: Array, point: Array) -> tuple[Array, Array]:
    """Places (k, 2) on an image, in repeats of it, and repeats per metre (k, 2), of points (k, 3), m."""
    return factor * point[:, :2] - 0.5, jnp.abs(factor)


def on_cube(direction: Array) -> tuple[Array, Array, Array]:
    """Faces (k,), places (k, 2) on them in [0, 1], and lengths of the directions' largest components (k,)."""
    x, y, z = unpack(direction)
    a, b, c = jnp.abs(x), jnp.abs(y), jnp.abs(z)
    first, second = (a >= b) & (a >= c), b >= c
    largest = jnp.where(first, a, jnp.where(second, b, c))
    axis, signed = jnp.where(first, 0, jnp.where(second, 1, 2)), jnp.where(first, x, jnp.where(second, y, z))
    face = 2 * axis + (signed < 0)
    right, down = (dot(jnp.asarray(table, direction.dtype)[face], direction) for table in (RIGHT, DOWN))
    place = pack([0.5 + 0.5 * safe.divide(along, largest) for along in (right, down)])
    return face, place, largest
