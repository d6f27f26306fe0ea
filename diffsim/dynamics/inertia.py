"""Composite inertias of subtrees, the joint-space inertia matrix M, and armature and damping of actuators.

M_ij = cdof_i . (crb of the deeper of the two bodies) cdof_j for dofs i and j on one chain, and zero otherwise. The
armature of a joint is added to the diagonal; the armature a of a tendon adds J^T a J.
Source: Featherstone 2008, ch. 6 (composite rigid body algorithm).

An actuator with rotor inertia a (or damping b) and gear g adds g^2 a (or g^2 b) to the joint or tendon that it drives:
the values are "reflected" through the gear. Which of these fields can be non-zero is static (`Topology.present`), so
that models without them contain no code for them.
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
    """Composite inertias crb (nbody, 10) in the layout of cinert, and M (kg m^2, kg) with armature of all kinds."""
    topology = model.topology
    crb = jnp.where(np.arange(topology.nbody)[:, None] > 0, sum_subtree(topology, com.cinert), 0)
    momentum = dof_momenta(pick(crb, topology.dof_bodyid), com.cdof)
    return Inertia(crb=crb, M=joint_space_inertia(model, momentum, com.cdof, tendons))


@computed_once
def dof_momenta(crb: Array, cdof: Array) -> Array:
    """(nv, 6) for each dof, the momentum of the subtree that it moves, at unit velocity.

    Args:
      crb: (nv, 10) composite inertia of this subtree.
      cdof: (nv, 6) motion axis of the dof.
    """
    return inertia_mul(crb, cdof)


@stored_results
def joint_space_inertia(model: Model, momentum: Array, cdof: Array, tendons: Tendons) -> BlockDiagonal:
    """M in blocks, from the momenta (nv, 6) of `dof_momenta` and the motion axes (nv, 6) of the dofs.

    M_ij = momentum_i . cdof_j where j is i or an ancestor of i (the mask `lower`), and M_ji = M_ij (`upper`). The
    armature a of tendons adds J^T a J, without the entries for dofs on different branches: MuJoCo's M has no place for
    them.
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
    """Two masks (count, size, size) for pairs of dofs (i, j) in the blocks `index` (count, size).

    The first is True where j is i or an ancestor of i, the second where i is j or an ancestor of j.
    """
    lower = dof_mask(topology)[index[:, :, None], index[:, None, :]]
    return lower, np.swapaxes(lower, 1, 2)


# the fields with the linear damping of dofs and with the coefficients of higher powers
DOF_DAMPING = ("dof_damping", "dof_dampingpoly")
# the same fields of tendons
TENDON_DAMPING = ("tendon_damping", "tendon_dampingpoly")


@per_topology
def _reflecting(topology: Topology, field: str) -> tuple[np.ndarray, np.ndarray]:
    """Actuators (n,) that can add to a field of dofs or tendons, and the dof or tendon (n,) to which each one adds."""
    target, _, name = field.partition("_")
    present = topology.present[f"actuator_{name}"]
    present = np.any(present, axis=tuple(range(1, present.ndim)))
    driven = topology.actuator_trnid[:, 0]
    kind = topology.actuator_trntype
    if target == "tendon":
        actuators = np.flatnonzero(present & (kind == TrnType.TENDON))
        return actuators, driven[actuators]
    on_joint = present & np.isin(kind, (TrnType.JOINT, TrnType.JOINTINPARENT))
    actuators, dofs = np.nonzero(on_joint[:, None] & (topology.dof_jntid[None] == driven[:, None]))
    return actuators, dofs


@per_topology
def has_reflected(topology: Topology, *fields: str) -> bool:
    """Whether any of these fields can be non-zero, including what actuators add; see `reflected` for their names."""
    return any(topology.has(field) or _reflecting(topology, field)[0].size > 0 for field in fields)


def reflected(model: Model, field: str) -> Array:
    """A field of dofs (nv, ...) or tendons (ntendon, ...), plus gear^2 times that field of the actuators on them.

    Args:
      model: the model.
      field: "dof_" or "tendon_", followed by "armature" (kg m^2 or kg), "damping" or "dampingpoly".
    """
    base = getattr(model, field)
    actuators, driven = _reflecting(model.topology, field)
    if not actuators.size:
        return base
    values = getattr(model, "actuator_" + field.partition("_")[2])[actuators]
    gear = model.actuator_gear[actuators, 0].reshape(-1, *[1] * (base.ndim - 1))
    return base.at[driven].add(gear * gear * values)
