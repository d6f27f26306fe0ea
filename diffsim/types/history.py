"""History buffers for delays: past samples with their times (s), interpolated at the time one delay ago.

A buffer of n samples of `dim` values each is the vector (clock, cursor, n times, n dim values). It is a ring, in which
the newest sample is at the cursor and times increase. The clock is for sensors that are sampled at intervals: it is the
time at which the last sample was due. Only this file knows the layout. All buffers of one shape are read and written
together. Source: MuJoCo documentation, "Computation", "Delays"; mju_historyRead and mju_historyInsert;
mj_advance.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import MINVAL, DisableBit
from diffsim.types.model import Model
from diffsim.types.topology import Topology, per_topology
from diffsim.xla.compiled import zeros

# kinds of interpolation in MuJoCo's numbering; 2 is a cubic spline
# the value of the last sample before
HOLD = 0
# a line between two samples
LINEAR = 1
# number of elements before the times: clock and cursor
HEAD = 2


def buffer_size(count: Any, dim: Any) -> Any:
    """Size of a buffer of `count` samples of `dim` values each, 0 without samples; the arguments may be arrays."""
    return np.where(np.greater(count, 0), HEAD + count * (1 + dim), 0)


class Samples(NamedTuple):
    """The samples of a buffer, the oldest first: times (n,), s, and values (n, dim)."""

    times: Array
    values: Array


@dataclasses.dataclass(frozen=True)
class Buffers:
    """The buffers of k actuators or sensors that have one shape: n samples of `dim` values each.

    Attributes:
      owners: (k,) the actuators or sensors.
      places: (k, size) indices of the buffers' elements in the history.
      values: (k, dim) indices of their values among all controls, or among all readings.
      interpolation: (k,) HOLD, LINEAR, or another number for a cubic spline.
    """

    owners: np.ndarray
    places: np.ndarray
    values: np.ndarray
    interpolation: np.ndarray

    @property
    def dim(self) -> int:
        """Number of values in a sample."""
        return self.values.shape[1]

    @property
    def count(self) -> int:
        """Number of samples in a buffer."""
        return _samples_in(self.places.shape[1], self.dim)


def _samples_in(size: int, dim: int) -> int:
    """Number of samples in a buffer with `size` elements."""
    return (size - HEAD) // (1 + dim)


@per_topology
def control_buffers(topology: Topology) -> tuple[Buffers, ...]:
    """The buffers of controls, grouped by their number of samples."""
    one = np.ones(topology.nu, int)
    return _buffers(topology.actuator_history, topology.actuator_historyadr, one, np.arange(topology.nu))


@per_topology
def sensor_buffers(topology: Topology) -> tuple[Buffers, ...]:
    """The buffers of sensor readings, grouped by their number of samples and by dimension."""
    return _buffers(topology.sensor_history, topology.sensor_historyadr, topology.sensor_dim, topology.sensor_adr)


def _buffers(history: np.ndarray, address: np.ndarray, dims: np.ndarray, start: np.ndarray) -> tuple[Buffers, ...]:
    """Buffers, grouped by shape.

    Args:
      history: (n, 2) number of samples, and kind of interpolation.
      address: (n,) index of the first element in the history.
      dims, start: (n,) number of values, and index of the first one among all controls or readings.
    """
    count, kind = history.reshape(-1, 2).T
    buffers = []
    for n, dim in sorted({(int(n), int(dim)) for n, dim in zip(count, dims, strict=True) if n > 0}):
        ids = np.flatnonzero((count == n) & (dims == dim))
        places = address[ids][:, None] + np.arange(buffer_size(n, dim))
        values = start[ids][:, None] + np.arange(dim)
        buffers.append(Buffers(owners=ids, places=places, values=values, interpolation=kind[ids]))
    return tuple(buffers)


def empty_history(model: Model) -> Array:
    """(nhistory,) the history at time 0: buffers of n zeros, sampled at the n timesteps before.

    Samples of a sensor with an interval are one interval apart, at multiples of the timestep. The last of them was at
    the sensor's phase. If the phase is zero, it was one interval ago, so that a new sample is due at time 0.
    """
    h = model.opt.timestep
    history = zeros(model.topology.nhistory, h.dtype)
    for buffers in control_buffers(model.topology):
        clock = jnp.zeros(len(buffers.owners), h.dtype)
        times = clock[:, None] - h - h * _age(buffers, h.dtype)
        history = history.at[buffers.places].set(_unused(buffers, clock, times))
    for buffers in sensor_buffers(model.topology):
        period = model.sensor_interval[buffers.owners, 0]
        phase = model.sensor_interval[buffers.owners, 1]
        sampled = period > 0
        last = jnp.where(sampled, jnp.where(phase == 0, -period, phase), -h)
        times = last[:, None] - jnp.where(sampled, period, h)[:, None] * _age(buffers, h.dtype)
        times = jnp.where(sampled[:, None], jnp.ceil(times / h) * h, times)
        history = history.at[buffers.places].set(_unused(buffers, last, times))
    return history


def _age(buffers: Buffers, dtype: Any) -> Array:
    """(1, n) how many samples of an initial buffer are newer than each sample."""
    return jnp.arange(buffers.count - 1, -1, -1, dtype=dtype)[None]


def _unused(buffers: Buffers, clock: Array, times: Array) -> Array:
    """(k, size) buffers of zeros, with clocks (k,) and times (k, n)."""
    zeros = jnp.zeros((len(buffers.owners), buffers.count * buffers.dim), clock.dtype)
    return filled(clock, times, zeros)


def filled(clock: Array, times: Array, values: Array) -> Array:
    """Buffers (..., size) with clocks (...,), times (..., n), oldest first, and values (..., n dim)."""
    newest = jnp.full_like(clock, times.shape[-1] - 1)
    return jnp.concatenate([jnp.stack([clock, newest], axis=-1), times, values], axis=-1)


def delayed_controls(model: Model, history: Array, time: Array, ctrl: Array) -> Array:
    """(nu,) controls that act at a time: the controls of `actuator_delay` seconds ago where there is a delay."""
    for buffers in control_buffers(model.topology):
        delay = model.actuator_delay[buffers.owners]
        past = _read_all(buffers, history, time - delay)
        now = ctrl[buffers.values]
        ctrl = ctrl.at[buffers.values].set(jnp.where((delay != 0)[:, None], past, now))
    return ctrl


def record_controls(model: Model, history: Array, time: Array, ctrl: Array) -> Array:
    """(nhistory,) the history with the controls (nu,) of this time added."""
    for buffers in control_buffers(model.topology):
        old = history[buffers.places]
        history = history.at[buffers.places].set(_insert_all(buffers, old, time, ctrl[buffers.values]))
    return history


def delayed_readings(model: Model, history: Array, time: Array, readings: Array) -> Array:
    """(nsensordata,) the sensors' output at a time, given their undelayed `readings`.

    The output of a sensor with a delay is its reading of `sensor_delay` seconds ago. The output of a sensor without a
    delay that is sampled at intervals is its last sample, until the next one is due. Disabled sensors return zero.
    """
    if model.opt.disabled(DisableBit.SENSOR):
        return jnp.zeros_like(readings)
    for buffers in sensor_buffers(model.topology):
        delay = model.sensor_delay[buffers.owners]
        past = _read_all(buffers, history, time - delay)
        now = readings[buffers.values]
        sampled_now = (delay <= 0) & _due(model, buffers, history[buffers.places], time)
        readings = readings.at[buffers.values].set(jnp.where(sampled_now[:, None], now, past))
    return readings


def record_readings(model: Model, history: Array, time: Array, readings: Array, sample: Array) -> Array:
    """(nhistory,) the history with new samples of the sensors whose sample is due.

    Sensors with a delay record `sample` (nsensordata,), which the integrator computes; other sensors record their
    `readings` (nsensordata,). If sensors are disabled, those with a delay still record `sample`, and the others zero.
    """
    disabled = model.opt.disabled(DisableBit.SENSOR)
    for buffers in sensor_buffers(model.topology):
        old = history[buffers.places]
        interval = model.sensor_interval[buffers.owners, 0]
        delayed = model.sensor_delay[buffers.owners, None] > 0
        values = jnp.where(delayed, sample[buffers.values], 0 if disabled else readings[buffers.values])
        new = _insert_all(buffers, old, time, values)
        # the clock advances by whole intervals, from one due time to the next
        new = new.at[:, 0].add(jnp.where(interval > 0, interval, 0))
        due = _due(model, buffers, old, time)
        history = history.at[buffers.places].set(jnp.where(due[:, None], new, old))
    return history


def _due(model: Model, buffers: Buffers, old: Array, time: Array) -> Array:
    """(k,) whether a sample is due at a time: without an interval always, else one interval after the last one."""
    interval = model.sensor_interval[buffers.owners, 0]
    return (interval <= 0) | (old[:, 0] + interval <= time)


def _read_all(buffers: Buffers, history: Array, times: Array) -> Array:
    """(k, dim) the interpolated value of each buffer at `times` (k,)."""

    def read_one(buffer: Array, time: Array, interpolation: Array) -> Array:
        return read(unroll(buffer, buffers.dim), time, interpolation)

    return jax.vmap(read_one)(history[buffers.places], times, jnp.asarray(buffers.interpolation))


def _insert_all(buffers: Buffers, old: Array, time: Array, values: Array) -> Array:
    """(k, size) the buffers `old` with the values (k, dim) of one time added."""
    return jax.vmap(lambda buffer, value: insert(buffer, buffers.dim, time, value))(old, values)


def unroll(buffer: Array, dim: int) -> Samples:
    """The samples of one buffer (size,), oldest first."""
    count = _samples_in(buffer.shape[0], dim)
    order = (_cursor(buffer) + 1 + jnp.arange(count)) % count
    times = buffer[HEAD : HEAD + count]
    values = buffer[HEAD + count :].reshape(count, dim)
    return Samples(times[order], values[order])


def read(samples: Samples, time: Array, interpolation: Array) -> Array:
    """(dim,) the value at a time, interpolated by hold, linearly, or by a cubic spline whose end slopes are zero.

    Before the first and after the last sample it is constant.
    """
    # the samples `low` and `high` before and after the time; with one sample both are 0
    times, values = samples
    last = times.shape[0] - 1
    after = jnp.clip(jnp.sum(times < time), 1, max(last, 1))
    low = jnp.minimum(after - 1, last)
    high = jnp.minimum(after, last)
    span = times[high] - times[low]
    fraction = (time - times[low]) / jnp.where(span > 0, span, 1)
    start = values[low]
    end = values[high]

    def slope(first: Array, second: Array, inside: Array) -> Array:
        """The slope of the line through two samples, or 0 at the ends of the buffer."""
        gap = jnp.where(inside, times[second] - times[first], 1)
        return jnp.where(inside, (values[second] - values[first]) / gap, 0)

    # cubic Hermite spline, with the slope at each sample from the samples next to it (Catmull-Rom)
    start_slope = slope(jnp.maximum(low - 1, 0), high, low > 0)
    end_slope = slope(low, jnp.minimum(high + 1, last), high < last)
    square = fraction * fraction
    cube = fraction * fraction * fraction
    cubic = (2 * cube - 3 * square + 1) * start + (3 * square - 2 * cube) * end
    cubic = cubic + span * ((cube - 2 * square + fraction) * start_slope + (cube - square) * end_slope)
    between = jnp.where(interpolation == LINEAR, start + fraction * (end - start), cubic)
    between = jnp.where(interpolation == HOLD, start, between)
    value = jnp.where(jnp.abs(time - times[high]) < MINVAL, end, between)
    value = jnp.where(time >= times[last] - MINVAL, values[last], value)
    return jnp.where(time <= times[0] + MINVAL, values[0], value)


def insert(buffer: Array, dim: int, time: Array, value: Array) -> Array:
    """The buffer with a sample (dim,) at a time; it replaces a sample of the same time, or else the oldest sample."""
    times, values = unroll(buffer, dim)
    count = times.shape[0]
    slots = jnp.arange(count)
    after = jnp.sum(times < time)
    same = (after < count) & (jnp.abs(time - times[jnp.minimum(after, count - 1)]) < MINVAL)
    slot = jnp.where(same, after, jnp.maximum(after - 1, 0))
    # the oldest sample is dropped, and those before the new one move down by one, unless one was replaced
    source = jnp.where((slots < slot) & ~same, slots + 1, slots)
    times = jnp.where(slots == slot, time, times[source])
    values = jnp.where((slots == slot)[:, None], value[None], values[source])
    cursor = (_cursor(buffer) + (after == count)) % count
    order = (slots - cursor - 1) % count
    head = jnp.stack([buffer[0], cursor.astype(buffer.dtype)])
    return jnp.concatenate([head, times[order], values[order].reshape(-1)])


def _cursor(buffer: Array) -> Array:
    """() int: index of the newest sample."""
    return jax.lax.stop_gradient(buffer[1]).astype(jnp.int32)
