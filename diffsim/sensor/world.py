"""Sensors of the whole world: time and energy."""

import jax

from diffsim.sensor.readings import Group, Readings

Array = jax.Array


def clock(readings: Readings, group: Group) -> Array:
    """Simulation time, s, (n, 1)."""
    return readings.state.time.reshape(1, 1).repeat(group.size, 0)


def potential_energy(readings: Readings, group: Group) -> Array:
    """Potential energy, J, (n, 1)."""
    return readings.data.energy[:1, None].repeat(group.size, 0)


def kinetic_energy(readings: Readings, group: Group) -> Array:
    """Kinetic energy, J, (n, 1)."""
    return readings.data.energy[1:, None].repeat(group.size, 0)
