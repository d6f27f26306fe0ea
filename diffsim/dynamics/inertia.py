"""Composite inertias of subtrees and the joint-space inertia matrix M; armature and damping reflected through gears.

M_ij = cdof_i . (crb of the deeper of the two bodies) cdof_j for dofs of one chain, zero otherwise; armature adds to
the diagonal, tendon armature adds a J J^T. Source: Featherstone 2008, ch. 6 (composite rigid body algorithm).

An actuator with rotor inertia a (or damping b) and gear g adds g^2 a (or g^2 b) to the joint or tendon that it drives.
What can be non-zero is static (`Topology.present`), so models without it carry no code for it.
"""

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.enums import TrnType
from diffsim.kinematics.tree import dof_blocks, dof_mask, sum_subtree
from diffsim.math.linalg import BlockDiagonal, columns_of, gram, per_block
from diffsim.math.spatial import inertia_mul, pair_products
from diffsim.math.vector import scale
from diffsim.types.data import ComFrame, Inertia, Tendons
from diffsim.types.model import Model
from diffsim.types.topology import Topology, per_topology
from diffsim.xla.barriers import elementwise_stage, stage, transposed
from diffsim.xla.gather import pick

Array = jax.Array


def compute_inertia(model: Model, com: ComFrame, tendons: Tendons) -> Inertia:
    """crb (nbody, 10) as `cinert`, and M, kg m^2 and kg; armature of joints, actuators and tendons included."""
    topology = model.topology
    crb = jnp.where(np.arange(topology.nbody)[:, None] > 0, sum_subtree(topology, com.cinert), 0)
    momentum = dof_momenta(pick(crb, topology.dof_bodyid), com.cdof)
    return Inertia(crb=crb, M=joint_space_inertia(model, momentum, com.cdof, tendons))


@stage
def dof_momenta(crb: Array, cdof: Array) -> Array:
    """(nv, 6) momenta of the subtrees that dofs move, crb (nv, 10), at unit velocity along cdof (nv, 6)."""
    return inertia_mul(crb, cdof)


@elementwise_stage
def joint_space_inertia(model: Model, momentum: Array, cdof: Array, tendons: Tendons) -> BlockDiagonal:
    """M by blocks, from momenta of dofs (nv, 6) and their axes (nv, 6)."""
    blocks = dof_blocks(model.topology)
    parts = tuple(_block(model.topology, index, momentum, cdof) for index in blocks.index)
    inertia = BlockDiagonal(blocks, parts).plus_diagonal(dof_armature(model))
    return _plus_tendons(model, inertia, tendons) if has_tendon_armature(model.topology) else inertia


def _block(topology: Topology, index: np.ndarray, momentum: Array, cdof: Array) -> Array:
    """(count, size, size) blocks of M for dofs `index` (count, size).

    M_ij = momentum_i . cdof_j for j = i or before i on its chain (lower), and M_ji is the same (upper).
    """

    def one_block(lower: Array, upper: Array, momentum: Array, cdof: Array) -> Array:
        products = pair_products(momentum, cdof)
        mirrored = transposed(products, lambda: pair_products(cdof, momentum))
        return jnp.where(lower, products, jnp.where(upper, mirrored, 0))

    return per_block(one_block, *coupled(topology, index), pick(momentum, index), pick(cdof, index))


def coupled(topology: Topology, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(count, size, size) bool for dofs (i, j) of blocks: whether j is i or before it on its chain; whether i is j or
    before it.
    """
    lower = dof_mask(topology)[index[:, :, None], index[:, None, :]]
    return lower, np.swapaxes(lower, 1, 2)


def _plus_tendons(model: Model, inertia: BlockDiagonal, tendons: Tendons) -> BlockDiagonal:
    """M + J^T a J with the armature a of tendons.

    As in MuJoCo, whose M has no entries for dofs on different branches, these are left out of J^T a J.
    """
    blocks = inertia.blocks
    rows, weighted = tendons.ten_J, scale(tendons.ten_J, tendon_armature(model))
    products = gram(columns_of(blocks, rows), columns_of(blocks, weighted))
    masks = (np.logical_or(*coupled(model.topology, index)) for index in blocks.index)
    parts = zip(inertia.parts, products.parts, masks, strict=True)
    return BlockDiagonal(blocks, tuple(part + jnp.where(mask, product, 0) for part, product, mask in parts))


@per_topology
def _driven_dofs(topology: Topology, field: str) -> tuple[np.ndarray, np.ndarray]:
    """Actuators (n,) on joints whose switch field `field` can be non-zero, and the dofs (n,) of these joints."""
    drives = np.isin(topology.actuator_trntype, (TrnType.JOINT, TrnType.JOINTINPARENT))
    pairs = [
        (int(actuator), int(dof))
        for actuator in np.flatnonzero(drives & _has(topology, field))
        for dof in np.flatnonzero(topology.dof_jntid == topology.actuator_trnid[actuator, 0])
    ]
    return _columns(pairs)


@per_topology
def _driven_tendons(topology: Topology, field: str) -> tuple[np.ndarray, np.ndarray]:
    """Actuators (n,) on tendons whose switch field `field` can be non-zero, and these tendons (n,)."""
    drives = (topology.actuator_trntype == TrnType.TENDON) & _has(topology, field)
    return _columns([(int(k), int(topology.actuator_trnid[k, 0])) for k in np.flatnonzero(drives)])


def _has(topology: Topology, field: str) -> np.ndarray:
    """(nu,) bool: actuators whose switch field can be non-zero."""
    present = topology.present[field]
    return np.any(present.reshape(len(present), -1), axis=1) if present.size else np.zeros(len(present), dtype=bool)


def _columns(pairs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    """Two arrays (n,) from n pairs."""
    table = np.array(pairs, dtype=np.int32).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def _add_reflected(model: Model, base: Array, values: Array, ids: tuple[np.ndarray, np.ndarray]) -> Array:
    """`base`, with gear^2 `values` (nu, ...) of actuators added at what they drive; `ids` are (actuators, targets)."""
    actuators, targets = ids
    if not actuators.size:
        return base
    gear = model.actuator_gear[actuators, 0].reshape(-1, *[1] * (base.ndim - 1))
    return base.at[targets].add(gear * gear * values[actuators])


def dof_armature(model: Model) -> Array:
    """(nv,) armature, kg m^2 or kg."""
    ids = _driven_dofs(model.topology, "actuator_armature")
    return _add_reflected(model, model.dof_armature, model.actuator_armature, ids)


def tendon_armature(model: Model) -> Array:
    """(ntendon,) armature, kg."""
    ids = _driven_tendons(model.topology, "actuator_armature")
    return _add_reflected(model, model.tendon_armature, model.actuator_armature, ids)


def dof_damping(model: Model) -> tuple[Array, Array]:
    """Linear damping (nv,) and the coefficients of its higher terms (nv, 2)."""
    linear, higher = (_driven_dofs(model.topology, f) for f in ("actuator_damping", "actuator_dampingpoly"))
    return (
        _add_reflected(model, model.dof_damping, model.actuator_damping, linear),
        _add_reflected(model, model.dof_dampingpoly, model.actuator_dampingpoly, higher),
    )


def tendon_damping(model: Model) -> tuple[Array, Array]:
    """Linear damping (ntendon,) and the coefficients of its higher terms (ntendon, 2)."""
    linear, higher = (_driven_tendons(model.topology, f) for f in ("actuator_damping", "actuator_dampingpoly"))
    return (
        _add_reflected(model, model.tendon_damping, model.actuator_damping, linear),
        _add_reflected(model, model.tendon_dampingpoly, model.actuator_dampingpoly, higher),
    )


@per_topology
def has_dof_damping(topology: Topology, poly: bool = False) -> bool:
    """Whether any dof can have damping (its higher terms, if `poly`), its own or an actuator's."""
    suffix = "poly" if poly else ""
    return topology.has(f"dof_damping{suffix}") or bool(_driven_dofs(topology, f"actuator_damping{suffix}")[0].size)


@per_topology
def has_tendon_damping(topology: Topology, poly: bool = False) -> bool:
    """Whether any tendon can have damping (its higher terms, if `poly`), its own or an actuator's."""
    suffix = "poly" if poly else ""
    return topology.has(f"tendon_damping{suffix}") or bool(
        _driven_tendons(topology, f"actuator_damping{suffix}")[0].size
    )


def is_damped(topology: Topology) -> bool:
    """Whether any dof can have damping of any order, its own or an actuator's."""
    return has_dof_damping(topology) or has_dof_damping(topology, poly=True)


def has_any_tendon_damping(topology: Topology) -> bool:
    """Whether any tendon can have damping of any order, its own or an actuator's."""
    return has_tendon_damping(topology) or has_tendon_damping(topology, poly=True)


@per_topology
def has_tendon_armature(topology: Topology) -> bool:
    """Whether any tendon can have armature, its own or an actuator's."""
    return topology.has("tendon_armature") or bool(_driven_tendons(topology, "actuator_armature")[0].size)
