"""Velocities of bodies, tendons and actuators, the rate of change of motion axes, and the momentum of subtrees.

cvel is the sum of cdof qvel over the dofs that move a body. cdof_dot is the velocity of the frame that carries a motion
axis, crossed with it: what the dofs before it do. Momenta of bodies about the centre of mass o of their tree, I cvel,
add up over a subtree to (L_o, p); about the subtree's own centre c the angular momentum is L_o - (c - o) x p. The world
is the sum of its trees, each with its own o. Source: Featherstone 2008, ch. 2; MuJoCo mj_subtreeVel.
"""

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.enums import DisableBit
from diffsim.kinematics.joints import earlier_dof
from diffsim.kinematics.tree import last_dof, sum_dofs, sum_subtree
from diffsim.math.spatial import cross_motion, inertia_mul
from diffsim.math.vector import cross, matmul, scale
from diffsim.types.data import ComFrame, SubtreeVelocities, Tendons, Transmission, Velocities
from diffsim.types.model import Model
from diffsim.xla.gather import pick

Array = jax.Array


def compute_velocities(
    model: Model, qvel: Array, com: ComFrame, tendons: Tendons, transmission: Transmission
) -> Velocities:
    """cvel (nbody, 6), cdof_dot (nv, 6), ten_velocity (ntendon,), actuator_velocity (nu,) from qvel (nv,).

    Spatial vectors are (rad/s, m/s), world-oriented, about the centre of mass of each tree; tendons and actuators move
    in m/s, or rad/s where their length is an angle. Actuators that are all disabled do not move, as in MuJoCo.
    """
    topology = model.topology
    # bodies, and the frames that carry each motion axis, in one product
    last = np.concatenate([last_dof(topology), earlier_dof(topology)])
    sums = sum_dofs(topology, last, (com.cdof, qvel))
    idle = model.opt.disabled(DisableBit.ACTUATION)
    return Velocities(
        cvel=sums[: topology.nbody],
        cdof_dot=cross_motion(sums[topology.nbody :], com.cdof),
        ten_velocity=matmul(tendons.ten_J, qvel),
        actuator_velocity=jnp.zeros((model.nu,), qvel.dtype) if idle else matmul(transmission.actuator_moment, qvel),
    )


MINIMUM_MASS = 1e-15


def compute_subtree_velocities(model: Model, com: ComFrame, velocities: Velocities) -> SubtreeVelocities:
    """subtree_linvel (nbody, 3) m/s and subtree_angmom (nbody, 3) kg m^2/s about subtree_com, world axes."""
    topology = model.topology
    momentum = sum_subtree(topology, inertia_mul(com.cinert, velocities.cvel))
    arm = com.subtree_com - pick(com.subtree_com, topology.body_rootid)
    spin = momentum[:, :3] - cross(arm, momentum[:, 3:])
    # trees turn about points of their own
    roots = np.flatnonzero((topology.body_rootid == np.arange(topology.nbody)) & (np.arange(topology.nbody) > 0))
    across = pick(com.subtree_com, roots) - com.subtree_com[:1]
    whole = jnp.sum(pick(spin, roots) + cross(across, pick(momentum, roots)[:, 3:]), axis=0)
    mass = jnp.maximum(model.body_subtreemass, MINIMUM_MASS)
    return SubtreeVelocities(subtree_linvel=scale(momentum[:, 3:], 1 / mass), subtree_angmom=spin.at[0].set(whole))
