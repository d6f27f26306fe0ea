"""Signed distance fields of meshes: trilinear in each leaf of an octree, from values at its corners.

Outside of the root the field is that of the point just inside of its box that is nearest, and how far this is. The
direction that searches follow is, as in MuJoCo, not the derivative in there: it is by coordinates that grow from 0 to
1 through the leaf, so that leaves that are no cubes turn it, and small ones shorten it.

Which leaf a point is in is not differentiated. Of the boxes of the cells that of the root is read, the others are its
halves. Source: `oct_distance` and `oct_gradient` of engine_collision_sdf.c (3.8.1).
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.geometry.sdf.functions import FieldFunction
from diffsim.math import safe
from diffsim.math.vector import pack, unpack
from diffsim.types.model import Model
from diffsim.types.topology import Topology, per_topology

Array = jax.Array

# the name of these fields among those of plugins
OCTREE = "mujoco.octree"
# m, how far inside of the root's box points from outside are moved
INSIDE = 1e-6


class Octree(NamedTuple):
    """The octree of a mesh, and the cells of all.

    `root` (6,): center and half sides, m. `address` (): of its root among all cells. `child` (noct,): the first of
    eight children, counted from the root, -1 for none. `coeff` (noct, 8): signed distances at the corners, m.
    """

    root: Array
    address: Array
    child: Array
    coeff: Array


# for `vmap` over octrees
AXES = Octree(0, 0, None, None)  # type: ignore[arg-type]


class _Inside(NamedTuple):
    """Points (..., 3) in the root, which of their coordinates were moved, and how far along each, m."""

    point: Array
    moved: Array
    beyond: Array


class _Place(NamedTuple):
    """Values (..., 8) at the corners of leaves, and where points (..., 3) are in these, from 0 to 1.

    `along` (..., 1): how many of such leaves are as long as the root.
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
    """Levels below the root of the deepest octree."""
    return int(topology.oct_depth.max(initial=0))


@functools.lru_cache(64)
def octree_function(depth: int) -> FieldFunction:
    """The fields of octrees with so many levels below the root."""
    distance, direction = (functools.partial(each, depth) for each in (octree_distance, octree_direction))
    return FieldFunction((), (), distance, _no_sides, direction)


def octree_distance(depth: int, octree: Octree, point: Array) -> Array:
    """Signed distances (...) of points (..., 3), m."""
    inside = _inside(octree.root, point)
    place = _place(depth, octree, inside.point)
    x, y, z = unpack(place.within)
    value = _between(z, _between(y, _along_x(place.corner, x)))[0]
    return value + safe.norm(inside.beyond)


def octree_direction(depth: int, octree: Octree, point: Array) -> Array:
    """Where the distance grows (..., 3): in the root by coordinates of the leaf, m, outside of it the derivative."""
    inside = _inside(octree.root, point)
    place = _place(depth, octree, inside.point)
    rise = _rise(place)
    side = 2 * _sides(octree.root, point)[1] / place.along
    outside = jnp.where(inside.moved, safe.normalize(inside.beyond), rise / side)
    return jnp.where(jnp.any(inside.moved, axis=-1, keepdims=True), outside, rise)


def _inside(root: Array, point: Array) -> _Inside:
    """Points moved into the box of the root; those that are in there stay."""
    center, half = _sides(root, point)
    off = point - center
    past = jnp.abs(off) - half
    outside = jnp.any(past > 0, axis=-1, keepdims=True)
    moved, upper = outside & (past >= 0), off > 0
    border = center + jnp.where(upper, 1, -1) * (half - INSIDE)
    beyond = jnp.where(moved, jnp.where(upper, past, -past), 0)
    return _Inside(jnp.where(moved, border, point), moved, beyond)


def _sides(root: Array, point: Array) -> tuple[Array, Array]:
    """Center and half sides of the root, as many as points (..., 3)."""
    return jnp.broadcast_to(root[:3], point.shape), jnp.broadcast_to(root[3:], point.shape)


def _place(depth: int, octree: Octree, point: Array) -> _Place:
    """The leaves in which points (..., 3) are."""
    center, half = _sides(octree.root, point)
    low, high = center - half, center + half
    share = (point - low) / (high - low)
    node, corner, count = _leaf(depth, octree, jax.lax.stop_gradient(share))
    return _Place(_at(octree.coeff, node), share * count - corner, count)


def _leaf(depth: int, octree: Octree, share: Array) -> tuple[Array, Array, Array]:
    """Leaves (...), their lower corners (..., 3) in units of their sides, and sides along the root (..., 1).

    `share`: of the root's sides (..., 3).
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
    return jax.lax.fori_loop(0, depth, step, start)


def _at(table: Array, node: Array) -> Array:
    """Rows of a table of all cells."""
    return table.at[node].get(mode="promise_in_bounds")


def _rise(place: _Place) -> Array:
    """Derivatives (..., 3) of the values in leaves by the coordinates there."""
    x, y, z = unpack(place.within)
    corner = place.corner
    along_y = _along_x(corner, x)
    along_z = _between(y, along_y)
    by_x = [corner[..., k + 1] - corner[..., k] for k in (0, 2, 4, 6)]
    by_y = [along_y[k + 1] - along_y[k] for k in (0, 2)]
    return pack([_between(z, _between(y, by_x))[0], _between(z, by_y)[0], along_z[1] - along_z[0]])


def _along_x(corner: Array, x: Array) -> list[Array]:
    """Values on the four edges along x, between corners (..., 8)."""
    return _between(x, [corner[..., k] for k in range(8)])


def _between(share: Array, values: list[Array]) -> list[Array]:
    """The values between each two."""
    return [(1 - share) * low + share * high for low, high in zip(values[::2], values[1::2], strict=True)]


def _no_sides(parameters: Array) -> list[Array]:
    """The surface of the field is its mesh."""
    return []
