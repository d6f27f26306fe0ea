"""Composite inertias of subtrees and the joint-space inertia matrix M.

M_ij = cdof_i . (crb of the deeper of the two bodies) cdof_j for dofs of one chain, zero otherwise; armature adds to
the diagonal, tendon armature adds a J J^T. Source: Featherstone 2008, ch. 6 (composite rigid body algorithm).
"""

import jax
import numpy as np

from diffsim.dynamics.reflected import dof_armature, has_tendon_armature, tendon_armature
from diffsim.kinematics.blocks import dof_blocks
from diffsim.kinematics.tree import dof_mask, sum_subtree
from diffsim.math.linalg import BlockDiagonal, columns_of, each, gram
from diffsim.math.spatial import inertia_mul, pair_products
from diffsim.math.vector import scale
from diffsim.types.data import ComFrame, Inertia, Tendons
from diffsim.types.model import Model
from diffsim.types.topology import Topology
from diffsim.xla.barriers import stage, stage_for_cpu, transposed
from diffsim.xla.gather import pick
from diffsim.xla.select import where

Array = jax.Array


def compute_inertia(model: Model, com: ComFrame, tendons: Tendons) -> Inertia:
    """crb (nbody, 10) as `cinert`, and M, kg m^2 and kg; armature of joints, actuators and tendons included."""
    topology = model.topology
    crb = where(np.arange(topology.nbody)[:, None] > 0, sum_subtree(topology, com.cinert), 0)
    momentum = dof_momenta(pick(crb, topology.dof_bodyid), com.cdof)
    return Inertia(crb=crb, M=joint_space_inertia(model, momentum, com.cdof, tendons))


@stage
def dof_momenta(crb: Array, cdof: Array) -> Array:
    """(nv, 6) momenta of the subtrees that dofs move, crb (nv, 10), at unit velocity along cdof (nv, 6)."""
    return inertia_mul(crb, cdof)


@stage_for_cpu
def joint_space_inertia(model: Model, momentum: Array, cdof: Array, tendons: Tendons) -> BlockDiagonal:
    """M by blocks, from momenta of dofs (nv, 6) and their axes (nv, 6)."""
    blocks = dof_blocks(model.topology)
    parts = tuple(_block(model.topology, index, momentum, cdof) for index in blocks.index)
    inertia = BlockDiagonal(blocks, parts).plus_diagonal(dof_armature(model))
    return _plus_tendons(model, inertia, tendons) if has_tendon_armature(model.topology) else inertia


def _block(topology: Topology, index: np.ndarray, momentum: Array, cdof: Array) -> Array:
    """(count, size, size) inertias of the dofs of blocks.

    Entry (i, j) with j before i on the chain comes from row i, its mirror image from row j.
    """

    def one(lower: Array, upper: Array, force: Array, motion: Array) -> Array:
        products = pair_products(force, motion)
        mirrored = transposed(products, lambda: pair_products(motion, force))
        return where(lower, products, where(upper, mirrored, 0))

    return each(one, *coupled(topology, index), pick(momentum, index), pick(cdof, index))


def coupled(topology: Topology, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(count, size, size) bool of blocks: dof j is i or before it on its chain; and i is j or before it."""
    lower = dof_mask(topology)[index[:, :, None], index[:, None, :]]
    return lower, np.swapaxes(lower, 1, 2)


def _plus_tendons(model: Model, inertia: BlockDiagonal, tendons: Tendons) -> BlockDiagonal:
    """With the armature of tendons; as in MuJoCo, whose M has no entries for dofs of different branches, those couple
    nothing.
    """
    blocks = inertia.blocks
    rows = (columns_of(blocks, part) for part in (tendons.ten_J, scale(tendons.ten_J, tendon_armature(model))))
    masks = (np.logical_or(*coupled(model.topology, index)) for index in blocks.index)
    parts = zip(inertia.parts, gram(*rows).parts, masks, strict=True)
    return BlockDiagonal(blocks, tuple(part + where(mask, more, 0) for part, more, mask in parts))
