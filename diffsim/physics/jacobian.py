"""Jacobians of points, from motion axes and the ancestry of dofs; the constraint and sensor rooms build on them.

Motion axes are expressed at the tree's centre of mass, so a point's Jacobian is cdof taken to the point, masked to
the dofs that move its body. Source: MuJoCo documentation, "Computation", "Jacobians".
"""

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.math.pick import pick
from diffsim.math.spatial import join, transport_force
from diffsim.math.vector import cross, dot
from diffsim.physics.tree import body_dof_mask as body_dof_mask
from diffsim.physics.tree import sum_subtree
from diffsim.types.data import ComFrame
from diffsim.types.model import Model

Array = jax.Array
Ids = Array | np.ndarray | int | np.integer


def point_jacobian(model: Model, com: ComFrame, point: Array, body: Ids) -> tuple[Array, Array]:
    """Jacobians of points fixed to bodies: d velocity / d qvel and d angular velocity / d qvel, world axes.

    Args:
      point: (..., 3) world position.
      body: (...) body of each point, static or traced.

    Returns:
      translation and rotation, (..., 3, nv) each.
    """
    offset = point - com.subtree_com[_take(model.topology.body_rootid, body)]
    moves = _take(body_dof_mask(model.topology), body)
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


def joint_force(model: Model, com: ComFrame, point: Array, body: np.ndarray, force: Array, torque: Array) -> Array:
    """(nv,) generalized force of forces and torques (n, 3) that act at points (n, 3) of bodies (n,): sum of J^T f."""
    return dof_force(model, com, body_wrenches(model, com, point, body, force, torque))


def body_wrenches(model: Model, com: ComFrame, point: Array, body: np.ndarray, force: Array, torque: Array) -> Array:
    """(nbody, 6) spatial forces of forces and torques (n, 3) that act at points (n, 3) of bodies (n,)."""
    topology = model.topology
    origin = pick(com.subtree_com, topology.body_rootid[body])
    wrench = transport_force(join(torque, force), point - origin)
    if np.array_equal(body, np.arange(topology.nbody)):
        return wrench
    return jnp.zeros((topology.nbody, 6), wrench.dtype).at[body].add(wrench)


def dof_force(model: Model, com: ComFrame, wrench: Array) -> Array:
    """(nv,) generalized force of spatial forces (nbody, 6) on bodies."""
    return dot(com.cdof, pick(sum_subtree(model.topology, wrench), model.topology.dof_bodyid))


def _take(table: np.ndarray, index: Ids) -> Array | np.ndarray:
    """Rows of a static table at static or traced indices."""
    return jnp.asarray(table)[index] if isinstance(index, jax.Array) else table[index]
