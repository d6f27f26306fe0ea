"""Which two features of two boxes overlap: a face and the face, edge or corner that leans towards it, or two edges.

The axis of least penetration tells the reference face, on one box, and the incident feature, on the other: a
parallelogram, of which one or both sides may be missing. Both are given in the frame of the reference face, where
clipping is a matter of coordinates (`box_clip.py`).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.geometry.primitive.box_axes import LeastAxis
from diffsim.geometry.shapes import Shape
from diffsim.math import safe
from diffsim.math.vector import cross, mul_mat, mul_vec, mul_vec_t, scale, transpose

Array = jax.Array

# rotations that take the face normals +x, +y, +z, -x, -y, -z to +z
TO_FACE = np.array(
    [
        [[0, 0, -1], [0, 1, 0], [1, 0, 0]],
        [[1, 0, 0], [0, 0, -1], [0, 1, 0]],
        [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
        [[0, 0, 1], [0, 1, 0], [-1, 0, 0]],
        [[1, 0, 0], [0, 0, 1], [0, -1, 0]],
        [[-1, 0, 0], [0, 1, 0], [0, 0, -1]],
    ]
)
# for each axis the two others, in MuJoCo's order, which decides ties
OTHERS = np.array([[1, 2], [0, 2], [1, 0]])


class Overlap(NamedTuple):
    """Reference face and incident parallelogram, in the frame of the reference face (z up, origin in its centre).

    `frame` (3, 3) and `origin` lead back to the world; `half` (2,) is the size of the face; `normal` the direction of
    projection; `start`, `side1`, `side2` the parallelogram; `sides` how many sides it has, 2 for edge contacts.
    """

    frame: Array
    origin: Array
    half: Array
    normal: Array
    start: Array
    side1: Array
    side2: Array
    sides: Array
    is_edge: Array
    sign: Array


def face_overlap(box1: Shape, box2: Shape, axis: LeastAxis) -> Overlap:
    """A face of one box, and of the other the lowest corner with its sides that rise by less than 30 degrees."""
    second = (axis.code >= 6) & (axis.code < 12)
    face, other = (
        Shape(*(jnp.where(second, b, a) for a, b in zip(one[:3], two[:3], strict=True)))
        for one, two in ((box1, box2), (box2, box1))
    )
    turn = jnp.asarray(TO_FACE, box1.size.dtype)[axis.code % 6]
    frame = mul_mat(face.mat, transpose(turn))
    half = jnp.abs(mul_vec(turn, face.size))
    origin = face.pos + scale(frame[:, 2], half[2])
    sides = mul_mat(transpose(frame), other.mat)
    upward = jax.lax.stop_gradient(sides[2])
    signs = jnp.where(upward < 0, 1, -1).astype(half.dtype)
    start = mul_vec_t(frame, other.pos - origin) + mul_vec(sides, other.size * signs)
    lengths = -2 * other.size * signs
    flat = jnp.abs(upward) < 0.5
    number = flat[0].astype(jnp.int32) + flat[1] + flat[2]
    first = jnp.where(flat[0], 0, jnp.where(flat[1], 1, 2))
    second_side = jnp.where(flat[2] & (number == 2), 2, 1)
    side1, side2 = (scale(_column(sides, k), _entry(lengths, k)) for k in (first, second_side))
    normal = jnp.asarray([0, 0, 1], half.dtype)
    sign = jnp.where(second, -1, 1).astype(half.dtype)
    return Overlap(frame, origin, half[:2], normal, start, side1, side2, number, jnp.asarray(False), sign)


def edge_overlap(box1: Shape, box2: Shape, axis: LeastAxis) -> Overlap:
    """Two edges: the faces beside them that the other edge is least inclined to."""
    edge1, edge2 = jnp.maximum(axis.code - 12, 0) // 3, jnp.maximum(axis.code - 12, 0) % 3
    rotation = mul_mat(transpose(box1.mat), box2.mat)
    toward = jnp.where(axis.away, -1, 1).astype(rotation.dtype)
    # product of the edges, in the frame of box 1
    one_hot = (jnp.arange(3) == edge1).astype(rotation.dtype)
    normal = safe.normalize(cross(one_hot, _column(rotation, edge2)))
    # which face of each box: of the axes across the edge, the one less along the other edge is its normal
    absolute = jnp.abs(jax.lax.stop_gradient(rotation))
    _, normal1 = _order(edge1, _column(absolute, edge2))
    side2, _ = _order(edge2, _column(transpose(absolute), edge1))
    facing = jax.lax.stop_gradient(normal * toward)
    turn = jnp.asarray(TO_FACE, rotation.dtype)[jnp.where(_entry(facing, normal1) > 0, normal1, normal1 + 3)]
    frame = mul_mat(box1.mat, transpose(turn))
    half = jnp.abs(mul_vec(turn, box1.size))
    origin = box1.pos + scale(frame[:, 2], half[2])
    sides = mul_mat(turn, rotation)
    # corner of box 2 at the end of its edge that touches
    outward = -mul_vec_t(jax.lax.stop_gradient(rotation), facing)
    signs = jnp.where(outward > 0, 1, -1).astype(half.dtype)
    signs = jnp.where(jnp.arange(3) == edge2, 1, signs)
    start = mul_vec_t(frame, box2.pos - origin) + mul_vec(sides, box2.size * signs)
    lengths = -2 * box2.size * signs
    along, across = (scale(_column(sides, k), _entry(lengths, k)) for k in (edge2, side2))
    count = jnp.full((), 2, jnp.int32)
    return Overlap(
        frame, origin, half[:2], mul_vec(turn, normal), start, along, across, count, jnp.asarray(True), toward
    )


def _order(edge: Array, inclination: Array) -> tuple[Array, Array]:
    """The two axes other than `edge`: first the one with the greater inclination, in ties the first."""
    first, second = jnp.asarray(OTHERS)[edge]
    swap = _entry(inclination, first) < _entry(inclination, second)
    return jnp.where(swap, second, first), jnp.where(swap, first, second)


def _column(matrix: Array, index: Array) -> Array:
    """Column of a (3, 3) matrix by a traced index."""
    return jnp.where(index == 0, matrix[:, 0], jnp.where(index == 1, matrix[:, 1], matrix[:, 2]))


def _entry(vector: Array, index: Array) -> Array:
    """Entry of a (3,) vector by a traced index."""
    return jnp.where(index == 0, vector[0], jnp.where(index == 1, vector[1], vector[2]))
