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

from diffsim.geometry.assets import geom_assets
from diffsim.geometry.hull.tables import Sizes
from diffsim.geometry.shapes import Shape
from diffsim.types.data import Data, Kinematics
from diffsim.types.model import Model
from diffsim.types.topology import Topology
from diffsim.xla.gather import pick_existing, pick_static


class GeomFrames(NamedTuple):
    """Positions (n, 3), m, and matrices (n, 3, 3) of some geoms, and the index of each geom (ngeom,) among them."""

    geom_xpos: Array
    geom_xmat: Array
    place: np.ndarray


Poses = Kinematics | Data | GeomFrames
Index = Array | np.ndarray


def frames_at(poses: Poses, geoms: Array | np.ndarray) -> tuple[Array, Array]:
    """Positions (n, 3), m, and matrices (n, 3, 3) of geoms (n,), which are ids of the model."""
    rows = geoms
    if isinstance(poses, GeomFrames):
        rows = pick_existing(jnp.asarray(poses.place), geoms) if isinstance(geoms, Array) else poses.place[geoms]
    # matrices are gathered as rows of nine numbers, because XLA for CPU copies a row with one axis in one piece
    mat = pick_existing(poses.geom_xmat.reshape(-1, 9), rows).reshape(*rows.shape, 3, 3)
    return pick_existing(poses.geom_xpos, rows), mat


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

    def ids_of(self, topology: Topology, geom: int) -> tuple[int, ...]:
        """The assets that a geom can have; more than one only if its mesh differs between worlds."""
        return (geom,) if self.of_geoms else topology.meshes_of(geom)

    def room_for(self, topology: Topology, geom: int) -> Sizes:
        """Padded sizes with room for every asset that a geom can have."""
        of_assets = [self.sizes(topology, data) for data in self.ids_of(topology, geom)]
        return tuple(max(column) for column in zip(*of_assets, strict=True))


class Bucket(NamedTuple):
    """Assets of one kind with equal padded sizes.

    Attributes:
      asset: their kind.
      ids: the assets.
      sizes: the padded sizes.
      slot: (ngeom,) the index of a geom's asset in `ids`.
      place: the index of each asset of the model in `ids`; None if no geom has different assets in different worlds.
    """

    asset: Asset
    ids: tuple[int, ...]
    sizes: Sizes
    slot: np.ndarray
    place: np.ndarray | None

    def slots(self, model: Model, geoms: Index) -> Index:
        """The indices in `ids` of the assets of geoms (n,)."""
        if self.place is None:
            return pick_static(self.slot, geoms)
        return pick_existing(jnp.asarray(self.place), pick_existing(jnp.asarray(geom_assets(model)), geoms))


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
    slot = bucket.slots(model, geoms)
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
    owned = {geom: asset.ids_of(topology, geom) for geom in geoms.tolist()}
    every = sorted({data for several in owned.values() for data in several})
    ids = [data for data in every if fitting(asset.sizes(topology, data), sizes)]
    # an asset that does not fit gets any place: no pair of this bucket has it
    place = np.zeros(max(every, default=-1) + 1, np.int32)
    place[ids] = np.arange(len(ids))
    slot = np.zeros(topology.ngeom, np.int32)
    for geom, several in owned.items():
        slot[geom] = place[several[0]]
    differs = any(len(several) > 1 for several in owned.values())
    return Bucket(asset, tuple(ids), sizes, slot, place if differs else None)


def fitting(sizes: Sizes, room: Sizes) -> bool:
    """Whether arrays of these sizes fit in arrays of the sizes `room`."""
    return all(size <= most for size, most in zip(sizes, room, strict=True))
