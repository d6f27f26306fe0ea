"""Jacobians of points and rotations, computed from motion axes and from which dofs move which body.

The velocity of a point p along a direction n is the product of the wrench (p x n, n) with the spatial velocity; the
angular velocity about n is the product with (n, 0). With all wrenches and motion axes about one point, the Jacobian of
many rows is therefore one (rows x 6) by (6 x nv) product, times a 0/1 mask of the dofs that move the body. The point is
in the middle of the trees, so that float32 loses no digits far from the origin; results do not depend on it. Source:
MuJoCo documentation, "Computation", "Jacobians".
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
    """The motion axes of all dofs about one point, the mean of the centres of mass of the trees."""
    roots = np.unique(topology.body_rootid[topology.dof_bodyid])
    centres = pick(com.subtree_com, roots)
    if len(roots) == 1:
        return MotionAxes(centres[0], com.cdof)
    point = jax.lax.stop_gradient(jnp.sum(centres, axis=0) / max(len(roots), 1))
    centre = pick(com.subtree_com, topology.body_rootid[topology.dof_bodyid])
    return MotionAxes(point, by_components(transport_motion(com.cdof, point[None] - centre)))


def wrench_along(axes: MotionAxes, pos: Array, direction: Array) -> Array:
    """(..., 6) wrenches whose product with a velocity is the velocity of points `pos` along `direction` (..., 3)."""
    arm = pos - jnp.broadcast_to(axes.point, pos.shape)
    return spatial_vector(cross(arm, direction), direction)


def wrench_about(direction: Array) -> Array:
    """(..., 6) wrenches whose product with a velocity is the angular velocity about `direction` (..., 3)."""
    return spatial_vector(direction, jnp.zeros_like(direction))


def wrench_rows(axes: MotionAxes, wrench: Array) -> Array:
    """(n, nv) Jacobian rows of wrenches (n, 6), as if every dof moved the body: the caller applies the mask."""
    return matmul(wrench, axes.cdof.T)


def wrench_columns(blocks: Blocks, axes: MotionAxes, wrench: Array) -> BlockColumns:
    """`wrench_rows` in blocks of dofs: an elementwise operation, which a GPU can mask before it stores the result."""

    def of_size(index: np.ndarray) -> Array:
        cdof = pick(axes.cdof, index)
        return per_block(pair_products, jnp.broadcast_to(wrench, (len(index), *wrench.shape)), cdof)

    return BlockColumns(blocks, tuple(of_size(index) for index in blocks.index))


def wrench_pairs(
    topology: Topology, blocks: Blocks, axes: MotionAxes, wrench: Array, bodies: Sequence[Array | np.ndarray]
) -> PairRows:
    """Jacobian rows of the motion of a second body relative to a first body, with the columns of two blocks each.

    Args:
      topology: of the model.
      blocks: the blocks of dofs.
      axes: motion axes of all dofs.
      wrench: (dim, n, 6) the wrenches of the rows.
      bodies: (n,) the first and the second body of each row, static or known at run time.
    """
    # A row has entries only in the blocks of its two bodies. `blocks.table` (nblock, d) has the dofs of each block;
    # `number` says in which block a dof is, and is `no_block` for -1, a body that no dof moves. If both bodies are in
    # one block, the row has this block once.
    no_block = len(blocks.table)
    last = last_dof(topology)
    number = np.full(topology.nv + 1, no_block)
    number[blocks.table] = np.arange(no_block)[:, None]
    # the table pads small blocks with -1, and `last_dof` is -1 for bodies that no dof moves
    number[-1] = no_block
    first, second = (pick_static(number[last], body) for body in bodies)
    rows = PairRows(blocks, wrench, jnp.stack([jnp.asarray(second), jnp.where(first == second, no_block, first)]))
    # a dof moves a body if the body's last dof is in the span of the dof's descendants; padding (-2) has an empty span
    begin, end = (rows.read(jnp.asarray(np.append(x, -2)[blocks.table])) for x in chain_spans(topology))
    ends = (jnp.asarray(pick_static(last, body))[None, None] for body in bodies)
    first_moves, second_moves = (((x >= begin) & (x <= end)).astype(wrench.dtype) for x in ends)
    # entries (2, d, dim, n), from axes (2, d, 1, n, 6) and a mask (2, d, 1, n) of values -1, 0 and 1
    cdof = jnp.moveaxis(rows.read(pick_some(axes.cdof, blocks.table)), 2, -1)[:, :, None]
    return dataclasses.replace(rows, entries=dot(wrench, cdof) * (second_moves - first_moves)[:, :, None])


def moving_dofs(topology: Topology, body: np.ndarray, dtype: jnp.dtype) -> Array:
    """(n, nv) 1 for the dofs that move each body (n,), and 0 for the others."""
    return jnp.asarray(body_dof_mask(topology)[body], dtype)


def point_jacobian(model: Model, com: ComFrame, point: Array, body: Ids) -> tuple[Array, Array]:
    """Jacobians of points that are fixed to bodies: of their velocities and angular velocities, world axes.

    Args:
      model: the model.
      com: the centres of mass and motion axes in the same state.
      point: (..., 3) m, positions in the world.
      body: (...) the body of each point, static or known at run time.

    Returns:
      d velocity / d qvel and d angular velocity / d qvel, (..., 3, nv) each.
    """
    offset = point - com.subtree_com[rows_at(model.topology.body_rootid, body)]
    moves = rows_at(body_dof_mask(model.topology), body)
    angular = com.cdof[:, :3]
    linear = com.cdof[:, 3:]
    # the velocity of the point for each dof, linear + angular x offset
    lever = cross(
        jnp.broadcast_to(angular, (*offset.shape[:-1], *angular.shape)),
        jnp.broadcast_to(offset[..., None, :], (*offset.shape[:-1], *angular.shape)),
    )
    velocity = jnp.swapaxes(jnp.broadcast_to(linear, lever.shape) + lever, -1, -2)
    rotation = jnp.broadcast_to(angular.T, velocity.shape)
    moves = moves[..., None, :]
    return jnp.where(moves, velocity, 0), jnp.where(moves, rotation, 0)


def forces_on_dofs(model: Model, com: ComFrame, point: Array, body: np.ndarray, force: Array, torque: Array) -> Array:
    """(nv,) generalized force, the sum of J^T f, of forces and torques (n, 3) at points (n, 3) of bodies (n,)."""
    return wrenches_on_dofs(model, com, body_wrenches(model, com, point, body, force, torque))


def body_wrenches(model: Model, com: ComFrame, point: Array, body: np.ndarray, force: Array, torque: Array) -> Array:
    """(nbody, 6) spatial force on each body, the sum of forces and torques (n, 3) at points (n, 3) of bodies (n,)."""
    topology = model.topology
    origin = pick(com.subtree_com, topology.body_rootid[body])
    wrench = transport_force(spatial_vector(torque, force), point - origin)
    if np.array_equal(body, np.arange(topology.nbody)):
        return wrench
    return jnp.zeros((topology.nbody, 6), wrench.dtype).at[body].add(wrench)


def wrenches_on_dofs(model: Model, com: ComFrame, wrench: Array) -> Array:
    """(nv,) generalized force of the spatial forces (nbody, 6) on all bodies."""
    return dot(com.cdof, pick(sum_subtree(model.topology, wrench), model.topology.dof_bodyid))


def rows_at(table: np.ndarray, index: Ids) -> Array | np.ndarray:
    """Rows of a static table at indices that are static or known at run time."""
    return jnp.asarray(table)[index] if isinstance(index, Array) else table[index]
