"""Forces that the user applies to bodies, and the accelerations of bodies and forces between them that sensors read.

cacc is the sum of cdof_dot qvel + cdof qacc over the chain from the world, which accelerates upward by gravity.
cfrc_ext is the sum of applied and constraint wrenches. cfrc_int is the wrench that the parent of a body exerts on it.
Source: Featherstone 2008, ch. 5 (recursive Newton-Euler).
"""

import numpy as np
from jax import Array

from diffsim.dynamics.bias import body_force, world_acceleration
from diffsim.kinematics.jacobian import forces_on_dofs
from diffsim.kinematics.tree import sum_chain, sum_subtree
from diffsim.math.spatial import spatial_vector, transport_force
from diffsim.types.data import BodyForces, ComFrame, Kinematics, Velocities
from diffsim.types.model import Model
from diffsim.types.state import Inputs
from diffsim.xla.gather import pick


def applied_force(model: Model, inputs: Inputs, kinematics: Kinematics, com: ComFrame) -> Array:
    """(nv,) the user's generalized force, N or N m: qfrc_applied + J^T xfrc_applied.

    xfrc_applied (nbody, 6) is force (N) and torque (N m) at the centre of mass of each body, world axes.
    """
    wrench = inputs.xfrc_applied
    bodies = np.arange(model.nbody)
    return inputs.qfrc_applied + forces_on_dofs(model, com, kinematics.xipos, bodies, wrench[:, :3], wrench[:, 3:])


def compute_body_forces(
    model: Model, qvel: Array, qacc: Array, com: ComFrame, velocities: Velocities, external: Array
) -> BodyForces:
    """cacc, cfrc_int and cfrc_ext (nbody, 6), world axes, about the centre of mass of each tree.

    Args:
      model: the model.
      qvel, qacc: (nv,) velocity and constrained acceleration, in m/s, rad/s, m/s^2 and rad/s^2.
      com, velocities: the results of these stages.
      external: (nbody, 6) torque (N m) and force (N) of `external_wrenches`, which becomes cfrc_ext.
    """
    topology = model.topology
    rates = sum_chain(topology, (velocities.cdof_dot, qvel), (com.cdof, qacc))
    acceleration = world_acceleration(model)[None] + rates
    total = body_force(com.cinert, velocities.cvel, acceleration) - external
    return BodyForces(cacc=acceleration, cfrc_int=sum_subtree(topology, total), cfrc_ext=external)


def external_wrenches(
    model: Model, inputs: Inputs, kinematics: Kinematics, com: ComFrame, constraint: Array, tendon: Array | None = None
) -> Array:
    """(nbody, 6) external torque (N m) and force (N) on each body, about its tree's centre of mass, world axes.

    `constraint` (nbody, 6) are the wrenches of contacts, connects and welds, `tendon` the wrenches of spatial tendons
    where the model counts them; xfrc_applied is added to them.
    """
    offset = kinematics.xipos - pick(com.subtree_com, model.topology.body_rootid)
    wrench = inputs.xfrc_applied
    applied = transport_force(spatial_vector(wrench[:, 3:], wrench[:, :3]), offset)
    constraint = constraint if tendon is None else constraint + tendon
    # MuJoCo lists no force on the world
    return (applied + constraint).at[0].set(0)
