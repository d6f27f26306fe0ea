"""The classical fourth-order Runge-Kutta method on (qpos, qvel, act), for whoever evaluates accelerations."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from diffsim.kinematics.joints import integrate_position
from diffsim.types import Data, Model, State

Array = jax.Array
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

    These are one scan, so that `evaluate` is compiled once for them. Two are in the middle of the step, one at its end.

    Args:
      model: the model.
      state: where it begins; rates: found there.
      h: s.
      evaluate: a state to its Data; read: what is needed of it, stacked along a leading axis of length 3.
    """

    def stage(carry: tuple[Slopes, Slopes], row: tuple[Array, Array]) -> tuple[tuple[Slopes, Slopes], Any]:
        slopes, total = carry
        fraction, weight = row
        point = advance(model, state, slopes, fraction * h)
        found = evaluate(point)
        slopes = Slopes(point.qvel, found.qacc, found.act_dot)
        return (slopes, jax.tree.map(lambda t, k: t + weight * k, total, slopes)), read(found)

    first = Slopes(state.qvel, *rates)
    table = jnp.asarray([[0.5, 0.5, 1.0], [2.0, 2.0, 1.0]], state.qpos.dtype)
    (_, total), reads = jax.lax.scan(stage, (first, first), (table[0], table[1]))
    return jax.tree.map(lambda t: t / 6, total), reads


def rates_of(data: Data) -> Rates:
    """What changes velocities and activations."""
    return data.qacc, data.act_dot


def last(reads: Any) -> Any:
    """Of the last stage."""
    return jax.tree.map(lambda read: read[-1], reads)


def advance(model: Model, state: State, slopes: Slopes, h: Array) -> State:
    """The state after h seconds of constant rates."""
    return state.replace(
        time=state.time + h,
        qpos=integrate_position(model, state.qpos, slopes.path, h),
        qvel=state.qvel + h * slopes.qacc,
        act=state.act + h * slopes.act_dot,
    )
