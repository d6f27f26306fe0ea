"""Surfaces made of triangles for ray casting: meshes and height fields.

For each type, a search (not differentiated) finds the first facet that a ray hits. The exact distance then follows from
the facet's plane, which is a closed form of vertices, heights and sizes (leaves of the model). bvh_search.py searches
meshes.

A height field is solid: it has two triangles per cell on top, vertical sides below its rim, and a base box below height
0. A ray visits the cells along its path in order, from its entry into the box of the heights to its exit, and stops at
the first triangle. Numbers of facets: 2 (row columns + column) + 0 or 1 is the lower right or upper left triangle of a
cell; -1 to -6 are the faces -x, +x, -y, +y, -z, +z (height 0) of the base; each also stands for the side above it.
Source: Amanatides and Woo 1987.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import GeomType
from diffsim.geometry.rays.bvh import trees
from diffsim.geometry.rays.bvh_search import Queries, search_meshes
from diffsim.geometry.rays.surfaces import box_distance, through_box
from diffsim.math import safe
from diffsim.math.vector import cross, dot, pack, scale, unpack
from diffsim.types.model import Model
from diffsim.xla.gather import pick
from diffsim.xla.loops import while_loop

Ints = np.ndarray | Array

AXES = ((0, 1), (1, 0))


class Field(NamedTuple):
    """The height field of each ray: rows, columns and address of its heights (...), size (..., 4) in m.

    `heights`: the heights of all fields, in units of size[2].
    """

    nrow: Ints
    ncol: Ints
    address: Ints
    size: Array
    heights: Array

    def height(self, row: Array, column: Array) -> Array:
        """Height, m, at grid points."""
        place = self.address + row * self.ncol + column
        return self.heights.at[place].get(mode="promise_in_bounds") * self.size[..., 2]

    @property
    def cells(self) -> tuple[Array, Array]:
        """Number of cells along x and y; 0 for a single column or row."""
        return jnp.asarray(self.ncol) - 1, jnp.asarray(self.nrow) - 1

    @property
    def width(self) -> list[Array]:
        """Width of a cell in x and in y, m."""
        return [2 * self.size[..., axis] / jnp.maximum(count, 1) for axis, count in enumerate(self.cells)]


class _Line(NamedTuple):
    """A ray over the grid: column, row and height are start + distance * slope."""

    start: list[Array]
    slope: list[Array]


def search_hfields(field: Field, origin: Array, direction: Array) -> tuple[Array, Array]:
    """Distance along rays (..., 3) in the fields' frames, infinite for a miss, and the facet that is hit."""
    distance, feature = _base(field, origin, direction)
    cells = (field.cells[0] > 0) & (field.cells[1] > 0)
    for side in (*_sides(field, origin, direction), _surface(field, origin, direction)):
        nearer = cells & (side[0] < distance)
        distance, feature = jnp.where(nearer, side[0], distance), jnp.where(nearer, side[1], feature)
    return distance, feature


def _base(field: Field, origin: Array, direction: Array) -> tuple[Array, Array]:
    """Distance and facet on the box below height 0."""
    x, y, _, depth = unpack(field.size)
    shape = origin.shape
    half = jnp.broadcast_to(pack([x, y, depth / 2]), shape)
    middle = jnp.broadcast_to(pack([0 * x, 0 * y, -depth / 2]), shape)
    distance = box_distance(half, origin - middle, direction)
    point = origin - middle + scale(direction, distance)
    gap = unpack(jnp.abs(jnp.abs(point) - half))
    axis = jnp.where(gap[2] <= jnp.minimum(gap[0], gap[1]), 2, jnp.where(gap[1] <= gap[0], 1, 0))
    beyond = jnp.take_along_axis(point, axis[..., None], -1)[..., 0] > 0
    return jnp.where(distance < 0, jnp.inf, distance), (-1 - 2 * axis - beyond).astype(jnp.int32)


def _sides(field: Field, origin: Array, direction: Array) -> list[tuple[Array, Array]]:
    """Distances and facets on the four sides between height 0 and the rim."""
    start = unpack(origin)
    along = unpack(direction)
    size = unpack(field.size)
    surfaces = []
    for axis, other in AXES:
        for sign in (-1, 1):
            steep = jnp.where(along[axis] == 0, 1, along[axis])
            distance = (sign * size[axis] - start[axis]) / steep
            across, height = (start[k] + distance * along[k] for k in (other, 2))
            below = height <= _rim(field, axis, sign, across + size[other])
            hit = below & (height >= 0) & (jnp.abs(across) <= size[other]) & (distance >= 0) & (along[axis] != 0)
            feature = jnp.full(hit.shape, -1 - 2 * axis - (sign > 0), jnp.int32)
            surfaces.append((jnp.where(hit, distance, jnp.inf), feature))
    return surfaces


def _rim(field: Field, axis: int, sign: int, along: Array) -> Array:
    """Height of the rim on one side, at the distance `along` (m) from the lower end of this side."""
    cells = field.cells[1 - axis]
    place = along / field.width[1 - axis]
    first = jnp.clip(jnp.floor(place), 0, jnp.maximum(cells - 1, 0)).astype(jnp.int32)
    fixed = jnp.broadcast_to(field.cells[axis] if sign > 0 else 0, first.shape)
    ends = [jnp.minimum(first + step, cells) for step in (0, 1)]
    low, high = (field.height(*((end, fixed) if axis == 0 else (fixed, end))) for end in ends)
    return low + (high - low) * (place - first)


def _surface(field: Field, origin: Array, direction: Array) -> tuple[Array, Array]:
    """Distance and facet among the triangles on top, by a walk over the cells."""
    x, y, top, _ = unpack(field.size)
    enter, leave = through_box([-x, -y, 0 * top], [x, y, top], unpack(origin), unpack(direction))
    widths = [*field.width, jnp.ones_like(top)]
    corner = [x, y, 0 * top]
    start = [(place + low) / width for place, low, width in zip(unpack(origin), corner, widths, strict=True)]
    line = _Line(start, [along / width for along, width in zip(unpack(direction), widths, strict=True)])
    places = [jnp.floor(line.start[axis] + enter * line.slope[axis]) for axis in range(2)]
    last = [jnp.maximum(count - 1, 0) for count in field.cells]
    column, row = (jnp.clip(place, 0, most).astype(jnp.int32) for place, most in zip(places, last, strict=True))

    def going(walk: Walk) -> Array:
        return jnp.any(walk[4])

    def step(walk: Walk) -> Walk:
        column, row, distance, feature, on = walk
        crossed, which = _in_cell(field, line, column, row)
        hit = on & (crossed < jnp.inf)
        nearest = jnp.where(hit, crossed, distance), jnp.where(hit, which, feature)
        until, column, row = _next_cell(line, column, row)
        inside = [(place >= 0) & (place < count) for place, count in zip((column, row), field.cells, strict=True)]
        return column, row, *nearest, on & ~hit & (until <= leave) & inside[0] & inside[1]

    nothing = jnp.full(enter.shape, jnp.inf, enter.dtype), jnp.zeros(enter.shape, jnp.int32)
    end = while_loop(going, step, (column, row, *nothing, enter <= leave))
    return end[2], end[3]


# column and row of the cell, distance and facet so far, whether the ray goes on
Walk = tuple[Array, Array, Array, Array, Array]


def _next_cell(line: _Line, column: Array, row: Array) -> tuple[Array, Array, Array]:
    """The distance at which the ray leaves a cell, and column and row of the next cell."""
    ahead = []
    for cell, start, slope in zip((column, row), line.start, line.slope, strict=False):
        distance = (cell + (slope > 0) - start) / jnp.where(slope == 0, 1, slope)
        ahead.append(jnp.where(slope == 0, jnp.inf, distance))
    steps = [jnp.where(slope > 0, 1, -1) for slope in line.slope[:2]]
    by_column = ahead[0] <= ahead[1]
    after = column + jnp.where(by_column, steps[0], 0), row + jnp.where(by_column, 0, steps[1])
    return jnp.minimum(*ahead), *after


def _in_cell(field: Field, line: _Line, column: Array, row: Array) -> tuple[Array, Array]:
    """Distance to the nearer triangle of a cell, infinite if the ray hits neither, and its facet."""
    column, row = (
        jnp.clip(cell, 0, jnp.maximum(count - 1, 0)) for cell, count in zip((column, row), field.cells, strict=True)
    )
    h00, h10, h01, h11 = (
        field.height(jnp.minimum(row + up, field.cells[1]), jnp.minimum(column + right, field.cells[0]))
        for up in (0, 1)
        for right in (0, 1)
    )
    first = _cross_plane(line, (column, row), h00, h10 - h00, h11 - h10)
    second = _cross_plane(line, (column, row), h00, h11 - h01, h01 - h00)
    slack = 16 * jnp.finfo(h00.dtype).eps * (1 + jnp.maximum(*field.cells))
    lower = jnp.where(_within(first, first[2], first[1], slack), first[0], jnp.inf)
    upper = jnp.where(_within(second, second[1], second[2], slack), second[0], jnp.inf)
    feature = 2 * (row * field.ncol + column) + (upper < lower)
    return jnp.minimum(lower, upper), feature.astype(jnp.int32)


def _cross_plane(
    line: _Line, cell: tuple[Array, Array], corner: Array, right: Array, up: Array
) -> tuple[Array, Array, Array, Array]:
    """(distance, u, v, whether there is a crossing) of a ray and the plane corner + right u + up v over a cell."""
    u, v = (start - place for start, place in zip(line.start, cell, strict=False))
    du, dv, dz = line.slope
    above = line.start[2] - corner - right * u - up * v
    sinking = right * du + up * dv - dz
    distance = above / jnp.where(sinking == 0, 1, sinking)
    return distance, u + distance * du, v + distance * dv, (sinking != 0) & (distance >= 0)


def _within(crossing: tuple[Array, Array, Array, Array], less: Array, more: Array, slack: Array) -> Array:
    """Whether there is a crossing with 0 <= less <= more <= 1."""
    return crossing[3] & (less >= -slack) & (more - less >= -slack) & (more <= 1 + slack)


# for each face, its outward normal and two edges, counterclockwise about the normal
FACES = np.stack([(s * np.eye(3)[k], np.eye(3)[k - 2], s * np.eye(3)[k - 1]) for k in range(3) for s in (-1, 1)])


class Lines(NamedTuple):
    """k rays in the frames of m geoms: `origin`, `direction` (k, m, 3), and which of them are `wanted` (k, m)."""

    origin: Array
    direction: Array
    wanted: Array


class Faceted(NamedTuple):
    """A geom type made of facets.

    `search(model, assets, lines)`: distance (k, m), infinite for a miss, and facet (k, m), given the assets (m,) of the
    geoms. `corners(model, assets, facets)`: three points (k, 3, 3), m, of facets (k,) of assets (k,), in the geom's
    frame, counterclockwise from outside.
    """

    search: Callable[[Model, np.ndarray | Array, Lines], tuple[Array, Array]]
    corners: Callable[[Model, Array, Array], Array]


def mesh_facets(model: Model, assets: np.ndarray | Array, lines: Lines) -> tuple[Array, Array]:
    """The first triangle of each mesh on each ray."""
    places = trees(model.topology).places[:, 0]
    first = jnp.asarray(places)[assets] if isinstance(assets, Array) else places[assets]
    root = jax.lax.stop_gradient(pick(model.mesh_boxes, first))
    lower, upper = (unpack(corners[None]) for corners in (root[:, :3].min(axis=2), root[:, 3:].max(axis=2)))
    enter, leave = through_box(lower, upper, unpack(lines.origin), unpack(lines.direction))
    shape = enter.shape
    wanted = lines.wanted & (enter <= leave)
    mesh = jnp.broadcast_to(jnp.asarray(assets, jnp.int32)[None], shape)
    flat = Queries(lines.origin.reshape(-1, 3), lines.direction.reshape(-1, 3), mesh.reshape(-1), wanted.reshape(-1))
    distance, facet = search_meshes(model, flat)
    return distance.reshape(shape), facet.reshape(shape)


def mesh_corners(model: Model, assets: Array, facets: Array) -> Array:
    """Corners of facets, which are numbers of triangles in the leaves of `trees`."""
    corners = trees(model.topology).corners.reshape(-1, 3)
    return model.mesh_vert[jnp.asarray(corners)[facets]]


def hfield_facets(model: Model, assets: np.ndarray | Array, lines: Lines) -> tuple[Array, Array]:
    """The first triangle or face of each height field on each ray."""
    field = jax.lax.stop_gradient(_fields(model, assets[None]))
    distance, facet = search_hfields(field, lines.origin, lines.direction)
    return jnp.where(lines.wanted, distance, jnp.inf), facet


def hfield_corners(model: Model, assets: Array, facets: Array) -> Array:
    """Three points of a facet (a triangle on top, or the plane of a face), numbered as at the top of the file."""
    field = _fields(model, assets)
    cell = jnp.maximum(facets, 0) // 2
    upper = jnp.maximum(facets, 0) % 2
    row = cell // field.ncol
    column = cell % field.ncol
    second = (column + 1, row + upper)
    third = (column + 1 - upper, row + 1)
    width, length = field.width
    x, y, _, depth = unpack(field.size)
    points = [pack([c * width - x, r * length - y, field.height(r, c)]) for c, r in ((column, row), second, third)]
    # a point of a face: the face -z is at -depth, the face +z at height 0
    face = jnp.maximum(-1 - facets, 0)
    normal, edge1, edge2 = unpack(jnp.asarray(FACES, field.size.dtype)[face], axis=1)
    middle = normal * pack([x, y, jnp.where(normal[:, 2] < 0, depth, 0)])
    on_face = jnp.stack([middle, middle + edge1, middle + edge2], axis=1)
    return jnp.where((facets >= 0)[:, None, None], jnp.stack(points, axis=1), on_face)


def _fields(model: Model, assets: Array | np.ndarray) -> Field:
    """Height fields by asset number, for `assets` of any shape."""
    topology = model.topology
    tables = topology.hfield_nrow, topology.hfield_ncol, topology.hfield_adr
    nrow, ncol, address = (jnp.asarray(table)[assets] for table in tables)
    return Field(nrow, ncol, address, pick(model.hfield_size, assets), model.hfield_data)


def outward_normals(corners: Array) -> Array:
    """Outward unit normals (k, 3) of facets (k, 3, 3)."""
    first, second, third = unpack(corners, axis=1)
    return safe.normalize(cross(first - third, second - third))


def height_over(corners: Array, point: Array) -> Array:
    """Signed distance (k,), m, of points (k, 3) from the planes of facets."""
    return dot(outward_normals(corners), point - corners[:, 2])


FACETED: dict[GeomType, Faceted] = {
    GeomType.MESH: Faceted(mesh_facets, mesh_corners),
    GeomType.HFIELD: Faceted(hfield_facets, hfield_corners),
}
