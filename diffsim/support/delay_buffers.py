"""Delay buffers: past controls and sensor values, read at any time and filled.

As in MuJoCo (mj_readCtrl, mj_readSensor, mj_initCtrlHistory, mj_initSensorHistory). Times are in seconds; actuators and
sensors are given by name, view or index.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.checked import checked
from diffsim.types import Data, Inputs, Model, State
from diffsim.types.history import Buffers, control_buffers, filled, read, sensor_buffers, unroll

# name, view or index
Which = Any

# ways to interpolate between samples, by their name in MJCF
INTERPOLATION = ("zoh", "linear", "cubic")


class _Buffer(NamedTuple):
    """The buffer of one actuator or sensor.

    Attributes:
      place: (size,) indices of its elements in `state.history`.
      dim: numbers in a sample.
      samples: number of samples.
      interpolation: index into INTERPOLATION.
    """

    place: np.ndarray
    dim: int
    samples: int
    interpolation: int


@checked
def read_ctrl(
    model: Model, state: State, inputs: Inputs, actuator: Which, time: Array | float, interp: str | None = None
) -> Array:
    """The delayed control of an actuator at a time: its sample from `actuator_delay` earlier; without a buffer, `ctrl`.

    Args:
      model, state, inputs: of one world.
      actuator: by name, view or index.
      time: s, of the reading; the buffer has the samples of all steps up to `state`.
      interp: "zoh", "linear" or "cubic"; None for the actuator's own.

    Returns:
      (), in units of the control.

    Raises:
      KeyError: no actuator has this name.
      ValueError: the interpolation is unknown.
    """
    index = model.actuator(actuator).id
    buffer = _find(control_buffers(model.topology), index)
    if buffer is None:
        return inputs.ctrl[index]
    return _read(buffer, state, time - model.actuator_delay[index], interp)[0]


@checked
def read_sensor(
    model: Model, state: State, data: Data, sensor: Which, time: Array | float, interp: str | None = None
) -> Array:
    """The delayed reading of a sensor at a time: its sample from `sensor_delay` earlier, or its `sensordata`.

    Args:
      model: the model.
      state: its history is read.
      data: of the state, for sensors without a buffer.
      sensor: by name, view or index.
      time, interp: as for `read_ctrl`.

    Returns:
      (dim,), in units of the sensor.
    """
    view = model.sensor(sensor)
    buffer = _find(sensor_buffers(model.topology), view.id)
    if buffer is None:
        return view.sensordata(data)
    return _read(buffer, state, time - model.sensor_delay[view.id], interp)


@checked
def init_ctrl_history(model: Model, state: State, actuator: Which, values: Array, times: Array | None = None) -> State:
    """The state with an actuator's buffer filled with controls (n,) at increasing times (n,).

    Args:
      model, state: the model, and a state of one world.
      actuator: by name, view or index.
      values: (n,) controls, oldest first.
      times: (n,) s, oldest first; None keeps the times in the buffer.

    Returns:
      The State.

    Raises:
      KeyError: no actuator has this name.
      ValueError: the actuator has no buffer, or a buffer of another length.
    """
    index = model.actuator(actuator).id
    buffer = _required(_find(control_buffers(model.topology), index), "actuator", index)
    return _fill(buffer, state, jnp.asarray(values)[:, None], times, None)


@checked
def init_sensor_history(
    model: Model,
    state: State,
    sensor: Which,
    values: Array,
    times: Array | None = None,
    phase: Array | float | None = None,
) -> State:
    """The state with a sensor's buffer filled with readings (n, dim) at increasing times (n,).

    Args:
      model, state: the model, and a state of one world.
      sensor: by name, view or index.
      values: (n, dim) readings, oldest first.
      times: (n,) s, oldest first; None keeps the times in the buffer.
      phase: s, time of the last sample of a sensor that is sampled at intervals; None keeps the time in the buffer.

    Returns:
      The State.

    Raises:
      KeyError: no sensor has this name.
      ValueError: the sensor has no buffer, or a buffer of another shape.
    """
    index = model.sensor(sensor).id
    buffer = _required(_find(sensor_buffers(model.topology), index), "sensor", index)
    return _fill(buffer, state, jnp.asarray(values), times, phase)


def _find(groups: tuple[Buffers, ...], owner: int) -> _Buffer | None:
    """The buffer of an actuator or sensor, if it has one."""
    for buffers in groups:
        for row in np.flatnonzero(buffers.owners == owner):
            return _Buffer(buffers.places[row], buffers.dim, buffers.count, int(buffers.interpolation[row]))
    return None


def _required(buffer: _Buffer | None, kind: str, index: int) -> _Buffer:
    if buffer is None:
        raise ValueError(f"{kind} {index} has no history; set its attribute 'nsample' in the model")
    return buffer


def _read(buffer: _Buffer, state: State, time: Array | float, interp: str | None) -> Array:
    """(dim,) the value in a buffer at a time."""
    if interp is not None and interp not in INTERPOLATION:
        raise ValueError(f"interp is one of {', '.join(INTERPOLATION)}; got {interp!r}")
    kind = buffer.interpolation if interp is None else INTERPOLATION.index(interp)
    samples = unroll(state.history[buffer.place], buffer.dim)
    return read(samples, jnp.asarray(time, state.history.dtype), jnp.asarray(kind))


def _fill(buffer: _Buffer, state: State, values: Array, times: Array | None, clock: Array | float | None) -> State:
    """The state with new samples in a buffer."""
    old = jnp.asarray(state.history)[buffer.place]
    times = unroll(old, buffer.dim).times if times is None else jnp.asarray(times, old.dtype)
    if times.shape != (buffer.samples,) or values.shape != (buffer.samples, buffer.dim):
        expected = f"times ({buffer.samples},) and values ({buffer.samples}, {buffer.dim})"
        raise ValueError(f"this buffer takes {expected}, got {times.shape} and {values.shape}")
    clock = old[0] if clock is None else jnp.asarray(clock, old.dtype)
    new = filled(clock, times, values.astype(old.dtype).reshape(-1))
    return state.replace(history=jnp.asarray(state.history).at[buffer.place].set(new))
