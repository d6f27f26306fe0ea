"""Composite inertias of subtrees and the joint-space inertia matrix M.

M_ij = cdof_i . (crb of the deeper of the two bodies) cdof_j for dofs of one chain, zero otherwise; armature adds to
the diagonal, tendon armature adds a J J^T. Source: Featherstone 2008, ch. 6 (composite rigid body algorithm).
"""

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.math.linalg import matmul
from diffsim.math.spatial import inertia_mul
from diffsim.math.vector import scale, total, unpack
from diffsim.physics.place import settle
from diffsim.physics.reflected import dof_armature, has_tendon_armature, tendon_armature
from diffsim.physics.tree import dof_mask, sum_subtree
from diffsim.types.data import ComFrame, Inertia, Tendons
from diffsim.types.model import Model

Array = jax.Array


def joint_inertia(model: Model, com: ComFrame, tendons: Tendons) -> Inertia:
    """crb (nbody, 10) and qM (nv, nv), symmetric, armature of joints, actuators and tendons included."""
    topology = model.topology
    crb = sum_subtree(topology, com.cinert).at[0].set(0)
    momentum = settle(inertia_mul(crb[topology.dof_bodyid], com.cdof))
    # entry (i, j) with j before i on the chain comes from row i, its mirror image from row j
    lower = dof_mask(topology)
    mass = jnp.where(lower, pair_products(momentum, com.cdof), jnp.where(lower.T, pair_products(com.cdof, momentum), 0))
    mass = mass + jnp.where(np.eye(topology.nv, dtype=bool), dof_armature(model)[:, None], 0)
    if has_tendon_armature(topology):
        coupling = matmul(tendons.ten_J.T, scale(tendons.ten_J, tendon_armature(model)))
        # as in MuJoCo, whose M has no entries for dofs of different branches, those couple nothing
        mass = mass + jnp.where(lower | lower.T, coupling, 0)
    return Inertia(crb=crb, qM=mass)


def pair_products(a: Array, b: Array) -> Array:
    """(nv, nv) a_i . b_j of spatial vectors (nv, 6), as a sum of outer products: one elementwise operation."""
    return total([x[:, None] * y[None] for x, y in zip(unpack(a), unpack(b), strict=True)])
