"""Data of shapes: what a pair function reads of a mesh beside its pose, gathered from the model.

Numbers are leaves of the model, stored once per asset, whatever the number of geoms and worlds; integers are static.
Assets whose padded sizes agree form a bucket. A pair function runs once over all pairs of a bucket, so that the program
does not grow with the number of assets, and numbers can change without a new compilation.

A kind of data is a record of arrays, its padded sizes, and how the rows of one bucket are stacked (`Asset`); the pair
table says which geom type carries which.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.geometry.frames import Poses, frames_at
from diffsim.geometry.hull.tables import Sizes, padded_graph, polygon_rows, stacked_hulls
from diffsim.geometry.shapes import Shape
from diffsim.math import safe
from diffsim.math.vector import cross, dot
from diffsim.types.model import Model
from diffsim.types.topology import Topology
from diffsim.xla.pick import pick, pick_existing, pick_some

Array = jax.Array
Index = Array | np.ndarray

# corners of polygons up to which a table of them is summed as it is, with what pads it
WIDE = 32


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


def gather(model: Model, poses: Poses, geoms: Index, bucket: Bucket | None) -> Shape:
    """Some geoms as shapes, stacked, with the data that their type carries."""
    columns = (*frames_at(poses, geoms), pick_existing(model.geom_size, geoms))
    if bucket is None:
        return Shape(*columns)
    rows = bucket.asset.rows(model, bucket.ids, bucket.sizes)
    slot = pick_existing(jnp.asarray(bucket.slot), geoms) if isinstance(geoms, jax.Array) else bucket.slot[geoms]
    names = type(rows)._fields  # type: ignore[attr-defined]
    shared = bucket.asset.shared
    own = (each if name in shared else pick_existing(each, slot) for name, each in zip(names, rows, strict=True))
    return Shape(*columns, data=type(rows)(*own))


def row_axes(shape: Shape, bucket: Bucket | None) -> Any:
    """For `vmap` over shapes that `gather` stacked: all of their arrays but those that they share."""
    if bucket is None or not bucket.asset.shared:
        return 0
    names = type(shape.data)._fields
    return Shape(0, 0, 0, type(shape.data)(*(None if name in bucket.asset.shared else 0 for name in names)))  # type: ignore[arg-type]


def bucket_of(topology: Topology, kinds: Sequence[int], asset: Asset, sizes: Sizes) -> Bucket:
    """All assets of the geoms of some types that fit in these padded sizes."""
    geoms = np.flatnonzero(np.isin(topology.geom_type, kinds))
    owner = {geom: asset.id_of(topology, geom) for geom in geoms.tolist()}
    fits = {data: fitting(asset.sizes(topology, data), sizes) for data in set(owner.values())}
    ids = sorted(data for data, fit in fits.items() if fit)
    slot = np.zeros(topology.ngeom, np.int32)
    for geom, data in owner.items():
        slot[geom] = ids.index(data) if fits[data] else 0
    return Bucket(asset, tuple(ids), sizes, slot)


def fitting(sizes: Sizes, room: Sizes) -> bool:
    """Whether arrays of some padded sizes fit in others."""
    return all(size <= most for size, most in zip(sizes, room, strict=True))
