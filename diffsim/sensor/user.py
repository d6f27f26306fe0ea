"""Sensors that the user computes: what the model's hook says (`Hooks(sensor=...)`), zero without a hook."""

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.sensor.readings import Group, Readings
from diffsim.xla.pick import pick

Array = jax.Array


def user_sensor(readings: Readings, group: Group) -> Array:
    """Numbers of user sensors, in the user's units, (n, dim)."""
    if readings.model.hooks.sensor is None:
        return jnp.zeros((group.size, group.dim), readings.state.qpos.dtype)
    address = readings.topology.sensor_adr[group.sensors][:, None] + np.arange(group.dim)
    return pick(readings.of_hook, address)
