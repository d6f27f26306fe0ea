"""Buckets: the data of geoms, such as the hulls of meshes, in the arrays that a pair function takes.

An `Asset` says how large the arrays of such data are, and stacks several of them. The floats are leaves of the model,
stored once per asset and not once per geom or world; the integers are static. Assets with equal padded sizes form a
bucket, and a pair function runs once over all pairs of a bucket. So the program does not grow with the number of
assets, and floats can change without recompilation.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.geometry.hull.tables import Sizes
from diffsim.geometry.shapes import Shape
from diffsim.types.data import Data, Kinematics
from diffsim.types.model import Model
from diffsim.types.topology import Topology
from diffsim.xla.gather import pick_existing


class GeomFrames(NamedTuple):
    """Positions (n, 3), m, and matrices (n, 3, 3) of some geoms, and the index of each geom (ngeom,) among them."""

    geom_xpos: Array
    geom_xmat: Array
    place: np.ndarray


Poses = Kinematics | Data | GeomFrames


def frames_at(poses: Poses, geoms: Array | np.ndarray) -> tuple[Array, Array]:
    """Positions (n, 3), m, and matrices (n, 3, 3) of geoms (n,), which are ids of the model."""
    rows = geoms
    if isinstance(poses, GeomFrames):
        rows = pick_existing(jnp.asarray(poses.place), geoms) if isinstance(geoms, Array) else poses.place[geoms]
    # matrices are gathered as rows of nine numbers, because XLA for CPU copies a row with one axis in one piece
    mat = pick_existing(poses.geom_xmat.reshape(-1, 9), rows).reshape(*rows.shape, 3, 3)
    return pick_existing(poses.geom_xpos, rows), mat


Index = Array | np.ndarray


class Asset(NamedTuple):
    """How one kind of geom data, such as hulls, is sized and stacked.

    Attributes:
      sizes: (topology, id) -> padded sizes of the arrays of one asset.
      rows: (model, ids, sizes) -> a record of several assets, whose arrays have a leading axis of assets.
      shared: names of the record's fields that have no such axis, because all assets share them.
      of_geoms: whether each geom has its own data, so that ids are geom ids.
    """

    sizes: Callable[[Topology, int], Sizes]
    rows: Callable[[Model, tuple[int, ...], Sizes], Any]
    shared: tuple[str, ...] = ()
    of_geoms: bool = False

    def id_of(self, topology: Topology, geom: int) -> int:
        """The asset of a geom."""
        return geom if self.of_geoms else int(topology.geom_dataid[geom])


class Bucket(NamedTuple):
    """Assets `ids` of one kind with equal padded sizes; `slot` (ngeom,) is the index of a geom's asset in `ids`."""

    asset: Asset
    ids: tuple[int, ...]
    sizes: Sizes
    slot: np.ndarray


def gather(
    model: Model, poses: Poses, geoms: Index, bucket: Bucket | None, tables: dict[int, Any] | None = None
) -> Shape:
    """Some geoms as shapes, stacked, with the data of their type.

    `tables`: a cache of the rows of each bucket; the rows of this bucket are added to it.
    """
    columns = (*frames_at(poses, geoms), pick_existing(model.geom_size, geoms))
    if bucket is None:
        return Shape(*columns)
    tables = {} if tables is None else tables
    if id(bucket) not in tables:
        tables[id(bucket)] = bucket.asset.rows(model, bucket.ids, bucket.sizes)
    rows = tables[id(bucket)]
    shared = bucket.asset.shared
    slot = pick_existing(jnp.asarray(bucket.slot), geoms) if isinstance(geoms, Array) else bucket.slot[geoms]
    parts = zip(type(rows)._fields, rows, strict=True)
    data = (part if name in shared else pick_existing(part, slot) for name, part in parts)
    return Shape(*columns, data=type(rows)(*data))


def single(model: Model, poses: Poses, geom: int, bucket: Bucket | None) -> Shape:
    """One geom as a shape."""
    shape = gather(model, poses, np.array([geom]), bucket)
    pos, mat, size = (part[0] for part in shape[:3])
    if bucket is None:
        return Shape(pos, mat, size)
    names = type(shape.data)._fields
    parts = (x if name in bucket.asset.shared else x[0] for name, x in zip(names, shape.data, strict=True))
    return Shape(pos, mat, size, type(shape.data)(*parts))


def row_axes(shape: Shape, bucket: Bucket | None) -> Any:
    """The axes for `vmap` over shapes that `gather` stacked: 0, but None for arrays that all shapes share."""
    if bucket is None or not bucket.asset.shared:
        return 0
    names = type(shape.data)._fields
    axes: Any = type(shape.data)(*(None if name in bucket.asset.shared else 0 for name in names))
    return Shape(0, 0, 0, axes)  # type: ignore[arg-type]


def bucket_of(topology: Topology, kinds: Sequence[int], asset: Asset, sizes: Sizes) -> Bucket:
    """The bucket of all assets of geoms of some types that fit in these padded sizes."""
    geoms = np.flatnonzero(np.isin(topology.geom_type, kinds))
    owner = {geom: asset.id_of(topology, geom) for geom in geoms.tolist()}
    fits = {data: fitting(asset.sizes(topology, data), sizes) for data in set(owner.values())}
    ids = sorted(data for data, fit in fits.items() if fit)
    slot = np.zeros(topology.ngeom, np.int32)
    for geom, data in owner.items():
        slot[geom] = ids.index(data) if fits[data] else 0
    return Bucket(asset, tuple(ids), sizes, slot)


def fitting(sizes: Sizes, room: Sizes) -> bool:
    """Whether arrays of these sizes fit in arrays of the sizes `room`."""
    return all(size <= most for size, most in zip(sizes, room, strict=True))
