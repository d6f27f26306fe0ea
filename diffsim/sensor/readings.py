"""What a sensor function gets: the readings (all that can be seen) and a group (which sensors to evaluate).

A group is homogeneous: one sensor type, one object type, one reference type, one output size. Its index arrays are
static, so a function gathers what its n sensors need and computes them side by side.
"""

import functools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.enums import ObjType, SensorType
from diffsim.types import Data, Inputs, Model, State, Topology

Array = jax.Array
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
        """(nsensordata,) what the model's sensor hook says; only the places of user sensors count."""
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
        """How many sensors the group has."""
        return len(self.sensors)

    @property
    def relative(self) -> bool:
        """Whether the sensors have a reference object."""
        return bool(self.refid[0] >= 0)
