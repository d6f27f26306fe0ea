"""Sensors of frames: pose, velocity and acceleration of a body, geom, site or camera, also relative to another one.

With a reference object, results are in its axes, and velocities are those that an observer who turns with it sees.
Accelerations are always those of the inertial world, gravity included, as an accelerometer feels them.
"""

import jax

from diffsim.math.rotation import quat_conj, quat_mul
from diffsim.math.vector import cross, mul_vec_t
from diffsim.sensor.objects import acceleration, orientation, position, quaternion, velocity
from diffsim.sensor.readings import Group, Readings

Array = jax.Array


def frame_position(readings: Readings, group: Group) -> Array:
    """Position, m, (n, 3)."""
    here = position(readings, group.objtype, group.objid)
    if not group.relative:
        return here
    return _in_reference(readings, group, here - position(readings, group.reftype, group.refid))


def frame_quaternion(readings: Readings, group: Group) -> Array:
    """Orientation (w, x, y, z), (n, 4)."""
    here = quaternion(readings, group.objtype, group.objid)
    if not group.relative:
        return here
    return quat_mul(quat_conj(quaternion(readings, group.reftype, group.refid)), here)


def frame_x_axis(readings: Readings, group: Group) -> Array:
    """Unit x axis, (n, 3)."""
    return _axis(readings, group, 0)


def frame_y_axis(readings: Readings, group: Group) -> Array:
    """Unit y axis, (n, 3)."""
    return _axis(readings, group, 1)


def frame_z_axis(readings: Readings, group: Group) -> Array:
    """Unit z axis, (n, 3)."""
    return _axis(readings, group, 2)


def frame_linear_velocity(readings: Readings, group: Group) -> Array:
    """Velocity of the origin, m/s, (n, 3): v - v_ref - omega_ref x (p - p_ref), in the reference axes."""
    moving = velocity(readings, group.objtype, group.objid)[:, 3:]
    if not group.relative:
        return moving
    frame = velocity(readings, group.reftype, group.refid)
    arm = position(readings, group.objtype, group.objid) - position(readings, group.reftype, group.refid)
    return _in_reference(readings, group, moving - frame[:, 3:] - cross(frame[:, :3], arm))


def frame_angular_velocity(readings: Readings, group: Group) -> Array:
    """Angular velocity, rad/s, (n, 3)."""
    turning = velocity(readings, group.objtype, group.objid)[:, :3]
    if not group.relative:
        return turning
    return _in_reference(readings, group, turning - velocity(readings, group.reftype, group.refid)[:, :3])


def frame_linear_acceleration(readings: Readings, group: Group) -> Array:
    """Acceleration of the origin in world axes, m/s^2, (n, 3)."""
    return acceleration(readings, group.objtype, group.objid)[:, 3:]


def frame_angular_acceleration(readings: Readings, group: Group) -> Array:
    """Angular acceleration in world axes, rad/s^2, (n, 3)."""
    return acceleration(readings, group.objtype, group.objid)[:, :3]


def _axis(readings: Readings, group: Group, column: int) -> Array:
    axis = orientation(readings, group.objtype, group.objid)[:, :, column]
    return _in_reference(readings, group, axis) if group.relative else axis


def _in_reference(readings: Readings, group: Group, vector: Array) -> Array:
    """World vectors (n, 3) in the axes of the reference objects."""
    return mul_vec_t(orientation(readings, group.reftype, group.refid), vector)
