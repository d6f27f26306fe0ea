"""Joint types as rows of a table: the only file that knows what a free, ball, slide or hinge joint is.

A row holds the widths, the motion that a joint adds, its motion axes, the difference of two positions and the
integration of a velocity. Functions are for one joint; `groups` lists the joints of each type, callers `vmap`.
Source: MuJoCo documentation, "Computation", "Coordinate frames"; Featherstone 2008, ch. 4.
"""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.enums import JointType
from diffsim.math.pick import pick
from diffsim.math.rotation import (
    axis_angle_to_quat,
    quat_integrate,
    quat_log,
    quat_normalize,
    quat_sub,
    rotate_inv,
)
from diffsim.math.spatial import join
from diffsim.math.vector import cross, dot, transpose
from diffsim.types.model import Model
from diffsim.types.topology import Topology, per_topology

Array = jax.Array


@dataclasses.dataclass(frozen=True)
class JointKind:
    """One joint type.

    Attributes:
      nq, nv: widths in qpos and qvel.
      absolute: whether the first three of qpos are the anchor in the world, whatever the body's frame in its parent.
      sees: for each own dof, how many own dofs before it move its axis.
      blocks: own dofs (start, stop) that share one displacement vector (spring, limit).
      angular: for each own dof, whether it is a rotation.
      rotation: (qpos, qpos0, jnt_axis) -> (4,) the rotation that the joint adds to the frame before it.
      shift: (qpos, qpos0, jnt_pos, jnt_axis) -> (3,) the frame after the joint, seen from the joint's anchor.
      axes: (xaxis, xmat, offset) -> (nv, 6) motion axes about the point that lies `offset` from the anchor.
      difference: (qpos, reference) -> (nv,) velocity that takes reference to qpos in unit time.
      integrate: (qpos, qvel, dt) -> qpos after moving with constant qvel.
      drive: (qpos, gear (6,), in_parent) -> length () and moment (nv,) of an actuator on this joint.
    """

    nq: int
    nv: int
    absolute: bool
    sees: tuple[int, ...]
    blocks: tuple[tuple[int, int], ...]
    angular: tuple[bool, ...]
    rotation: Callable[[Array, Array, Array], Array]
    shift: Callable[[Array, Array, Array, Array], Array]
    axes: Callable[[Array, Array, Array], Array]
    difference: Callable[[Array, Array], Array]
    integrate: Callable[[Array, Array, Array], Array]
    drive: Callable[[Array, Array, bool], tuple[Array, Array]]


def _pivot(qpos: Array, qpos0: Array, pos: Array, axis: Array) -> Array:
    # the frame turns about the anchor, which stays at jnt_pos in it
    return -pos


def _rotation_axes(axes: Array, offset: Array) -> Array:
    """Motion (axis, axis x offset) of a rotation about axes (n, 3), seen at `offset` (3,) from the anchor."""
    return join(axes, cross(axes, jnp.broadcast_to(offset, axes.shape)))


def _free_rotation(qpos: Array, qpos0: Array, axis: Array) -> Array:
    return quat_normalize(qpos[3:])


def _free_shift(qpos: Array, qpos0: Array, pos: Array, axis: Array) -> Array:
    return jnp.zeros_like(pos)


def _free_axes(xaxis: Array, xmat: Array, offset: Array) -> Array:
    translations = jnp.eye(3, 6, 3, dtype=xmat.dtype)
    return jnp.concatenate([translations, _rotation_axes(transpose(xmat), offset)])


def _free_difference(qpos: Array, reference: Array) -> Array:
    return jnp.concatenate([qpos[:3] - reference[:3], _ball_difference(qpos[3:], reference[3:])])


def _free_integrate(qpos: Array, qvel: Array, dt: Array) -> Array:
    return jnp.concatenate([qpos[:3] + dt * qvel[:3], _ball_integrate(qpos[3:], qvel[3:], dt)])


def _free_drive(qpos: Array, gear: Array, in_parent: bool) -> tuple[Array, Array]:
    # a free joint has no meaningful length
    torque = _turned(qpos[3:], gear[3:], in_parent)
    return jnp.zeros((), qpos.dtype), jnp.concatenate([gear[:3], torque])


def _turned(quat: Array, axis: Array, in_parent: bool) -> Array:
    """An axis in the joint's frame, given there or (`in_parent`) in the parent's frame."""
    return rotate_inv(quat_normalize(quat), axis) if in_parent else axis


def _ball_drive(qpos: Array, gear: Array, in_parent: bool) -> tuple[Array, Array]:
    axis = _turned(qpos, gear[:3], in_parent)
    return dot(quat_log(quat_normalize(qpos)), axis), axis


def _scalar_drive(qpos: Array, gear: Array, in_parent: bool) -> tuple[Array, Array]:
    return qpos[0] * gear[0], gear[:1]


def _ball_rotation(qpos: Array, qpos0: Array, axis: Array) -> Array:
    return quat_normalize(qpos)


def _ball_axes(xaxis: Array, xmat: Array, offset: Array) -> Array:
    return _rotation_axes(transpose(xmat), offset)


def _ball_difference(qpos: Array, reference: Array) -> Array:
    return quat_sub(quat_normalize(qpos), quat_normalize(reference))


def _ball_integrate(qpos: Array, qvel: Array, dt: Array) -> Array:
    return quat_integrate(qpos, qvel, dt)


def _slide_rotation(qpos: Array, qpos0: Array, axis: Array) -> Array:
    return jnp.array([1, 0, 0, 0], dtype=qpos.dtype)


def _slide_shift(qpos: Array, qpos0: Array, pos: Array, axis: Array) -> Array:
    return axis * (qpos - qpos0) - pos


def _slide_axes(xaxis: Array, xmat: Array, offset: Array) -> Array:
    return join(jnp.zeros_like(xaxis), xaxis)[None]


def _hinge_rotation(qpos: Array, qpos0: Array, axis: Array) -> Array:
    return axis_angle_to_quat(axis, qpos[0] - qpos0[0])


def _hinge_axes(xaxis: Array, xmat: Array, offset: Array) -> Array:
    return _rotation_axes(xaxis[None], offset)


def _scalar_difference(qpos: Array, reference: Array) -> Array:
    return qpos - reference


def _scalar_integrate(qpos: Array, qvel: Array, dt: Array) -> Array:
    return qpos + dt * qvel


JOINTS: dict[JointType, JointKind] = {
    JointType.FREE: JointKind(
        nq=7,
        nv=6,
        absolute=True,
        sees=(0, 0, 0, 3, 3, 3),
        blocks=((0, 3), (3, 6)),
        angular=(False,) * 3 + (True,) * 3,
        rotation=_free_rotation,
        shift=_free_shift,
        axes=_free_axes,
        difference=_free_difference,
        integrate=_free_integrate,
        drive=_free_drive,
    ),
    JointType.BALL: JointKind(
        nq=4,
        nv=3,
        absolute=False,
        sees=(0, 0, 0),
        blocks=((0, 3),),
        angular=(True,) * 3,
        rotation=_ball_rotation,
        shift=_pivot,
        axes=_ball_axes,
        difference=_ball_difference,
        integrate=_ball_integrate,
        drive=_ball_drive,
    ),
    JointType.SLIDE: JointKind(
        nq=1,
        nv=1,
        absolute=False,
        sees=(0,),
        blocks=((0, 1),),
        angular=(False,),
        rotation=_slide_rotation,
        shift=_slide_shift,
        axes=_slide_axes,
        difference=_scalar_difference,
        integrate=_scalar_integrate,
        drive=_scalar_drive,
    ),
    JointType.HINGE: JointKind(
        nq=1,
        nv=1,
        absolute=False,
        sees=(0,),
        blocks=((0, 1),),
        angular=(True,),
        rotation=_hinge_rotation,
        shift=_pivot,
        axes=_hinge_axes,
        difference=_scalar_difference,
        integrate=_scalar_integrate,
        drive=_scalar_drive,
    ),
}


@dataclasses.dataclass(frozen=True)
class JointGroup:
    """All joints of one type: ids (n,), their entries in qpos (n, nq) and qvel (n, nv), their bodies (n,)."""

    kind: JointKind
    joints: np.ndarray
    qpos: np.ndarray
    dofs: np.ndarray
    bodies: np.ndarray


@per_topology
def groups(topology: Topology) -> tuple[JointGroup, ...]:
    """The joints by type; types without joints are left out."""
    found = []
    for joint_type, kind in JOINTS.items():
        joints = np.flatnonzero(topology.jnt_type == joint_type)
        if joints.size:
            qpos = topology.jnt_qposadr[joints][:, None] + np.arange(kind.nq)
            dofs = topology.jnt_dofadr[joints][:, None] + np.arange(kind.nv)
            found.append(JointGroup(kind, joints, qpos, dofs, topology.jnt_bodyid[joints]))
    return tuple(found)


def kind_of(topology: Topology, joint: int) -> JointKind:
    """The row of the table for one joint."""
    return JOINTS[JointType(topology.jnt_type[joint])]


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
    """(njnt, 4) the rotation that each joint adds to the frame before it."""
    parts = [
        jax.vmap(group.kind.rotation)(
            pick(qpos, group.qpos), pick(model.qpos0, group.qpos), pick(model.jnt_axis, group.joints)
        )
        for group in groups(model.topology)
    ]
    return _assemble(model.topology, "joints", parts, jnp.zeros((0, 4), qpos.dtype))


def joint_shifts(model: Model, qpos: Array) -> Array:
    """(njnt, 3) the frame after each joint, seen from the joint's anchor in that frame."""
    parts = [
        jax.vmap(group.kind.shift)(
            pick(qpos, group.qpos),
            pick(model.qpos0, group.qpos),
            pick(model.jnt_pos, group.joints),
            pick(model.jnt_axis, group.joints),
        )
        for group in groups(model.topology)
    ]
    return _assemble(model.topology, "joints", parts, jnp.zeros((0, 3), qpos.dtype))


def joint_axes(topology: Topology, xaxis: Array, xmat: Array, offset: Array) -> Array:
    """Motion axes (nv, 6) of all dofs; xaxis, offset (njnt, 3) by joint, xmat (nbody, 3, 3) by body."""
    parts = [
        jax.vmap(group.kind.axes)(
            pick(xaxis, group.joints), pick(xmat, group.bodies), pick(offset, group.joints)
        ).reshape(-1, 6)
        for group in groups(topology)
    ]
    return _assemble(topology, "dofs", parts, jnp.zeros((0, 6), xaxis.dtype))


def position_difference(model: Model, qpos: Array, reference: Array) -> Array:
    """(nv,) velocity that takes `reference` (nq,) to `qpos` (nq,) in unit time; quaternions are normalized on use."""
    topology = model.topology
    parts = [
        jax.vmap(group.kind.difference)(pick(qpos, group.qpos), pick(reference, group.qpos)).reshape(-1)
        for group in groups(topology)
    ]
    return _assemble(topology, "dofs", parts, jnp.zeros((0,), qpos.dtype))


def integrate_position(model: Model, qpos: Array, qvel: Array, dt: Array) -> Array:
    """(nq,) position after moving with constant velocity (nv,) for dt (s); quaternions come out normalized."""
    topology = model.topology
    parts = [
        jax.vmap(group.kind.integrate, in_axes=(0, 0, None))(
            pick(qpos, group.qpos), pick(qvel, group.dofs), dt
        ).reshape(-1)
        for group in groups(topology)
    ]
    return _assemble(topology, "qpos", parts, qpos)
