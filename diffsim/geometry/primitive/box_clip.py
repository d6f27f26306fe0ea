"""Candidate points of the overlap of a face and a parallelogram that is projected to it.

24 of them, in MuJoCo's order and with its rules for which count (`engine_collision_box.c`, 3.8.1): 16 crossings of
edges, 4 corners of the face, 4 corners of the parallelogram. Source: Ericson 2005, ch. 5.5.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.geometry.primitive.box_overlap import Overlap
from diffsim.math import safe
from diffsim.math.vector import dot
from diffsim.xla.barriers import one_by_one, short_scan, stored

Array = jax.Array

# corners of a parallelogram in units of its sides, and the corners that its edges join
CORNERS = np.array([[0, 0], [1, 0], [0, 1], [1, 1]])
EDGES = np.array([[0, 1], [0, 2], [1, 3], [2, 3]])


class Points(NamedTuple):
    """Candidates: signed distances (n,), points (n, 3) in the frame of the face, whether they count (n,)."""

    depth: Array
    point: Array
    valid: Array


class _Projection(NamedTuple):
    """What projects the parallelogram to the face: x -> x - n x_z `slope`; `rise` turns heights into distances.

    Candidates further from the face than `margin` (m) do not count.
    """

    overlap: Overlap
    margin: Array
    slope: Array
    rise: Array


def clip(overlap: Overlap, margin: Array) -> Points:
    """The candidate points of the overlap of face and projected parallelogram, 24 of them.

    Edge by edge and corner by corner: side by side, XLA for a CPU would compile the overlap into each of them.
    """
    slope = 1 / jnp.where(jnp.abs(overlap.normal[2]) > 1e-15, overlap.normal[2], 1)
    projection = _Projection(overlap, margin, slope, jnp.where(overlap.is_edge, slope * overlap.sign, 1))
    corners, *ends_of = (jnp.asarray(table, overlap.start.dtype) for table in (CORNERS, *CORNERS[EDGES.T]))
    edges = (*ends_of, jnp.asarray([0, 1, 1, 1]) < overlap.sides)
    ends = (corners, jnp.asarray([0, 1, 2, 2]) <= overlap.sides, jnp.arange(4) == 0)
    crossings, incident, points, flat = one_by_one(functools.partial(_edge_and_corner, projection), (edges, ends))
    crossings = Points(*(part.reshape(16, *part.shape[2:]) for part in crossings))
    alone = jnp.sum(crossings.valid) == 0
    below = _face_corners(projection, alone, points, flat)
    # corners beside the face count only where nothing else was found
    either, both, points_above = incident
    only = alone & (either | (jnp.sum(below.valid) == 0))
    above = points_above._replace(valid=points_above.valid & (both | (overlap.is_edge & only)))
    return Points(*(jnp.concatenate(parts) for parts in zip(crossings, below, above, strict=True)))


def _edge_and_corner(projection: _Projection, parts: tuple[tuple[Array, ...], ...]) -> tuple:
    """One part of the parallelogram: an edge and a corner, which is handed on, and its projection."""
    (begin, end, enabled), (corner, exists, lowest) = parts
    ends = _projected(projection, begin), _projected(projection, end)
    corner = _projected(projection, corner)
    ends, corner = stored((ends, corner))
    crossings = _crossings(projection, ends, enabled)
    return crossings, _incident(projection, corner, exists, lowest), *corner


def _projected(projection: _Projection, place: Array) -> tuple[Array, Array]:
    """A point of the parallelogram at (2,) in units of its sides, and along the normal of it in the face's plane."""
    overlap = projection.overlap
    point = overlap.start + place[0] * overlap.side1 + place[1] * overlap.side2
    return point, point - overlap.normal * (point[2] * projection.slope)


def _crossings(projection: _Projection, ends: tuple[tuple[Array, Array], ...], enabled: Array) -> Points:
    """Where one edge, projected, crosses the four sides of the face; its ends come with their projections."""
    (begin, flat_begin), (end, flat_end) = ends
    half = projection.overlap.half
    sweep, flat_sweep = end - begin, flat_end - flat_begin
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


def _face_corners(projection: _Projection, alone: Array, points: Array, flat: Array) -> Points:
    """The corners of the face, from the corners (4, 3) of the parallelogram and their projections (4, 3)."""
    side1, side2 = flat[1, :2] - flat[0, :2], flat[2, :2] - flat[0, :2]
    signs = jnp.asarray([[-1, -1], [-1, 1], [1, -1], [1, 1]], flat.dtype)
    determinant = side1[0] * side2[1] - side2[0] * side1[1]
    sides = (points[0], points[1] - points[0], points[2] - points[0], flat[0, :2], side1, side2)
    return short_scan(functools.partial(_face_corner, projection, alone, sides), determinant, signs)[1]


def _face_corner(
    projection: _Projection, alone: Array, sides: tuple[Array, ...], divisor: Array, signs: Array
) -> tuple[Array, Points]:
    """One corner of the face, and the point of the parallelogram over it."""
    overlap, margin = projection.overlap, projection.margin
    start, rise1, rise2, flat_start, side1, side2 = sides
    corner = signs * overlap.half
    offset = corner - flat_start
    inverse = safe.divide(jnp.ones_like(divisor), divisor)
    u = stored((offset[0] * side2[1] - offset[1] * side2[0]) * inverse)
    v = stored((offset[1] * side1[0] - offset[0] * side1[1]) * inverse)
    inside_u, inside_v = (u >= 0) & (u <= 1), (v >= 0) & (v <= 1)
    strictly = (u > 0) & (u < 1) & (v > 0) & (v < 1)
    near = (inside_u & inside_v) | (alone & (inside_u | inside_v))
    above = start + safe.clip(u, 0, 1) * rise1 + safe.clip(v, 0, 1) * rise2
    below = jnp.concatenate([corner, jnp.zeros_like(corner[:1])])
    squared = dot(below - above, below - above)
    length = stored(safe.sqrt(squared))
    depth = jnp.where(overlap.is_edge, jnp.where(above[2] < 0, -length, length), above[2])
    reached = jnp.where(overlap.is_edge, (above[2] <= 0) | (length <= margin), above[2] <= margin)
    valid = jnp.where(overlap.is_edge, near, strictly & (overlap.sides == 2)) & reached
    # after an edge contact MuJoCo divides by the squared length, where it kept the determinant
    divisor = jnp.where(overlap.is_edge & near, squared, divisor)
    return divisor, Points(depth, 0.5 * (below + above), valid)


def _incident(
    projection: _Projection, corner: tuple[Array, Array], exists: Array, lowest: Array
) -> tuple[Array, Array, Points]:
    """One corner of the parallelogram: whether it is over the face in one direction, in both, and the candidate."""
    (point, flat), overlap, margin = corner, projection.overlap, projection.margin
    inside = jnp.abs(flat[:2]) <= overlap.half
    strictly = jnp.abs(flat[:2]) < overlap.half
    # of face contacts the lowest corner is always a candidate
    over_face = lowest | (strictly[0] & strictly[1])
    clamped = safe.clip(flat[:2], -overlap.half, overlap.half)
    excess, raised = flat[:2] - clamped, point[2] * projection.rise
    length = safe.sqrt(dot(excess, excess) + raised * raised)
    depth = jnp.where(overlap.is_edge, jnp.where(point[2] < 0, -length, length), point[2])
    reached = jnp.where(overlap.is_edge, (point[2] <= 0) | (length <= margin), exists & (point[2] <= margin))
    base = jnp.where(overlap.is_edge, clamped, point[:2])
    middle = jnp.concatenate([0.5 * (base + point[:2]), 0.5 * point[2:]])
    both = jnp.where(overlap.is_edge, inside[0] & inside[1], over_face)
    return inside[0] | inside[1], both, Points(depth, middle, reached)
