"""Sensors of joint and tendon limits: how far inside or beyond, and how fast; zero while the limit is inactive.

A limit is active while the distance to it is below its margin. If both sides of a joint are active, the lower one is
read. Source: MuJoCo XML reference, "sensor/jointlimitpos".
"""

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.enums import DisableBit, JointType
from diffsim.math import safe
from diffsim.math.rotation import quat_log, quat_normalize
from diffsim.math.vector import dot
from diffsim.sensor.readings import Group, Readings, take

Array = jax.Array


def joint_limit_position(readings: Readings, group: Group) -> Array:
    """Distance to the limit minus the margin, rad or m, (n, 1)."""
    return _joint_limit(readings, group)[0][:, None]


def joint_limit_velocity(readings: Readings, group: Group) -> Array:
    """Rate of change of the distance to the limit, (n, 1)."""
    return _joint_limit(readings, group)[1][:, None]


def tendon_limit_position(readings: Readings, group: Group) -> Array:
    """Distance to the limit minus the margin, (n, 1)."""
    return _tendon_limit(readings, group)[0][:, None]


def tendon_limit_velocity(readings: Readings, group: Group) -> Array:
    """Rate of change of the distance to the limit, (n, 1)."""
    return _tendon_limit(readings, group)[1][:, None]


def _tendon_limit(readings: Readings, group: Group) -> tuple[Array, Array]:
    model, data, tendon = readings.model, readings.data, group.objid
    limits, margin = take(model.tendon_range, tendon), take(model.tendon_margin, tendon)
    limited = readings.topology.tendon_limited[tendon] != 0
    length, speed = take(data.ten_length, tendon), take(data.ten_velocity, tendon)
    return _interval(readings, limited, length, speed, limits, margin)


def _joint_limit(readings: Readings, group: Group) -> tuple[Array, Array]:
    model, topology, joint = readings.model, readings.topology, group.objid
    limits, margin = take(model.jnt_range, joint), take(model.jnt_margin, joint)
    limited = topology.jnt_limited[joint] != 0
    start, dof = topology.jnt_qposadr[joint], topology.jnt_dofadr[joint]
    qpos, qvel = readings.state.qpos, readings.state.qvel
    if topology.jnt_type[joint[0]] != JointType.BALL:
        return _interval(readings, limited, take(qpos, start), take(qvel, dof), limits, margin)
    # a ball is limited by its angle from the reference; both bounds of the range mean the same
    turn = quat_log(quat_normalize(qpos[start[:, None] + [[0, 1, 2, 3]]]))
    distance = jnp.maximum(limits[:, 0], limits[:, 1]) - safe.norm(turn)
    rate = -dot(safe.normalize(turn), qvel[dof[:, None] + [[0, 1, 2]]])
    return _where_active(readings, limited, distance, rate, margin)


def _interval(
    readings: Readings, limited: np.ndarray, value: Array, rate: Array, limits: Array, margin: Array
) -> tuple[Array, Array]:
    """The active side of an interval: the lower one if both are."""
    below, above = value - limits[:, 0], limits[:, 1] - value
    lower = below < margin
    distance, speed = jnp.where(lower, below, above), jnp.where(lower, rate, -rate)
    return _where_active(readings, limited, distance, speed, margin)


def _where_active(
    readings: Readings, limited: np.ndarray, distance: Array, rate: Array, margin: Array
) -> tuple[Array, Array]:
    option = readings.model.opt
    enabled = not (option.disabled(DisableBit.LIMIT) or option.disabled(DisableBit.CONSTRAINT))
    active = (distance < margin) & (limited & enabled)
    return jnp.where(active, distance - margin, 0), jnp.where(active, rate, 0)
