"""Height fields against convex bodies: which prisms a body can touch, and one prism against the body.

Each cell has two triangles, lower right and upper left of the diagonal from its first to its last corner. A prism
stands between a triangle and the bottom of the base. All prisms in a window of cells under the body are examined. The
size of the window is static: the most cells that the body can span in any orientation, computed when the model is
loaded. MuJoCo allows 50 contacts per pair: if more prisms may touch, the deepest are kept, and the others are counted.
The choice of prisms has no derivatives; derivatives with respect to the heights of the model exist.

As in MuJoCo 3.8.1, the surface is raised by the margin, and the body is rounded by half of the margin. If the two
overlap, there is a contact, and its distance is minus the overlap. Without a margin, this is the signed distance.
Source: `mjc_ConvexHField` of `engine_collision_convex.c`.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import GeomType
from diffsim.geometry.hull.features import Feature, HullPair, difference
from diffsim.geometry.hull.pairs import closest, contact_row, searched
from diffsim.geometry.hull.polytope import PRISM, Hull, core, with_polygons
from diffsim.geometry.hull.sat import deepest_side
from diffsim.geometry.prism_distance import nearest_of_prism
from diffsim.geometry.shapes import Candidates, Shape, bounds, boxed, candidate, collider, lowest, stack
from diffsim.geometry.smooth.round_hulls import separate_round
from diffsim.math import safe
from diffsim.math.vector import dot, mul_mat, mul_vec, mul_vec_t, pack, scale, transpose, unpack
from diffsim.types.model import Model
from diffsim.types.topology import Topology
from diffsim.xla.barriers import stored

Sizes = tuple[int, ...]
# MuJoCo's mjMAXCONPAIR
PRISMS = 50
# (row, column) of the corners of a cell's triangles, counterclockwise from above, in MuJoCo's order of triangles
CORNERS = np.array([[[1, 0], [0, 0], [1, 1]], [[0, 0], [0, 1], [1, 1]]])
# the number of triangles at a corner of the grid; a body much smaller than a cell is never over more. Two by two cells
# have eight triangles, and two of these do not have the corner in the middle
AROUND = 6
# the corners between which a triangle rises along x, and along y
SLOPES = np.array([[[0, 2], [1, 0]], [[0, 1], [1, 2]]])


class Terrain(NamedTuple):
    """A height field, and the window of cells that is examined.

    Attributes:
      cells: (2,) number of cells along x and y.
      address: () of its first height in `heights`.
      size: (4,) m, half width in x and in y, height of the value 1, depth of the base.
      heights: (nhfielddata,) heights of all height fields, in units of size[2].
      columns, rows: (w,) and (h,), numbers 0, 1, ... of the columns and rows of the window.
      places: (k,) numbers 0, 1, ... of the prisms that are kept.
    """

    cells: Array
    address: Array
    size: Array
    heights: Array
    columns: Array
    rows: Array
    places: Array


# fields of Terrain that all height fields share
SHARED = ("heights", "columns", "rows", "places")


class Prism(NamedTuple):
    """A prism in the frame of its height field: `vert` (6, 3) m, first the base; whether it `exists` ()."""

    vert: Array
    exists: Array


class Window(NamedTuple):
    """First cell (2,) of the window, and one past the last (2,) under the body's bounds; all as (column, row)."""

    first: Array
    end: Array

    def holds(self, columns: Array, rows: Array) -> Array:
        """(h, w, 1) whether the triangles of columns (w,) and rows (h,) are under the bounds."""
        return ((columns[None] < self.end[0]) & (rows[:, None] < self.end[1]))[..., None]


def cells_spanned(fields: Mapping[str, Any], reach: np.ndarray) -> np.ndarray:
    """(n, nhfield, 3) largest numbers of columns, rows and triangles of each height field under balls of radii `reach`
    (n,), m."""
    reach = reach.reshape(-1, 1, 1)
    sizes = np.asarray(fields["hfield_size"], float).reshape(-1, 4)[:, :2]
    grid = [np.asarray(fields[name]).reshape(-1) for name in ("hfield_ncol", "hfield_nrow")]
    cells = np.maximum(np.stack(grid, axis=1) - 1, 0)
    width = 2 * sizes / np.maximum(cells, 1)
    # a reach of a whole number of cells, up to rounding, spans no further cell
    spanned = np.ceil(np.minimum(2 * reach / width[None] + 1 - 1e-6, cells[None])).astype(np.int32)
    triangles = 2 * spanned[..., 0] * spanned[..., 1]
    # the distance of a cell's corner from the diagonal that does not contain it; half of it is reserved for margins
    aside = np.prod(width, axis=1) / np.hypot(*width.T)
    small = (triangles == 2 * 2 * 2) & (4 * reach[..., 0] < aside[None])
    return np.dstack([spanned, np.where(small, AROUND, triangles)])


def window_sizes(spanned: Sizes, cells: Sizes) -> Sizes:
    """Numbers of columns and rows of the window, and of kept prisms, for a body that spans these cells of a field."""

    def rounded_up(count: int) -> int:
        """The count rounded up to three binary digits, so that windows of about the same size share a program."""
        step = 1 << max(0, (count - 1).bit_length() - 3)
        return -(-count // step) * step

    columns, rows = (min(rounded_up(span), most) for span, most in zip(spanned[:2], cells, strict=True))
    whole = 2 * columns * rows
    return columns, rows, AROUND if (whole, spanned[2]) == (8, AROUND) else min(PRISMS, whole)


def any_window(topology: Topology, field: int) -> Sizes:
    """The smallest sizes: a height field fits in windows of every size."""
    return 0, 0, 0


def terrains(model: Model, fields: tuple[int, ...], sizes: Sizes) -> Terrain:
    """Height fields stacked, with a window of some size."""
    topology = model.topology
    number = np.array(fields)
    cells = np.stack([topology.hfield_ncol[number], topology.hfield_nrow[number]], axis=1) - 1
    window = (jnp.arange(size, dtype=jnp.int32) for size in sizes)
    address = jnp.asarray(topology.hfield_adr[number], jnp.int32)
    return Terrain(jnp.asarray(cells, jnp.int32), address, model.hfield_size[number], model.hfield_data, *window)


def prisms_under_body(kind: GeomType, field: Shape, body: Shape, margin: Array) -> tuple[Shape, Array]:
    """The k prisms of a height field that a body may touch, in MuJoCo's order, and the number of prisms left out.

    As in MuJoCo, the surface is raised by the margin.
    """
    terrain: Terrain = field.data
    rotation = mul_mat(transpose(field.mat), body.mat)
    local = Shape(mul_vec_t(field.mat, body.pos - field.pos), rotation, body.size, body.data)
    place, touches, left_out = _choose_prisms(kind, *jax.lax.stop_gradient((terrain, local, margin)))
    vert = jax.vmap(prism_at, (None, None, 0))(terrain, margin, place)
    frames = (jnp.broadcast_to(part, (len(vert), *part.shape)) for part in field[:3])
    return Shape(*frames, data=Prism(vert, touches)), left_out


def prism_at(terrain: Terrain, margin: Array, place: Array) -> Array:
    """Vertices (6, 3) of the prism with column, row and triangle `place` (3,)."""
    corner = jnp.where(place[2] > 0, CORNERS[1], CORNERS[0])
    # stored: heights are gathered at these indices, and each of the six corners reads the top
    row, column = stored((place[1] + corner[:, 0], place[0] + corner[:, 1]))
    top = stored([*_plane_coordinates(terrain, column, row), _height(terrain, column, row) + margin])
    bottom = [*top[:2], jnp.broadcast_to(-terrain.size[3], row.shape)]
    return pack([jnp.concatenate(column) for column in zip(bottom, top, strict=True)])


def _plane_coordinates(terrain: Terrain, column: Array, row: Array) -> list[Array]:
    """x and y, m, of grid points."""
    axes = zip(_widths(terrain), unpack(terrain.size), (column, row), strict=False)
    return [width * index - half for width, half, index in axes]


def _widths(terrain: Terrain) -> list[Array]:
    """Width of a cell in x and y, m."""
    cells = unpack(jnp.maximum(terrain.cells, 1))
    return [2 * half / count for half, count in zip(unpack(terrain.size), cells, strict=False)]


def _height(terrain: Terrain, column: Array, row: Array) -> Array:
    """Heights, m, at grid points; outside the grid, the height of the nearest rim point."""
    column, row = (jnp.clip(x, 0, most) for x, most in zip((column, row), unpack(terrain.cells), strict=True))
    place = terrain.address + row * (terrain.cells[0] + 1) + column
    return terrain.heights.at[place].get(mode="promise_in_bounds") * terrain.size[2]


def _choose_prisms(kind: GeomType, terrain: Terrain, body: Shape, margin: Array) -> tuple[Array, Array, Array]:
    """Column, row, triangle (k, 3) of prisms under a body, which it may touch (k,), number () of prisms left out."""
    lower, upper = bounds(kind, body)
    window = window_under(terrain, lower, upper)
    columns = window.first[0] + terrain.columns
    rows = window.first[1] + terrain.rows
    normal, point, top = window_triangles(terrain, columns, rows, margin)
    above = lowest(*boxed(kind, body), normal.reshape(-1, 3)).reshape(top.shape) - dot(normal, point)
    # the gap along the normal of the top; MuJoCo also leaves out prisms lower than the lowest point of the body. The
    # body is rounded by half the margin
    gap = jnp.maximum(above - 0.5 * margin, lower[2] - top)
    gap = jnp.where(window.holds(columns, rows), gap, jnp.inf).reshape(-1)
    index = terrain.places
    if (len(gap), len(index)) == (8, AROUND):
        # a body that is small compared with a cell: the six triangles around the middle corner of two by two cells
        aside = _beyond_diagonals(terrain, (kind, body), columns[1:], rows[1:]) - 0.5 * margin
        gap = gap.at[np.array([3, 4])].max(aside)
        # a body that reaches into triangle 3 or 4 is over neither triangle of the cell across the corner
        pairs = [jnp.where(gap[far] < 0, far, near) for far, near in ((4, 2), (3, 5))]
        index = jnp.stack([*index[:2], *pairs, *(index[4:] + 2)]).astype(jnp.int32)
    elif len(index) < len(gap):
        index = jnp.sort(jax.lax.top_k(-gap, len(index))[1]).astype(jnp.int32)
    near = gap < 0
    cell = index // 2
    place = jnp.stack([columns[cell % len(columns)], rows[cell // len(columns)], index % 2], axis=1)
    touches = near[index]
    return place, touches, cells_left_out(terrain, window) + jnp.sum(near) - jnp.sum(touches)


def window_under(terrain: Terrain, lower: Array, upper: Array) -> Window:
    """The window of a body with these lower and upper bounds (3,), m."""
    half = terrain.size[:2]
    cells = terrain.cells
    first, end = (jnp.clip((edge[:2] + half) / (2 * half) * cells, 0, cells) for edge in (lower, upper))
    return Window(jnp.floor(first).astype(jnp.int32), jnp.ceil(end).astype(jnp.int32))


def _beyond_diagonals(terrain: Terrain, body: tuple[GeomType, Shape], column: Array, row: Array) -> Array:
    """(2,) distances, m, of a body from two triangles near a corner of the grid, across the diagonals of their cells.

    They are the lower right triangle of the cell below and right of the corner, and the upper left triangle of the cell
    above and left of it.
    """
    (x,), (y,), (right, up) = *_plane_coordinates(terrain, column, row), _widths(terrain)
    length = jnp.sqrt(right * right + up * up)
    normal = pack([up / length, -right / length, jnp.zeros_like(up)])
    distance = right * up / length + dot(normal, pack([x, y, jnp.zeros_like(x)])) * jnp.asarray([1, -1], up.dtype)
    return distance + lowest(*boxed(*body), jnp.stack([-normal, normal]))


def cells_left_out(terrain: Terrain, window: Window) -> Array:
    """The number of prisms that are under the bounds of a body but not in the window."""
    columns, rows = unpack(jnp.maximum(window.end - window.first, 0))
    return 2 * (columns * rows - jnp.minimum(columns, len(terrain.columns)) * jnp.minimum(rows, len(terrain.rows)))


def window_triangles(terrain: Terrain, columns: Array, rows: Array, margin: Array) -> tuple[Array, Array, Array]:
    """The triangles (h, w, 2) of a window: unit normal and a point (.., 3) of each plane, greatest height, m."""
    grid_columns, grid_rows = (jnp.append(index, index[-1] + 1) for index in (columns, rows))
    z = _height(terrain, grid_columns[None], grid_rows[:, None]) + margin
    x, y = _plane_coordinates(terrain, grid_columns[None], grid_rows[:, None])
    widths = _widths(terrain)
    parts = []
    for corners, slopes in zip(CORNERS.tolist(), SLOPES.tolist(), strict=True):
        here = [(slice(r, r + len(rows)), slice(c, c + len(columns))) for r, c in corners]
        heights = [z[place] for place in here]
        rise = [(heights[end] - heights[start]) / width for (start, end), width in zip(slopes, widths, strict=True)]
        upward = safe.normalize(pack([-rise[0], -rise[1], jnp.ones_like(rise[0])]))
        point = pack([x[:, here[0][1]], y[here[0][0]], heights[0]])
        parts.append((upward, point, jnp.maximum(jnp.maximum(heights[0], heights[1]), heights[2])))
    normal, point, top = (jnp.stack(both, axis=2) for both in zip(*parts, strict=True))
    return normal, point, top


def prism_pair(kind: GeomType) -> Callable[[Shape, Shape, Array], Candidates]:
    """Pair function of a prism and a body of a type, with one row."""

    @collider
    def row(field: Shape, body: Shape, margin: Array) -> Candidates:
        rows = rounded_by_margin(PRISM_ROWS[kind](kind, field, body), margin)
        return rows._replace(valid=rows.valid & field.data.exists)

    return row


def rounded_by_margin(rows: Candidates, margin: Array) -> Candidates:
    """Rows of a prism with a body that is rounded by half the margin."""
    dist = rows.dist - 0.5 * margin
    pos = rows.pos - scale(rows.normal, 0.25 * jnp.broadcast_to(margin, dist.shape))
    touches = (margin <= 0) | (jax.lax.stop_gradient(dist) < 0)
    return Candidates(dist, pos, rows.normal, rows.tangent, rows.valid & touches)


def _round_row(kind: GeomType, field: Shape, body: Shape) -> Candidates:
    """A prism and an ellipsoid or a cylinder."""
    dist, pos, normal = separate_round(kind, body, with_polygons(field.data.vert, PRISM), field)
    return stack([candidate(dist, pos, -normal)])


def _hull_row(kind: GeomType, field: Shape, body: Shape) -> Candidates:
    """A prism and a rounded hull."""
    body_hull, radius = core(kind, body)
    hull = body_hull.whole
    prism = with_polygons(field.data.vert, PRISM)
    pair = difference(prism, hull, field, body)
    contact = closest(pair, functools.partial(prism_feature, *jax.lax.stop_gradient((prism, hull))))
    return stack([contact_row(field, contact, jnp.zeros_like(radius), radius)])


def prism_feature(prism: Hull, hull: Hull, pair: HullPair) -> Feature:
    """The feature closest to the origin: by search or, if the two overlap, the best of all sides."""
    return searched(pair, lambda fixed, _: deepest_side(fixed, prism, hull))


def _ball_row(kind: GeomType, field: Shape, ball: Shape) -> Candidates:
    """A prism and a ball."""
    center = mul_vec_t(field.mat, ball.pos - field.pos)
    radius = ball.size[0]
    near = nearest_of_prism(field.data.vert, center)
    dist = near.dist - radius
    local = near.point + scale(near.normal, 0.5 * dist)
    return stack([candidate(dist, field.pos + mul_vec(field.mat, local), mul_vec(field.mat, near.normal))])


# (type, height field, body) -> the row of a prism
PRISM_ROWS: dict[GeomType, Callable[[GeomType, Shape, Shape], Candidates]] = {
    GeomType.SPHERE: _ball_row,
    GeomType.ELLIPSOID: _round_row,
    GeomType.CYLINDER: _round_row,
    GeomType.CAPSULE: _hull_row,
    GeomType.BOX: _hull_row,
    GeomType.MESH: _hull_row,
}
