"""The arguments of a sensor function: the readings (everything that it can see), and the group of sensors to evaluate.

A group is homogeneous: one sensor type, one object type, one reference type, one output size. Its index arrays are
static, so that a function gathers what its n sensors need and computes them together. Here are also the functions of
sensors that only read a number: of the whole world (time, energy), of subtrees of bodies, and of the user's hooks.
"""

import functools
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import ObjType, SensorType
from diffsim.types import Data, Inputs, Model, State, Topology
from diffsim.xla.gather import pick

Ints = np.ndarray


@dataclass(frozen=True, eq=False)
class Readings:
    """Everything that a sensor can see.

    `contact_force` is (ncon, 6): force and torque of each contact in its own frame, on geom2 from geom1.
    """

    model: Model
    state: State
    inputs: Inputs
    data: Data
    contact_force: Array

    @property
    def topology(self) -> Topology:
        """The static part of the model."""
        return self.model.topology

    @functools.cached_property
    def of_hook(self) -> Array:
        """(nsensordata,) what the model's sensor hook returns; only the entries of user sensors are used."""
        values = self.model.hooks.sensor(self.model, self.state, self.inputs, self.data)  # type: ignore[misc]
        return jnp.asarray(values, self.state.qpos.dtype)


@dataclass(frozen=True, eq=False)
class Group:
    """n sensors of one kind; `objid`, `refid` and `sensors` are static and have shape (n,).

    `sensors` are the indices in the model. `refid` is -1 where no reference is given (then for the whole group).
    """

    type: SensorType
    objtype: ObjType
    reftype: ObjType
    dim: int
    parameters: tuple[int, ...]
    sensors: Ints
    objid: Ints
    refid: Ints

    @property
    def size(self) -> int:
        """Number of sensors in the group."""
        return len(self.sensors)

    @property
    def relative(self) -> bool:
        """Whether the sensors have a reference object."""
        return bool(self.refid[0] >= 0)


def clock(readings: Readings, group: Group) -> Array:
    """Simulation time, s, (n, 1)."""
    return readings.state.time.reshape(1, 1).repeat(group.size, 0)


def potential_energy(readings: Readings, group: Group) -> Array:
    """Potential energy, J, (n, 1)."""
    return readings.data.energy[:1, None].repeat(group.size, 0)


def kinetic_energy(readings: Readings, group: Group) -> Array:
    """Kinetic energy, J, (n, 1)."""
    return readings.data.energy[1:, None].repeat(group.size, 0)


def subtree_centre(readings: Readings, group: Group) -> Array:
    """Centre of mass, m, (n, 3)."""
    return pick(readings.data.subtree_com, group.objid)


def subtree_velocity(readings: Readings, group: Group) -> Array:
    """Velocity of the centre of mass, m/s, (n, 3)."""
    return pick(readings.data.subtree_linvel, group.objid)


def subtree_momentum(readings: Readings, group: Group) -> Array:
    """Angular momentum about the centre of mass, kg m^2/s, (n, 3)."""
    return pick(readings.data.subtree_angmom, group.objid)


def user_sensor(readings: Readings, group: Group) -> Array:
    """Numbers of user sensors, in the user's units, (n, dim)."""
    if readings.model.hooks.sensor is None:
        return jnp.zeros((group.size, group.dim), readings.state.qpos.dtype)
    address = readings.topology.sensor_adr[group.sensors][:, None] + np.arange(group.dim)
    return pick(readings.of_hook, address)
