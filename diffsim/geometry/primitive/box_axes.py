"""The axis along which two boxes overlap least: 6 face normals and 9 products of edges.

Source: Gottschalk et al. 1996; faces win ties, as in MuJoCo (`engine_collision_box.c`, 3.8.1).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from diffsim.geometry.shapes import Shape
from diffsim.math import safe
from diffsim.math.vector import mul_mat, mul_vec, mul_vec_t, transpose
from diffsim.xla.argmin import argmin
from diffsim.xla.barriers import stored

Array = jax.Array


class LeastAxis(NamedTuple):
    """The axis of least penetration: `depth` (m, negative apart) and its code.

    0..5: face +x..-z of box 1 (towards box 2), 6..11: of box 2, 12..20: edge i of box 1 with edge j of box 2. `away`
    tells that an edge product points from box 2 to box 1.
    """

    depth: Array
    code: Array
    away: Array


def least_axis(box1: Shape, box2: Shape) -> LeastAxis:
    """The axis with the least penetration, faces before edges."""
    rotation = mul_mat(transpose(box1.mat), box2.mat)
    offset1, offset2 = mul_vec_t(box1.mat, box2.pos - box1.pos), mul_vec_t(box2.mat, box1.pos - box2.pos)
    depth1 = box1.size + mul_vec(jnp.abs(rotation), box2.size) - jnp.abs(offset1)
    depth2 = box2.size + mul_vec_t(jnp.abs(rotation), box1.size) - jnp.abs(offset2)
    edges, away = stored(_edge_products(box1.size, box2.size, rotation, offset1))
    # x of both boxes, y of both, z of both, then the products
    depth = jnp.concatenate([jnp.stack([depth1, depth2], axis=1).reshape(6), edges.reshape(9)])
    flip = jnp.concatenate([jnp.stack([offset1 < 0, offset2 < 0], axis=1).reshape(6), away.reshape(9)])
    # an edge must win by more than rounding; apart from that the smaller overlap counts, also below zero
    less, number = argmin(
        depth, lambda late, early, i: late < early * jnp.where(i < 6, 1, 1 - 1e-12).astype(early.dtype)
    )
    away = flip[number]
    face = number // 2 + 6 * (number % 2) + 3 * away
    return stored(LeastAxis(less, jnp.where(number < 6, face, number + 6), away))


def _edge_products(size1: Array, size2: Array, rotation: Array, offset: Array) -> tuple[Array, Array]:
    """Penetration (3, 3) along n = edge i of box 1 x edge j of box 2, and whether n points from box 2 to box 1.

    In the frame of box 1 n has no component i, its others are those of column j of the rotation, and box 2 reaches
    along n by its two other edges, |(edge i x edge j) . edge k| = |R_il|.
    """
    absolute, (next1, last1) = jnp.abs(rotation), (jnp.roll(rotation, -k, axis=0) for k in (1, 2))
    length = safe.sqrt(next1 * next1 + last1 * last1)
    usable = length > (1e-15 if rotation.dtype == jnp.float64 else 1e-3)
    inverse = 1 / jnp.where(usable, length, 1)
    (far1, near1), (far2, near2) = ([jnp.roll(size, -k) for k in (1, 2)] for size in (size1, size2))
    reach = far1[:, None] * jnp.abs(last1) + near1[:, None] * jnp.abs(next1)
    reach += far2[None] * jnp.roll(absolute, -2, axis=1) + near2[None] * jnp.roll(absolute, -1, axis=1)
    along = (jnp.roll(offset, -2)[:, None] * next1 - jnp.roll(offset, -1)[:, None] * last1) * inverse
    return jnp.where(usable, reach * inverse - jnp.abs(along), jnp.inf), along < 0
