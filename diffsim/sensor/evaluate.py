"""`read_sensors` evaluates all sensors of a model and puts their readings at `sensor_adr`.

Sensors of one type on objects of one type form a group, and are computed together. A static permutation then puts the
readings in order. `cutoff` clamps real readings on both sides, and positive readings from above. `noise` is kept in the
model and has no effect, as in MuJoCo.
"""

from collections import defaultdict
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import DataType, DisableBit, ObjType, SensorType
from diffsim.base.errors import Problem, UnsupportedError
from diffsim.sensor.readings import Group, Readings
from diffsim.sensor.table import SENSORS
from diffsim.types import Data, Inputs, Model, State, Topology
from diffsim.types.topology import per_topology
from diffsim.xla.gather import pick

# largest number of slices from which sensordata is put together; with more, one permutation keeps the program short
MOST_PIECES = 64


def read_sensors(model: Model, state: State, inputs: Inputs, data: Data, contact_force: Array) -> Array:
    """The readings of all sensors in one state, before any delays (types/history.py).

    Args:
      model, state, inputs: the model, the state and its inputs.
      data: the Data of this state, without sensors.
      contact_force: (ncon, 6) force (N) and torque (N m) of each contact in its frame.

    Returns:
      (nsensordata,); zero if sensors are disabled, unless a sensor has a history, which still records readings.

    Raises:
      UnsupportedError: the model has a sensor that diffsim cannot evaluate.
    """
    topology = model.topology
    idle = model.opt.disabled(DisableBit.SENSOR) and not np.any(topology.sensor_history[:, 0])
    if not topology.nsensor or idle:
        return jnp.zeros(topology.nsensordata, state.qpos.dtype)
    layout = _layout(topology)
    readings = Readings(model, state, inputs, data, contact_force)
    values = [SENSORS[group.type].function(readings, group).reshape(-1) for group in layout.groups]
    owners = [np.repeat(group.sensors, group.dim) for group in layout.groups]
    values = [_cut_off(model, *pair) for pair in zip(values, owners, strict=True)]
    if len(layout.pieces) > MOST_PIECES:
        return pick(jnp.concatenate(values), layout.order)
    # XLA computes only the pieces that a program reads: a gyro then costs no solve
    return jnp.concatenate([values[piece.group][piece.start : piece.stop] for piece in layout.pieces])


def unsupported_sensors(topology: Topology) -> list[tuple[int, str]]:
    """Sensors of a model that diffsim cannot evaluate: (index, reason)."""
    kinds = enumerate(map(SensorType, topology.sensor_type.tolist()))
    reasons = [(sensor, SENSORS[kind].refusal(topology, sensor)) for sensor, kind in kinds]
    return [(sensor, reason) for sensor, reason in reasons if reason]


class Piece(NamedTuple):
    """A slice of sensordata: the values from `start` to `stop` of the group with index `group`."""

    group: int
    start: int
    stop: int


class Layout(NamedTuple):
    """How sensordata is put together.

    Attributes:
      groups: sensors that are computed together.
      order: (nsensordata,) for each element of sensordata its index among the concatenated values of the groups.
      pieces: the same permutation as slices.
    """

    groups: list[Group]
    order: np.ndarray
    pieces: list[Piece]


@per_topology
def _layout(topology: Topology) -> Layout:
    """The layout of a model.

    Raises:
      UnsupportedError: the model has a sensor that diffsim cannot evaluate.
    """
    refused = unsupported_sensors(topology)
    if refused:
        problems = []
        for sensor, reason in refused:
            kind = SensorType(topology.sensor_type[sensor]).name.lower()
            name = topology.name("sensor", sensor) or f"number {sensor}"
            problems.append(Problem("", 0, f"sensor {kind} {name!r}", reason, unsupported=True))
        raise UnsupportedError(problems)
    # the sensors of a group agree in everything by which `members` is indexed
    members: dict[tuple, list[int]] = defaultdict(list)
    for sensor in range(topology.nsensor):
        kind = SensorType(topology.sensor_type[sensor])
        types = ObjType(topology.sensor_objtype[sensor]), ObjType(topology.sensor_reftype[sensor])
        dim = int(topology.sensor_dim[sensor])
        parameters = tuple(topology.sensor_intprm[sensor].tolist())
        apart = bool(topology.sensor_refid[sensor] >= 0), SENSORS[kind].variant(topology, sensor)
        members[kind, *types, dim, parameters, *apart].append(sensor)
    groups = []
    for (kind, *types, dim, parameters, _, _), sensors in members.items():
        ids = np.array(sensors)
        objid, refid = topology.sensor_objid[ids], topology.sensor_refid[ids]
        groups.append(Group(kind, types[0], types[1], dim, parameters, ids, objid, refid))
    # element k of the concatenated values belongs at address[k]
    address = np.concatenate(
        [(topology.sensor_adr[group.sensors][:, None] + np.arange(group.dim)).reshape(-1) for group in groups]
    )
    order = np.argsort(address)
    lengths = [len(group.sensors) * group.dim for group in groups]
    # each element of sensordata has a group and an index in the group; a new slice begins where these do not continue
    group = np.repeat(np.arange(len(groups)), lengths)[order]
    place = order - (np.cumsum(lengths) - lengths)[group]
    cuts = np.flatnonzero((np.diff(group) != 0) | (np.diff(place) != 1)) + 1
    first = np.concatenate([[0], cuts])
    last = np.concatenate([cuts - 1, [len(order) - 1]])
    pieces = [Piece(int(group[a]), int(place[a]), int(place[b]) + 1) for a, b in zip(first, last, strict=True)]
    return Layout(groups, order, pieces)


def _cut_off(model: Model, values: Array, owner: np.ndarray) -> Array:
    """(n,) readings of the sensors `owner` (n,), clamped to sensor_cutoff where it is positive.

    Real readings are clamped on both sides, and positive readings from above.
    """
    topology = model.topology
    clipped = np.array([SENSORS[SensorType(kind)].clipped for kind in topology.sensor_type])
    below = (topology.sensor_datatype == DataType.REAL) & clipped
    above = below | ((topology.sensor_datatype == DataType.POSITIVE) & clipped)
    below, above = below[owner], above[owner]
    cutoff = model.sensor_cutoff[owner]
    active = cutoff > 0
    values = jnp.where(active & above & (values > cutoff), cutoff, values)
    return jnp.where(active & below & (values < -cutoff), -cutoff, values)
