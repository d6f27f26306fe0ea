"""Forces on bodies: what the user applies; accelerations and forces between bodies, which sensors read.

cacc sums cdof_dot qvel + cdof qacc from the world, which accelerates upward with gravity; cfrc_ext collects applied
and constraint wrenches; cfrc_int is the force that a body's parent exerts on its subtree. Source: Featherstone 2008,
ch. 5 (recursive Newton-Euler).
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
    """(nv,) N or N m: qfrc_applied + J^T xfrc_applied, which is (nbody, 6) force (N) and torque (N m) in world axes."""
    wrench = inputs.xfrc_applied
    bodies = np.arange(model.nbody)
    return inputs.qfrc_applied + forces_on_dofs(model, com, kinematics.xipos, bodies, wrench[:, :3], wrench[:, 3:])


def compute_body_forces(
    model: Model, qvel: Array, qacc: Array, com: ComFrame, velocities: Velocities, external: Array
) -> BodyForces:
    """cacc, cfrc_int, cfrc_ext (nbody, 6), world-oriented, about the centre of mass of each tree.

    Args:
      qvel, qacc: (nv,) velocity and constrained acceleration, in m and rad per s and s^2.
      external: (nbody, 6) torque (N m) and force (N) on each body from outside of the tree, cfrc_ext.
    """
    topology = model.topology
    rates = sum_chain(topology, (velocities.cdof_dot, qvel), (com.cdof, qacc))
    acceleration = world_acceleration(model)[None] + rates
    total = body_force(com.cinert, velocities.cvel, acceleration) - external
    return BodyForces(cacc=acceleration, cfrc_int=sum_subtree(topology, total), cfrc_ext=external)


def external_wrenches(model: Model, inputs: Inputs, kinematics: Kinematics, com: ComFrame, constraint: Array) -> Array:
    """(nbody, 6) torque (N m) and force (N) on each body from outside, about its tree's centre of mass, world axes.

    `constraint` (nbody, 6) is the part of contacts, connects and welds; the rest is xfrc_applied.
    """
    offset = kinematics.xipos - pick(com.subtree_com, model.topology.body_rootid)
    wrench = inputs.xfrc_applied
    applied = transport_force(spatial_vector(wrench[:, 3:], wrench[:, :3]), offset)
    # nothing acts on the world
    return (applied + constraint).at[0].set(0)
