"""Sensors of tendons and actuators: length, velocity, force."""

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.enums import TrnType
from diffsim.math.linalg import matmul
from diffsim.sensor.readings import Group, Readings
from diffsim.xla.pick import pick

Array = jax.Array


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
