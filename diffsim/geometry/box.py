"""Spheres and capsules against boxes, in the frame of the box.

A capsule touches with a ball at the point of its segment that is nearest to the box, and with a second ball further
along the segment where it runs over a face or along an edge. Which second point MuJoCo takes is a convention, kept
here (`engine_collision_box.c`, 3.8.1); distances then follow from the balls in closed form.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.geometry.shapes import Candidates, Shape, candidate, choose, direction, stack
from diffsim.math import safe
from diffsim.math.argmin import argmin
from diffsim.math.ranked import number_of, ranked
from diffsim.math.vector import dot, mul_vec, mul_vec_t, scale
from diffsim.math.xla import stored

Array = jax.Array

# a parameter beyond every segment, where the true bound is infinite
BEYOND = 1e6

# the corners (signs) that the four edges along x, y and z start from, zero along the edge itself
EDGES = np.array(
    [
        [[-1 if k != axis and not corner >> k & 1 else int(k != axis) for k in range(3)] for corner in corners]
        for axis, corners in enumerate(([0, 2, 4, 6], [0, 1, 4, 5], [0, 1, 2, 3]))
    ]
)


def sphere_box(sphere: Shape, box: Shape, margin: Array) -> Candidates:
    """The nearest point of the box; from inside the nearest face."""
    center = mul_vec_t(box.mat, sphere.pos - box.pos)
    return stack([_ball_row(center, sphere.size[0], box)])


def capsule_box(capsule: Shape, box: Shape, margin: Array) -> Candidates:
    """Two balls on the capsule's segment; the second is not valid where the segment points away from the box."""
    center, axis = stored((mul_vec_t(box.mat, capsule.pos - box.pos), mul_vec_t(box.mat, capsule.axis)))
    half = scale(axis, capsule.size[1])
    nearest = stored(_nearest_feature(center, half, box.size))
    offset, exists = stored(_second_ball(center, axis, half, box.size, nearest))
    along = jnp.stack([nearest.along, nearest.along + offset])
    rows = jax.vmap(_ball_row, (0, None, None))(center[None] + along[:, None] * half[None], capsule.size[0], box)
    return rows._replace(valid=jnp.stack([jnp.ones_like(exists), exists]))


def _ball_row(center: Array, radius: Array, box: Shape) -> Candidates:
    """A ball, centre in the frame of the box, against the box."""
    inside, normal = _nearest_face(center, box.size)
    gap = safe.clip(center, -box.size, box.size) - center
    apart, length = direction(gap, normal)
    outside = jax.lax.stop_gradient(dot(gap, gap)) > (1e-30 if gap.dtype == jnp.float64 else 1e-24)
    normal, length = choose(outside, (apart, length), (normal, -inside))
    dist = length - radius
    pos = center + scale(normal, radius + 0.5 * dist)
    return candidate(dist, box.pos + mul_vec(box.mat, pos), mul_vec(box.mat, normal))


def _nearest_face(center: Array, size: Array) -> tuple[Array, Array]:
    """(depth, inward normal) of the face that a point inside the box leaves first."""
    depths = jnp.stack([size + center, size - center], axis=-1).reshape(6)
    _, number = argmin(jnp.abs(depths), lambda late, early, _: late < early)
    inward, outward = (number == 2 * np.arange(3) + k for k in range(2))
    normal = jnp.where(inward, 1, jnp.where(outward, -1, 0)).astype(size.dtype)
    return dot(jnp.abs(normal), size) + dot(normal, center), normal


class _Feature(NamedTuple):
    """What of the box is nearest to a segment: `along` in [-1, 1] on the segment, and a face, an edge or a corner.

    For an edge or corner: `axis` of the edge, `corner` (3,) tells on which side of each axis it lies, `position` in
    [-1, 1] on the edge, `end` whether that is a corner. For a face: `face` is its axis, -1 inside the box.
    """

    along: Array
    is_face: Array
    face: Array
    axis: Array
    corner: Array
    position: Array
    end: Array


def _nearest_feature(center: Array, half: Array, size: Array) -> _Feature:
    """The nearest of both ends of the segment, where they face a side of the box, and all twelve edges."""
    squared, along, face = _facing_end(center, half, size)
    edge_squared, edge_along, position, side = (part.reshape(12) for part in _edges(center, half, size))
    # a later feature must be nearer by more than rounding
    rank = functools.partial(ranked, slack=1e-15 if center.dtype == jnp.float64 else 1e-9, count=13)
    index = number_of(jnp.minimum(rank(squared, 0), jnp.min(rank(edge_squared, 1 + np.arange(12)))), 13)
    edge, is_face = jnp.maximum(index - 1, 0), index == 0
    axis = edge >> 2
    corner = jnp.where(jnp.arange(3) == axis, side[edge] > 0, jnp.asarray(EDGES.reshape(12, 3) > 0)[edge])
    along = jnp.where(is_face, along, edge_along[edge])
    return _Feature(along, is_face, face, axis, corner, position[edge], side[edge] != 0)


def _facing_end(center: Array, half: Array, size: Array) -> tuple[Array, Array, Array]:
    """(squared distance, -1 or 1, face) of the nearer end of the segment that faces a side; far if neither does."""
    best = (jnp.full_like(center[0], BEYOND), jnp.ones_like(center[0]), jnp.full((), -1, jnp.int32))
    for end in (-1.0, 1.0):
        point = jax.lax.stop_gradient(center + end * half)
        out = jnp.abs(point) > size
        excess = jnp.where(out, jnp.abs(point) - size, 0)
        number = out[0].astype(jnp.int32) + out[1] + out[2]
        face = jnp.where(out[2], 2, jnp.where(out[1], 1, jnp.where(out[0], 0, -1))).astype(jnp.int32)
        squared = dot(excess, excess)
        best = choose((number <= 1) & (squared < best[0]), (squared, jnp.full_like(best[1], end), face), best)
    return best


def _edges(center: Array, half: Array, size: Array) -> tuple[Array, Array, Array, Array]:
    """Closest points of the segment and the edges, each (3, 4): squared distance, position on the segment and on the
    edge, and at which end of the edge (-1, 0, 1) that is.

    As for two capsules, with the edge as first segment; edges parallel to the segment are far away.
    """
    base = EDGES.astype(np.float64)
    ma, mb = size * size, -size * half
    mc = dot(half, half)
    u = size * center
    # v = half . (base - center)
    v = -dot(half, center) + sum(jnp.asarray(base[:, :, k], size.dtype) * (size[k] * half[k]) for k in range(3))
    determinant = ma * mc - mb * mb
    limit = 1e-15 if center.dtype == jnp.float64 else 1e-15 + 1e-6 * ma * mc
    parallel = jax.lax.stop_gradient(jnp.abs(determinant) < limit)
    ma, mb, u = ma[:, None], mb[:, None], u[:, None]
    inverse = (1 / jnp.where(parallel, 1, determinant))[:, None]
    free1, free2 = stored(((mc * u - mb * v) * inverse, (ma * v - mb * u) * inverse))
    x1 = safe.clip(free1, -1, 1)
    side = jnp.sign(jnp.where(jnp.abs(free1) > 1, free1, 0))
    x2 = stored(jnp.where(jnp.abs(free1) > 1, safe.divide(v - mb * x1, mc), free2))
    end = safe.clip(x2, -1, 1)
    again = stored(safe.divide(u - mb * end, jnp.broadcast_to(ma, end.shape)))
    moved = jnp.abs(x2) > 1
    x1 = jnp.where(moved, safe.clip(again, -1, 1), x1)
    side = jnp.where(moved & (jnp.abs(again) > 1), jnp.sign(again), side)
    squared = jnp.zeros_like(x1)
    for k in range(3):
        along_edge = jnp.asarray(np.arange(3) == k, size.dtype)[:, None]
        corner = jnp.asarray(base[:, :, k], size.dtype) + along_edge * x1
        squared = squared + (corner * size[k] - center[k] - half[k] * end) ** 2
    far = jnp.where(parallel[:, None], BEYOND, jax.lax.stop_gradient(squared))
    return stored((far, end, x1, jax.lax.stop_gradient(side).astype(jnp.int32)))


def _pick(index: Array, values: Array) -> Array:
    """values[index] of three, without a gather."""
    return jnp.where(index == 0, values[0], jnp.where(index == 1, values[1], values[2]))


def _ratio(numerator: Array, denominator: Array) -> Array:
    """numerator / |denominator|, beyond every segment where the denominator vanishes."""
    return safe.divide(numerator, jnp.abs(denominator), BEYOND)


def _second_ball(center: Array, axis: Array, half: Array, size: Array, near: _Feature) -> tuple[Array, Array]:
    """(offset on the segment from the first ball, whether there is a second), for each kind of feature."""
    corner = _from_corner(axis, half, size, near)
    edge = _from_edge(axis, half, size, near)
    face = _from_face(center, half, size, near)
    return choose(near.is_face, face, choose(near.end, corner, edge))


def _from_corner(axis: Array, half: Array, size: Array, near: _Feature) -> tuple[Array, Array]:
    """Along an edge of the corner, or over one of its faces, until the box or the segment ends."""
    # axes along which the segment's direction and the corner disagree
    differ = (half > 0) ^ near.corner
    number = differ[0].astype(jnp.int32) + differ[1] + differ[2]
    reverse = number == 2
    odd = differ ^ reverse
    which = jnp.where(odd[0], 0, jnp.where(odd[1], 1, 2))
    sign = jnp.where(reverse, -1, 1).astype(half.dtype)
    ahead, behind = 1 - sign * near.along, 1 + sign * near.along
    overshoot = _ratio(2 * size, half)
    along_edge = safe.minimum(ahead, _pick(which, overshoot))
    for k in range(3):
        behind = jnp.where(which == k, behind, safe.minimum(behind, overshoot[k]))
    steep = jax.lax.stop_gradient(_pick(which, axis)) ** 2 > 0.5
    return jnp.where(steep, along_edge * sign, -behind * sign), (number == 1) | (number == 2)


def _from_edge(axis: Array, half: Array, size: Array, near: _Feature) -> tuple[Array, Array]:
    """Over the face of the edge that the segment is less inclined to."""
    differ = (half > 0) ^ near.corner
    next1, next2 = (jnp.where(near.axis < 3 - k, near.axis + k, near.axis + k - 3) for k in (1, 2))
    steepness = jax.lax.stop_gradient(jnp.abs(axis))
    across = jnp.where(_pick(next1, steepness) > _pick(next2, steepness), next1, next2)
    exists = _pick(next1, differ) ^ _pick(next2, differ)
    forward = _pick(across, differ)
    sign = jnp.where(forward, 1, -1).astype(half.dtype)
    offset = safe.minimum(1 - sign * near.along, _ratio(2 * _pick(across, size), _pick(across, half)))
    # until the end of the edge
    same = (_pick(near.axis, half) > 0) == forward
    rest = jnp.where(same, 1 - near.position, 1 + near.position)
    offset = safe.minimum(offset, _ratio(_pick(near.axis, size) * rest, _pick(near.axis, half)))
    return offset * sign, exists


def _from_face(center: Array, half: Array, size: Array, near: _Feature) -> tuple[Array, Array]:
    """From the end that faces a side, over that side, until it or the segment ends."""
    inward = -near.along
    point = center + scale(half, near.along)
    offset = jnp.full_like(near.along, 2)
    for k in range(3):
        for sign in (1, -1):
            bound = safe.divide((sign * size[k] - point[k]) * inward, half[k], BEYOND)
            offset = jnp.where((near.face != k) & (bound > 0), safe.minimum(offset, bound), offset)
    return offset * inward, near.face >= 0
