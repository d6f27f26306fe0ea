"""Sensors of joints: positions, velocities and the actuator force that arrives at a joint."""

import jax

from diffsim.math.rotation import quat_normalize
from diffsim.sensor.readings import Group, Readings
from diffsim.xla.pick import pick

Array = jax.Array


def joint_position(readings: Readings, group: Group) -> Array:
    """Hinge angle (rad) or slide displacement (m), (n, 1)."""
    return pick(readings.state.qpos, readings.topology.jnt_qposadr[group.objid])[:, None]


def joint_velocity(readings: Readings, group: Group) -> Array:
    """Hinge (rad/s) or slide (m/s) velocity, (n, 1)."""
    return pick(readings.state.qvel, readings.topology.jnt_dofadr[group.objid])[:, None]


def ball_quaternion(readings: Readings, group: Group) -> Array:
    """Orientation of ball joints, child in parent, normalised, (n, 4)."""
    start = readings.topology.jnt_qposadr[group.objid]
    components = start[:, None] + [[0, 1, 2, 3]]
    return quat_normalize(readings.state.qpos[components])


def ball_velocity(readings: Readings, group: Group) -> Array:
    """Angular velocity of ball joints in the child's frame, rad/s, (n, 3)."""
    start = readings.topology.jnt_dofadr[group.objid]
    return readings.state.qvel[start[:, None] + [[0, 1, 2]]]


def joint_actuator_force(readings: Readings, group: Group) -> Array:
    """Generalized force of all actuators on a joint, after clamping, N or N m, (n, 1)."""
    return pick(readings.data.qfrc_actuator, readings.topology.jnt_dofadr[group.objid])[:, None]
