"""Trajectory optimization with constraints on states and controls: an augmented Lagrangian around iLQR.

    minimize cost    subject to    limits(x_t, data_t, u_t) <= 0,  t < T,    and    goal(x_T, data_T) = 0

Each round minimizes the cost with the violations as further residuals, so that it stays a sum of squares,

    1/2 |max(0, sqrt(rho) limits + y / sqrt(rho))|^2 + 1/2 |sqrt(rho) goal + z / sqrt(rho)|^2,

from the controls of the round before. Then y = max(0, y + rho limits) and z = z + rho goal. The multipliers y and z
converge to the prices of the constraints, so that the solution is exact at a finite rho. The penalty rho grows only if
a round has not reduced the violation to a quarter.

Sources: Hestenes 1969; Birgin and Martinez 2014, ch. 4; Howell et al. 2019 (ALTRO).
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

# rho grows by this factor after a round, unless the violation fell to the fraction ENOUGH of its last value
RHO_GROWTH = 10.0
# a violation has fallen enough if it is at most this fraction of what it was before the round
ENOUGH = 0.25
# the least rho, in units of cost over squared violation: with less, constraints are ignored
LEAST_RHO = 1e-3
# the largest rho: with more, rounding decides
LARGEST_RHO = 1e8
# after the first round, rho makes the violations cost this multiple of the task's cost
FIRST_SHARE = 10.0


@record
class Constrained(Plan):
    """A plan with constraints.

    Attributes:
      cost: the cost of the task alone.
      violation: the largest of limits and |goal|.
      price: (T, k) multipliers of the limits: how much a unit of room would reduce the cost.
      goal_price: (m,) multipliers of the goal.
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
    """Finds a local minimum of the cost that keeps limits and ends in a goal. Batch it with `jax.vmap`.

    Args:
      task: costs and bounds of the controls, which are kept exactly.
      state: where the motion begins.
      ctrl: (T, nu) the first guess; it may violate the constraints.
      limits: (state, data, ctrl) -> (k,), which must be at most 0; at every step, but not at the last state.
      goal: (state, data) -> (m,), which must be 0 at the last state. Scale it so that 1 is far off.
      settings: of each round, as in `ilqr`.
      rounds: number of rounds, after each of which the multipliers are updated.

    Returns:
      The plan; `violation` tells how well the constraints are kept.

    Raises:
      UnsupportedError: a model with delays.
      ValueError: controls of the wrong shape.
    """
    ctrl = controls_of(task, ctrl)
    model = task.model
    length, _ = ctrl.shape
    zero = jnp.zeros((), ctrl.dtype)
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
        y = jnp.maximum(0, y + rho * g)
        z = z + rho * h
        # the first round shows the scale of the cost and of the violations
        begin = jnp.clip(FIRST_SHARE * safe.divide(cost, jnp.sum(off * off), 1.0), LEAST_RHO, LARGEST_RHO)
        grown = jnp.where(now > ENOUGH * violation, jnp.minimum(RHO_GROWTH * rho, LARGEST_RHO), rho)
        fields: dict[str, Any] = {field.name: getattr(plan, field.name) for field in dataclasses.fields(Plan)}
        fields["cost"] = cost
        ended = Constrained(**fields, violation=now, price=y, goal_price=z)
        return (plan.ctrl, y, z, jnp.where(first, begin, grown), now), ended

    many = jax.tree.map(lambda x: jnp.broadcast_to(x, (length + 1, *x.shape)), state)
    y, z = (jnp.zeros(x.shape, x.dtype) for x in jax.eval_shape(judged, many, ctrl)[:2])
    start = (ctrl, y, z, zero + LEAST_RHO, zero + jnp.inf)
    return jax.tree.map(lambda x: x[-1], jax.lax.scan(better, start, jnp.arange(rounds) == 0)[1])
