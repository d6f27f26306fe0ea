"""Flex elements (segments, triangles and tetrahedra with a radius) against geoms and against each other.

As in MuJoCo, a segment is a capsule against spheres, capsules and boxes. For a triangle, the rows depend on the geom. A
sphere, the ends of a capsule or the corners of a box touch the nearest point of the triangle. In addition, the vertices
of the triangle touch the segment of a capsule and the faces of a box. So a capsule has up to 5 rows, and a box up to
11. All other pairs are convex hulls and have one row.
Source: `engine_collision_primitive.c` of 3.8.1 for the list of rows; Ericson 2005, ch. 5.1.5, for nearest points.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import GeomType
from diffsim.geometry.hfield import (
    Terrain,
    cells_left_out,
    prism_at,
    prism_feature,
    rounded_by_margin,
    window_triangles,
    window_under,
)
from diffsim.geometry.hull.features import Feature, HullPair
from diffsim.geometry.hull.many_pairs import HullPairs, rows_if_near
from diffsim.geometry.hull.pairs import closest, contact_row
from diffsim.geometry.hull.polytope import CORNERS, PRISM, Hull, core, with_polygons, without_sides
from diffsim.geometry.hull.sat import closest_side
from diffsim.geometry.primitive.box import capsule_box
from diffsim.geometry.primitive.primitives import capsule_capsule, sphere_capsule
from diffsim.geometry.shapes import (
    Candidates,
    Shape,
    ball_ball,
    bounding_boxes,
    candidate,
    collider,
    relative_pose,
    stack,
    unit_x,
)
from diffsim.geometry.smooth.round_hulls import ROUND, separate_round
from diffsim.math import safe
from diffsim.math.rotation import frame_from_z
from diffsim.math.vector import cross, dot, mul_vec, mul_vec_t, scale, unpack

SPHERE, CAPSULE, BOX = GeomType.SPHERE, GeomType.CAPSULE, GeomType.BOX
# the sides of a triangle (its front and its back), and of a tetrahedron of positive volume
SIDES = {3: [[0, 1, 2], [0, 2, 1]], 4: [[0, 2, 1], [0, 1, 3], [1, 2, 3], [0, 3, 2]]}
# the faces of a tetrahedron, each with the opposite vertex
FACES = [[0, 1, 2, 3], [0, 2, 3, 1], [0, 3, 1, 2], [1, 3, 2, 0]]
# a nearest point that is closer to an end than this fraction of the segment counts as the end
END = 1e-15


class PrismsUnder(NamedTuple):
    """The prisms (p,) that may touch each of some elements (n,).

    Attributes:
      place: (n, p, 3) column, row and triangle.
      near: (n, p) whether each prism is near.
      left_out: (n,) number of cells under an element that were not examined.
    """

    place: Array
    near: Array
    left_out: Array


class ElementCollider(NamedTuple):
    """A pair function (shape, vertices (k, 3), radius, margin) -> rows, and the number of these rows.

    A function that `searches` takes a fifth argument: whether shape and element are near. Without a function, shape and
    element are hulls (`HullPairs`).
    """

    function: Callable[..., Candidates] | None
    rows: int
    searches: bool = False


def element_collider(kind: GeomType, dim: int) -> ElementCollider:
    """The pair function of a geom and an element with `dim` + 1 vertices."""
    if dim == 1 and kind in SEGMENT:
        return SEGMENT[kind]
    if dim == 2 and kind in TRIANGLE:
        return TRIANGLE[kind]
    return ElementCollider(functools.partial(round_element, kind) if kind in ROUND else None, 1, True)


def element_gap(kind: GeomType, shape: Shape, vertices: Array) -> Array:
    """Lower bounds (n,), m, of the distances between a geom and elements (n, k, 3), from boxes in the geom's frame."""
    half = bounding_boxes(np.array([kind]), shape.size[None])[0]
    lower, upper = shape.data.box if kind == GeomType.MESH else (-half, half)
    local = mul_vec_t(jnp.broadcast_to(shape.mat, (*vertices.shape, 3)), vertices - shape.pos[None, None])
    gap = jnp.maximum(jnp.min(local, axis=1) - upper[None], lower[None] - jnp.max(local, axis=1))
    return jnp.maximum(jnp.maximum(gap[:, 0], gap[:, 1]), gap[:, 2])


def _segment(function: Callable, order: int, shape: Shape, vertices: Array, radius: Array, margin: Array) -> Candidates:
    """A segment as a capsule, which is the first (order -1) or second (1) argument of a pair function."""
    rows = function(*(shape, _capsule(vertices, radius))[::order], margin)
    return rows._replace(normal=order * rows.normal)


def _capsule(vertices: Array, radius: Array) -> Shape:
    """A segment (2, 3) with a radius, as a capsule."""
    along = vertices[0] - vertices[1]
    frame = frame_from_z(safe.normalize(along, (0.0, 0.0, 1.0)))
    size = jnp.stack([radius, 0.5 * safe.norm(along), jnp.zeros_like(radius)])
    return Shape(0.5 * (vertices[0] + vertices[1]), jnp.stack([frame[1], frame[2], frame[0]], axis=1), size)


def nearest_of_triangle(vertices: Array, point: Array) -> Array:
    """The point of a triangle (3, 3) nearest to a point (3,), m; the choice of face or side is not differentiated."""
    side1 = vertices[1] - vertices[0]
    side2 = vertices[2] - vertices[0]
    away = point - vertices[0]
    normal = cross(side1, side2)
    squared = dot(normal, normal)
    second = safe.divide(dot(cross(side1, away), normal), squared)
    first = safe.divide(dot(cross(away, side2), normal), squared)
    within = jax.lax.stop_gradient((first >= 0) & (second >= 0) & (first + second <= 1) & (squared > 0))
    inside = vertices[0] + scale(side1, first) + scale(side2, second)
    ends = vertices[np.array([1, 2, 0])]
    sweep = ends - vertices
    back = point[None] - vertices
    share = safe.clip(safe.divide(dot(back, sweep), dot(sweep, sweep)), 0, 1)
    on_sides = vertices + scale(sweep, share)
    gap = jax.lax.stop_gradient(on_sides - point[None])
    return jnp.where(within, inside, on_sides[jnp.argmin(dot(gap, gap))])


def _ball_triangle(center: Array, size: Array, vertices: Array, radius: Array) -> Candidates:
    """The candidate of a ball and the nearest point of a triangle, without the axis of rows."""
    nearest = nearest_of_triangle(vertices, center)
    between = unpack(center)
    return candidate(*ball_ball(between, size, unpack(nearest), radius, unit_x(between[0])))


@collider
def sphere_triangle(shape: Shape, vertices: Array, radius: Array, margin: Array) -> Candidates:
    """The sphere against the nearest point of the triangle."""
    return stack([_ball_triangle(shape.pos, shape.size[0], vertices, radius)])


@collider
def capsule_triangle(shape: Shape, vertices: Array, radius: Array, margin: Array) -> Candidates:
    """Both ends of the capsule against the triangle; the triangle's vertices against the segment between the ends."""
    half = scale(shape.axis, shape.size[1])
    ends = [_ball_triangle(shape.pos + way, shape.size[0], vertices, radius) for way in (-half, half)]

    def of_vertex(vertex: Array) -> Candidates:
        share = safe.divide(dot(vertex - shape.pos + half, 2 * half), 4 * dot(half, half))
        nearest = unpack(shape.pos - half + scale(2 * half, share))
        row = ball_ball(nearest, shape.size[0], unpack(vertex), radius, unit_x(nearest[0]))
        beside = jax.lax.stop_gradient((share > END) & (share < 1 - END))
        return candidate(*row, valid=beside)

    return stack([*ends, *(of_vertex(vertices[k]) for k in range(3))])


@collider
def box_triangle(shape: Shape, vertices: Array, radius: Array, margin: Array) -> Candidates:
    """Each vertex against the box face that is nearest to it; the corners of the box against the triangle."""

    def of_vertex(vertex: Array) -> Candidates:
        local = mul_vec_t(shape.mat, vertex - shape.pos)
        beyond = jnp.abs(local) - shape.size
        axis = jax.lax.stop_gradient(jnp.argmax(beyond))
        dist = beyond[axis] - radius
        normal = shape.mat[:, axis] * jnp.where(jax.lax.stop_gradient(local[axis]) > 0, 1, -1)
        near = jax.lax.stop_gradient(jnp.all(beyond <= margin + radius))
        return candidate(dist, vertex - scale(normal, radius + 0.5 * dist), normal, valid=near)

    corners = shape.pos[None] + mul_vec(shape.mat[None], jnp.asarray(CORNERS, shape.size.dtype) * shape.size[None])
    none = jnp.zeros_like(radius)
    rows = [of_vertex(vertices[k]) for k in range(3)]
    return stack([*rows, *(_ball_triangle(corners[k], none, vertices, radius) for k in range(8))])


def hull_elements(kind: GeomType, shape: Shape, vertices: Array, radius: Array, margin: Array) -> HullPairs:
    """A hull and elements (n, k, 3)."""
    hull, size = core(kind, shape)
    near = jax.lax.stop_gradient(element_gap(kind, shape, vertices) <= radius + margin)
    turn = jnp.broadcast_to(shape.mat, (*vertices.shape, 3))
    pos = jnp.broadcast_to(shape.pos, (len(vertices), 3))
    return HullPairs(hull.whole.vert, mul_vec_t(turn, vertices - pos[:, None]), pos, shape.mat, (size, radius), near)


def round_element(
    kind: GeomType, shape: Shape, vertices: Array, radius: Array, margin: Array, near: Array
) -> Candidates:
    """The closest points of an ellipsoid or a cylinder and an element, which is a rounded hull."""
    center = jnp.mean(vertices, axis=0)
    frame = Shape(center, jnp.eye(3, dtype=center.dtype), jnp.zeros_like(center))
    dist, pos, normal = separate_round(kind, shape, element_hull(oriented(vertices) - center[None]), frame, near)
    pos = pos - scale(normal, 0.5 * radius)
    if kind == GeomType.CYLINDER and len(vertices) == 3:
        normal = wall_normal(shape, pos, normal)
    return candidate(dist - radius, pos, normal, valid=near)


def prisms_under(field: Shape, vertices: Array, radius: Array, margin: Array) -> PrismsUnder:
    """The prisms of a height field near elements (n, k, 3), in MuJoCo's order; not differentiated.

    As in MuJoCo, a prism counts if it rises to the lowest vertex of the element; the radius is not included here.
    """
    terrain: Terrain = field.data

    def of_element(corner: Array) -> PrismsUnder:
        lower, upper = jnp.min(corner, axis=0), jnp.max(corner, axis=0)
        window = window_under(terrain, lower, upper)
        columns = window.first[0] + terrain.columns
        rows = window.first[1] + terrain.rows
        normal, point, top = window_triangles(terrain, columns, rows, margin)
        heights = [dot(normal, jnp.broadcast_to(vertex, normal.shape)) for vertex in corner]
        gap = functools.reduce(jnp.minimum, heights) - dot(normal, point) - radius - 0.5 * margin
        near = window.holds(columns, rows) & (gap < 0) & (top >= lower[2])
        grid = jnp.broadcast_arrays(columns[None, :, None], rows[:, None, None], np.arange(2, dtype=np.int32))
        return PrismsUnder(jnp.stack(grid, axis=-1).reshape(-1, 3), near.reshape(-1), cells_left_out(terrain, window))

    turn = jnp.broadcast_to(field.mat, (*vertices.shape, 3))
    return jax.vmap(of_element)(mul_vec_t(turn, vertices - field.pos[None, None]))


def prism_element(field: Shape, place: Array, vertices: Array, radius: Array, margin: Array, near: Array) -> Candidates:
    """The row of a prism, given its column, row and triangle (3,), and an element (k, 3)."""
    middle = jnp.mean(vertices, axis=0)
    frame = Shape(middle, jnp.eye(3, dtype=middle.dtype), jnp.zeros_like(middle))
    local = oriented(vertices) - middle[None]
    pair = HullPair(prism_at(field.data, margin, place), local, *relative_pose(field, frame))

    def feature_of(fixed: HullPair) -> Feature:
        return prism_feature(with_polygons(fixed.first, PRISM), rimmed(fixed.second), fixed)

    row = contact_row(field, closest(pair, feature_of, near), jnp.zeros_like(radius), radius)
    return rounded_by_margin(row._replace(valid=near), margin)


def pair_rows(dims: tuple[int, int]) -> int:
    """The number of rows of two elements with `dims` + 1 vertices."""
    return 2 if dims == (1, 1) else 1


def element_pairs(
    first: Array, second: Array, radii: tuple[Array, Array], margin: Array, near: Array
) -> HullPairs | Candidates:
    """Elements with vertices (n, k, 3) and (n, l, 3) against each other.

    Returns:
      Hulls if one element is a tetrahedron, otherwise the rows (n * `pair_rows`,).
    """
    if first.shape[1] == second.shape[1] == 2:

        def capsules(first: Array, second: Array) -> Candidates:
            return capsule_capsule(_capsule(first, radii[0]), _capsule(second, radii[1]), margin)

        rows = jax.vmap(capsules)(first, second)
        return rows._replace(valid=rows.valid & near[:, None]).one_list()
    pos = jnp.mean(first, axis=1)
    one = first - pos[:, None]
    other = second - pos[:, None]
    upright = jnp.eye(3, dtype=pos.dtype)
    if max(first.shape[1], second.shape[1]) > 3:
        return HullPairs(one, other, pos, upright, radii, near)

    def by_sides(fixed: HullPair) -> Feature:
        return closest_side(fixed, rimmed(fixed.first), rimmed(fixed.second))

    def row(one: Array, other: Array, pos: Array, near: Array) -> Candidates:
        frame = Shape(pos, upright, jnp.zeros_like(pos))
        contact = closest(HullPair(one, other, upright, jnp.zeros_like(pos)), by_sides, near)
        return contact_row(frame, contact, *radii)._replace(valid=near)

    return rows_if_near(near, lambda: jax.vmap(row)(one, other, pos, near), pos.dtype)


def vertex_element(vertex: Array, element: Array, radius: Array) -> Candidates:
    """A vertex (3,), as a ball, against a segment or triangle (k, 3) of the same radius."""
    ball = Shape(vertex, jnp.eye(3, dtype=vertex.dtype), jnp.broadcast_to(radius, (3,)))
    function = element_collider(SPHERE, len(element) - 1).function
    assert function is not None
    return function(ball, element, radius, jnp.zeros_like(radius))


def faces_of_tetrahedron(vertices: Array, radius: Array) -> Candidates:
    """The plane of each face of a tetrahedron (4, 3) against the opposite vertex, which must stay two radii inside.

    The normal points from the face to the vertex, into the tetrahedron. The rows are for vertices 3, 1, 2 and 0.
    """
    corner = vertices[np.array(FACES)]
    outward = safe.normalize(cross(corner[:, 1] - corner[:, 0], corner[:, 2] - corner[:, 0]))
    height = dot(corner[:, 3] - corner[:, 0], outward)
    pos = corner[:, 3] - scale(outward, 0.5 * height)
    return Candidates(-height - 2 * radius, pos, -outward, jnp.zeros_like(pos), jnp.ones(len(FACES), bool))


def wall_normal(cylinder: Shape, pos: Array, normal: Array) -> Array:
    """The normal (3,) of a contact with a triangle at `pos`: the wall's, unless a cap is much nearer, as in MuJoCo."""
    local = mul_vec_t(cylinder.mat, pos - cylinder.pos)
    flat = jnp.stack([local[0], local[1], jnp.zeros_like(local[2])])
    size = cylinder.size
    height = jnp.abs(local[2])
    to_cap = jnp.abs(size[1] - height)
    to_wall = jnp.abs(size[0] - safe.norm(flat))
    cap = jax.lax.stop_gradient((height > 0.95 * size[1]) | (to_cap < 0.25 * to_wall))
    return jnp.where(cap, normal, mul_vec(cylinder.mat, safe.normalize(flat)))


def oriented(vertices: Array) -> Array:
    """An element (k, 3); the vertices of a tetrahedron are reordered so that its volume is positive."""
    if len(vertices) < 4:
        return vertices
    still = jax.lax.stop_gradient(vertices)
    volume = dot(cross(still[1] - still[0], still[2] - still[0]), still[3] - still[0])
    return jnp.where(volume < 0, vertices[np.array([0, 2, 1, 3])], vertices)


def element_hull(vertices: Array) -> Hull:
    """The hull of an element around the origin; a tetrahedron must be `oriented`."""
    if len(vertices) > 2:
        return with_polygons(vertices, SIDES[len(vertices)])
    around = frame_from_z(safe.normalize(vertices[1] - vertices[0], (0.0, 0.0, 1.0)))
    return without_sides(vertices, jnp.stack([around[1], around[2], -around[1], -around[2]]))


def rimmed(vertices: Array) -> Hull:
    """The hull of an element. A triangle (3, 3) also gets a side of no height along each edge, its rim.

    Without the rim, the normals on both sides of an edge would be opposite, and no shortest arc would join them. With
    the rim, the half circle between them becomes two quarter circles.
    """
    flat = element_hull(vertices)
    if len(vertices) != 3:
        return flat
    along = safe.normalize(jnp.roll(vertices, -1, axis=0) - vertices)
    rim = cross(along, jnp.broadcast_to(flat.outward[0], along.shape))
    edge = np.array([[0, 1], [1, 2], [2, 0]] * 2)
    side = 2 + np.arange(3)
    flank = np.concatenate([np.stack([0 * side, side], axis=1), np.stack([side, 0 * side + 1], axis=1)])
    return flat._replace(
        facet=jnp.concatenate([flat.facet, jnp.full((3, 3), -1, flat.facet.dtype)]),
        outward=jnp.concatenate([flat.outward, rim]),
        edge=jnp.asarray(edge, jnp.int32),
        flank=jnp.asarray(flank, jnp.int32),
    )


SEGMENT = {
    SPHERE: ElementCollider(functools.partial(_segment, sphere_capsule, 1), 1),
    CAPSULE: ElementCollider(functools.partial(_segment, capsule_capsule, 1), 2),
    BOX: ElementCollider(functools.partial(_segment, capsule_box, -1), 2),
}
TRIANGLE = {
    SPHERE: ElementCollider(sphere_triangle, 1),
    CAPSULE: ElementCollider(capsule_triangle, 5),
    BOX: ElementCollider(box_triangle, 11),
}
