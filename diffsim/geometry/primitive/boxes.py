"""Two boxes as MuJoCo collides them since 3.12: separating axes, then two faces or two edges.

The axis of least penetration is chosen among 6 face normals and 9 cross products of edges (Gottschalk et al. 1996). If
it is a face normal, this is the reference face. The face of the other box that faces it most is clipped to it (Ericson
2005, ch. 5.5). Every corner of the clipped face is a contact; its distance is its height over the reference face. If it
is a cross product, the two edges touch at the midpoint of their closest points. Heights and distances are continuous,
while 3.8.1 accepted points far below a face. Boxes that overlap by more than half of their thickness are found too.

A face replaces an edge axis that is nearly its normal and hardly better, because more points hold a box more steadily.
Source: `engine_collision_box.c` of MuJoCo 3.12.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import MINVAL
from diffsim.geometry.primitive.box_box import ROWS, edge_products
from diffsim.geometry.shapes import Candidates, Shape
from diffsim.math import safe
from diffsim.math.vector import cross, dot, mul_mat, mul_vec, mul_vec_t, scale, transpose
from diffsim.xla.select import argmin, where_tree


class Rounding(NamedTuple):
    """Tolerances for rounding: MuJoCo's numbers for float64 and float32.

    Attributes:
      apart: the error of a separation, relative to the sizes of two boxes.
      parallel: sine of the angle of two edges below which their cross product has no direction.
      level: component of an axis below which either of two edges may touch.
      same: distance below which two corners count as one, relative to the size of a face.
    """

    apart: float
    parallel: float
    level: float
    same: float


# by the name of the number type; the tolerances of float32 are about the square roots of the ones of float64
ROUNDINGS = {
    "float64": Rounding(apart=1e-13, parallel=1e-8, level=1e-9, same=1e-7),
    "float32": Rounding(apart=1e-6, parallel=10**-3.5, level=1e-5, same=1e-5),
}
# an edge must be better than the earlier axes by this fraction of its own separation
EDGE_BIAS = 1e-6
# cosine of 8 degrees: a face may replace an edge axis that is within this angle of the face normal
NEARLY_NORMAL = 0.99
# but it does not if the edge is better by more than this fraction of the separation of the face
MUCH_BETTER = 0.05


class BestAxis(NamedTuple):
    """The axis of least penetration, in the frame of box 1.

    Attributes:
      is_edge: whether it is a product of edges.
      face: 0..2, a face normal of box 1, 3..5, of box 2: the best of these.
      edge1, edge2: edges whose product is the best axis; without meaning where `is_edge` is false.
      touches: whether the boxes are nearer than the margin along all axes.
    """

    is_edge: Array
    face: Array
    edge1: Array
    edge2: Array
    touches: Array


def rounding_of(box: Shape) -> Rounding:
    """The numbers for the precision of a box."""
    return ROUNDINGS[box.size.dtype.name]


def slack(box1: Shape, box2: Shape) -> Array:
    """() m, the rounding error of a separation."""
    sizes = box1.size + box2.size
    return rounding_of(box1).apart * (sizes[0] + sizes[1] + sizes[2])


def best_axis(box1: Shape, box2: Shape, rotation: Array, offset1: Array, offset2: Array, margin: Array) -> BestAxis:
    """The axis of least penetration, and whether the boxes touch.

    Args:
      rotation: (3, 3) box 2 to box 1.
      offset1, offset2: (3,) m, box 2 seen from box 1, and box 1 from box 2.
      margin: () m.
    """
    absolute = jnp.abs(rotation)
    depth1 = box1.size + mul_vec(absolute, box2.size) - jnp.abs(offset1)
    depth2 = box2.size + mul_vec_t(absolute, box1.size) - jnp.abs(offset2)
    faces = jnp.concatenate([depth1, depth2])
    edges = edge_products(box1.size, box2.size, rotation, offset1, rounding_of(box1).parallel)[0].reshape(9)
    least_face, face = argmin(faces, lambda late, early, _: late < early)

    # faces first, then edges, each of which must win by more than rounding
    def better(late: Array, early: Array, number: Array) -> Array:
        return late + jnp.where(number < 1, 0, EDGE_BIAS) * jnp.abs(late) < early

    least, number = argmin(jnp.concatenate([least_face[None], edges]), better)
    edge = jnp.maximum(number - 1, 0)
    edge1 = edge // 3
    edge2 = edge % 3

    # the face replaces an edge axis that is nearly its normal
    axis = edge_axis(rotation, edge1, edge2)
    across = jnp.concatenate([axis, mul_vec_t(rotation, axis)])
    steep = jnp.abs(jnp.sum(jnp.where(jnp.arange(6) == face, across, 0)))
    instead = (steep > NEARLY_NORMAL) & (least > least_face - MUCH_BETTER * jnp.abs(least_face) - MINVAL)
    touches = jnp.min(jnp.concatenate([faces, edges])) >= -(margin + slack(box1, box2))
    return BestAxis((number > 0) & ~instead, face, edge1, edge2, touches)


def edge_axis(rotation: Array, edge1: Array, edge2: Array) -> Array:
    """(3,) the unit product of an edge of box 1 and an edge of box 2, in the frame of box 1."""
    return safe.normalize(cross(_unit(edge1, rotation), mul_vec(rotation, _unit(edge2, rotation))))


def _unit(index: Array, like: Array) -> Array:
    """(3,) the unit vector along an axis."""
    return (jnp.arange(3) == index).astype(like.dtype)


# ------------------------------------------------------------------------------------------------------ two edges

# for both boxes: whether the component that is nearly zero has its other sign
SIGNS = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], bool)


def edge_contact(box1: Shape, box2: Shape, rotation: Array, offset: Array, best: BestAxis) -> tuple[Array, ...]:
    """(distance (), m, position (3,), m, normal (3,)) of two edges, in the frame of box 1.

    Each box has four parallel edges; the axis n tells which of them reaches farthest. If a component of n is nearly
    zero, two of them reach equally far, and the nearest pair of edges counts.
    """
    plain = edge_axis(rotation, best.edge1, best.edge2)
    normal = plain * jnp.where(dot(jax.lax.stop_gradient(plain), offset) < 0, -1, 1).astype(plain.dtype)
    way1 = _unit(best.edge1, rotation)
    way2 = mul_vec(rotation, _unit(best.edge2, rotation))
    facing = jax.lax.stop_gradient((normal, mul_vec_t(rotation, normal)))
    level = rounding_of(box1).level
    corners = []
    for along, component, size, outward in zip(
        (best.edge1, best.edge2), facing, (box1.size, box2.size), (1, -1), strict=True
    ):
        across = jnp.arange(3) != along
        sign = jnp.where(component >= 0, outward, -outward).astype(size.dtype)
        # the first axis after the edge that is level, if any is
        order = (jnp.arange(3) - along - 1) % 3
        candidate = across & (jnp.abs(component) < level)
        first = jnp.min(jnp.where(candidate, order, 3))
        flipped = candidate & (order == first)
        corners.append((jnp.where(across, sign, 0) * size, flipped))
    (corner1, flip1), (corner2, flip2) = corners

    def closest(signs: Array) -> tuple[Array, Array]:
        """(points (2, 3), squared distance ()) for one choice of signs."""
        start1 = jnp.where(signs[0] & flip1, -corner1, corner1)
        start2 = mul_vec(rotation, jnp.where(signs[1] & flip2, -corner2, corner2)) + offset
        cosine = dot(way1, way2)
        between = start2 - start1
        along1, along2 = dot(way1, between), dot(way2, between)
        half1 = dot(way1, box1.size)
        half2 = dot(_unit(best.edge2, rotation), box2.size)
        sine = 1 - cosine * cosine
        s = safe.clip(safe.divide(along1 - cosine * along2, sine), -half1, half1)
        # each clamp solves for the other parameter again
        t = safe.clip(cosine * s - along2, -half2, half2)
        s = safe.clip(along1 + cosine * t, -half1, half1)
        points = jnp.stack([start1 + scale(way1, s), start2 + scale(way2, t)])
        way = points[1] - points[0]
        return points, dot(way, way)

    points, squared = jax.vmap(closest)(jnp.asarray(SIGNS))
    chosen = argmin(squared, lambda late, early, _: late < early)[1]
    first, second = jnp.sum(jnp.where((jnp.arange(4) == chosen)[:, None, None], points, 0), axis=0)
    return dot(second - first, normal), 0.5 * (first + second), normal


# ------------------------------------------------------------------------------------------------------ two faces


# for each axis of a box the frame with this axis as z, as columns
UPRIGHT = np.stack([np.roll(np.eye(3), shift, axis=1) for shift in (-1, -2, 0)])
# corners of a face in units of its half sides, in order around the face, and the next corner after each
CORNERS = np.array([[1, 1], [-1, 1], [-1, -1], [1, -1]])
NEXT = np.array([1, 2, 3, 0])


class Facing(NamedTuple):
    """A reference face and the face opposite it, in the frame of the reference face: x, y along it, z out of it, in m.

    Attributes:
      half: (2,) half sizes of the reference face.
      middle, side1, side2: (3,) the middle of the other face and its half sides.
      frame, origin: (3, 3), (3,) back to the world, for points whose z is measured from the face.
    """

    half: Array
    middle: Array
    side1: Array
    side2: Array
    frame: Array
    origin: Array


def facing_faces(box1: Shape, box2: Shape, rotation: Array, best: BestAxis) -> Facing:
    """The reference face, and the face of the other box that is turned to it most."""
    second = best.face >= 3
    mine, other = (where_tree(second, b, a) for a, b in ((box1[:3], box2[:3]), (box2[:3], box1[:3])))
    upright = jnp.asarray(UPRIGHT, box1.size.dtype)[best.face % 3]
    frame = mul_mat(mine[1], upright)
    size = mul_vec_t(upright, mine[2])
    turned = jnp.where(second, transpose(rotation), rotation)
    sides = mul_mat(transpose(upright), turned)
    offset = mul_vec_t(frame, other[0] - mine[0])
    up = jnp.where(jax.lax.stop_gradient(offset[2]) >= 0, 1, -1).astype(size.dtype)

    # the axis of the other box that is steepest, and the two after it
    steepness = -jnp.abs(jax.lax.stop_gradient(sides[2]))
    steepest = argmin(steepness, lambda late, early, _: late < early)[1]
    order = jnp.asarray(UPRIGHT, size.dtype)[steepest]
    sides = mul_mat(sides, order)
    lengths = mul_vec_t(order, other[2])
    toward = jnp.where(up * jax.lax.stop_gradient(sides[2, 2]) > 0, -1, 1).astype(size.dtype)
    flip = jnp.concatenate([jnp.ones(2, size.dtype), up[None]])
    middle = (offset + scale(sides[:, 2], toward * lengths[2])) * flip - size * jnp.asarray([0, 0, 1], size.dtype)
    side1, side2 = (scale(sides[:, k], lengths[k]) * flip for k in (0, 1))
    return Facing(size[:2], middle, side1, side2, frame * flip[None], mine[0] + scale(frame[:, 2], up * size[2]))


def corners_of_overlap(facing: Facing, same: float) -> tuple[Array, Array]:
    """(corners (24, 3), which of them count (24,)) of the other face, clipped to the reference face.

    They are the corners of the other face over the reference face, the crossings of its edges with the borders of the
    reference face, and the corners of the reference face under it.
    """
    half = facing.half
    dtype = facing.half.dtype
    signs = jnp.asarray(CORNERS, dtype)
    corner = facing.middle[None] + signs[:, :1] * facing.side1[None] + signs[:, 1:] * facing.side2[None]
    over = (jnp.abs(corner[:, 0]) <= half[0]) & (jnp.abs(corner[:, 1]) <= half[1])

    # crossings (4 edges, 2 axes, 2 sides) with x = +-half x, y = +-half y
    ends = corner[NEXT]
    limit = half[:, None] * jnp.asarray([[1, -1]], dtype)
    beyond = corner[:, :2, None] - limit[None]
    beyond_end = ends[:, :2, None] - limit[None]
    crosses = ((beyond < 0) & (beyond_end > 0)) | ((beyond > 0) & (beyond_end < 0))
    part = safe.divide(beyond, beyond - beyond_end)
    crossing = corner[:, None, None] + part[..., None] * (ends - corner)[:, None, None]
    other = jnp.abs(jnp.stack([crossing[:, 0, :, 1], crossing[:, 1, :, 0]], axis=1))
    crosses &= other <= half[::-1][None, :, None]

    # corners of the reference face: middle + u side1 + v side2
    place = signs * half[None] - facing.middle[None, :2]
    side1, side2 = facing.side1, facing.side2
    area = side1[0] * side2[1] - side1[1] * side2[0]
    u = safe.divide(place[:, 0] * side2[1] - place[:, 1] * side2[0], area)
    v = safe.divide(place[:, 1] * side1[0] - place[:, 0] * side1[1], area)
    under = (jnp.abs(u) < 1) & (jnp.abs(v) < 1)
    height = facing.middle[2] + u * side1[2] + v * side2[2]
    below = jnp.concatenate([signs * half[None], height[:, None]], axis=1)

    points = jnp.concatenate([corner, crossing.reshape(16, 3), below])
    counts = jnp.concatenate([over, crosses.reshape(16), under])
    return points, counts & ~_near_earlier(points, counts, same * safe.norm(half))


def _near_earlier(point: Array, counts: Array, distance: Array) -> Array:
    """(n,) whether an earlier point that counts is nearer than `distance` (m) in x and y."""
    x, y = jax.lax.stop_gradient((point[:, 0], point[:, 1]))
    squared = (x[:, None] - x[None]) ** 2 + (y[:, None] - y[None]) ** 2
    before = np.tril(np.ones((len(point), len(point)), bool), -1)
    return jnp.any(before & counts[None] & (squared < distance**2), axis=1)


def boxes(box1: Shape, box2: Shape, margin: Array) -> Candidates:
    """Up to eight corners of the overlap of two faces, or the one point of two edges; one normal for all of them."""
    rotation = mul_mat(transpose(box1.mat), box2.mat)
    offset1, offset2 = mul_vec_t(box1.mat, box2.pos - box1.pos), mul_vec_t(box2.mat, box1.pos - box2.pos)
    # which features touch is a choice: no derivative passes through it
    best = best_axis(*jax.lax.stop_gradient((box1, box2, rotation, offset1, offset2, margin)))

    facing = facing_faces(box1, box2, rotation, best)
    points, counts = corners_of_overlap(facing, rounding_of(box1).same)
    counts &= points[:, 2] <= margin
    # the first eight points that count: k such points come before the point of row k
    number, rows = jnp.cumsum(counts), jnp.arange(ROWS)
    filled = rows < number[-1]
    point = points[jnp.where(filled, jnp.sum(number[None] <= rows[:, None], axis=1), 0)]
    middle = point * jnp.asarray([[1, 1, 0.5]], point.dtype)
    pos = facing.origin[None] + jax.vmap(mul_vec, (None, 0))(facing.frame, middle)
    normal = facing.frame[:, 2] * jnp.where(best.face >= 3, -1, 1).astype(pos.dtype)

    # two edges: the first row, and no other
    distance, between, axis = edge_contact(box1, box2, rotation, offset1, best)
    first = rows == 0
    touches = jnp.where(best.is_edge, first & (distance <= margin + slack(box1, box2)), filled)
    return Candidates(
        dist=jnp.where(best.is_edge, distance, point[:, 2]),
        pos=jnp.where(best.is_edge, (box1.pos + mul_vec(box1.mat, between))[None], pos),
        normal=jnp.broadcast_to(jnp.where(best.is_edge, mul_vec(box1.mat, axis), normal), (ROWS, 3)),
        tangent=jnp.zeros_like(pos),
        valid=touches & best.touches,
    )
