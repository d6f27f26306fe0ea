"""Spheres and capsules against boxes, in the frame of the box.

A capsule touches with a ball at the point of its segment that is nearest to the box. It touches with a second ball
further along the segment where the segment runs over a face or along an edge; which point that is follows MuJoCo's
convention (`engine_collision_box.c`, 3.8.1). The distances of the balls have closed forms. The nearest of the twelve
edges is found by squared distances alone; positions and derivatives are computed for that edge only.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.geometry.shapes import Candidates, Shape, Vector, candidate, collider, negligible, stack
from diffsim.math import safe
from diffsim.math.vector import dot_components, mul_vec_t, pack, total, unpack
from diffsim.xla.barriers import stored
from diffsim.xla.select import argmin, number_of, ranked, where_tree

# a parameter beyond every segment, where the true bound is infinite
BEYOND = 1e6

# signs of the corners that four edges along x, four along y and four along z start from, zero along the edge: (12, 3)
EDGES = np.array(
    [
        [-1 if k != axis and not corner >> k & 1 else int(k != axis) for k in range(3)]
        for axis, corners in enumerate(([0, 2, 4, 6], [0, 1, 4, 5], [0, 1, 2, 3]))
        for corner in corners
    ]
)


def sphere_box(sphere: Shape, box: Shape, margin: Array) -> Candidates:
    """The nearest point of the box; from inside the nearest face."""
    # stored here and in `_ball_row`, instead of @collider: with it the pair takes 1.3 times as long on a CPU
    center = stored(unpack(mul_vec_t(box.mat, sphere.pos - box.pos)))
    return stack([_ball_row(center, sphere.size[0], box, _rounding(sphere, box))])


def _rounding(ball: Shape, box: Shape) -> Array | float:
    """By how much rounding may move the ball in the frame of the box, m."""
    return negligible(
        box.pos, jax.lax.stop_gradient(total([jnp.abs(c) for c in (*unpack(ball.pos), *unpack(box.pos))]))
    )


@collider
def capsule_box(capsule: Shape, box: Shape, margin: Array) -> Candidates:
    """Two balls on the capsule's segment; the second is not valid where the segment points away from the box."""
    # the segment center + t half, -1 <= t <= 1, in the frame of the box
    center = unpack(mul_vec_t(box.mat, capsule.pos - box.pos))
    axis = unpack(mul_vec_t(box.mat, capsule.axis))
    size = unpack(box.size)
    half = [x * capsule.size[1] for x in axis]
    near = _nearest_feature(center, half, size)
    # axes along which the segment leads away from the side of the corner
    differ = [(h > 0) ^ positive for h, positive in zip(half, near.corner, strict=True)]
    # for each kind of feature: t of the second ball less t of the first, and whether there is a second ball
    corner = _from_corner(axis, half, size, differ, near)
    edge = _from_edge(axis, half, size, differ, near)
    face = _from_face(center, half, size, near)
    offset, exists = where_tree(near.is_face, face, where_tree(near.end, corner, edge))
    balls = [[c + along * h for c, h in zip(center, half, strict=True)] for along in (near.along, near.along + offset)]
    rounding = _rounding(capsule, box)
    rows = stack([_ball_row(ball, capsule.size[0], box, rounding) for ball in balls])
    return rows._replace(valid=jnp.stack([jnp.ones_like(exists), exists]))


def _ball_row(center: Vector, radius: Array, box: Shape, rounding: Array | float) -> Candidates:
    """A ball, centre in the frame of the box, against the box."""
    size = unpack(box.size)
    # outside: towards the nearest point of the box, which is the centre clipped to its sides; inside: the nearest face
    inside, face = _nearest_face(center, size, rounding)
    gap = [safe.clip(c, -s, s) - c for c, s in zip(center, size, strict=True)]
    squared = dot_components(gap, gap)
    apart = squared > negligible(squared) ** 2
    length = jnp.sqrt(jnp.where(apart, squared, 1))
    normal = [jnp.where(apart, g / length, n) for g, n in zip(gap, face, strict=True)]
    normal, dist = stored((normal, jnp.where(apart, length, -inside) - radius))
    reach = radius + 0.5 * dist
    place = [c + reach * n for c, n in zip(center, normal, strict=True)]
    mat = [unpack(row) for row in unpack(box.mat, axis=-2)]
    pos = [p + dot_components(row, place) for p, row in zip(unpack(box.pos), mat, strict=True)]
    return candidate(dist, pack(pos), pack([dot_components(row, normal) for row in mat]))


def _nearest_face(center: Vector, size: Vector, rounding: Array | float) -> tuple[Array, Vector]:
    """(depth, inward normal) of the face nearest to a point inside the box; the first of equally near faces."""
    depths = [s + sign * c for c, s in zip(center, size, strict=True) for sign in (1, -1)]
    # a later face must be nearer by more than rounding; the handicap is part of what the reduction compares
    handicapped = [jnp.abs(depth) + k * rounding for k, depth in enumerate(depths)]
    _, number = argmin(jnp.stack(handicapped), lambda late, early, _: late < early)
    one = jnp.ones_like(size[0])
    normal = [jnp.where(number == 2 * k, one, jnp.where(number == 2 * k + 1, -one, 0)) for k in range(3)]
    return dot_components([jnp.abs(n) for n in normal], size) + dot_components(normal, center), normal


class _Feature(NamedTuple):
    """The face, edge or corner of the box that is nearest to a segment.

    Attributes:
      along: in [-1, 1], the place of the nearest point on the segment.
      is_face: whether the feature is a face, or the segment is inside the box.
      face: axis of the face, -1 inside the box.
      axis: axis of the edge, also of an edge that ends in the corner.
      corner: for x, y and z whether the edge or corner is on the positive side.
      position: in [-1, 1], the place of the nearest point on the edge.
      end: whether that is an end of the edge: a corner.
    """

    along: Array
    is_face: Array
    face: Array
    axis: Array
    corner: Vector
    position: Array
    end: Array


class _Segment(NamedTuple):
    """A segment against the edges of a box: what all edges along x, along y and along z share.

    With an edge e + x1 a and the segment c + x2 h the squared distance is a quadratic with the matrix
    ((ma, mb), (mb, mc)), where ma = a . a, mb = -a . h and mc = h . h.

    Attributes:
      center, half: c and h, m.
      size: half sides of the box, m.
      inverse: for edges along x, y and z, 1 / (ma mc - mb mb), or zero if edge and segment are parallel.
      mc: m^2.
      product: c . h, m^2.
    """

    center: Vector
    half: Vector
    size: Vector
    inverse: Vector
    mc: Array
    product: Array


def _segment(center: Vector, half: Vector, size: Vector) -> _Segment:
    """The quantities that all edges share."""
    mc = dot_components(half, half)
    inverse = []
    for h, s in zip(half, size, strict=True):
        ma = s * s
        mb = -s * h
        determinant = ma * mc - mb * mb
        # parallel in MuJoCo's sense; in float32 the determinant is also zero to within the rounding of its terms
        limit = 1e-15 if mc.dtype == jnp.float64 else 1e-15 + 1e-6 * ma * mc
        parallel = jax.lax.stop_gradient(jnp.abs(determinant) < limit)
        inverse.append(jnp.where(parallel, 0, 1 / jnp.where(parallel, 1, determinant)))
    return _Segment(center=center, half=half, size=size, inverse=inverse, mc=mc, product=dot_components(half, center))


def _nearest_feature(center: Vector, half: Vector, size: Vector) -> _Feature:
    """The nearest among the two ends of the segment, where they face a side of the box, and the twelve edges.

    The end is number 0; the edges are numbers 1 to 12, four along x, four along y and four along z.
    """
    segment = _segment(center, half, size)
    fixed = jax.lax.stop_gradient(segment)
    squared, end, face = _facing_end(*fixed[:3])
    # a later feature must be nearer by more than rounding
    rank = functools.partial(ranked, slack=1e-15 if squared.dtype == jnp.float64 else 1e-9, count=13)
    least = jnp.min(rank(_squared_distances(fixed), 1 + np.arange(12)), axis=-1)
    index = number_of(jnp.minimum(rank(squared, 0), least), 13)
    edge = jnp.maximum(index - 1, 0)
    is_face = index == 0
    axis = edge >> 2
    low = edge & 1 > 0
    high = edge & 2 > 0
    sides = low, jnp.where(axis == 0, low, high), high
    signs = [jnp.where(axis == k, 0, jnp.where(side, 1, -jnp.ones_like(squared))) for k, side in enumerate(sides)]
    near = _closest(segment, signs, [axis == k for k in range(3)])
    at = jax.lax.stop_gradient(near.side)
    return _Feature(
        along=jnp.where(is_face, end, near.along),
        is_face=is_face,
        face=face,
        axis=axis,
        corner=[jnp.where(axis == k, at > 0, side) for k, side in enumerate(sides)],
        position=near.position,
        end=at != 0,
    )


def _facing_end(center: Vector, half: Vector, size: Vector) -> tuple[Array, Array, Array]:
    """(squared distance, -1 or 1, face) of the nearer end of the segment that faces a side; far if neither does.

    An end faces a side if it is beyond at most one pair of sides; inside the box its distance is zero and the face -1.
    """
    one = jnp.ones_like(center[0])
    best = (BEYOND * one, one, jnp.full_like(one, -1, jnp.int32))
    for end in (-1.0, 1.0):
        beyond = [jnp.abs(c + end * h) - s for c, h, s in zip(center, half, size, strict=True)]
        out = [x > 0 for x in beyond]
        face = jnp.where(out[2], 2, jnp.where(out[1], 1, jnp.where(out[0], 0, jnp.full_like(best[2], -1))))
        few = ~((out[0] & out[1]) | (out[2] & (out[0] | out[1])))
        excess = [jnp.maximum(x, 0) for x in beyond]
        squared = dot_components(excess, excess)
        best = where_tree(few & (squared < best[0]), (squared, end * one, face), best)
    return best


def _squared_distances(segment: _Segment) -> Array:
    """(12,) m^2, of the segment from each edge; edges parallel to the segment count as far away."""
    signs = list(jnp.asarray(EDGES.T, segment.mc.dtype))
    parallel = list(EDGES.T == 0)
    near = _closest(segment, signs, parallel)
    corner = [sign + along * near.position for sign, along in zip(signs, parallel, strict=True)]
    way = [x * s - c - h * near.along for x, c, h, s in zip(corner, *segment[:3], strict=True)]
    return jnp.where(near.parallel, BEYOND, dot_components(way, way))


class _Closest(NamedTuple):
    """The closest points of a segment and an edge.

    Attributes:
      along, position: where on the segment and on the edge, in [-1, 1].
      side: -1 or 1 at an end of the edge, else 0.
      parallel: whether they are.
    """

    along: Array
    position: Array
    side: Array
    parallel: Array


def _closest(segment: _Segment, signs: Vector, parallel: Sequence[Array | np.ndarray]) -> _Closest:
    """The closest points, as for two capsules with the edge as first segment.

    `signs`: of the coordinates of the edge's middle, zero along the edge; `parallel`: whether it is along x, y, z.
    """
    center, half, size, inverses, mc, product = segment
    c, h, s, inverse = (
        jnp.where(parallel[0], x, jnp.where(parallel[1], y, z)) for x, y, z in (center, half, size, inverses)
    )
    ma = s * s
    mb = -s * h
    u = s * c
    # v = half . (middle of the edge - center)
    v = total([sign * (x * y) for sign, x, y in zip(signs, size, half, strict=True)]) - product
    # the minimum of the quadratic, then clipped to the edge, then to the segment, each time solved for the other one
    free1 = (mc * u - mb * v) * inverse
    free2 = (ma * v - mb * u) * inverse
    clamped = jax.lax.stop_gradient(jnp.abs(free1) > 1)
    x1 = safe.clip(free1, -1, 1)
    side = jnp.where(clamped, jnp.sign(free1), 0)
    x2 = jnp.where(clamped, safe.divide(v - mb * x1, jnp.broadcast_to(mc, v.shape)), free2)
    end = safe.clip(x2, -1, 1)
    again = safe.divide(u - mb * end, ma)
    moved = jnp.abs(x2) > 1
    x1 = jnp.where(moved, safe.clip(again, -1, 1), x1)
    side = jnp.where(moved & (jnp.abs(again) > 1), jnp.sign(again), side)
    return _Closest(along=end, position=x1, side=side, parallel=inverse == 0)


def _pick(index: Array, values: Vector) -> Array:
    """values[index] of three, without a gather."""
    return jnp.where(index == 0, values[0], jnp.where(index == 1, values[1], values[2]))


def _ratio(numerator: Array, denominator: Array) -> Array:
    """numerator / |denominator|, beyond every segment where the denominator vanishes."""
    return safe.divide(numerator, jnp.abs(denominator), BEYOND)


def _from_corner(axis: Vector, half: Vector, size: Vector, differ: Vector, near: _Feature) -> tuple[Array, Array]:
    """From a corner: the second ball is along one of its edges or over one of its faces, where box or segment end.

    One axis decides: the only axis along which the segment leads away from the corner or, if it leads away along two
    axes, the third. A segment within 45 degrees of this axis follows the edge along it. Another segment runs back over
    the face perpendicular to it.
    """
    number = differ[0].astype(jnp.int32) + differ[1] + differ[2]
    reverse = number == 2
    which = jnp.where(differ[0] ^ reverse, 0, jnp.where(differ[1] ^ reverse, 1, jnp.full_like(number, 2)))
    sign = jnp.where(reverse, -1, jnp.ones_like(near.along))
    ahead = 1 - sign * near.along
    behind = 1 + sign * near.along
    overshoot = [_ratio(2 * s, h) for s, h in zip(size, half, strict=True)]
    along_edge = safe.minimum(ahead, _pick(which, overshoot))
    for k, most in enumerate(overshoot):
        behind = jnp.where(which == k, behind, safe.minimum(behind, most))
    steep = jax.lax.stop_gradient(_pick(which, axis)) ** 2 > 0.5
    return jnp.where(steep, along_edge * sign, -behind * sign), (number == 1) | (number == 2)


def _from_edge(axis: Vector, half: Vector, size: Vector, differ: Vector, near: _Feature) -> tuple[Array, Array]:
    """From an edge: the second ball is over the face of the edge that the segment is less inclined to."""
    next1, next2 = (jnp.where(near.axis < 3 - k, near.axis + k, near.axis + k - 3) for k in (1, 2))
    steepness = [jnp.abs(x) for x in jax.lax.stop_gradient(axis)]
    across = jnp.where(_pick(next1, steepness) > _pick(next2, steepness), next1, next2)
    forward = _pick(across, differ)
    sign = jnp.where(forward, 1, -jnp.ones_like(near.along))
    offset = safe.minimum(1 - sign * near.along, _ratio(2 * _pick(across, size), _pick(across, half)))
    # not beyond the end of the edge
    half_along = _pick(near.axis, half)
    rest = jnp.where((half_along > 0) == forward, 1 - near.position, 1 + near.position)
    offset = safe.minimum(offset, _ratio(_pick(near.axis, size) * rest, half_along))
    return offset * sign, _pick(next1, differ) ^ _pick(next2, differ)


def _from_face(center: Vector, half: Vector, size: Vector, near: _Feature) -> tuple[Array, Array]:
    """From an end that faces a side: the second ball is over that side, where it or the segment ends."""
    inward = -near.along
    offset = jnp.full_like(near.along, 2)
    for k, (c, h, s) in enumerate(zip(center, half, size, strict=True)):
        point = c + h * near.along
        for sign in (1, -1):
            bound = safe.divide((sign * s - point) * inward, h, BEYOND)
            offset = jnp.where((near.face != k) & (bound > 0), safe.minimum(offset, bound), offset)
    return offset * inward, near.face >= 0
