"""How joints move: one class per joint type, and functions for all joints of a model.

The functions of a class are for a single joint. `groups` sorts the joints of a model by type; the functions after it
evaluate each group and put the results in the model's order. Sizes and units of joint types are in
`diffsim/base/joints.py`. qpos is in m, or rad for hinges, and quaternions are (w, x, y, z); qvel is in m/s and rad/s.
The angular velocity of a ball is expressed in the frame after the joint. Source: MuJoCo documentation, "Computation",
"Coordinate frames"; Featherstone 2008, ch. 4.
"""

import dataclasses
from collections.abc import Callable
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import JointType
from diffsim.base.joints import JointKind, kind_of
from diffsim.math.rotation import (
    axis_angle_to_quat,
    quat_integrate,
    quat_log,
    quat_normalize,
    quat_rate,
    quat_sub,
    rotate_inv,
    rotvec_rate,
)
from diffsim.math.spatial import spatial_vector
from diffsim.math.vector import cross, dot, transpose
from diffsim.types.model import Model
from diffsim.types.topology import Topology, per_topology
from diffsim.xla.gather import pick


class JointMotion(Protocol):
    """The motion of one joint; each joint type has a class with these functions."""

    @staticmethod
    def rotation(qpos: Array, qpos0: Array, axis: Array) -> Array:
        """(4,) the rotation of the frame after the joint in the frame before it; `axis` is jnt_axis."""
        ...

    @staticmethod
    def shift(qpos: Array, qpos0: Array, pos: Array, axis: Array) -> Array:
        """(3,) m, from the joint's anchor jnt_pos to the origin of the frame after the joint, in this frame."""
        ...

    @staticmethod
    def axes(xaxis: Array, xmat: Array, offset: Array) -> Array:
        """(nv, 6) motion axes, world axes, about the point that is `offset` (3,), m, away from the anchor."""
        ...

    @staticmethod
    def difference(qpos: Array, reference: Array) -> Array:
        """(nv,) the constant velocity that moves the joint from `reference` to `qpos` in unit time."""
        ...

    @staticmethod
    def rate(qpos: Array, change: Array) -> Array:
        """(nv,) the velocity at which the rate of qpos is `change`; quaternions are normalized first."""
        ...

    @staticmethod
    def integrate(qpos: Array, qvel: Array, dt: Array) -> Array:
        """qpos after moving with constant qvel for dt (s)."""
        ...

    @staticmethod
    def drive(qpos: Array, gear: Array, in_parent: bool) -> tuple[Array, Array]:
        """Length () and moment (nv,) of an actuator on this joint.

        The axes in its gear (6,) are given in the parent's frame if `in_parent`, else in the child's.
        """
        ...


def _rotation_axes(axes: Array, offset: Array) -> Array:
    """(n, 6) motion axes (axis, axis x offset) of rotations about axes (n, 3), at the point anchor + offset."""
    return spatial_vector(axes, cross(axes, jnp.broadcast_to(offset, axes.shape)))


def _in_joint_frame(quat: Array, axis: Array, in_parent: bool) -> Array:
    """An axis (3,) in the joint's frame; with `in_parent` it is given in the parent's frame."""
    return rotate_inv(quat_normalize(quat), axis) if in_parent else axis


class Pivot:
    """Common to hinges and balls: the frame rotates about the anchor, which stays at jnt_pos in this frame."""

    @staticmethod
    def shift(qpos: Array, qpos0: Array, pos: Array, axis: Array) -> Array:
        return -pos


class Scalar:
    """Common to hinges and slides: the position is one number."""

    @staticmethod
    def difference(qpos: Array, reference: Array) -> Array:
        return qpos - reference

    @staticmethod
    def rate(qpos: Array, change: Array) -> Array:
        return change

    @staticmethod
    def integrate(qpos: Array, qvel: Array, dt: Array) -> Array:
        return qpos + dt * qvel

    @staticmethod
    def drive(qpos: Array, gear: Array, in_parent: bool) -> tuple[Array, Array]:
        return qpos[0] * gear[0], gear[:1]


class Hinge(Pivot, Scalar):
    """A rotation about jnt_axis by qpos - qpos0."""

    @staticmethod
    def rotation(qpos: Array, qpos0: Array, axis: Array) -> Array:
        return axis_angle_to_quat(axis, qpos[0] - qpos0[0])

    @staticmethod
    def axes(xaxis: Array, xmat: Array, offset: Array) -> Array:
        return _rotation_axes(xaxis[None], offset)


class Slide(Scalar):
    """A translation along jnt_axis by qpos - qpos0."""

    @staticmethod
    def rotation(qpos: Array, qpos0: Array, axis: Array) -> Array:
        return jnp.array([1, 0, 0, 0], dtype=qpos.dtype)

    @staticmethod
    def shift(qpos: Array, qpos0: Array, pos: Array, axis: Array) -> Array:
        return axis * (qpos - qpos0) - pos

    @staticmethod
    def axes(xaxis: Array, xmat: Array, offset: Array) -> Array:
        return spatial_vector(jnp.zeros_like(xaxis), xaxis)[None]


class Ball(Pivot):
    """A rotation by the quaternion qpos (4,)."""

    @staticmethod
    def rotation(qpos: Array, qpos0: Array, axis: Array) -> Array:
        return quat_normalize(qpos)

    @staticmethod
    def axes(xaxis: Array, xmat: Array, offset: Array) -> Array:
        return _rotation_axes(transpose(xmat), offset)

    @staticmethod
    def difference(qpos: Array, reference: Array) -> Array:
        return quat_sub(quat_normalize(qpos), quat_normalize(reference))

    @staticmethod
    def rate(qpos: Array, change: Array) -> Array:
        return quat_rate(qpos, change)

    @staticmethod
    def integrate(qpos: Array, qvel: Array, dt: Array) -> Array:
        return quat_integrate(qpos, qvel, dt)

    @staticmethod
    def drive(qpos: Array, gear: Array, in_parent: bool) -> tuple[Array, Array]:
        axis = _in_joint_frame(qpos, gear[:3], in_parent)
        return dot(quat_log(quat_normalize(qpos)), axis), axis


class Free:
    """A free joint: qpos (7,) is the position in the world and a quaternion."""

    @staticmethod
    def rotation(qpos: Array, qpos0: Array, axis: Array) -> Array:
        return quat_normalize(qpos[3:])

    @staticmethod
    def shift(qpos: Array, qpos0: Array, pos: Array, axis: Array) -> Array:
        return jnp.zeros_like(pos)

    @staticmethod
    def axes(xaxis: Array, xmat: Array, offset: Array) -> Array:
        translations = jnp.eye(3, 6, 3, dtype=xmat.dtype)
        return jnp.concatenate([translations, _rotation_axes(transpose(xmat), offset)])

    @staticmethod
    def difference(qpos: Array, reference: Array) -> Array:
        return jnp.concatenate([qpos[:3] - reference[:3], Ball.difference(qpos[3:], reference[3:])])

    @staticmethod
    def rate(qpos: Array, change: Array) -> Array:
        return jnp.concatenate([change[:3], quat_rate(qpos[3:], change[3:])])

    @staticmethod
    def integrate(qpos: Array, qvel: Array, dt: Array) -> Array:
        return jnp.concatenate([qpos[:3] + dt * qvel[:3], Ball.integrate(qpos[3:], qvel[3:], dt)])

    @staticmethod
    def drive(qpos: Array, gear: Array, in_parent: bool) -> tuple[Array, Array]:
        # an actuator on a free joint has no meaningful length
        torque = _in_joint_frame(qpos[3:], gear[3:], in_parent)
        return jnp.zeros((), qpos.dtype), jnp.concatenate([gear[:3], torque])


MOTIONS: dict[JointType, type[JointMotion]] = {
    JointType.FREE: Free,
    JointType.BALL: Ball,
    JointType.SLIDE: Slide,
    JointType.HINGE: Hinge,
}


@dataclasses.dataclass(frozen=True)
class JointGroup:
    """All joints of one type.

    Attributes:
      kind: facts of the type.
      motion: how joints of the type move.
      joints: (n,) indices of the joints.
      qpos: (n, nq) indices of their entries in qpos.
      dofs: (n, nv) indices of their dofs.
      bodies: (n,) their bodies.
    """

    kind: JointKind
    motion: type[JointMotion]
    joints: np.ndarray
    qpos: np.ndarray
    dofs: np.ndarray
    bodies: np.ndarray


@per_topology
def groups(topology: Topology) -> tuple[JointGroup, ...]:
    """The joints of a model, grouped by type, in the order of the groups' first joints."""
    groups = []
    for joint_type, motion in MOTIONS.items():
        kind = kind_of(joint_type)
        joints = np.flatnonzero(topology.jnt_type == joint_type)
        if joints.size:
            group = JointGroup(
                kind=kind,
                motion=motion,
                joints=joints,
                qpos=topology.jnt_qposadr[joints][:, None] + np.arange(kind.nq),
                dofs=topology.jnt_dofadr[joints][:, None] + np.arange(kind.nv),
                bodies=topology.jnt_bodyid[joints],
            )
            groups.append(group)
    return tuple(sorted(groups, key=lambda group: group.joints[0]))


@per_topology
def earlier_dof(topology: Topology) -> np.ndarray:
    """(nv,) for each dof, the last dof before it that moves its axis; -1 if none does."""
    earlier = np.full(topology.nv, -1, dtype=np.int32)
    for group in groups(topology):
        for dofs in group.dofs:
            for dof, count in zip(dofs, group.kind.carried_by, strict=True):
                earlier[dof] = dofs[0] + count - 1 if count else topology.dof_parentid[dofs[0]]
    return earlier


def _by_type(topology: Topology, field: str, of_type: Callable[[JointGroup], Array], empty: Array) -> Array:
    """The results of a function of each group, as one array in the model's order.

    Args:
      topology: of the model.
      field: what the rows of the results belong to, a field of `JointGroup`: "joints", "dofs" or "qpos".
      of_type: the function.
      empty: the result for a model without joints.
    """
    parts = [of_type(group).reshape(-1, *empty.shape[1:]) for group in groups(topology)]
    joined = jnp.concatenate(parts) if len(parts) > 1 else parts[0] if parts else empty
    # from rows grouped by type to rows in the model's order
    grouped = [getattr(group, field).ravel() for group in groups(topology)]
    order = np.argsort(np.concatenate(grouped)) if grouped else np.zeros(0, dtype=np.int64)
    return joined if np.array_equal(order, np.arange(len(order))) else pick(joined, order)


def joint_rotations(model: Model, qpos: Array) -> Array:
    """(njnt, 4) for each joint, the rotation of the frame after it in the frame before it."""

    def of_type(group: JointGroup) -> Array:
        axis = pick(model.jnt_axis, group.joints)
        return jax.vmap(group.motion.rotation)(pick(qpos, group.qpos), pick(model.qpos0, group.qpos), axis)

    return _by_type(model.topology, "joints", of_type, jnp.zeros((0, 4), qpos.dtype))


def joint_shifts(model: Model, qpos: Array) -> Array:
    """(njnt, 3) m, from each joint's anchor to the origin of the frame after the joint, in this frame."""

    def of_type(group: JointGroup) -> Array:
        pos = pick(model.jnt_pos, group.joints)
        axis = pick(model.jnt_axis, group.joints)
        return jax.vmap(group.motion.shift)(pick(qpos, group.qpos), pick(model.qpos0, group.qpos), pos, axis)

    return _by_type(model.topology, "joints", of_type, jnp.zeros((0, 3), qpos.dtype))


def joint_axes(topology: Topology, xaxis: Array, xmat: Array, offset: Array) -> Array:
    """(nv, 6) motion axes (rotation, translation) of all dofs, world axes, about points `offset` from the anchors.

    Args:
      topology: of the model.
      xaxis: (njnt, 3) axes of the joints in the world.
      xmat: (nbody, 3, 3) orientations of the bodies, local to world.
      offset: (njnt, 3) m, from each anchor to the point, world axes.
    """

    def of_type(group: JointGroup) -> Array:
        axis = pick(xaxis, group.joints)
        mat = pick(xmat, group.bodies)
        return jax.vmap(group.motion.axes)(axis, mat, pick(offset, group.joints))

    return _by_type(topology, "dofs", of_type, jnp.zeros((0, 6), xaxis.dtype))


def position_difference(model: Model, qpos: Array, reference: Array) -> Array:
    """(nv,) constant velocity that leads from `reference` (nq,) to `qpos` (nq,) in unit time (mj_differentiatePos).

    Quaternions are normalized first.
    """

    def of_type(group: JointGroup) -> Array:
        return jax.vmap(group.motion.difference)(pick(qpos, group.qpos), pick(reference, group.qpos))

    return _by_type(model.topology, "dofs", of_type, jnp.zeros((0,), qpos.dtype))


def position_rate(topology: Topology, qpos: Array, change: Array) -> Array:
    """(nv,) velocity at which the rate of qpos (nq,) is `change` (nq,); quaternions are normalized first."""

    def of_type(group: JointGroup) -> Array:
        return jax.vmap(group.motion.rate)(pick(qpos, group.qpos), pick(change, group.qpos))

    return _by_type(topology, "dofs", of_type, jnp.zeros((0,), qpos.dtype))


def integrate_position(model: Model, qpos: Array, qvel: Array, dt: Array) -> Array:
    """(nq,) position after moving with constant velocity (nv,) for dt, s, with unit quaternions (mj_integratePos)."""

    def of_type(group: JointGroup) -> Array:
        return jax.vmap(group.motion.integrate, (0, 0, None))(pick(qpos, group.qpos), pick(qvel, group.dofs), dt)

    return _by_type(model.topology, "qpos", of_type, qpos)


def rates_on_the_way(model: Model, way: Array, qvel: Array) -> Array:
    """(nv,) the rate of `way` (nv,), the tangent coordinates of a moving position relative to a fixed one.

    `way` is `position_difference(model, qpos, start)`, where qpos moves with velocity qvel (nv,). For free and ball
    joints, the rate of a rotation vector differs from the angular velocity; for all other coordinates the rate is qvel.
    """
    dofs = [group.dofs[:, -3:] for group in groups(model.topology) if group.kind.quaternion is not None]
    if not dofs:
        return qvel
    turning = np.concatenate(dofs)
    return qvel.at[turning].set(rotvec_rate(pick(way, turning), pick(qvel, turning)))
