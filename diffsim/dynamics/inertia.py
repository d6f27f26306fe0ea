"""Composite inertias of subtrees and the joint-space inertia matrix M; armature and damping reflected through gears.

M_ij = cdof_i . (crb of the deeper of the two bodies) cdof_j for dofs of one chain, zero otherwise; armature adds to
the diagonal, tendon armature adds a J J^T. Source: Featherstone 2008, ch. 6 (composite rigid body algorithm).

An actuator with rotor inertia a (or damping b) and gear g adds g^2 a (or g^2 b) to the joint or tendon that it drives.
What can be non-zero is static (`Topology.present`), so models without it carry no code for it.
"""

import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import TrnType
from diffsim.kinematics.tree import dof_blocks, dof_mask, sum_subtree
from diffsim.math.linalg import BlockDiagonal, columns_of, gram, per_block
from diffsim.math.spatial import inertia_mul, pair_products
from diffsim.math.vector import scale
from diffsim.types.data import ComFrame, Inertia, Tendons
from diffsim.types.model import Model
from diffsim.types.topology import Topology, per_topology
from diffsim.xla.barriers import computed_once, stored_results
from diffsim.xla.bilinear import with_transpose
from diffsim.xla.gather import pick


def compute_inertia(model: Model, com: ComFrame, tendons: Tendons) -> Inertia:
    """crb (nbody, 10) as `cinert`, and M, kg m^2 and kg; armature of joints, actuators and tendons included."""
    topology = model.topology
    crb = jnp.where(np.arange(topology.nbody)[:, None] > 0, sum_subtree(topology, com.cinert), 0)
    momentum = dof_momenta(pick(crb, topology.dof_bodyid), com.cdof)
    return Inertia(crb=crb, M=joint_space_inertia(model, momentum, com.cdof, tendons))


@computed_once
def dof_momenta(crb: Array, cdof: Array) -> Array:
    """(nv, 6) momenta of the subtrees that dofs move, crb (nv, 10), at unit velocity along cdof (nv, 6)."""
    return inertia_mul(crb, cdof)


@stored_results
def joint_space_inertia(model: Model, momentum: Array, cdof: Array, tendons: Tendons) -> BlockDiagonal:
    """M by blocks, from momenta of dofs (nv, 6) and their axes (nv, 6).

    M_ij = momentum_i . cdof_j for j = i or before i on its chain (lower), and M_ji is the same (upper). The armature a
    of tendons adds J^T a J; as in MuJoCo, whose M has no entries for dofs on different branches, these are left out.
    """
    blocks = dof_blocks(model.topology)
    masks = [coupled(model.topology, index) for index in blocks.index]

    def block(lower: Array, upper: Array, momentum: Array, cdof: Array) -> Array:
        products, mirrored = with_transpose(pair_products(momentum, cdof), lambda: pair_products(cdof, momentum))
        return jnp.where(lower, products, jnp.where(upper, mirrored, 0))

    pairs = zip(masks, blocks.index, strict=True)
    parts = [per_block(block, *mask, pick(momentum, index), pick(cdof, index)) for mask, index in pairs]
    inertia = BlockDiagonal(blocks, tuple(parts)).plus_diagonal(reflected(model, "dof_armature"))
    if not has_reflected(model.topology, "tendon_armature"):
        return inertia
    weighted = scale(tendons.ten_J, reflected(model, "tendon_armature"))
    products = gram(columns_of(blocks, tendons.ten_J), columns_of(blocks, weighted)).parts
    added = (jnp.where(np.logical_or(*mask), product, 0) for mask, product in zip(masks, products, strict=True))
    return BlockDiagonal(blocks, tuple(part + more for part, more in zip(inertia.parts, added, strict=True)))


def coupled(topology: Topology, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two masks (count, size, size) for dofs (i, j) of blocks: j is i or an ancestor of it, and the other way round."""
    lower = dof_mask(topology)[index[:, :, None], index[:, None, :]]
    return lower, np.swapaxes(lower, 1, 2)


# fields of linear damping, and of the coefficients of its higher terms
DOF_DAMPING = ("dof_damping", "dof_dampingpoly")
TENDON_DAMPING = ("tendon_damping", "tendon_dampingpoly")


@per_topology
def _reflecting(topology: Topology, field: str) -> tuple[np.ndarray, np.ndarray]:
    """Actuators (n,) that can add to a field of dofs or tendons, and the dof or tendon (n,) that each adds to."""
    target, _, name = field.partition("_")
    present = topology.present[f"actuator_{name}"]
    present = np.any(present, axis=tuple(range(1, present.ndim)))
    driven, kind = topology.actuator_trnid[:, 0], topology.actuator_trntype
    if target == "tendon":
        actuators = np.flatnonzero(present & (kind == TrnType.TENDON))
        return actuators, driven[actuators]
    on_joint = present & np.isin(kind, (TrnType.JOINT, TrnType.JOINTINPARENT))
    actuators, dofs = np.nonzero(on_joint[:, None] & (topology.dof_jntid[None] == driven[:, None]))
    return actuators, dofs


@per_topology
def has_reflected(topology: Topology, *fields: str) -> bool:
    """Whether any of some fields, as for `reflected`, can be non-zero."""
    return any(topology.has(field) or _reflecting(topology, field)[0].size > 0 for field in fields)


def reflected(model: Model, field: str) -> Array:
    """A field of dofs (nv, ...) or tendons (ntendon, ...), with what actuators reflect through their gears added.

    Args:
      field: "dof_" or "tendon_" with "armature", "damping" or "dampingpoly"; armature in kg m^2 or kg.
    """
    base, (actuators, driven) = getattr(model, field), _reflecting(model.topology, field)
    if not actuators.size:
        return base
    values = getattr(model, "actuator_" + field.partition("_")[2])[actuators]
    gear = model.actuator_gear[actuators, 0].reshape(-1, *[1] * (base.ndim - 1))
    return base.at[driven].add(gear * gear * values)
