"""All joints of a model at once: those of one type side by side, then in the model's order.

`groups` lists the joints by type; a function here runs a row of `joint_motion.py` over each group and puts the results
together.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.joints import JointKind, kind_of
from diffsim.kinematics.joint_motion import MOTIONS, JointMotion
from diffsim.types.model import Model
from diffsim.types.topology import Topology, per_topology
from diffsim.xla.pick import pick

Array = jax.Array


@dataclasses.dataclass(frozen=True)
class JointGroup:
    """All joints of one type: ids (n,), their entries in qpos (n, nq) and qvel (n, nv), their bodies (n,)."""

    kind: JointKind
    motion: JointMotion
    joints: np.ndarray
    qpos: np.ndarray
    dofs: np.ndarray
    bodies: np.ndarray


@per_topology
def groups(topology: Topology) -> tuple[JointGroup, ...]:
    """The joints by type, in the order of their first joints; types without joints are left out."""
    found = []
    for joint_type, motion in MOTIONS.items():
        kind, joints = kind_of(joint_type), np.flatnonzero(topology.jnt_type == joint_type)
        if joints.size:
            qpos = topology.jnt_qposadr[joints][:, None] + np.arange(kind.nq)
            dofs = topology.jnt_dofadr[joints][:, None] + np.arange(kind.nv)
            found.append(JointGroup(kind, motion, joints, qpos, dofs, topology.jnt_bodyid[joints]))
    return tuple(sorted(found, key=lambda group: group.joints[0]))


@per_topology
def earlier_dof(topology: Topology) -> np.ndarray:
    """(nv,) the last dof that moves the axis of each dof, -1 if none does."""
    earlier = np.full(topology.nv, -1, dtype=np.int32)
    for group in groups(topology):
        for dofs in group.dofs:
            for dof, seen in zip(dofs, group.kind.sees, strict=True):
                earlier[dof] = dofs[0] + seen - 1 if seen else topology.dof_parentid[dofs[0]]
    return earlier


@per_topology
def _order(topology: Topology, field: str) -> np.ndarray | None:
    """Permutation from rows grouped by type to rows in the model's order; None if they agree."""
    grouped = [getattr(group, field).ravel() for group in groups(topology)]
    order = np.argsort(np.concatenate(grouped)) if grouped else np.zeros(0, dtype=np.int64)
    return None if np.array_equal(order, np.arange(len(order))) else order


def _assemble(topology: Topology, field: str, parts: list[Array], empty: Array) -> Array:
    joined = jnp.concatenate(parts) if len(parts) > 1 else parts[0] if parts else empty
    order = _order(topology, field)
    return joined if order is None else pick(joined, order)


def joint_rotations(model: Model, qpos: Array) -> Array:
    """(njnt, 4) the rotation (w, x, y, z) that each joint adds to the frame before it."""
    parts = [
        jax.vmap(group.motion.rotation)(
            pick(qpos, group.qpos), pick(model.qpos0, group.qpos), pick(model.jnt_axis, group.joints)
        )
        for group in groups(model.topology)
    ]
    return _assemble(model.topology, "joints", parts, jnp.zeros((0, 4), qpos.dtype))


def joint_shifts(model: Model, qpos: Array) -> Array:
    """(njnt, 3) m, origin of the frame after each joint, from the joint's anchor, in that frame."""
    parts = [
        jax.vmap(group.motion.shift)(
            pick(qpos, group.qpos),
            pick(model.qpos0, group.qpos),
            pick(model.jnt_pos, group.joints),
            pick(model.jnt_axis, group.joints),
        )
        for group in groups(model.topology)
    ]
    return _assemble(model.topology, "joints", parts, jnp.zeros((0, 3), qpos.dtype))


def joint_axes(topology: Topology, xaxis: Array, xmat: Array, offset: Array) -> Array:
    """(nv, 6) motion axes (rotation, translation) of all dofs, in the world, about a point `offset` from each anchor.

    xaxis and offset (m) are (njnt, 3), world; xmat (nbody, 3, 3) maps local to world.
    """
    parts = [
        jax.vmap(group.motion.axes)(
            pick(xaxis, group.joints), pick(xmat, group.bodies), pick(offset, group.joints)
        ).reshape(-1, 6)
        for group in groups(topology)
    ]
    return _assemble(topology, "dofs", parts, jnp.zeros((0, 6), xaxis.dtype))


def position_difference(model: Model, qpos: Array, reference: Array) -> Array:
    """(nv,) velocity that takes `reference` (nq,) to `qpos` (nq,) in unit time; quaternions are normalized on use."""
    topology = model.topology
    parts = [
        jax.vmap(group.motion.difference)(pick(qpos, group.qpos), pick(reference, group.qpos)).reshape(-1)
        for group in groups(topology)
    ]
    return _assemble(topology, "dofs", parts, jnp.zeros((0,), qpos.dtype))


def position_rate(topology: Topology, qpos: Array, change: Array) -> Array:
    """(nv,) velocity that changes qpos (nq,) by `change` (nq,) in unit time; quaternions are normalized on use."""
    parts = [
        jax.vmap(group.motion.rate)(pick(qpos, group.qpos), pick(change, group.qpos)).reshape(-1)
        for group in groups(topology)
    ]
    return _assemble(topology, "dofs", parts, jnp.zeros((0,), qpos.dtype))


def integrate_position(model: Model, qpos: Array, qvel: Array, dt: Array) -> Array:
    """(nq,) position after moving with constant velocity (nv,) for dt (s); quaternions come out normalized."""
    topology = model.topology
    parts = [
        jax.vmap(group.motion.integrate, in_axes=(0, 0, None))(
            pick(qpos, group.qpos), pick(qvel, group.dofs), dt
        ).reshape(-1)
        for group in groups(topology)
    ]
    return _assemble(topology, "qpos", parts, qpos)
