"""How joints move: the functions of each joint type, one row each, beside its row of facts in `diffsim/base/joints.py`.

All functions are for one joint; callers `vmap` over the joints of a type (`kinematics/joints.py`). qpos is in m, and
for hinges in rad, quaternions are (w, x, y, z); qvel is in m/s and rad/s, that of a ball in the frame after the joint.
Source: MuJoCo documentation, "Computation", "Coordinate frames"; Featherstone 2008, ch. 4.
"""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp

from diffsim.base.enums import JointType
from diffsim.math.rotation import (
    axis_angle_to_quat,
    quat_integrate,
    quat_log,
    quat_normalize,
    quat_rate,
    quat_sub,
    rotate_inv,
)
from diffsim.math.spatial import spatial_vector
from diffsim.math.vector import cross, dot, transpose

Array = jax.Array


@dataclasses.dataclass(frozen=True)
class JointMotion:
    """The motion of one joint type.

    Attributes:
      rotation: (qpos, qpos0, jnt_axis) -> (4,) the rotation that the joint adds to the frame before it.
      shift: (qpos, qpos0, jnt_pos, jnt_axis) -> (3,) m, the frame after the joint, seen from the joint's anchor.
      axes: (xaxis, xmat, offset) -> (nv, 6) motion axes in the world about the point `offset` (m) from the anchor.
      difference: (qpos, reference) -> (nv,) velocity that takes reference to qpos in unit time.
      rate: (qpos, change) -> (nv,) velocity with which qpos changes so, where quaternions are normalized on use.
      integrate: (qpos, qvel, dt) -> qpos after moving with constant qvel for dt (s).
      drive: (qpos, gear (6,), in_parent) -> length () and moment (nv,) of an actuator on this joint.
    """

    rotation: Callable[[Array, Array, Array], Array]
    shift: Callable[[Array, Array, Array, Array], Array]
    axes: Callable[[Array, Array, Array], Array]
    difference: Callable[[Array, Array], Array]
    rate: Callable[[Array, Array], Array]
    integrate: Callable[[Array, Array, Array], Array]
    drive: Callable[[Array, Array, bool], tuple[Array, Array]]


def _pivot(qpos: Array, qpos0: Array, pos: Array, axis: Array) -> Array:
    # the frame turns about the anchor, which stays at jnt_pos in it
    return -pos


def _rotation_axes(axes: Array, offset: Array) -> Array:
    """Motion (axis, axis x offset) of a rotation about axes (n, 3), seen at `offset` (3,) from the anchor."""
    return spatial_vector(axes, cross(axes, jnp.broadcast_to(offset, axes.shape)))


def _free_rotation(qpos: Array, qpos0: Array, axis: Array) -> Array:
    return quat_normalize(qpos[3:])


def _free_shift(qpos: Array, qpos0: Array, pos: Array, axis: Array) -> Array:
    return jnp.zeros_like(pos)


def _free_axes(xaxis: Array, xmat: Array, offset: Array) -> Array:
    translations = jnp.eye(3, 6, 3, dtype=xmat.dtype)
    return jnp.concatenate([translations, _rotation_axes(transpose(xmat), offset)])


def _free_difference(qpos: Array, reference: Array) -> Array:
    return jnp.concatenate([qpos[:3] - reference[:3], _ball_difference(qpos[3:], reference[3:])])


def _free_rate(qpos: Array, change: Array) -> Array:
    return jnp.concatenate([change[:3], quat_rate(qpos[3:], change[3:])])


def _free_integrate(qpos: Array, qvel: Array, dt: Array) -> Array:
    return jnp.concatenate([qpos[:3] + dt * qvel[:3], _ball_integrate(qpos[3:], qvel[3:], dt)])


def _free_drive(qpos: Array, gear: Array, in_parent: bool) -> tuple[Array, Array]:
    # a free joint has no meaningful length
    torque = _in_joint_frame(qpos[3:], gear[3:], in_parent)
    return jnp.zeros((), qpos.dtype), jnp.concatenate([gear[:3], torque])


def _in_joint_frame(quat: Array, axis: Array, in_parent: bool) -> Array:
    """An axis in the joint's frame, given there or (`in_parent`) in the parent's frame."""
    return rotate_inv(quat_normalize(quat), axis) if in_parent else axis


def _ball_drive(qpos: Array, gear: Array, in_parent: bool) -> tuple[Array, Array]:
    axis = _in_joint_frame(qpos, gear[:3], in_parent)
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
    return spatial_vector(jnp.zeros_like(xaxis), xaxis)[None]


def _hinge_rotation(qpos: Array, qpos0: Array, axis: Array) -> Array:
    return axis_angle_to_quat(axis, qpos[0] - qpos0[0])


def _hinge_axes(xaxis: Array, xmat: Array, offset: Array) -> Array:
    return _rotation_axes(xaxis[None], offset)


def _scalar_difference(qpos: Array, reference: Array) -> Array:
    return qpos - reference


def _scalar_rate(qpos: Array, change: Array) -> Array:
    return change


def _scalar_integrate(qpos: Array, qvel: Array, dt: Array) -> Array:
    return qpos + dt * qvel


MOTIONS: dict[JointType, JointMotion] = {
    JointType.FREE: JointMotion(
        rotation=_free_rotation,
        shift=_free_shift,
        axes=_free_axes,
        difference=_free_difference,
        rate=_free_rate,
        integrate=_free_integrate,
        drive=_free_drive,
    ),
    JointType.BALL: JointMotion(
        rotation=_ball_rotation,
        shift=_pivot,
        axes=_ball_axes,
        difference=_ball_difference,
        rate=quat_rate,
        integrate=_ball_integrate,
        drive=_ball_drive,
    ),
    JointType.SLIDE: JointMotion(
        rotation=_slide_rotation,
        shift=_slide_shift,
        axes=_slide_axes,
        difference=_scalar_difference,
        rate=_scalar_rate,
        integrate=_scalar_integrate,
        drive=_scalar_drive,
    ),
    JointType.HINGE: JointMotion(
        rotation=_hinge_rotation,
        shift=_pivot,
        axes=_hinge_axes,
        difference=_scalar_difference,
        rate=_scalar_rate,
        integrate=_scalar_integrate,
        drive=_scalar_drive,
    ),
}
