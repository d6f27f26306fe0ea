"""Jacobians of points and rotations, from motion axes and the ancestry of dofs.

A row that measures the velocity of a point p along n is the wrench (p x n, n); one that measures a rotation about n is
(n, 0). With all motion axes and wrenches taken about one point, the Jacobian of many rows is one (rows x 6) by
(6 x nv) product, times a 0/1 mask of the dofs that move the body. The point lies amid the trees, so that float32 does
not suffer far from the origin; results do not depend on it. Source: MuJoCo documentation, "Computation", "Jacobians".
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.kinematics.tree import body_dof_mask, chain_spans, last_dof, sum_subtree
from diffsim.math.linalg import BlockColumns, Blocks, per_block
from diffsim.math.spatial import pair_products, spatial_vector, transport_force, transport_motion
from diffsim.math.stencil_rows import PairRows
from diffsim.math.vector import cross, dot, matmul
from diffsim.types.data import ComFrame
from diffsim.types.model import Model
from diffsim.types.topology import Topology
from diffsim.xla.bilinear import by_components
from diffsim.xla.gather import pick, pick_some, pick_static

Ids = Array | np.ndarray | int | np.integer


class MotionAxes(NamedTuple):
    """Motion axes (nv, 6) of all dofs about one point (3,)."""

    point: Array
    cdof: Array


def motion_axes(topology: Topology, com: ComFrame) -> MotionAxes:
    """Motion axes about the mean of the trees' centres of mass."""
    roots = np.unique(topology.body_rootid[topology.dof_bodyid])
    centres = pick(com.subtree_com, roots)
    if len(roots) == 1:
        return MotionAxes(centres[0], com.cdof)
    point = jax.lax.stop_gradient(jnp.sum(centres, axis=0) / max(len(roots), 1))
    centre = pick(com.subtree_com, topology.body_rootid[topology.dof_bodyid])
    return MotionAxes(point, by_components(transport_motion(com.cdof, point[None] - centre)))


def wrench_along(axes: MotionAxes, pos: Array, direction: Array) -> Array:
    """Wrenches (..., 6) that measure the velocity of points `pos` along `direction`, both (..., 3)."""
    arm = pos - jnp.broadcast_to(axes.point, pos.shape)
    return spatial_vector(cross(arm, direction), direction)


def wrench_about(direction: Array) -> Array:
    """Wrenches (..., 6) that measure the angular velocity about `direction`."""
    return spatial_vector(direction, jnp.zeros_like(direction))


def wrench_rows(axes: MotionAxes, wrench: Array) -> Array:
    """Unmasked Jacobian rows (n, nv) of wrenches (n, 6)."""
    return matmul(wrench, axes.cdof.T)


def wrench_columns(blocks: Blocks, axes: MotionAxes, wrench: Array) -> BlockColumns:
    """`wrench_rows` by blocks of dofs; on a GPU an elementwise operation, which can be masked before it is stored."""

    def of_size(index: np.ndarray) -> Array:
        cdof = pick(axes.cdof, index)
        return per_block(pair_products, jnp.broadcast_to(wrench, (len(index), *wrench.shape)), cdof)

    return BlockColumns(blocks, tuple(of_size(index) for index in blocks.index))


def wrench_pairs(
    topology: Topology, blocks: Blocks, axes: MotionAxes, wrench: Array, bodies: Sequence[Array | np.ndarray]
) -> PairRows:
    """Rows of wrenches (dim, n, 6) that measure how the second of two bodies (n,) moves relative to the first."""
    none, last = len(blocks.table), last_dof(topology)
    number = np.full(topology.nv + 1, none)
    number[blocks.table] = np.arange(none)[:, None]
    # the padding of small blocks, and bodies that no dof moves
    number[-1] = none
    first, second = (pick_static(number[last], body) for body in bodies)
    rows = PairRows(blocks, wrench, jnp.stack([jnp.asarray(second), jnp.where(first == second, none, first)]))
    # no chain contains the padding of a small block
    begin, end = (rows.read(jnp.asarray(np.append(x, -2)[blocks.table])) for x in chain_spans(topology))
    ends = (jnp.asarray(pick_static(last, body))[None, None] for body in bodies)
    first_moves, second_moves = (((x >= begin) & (x <= end)).astype(wrench.dtype) for x in ends)
    # (2, d, dim, n), of axes (2, d, 1, n, 6) and a mask (2, d, 1, n)
    cdof = jnp.moveaxis(rows.read(pick_some(axes.cdof, blocks.table)), 2, -1)[:, :, None]
    return dataclasses.replace(rows, entries=dot(wrench, cdof) * (second_moves - first_moves)[:, :, None])


def moving_dofs(topology: Topology, body: np.ndarray, dtype: jnp.dtype) -> Array:
    """(n, nv) 0/1: the dofs that move each of some bodies (n,)."""
    return jnp.asarray(body_dof_mask(topology)[body], dtype)


def point_jacobian(model: Model, com: ComFrame, point: Array, body: Ids) -> tuple[Array, Array]:
    """Jacobians of points fixed to bodies: d velocity / d qvel and d angular velocity / d qvel, world axes.

    Args:
      point: (..., 3) world position.
      body: (...) body of each point, static or traced.

    Returns:
      translation and rotation, (..., 3, nv) each.
    """
    offset = point - com.subtree_com[rows_at(model.topology.body_rootid, body)]
    moves = rows_at(body_dof_mask(model.topology), body)
    angular, linear = com.cdof[:, :3], com.cdof[:, 3:]
    masked = moves[..., None, :]
    # components first, so that each is one wide operation over dofs
    lever = cross(
        jnp.broadcast_to(angular, (*offset.shape[:-1], *angular.shape)),
        jnp.broadcast_to(offset[..., None, :], (*offset.shape[:-1], *angular.shape)),
    )
    velocity = jnp.swapaxes(jnp.broadcast_to(linear, lever.shape) + lever, -1, -2)
    rotation = jnp.broadcast_to(angular.T, velocity.shape)
    return jnp.where(masked, velocity, 0), jnp.where(masked, rotation, 0)


def forces_on_dofs(model: Model, com: ComFrame, point: Array, body: np.ndarray, force: Array, torque: Array) -> Array:
    """(nv,) generalized force of forces and torques (n, 3) that act at points (n, 3) of bodies (n,): sum of J^T f."""
    return wrenches_on_dofs(model, com, body_wrenches(model, com, point, body, force, torque))


def body_wrenches(model: Model, com: ComFrame, point: Array, body: np.ndarray, force: Array, torque: Array) -> Array:
    """(nbody, 6) spatial forces of forces and torques (n, 3) that act at points (n, 3) of bodies (n,)."""
    topology = model.topology
    origin = pick(com.subtree_com, topology.body_rootid[body])
    wrench = transport_force(spatial_vector(torque, force), point - origin)
    if np.array_equal(body, np.arange(topology.nbody)):
        return wrench
    return jnp.zeros((topology.nbody, 6), wrench.dtype).at[body].add(wrench)


def wrenches_on_dofs(model: Model, com: ComFrame, wrench: Array) -> Array:
    """(nv,) generalized force of spatial forces (nbody, 6) on bodies."""
    return dot(com.cdof, pick(sum_subtree(model.topology, wrench), model.topology.dof_bodyid))


def rows_at(table: np.ndarray, index: Ids) -> Array | np.ndarray:
    """Rows of a static table at static or traced indices."""
    return jnp.asarray(table)[index] if isinstance(index, Array) else table[index]
