"""Constraints on states and controls of a motion, by an augmented Lagrangian around iLQR.

    minimize cost    subject to    limits(x_t, data_t, u_t) <= 0,  t < T,    and    goal(x_T, data_T) = 0

Each round minimizes the cost with the violations as further residuals, which keeps it a sum of squares,

    1/2 |max(0, sqrt(rho) limits + y / sqrt(rho))|^2 + 1/2 |sqrt(rho) goal + z / sqrt(rho)|^2,

from the controls of the round before; then y = max(0, y + rho limits), z = z + rho goal. The multipliers end at the
prices of the constraints, so that the solution is exact at a finite rho, which grows only where a round has not taken
the violation down to a quarter. Sources: Hestenes 1969; Birgin and Martinez 2014, ch. 4; Howell et al. 2019 (ALTRO).
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from diffsim.base.checked import checked
from diffsim.math import safe
from diffsim.optimize.trajectory.ilqr import Ilqr, Plan, ilqr
from diffsim.optimize.trajectory.task import Final, Running, Task, controls_of, half_square, make_task
from diffsim.simulate.forward import forward
from diffsim.types import Data, State
from diffsim.types.record import leaf, record
from diffsim.xla.compiled import jit

# rho grows by this factor unless the violation fell to this share; bounds of rho, and the first one's part of the cost
GROWTH, ENOUGH = 10.0, 0.25
LEAST, MOST, SHARE = 1e-3, 1e8, 10.0


@record
class Constrained(Plan):
    """A plan, and how its constraints end.

    `cost` is that of the task alone, `violation` the largest of limits and |goal|. `price` (T, k) and `goal_price` (m,)
    are multipliers: what a unit of room would save of the cost.
    """

    violation: Array = leaf()
    price: Array = leaf("T", "k")
    goal_price: Array = leaf("m")


# controls, multipliers of limits (T, k) and goal (m,), rho, the violation
Round = tuple[Array, Array, Array, Array, Array]


def _nothing(state: State, *_: Data | Array) -> Array:
    """No residuals."""
    return jnp.zeros(0, state.qpos.dtype)


@checked
@functools.partial(jit, static_argnames=("limits", "goal", "rounds"))
def constrained(
    task: Task,
    state: State,
    ctrl: Array,
    limits: Running = _nothing,
    goal: Final = _nothing,
    settings: Ilqr | None = None,
    rounds: int = 10,
) -> Constrained:
    """The motion of least cost near given controls that keeps limits and ends in a goal. Batch it with `jax.vmap`.

    Args:
      task, state, ctrl, settings: as for `ilqr`; the guess (T, nu) may violate all, bounds of controls are kept.
      limits: (state, data, ctrl) -> (k,), at most 0 where the motion may be; at every step, not at the last state.
      goal: (state, data) -> (m,), 0 where it shall end. Units count: what is 1 off should be far off.
      rounds: how many times multipliers follow.

    Returns:
      The plan; `violation` tells how nearly the constraints are kept.
    """
    ctrl = controls_of(task, ctrl)
    model, (length, _), zero = task.model, ctrl.shape, jnp.zeros((), ctrl.dtype)
    task_final = _nothing if task.final is None else task.final

    def penalized(y: Array, z: Array, rho: Array) -> Task:
        root = jnp.sqrt(rho)

        def running(now: State, data: Data, u: Array) -> Array:
            row = jnp.round((now.time - state.time) / model.opt.timestep).astype(int)
            pull = safe.maximum(root * limits(now, data, u) + y[row] / root, 0.0)
            return jnp.concatenate([task.running(now, data, u), pull])

        def final(now: State, data: Data) -> Array:
            return jnp.concatenate([task_final(now, data), root * goal(now, data) + z / root])

        return make_task(model, running, final, task.inputs, (task.lower, task.upper))

    def judged(states: State, ctrl: Array) -> tuple[Array, Array, Array]:
        def at(now: State, u: Array, last: Array) -> tuple[Array, Array, Array]:
            data = forward(model, now, task.inputs.replace(ctrl=u))
            cost = jnp.where(last, half_square(task_final(now, data)), half_square(task.running(now, data, u)))
            return limits(now, data, u), goal(now, data), cost

        padded = jnp.concatenate([ctrl, jnp.zeros_like(ctrl[:1])])
        g, h, cost = jax.vmap(at)(states, padded, jnp.arange(length + 1) == length)
        return g[:-1], h[-1], jnp.sum(cost)

    def better(last: Round, first: Array) -> tuple[Round, Constrained]:
        ctrl, y, z, rho, violation = last
        plan = ilqr(penalized(y, z, rho), state, ctrl, settings)
        g, h, cost = judged(plan.states, plan.ctrl)
        off = jnp.concatenate([jnp.maximum(g, 0).ravel(), jnp.abs(h)])
        now = jnp.max(off, initial=0.0)
        y, z = jnp.maximum(0, y + rho * g), z + rho * h
        # the first round shows the scale: violations shall count several times the cost
        begin = jnp.clip(SHARE * safe.divide(cost, jnp.sum(off * off), 1.0), LEAST, MOST)
        grown = jnp.where(now > ENOUGH * violation, jnp.minimum(GROWTH * rho, MOST), rho)
        fields: dict[str, Any] = {field.name: getattr(plan, field.name) for field in dataclasses.fields(Plan)}
        fields["cost"] = cost
        ended = Constrained(**fields, violation=now, price=y, goal_price=z)
        return (plan.ctrl, y, z, jnp.where(first, begin, grown), now), ended

    many = jax.tree.map(lambda x: jnp.broadcast_to(x, (length + 1, *x.shape)), state)
    y, z = (jnp.zeros(x.shape, x.dtype) for x in jax.eval_shape(judged, many, ctrl)[:2])
    start = (ctrl, y, z, zero + LEAST, zero + jnp.inf)
    return jax.tree.map(lambda x: x[-1], jax.lax.scan(better, start, jnp.arange(rounds) == 0)[1])
