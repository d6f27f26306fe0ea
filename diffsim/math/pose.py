"""Poses: a position (3,), m, and a unit quaternion (4,), which take points of a frame to its parent.

All functions act on the last axis and broadcast over the leading ones. Names of MuJoCo's counterparts in brackets.
"""

import jax

from diffsim.math.rotation import quat_conj, quat_mul, rotate, rotate_inv

Array = jax.Array
Pose = tuple[Array, Array]


def pose_mul(first: Pose, second: Pose) -> Pose:
    """The pose in the world of what has pose `second` in the frame `first` (mju_mulPose)."""
    return first[0] + rotate(first[1], second[0]), quat_mul(first[1], second[1])


def pose_inv(pose: Pose) -> Pose:
    """The inverse pose: that of the parent in the frame (mju_negPose)."""
    return -rotate_inv(pose[1], pose[0]), quat_conj(pose[1])


def pose_apply(pose: Pose, point: Array) -> Array:
    """A point (3,) of the frame in its parent's coordinates (mju_trnVecPose)."""
    return pose[0] + rotate(pose[1], point)


def pose_apply_inv(pose: Pose, point: Array) -> Array:
    """A point (3,) of the parent in the frame's coordinates."""
    return rotate_inv(pose[1], point - pose[0])
