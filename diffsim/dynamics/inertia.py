"""Composite inertias of subtrees and the joint-space inertia matrix M.

M_ij = cdof_i . (crb of the deeper of the two bodies) cdof_j for dofs of one chain, zero otherwise; armature adds to
the diagonal, tendon armature adds a J J^T. Source: Featherstone 2008, ch. 6 (composite rigid body algorithm).
"""

import jax
import numpy as np

from diffsim.dynamics.reflected import dof_armature, has_tendon_armature, tendon_armature
from diffsim.kinematics.tree import dof_blocks, dof_mask, sum_subtree
from diffsim.math.blocks import BlockDiagonal, columns_of, each, gram
from diffsim.math.spatial import inertia_mul, pair_products
from diffsim.math.vector import scale
from diffsim.types.data import ComFrame, Inertia, Tendons
from diffsim.types.model import Model
from diffsim.types.topology import Topology
from diffsim.xla.barriers import computed_once, for_gpu, stored
from diffsim.xla.pick import pick
from diffsim.xla.where import where

Array = jax.Array


def compute_inertia(model: Model, com: ComFrame, tendons: Tendons) -> Inertia:
    """crb (nbody, 10) as `cinert`, and M, kg m^2 and kg; armature of joints, actuators and tendons included."""
    topology = model.topology
    blocks = dof_blocks(topology)
    crb = where(np.arange(topology.nbody)[:, None] > 0, sum_subtree(topology, com.cinert), 0)
    momentum = computed_once(inertia_mul)(pick(crb, topology.dof_bodyid), com.cdof)
    parts = tuple(_block(topology, index, momentum, com.cdof) for index in blocks.index)
    inertia = BlockDiagonal(blocks, parts).plus_diagonal(dof_armature(model))
    if has_tendon_armature(topology):
        inertia = _plus_tendons(model, inertia, tendons)
    return Inertia(crb=crb, M=stored(inertia))


def _block(topology: Topology, index: np.ndarray, momentum: Array, cdof: Array) -> Array:
    """(count, size, size) inertias of the dofs of blocks.

    Entry (i, j) with j before i on the chain comes from row i, its mirror image from row j. On a CPU it is taken from
    row i too: reverse mode needs the products of one matrix then, not of two. On a GPU that is one more kernel.
    """

    def one(lower: Array, upper: Array, force: Array, motion: Array) -> Array:
        products = pair_products(force, motion)
        mirrored = pair_products(motion, force) if for_gpu() else products.T
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
