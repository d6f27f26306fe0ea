"""The octree of a mesh as a distance field.

In each leaf, the field interpolates trilinearly between the values at the corners. Each mesh has one octree, and all
octrees share the same arrays. For a point outside the root's box, the field is the value at the nearest point just
inside the box, plus the distance to the box. The direction that searches follow is not the derivative, as in MuJoCo. It
is the derivative with respect to coordinates that go from 0 to 1 across the leaf. So it is turned in leaves that are
not cubes, and shorter in small leaves. The choice of the leaf is not differentiated. Only the root's box is read; the
boxes of the other cells follow by halving it.
Source: `oct_distance` and `oct_gradient` of engine_collision_sdf.c (3.8.1).
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.geometry.sdf.functions import FieldFunction
from diffsim.math import safe
from diffsim.math.vector import pack, unpack
from diffsim.types.model import Model
from diffsim.types.topology import Topology, per_topology
from diffsim.xla.loops import fori_loop

# m, depth below the faces of the root's box to which points from outside are moved
INSIDE = 1e-6


class Octree(NamedTuple):
    """The octree of a mesh, and the cells of all octrees.

    `root` (6,): center and half sides of its root, m. `address` (): index of its root among all cells. `child` (noct,):
    index of the first of eight children, relative to the root; -1 for a leaf. `coeff` (noct, 8): signed distances at
    the corners, m.
    """

    root: Array
    address: Array
    child: Array
    coeff: Array


# for `vmap` over octrees
AXES = Octree(0, 0, None, None)  # type: ignore[arg-type]


class _Inside(NamedTuple):
    """Points (..., 3) moved into the root's box, which coordinates were moved, and by how much, m."""

    point: Array
    moved: Array
    beyond: Array


class _Place(NamedTuple):
    """Values (..., 8) at the corners of leaves, and the points' coordinates (..., 3) in their leaves, from 0 to 1.

    `along` (..., 1): side of the root / side of the leaf.
    """

    corner: Array
    within: Array
    along: Array


def octrees(model: Model, geoms: np.ndarray) -> Octree:
    """The octrees of the meshes of some geoms, stacked."""
    topology = model.topology
    address = topology.mesh_octadr[topology.geom_dataid[geoms]].astype(np.int32)
    child = jnp.asarray(topology.oct_child[:, 0].astype(np.int32))
    return Octree(model.oct_aabb[address], jnp.asarray(address), child, model.oct_coeff)


@per_topology
def levels(topology: Topology) -> int:
    """The number of levels below the root, of the deepest octree."""
    return int(topology.oct_depth.max(initial=0))


@functools.lru_cache(64)
def octree_function(depth: int) -> FieldFunction:
    """The field of octrees with at most `depth` levels below the root."""
    distance, direction = (functools.partial(function, depth) for function in (octree_distance, octree_direction))
    return FieldFunction((), (), distance, no_sides, direction)


def octree_distance(depth: int, octree: Octree, point: Array) -> Array:
    """Signed distances (...) of points (..., 3), m."""
    inside = _inside(octree.root, point)
    place = _place(depth, octree, inside.point)
    x, y, z = unpack(place.within)
    value = _between(z, _between(y, _along_x(place.corner, x)))[0]
    return value + safe.norm(inside.beyond)


def octree_direction(depth: int, octree: Octree, point: Array) -> Array:
    """Derivatives (..., 3) of the distance: inside the root by coordinates of the leaf, m; outside by `point`."""
    inside = _inside(octree.root, point)
    place = _place(depth, octree, inside.point)
    x, y, z = unpack(place.within)
    # values between the corners along x, then along y, and how they grow along each axis
    along_y = _along_x(place.corner, x)
    along_z = _between(y, along_y)
    by_x = [place.corner[..., k + 1] - place.corner[..., k] for k in (0, 2, 4, 6)]
    by_y = [along_y[k + 1] - along_y[k] for k in (0, 2)]
    rise = pack([_between(z, _between(y, by_x))[0], _between(z, by_y)[0], along_z[1] - along_z[0]])
    side = 2 * _sides(octree.root, point)[1] / place.along
    outside = jnp.where(inside.moved, safe.normalize(inside.beyond), rise / side)
    return jnp.where(jnp.any(inside.moved, axis=-1, keepdims=True), outside, rise)


def _inside(root: Array, point: Array) -> _Inside:
    """Points moved into the root's box; points that are inside stay."""
    center, half = _sides(root, point)
    off = point - center
    past = jnp.abs(off) - half
    outside = jnp.any(past > 0, axis=-1, keepdims=True)
    moved = outside & (past >= 0)
    upper = off > 0
    border = center + jnp.where(upper, 1, -1) * (half - INSIDE)
    beyond = jnp.where(moved, jnp.where(upper, past, -past), 0)
    return _Inside(jnp.where(moved, border, point), moved, beyond)


def _sides(root: Array, point: Array) -> tuple[Array, Array]:
    """Center and half sides of the root, repeated for each point (..., 3)."""
    return jnp.broadcast_to(root[:3], point.shape), jnp.broadcast_to(root[3:], point.shape)


def _place(depth: int, octree: Octree, point: Array) -> _Place:
    """The leaves that contain points (..., 3)."""
    center, half = _sides(octree.root, point)
    low = center - half
    high = center + half
    share = (point - low) / (high - low)
    node, corner, count = _leaf(depth, octree, jax.lax.stop_gradient(share))
    return _Place(_at(octree.coeff, node), share * count - corner, count)


def _leaf(depth: int, octree: Octree, share: Array) -> tuple[Array, Array, Array]:
    """Leaves (...), their lower corners (..., 3) in units of their sides, and side of root / side of leaf (..., 1).

    `share` (..., 3): coordinates in the root, from 0 to 1.
    """

    def step(_: int, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        node, corner, count = carry
        child = _at(octree.child, node)
        upper = (2 * (share * count - corner) >= 1).astype(share.dtype)
        x, y, z = unpack(upper.astype(jnp.int32))
        below = (child >= 0)[..., None]
        node = jnp.where(below[..., 0], octree.address + child + x + 2 * y + 4 * z, node)
        return node, jnp.where(below, 2 * corner + upper, corner), jnp.where(below, 2 * count, count)

    node = jnp.broadcast_to(octree.address, share.shape[:-1])
    start = node, jnp.zeros_like(share), jnp.ones_like(share[..., :1])
    return fori_loop(0, depth, step, start)


def _at(table: Array, node: Array) -> Array:
    """Rows of a table of all cells."""
    return table.at[node].get(mode="promise_in_bounds")


def _along_x(corner: Array, x: Array) -> list[Array]:
    """Values on the four edges along x, between corners (..., 8)."""
    return _between(x, [corner[..., k] for k in range(8)])


def _between(share: Array, values: list[Array]) -> list[Array]:
    """Linear interpolation in each two successive values."""
    return [(1 - share) * low + share * high for low, high in zip(values[::2], values[1::2], strict=True)]


def no_sides(parameters: Array) -> list[Array]:
    """An empty list: octrees and users' fields have a mesh, so the compiler does not search for their surface."""
    return []
