"""The contacts of DiffMJX's cube, which are not those of a cube: its fork of MJX softens the choice of corners.

Four contacts at weighted means of all eight corners, weights a softmax of squashed scores, with a softness of 0.1 (and
of 0.1 m, where scores are depths): the points lie inside of the cube. With these `tests/gradient_bars/impacts.py`
finds its table again to ten digits: RK4 at 1 ms ends at -0.2923268376 m with the derivative 0.92796.
Source: what martius-lab/mujoco (branch diffmjx), collision_convex.py, and softjax 0.1.1 do; written anew.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.enums import GeomType
from diffsim.geometry.colliders import COLLIDERS, Collider
from diffsim.geometry.primitive.primitives import plane_point
from diffsim.geometry.shapes import Candidates, Shape, stack

Array = jax.Array

SOFTNESS, SKIN = 0.1, 1e-3
CORNERS = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], float)


def weights(score: Array) -> Array:
    """Of about the largest: softmax of standardized scores, squashed to 0 .. 1."""
    centred = score - jnp.mean(score)
    return jax.nn.softmax(jax.nn.sigmoid(centred / jnp.sqrt(jnp.mean(centred**2) + 1e-6)) / SOFTNESS)


def soft_abs(x: Array) -> Array:
    """|x|, rounded at 0."""
    return x * (2 * jax.nn.sigmoid(x / SOFTNESS) - 1)


def plane_soft_box(plane: Shape, box: Shape, margin: Array) -> Candidates:
    """Four points about as far apart as corners near the plane are; in the frame of the box, n the plane's normal."""
    corners, n = jnp.asarray(CORNERS) * box.size, box.mat.T @ plane.axis
    depth = (box.mat.T @ (plane.pos - box.pos) - corners) @ n
    skin = SOFTNESS * jax.nn.softplus((weights(depth) @ depth - SKIN) / SOFTNESS)
    near = -1e6 * (1 - jax.nn.sigmoid((depth - skin) / SOFTNESS))
    a = weights(near) @ corners
    b = weights(jnp.sum((a - corners) ** 2, axis=1) + near) @ corners
    c = weights(soft_abs((a - corners) @ jnp.cross(n, a - b)) + near) @ corners
    aside = soft_abs((b - corners) @ jnp.cross(n, b - c)) + soft_abs((a - corners) @ jnp.cross(n, a - c))
    points = (a, b, c, weights(aside + near) @ corners)
    return stack([plane_point(plane, box.pos + box.mat @ point) for point in points])


@contextmanager
def softened() -> Iterator[None]:
    """Boxes meet planes as in DiffMJX, in models that are loaded and traced here."""
    types = GeomType.PLANE, GeomType.BOX
    hard = COLLIDERS[types]
    COLLIDERS[types] = Collider(plane_soft_box, 4)
    try:
        yield
    finally:
        COLLIDERS[types] = hard
