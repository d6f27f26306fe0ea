"""Sensors of joints, tendons, actuators and limits.

A limit is active while the distance to it is below its margin. Its sensors (distance, rate of distance, force) read
zero while it is not active. If both limits of a joint are active, the lower one is read. The compiler accepts these
sensors only on limited joints and tendons. Source: MuJoCo XML reference, "sensor/jointlimitpos".
"""

import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import DisableBit, TrnType
from diffsim.base.joints import is_scalar
from diffsim.constraint.families import family_force
from diffsim.constraint.limit import limit_layout
from diffsim.math import safe
from diffsim.math.rotation import quat_log, quat_normalize
from diffsim.math.vector import dot, matmul
from diffsim.sensor.readings import Group, Ints, Readings
from diffsim.xla.gather import pick


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


def tendon_position(readings: Readings, group: Group) -> Array:
    """Tendon length, m, or rad for fixed tendons of hinges, (n, 1)."""
    return pick(readings.data.ten_length, group.objid)[:, None]


def tendon_velocity(readings: Readings, group: Group) -> Array:
    """Rate of change of the tendon length, m/s or rad/s, (n, 1)."""
    return pick(readings.data.ten_velocity, group.objid)[:, None]


def tendon_actuator_force(readings: Readings, group: Group) -> Array:
    """Sum of the forces of all actuators that pull on a tendon, N, (n, 1)."""
    topology = readings.topology
    on_tendon = topology.actuator_trntype == TrnType.TENDON
    pulls = on_tendon[None] & (topology.actuator_trnid[None, :, 0] == group.objid[:, None])
    force = readings.data.actuator_force
    return matmul(jnp.asarray(pulls.astype(np.float32), force.dtype), force)[:, None]


def actuator_position(readings: Readings, group: Group) -> Array:
    """Actuator length, gear included, m or rad, (n, 1)."""
    return pick(readings.data.actuator_length, group.objid)[:, None]


def actuator_velocity(readings: Readings, group: Group) -> Array:
    """Rate of change of the actuator length, m/s or rad/s, (n, 1)."""
    return pick(readings.data.actuator_velocity, group.objid)[:, None]


def actuator_force(readings: Readings, group: Group) -> Array:
    """Scalar actuator force, after clamping, N or N m, (n, 1)."""
    return pick(readings.data.actuator_force, group.objid)[:, None]


def joint_limit_position(readings: Readings, group: Group) -> Array:
    """Distance to the limit minus the margin, rad or m, (n, 1)."""
    return _joint_limit(readings, group)[0][:, None]


def joint_limit_velocity(readings: Readings, group: Group) -> Array:
    """Rate of change of the distance to the limit, rad/s or m/s, (n, 1)."""
    return _joint_limit(readings, group)[1][:, None]


def tendon_limit_position(readings: Readings, group: Group) -> Array:
    """Distance to the limit minus the margin, m or rad, (n, 1)."""
    return _tendon_limit(readings, group)[0][:, None]


def tendon_limit_velocity(readings: Readings, group: Group) -> Array:
    """Rate of change of the distance to the limit, rad/s or m/s, (n, 1)."""
    return _tendon_limit(readings, group)[1][:, None]


def joint_limit_force(readings: Readings, group: Group) -> Array:
    """Force of the limit, N or N m, (n, 1)."""
    topology, joint = readings.topology, group.objid
    if is_scalar(topology.jnt_type[joint[0]]):
        return _active_force(readings, "limit_lower", "limit_upper", topology.jnt_dofadr[joint])
    return _row_force(readings, "limit_ball", np.searchsorted(limit_layout(topology).ball, joint))[:, None]


def tendon_limit_force(readings: Readings, group: Group) -> Array:
    """Force of the limit along the tendon, N, (n, 1)."""
    index = np.searchsorted(limit_layout(readings.topology).tendon, group.objid)
    return _active_force(readings, "tendon_lower", "tendon_upper", index)


def _active_force(readings: Readings, lower: str, upper: str, index: Ints) -> Array:
    """Force of the active side, (n, 1), from the families of both sides."""
    below, above = (_row_force(readings, family, index) for family in (lower, upper))
    rows = readings.data.efc.find(lower)
    if rows is None:
        return below[:, None]
    active = pick(rows.pos, index) < pick(rows.margin, index)
    return jnp.where(active, below, above)[:, None]


def _row_force(readings: Readings, family: str, index: Ints) -> Array:
    """Forces (n,) of some rows of a family with one row per constraint; zero where limits are disabled."""
    force = family_force(readings.data.efc, family, readings.data.row_force)
    return pick(force[0], index) if force.shape[1] else jnp.zeros(len(index), readings.state.qpos.dtype)


def _tendon_limit(readings: Readings, group: Group) -> tuple[Array, Array]:
    model, data, tendon = readings.model, readings.data, group.objid
    limits, margin = pick(model.tendon_range, tendon), pick(model.tendon_margin, tendon)
    return _interval(readings, pick(data.ten_length, tendon), pick(data.ten_velocity, tendon), limits, margin)


def _joint_limit(readings: Readings, group: Group) -> tuple[Array, Array]:
    model, topology, joint = readings.model, readings.topology, group.objid
    limits, margin = pick(model.jnt_range, joint), pick(model.jnt_margin, joint)
    start, dof = topology.jnt_qposadr[joint], topology.jnt_dofadr[joint]
    qpos, qvel = readings.state.qpos, readings.state.qvel
    if is_scalar(topology.jnt_type[joint[0]]):
        return _interval(readings, pick(qpos, start), pick(qvel, dof), limits, margin)
    # a ball is limited by its angle from the reference; the larger bound of the range counts
    turn = quat_log(quat_normalize(qpos[start[:, None] + [[0, 1, 2, 3]]]))
    distance = safe.greater(limits[:, 0], limits[:, 1]) - safe.norm(turn)
    rate = -dot(safe.normalize(turn), qvel[dof[:, None] + [[0, 1, 2]]])
    return _where_active(readings, distance, rate, margin)


def _interval(readings: Readings, value: Array, rate: Array, limits: Array, margin: Array) -> tuple[Array, Array]:
    """The active side of an interval; the lower side if both are active."""
    below = value - limits[:, 0]
    above = limits[:, 1] - value
    lower = below < margin
    return _where_active(readings, jnp.where(lower, below, above), jnp.where(lower, rate, -rate), margin)


def _where_active(readings: Readings, distance: Array, rate: Array, margin: Array) -> tuple[Array, Array]:
    option = readings.model.opt
    disabled = option.disabled(DisableBit.LIMIT) or option.disabled(DisableBit.CONSTRAINT)
    active = (distance < margin) & (not disabled)
    return jnp.where(active, distance - margin, 0), jnp.where(active, rate, 0)
