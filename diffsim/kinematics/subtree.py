"""Momentum of subtrees: how a body and all that hangs on it moves, and turns about its own centre of mass.

Momenta of bodies about the centre of mass o of their tree, I cvel, add up over a subtree to (L_o, p). About the
subtree's own centre c the angular momentum is L_o - (c - o) x p. The world is the sum of its trees, each with its own
o. Source: Featherstone 2008, ch. 2; MuJoCo mj_subtreeVel.
"""

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.kinematics.tree import sum_subtree
from diffsim.math.spatial import inertia_mul
from diffsim.math.vector import cross, scale
from diffsim.types.data import ComFrame, SubtreeVelocities, Velocities
from diffsim.types.model import Model
from diffsim.xla.pick import pick

Array = jax.Array

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
