"""Contacts of a signed distance field with primitive shapes and with other fields: one for each point of a search.

Searches start at fixed points in the common part of the boxes around both shapes. A contact is made where both
distances are at most zero at the end, whatever the margin; its distance is the greater of the two, about half of the
depth of the overlap, as in MuJoCo. Source: `mjc_SDF` of engine_collision_sdf.c (3.8.1).
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.enums import GeomType
from diffsim.geometry.bounds import bounding_boxes
from diffsim.geometry.hull.sample import repeated
from diffsim.geometry.sdf.descent import FieldPair, descend
from diffsim.geometry.sdf.primitives import PRIMITIVES, Field
from diffsim.geometry.shapes import Candidates, Shape, relative_pose
from diffsim.math import safe
from diffsim.math.vector import mul_vec, mul_vec_t, scale

Array = jax.Array


def field_pair(kind: GeomType) -> Callable[[Shape, Shape, Array], Candidates]:
    """Pair function of a shape of a type and an sdf geom, with a row for each start of a search."""
    return functools.partial(_field_rows, kind)


def _field_rows(kind: GeomType, first: Shape, second: Shape, margin: Array) -> Candidates:
    field1, parameters = field_of(kind, first)
    turn, shift = relative_pose(first, second)
    pair = FieldPair((field1, second.data.field), parameters, second.data.parameters, turn, shift)
    low, high = _common_box(turn, shift, _box(kind, first), second.data.box)
    starts = second.data.starts
    begin = low[None] + (high - low)[None] * starts - shift[None]
    point = descend(pair, mul_vec_t(_many(turn, starts), begin), len(second.data.steps))
    dist = safe.maximum(*pair.values(point))
    inside = dist <= 0
    valid = _touching(low, high) & inside & ~repeated(point, inside)
    return _contacts(pair, second, point, dist, valid)


def field_of(kind: GeomType, shape: Shape) -> tuple[Field, Array]:
    """The field of a shape, and its parameters."""
    if kind == GeomType.SDF:
        return shape.data.field, shape.data.parameters
    return PRIMITIVES[kind], shape.size


def _box(kind: GeomType, shape: Shape) -> Array:
    """Center and half sides (6,), m, of the box around a shape in its frame."""
    if kind == GeomType.SDF:
        return shape.data.box
    half = bounding_boxes(np.array([kind]), shape.size[None])[0]
    return jnp.concatenate([jnp.zeros_like(half), half])


def _common_box(turn: Array, shift: Array, first: Array, second: Array) -> tuple[Array, Array]:
    """Lower and upper corner (3,), in the frame of the first, of what two boxes have in common."""
    center, half = mul_vec(turn, second[:3]) + shift, mul_vec(jnp.abs(turn), second[3:])
    low = safe.maximum(first[:3] - first[3:], center - half)
    return low, safe.minimum(first[:3] + first[3:], center + half)


def _touching(low: Array, high: Array) -> Array:
    """Whether two boxes have something in common."""
    apart = high < low
    return ~(apart[0] | apart[1] | apart[2])


def _contacts(pair: FieldPair, second: Shape, point: Array, dist: Array, valid: Array) -> Candidates:
    """Rows at points (n, 3); the normal is across the surface on which both distances are equal."""
    away, towards = (safe.normalize(slope) for slope in pair.gradients(point))
    mat = _many(second.mat, point)
    normal = mul_vec(mat, -safe.normalize(away - towards))
    pos = second.pos[None] + mul_vec(mat, point) - scale(normal, 0.5 * dist)
    return Candidates(dist, pos, normal, jnp.zeros_like(normal), valid)


def _many(matrix: Array, point: Array) -> Array:
    """One matrix for each point."""
    return jnp.broadcast_to(matrix, (*point.shape, 3))
