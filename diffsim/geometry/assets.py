"""Data of shapes: what a pair function reads of a mesh beside its pose, gathered from the model.

Numbers are leaves of the model, stored once per asset, whatever the number of geoms and worlds; integers are static.
Assets whose padded sizes agree form a bucket. A pair function runs once over all pairs of a bucket, so that the program
does not grow with the number of assets, and numbers can change without a new compilation.

A kind of data is a record of arrays, its padded sizes, and how the rows of one bucket are stacked (`Asset`); the pair
table says which geom type carries which.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.geometry.shapes import Shape
from diffsim.math import safe
from diffsim.math.pick import pick
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

    `rows` returns a record whose arrays have a leading axis of assets.
    """

    sizes: Callable[[Topology, int], Sizes]
    rows: Callable[[Model, tuple[int, ...], Sizes], tuple[Array, ...]]


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
    ball about the origin that holds the vertices' bounding box.
    """

    vert: Array
    around: Array
    bound: Array


def padded(count: int) -> int:
    """The next power of two, at least 8."""
    return max(SMALLEST, 1 << (count - 1).bit_length())


def hull_sizes(topology: Topology, mesh: int) -> Sizes:
    """Padded sizes (vertices, lists of neighbours, longest list) of a mesh's hull."""
    vertices, around = _graph(topology, mesh)
    count = padded(len(vertices))
    return count, count if len(around) > 1 else 1, padded(around.shape[1])


def hulls(model: Model, meshes: tuple[int, ...], sizes: Sizes) -> Hull:
    """The hulls of some meshes of one bucket, stacked."""
    vertices, around = _stacked(model.topology, meshes, sizes)
    vert = pick(model.mesh_vert, vertices)
    bound = safe.norm(jnp.max(jnp.abs(jax.lax.stop_gradient(vert)), axis=1))
    return Hull(vert, jnp.asarray(around), bound)


def gather(model: Model, poses: Kinematics, geoms: Index, bucket: Bucket | None) -> Shape:
    """Some geoms as shapes, stacked, with the data that their type carries."""
    columns = pick(poses.geom_xpos, geoms), pick(poses.geom_xmat, geoms), pick(model.geom_size, geoms)
    if bucket is None:
        return Shape(*columns)
    rows = bucket.asset.rows(model, bucket.ids, bucket.sizes)
    slot = jnp.asarray(bucket.slot)[geoms] if isinstance(geoms, jax.Array) else bucket.slot[geoms]
    return Shape(*columns, data=jax.tree.map(lambda column: pick(column, slot), rows))


def bucket_of(topology: Topology, kind: int, asset: Asset, sizes: Sizes) -> Bucket:
    """All assets with these padded sizes of the geoms of one type."""
    owner = {geom: int(topology.geom_dataid[geom]) for geom in np.flatnonzero(topology.geom_type == kind).tolist()}
    ids = sorted({data for data in owner.values() if asset.sizes(topology, data) == sizes})
    slot = np.zeros(topology.ngeom, np.int32)
    for geom, data in owner.items():
        slot[geom] = ids.index(data) if data in ids else 0
    return Bucket(asset, tuple(ids), sizes, slot)


@per_topology
def _stacked(topology: Topology, meshes: tuple[int, ...], sizes: Sizes) -> tuple[np.ndarray, np.ndarray]:
    """Rows of mesh_vert (m, v) and neighbours (m, v or 1, n) of some meshes."""
    vertices = np.zeros((len(meshes), sizes[0]), np.int32)
    around = np.full((len(meshes), *sizes[1:]), -1, np.int32)
    for row, mesh in enumerate(meshes):
        own, neighbours = _graph(topology, mesh)
        vertices[row] = own[0]
        vertices[row, : len(own)] = own
        around[row, : len(neighbours), : neighbours.shape[1]] = neighbours
    return vertices, around


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
