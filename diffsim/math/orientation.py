"""Quaternions from other descriptions of an orientation, and their rates; finite derivatives everywhere.

All functions act on the last axis (matrices: the last two) and broadcast over the leading ones. Quaternions are
(w, x, y, z) of unit length. Names of MuJoCo's counterparts in brackets.
"""

import jax
import jax.numpy as jnp

from diffsim.math import safe
from diffsim.math.rotation import axis_angle_to_quat, quat_log, quat_mul, quat_normalize
from diffsim.math.vector import pack, scale, unpack

Array = jax.Array

AXES = {"x": (1.0, 0.0, 0.0), "y": (0.0, 1.0, 0.0), "z": (0.0, 0.0, 1.0)}


def mat_to_quat(matrix: Array) -> Array:
    """The quaternion of a rotation matrix (..., 3, 3), its largest component positive (mju_mat2Quat).

    Of four vectors along it, one for each component, the longest is normalized; which one is not differentiated.
    """
    xx, xy, xz, yx, yy, yz, zx, zy, zz = unpack(matrix.reshape(*matrix.shape[:-2], 9))
    wx, wy, wz, sxy, sxz, syz = zy - yz, xz - zx, yx - xy, xy + yx, xz + zx, yz + zy
    squares = [1 + xx + yy + zz, 1 + xx - yy - zz, 1 - xx + yy - zz, 1 - xx - yy + zz]
    found, longest = pack([squares[0], wx, wy, wz]), squares[0]
    rows = [[wx, squares[1], sxy, sxz], [wy, sxy, squares[2], syz], [wz, sxz, syz, squares[3]]]
    for square, row in zip(squares[1:], rows, strict=True):
        longer = jax.lax.stop_gradient(square > longest)
        found, longest = jnp.where(longer[..., None], pack(row), found), jnp.where(longer, square, longest)
    return quat_normalize(found)


def euler_to_quat(euler: Array, sequence: str = "xyz") -> Array:
    """The quaternion of three angles (..., 3), rad (mju_euler2Quat).

    Args:
      euler: angles about the axes of `sequence`, one after another.
      sequence: three letters; small ones turn about axes that move along, capitals about fixed ones.

    Raises:
      ValueError: letters other than x, y, z.
    """
    if len(sequence) != 3 or set(sequence.lower()) - set(AXES):
        raise ValueError(f"a sequence is three letters of xyz or XYZ, got {sequence!r}")
    quat = None
    for letter, angle in zip(sequence, unpack(euler), strict=True):
        axis = jnp.broadcast_to(jnp.asarray(AXES[letter.lower()], euler.dtype), (*angle.shape, 3))
        turn = axis_angle_to_quat(axis, angle)
        quat = turn if quat is None else quat_mul(quat, turn) if letter.islower() else quat_mul(turn, quat)
    return quat  # type: ignore[return-value]


def quat_z_to_vec(vector: Array) -> Array:
    """The shortest turn that takes the z axis along a vector (..., 3); half a turn about x where it points back."""
    x, y, z = unpack(safe.normalize(vector, (0.0, 0.0, 1.0)))
    return safe.normalize(pack([1 + z, -y, x, jnp.zeros_like(x)]), (0.0, 1.0, 0.0, 0.0))


def quat_derivative(quat: Array, omega: Array) -> Array:
    """d quat / dt (..., 4) under an angular velocity in the parent's axes (..., 3), rad/s: (0, omega) quat / 2.

    (mju_derivQuat; for a velocity in the turning frame's axes the factors change places.)
    """
    zero = jnp.zeros_like(omega[..., :1])
    return 0.5 * quat_mul(jnp.concatenate([zero, omega], axis=-1), quat)


def quat_to_vel(quat: Array, dt: Array | float) -> Array:
    """The angular velocity (..., 3), rad/s, that turns by a quaternion within dt seconds (mju_quat2Vel)."""
    turned = quat_log(quat)
    return scale(turned, jnp.broadcast_to(1 / jnp.asarray(dt, quat.dtype), turned.shape[:-1]))
