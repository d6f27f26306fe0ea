"""Contacts of signed distance fields: with primitive shapes and other fields, by a search; with meshes, by triangle.

Two fields A and B: gradient descents start at fixed points in the intersection of the boxes around both shapes. All
steps but the last minimize A + B + |max(A, B)|; the last one minimizes max(A, B). A line search begins each step with
the length 1 and halves it. The lengths are not differentiated, but the points to which the steps lead are. There is a
contact if both distances are at most zero at the end of a descent, whatever the margin. Its distance is the greater of
the two, about half the depth of the overlap, as in MuJoCo.

A mesh and a field: the deepest point of each triangle is searched for by the method of Frank and Wolfe. Searches begin
at the corners, because the first step from any other point leads to a corner. Points are convex combinations of the
corners. Their shares are not differentiated; distance, position and normal are. The distance is the value of the
field, and the normal has the direction opposite to its gradient. If there are too many triangles or points, the deepest
one is kept, and then those that are farthest from the ones already kept. MuJoCo's source intends the same, but 3.8.1
stops after finding 50 points, and counts a point again for every start from which it is reached.
Source: `mjc_SDF`, `stepGradient` and `mjc_MeshSDF` of engine_collision_sdf.c (3.8.1).
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import GeomType
from diffsim.geometry.hull.tables import Sizes, padded
from diffsim.geometry.sdf.data import FieldData, farthest_points, halton, repeated
from diffsim.geometry.sdf.functions import PRIMITIVES, Field
from diffsim.geometry.shapes import Candidates, Shape, bounding_boxes, relative_pose
from diffsim.math import safe
from diffsim.math.vector import cross, dot, mul_vec, mul_vec_t, scale, total
from diffsim.types.model import Model
from diffsim.types.topology import Topology, rows_of
from diffsim.xla.gather import pick
from diffsim.xla.loops import scan

# lengths of a line search: 1, 1/2, .. down to the first below 1e-4
TRIALS = 15
# a step is accepted if the objective falls by this fraction of the predicted decrease (Armijo's condition)
DECREASE = 0.1


class FieldPair(NamedTuple):
    """Two fields with the parameters of each; points are in the frame of the second (the sdf geom).

    `turn` (3, 3) and `shift` (3,), m: from the frame of the second to the frame of the first.
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
        """The pair without derivatives."""
        return FieldPair(self.fields, *jax.lax.stop_gradient(tuple(self[1:])))


class Objective(NamedTuple):
    """The function of both distances that a search minimizes; and its gradient, from both distances and gradients."""

    value: Callable[[Array, Array], Array]
    slope: Callable[[Array, Array, Array, Array], Array]


def _collision_slope(a: Array, b: Array, slope1: Array, slope2: Array) -> Array:
    sign = jnp.where(jnp.maximum(a, b) > 0, 1.0, -1.0).astype(a.dtype)
    return slope1 + slope2 + scale(_slope_of_max(a, b, slope1, slope2), sign)


def _slope_of_max(a: Array, b: Array, slope1: Array, slope2: Array) -> Array:
    """The gradient of max(a, b)."""
    return jnp.where((a > b)[..., None], slope1, slope2)


COLLISION = Objective(lambda a, b: a + b + jnp.abs(safe.maximum(a, b)), _collision_slope)
INTERSECTION = Objective(safe.maximum, _slope_of_max)


def descend(pair: FieldPair, start: Array, steps: int) -> Array:
    """End points (n, 3) of searches from `start` (n, 3): `steps` steps minimize COLLISION, one INTERSECTION."""

    def step(carry: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
        return _step(pair, COLLISION, *carry), None

    going = jnp.ones(start.shape[:-1], bool)
    (point, _), _ = scan(step, (start, going), length=steps)
    return _step(pair, INTERSECTION, point, going)[0]


def _step(pair: FieldPair, objective: Objective, point: Array, going: Array) -> tuple[Array, Array]:
    """The points after one step of the searches that are still `going`, and which searches go on after it.

    A search ends after a step that makes the objective worse. The length of a step is the first one that brings enough
    decrease, otherwise the shortest one. It is not differentiated.
    """
    slope = objective.slope(*pair.values(point), *pair.gradients(point))
    fixed, begin, downhill = pair.fixed(), *jax.lax.stop_gradient((point, slope))
    lengths = 0.5 ** jnp.arange(TRIALS, dtype=point.dtype)
    before = objective.value(*fixed.values(begin))[:, None]
    trial = begin[:, None] - downhill[:, None] * lengths[None, :, None]
    after = objective.value(*fixed.values(trial))
    enough = after - before <= -DECREASE * lengths[None] * dot(downhill, downhill)[:, None]
    chosen = jnp.where(jnp.any(enough, axis=1), jnp.argmax(enough, axis=1), TRIALS - 1)
    better = (jnp.take_along_axis(after, chosen[:, None], 1) <= before)[:, 0]
    return point - scale(slope, jnp.where(going, lengths[chosen], 0)), going & better


def field_pair(kind: GeomType) -> Callable[[Shape, Shape, Array], Candidates]:
    """Pair function of a shape of one type and an sdf geom, with one row for each start of a search."""
    return functools.partial(_field_rows, kind)


def _field_rows(kind: GeomType, first: Shape, second: Shape, margin: Array) -> Candidates:
    field1, parameters = field_of(kind, first)
    turn, shift = relative_pose(first, second)
    pair = FieldPair((field1, second.data.field), parameters, second.data.parameters, turn, shift)
    # the intersection of both boxes, in the frame of the first
    half1 = bounding_boxes(np.array([kind]), first.size[None])[0]
    center1, half1 = jnp.split(first.data.box, 2) if kind == GeomType.SDF else (jnp.zeros_like(half1), half1)
    center2, half2 = jnp.split(second.data.box, 2)
    center2 = mul_vec(turn, center2) + shift
    half2 = mul_vec(jnp.abs(turn), half2)
    low = safe.maximum(center1 - half1, center2 - half2)
    high = safe.minimum(center1 + half1, center2 + half2)
    apart = high < low
    starts = second.data.starts
    begin = low[None] + (high - low)[None] * starts - shift[None]
    point = descend(pair, mul_vec_t(_for_each(turn, starts), begin), len(second.data.steps))
    dist = safe.maximum(*pair.values(point))
    inside = dist <= 0
    valid = ~(apart[0] | apart[1] | apart[2]) & inside & ~repeated(point, inside)
    # the normal is perpendicular to the surface on which both distances are equal
    away, towards = (safe.normalize(slope) for slope in pair.gradients(point))
    mat = _for_each(second.mat, point)
    normal = mul_vec(mat, -safe.normalize(away - towards))
    pos = second.pos[None] + mul_vec(mat, point) - scale(normal, 0.5 * dist)
    return Candidates(dist, pos, normal, jnp.zeros_like(normal), valid)


def field_of(kind: GeomType, shape: Shape) -> tuple[Field, Array]:
    """The field of a shape, and its parameters."""
    if kind == GeomType.SDF:
        return shape.data.field, shape.data.parameters
    return PRIMITIVES[kind], shape.size


def _for_each(matrix: Array, point: Array) -> Array:
    """A matrix (3, 3), repeated for each point (..., 3)."""
    return jnp.broadcast_to(matrix, (*point.shape, 3))


# number of a mesh's triangles that are searched for their deepest points: more than the rows that are kept
TRIANGLES = 64
# number of rows of a mesh and a field (MuJoCo's mjMAXCONPAIR)
ROWS = 50
# number of a flex's triangles near the field that are searched for their deepest points; the rest count as left out
FLEX_TRIANGLES = 256


class Triangles(NamedTuple):
    """A mesh's triangles `corner` (f, 3, 3), m, in the frame of its geom; the ones not `real` (f,) are padding."""

    corner: Array
    real: Array


def triangle_sizes(topology: Topology, mesh: int) -> Sizes:
    """The padded number of a mesh's triangles."""
    return (padded(int(topology.mesh_facenum[mesh])),)


def triangles_of(model: Model, meshes: tuple[int, ...], sizes: Sizes) -> Triangles:
    """The triangles of some meshes, stacked."""
    topology = model.topology
    vertex = np.zeros((len(meshes), sizes[0], 3), np.int32)
    real = np.zeros((len(meshes), sizes[0]), bool)
    for row, mesh in enumerate(meshes):
        faces = topology.mesh_face[rows_of(topology, "mesh_face", mesh)]
        vertex[row, : len(faces)] = faces + topology.mesh_vertadr[mesh]
        real[row, : len(faces)] = True
    return Triangles(pick(model.mesh_vert, vertex), jnp.asarray(real))


def mesh_field(mesh: Shape, other: Shape, margin: Array) -> Candidates:
    """Pair function of a mesh and an sdf geom."""
    corner = seen_from(mesh, other)
    still = jax.lax.stop_gradient(corner)
    data = jax.lax.stop_gradient(other.data)
    middle = _middles(still)
    depth = data.field.distance(data.parameters, middle)
    near = mesh.data.real & (depth < _circumradius(still))
    if len(corner) > TRIANGLES:
        chosen, near = farthest_points(middle, depth, near, TRIANGLES)
        corner, still = corner[chosen], still[chosen]
    share, reached = _deepest(data, still)
    point = _mixed(corner, share).reshape(-1, 3)
    dist = data.field.distance(other.data.parameters, point)
    wanted = (near[:, None] & reached).reshape(-1) & (jax.lax.stop_gradient(dist) < 0)
    rows, valid = farthest_points(point, dist, wanted & ~repeated(point, wanted), ROWS)
    return _contacts_with(other, point[rows], dist[rows], valid, -1)


def _middles(corner: Array) -> Array:
    """Centroids (f, 3) of triangles (f, 3, 3)."""
    return scale(total([corner[:, k] for k in range(3)]), jnp.full(len(corner), 1 / 3, corner.dtype))


class TriangleRows(NamedTuple):
    """Rows (m,) of triangles and a field, the triangle of each row (m,), and how many near ones were skipped."""

    rows: Candidates
    triangle: Array
    left_out: Array


def field_triangles(other: Shape, corner: Array, most: int) -> TriangleRows:
    """The deepest point of each triangle (f, 3, 3, world) in a field; rows for the first `most` triangles inside it.

    As in MuJoCo, normals point out of the field. If a point is the deepest one of several triangles, it counts once.
    """
    data = jax.lax.stop_gradient(other.data)
    local = mul_vec_t(jnp.broadcast_to(other.mat, (*corner.shape, 3)), corner - other.pos[None, None])
    still = jax.lax.stop_gradient(local)
    middle = _middles(still)
    near = data.field.distance(data.parameters, middle) < _circumradius(still)
    place = jnp.arange(len(corner))
    left_out = jnp.zeros((), jnp.int32)
    if len(corner) > FLEX_TRIANGLES:
        place = jnp.nonzero(near, size=FLEX_TRIANGLES, fill_value=len(near))[0]
        left_out = jnp.maximum(jnp.sum(near, dtype=jnp.int32) - FLEX_TRIANGLES, 0)
        near, place = place < len(near), jnp.minimum(place, len(near) - 1)
        local, still = local[place], still[place]
    share, reached = _deepest(data, still)
    depth = jnp.where(reached, data.field.distance(data.parameters, _mixed(still, share)), jnp.inf)
    best = jnp.argmin(depth, axis=1)
    near = near & (jnp.take_along_axis(depth, best[:, None], 1)[:, 0] < 0)
    chosen = jnp.nonzero(near, size=most, fill_value=len(near))[0]
    exists = chosen < len(near)
    chosen = jnp.minimum(chosen, len(near) - 1)
    point = _mixed(local[chosen], jnp.take_along_axis(share, best[:, None, None], 1)[chosen])[:, 0]
    rows = _contacts_with(other, point, data.field.distance(other.data.parameters, point), exists, 1)
    return TriangleRows(rows._replace(valid=rows.valid & ~repeated(point, exists)), place[chosen], left_out)


def seen_from(mesh: Shape, other: Shape) -> Array:
    """Corners (f, 3, 3) of the mesh's triangles in the frame of another shape."""
    turn, shift = relative_pose(other, mesh)
    corner = mesh.data.corner
    return mul_vec(jnp.broadcast_to(turn, (*corner.shape, 3)), corner) + jnp.broadcast_to(shift, corner.shape)


def _circumradius(corner: Array) -> Array:
    """Circumradii (f,), m, of triangles (f, 3, 3). If a centroid is farther from a field, its triangle is outside."""
    sides = [corner[:, (k + 1) % 3] - corner[:, k] for k in range(3)]
    a, b, c = (safe.norm(side) for side in sides)
    twice = safe.norm(cross(sides[0], sides[1]))
    # for triangles without area, the sum of their sides
    return jnp.where(twice > 1e-15, a * b * c / jnp.maximum(2 * twice, 1e-15), a + b + c)


def _deepest(data: FieldData, corner: Array) -> tuple[Array, Array]:
    """End points of m searches on each triangle, as shares (f, m, 3) of its corners, and which of them count (f, m).

    MuJoCo starts its searches at the same places on each triangle. Without iterations, searches end where they start.
    """
    one, other = halton(max(1, len(data.starts)) + 1)[1:, :2].T
    one, other = (np.where(one + other > 1, 1 - shares, shares) for shares in (one, other))
    start = jnp.asarray(np.stack([1 - one - other, one, other], axis=1), corner.dtype)
    start = jnp.broadcast_to(start, (len(corner), *start.shape))
    if not len(data.steps):
        return start, jnp.ones(start.shape[:2], bool)
    reached = jnp.any(_lowest(data, corner, start), axis=1)
    share = jnp.broadcast_to(jnp.eye(3, dtype=corner.dtype), (len(corner), 3, 3))
    length = jnp.asarray(2 / (np.arange(1, len(data.steps)) + 2), corner.dtype)

    def step(share: Array, length: Array) -> tuple[Array, None]:
        return share + length * (_lowest(data, corner, share).astype(share.dtype) - share), None

    return scan(step, share, length)[0], reached


def _lowest(data: FieldData, corner: Array, share: Array) -> Array:
    """(f, m, 3) bool: the corner that is lowest along the gradient at the points with shares (f, m, 3)."""
    slope = data.field.gradient(data.parameters, _mixed(corner, share))
    heights = jnp.stack([dot(slope, jnp.broadcast_to(corner[:, None, k], slope.shape)) for k in range(3)], axis=2)
    return jnp.argmin(heights, axis=2)[..., None] == np.arange(3)[None, None]


def _mixed(corner: Array, share: Array) -> Array:
    """Points (f, m, 3) on triangles (f, 3, 3), from the shares (f, m, 3) of their corners."""
    return total([share[:, :, k, None] * corner[:, None, k] for k in range(3)])


def _contacts_with(other: Shape, point: Array, dist: Array, valid: Array, sign: int) -> Candidates:
    """Rows at points (n, 3): normals out of the field (`sign` 1) or into it (-1); invalid where it has no gradient."""
    slope = other.data.field.gradient(other.data.parameters, point)
    mat = jnp.broadcast_to(other.mat, (*point.shape, 3))
    normal = mul_vec(mat, sign * safe.normalize(slope))
    pos = other.pos[None] + mul_vec(mat, point) - scale(normal, 0.5 * dist)
    flat = jax.lax.stop_gradient(safe.norm(slope)) < 1e-15
    return Candidates(dist, pos, normal, jnp.zeros_like(normal), valid & ~flat)
