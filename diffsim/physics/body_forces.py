"""Body accelerations, and forces between bodies, from the constrained acceleration: what sensors read.

cacc sums cdof_dot qvel + cdof qacc from the world, which accelerates upward with gravity; cfrc_ext collects applied
and constraint wrenches; cfrc_int is the force that a body's parent exerts on its subtree. Source: Featherstone 2008,
ch. 5 (recursive Newton-Euler).
"""

import jax

from diffsim.math.pick import pick
from diffsim.math.spatial import join, transport_force
from diffsim.math.vector import scale
from diffsim.physics.bias import body_force, rest_acceleration
from diffsim.physics.tree import sum_chain, sum_subtree
from diffsim.types.data import BodyForces, ComFrame, Kinematics, Velocities
from diffsim.types.model import Model

Array = jax.Array


def body_forces(
    model: Model,
    qvel: Array,
    qacc: Array,
    xfrc_applied: Array,
    kinematics: Kinematics,
    com: ComFrame,
    velocities: Velocities,
    constraint: Array,
) -> BodyForces:
    """cacc, cfrc_int, cfrc_ext (nbody, 6), world-oriented, about the centre of mass of each tree.

    Args:
      qvel, qacc: (nv,) velocity and constrained acceleration.
      xfrc_applied: (nbody, 6) force and torque at the bodies' centres of mass.
      constraint: (nbody, 6) torque and force of contacts, connects and welds, about the trees' centres of mass.
    """
    topology = model.topology
    rate = scale(velocities.cdof_dot, qvel) + scale(com.cdof, qacc)
    acceleration = rest_acceleration(model)[None] + sum_chain(topology, rate)
    offset = kinematics.xipos - pick(com.subtree_com, topology.body_rootid)
    applied = transport_force(join(xfrc_applied[:, 3:], xfrc_applied[:, :3]), offset)
    # nothing acts on the world
    external = (applied + constraint).at[0].set(0)
    total = body_force(com.cinert, velocities.cvel, acceleration) - external
    return BodyForces(cacc=acceleration, cfrc_int=sum_subtree(topology, total), cfrc_ext=external)
