"""Data of shapes: what a pair function reads of a mesh beside its pose, gathered from the model.

Numbers are leaves of the model, stored once per asset, whatever the number of geoms and worlds; integers are static.
Assets whose padded sizes agree form a bucket. A pair function runs once over all pairs of a bucket, so that the program
does not grow with the number of assets, and numbers can change without a new compilation.

A kind of data is a record of arrays, its padded sizes, and how the rows of one bucket are stacked (`Asset`); the pair
table says which geom type carries which.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.enums import GeomType
from diffsim.geometry.shapes import Shape
from diffsim.math import safe
from diffsim.math.pick import pick
from diffsim.math.vector import cross, dot
from diffsim.types.data import Kinematics
from diffsim.types.model import Model
from diffsim.types.topology import Topology, per_topology

Array = jax.Array
Index = Array | np.ndarray
# padded sizes of an asset's arrays; assets with equal ones share a program
Sizes = tuple[int, ...]

SMALLEST = 8
# MuJoCo climbs along the edges of the hull of a mesh with as many vertices (mjMESH_HILLCLIMB_MIN)
SEARCHED = 10


class Asset(NamedTuple):
    """A kind of data: `sizes(topology, id)` of one asset, `rows(model, ids, sizes)` of several with equal sizes.

    `rows` returns a record whose arrays have a leading axis of assets, but for those named in `shared`. `of_geoms`:
    each geom has its own, and ids are those of geoms.
    """

    sizes: Callable[[Topology, int], Sizes]
    rows: Callable[[Model, tuple[int, ...], Sizes], tuple[Array, ...]]
    shared: tuple[str, ...] = ()
    of_geoms: bool = False

    def id_of(self, topology: Topology, geom: int) -> int:
        """The asset of a geom."""
        return geom if self.of_geoms else int(topology.geom_dataid[geom])


class Bucket(NamedTuple):
    """Assets `ids` of one kind with equal padded sizes; `slot` (ngeom,) is the place of a geom's asset among them."""

    asset: Asset
    ids: tuple[int, ...]
    sizes: Sizes
    slot: np.ndarray


class Hull(NamedTuple):
    """The convex hull of a mesh, in the frame of its geom.

    `vert` (v, 3): vertices, m; padded by copies of the first. `around` (v, n): the neighbours of each vertex in
    MuJoCo's order, -1 where there are no more; (1, n) where all vertices are neighbours. `bound` (): radius in m of a
    ball about the origin that holds the vertices' bounding box. `side` (p, k): the polygons, counterclockwise from
    outside, as places of their vertices, -1 where there are no more; `normal` (p, 3): unit, outward, by MuJoCo's rule.
    `joined` (v, m): the vertices at the other end of the polygons' edges, -1 where there are no more. `edge` (e, 2):
    the ends of each edge, `flank` (e, 2): the polygons on both sides of it, -1 where there are no more.
    """

    vert: Array
    around: Array
    bound: Array
    side: Array
    normal: Array
    joined: Array
    edge: Array
    flank: Array


class Rim(NamedTuple):
    """What planes touch of a convex hull: `vert`, `around` and `bound` as of `Hull`."""

    vert: Array
    around: Array
    bound: Array


class Polygons(NamedTuple):
    """The polygons (p, k) of a mesh's hull, the other ends of the edges at each vertex (v, n), edges, flanks (e, 2)."""

    side: np.ndarray
    joined: np.ndarray
    edge: np.ndarray
    flank: np.ndarray


def padded(count: int) -> int:
    """The next power of two, at least 8."""
    return max(SMALLEST, 1 << (count - 1).bit_length())


def hull_sizes(topology: Topology, mesh: int) -> Sizes:
    """Padded sizes of a mesh's hull: vertices, and the largest of all meshes with as many of what its record holds."""
    count = padded(_table_sizes(topology, mesh)[0])
    alike = [sizes for each in _colliding(topology) if padded((sizes := _table_sizes(topology, each))[0]) == count]
    _, lists, *others = (max(column) for column in zip(*alike, strict=True))
    return count, count if lists > 1 else 1, *(padded(size) for size in others)


def hulls(model: Model, meshes: tuple[int, ...], sizes: Sizes) -> Hull:
    """The hulls of some meshes of one bucket, stacked."""
    vertices, *tables = _stacked(model.topology, meshes, sizes)
    around, side, joined, edge, flank = (jnp.asarray(table) for table in tables)
    vert = pick(model.mesh_vert, vertices)
    bound = safe.norm(jnp.max(jnp.abs(jax.lax.stop_gradient(vert)), axis=1))
    return Hull(vert, around, bound, side, jax.vmap(polygon_normals)(vert, side), joined, edge, flank)


def rim_sizes(topology: Topology, mesh: int) -> Sizes:
    """Padded sizes of what planes touch of a mesh's hull."""
    vertices, around = _graph(topology, mesh)
    count, (lists, longest) = padded(len(vertices)), around.shape
    return count, count if lists > 1 else 1, padded(longest)


def rims(model: Model, meshes: tuple[int, ...], sizes: Sizes) -> Rim:
    """What planes touch of the hulls of some meshes of one bucket, stacked."""
    tables = [_padded_graph(model.topology, mesh, sizes) for mesh in meshes]
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
    first = cross(spoke[:, 1], spoke[:, 2])
    lengths = dot(spoke[:, 1], spoke[:, 1]) * dot(spoke[:, 2], spoke[:, 2])
    clear = jax.lax.stop_gradient(dot(first, first) > 1e-14 * lengths)
    whole = jnp.sum(cross(spoke[:, 1:-1], spoke[:, 2:]), axis=1)
    normal = safe.normalize(jnp.where(clear[:, None], first, whole))
    return jnp.where(exists[:, :1], normal, 0)


def gather(model: Model, poses: Kinematics, geoms: Index, bucket: Bucket | None) -> Shape:
    """Some geoms as shapes, stacked, with the data that their type carries."""
    columns = pick(poses.geom_xpos, geoms), pick(poses.geom_xmat, geoms), pick(model.geom_size, geoms)
    if bucket is None:
        return Shape(*columns)
    rows = bucket.asset.rows(model, bucket.ids, bucket.sizes)
    slot = jnp.asarray(bucket.slot)[geoms] if isinstance(geoms, jax.Array) else bucket.slot[geoms]
    names = type(rows)._fields  # type: ignore[attr-defined]
    shared = bucket.asset.shared
    own = (each if name in shared else pick(each, slot) for name, each in zip(names, rows, strict=True))
    return Shape(*columns, data=type(rows)(*own))


def row_axes(shape: Shape, bucket: Bucket | None) -> Any:
    """For `vmap` over shapes that `gather` stacked: all of their arrays but those that they share."""
    if bucket is None or not bucket.asset.shared:
        return 0
    names = type(shape.data)._fields
    return Shape(0, 0, 0, type(shape.data)(*(None if name in bucket.asset.shared else 0 for name in names)))  # type: ignore[arg-type]


def bucket_of(topology: Topology, kind: int, asset: Asset, sizes: Sizes) -> Bucket:
    """All assets of the geoms of one type that fit in these padded sizes."""
    owner = {geom: asset.id_of(topology, geom) for geom in np.flatnonzero(topology.geom_type == kind).tolist()}
    fits = {data: fitting(asset.sizes(topology, data), sizes) for data in set(owner.values())}
    ids = sorted(data for data, fit in fits.items() if fit)
    slot = np.zeros(topology.ngeom, np.int32)
    for geom, data in owner.items():
        slot[geom] = ids.index(data) if fits[data] else 0
    return Bucket(asset, tuple(ids), sizes, slot)


def fitting(sizes: Sizes, room: Sizes) -> bool:
    """Whether arrays of some padded sizes fit in others."""
    return all(size <= most for size, most in zip(sizes, room, strict=True))


@per_topology
def _colliding(topology: Topology) -> tuple[int, ...]:
    """The meshes of mesh geoms."""
    return tuple(np.unique(topology.geom_dataid[topology.geom_type == GeomType.MESH]).tolist())


@per_topology
def _table_sizes(topology: Topology, mesh: int) -> Sizes:
    """Sizes before padding.

    Vertices, lists of neighbours, longest list, polygons, longest polygon, ends of edges at a vertex, edges.
    """
    vertices, around = _graph(topology, mesh)
    polygons = _polygons(topology, mesh)
    return len(vertices), *around.shape, *polygons.side.shape, polygons.joined.shape[1], len(polygons.edge)


@per_topology
def _stacked(topology: Topology, meshes: tuple[int, ...], sizes: Sizes) -> tuple[np.ndarray, ...]:
    """Rows of mesh_vert (m, v), neighbours (m, v or 1, n), and tables of polygons as in Hull, with a row for a mesh."""
    count, lists, longest, sides, corners, ends, edges = sizes
    shapes = (lists, longest), (sides, corners), (count, ends), (edges, 2), (edges, 2)
    vertices = np.zeros((len(meshes), count), np.int32)
    around, *tables = (np.full((len(meshes), *shape), -1, np.int32) for shape in shapes)
    for row, mesh in enumerate(meshes):
        vertices[row], around[row] = _padded_graph(topology, mesh, (count, lists, longest))
        for table, rows in zip(tables, _polygons(topology, mesh), strict=True):
            table[row, : rows.shape[0], : rows.shape[1]] = rows
    return vertices, around, *tables


def _padded_graph(topology: Topology, mesh: int, sizes: Sizes) -> tuple[np.ndarray, np.ndarray]:
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
def _polygons(topology: Topology, mesh: int) -> Polygons:
    """The polygons of a mesh's hull, of places among its own vertices."""
    own = _graph(topology, mesh)[0] - int(topology.mesh_vertadr[mesh])
    place = np.zeros(int(topology.mesh_vertnum[mesh]), int)
    place[own] = np.arange(len(own))
    first, number = int(topology.mesh_polyadr[mesh]), int(topology.mesh_polynum[mesh])
    lists = []
    for polygon in range(first, first + number):
        start, count = int(topology.mesh_polyvertadr[polygon]), int(topology.mesh_polyvertnum[polygon])
        lists.append(place[topology.mesh_polyvert[start : start + count]].tolist())
    return polygons_of(lists, len(own))


def polygons_of(lists: list[list[int]], vertices: int) -> Polygons:
    """Polygons, counterclockwise from outside, with what else is known of their edges."""
    ends: list[list[int]] = [[] for _ in range(vertices)]
    flanks: dict[tuple[int, int], list[int]] = {}
    for number, polygon in enumerate(lists):
        for here, there in zip(polygon, polygon[1:] + polygon[:1], strict=True):
            ends[here].append(there)
            flanks.setdefault((min(here, there), max(here, there)), []).append(number)
    # an edge that is not between two polygons belongs to no closed hull
    edges = [(edge, flank) for edge, flank in flanks.items() if len(flank) == 2]
    edge, flank = (np.array(column, int).reshape(-1, 2) for column in (zip(*edges, strict=True) if edges else ((), ())))
    return Polygons(_ragged(lists), _ragged(ends), edge, flank)


def _ragged(lists: list[list[int]]) -> np.ndarray:
    """Lists as rows of a table, -1 where there are no more."""
    table = np.full((len(lists), max(map(len, lists), default=0)), -1)
    for row, each in enumerate(lists):
        table[row, : len(each)] = each
    return table


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
    lists = [_list(edges, start) for start in graph[2 : 2 + (count if small else number)].tolist()]
    around = np.full((len(lists), max(map(len, lists))), -1)
    for row, neighbours in enumerate(lists):
        around[row, : len(neighbours)] = vertices[neighbours] if small else neighbours
    return first + (np.arange(count) if small else vertices), around


def _list(edges: np.ndarray, start: int) -> np.ndarray:
    """The neighbours listed from `start` to the next -1."""
    return edges[start : start + int(np.argmax(edges[start:] < 0))]
