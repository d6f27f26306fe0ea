"""Contacts of a signed distance field with primitive shapes and with other fields: one for each point of a search.

Searches start at fixed points in the common part of the boxes around both shapes and go down a function of both, each
by a number of steps along the gradient as far as a line search says, halving from one: first down A + B + |max(A, B)|,
then once down max(A, B). The lengths of the steps, chosen among powers of two, are not differentiated; the path that
they make is. A contact is made where both distances are at most zero at the end, whatever the margin; its distance is
the greater of the two, about half of the depth of the overlap, as in MuJoCo.
Source: `mjc_SDF` and `stepGradient` of engine_collision_sdf.c (3.8.1).
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.enums import GeomType
from diffsim.geometry.sdf.data import repeated
from diffsim.geometry.sdf.functions import PRIMITIVES, Field
from diffsim.geometry.shapes import Candidates, Shape, bounding_boxes, relative_pose
from diffsim.math import safe
from diffsim.math.vector import dot, mul_vec, mul_vec_t, scale

Array = jax.Array

# lengths of a line search: 1, 1/2, .. down to the first below 1e-4
TRIALS = 15
# part of the decrease that a linear function would have
DECREASE = 0.1


class FieldPair(NamedTuple):
    """Two fields with the parameters of each; points are in the frame of the second (the sdf geom).

    `turn` (3, 3) and `shift` (3,), m: from there to the frame of the first.
    """

    fields: tuple[Field, Field]
    first: Array
    second: Array
    turn: Array
    shift: Array

    def values(self, point: Array) -> tuple[Array, Array]:
        """Distances (...), m, of points (..., 3) from the second and from the first."""
        first, second = self.fields
        return second.distance(self.second, point), first.distance(self.first, self.to_first(point))

    def gradients(self, point: Array) -> tuple[Array, Array]:
        """Directions (..., 3) in which the two distances grow."""
        first, second = self.fields
        turned = first.gradient(self.first, self.to_first(point))
        return second.gradient(self.second, point), mul_vec_t(self._turn(point), turned)

    def to_first(self, point: Array) -> Array:
        """Points (..., 3) in the frame of the first."""
        return mul_vec(self._turn(point), point) + jnp.broadcast_to(self.shift, point.shape)

    def _turn(self, point: Array) -> Array:
        return jnp.broadcast_to(self.turn, (*point.shape, 3))

    def fixed(self) -> "FieldPair":
        """The same without derivatives."""
        return FieldPair(self.fields, *jax.lax.stop_gradient(tuple(self[1:])))


class Objective(NamedTuple):
    """What points go down: a function of both distances, and of these and both gradients its gradient."""

    value: Callable[[Array, Array], Array]
    slope: Callable[[Array, Array, Array, Array], Array]


def _collision_slope(a: Array, b: Array, slope1: Array, slope2: Array) -> Array:
    sign = jnp.where(jnp.maximum(a, b) > 0, 1.0, -1.0).astype(a.dtype)
    return slope1 + slope2 + scale(_greater(a, b, slope1, slope2), sign)


def _greater(a: Array, b: Array, slope1: Array, slope2: Array) -> Array:
    """The gradient of max(a, b)."""
    return jnp.where((a > b)[..., None], slope1, slope2)


COLLISION = Objective(lambda a, b: a + b + jnp.abs(safe.maximum(a, b)), _collision_slope)
INTERSECTION = Objective(safe.maximum, _greater)


def descend(pair: FieldPair, start: Array, steps: int) -> Array:
    """The points (n, 3) that `start` (n, 3) leads to, by `steps` steps and the last one."""

    def step(carry: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
        return _step(pair, COLLISION, *carry), None

    going = jnp.ones(start.shape[:-1], bool)
    (point, _), _ = jax.lax.scan(step, (start, going), length=steps)
    return _step(pair, INTERSECTION, point, going)[0]


def _step(pair: FieldPair, objective: Objective, point: Array, going: Array) -> tuple[Array, Array]:
    """Points after a step of those that are going, and which still go: one that gets worse has made its last step."""
    slope = objective.slope(*pair.values(point), *pair.gradients(point))
    length, better = _search(pair.fixed(), objective, *jax.lax.stop_gradient((point, slope)))
    return point - scale(slope, jnp.where(going, length, 0)), going & better


def _search(pair: FieldPair, objective: Objective, point: Array, slope: Array) -> tuple[Array, Array]:
    """The first length (n,) with enough decrease, else the last, and whether the value is no greater after it."""
    lengths = 0.5 ** jnp.arange(TRIALS, dtype=point.dtype)
    before = objective.value(*pair.values(point))[:, None]
    trial = point[:, None] - slope[:, None] * lengths[None, :, None]
    after = objective.value(*pair.values(trial))
    enough = after - before <= -DECREASE * lengths[None] * dot(slope, slope)[:, None]
    chosen = jnp.where(jnp.any(enough, axis=1), jnp.argmax(enough, axis=1), TRIALS - 1)
    reached = jnp.take_along_axis(after, chosen[:, None], 1)
    return lengths[chosen], (reached <= before)[:, 0]


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
