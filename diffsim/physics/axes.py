"""Jacobians of points and rotations: wrenches times motion axes, masked by ancestry.

A row that measures the velocity of a point p along n is the wrench (p x n, n); one that measures a rotation about n is
(n, 0). With all motion axes and wrenches taken about one point, the Jacobian of many rows is one (rows x 6) by
(6 x nv) product, times a 0/1 mask of the dofs that move the body. The point lies amid the trees, so that float32 does
not suffer far from the origin; results do not depend on it.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.math.block_matrix import BlockColumns
from diffsim.math.blocks import Blocks, each
from diffsim.math.linalg import matmul
from diffsim.math.pick import pick
from diffsim.math.spatial import join, transport_motion
from diffsim.math.vector import cross
from diffsim.physics.tree import body_dof_mask
from diffsim.types.data import ComFrame
from diffsim.types.topology import Topology, per_topology

Array = jax.Array


class Axes(NamedTuple):
    """Motion axes (nv, 6) of all dofs about one point (3,)."""

    point: Array
    cdof: Array


@per_topology
def moving_roots(topology: Topology) -> np.ndarray:
    """Root body of each tree that has dofs."""
    return np.unique(topology.body_rootid[topology.dof_bodyid])


def axes(topology: Topology, com: ComFrame) -> Axes:
    """Motion axes about the mean of the trees' centres of mass."""
    roots = moving_roots(topology)
    centres = pick(com.subtree_com, roots)
    if len(roots) == 1:
        return Axes(centres[0], com.cdof)
    point = jax.lax.stop_gradient(jnp.sum(centres, axis=0) / max(len(roots), 1))
    own = pick(com.subtree_com, topology.body_rootid[topology.dof_bodyid])
    return Axes(point, transport_motion(com.cdof, point[None] - own))


def along(motion: Axes, pos: Array, direction: Array) -> Array:
    """Wrenches (..., 6) that measure the velocity of points `pos` along `direction`, both (..., 3)."""
    arm = pos - jnp.broadcast_to(motion.point, pos.shape)
    return join(cross(arm, direction), direction)


def about(direction: Array) -> Array:
    """Wrenches (..., 6) that measure the angular velocity about `direction`."""
    return join(direction, jnp.zeros_like(direction))


def rows_of(motion: Axes, wrench: Array) -> Array:
    """Unmasked Jacobian rows (n, nv) of wrenches (n, 6)."""
    return matmul(wrench, motion.cdof.T)


def columns(blocks: Blocks, motion: Axes, wrench: Array) -> BlockColumns:
    """The same by blocks of dofs."""

    def of_size(index: np.ndarray) -> Array:
        cdof = pick(motion.cdof, index)
        return each(lambda w, axes: matmul(w, axes.T), jnp.broadcast_to(wrench, (len(index), *wrench.shape)), cdof)

    return BlockColumns(blocks, tuple(of_size(index) for index in blocks.index))


def body_mask(topology: Topology, body: np.ndarray, dtype: jnp.dtype) -> Array:
    """(n, nv) 0/1: the dofs that move each of the given bodies."""
    return jnp.asarray(body_dof_mask(topology)[body], dtype)
