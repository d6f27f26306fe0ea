"""The contacts of a plane and a mesh since MuJoCo 3.13: the lowest vertex and the face that lies on the plane.

Of the polygons at the lowest vertex, the one whose normal is nearest to the downward direction touches the plane. It
contributes its corners; of more than four, the lowest vertex and three others that span a large area are kept, found
as in MuJoCo by turning the quadrilateral around the polygon while its area grows.
Source: MuJoCo changelog 3.13; `plane_convex` and `_hull4` of MuJoCo Warp 4.0; C MuJoCo 4.0.0 as a black box.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.geometry.hull.polytope import Hull
from diffsim.geometry.primitive.primitives import plane_point
from diffsim.geometry.shapes import Candidates, Shape
from diffsim.math.vector import cross, dot, mul_vec, mul_vec_t
from diffsim.xla.gather import pick_existing, rows_at
from diffsim.xla.loops import while_loop

# number of corners that are kept
KEPT = 4


def plane_hull(plane: Shape, mesh: Shape, margin: Array) -> Candidates:
    """The lowest vertex of the hull, then up to three corners of the lowest face at it that are below the center."""
    hull = mesh.data.whole
    downward = -mul_vec_t(mesh.mat, plane.axis)
    lower, upper = hull.box
    reach = dot(downward, 0.5 * (lower + upper)) + dot(jnp.abs(downward), 0.5 * (upper - lower))
    near = dot(plane.axis, mesh.pos - plane.pos) - reach < margin
    # which vertices touch is discrete
    down = jax.lax.stop_gradient(downward)
    lowest = hull.furthest(down, None, near)
    corners, exists = _kept(hull, _lowest_side(hull, lowest, down), lowest)
    points = mesh.pos[None] + mul_vec(mesh.mat[None], hull.vertices(corners))
    rows = jax.vmap(plane_point, (None, 0))(plane, points)
    below = mul_vec_t(mesh.mat[None], points - mesh.pos[None])
    first = np.arange(KEPT) == 0
    counts = first | (exists & (rows.dist < margin) & (dot(below, down[None]) >= 0))
    return rows._replace(valid=jax.lax.stop_gradient(counts))


def _lowest_side(hull: Any, vertex: Array, down: Array) -> Array:
    """The polygon at a vertex whose normal is nearest to a direction (3,); -1 for a vertex without polygons."""
    numbers, normals = hull.sides_at(vertex)
    at_vertex = numbers >= 0
    if isinstance(hull, Hull):
        # all polygons of the hull: keep the ones that have the vertex as a corner
        used = jnp.arange(len(hull.side.entry)) < hull.side.start[-1]
        seen = jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum((hull.side.entry == vertex) & used)])
        at_vertex &= seen[hull.side.start[1:]] > seen[hull.side.start[:-1]]
    heights = jnp.where(at_vertex, mul_vec(jax.lax.stop_gradient(normals), down), -jnp.inf)
    return jnp.where(jnp.any(at_vertex), numbers[jnp.argmax(heights)], -1)


def _kept(hull: Any, side: Array, vertex: Array) -> tuple[Array, Array]:
    """(vertices (4,) of the corners that are kept of a polygon, which exist (4,)); the first is `vertex`."""
    row: Array = hull.side.row(jnp.maximum(side, 0))
    row = jnp.where(side >= 0, row, jnp.where(np.arange(len(row)) == 0, vertex, -1))
    count = jnp.sum(row >= 0)
    # corners in order from `vertex`
    order = jnp.argmax(row == vertex) + np.arange(len(row))
    row = rows_at(row, order % jnp.maximum(count, 1))
    places = jnp.arange(KEPT, dtype=jnp.int32)
    if len(row) > KEPT:
        corner = jax.lax.stop_gradient(hull.vertices(row))
        places = jnp.where(count > KEPT, _wide(corner, count.astype(jnp.int32)), places)
    exists = jnp.arange(KEPT) < count
    return jnp.where(exists, rows_at(row, jnp.minimum(places, len(row) - 1)), vertex), exists


class _Turn(NamedTuple):
    """The state of the search: places (4,) of the corners, their area, and which corner moves next (0: none)."""

    places: Array
    area: Array
    moving: Array


def _wide(corner: Array, count: Array) -> Array:
    """Places (4,) of corners (k, 3) that span a large area, the first of them place 0.

    The fourth corner moves on while the area grows. After each of its moves, the third corner does the same, and after
    each move of the third corner, the second does.
    """

    def area(places: Array) -> Array:
        a, b, c, d = (pick_existing(corner, places[k]) for k in range(KEPT))
        normal = cross(a - c, b - d)
        return jnp.sqrt(dot(normal, normal))

    def turn(state: _Turn) -> _Turn:
        moved = jnp.where(np.arange(KEPT) == state.moving, (state.places + 1) % count, state.places)
        larger = area(moved)
        grows = larger > state.area
        # when a corner stops, the next corner moves on
        last = state.moving == KEPT - 1
        given = jnp.where(last, 0, state.moving + 1)
        return _Turn(
            places=jnp.where(grows, moved, state.places),
            area=jnp.where(grows, larger, state.area),
            moving=jnp.where(grows, jnp.maximum(state.moving - 1, 1), given),
        )

    start = jnp.arange(KEPT, dtype=jnp.int32)
    begin = _Turn(start, area(start), jnp.where(count > KEPT, KEPT - 1, 0).astype(jnp.int32))
    return while_loop(lambda state: state.moving > 0, turn, begin).places
