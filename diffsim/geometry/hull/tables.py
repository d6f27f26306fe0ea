"""Convex hulls of meshes as padded tables of integers: which vertices, polygons, facets and edges they have.

Assets whose padded sizes agree share a program, so that sizes are rounded up.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.enums import GeomType
from diffsim.geometry.hull.hull_facets import (
    Outline,
    Polygons,
    facet_addresses,
    hull_triangles,
    outline_of,
    polygons_of,
)
from diffsim.math import safe
from diffsim.math.vector import cross, dot
from diffsim.types.model import Model
from diffsim.types.topology import Topology, per_topology
from diffsim.xla.gather import pick, pick_some

Array = jax.Array
# padded sizes of an asset's arrays; assets with equal ones share a program
Sizes = tuple[int, ...]

SMALLEST = 8
# MuJoCo climbs along the edges of the hull of a mesh with as many vertices (mjMESH_HILLCLIMB_MIN)
SEARCHED = 10


def padded(count: int) -> int:
    """The next power of two, at least 8."""
    return max(SMALLEST, 1 << (count - 1).bit_length())


def _rounded(count: int) -> int:
    """The next multiple of 8, or none: of what makes no program of its own."""
    return SMALLEST * -(-count // SMALLEST)


def hull_sizes(topology: Topology, mesh: int) -> Sizes:
    """Padded sizes of a mesh's hull: vertices, and the largest of all meshes with as many of what its record holds."""
    count, own = padded(_table_sizes(topology, mesh)[0]), _key(topology, mesh)
    alike = [_table_sizes(topology, each) for each in _colliding(topology) if _key(topology, each) == own]
    _, lists, *others, facets, edges = (max(column) for column in zip(*alike, strict=True))
    return count, count if lists > 1 else 1, *(padded(size) for size in others), _rounded(facets), _rounded(edges)


def _key(topology: Topology, mesh: int) -> tuple[int, bool]:
    """What meshes of one size have in common: padded number of vertices, and whether there is an outline."""
    sizes = _table_sizes(topology, mesh)
    return padded(sizes[0]), sizes[-1] > 0


def lesser_sizes(topology: Topology, first: np.ndarray, second: np.ndarray) -> Sizes:
    """Sizes that hold vertices, facets and edges of the hull with fewer edges of each pair of mesh geoms or boxes."""
    meshes = np.unique(topology.geom_dataid[np.stack([first, second])], axis=1).T.tolist()
    both = [[_outline_sizes(topology, mesh) for mesh in pair] for pair in meshes]
    # of equal numbers of edges either may be the larger
    fewer = [each for pair in both for each in pair if each[-1] == min(pair[0][-1], pair[1][-1])]
    vertices, facets, edges = (max(column) for column in zip(*fewer, strict=True))
    # edges are rows of the table of pairs of edges
    return _rounded(vertices), _rounded(facets), edges


def _outline_sizes(topology: Topology, mesh: int) -> Sizes:
    """Vertices, facets and edges; -1 is a box."""
    if mesh < 0:
        return 8, 6, 12
    vertices, *_, facets, edges = _table_sizes(topology, mesh)
    return vertices, facets, edges


def rim_sizes(topology: Topology, mesh: int) -> Sizes:
    """Padded sizes of what planes touch of a mesh's hull."""
    vertices, around = _graph(topology, mesh)
    count, (lists, longest) = padded(len(vertices)), around.shape
    return count, count if lists > 1 else 1, padded(longest)


@per_topology
def _colliding(topology: Topology) -> tuple[int, ...]:
    """The meshes of mesh geoms."""
    return tuple(np.unique(topology.geom_dataid[topology.geom_type == GeomType.MESH]).tolist())


@per_topology
def _table_sizes(topology: Topology, mesh: int) -> Sizes:
    """Sizes before padding.

    Vertices, lists of neighbours, longest list, polygons, longest polygon, ends of edges at a vertex, facets, edges.
    """
    vertices, around = _graph(topology, mesh)
    polygons, outline = _polygons(topology, mesh), _outline(topology, mesh)
    sides = *polygons.side.shape, polygons.joined.shape[1]
    return len(vertices), *around.shape, *sides, len(outline.facet), len(outline.edge)


@per_topology
def stacked_hulls(topology: Topology, meshes: tuple[int, ...], sizes: Sizes) -> tuple[np.ndarray, ...]:
    """Rows of mesh_vert (m, v), neighbours (m, v or 1, n), and tables of polygons as in Hull, with a row for a mesh."""
    count, lists, longest, sides, corners, ends, facets, edges = sizes
    shapes = (lists, longest), (sides, corners), (count, ends), (facets, 3), (edges, 2), (edges, 2)
    vertices = np.zeros((len(meshes), count), np.int32)
    around, *tables = (np.full((len(meshes), *shape), -1, np.int32) for shape in shapes)
    for row, mesh in enumerate(meshes):
        vertices[row], around[row] = padded_graph(topology, mesh, (count, lists, longest))
        for table, rows in zip(tables, (*_polygons(topology, mesh), *_outline(topology, mesh)), strict=True):
            table[row, : rows.shape[0], : rows.shape[1]] = rows
    return vertices, around, *tables


def polygon_rows(topology: Topology, meshes: tuple[int, ...], sides: int) -> np.ndarray:
    """Rows of mesh_polynormal (m, p) of so many polygons, with a row for a mesh; -1 where there is no more."""
    number = np.arange(sides)[None]
    first, count = (np.asarray(each)[list(meshes)][:, None] for each in (topology.mesh_polyadr, topology.mesh_polynum))
    return np.where(number < count, first + number, -1)


def padded_graph(topology: Topology, mesh: int, sizes: Sizes) -> tuple[np.ndarray, np.ndarray]:
    """Rows of mesh_vert (v,) and neighbours (v, n), or (1, n), of a mesh's hull, padded to sizes."""
    count, lists, longest = sizes
    own, neighbours = _graph(topology, mesh)
    vertices, around = np.full(count, own[0], np.int32), np.full((lists, longest), -1, np.int32)
    vertices[: len(own)] = own
    around[: len(neighbours), : neighbours.shape[1]] = neighbours
    # a list of all vertices is everybody's
    around[len(neighbours) :] = around[:1] if len(neighbours) == 1 else -1
    return vertices, around


@per_topology
def _places(topology: Topology, mesh: int) -> np.ndarray:
    """For each vertex of a mesh its place among those of the hull."""
    own = _graph(topology, mesh)[0] - int(topology.mesh_vertadr[mesh])
    place = np.zeros(int(topology.mesh_vertnum[mesh]), int)
    place[own] = np.arange(len(own))
    return place


@per_topology
def _polygons(topology: Topology, mesh: int) -> Polygons:
    """The polygons of a mesh's hull, of places among its own vertices."""
    place = _places(topology, mesh)
    first, number = int(topology.mesh_polyadr[mesh]), int(topology.mesh_polynum[mesh])
    lists = []
    for polygon in range(first, first + number):
        start, count = int(topology.mesh_polyvertadr[polygon]), int(topology.mesh_polyvertnum[polygon])
        lists.append(place[topology.mesh_polyvert[start : start + count]].tolist())
    return polygons_of(lists, len(_graph(topology, mesh)[0]))


@per_topology
def _outline(topology: Topology, mesh: int) -> Outline:
    """The outline of a mesh's hull, of places among its own vertices; empty for a mesh without one."""
    address = int(topology.mesh_graphadr[mesh])
    triangles = hull_triangles(topology.mesh_graph[address:]) if address >= 0 else np.zeros((0, 3), int)
    owner = topology.mesh_facet[slice(*facet_addresses(topology)[mesh : mesh + 2])]
    return outline_of(_places(topology, mesh)[triangles].tolist(), owner)


@per_topology
def _graph(topology: Topology, mesh: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of mesh_vert (v,) of a mesh's hull, and neighbours (v, n), or (1, n), as places among these.

    MuJoCo searches all vertices of small meshes, and then looks up the neighbours of the hull's vertex of that number,
    which may be another one. Without a graph all vertices are neighbours.
    """
    first, count = int(topology.mesh_vertadr[mesh]), int(topology.mesh_vertnum[mesh])
    if topology.mesh_graphadr[mesh] < 0:
        return first + np.arange(count), np.arange(count)[None]
    graph = topology.mesh_graph[int(topology.mesh_graphadr[mesh]) :]
    number, small = int(graph[0]), count < SEARCHED
    vertices, edges = graph[2 + number : 2 + 2 * number], graph[2 + 2 * number :]
    # the neighbours of each vertex end with -1
    starts = graph[2 : 2 + (count if small else number)].tolist()
    lists = [edges[start : start + int(np.argmax(edges[start:] < 0))] for start in starts]
    around = np.full((len(lists), max(map(len, lists))), -1)
    for row, neighbours in enumerate(lists):
        around[row, : len(neighbours)] = vertices[neighbours] if small else neighbours
    return first + (np.arange(count) if small else vertices), around


# corners of polygons up to which a table of them is summed as it is, with what pads it
WIDE = 32


class Hull(NamedTuple):
    """The convex hull of a mesh, in the frame of its geom.

    `vert` (v, 3): vertices, m; padded by copies of the first. `around` (v, n): the neighbours of each vertex in
    MuJoCo's order, -1 where there are no more; (1, n) where all vertices are neighbours. `bound` (): radius in m of a
    ball about the origin that holds the vertices' bounding box. `side` (p, k): the polygons, counterclockwise from
    outside, as places of their vertices, -1 where there are no more; `normal` (p, 3): unit, outward, by MuJoCo's rule.
    `joined` (v, m): the vertices at the other end of the polygons' edges, -1 where there are no more. `facet` (f, 3),
    `edge` (e, 2), `flank` (e, 2): the outline (`hull/hull_facets.py`), -1 where there is no more; `outward` (f, 3):
    unit normals of the facets.
    """

    vert: Array
    around: Array
    bound: Array
    side: Array
    normal: Array
    joined: Array
    facet: Array
    outward: Array
    edge: Array
    flank: Array


class Rim(NamedTuple):
    """What planes touch of a convex hull: `vert`, `around` and `bound` as of `Hull`."""

    vert: Array
    around: Array
    bound: Array


def hulls(model: Model, meshes: tuple[int, ...], sizes: Sizes) -> Hull:
    """The hulls of some meshes of one bucket, stacked."""
    vertices, *tables = stacked_hulls(model.topology, meshes, sizes)
    around, side, joined, facet, edge, flank = (jnp.asarray(table) for table in tables)
    vert = pick(model.mesh_vert, vertices)
    bound = safe.norm(jnp.max(jnp.abs(jax.lax.stop_gradient(vert)), axis=1))
    outward = jax.vmap(polygon_normals)(vert, facet)
    normal = jax.vmap(polygon_normals)(vert, side) if side.shape[-1] <= WIDE else _wide_normals(vert, tables[1])
    rows = polygon_rows(model.topology, meshes, side.shape[1])
    rounding = pick_some(model.mesh_polyrounding, rows.reshape(-1)).reshape(normal.shape)
    normal = jnp.where(rows[..., None] >= 0, safe.normalize(normal + rounding), 0)
    return Hull(vert, around, bound, side, normal, joined, facet, outward, edge, flank)


def rims(model: Model, meshes: tuple[int, ...], sizes: Sizes) -> Rim:
    """What planes touch of the hulls of some meshes of one bucket, stacked."""
    tables = [padded_graph(model.topology, mesh, sizes) for mesh in meshes]
    vertices, around = (np.stack(column) for column in zip(*tables, strict=True))
    vert = pick(model.mesh_vert, vertices)
    bound = safe.norm(jnp.max(jnp.abs(jax.lax.stop_gradient(vert)), axis=1))
    return Rim(vert, jnp.asarray(around), bound)


def polygon_normals(vert: Array, side: Array) -> Array:
    """Unit normals (p, 3) of polygons (p, k) of vertices (v, 3): by the first three, or by all if these are on a line.

    Zero where there is no polygon.
    """
    exists = side >= 0
    corner = vert[jnp.where(exists, side, side[:, :1])]
    spoke = corner - corner[:, :1]
    whole = jnp.sum(cross(spoke[:, 1:-1], spoke[:, 2:]), axis=1)
    return jnp.where(exists[:, :1], _by_first(spoke[:, 1], spoke[:, 2], whole), 0)


def _wide_normals(vert: Array, side: np.ndarray) -> Array:
    """The same of static tables (m, p, k) of vertices (m, v, 3), most of whose rows are much shorter than k."""
    count, rows = vert.shape[1], side.shape[1]
    corner = vert.reshape(-1, 3)
    own = np.where(side >= 0, side + count * np.arange(len(side))[:, None, None], -1).reshape(-1, side.shape[2])
    polygon, last = np.nonzero(own[:, 2:] >= 0)
    begin = corner[own[polygon, 0]]
    areas = cross(corner[own[polygon, last + 1]] - begin, corner[own[polygon, last + 2]] - begin)
    whole = jax.ops.segment_sum(areas, polygon, len(own), indices_are_sorted=True)
    ends = corner[np.maximum(own[:, :3], 0)]
    normal = _by_first(ends[:, 1] - ends[:, 0], ends[:, 2] - ends[:, 0], whole)
    return jnp.where(own[:, :1] >= 0, normal, 0).reshape(-1, rows, 3)


def _by_first(one: Array, other: Array, whole: Array) -> Array:
    """Unit normals (p, 3) by two spokes of polygons, or by their areas (p, 3) where these are on a line."""
    first = cross(one, other)
    clear = jax.lax.stop_gradient(dot(first, first) > 1e-14 * (dot(one, one) * dot(other, other)))
    return safe.normalize(jnp.where(clear[:, None], first, whole))
