"""Two boxes: separating axes, then the overlap of two faces, up to eight points.

Among 6 face normals and 9 products of edges the axis of least penetration is found; faces win ties. It chooses the
reference face of one box and the incident face of the other: a parallelogram, or an edge or corner, where one or both
of its sides are missing. In the frame of the reference face clipping compares coordinates. There are 24 candidate
points: 16 crossings of edges, 4 corners of the reference face, and 4 of the incident face. The candidates and the rules
that drop some of them are MuJoCo's (`engine_collision_box.c`, 3.8.1), so that the contacts agree. The first eight
points that remain are the rows.
Source: Gottschalk et al. 1996 for the axes; Ericson 2005, ch. 5.5, for the clipping.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.geometry.shapes import Candidates, Shape, collider
from diffsim.math import safe
from diffsim.math.vector import cross, dot, mul_mat, mul_vec, mul_vec_t, pack, scale, total, transpose, unpack
from diffsim.xla.barriers import stored
from diffsim.xla.batched_searches import one_by_one, short_scan
from diffsim.xla.gather import rows_at
from diffsim.xla.select import argmin


class LeastAxis(NamedTuple):
    """The axis of least penetration.

    Attributes:
      depth: m, negative if the boxes are apart.
      code: 0 to 5, the face +x, +y, +z, -x, -y, -z of box 1 that is turned to box 2; 6 to 11, the same for box 2 and
              box 1; 12 + 3 i + j, edge i of box 1 and edge j of box 2.
      away: whether a product of edges points from box 2 to box 1.
    """

    depth: Array
    code: Array
    away: Array


def least_axis(box1: Shape, box2: Shape) -> LeastAxis:
    """The axis with the least penetration, faces before edges."""
    rotation = mul_mat(transpose(box1.mat), box2.mat)
    offset1, offset2 = mul_vec_t(box1.mat, box2.pos - box1.pos), mul_vec_t(box2.mat, box1.pos - box2.pos)
    # sums are in MuJoCo's order, here and in `_corner`: whether flush faces touch depends on rounding
    depth1 = box1.size - jnp.abs(offset1) + mul_vec(jnp.abs(rotation), box2.size)
    depth2 = box2.size - jnp.abs(offset2) + mul_vec_t(jnp.abs(rotation), box1.size)
    shortest = 1e-15 if rotation.dtype == jnp.float64 else 1e-3
    edges, away = edge_products(box1.size, box2.size, rotation, offset1, shortest)
    # x of both boxes, y of both, z of both, then the products
    depth = jnp.concatenate([jnp.stack([depth1, depth2], axis=1).reshape(6), edges.reshape(9)])
    flip = jnp.concatenate([jnp.stack([offset1 < 0, offset2 < 0], axis=1).reshape(6), away.reshape(9)])
    # an edge must be better by more than rounding; otherwise the smaller overlap wins, also below zero
    less, number = argmin(
        depth, lambda late, early, i: late < early * jnp.where(i < 6, 1, 1 - 1e-12).astype(early.dtype)
    )
    away = rows_at(flip, number)
    face = number // 2 + 6 * (number % 2) + 3 * away
    return LeastAxis(depth=less, code=jnp.where(number < 6, face, number + 6), away=away)


def edge_products(size1: Array, size2: Array, rotation: Array, offset: Array, shortest: float) -> tuple[Array, Array]:
    """Penetration (3, 3) along n = edge i of box 1 x edge j of box 2, and whether n points from box 2 to box 1.

    In the frame of box 1, with the rotation R of box 2, component i of n is zero, and the two others are entries of
    column j of R. The depth is (reach of box 1 + reach of box 2 - |offset . n|) / |n|. Box 2 reaches along n by its two
    other edges k, with |(edge i x edge j) . edge k| = |R_il|, where l is neither j nor k.
    """
    absolute = jnp.abs(rotation)
    next1, last1 = (jnp.roll(rotation, -k, axis=0) for k in (1, 2))
    length = safe.sqrt(next1 * next1 + last1 * last1)
    usable = length > shortest
    inverse = 1 / jnp.where(usable, length, 1)
    (far1, near1), (far2, near2) = ([jnp.roll(size, -k) for k in (1, 2)] for size in (size1, size2))
    reach = far1[:, None] * jnp.abs(last1) + near1[:, None] * jnp.abs(next1)
    reach += far2[None] * jnp.roll(absolute, -2, axis=1) + near2[None] * jnp.roll(absolute, -1, axis=1)
    along = (jnp.roll(offset, -2)[:, None] * next1 - jnp.roll(offset, -1)[:, None] * last1) * inverse
    return jnp.where(usable, reach * inverse - jnp.abs(along), jnp.inf), along < 0


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
    """Reference face and incident parallelogram, in the frame of the reference face: z up, origin in its centre.

    Attributes:
      frame, origin: (3, 3), (3,) m, back to the world.
      half: (2,) m, half sides of the reference face.
      normal: (3,) direction along which the parallelogram is projected to the face.
      start, side1, side2: (3,) m, a corner of the parallelogram, and the ways to the next ones.
      sides: how many sides it has, 2 for edge contacts.
      is_edge: whether the axis is a product of edges.
      sign: -1 where the normal points from box 2 to box 1.
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
    """A face of one box, and the lowest corner of the other box with its sides that rise by less than 30 degrees.

    MuJoCo's rule: two such sides span the incident face, one is an edge, and without any the corner alone is left.
    """
    second = (axis.code >= 6) & (axis.code < 12)
    face, other = (
        Shape(*(jnp.where(second, b, a) for a, b in zip(one[:3], two[:3], strict=True)))
        for one, two in ((box1, box2), (box2, box1))
    )
    turn = rows_at(jnp.asarray(TO_FACE, box1.size.dtype), axis.code % 6)
    frame = mul_mat(face.mat, transpose(turn))
    half = jnp.abs(mul_vec(turn, face.size))
    origin = face.pos + scale(frame[:, 2], half[2])
    sides = mul_mat(transpose(frame), other.mat)
    upward = jax.lax.stop_gradient(sides[2])
    signs = jnp.where(upward < 0, 1, -1).astype(half.dtype)
    start = _corner(mul_vec_t(frame, other.pos - face.pos), half, sides, other.size * signs)
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
    """Two edges, each with the face of its box to which the edge of the other box is least inclined."""
    edge1 = jnp.maximum(axis.code - 12, 0) // 3
    edge2 = jnp.maximum(axis.code - 12, 0) % 3
    rotation = mul_mat(transpose(box1.mat), box2.mat)
    toward = jnp.where(axis.away, -1, 1).astype(rotation.dtype)
    # product of the edges, in the frame of box 1
    one_hot = (jnp.arange(3) == edge1).astype(rotation.dtype)
    normal = safe.normalize(cross(one_hot, _column(rotation, edge2)))
    # the normals of these faces: of the two axes perpendicular to an edge, the one that is less along the other edge
    absolute = jnp.abs(jax.lax.stop_gradient(rotation))
    _, normal1 = _order(edge1, _column(absolute, edge2))
    side2, _ = _order(edge2, _column(transpose(absolute), edge1))
    facing = jax.lax.stop_gradient(normal * toward)
    turn = rows_at(jnp.asarray(TO_FACE, rotation.dtype), jnp.where(_entry(facing, normal1) > 0, normal1, normal1 + 3))
    frame = mul_mat(box1.mat, transpose(turn))
    half = jnp.abs(mul_vec(turn, box1.size))
    origin = box1.pos + scale(frame[:, 2], half[2])
    sides = mul_mat(turn, rotation)
    # corner of box 2 at the end of its edge that touches
    outward = -mul_vec_t(jax.lax.stop_gradient(rotation), facing)
    signs = jnp.where(outward > 0, 1, -1).astype(half.dtype)
    signs = jnp.where(jnp.arange(3) == edge2, 1, signs)
    start = _corner(mul_vec_t(frame, box2.pos - box1.pos), half, sides, box2.size * signs)
    lengths = -2 * box2.size * signs
    along, across = (scale(_column(sides, k), _entry(lengths, k)) for k in (edge2, side2))
    count = jnp.full((), 2, jnp.int32)
    return Overlap(
        frame, origin, half[:2], mul_vec(turn, normal), start, along, across, count, jnp.asarray(True), toward
    )


def _corner(offset: Array, half: Array, sides: Array, reach: Array) -> Array:
    """(3,) m, offset + sides . reach - (0, 0, half z): a corner of a box in the frame of the middle of a face."""
    corner = offset - half * jnp.asarray([0, 0, 1], half.dtype)
    for k in range(3):
        corner += sides[:, k] * reach[k]
    return corner


def _order(edge: Array, inclination: Array) -> tuple[Array, Array]:
    """The two axes other than `edge`: first the one with the greater inclination, in ties the first."""
    first, second = rows_at(jnp.asarray(OTHERS), edge)
    swap = _entry(inclination, first) < _entry(inclination, second)
    return jnp.where(swap, second, first), jnp.where(swap, first, second)


def _column(matrix: Array, index: Array) -> Array:
    """Column of a (3, 3) matrix by a traced index."""
    return jnp.where(index == 0, matrix[:, 0], jnp.where(index == 1, matrix[:, 1], matrix[:, 2]))


def _entry(vector: Array, index: Array) -> Array:
    """Entry of a (3,) vector by a traced index."""
    return jnp.where(index == 0, vector[0], jnp.where(index == 1, vector[1], vector[2]))


# corners of a parallelogram in units of its sides, and the corners that its edges join
CORNERS = np.array([[0, 0], [1, 0], [0, 1], [1, 1]])
EDGES = np.array([[0, 1], [0, 2], [1, 3], [2, 3]])


class Points(NamedTuple):
    """Candidates: signed distances (n,), points (n, 3) in the frame of the face, whether they count (n,)."""

    depth: Array
    point: Array
    valid: Array


class _Projection(NamedTuple):
    """The projection of the parallelogram to the face: x -> x - n x_z `slope`; `rise` turns heights into distances.

    Candidates further from the face than `margin` (m) do not count.
    """

    overlap: Overlap
    margin: Array
    slope: Array
    rise: Array


def clip(overlap: Overlap, margin: Array) -> Points:
    """The 24 candidate points of the overlap of the face and the projected parallelogram.

    A loop goes over edges and corners: XLA for CPU would otherwise compile the parallelogram into each candidate.
    """
    slope = 1 / jnp.where(jnp.abs(overlap.normal[2]) > 1e-15, overlap.normal[2], 1)
    projection = _Projection(overlap, margin, slope, jnp.where(overlap.is_edge, slope * overlap.sign, 1))
    corners, *ends_of = (jnp.asarray(table, overlap.start.dtype) for table in (CORNERS, *CORNERS[EDGES.T]))
    edges = (*ends_of, jnp.asarray([0, 1, 1, 1]) < overlap.sides)
    ends = (corners, jnp.asarray([0, 1, 2, 2]) <= overlap.sides, jnp.arange(4) == 0)
    crossings, incident, points, flat = one_by_one(functools.partial(_edge_and_corner, projection), (edges, ends))
    crossings = Points(*(part.reshape(16, *part.shape[2:]) for part in crossings))
    alone = jnp.sum(crossings.valid) == 0
    # the corners of the face, from the corners of the parallelogram (4, 3) and their projections (4, 3)
    side1 = flat[1, :2] - flat[0, :2]
    side2 = flat[2, :2] - flat[0, :2]
    determinant = side1[0] * side2[1] - side2[0] * side1[1]
    sides = (points[0], points[1] - points[0], points[2] - points[0], flat[0, :2], side1, side2)
    signs = jnp.asarray([[-1, -1], [-1, 1], [1, -1], [1, 1]], flat.dtype)
    below = short_scan(functools.partial(_face_corner, projection, alone, sides), determinant, signs)[1]
    # corners beside the face count only where nothing else was found
    either, both, points_above = incident
    only = alone & (either | (jnp.sum(below.valid) == 0))
    above = points_above._replace(valid=points_above.valid & (both | (overlap.is_edge & only)))
    return Points(*(jnp.concatenate(parts) for parts in zip(crossings, below, above, strict=True)))


def _edge_and_corner(projection: _Projection, parts: tuple[tuple[Array, ...], ...]) -> tuple:
    """An edge and a corner of the parallelogram: their candidates, then the corner and its projection."""
    (begin, end, enabled), (corner, exists, lowest) = parts
    ends = _projected(projection, begin), _projected(projection, end)
    corner = _projected(projection, corner)
    # `collider` does not look into loops: without this the ends are computed again for each of four crossings
    ends, corner = stored((ends, corner))
    crossings = _crossings(projection, ends, enabled)
    return crossings, _incident(projection, corner, exists, lowest), *corner


def _projected(projection: _Projection, place: Array) -> tuple[Array, Array]:
    """The point of the parallelogram at (2,) in units of its sides, and its projection to the plane of the face."""
    overlap = projection.overlap
    point = overlap.start + place[0] * overlap.side1 + place[1] * overlap.side2
    return point, point - overlap.normal * (point[2] * projection.slope)


def _crossings(projection: _Projection, ends: tuple[tuple[Array, Array], ...], enabled: Array) -> Points:
    """Where one edge, projected, crosses the four sides of the face; its ends come with their projections."""
    (begin, flat_begin), (end, flat_end) = ends
    half = projection.overlap.half
    sweep = end - begin
    flat_sweep = flat_end - flat_begin
    crossings = []
    for q in range(2):
        crosses = jnp.abs(flat_sweep[q]) > 1e-15
        inverse = 1 / jnp.where(crosses, flat_sweep[q], 1)
        for sign in (-1, 1):
            bound = sign * half[q]
            t = (bound - flat_begin[q]) * inverse
            other = flat_begin[1 - q] + flat_sweep[1 - q] * t
            depth = (begin[2] + sweep[2] * t) * projection.rise
            within = crosses & (t >= 0) & (t <= 1) & (jnp.abs(other) <= half[1 - q]) & enabled
            on_face = jnp.stack([bound, other] if q == 0 else [other, bound])
            above = begin + sweep * t
            point = jnp.concatenate([0.5 * (above[:2] + on_face), 0.5 * above[2:]])
            crossings.append(Points(depth, point, within & (depth <= projection.margin)))
    return Points(*(jnp.stack(parts) for parts in zip(*crossings, strict=True)))


def _face_corner(
    projection: _Projection, alone: Array, sides: tuple[Array, ...], divisor: Array, signs: Array
) -> tuple[Array, Points]:
    """One corner of the face, and the point of the parallelogram over it."""
    overlap, margin = projection.overlap, projection.margin
    start, rise1, rise2, flat_start, side1, side2 = sides
    corner = signs * overlap.half
    offset = corner - flat_start
    inverse = safe.divide(jnp.ones_like(divisor), divisor)
    # corner = start + u side1 + v side2 in the plane of the face; stored, as in `_edge_and_corner`
    u = (offset[0] * side2[1] - offset[1] * side2[0]) * inverse
    v = (offset[1] * side1[0] - offset[0] * side1[1]) * inverse
    u, v = stored((u, v))
    inside_u = (u >= 0) & (u <= 1)
    inside_v = (v >= 0) & (v <= 1)
    strictly = (u > 0) & (u < 1) & (v > 0) & (v < 1)
    near = (inside_u & inside_v) | (alone & (inside_u | inside_v))
    above = start + safe.clip(u, 0, 1) * rise1 + safe.clip(v, 0, 1) * rise2
    below = jnp.concatenate([corner, jnp.zeros_like(corner[:1])])
    squared = dot(below - above, below - above)
    length = stored(safe.sqrt(squared))
    depth = jnp.where(overlap.is_edge, jnp.where(above[2] < 0, -length, length), above[2])
    reached = jnp.where(overlap.is_edge, (above[2] <= 0) | (length <= margin), above[2] <= margin)
    valid = jnp.where(overlap.is_edge, near, strictly & (overlap.sides == 2)) & reached
    # after an edge contact MuJoCo divides by the squared length, which it has put into the variable of the determinant
    divisor = jnp.where(overlap.is_edge & near, squared, divisor)
    return divisor, Points(depth, 0.5 * (below + above), valid)


def _incident(
    projection: _Projection, corner: tuple[Array, Array], exists: Array, lowest: Array
) -> tuple[Array, Array, Points]:
    """A corner of the parallelogram: whether it is over the face along one axis, along both axes, and the candidate."""
    point, flat = corner
    overlap = projection.overlap
    margin = projection.margin
    inside = jnp.abs(flat[:2]) <= overlap.half
    strictly = jnp.abs(flat[:2]) < overlap.half
    # the lowest corner of a face contact is always a candidate
    over_face = lowest | (strictly[0] & strictly[1])
    clamped = safe.clip(flat[:2], -overlap.half, overlap.half)
    excess = flat[:2] - clamped
    raised = point[2] * projection.rise
    length = safe.sqrt(dot(excess, excess) + raised * raised)
    depth = jnp.where(overlap.is_edge, jnp.where(point[2] < 0, -length, length), point[2])
    reached = jnp.where(overlap.is_edge, (point[2] <= 0) | (length <= margin), exists & (point[2] <= margin))
    base = jnp.where(overlap.is_edge, clamped, point[:2])
    middle = jnp.concatenate([0.5 * (base + point[:2]), 0.5 * point[2:]])
    both = jnp.where(overlap.is_edge, inside[0] & inside[1], over_face)
    return inside[0] | inside[1], both, Points(depth, middle, reached)


# the most contacts of two boxes in MuJoCo
ROWS = 8
# points outside of a box enlarged by this factor are dropped
OUTSIDE = 1.01


@collider
def box_box(box1: Shape, box2: Shape, margin: Array) -> Candidates:
    """Up to eight points of the overlap of two faces; one normal for all of them."""
    axis = least_axis(jax.lax.stop_gradient(box1), jax.lax.stop_gradient(box2))
    face, edge = face_overlap(box1, box2, axis), edge_overlap(box1, box2, axis)
    is_edge = axis.code >= 12
    overlap = Overlap(*(jnp.where(is_edge, b, a) for a, b in zip(face, edge, strict=True)))
    # stored: otherwise every later use would join the 24 points from their four parts again (a tenth of the time)
    points = stored(clip(overlap, margin))
    pos = overlap.origin[None] + pack(_coordinates(transpose(overlap.frame), points.point))
    valid = points.valid & (axis.depth >= -margin) & _kept(pos, box1, box2, margin)
    valid &= ~_repeated(points.point, valid)
    # the first eight valid points, in MuJoCo's order: k valid points come before the point of row k
    count, rows = jnp.cumsum(valid), jnp.arange(ROWS)
    filled = rows < count[-1]
    row = jnp.where(filled, jnp.sum(count[None] <= rows[:, None], axis=1), 0)
    normal = scale(mul_vec(overlap.frame, overlap.normal), overlap.sign)
    normals = jnp.broadcast_to(normal, (ROWS, 3))
    return Candidates(rows_at(points.depth, row), rows_at(pos, row), normals, jnp.zeros_like(normals), filled)


def _kept(pos: Array, box1: Shape, box2: Shape, margin: Array) -> Array:
    """(n,) whether points are kept: MuJoCo drops those outside of one box, unless they are well inside the other."""
    outside, inside = [], []
    for box in (box1, box2):
        size = box.size + margin
        local = [jnp.abs(x) for x in _coordinates(box.mat, pos - box.pos[None])]
        outside.append(_beyond(local, size * OUTSIDE) > 0)
        inside.append(_beyond(local, size / OUTSIDE) < 0)
    return ~((outside[0] & ~inside[1]) | (outside[1] & ~inside[0]))


def _beyond(local: list[Array], size: Array) -> Array:
    """(n,) m, how far points are beyond the farthest face of a box, negative inside."""
    return functools.reduce(jnp.maximum, [x - s for x, s in zip(local, size, strict=True)])


def _coordinates(mat: Array, points: Array) -> list[Array]:
    """Coordinates of points (n, 3) along the columns of one matrix (3, 3), each (n,): one elementwise operation."""
    parts = unpack(points)
    return [total([row[k] * x for row, x in zip(mat, parts, strict=True)]) for k in range(3)]


def _repeated(point: Array, valid: Array) -> Array:
    """(n,) whether a point occurs again later in the list.

    A loop goes over three parts of the list: in one operation, XLA for CPU would compute `valid` again for each pair.
    """
    parts = unpack(jax.lax.stop_gradient(point))
    number = jnp.arange(len(point))

    def repeated(some: tuple[Array, ...]) -> Array:
        length, *coordinates = some
        same = valid[None] & (number[None] > length[:, None])
        for x, others in zip(coordinates, parts, strict=True):
            same &= x[:, None] == others[None]
        return jnp.any(same, axis=1)

    thirds = tuple(part.reshape(3, -1) for part in (number, *parts))
    return one_by_one(repeated, thirds).reshape(-1)
