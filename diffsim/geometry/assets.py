"""Geoms of a model as shapes: their frames in the world, and the data that their type carries, such as a hull.

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

from diffsim.geometry.hull.tables import Sizes
from diffsim.geometry.shapes import Shape
from diffsim.types.data import Data, Kinematics
from diffsim.types.model import Model
from diffsim.types.topology import Topology
from diffsim.xla.gather import pick_existing

Array = jax.Array


class GeomFrames(NamedTuple):
    """Positions (n, 3), m, and matrices (n, 3, 3) of some geoms, and the place of each geom (ngeom,) among them."""

    geom_xpos: Array
    geom_xmat: Array
    place: np.ndarray


Poses = Kinematics | Data | GeomFrames


def frames_at(poses: Poses, geoms: Array | np.ndarray) -> tuple[Array, Array]:
    """Positions (n, 3), m, and matrices (n, 3, 3) of geoms (n,), which are ids of the model."""
    rows = geoms
    if isinstance(poses, GeomFrames):
        rows = pick_existing(jnp.asarray(poses.place), geoms) if isinstance(geoms, Array) else poses.place[geoms]
    # rows of nine: XLA for CPU copies a row that is one axis at once
    mat = pick_existing(poses.geom_xmat.reshape(-1, 9), rows).reshape(*rows.shape, 3, 3)
    return pick_existing(poses.geom_xpos, rows), mat


Index = Array | np.ndarray


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
