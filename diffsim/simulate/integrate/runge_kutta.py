"""Runge-Kutta methods as tables of weights. Each row of a table gives the state at one point of a piece.

A piece is a step, or a part of a step between two events. It lasts h seconds and begins at (qpos, qvel). Let a_j be
the accelerations that are known so far. A point has three entries:

- part c: the point lies c h seconds after the beginning;
- gain: its velocity is qvel + h sum_j gain_j a_j; activations change in the same way;
- path: qpos moves for c h seconds with the mean velocity qvel + h sum_j path_j a_j.

The stages of the classical fourth-order method have this form, because their velocities are sums of accelerations.
Points on a cubic, and the result of Simpson's rule, have it too.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.kinematics.joints import integrate_position, rates_on_the_way
from diffsim.math.vector import total
from diffsim.types import Data, Model, State
from diffsim.xla.loops import scan

# the first rows of the rates (KNOWN + VISITS, nv + na) come from an earlier pass over the piece: at its beginning, the
# mean, and at its end
KNOWN = 3
# rows of the rates that are evaluated: one for each stage of the classical method, and one at the end
VISITS = 5
# the classical method (Hairer, Norsett, Wanner 1993, table II.1.2): in which part of the step each stage lies
STAGES = (0.0, 0.5, 0.5, 1.0)
# the weight of each stage, times six
WEIGHTS = (1.0, 2.0, 2.0, 1.0)


class Nodes(NamedTuple):
    """Points: part of the piece (...), weights of rates (..., KNOWN + VISITS)."""

    part: Array
    path: Array
    gain: Array


def runge_kutta(dtype: jnp.dtype) -> Nodes:
    """The beginning, the three stages that follow, and the end."""
    # Nystrom form of the classical method: k2 moves with qvel, k3 with qvel + h/2 a_1, k4 with qvel + h/2 a_2 (mean
    # velocities), and the end with qvel + h (a_1 + a_2 + a_3) / 6
    part, path, gain = np.asarray([*STAGES, 1]), *np.zeros((2, VISITS, VISITS))
    gain[[1, 2, 3], [0, 1, 2]] = part[1:4]
    path[[2, 3], [0, 1]] = 1 / 2
    path[4] = np.asarray([1, 1, 1, 0, 0]) / 6
    gain[4] = np.asarray([*WEIGHTS, 0]) / 6
    before = ((0, 0), (KNOWN, 0))
    return Nodes(*(jnp.asarray(table, dtype) for table in (part, np.pad(path, before), np.pad(gain, before))))


def quarters(until: Array) -> Nodes:
    """Points at 1/4, 1/2, 3/4 and all of the way to `until`, a fraction of the piece, if velocity is a cubic of time.

    The acceleration at the beginning, the mean acceleration, and the acceleration at the end are known. (The fifth row
    is not used.)
    """
    # Hermite: the velocity v(s) with v'(0) = h a_begin, v(1) - v(0) = h a_mean and v'(1) = h a_end
    s = until * jnp.asarray([0.25, 0.5, 0.75, 1.0, 1.0], until.dtype)
    gain = jnp.stack([s - 2 * s**2 + s**3, 3 * s**2 - 2 * s**3, s**3 - s**2], axis=1)
    # their integrals, over s
    path = jnp.stack([s / 2 - 2 * s**2 / 3 + s**3 / 4, s**2 - s**3 / 2, s**3 / 4 - s**2 / 3], axis=1)
    after = ((0, 0), (0, VISITS))
    return Nodes(s, jnp.pad(path, after), jnp.pad(gain, after))


def simpson(until: Array) -> Nodes:
    """The state at `until`: Simpson's rule on each half of the way, from accelerations at 0 and at the quarters."""
    # in the position, each acceleration is also weighted with the time from its point to the end
    path = np.asarray([1, 3, 1, 1, 0]) / 12
    gain = np.asarray([1, 4, 2, 4, 1]) / 12
    place = np.asarray([0, *range(KNOWN, KNOWN + 4)])
    weights = (jnp.zeros(KNOWN + VISITS, until.dtype).at[place].set(row) for row in (path, gain))
    return Nodes(until, *(until * row for row in weights))


def mean_rates(rates: Array, weights: Array) -> Array:
    """sum_j weight_j rates_j."""
    return total([weight * row for weight, row in zip(weights, rates, strict=True)])


def at_node(model: Model, state: State, rates: Array, h: Array, node: Nodes) -> State:
    """The state at one node of a piece that begins at `state`."""
    nv = model.nv
    gain = mean_rates(rates, node.gain)
    path = mean_rates(rates[:, :nv], node.path)
    return state.replace(
        time=state.time + node.part * h,
        qpos=integrate_position(model, state.qpos, state.qvel + h * path, node.part * h),
        qvel=state.qvel + h * gain[:nv],
        act=state.act + h * gain[nv:],
    )


def coast(model: Model, state: State, rates: Array, h: Array) -> State:
    """The state after a very short time h (s) at constant rates (nv + na,)."""
    # the first rates count alone, and the point is the end of the piece
    first = jnp.zeros(KNOWN + VISITS, rates.dtype).at[0].set(1)
    end = Nodes(part=first[0], path=first / 2, gain=first)
    return at_node(model, state, jnp.broadcast_to(rates, (KNOWN + VISITS, rates.size)), h, end)


# acceleration (nv,), rates of activation (na,)
Rates = tuple[Array, Array]


class Slopes(NamedTuple):
    """Rates of change: the velocity that positions move with (nv,), acceleration (nv,), rates of activation (na,)."""

    path: Array
    qacc: Array
    act_dot: Array


def average_slopes(
    model: Model, state: State, rates: Rates, h: Array, evaluate: Callable[[State], Data], read: Callable[[Data], Any]
) -> tuple[Slopes, Any]:
    """The weighted average (k1 + 2 k2 + 2 k3 + k4) / 6 over h seconds, and what `read` takes of the last three stages.

    The three stages are one scan, so that `evaluate` is compiled once. Two lie in the middle of the step, one at its
    end.

    Args:
      model: the model.
      state: where the step begins.
      rates: accelerations and activation rates there, k1.
      h: s.
      evaluate: a state -> its Data.
      read: Data -> what is needed of it; stacked along a leading axis of length 3.
    """

    def stage(carry: tuple[Slopes, Slopes], row: tuple[Array, Array]) -> tuple[tuple[Slopes, Slopes], Any]:
        slopes, weighted = carry
        fraction, weight = row
        point = advance(model, state, slopes, fraction * h)
        data = evaluate(point)
        path = point.qvel
        # later versions of MuJoCo measure velocities of rotations in the frame of the stage
        if model.opt.follows("rk4_rotations"):
            path = rates_on_the_way(model, fraction * h * slopes.path, path)
        slopes = Slopes(path, data.qacc, data.act_dot)
        return (slopes, jax.tree.map(lambda t, k: t + weight * k, weighted, slopes)), read(data)

    first = Slopes(state.qvel, *rates)
    table = jnp.asarray([STAGES[1:], WEIGHTS[1:]], state.qpos.dtype)
    (_, weighted), reads = scan(stage, (first, first), (table[0], table[1]))
    return jax.tree.map(lambda t: t / 6, weighted), reads


def advance(model: Model, state: State, slopes: Slopes, h: Array) -> State:
    """The state after h seconds of constant rates."""
    return state.replace(
        time=state.time + h,
        qpos=integrate_position(model, state.qpos, slopes.path, h),
        qvel=state.qvel + h * slopes.qacc,
        act=state.act + h * slopes.act_dot,
    )
