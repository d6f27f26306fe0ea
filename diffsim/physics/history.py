"""History buffers: past samples with their times, read at a delay and interpolated.

A buffer is (user, cursor, n times, n values of `dim` numbers), a ring whose newest sample is at the cursor; times
increase. All buffers of one shape are read and written side by side. Source: MuJoCo documentation, "Computation",
"Delays"; mju_historyRead and mju_historyInsert.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.types.model import Model
from diffsim.types.topology import Topology, per_topology

Array = jax.Array

# times closer than this (s) are one sample; interpolations
MINIMUM = 1e-15
HOLD, LINEAR = 0, 1


class Samples(NamedTuple):
    """A buffer unrolled, oldest first: times (n,), values (n, dim)."""

    times: Array
    values: Array


@dataclasses.dataclass(frozen=True)
class Buffers:
    """Actuators (k,) with buffers of n samples, their places in the history (k, 2 + 2 n), and interpolations (k,)."""

    actuators: np.ndarray
    places: np.ndarray
    interpolation: np.ndarray


@per_topology
def control_buffers(topology: Topology) -> tuple[Buffers, ...]:
    """The buffers of controls, by length."""
    count, kind = topology.actuator_history.reshape(-1, 2).T
    found = []
    for n in np.unique(count[count > 0]):
        ids = np.flatnonzero(count == n)
        places = topology.actuator_historyadr[ids][:, None] + np.arange(2 + 2 * n)
        found.append(Buffers(ids, places, kind[ids]))
    return tuple(found)


def delayed_controls(model: Model, history: Array, time: Array, ctrl: Array) -> Array:
    """(nu,) controls as actuators see them: those of `actuator_delay` seconds ago where there is a delay."""
    for buffers in control_buffers(model.topology):
        delay = model.actuator_delay[buffers.actuators]
        past = jax.vmap(lambda b, t, k: read(unroll(b, 1), t, k)[0])(
            history[buffers.places], time - delay, jnp.asarray(buffers.interpolation)
        )
        now = ctrl[buffers.actuators]
        ctrl = ctrl.at[buffers.actuators].set(jnp.where(delay != 0, past, now))
    return ctrl


def record_controls(model: Model, history: Array, time: Array, ctrl: Array) -> Array:
    """(nhistory,) the history with the controls (nu,) of this time."""
    for buffers in control_buffers(model.topology):
        write = jax.vmap(lambda b, x: insert(b, 1, time, x[None]))
        history = history.at[buffers.places].set(write(history[buffers.places], ctrl[buffers.actuators]))
    return history


def unroll(buffer: Array, dim: int) -> Samples:
    """The samples of one buffer (2 + n + n dim,), oldest first."""
    count = (buffer.shape[0] - 2) // (1 + dim)
    order = (_cursor(buffer) + 1 + jnp.arange(count)) % count
    return Samples(buffer[2 : 2 + count][order], buffer[2 + count :].reshape(count, dim)[order])


def read(samples: Samples, time: Array, interpolation: Array) -> Array:
    """(dim,) the value at a time: held, linear, or a cubic spline whose end slopes are zero; constant outside."""
    times, values = samples
    last = times.shape[0] - 1
    after = jnp.clip(jnp.sum(times < time), 1, max(last, 1))
    low, high = (jnp.minimum(i, last) for i in (after - 1, after))
    span = times[high] - times[low]
    share = (time - times[low]) / jnp.where(span > 0, span, 1)
    start, end = values[low], values[high]

    def slope(first: Array, second: Array, inside: Array) -> Array:
        gap = jnp.where(inside, times[second] - times[first], 1)
        return jnp.where(inside, (values[second] - values[first]) / gap, 0)

    before, beyond = jnp.maximum(low - 1, 0), jnp.minimum(high + 1, last)
    rise, fall = slope(before, high, low > 0), slope(low, beyond, high < last)
    square, cube = share * share, share * share * share
    cubic = (2 * cube - 3 * square + 1) * start + (3 * square - 2 * cube) * end
    cubic = cubic + span * ((cube - 2 * square + share) * rise + (cube - square) * fall)
    between = jnp.where(interpolation == LINEAR, start + share * (end - start), cubic)
    between = jnp.where(interpolation == HOLD, start, between)
    value = jnp.where(jnp.abs(time - times[high]) < MINIMUM, end, between)
    value = jnp.where(time >= times[last] - MINIMUM, values[last], value)
    return jnp.where(time <= times[0] + MINIMUM, values[0], value)


def insert(buffer: Array, dim: int, time: Array, value: Array) -> Array:
    """The buffer with a sample (dim,) at a time; one of the same time is replaced, else the oldest goes."""
    times, values = unroll(buffer, dim)
    count = times.shape[0]
    slots = jnp.arange(count)
    after = jnp.sum(times < time)
    same = (after < count) & (jnp.abs(time - times[jnp.minimum(after, count - 1)]) < MINIMUM)
    slot = jnp.where(same, after, jnp.maximum(after - 1, 0))
    # samples before the new one move down, unless nothing was dropped
    source = jnp.where((slots < slot) & ~same, slots + 1, slots)
    times = jnp.where(slots == slot, time, times[source])
    values = jnp.where((slots == slot)[:, None], value[None], values[source])
    cursor = (_cursor(buffer) + (after == count)) % count
    order = (slots - cursor - 1) % count
    head = jnp.stack([buffer[0], cursor.astype(buffer.dtype)])
    return jnp.concatenate([head, times[order], values[order].reshape(-1)])


def _cursor(buffer: Array) -> Array:
    """Index of the newest sample, an integer."""
    return jax.lax.stop_gradient(buffer[1]).astype(jnp.int32)
