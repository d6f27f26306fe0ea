"""Surfaces made of triangles, as rays need them: meshes and height fields.

For each type a search (not differentiated) says which facet every ray meets first, and the facet's corners, read from
the model's leaves, say where exactly: its plane is a closed form of vertices, heights and sizes.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.enums import GeomType
from diffsim.geometry.rays.bvh import trees
from diffsim.geometry.rays.bvh_search import Queries, search_meshes
from diffsim.geometry.rays.hfield_search import Field, search_hfields
from diffsim.geometry.rays.ray_aabb import through_box
from diffsim.math import safe
from diffsim.math.vector import cross, dot, pack, unpack
from diffsim.types.model import Model
from diffsim.xla.pick import pick

Array = jax.Array

# for each face its outward normal and two edges, counter-clockwise about it
FACES = np.stack([(s * np.eye(3)[k], np.eye(3)[k - 2], s * np.eye(3)[k - 1]) for k in range(3) for s in (-1, 1)])


class Lines(NamedTuple):
    """Rays in the frames of some geoms: `origin`, `direction` (k, m, 3), and which can matter (k, m)."""

    origin: Array
    direction: Array
    wanted: Array


class Faceted(NamedTuple):
    """A geom type made of facets.

    `search(model, assets, lines)`: distance (k, m), infinite for nothing, and facet (k, m), given the assets (m,) of
    the geoms. `corners(model, assets, facets)`: three points (k, 3, 3), m, of facets (k,) of assets (k,), in the geom's
    frame, counter-clockwise from outside.
    """

    search: Callable[[Model, np.ndarray | Array, Lines], tuple[Array, Array]]
    corners: Callable[[Model, Array, Array], Array]


def mesh_facets(model: Model, assets: np.ndarray | Array, lines: Lines) -> tuple[Array, Array]:
    """The first triangle of each mesh on each ray."""
    places = trees(model.topology).places[:, 0]
    first = jnp.asarray(places)[assets] if isinstance(assets, jax.Array) else places[assets]
    root = jax.lax.stop_gradient(pick(model.mesh_boxes, first))
    lower, upper = (unpack(each[None]) for each in (root[:, :3].min(axis=2), root[:, 3:].max(axis=2)))
    enter, leave = through_box(lower, upper, unpack(lines.origin), unpack(lines.direction))
    shape, wanted = enter.shape, lines.wanted & (enter <= leave)
    mesh = jnp.broadcast_to(jnp.asarray(assets, jnp.int32)[None], shape)
    flat = Queries(lines.origin.reshape(-1, 3), lines.direction.reshape(-1, 3), mesh.reshape(-1), wanted.reshape(-1))
    distance, facet = search_meshes(model, flat)
    return distance.reshape(shape), facet.reshape(shape)


def mesh_corners(model: Model, assets: Array, facets: Array) -> Array:
    """Vertices of triangles of the leaves of `trees`."""
    corners = trees(model.topology).corners.reshape(-1, 3)
    return model.mesh_vert[jnp.asarray(corners)[facets]]


def hfield_facets(model: Model, assets: np.ndarray | Array, lines: Lines) -> tuple[Array, Array]:
    """The first triangle or face of each height field on each ray."""
    field = jax.lax.stop_gradient(_fields(model, assets[None]))
    distance, facet = search_hfields(field, lines.origin, lines.direction)
    return jnp.where(lines.wanted, distance, jnp.inf), facet


def hfield_corners(model: Model, assets: Array, facets: Array) -> Array:
    """Three points of a triangle of the surface, or of the plane of a face, as `hfield_search` counts them."""
    field = _fields(model, assets)
    cell, upper = jnp.maximum(facets, 0) // 2, jnp.maximum(facets, 0) % 2
    row, column = cell // field.ncol, cell % field.ncol
    second, third = (column + 1, row + upper), (column + 1 - upper, row + 1)
    points = [_grid_point(field, *place) for place in ((column, row), second, third)]
    on_face = _face_corners(field.size, jnp.maximum(-1 - facets, 0))
    return jnp.where((facets >= 0)[:, None, None], jnp.stack(points, axis=1), on_face)


def _grid_point(field: Field, column: Array, row: Array) -> Array:
    """Points (k, 3) of the surface above grid points."""
    (width, length), (x, y, _, _) = field.width, unpack(field.size)
    return pack([column * width - x, row * length - y, field.height(row, column)])


def _face_corners(size: Array, face: Array) -> Array:
    """Three points (k, 3, 3) of the plane of a face, 0 to 5 for -x, +x, -y, +y, -z, +z, by its outward normal."""
    normal, second, third = unpack(jnp.asarray(FACES, size.dtype)[face], axis=1)
    # below height 0 there is the base, above it the face is that height
    x, y, _, depth = unpack(size)
    first = normal * pack([x, y, jnp.where(normal[:, 2] < 0, depth, 0)])
    return jnp.stack([first, first + second, first + third], axis=1)


def _fields(model: Model, assets: Array | np.ndarray) -> Field:
    """Height fields by number, of any shape."""
    topology = model.topology
    tables = topology.hfield_nrow, topology.hfield_ncol, topology.hfield_adr
    nrow, ncol, address = (jnp.asarray(table)[assets] for table in tables)
    return Field(nrow, ncol, address, pick(model.hfield_size, assets), model.hfield_data)


def outside(corners: Array) -> Array:
    """Outward unit normals (k, 3) of facets (k, 3, 3)."""
    first, second, third = unpack(corners, axis=1)
    return safe.normalize(cross(first - third, second - third))


def height_over(corners: Array, point: Array) -> Array:
    """Signed distance (k,), m, of points (k, 3) from the planes of facets."""
    return dot(outside(corners), point - corners[:, 2])


FACETED: dict[GeomType, Faceted] = {
    GeomType.MESH: Faceted(mesh_facets, mesh_corners),
    GeomType.HFIELD: Faceted(hfield_facets, hfield_corners),
}
