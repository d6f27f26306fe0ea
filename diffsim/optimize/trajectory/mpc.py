"""Model predictive control (receding horizon): a new plan from each state, starting from the previous plan.

With iLQR, the plan is improved at every step. With sampling, each plan is executed for a few steps (`Sampling.driven`);
sampling also finds motions that derivatives do not point to.
"""

import jax
import jax.numpy as jnp
from jax import Array

from diffsim.base.checked import checked
from diffsim.optimize.trajectory.ilqr import Ilqr, ilqr
from diffsim.optimize.trajectory.sampling import (
    Proposal,
    Sampling,
    improve,
    need_bounds,
    piece_centers,
    propose,
    same_worlds,
    spread,
)
from diffsim.optimize.trajectory.task import Task, Trajectory, controls_of
from diffsim.simulate.step import step_data
from diffsim.types import Model, State

# number of rounds of the first search, as a multiple of those of later searches, which start from the previous plan
FIRST_ROUNDS = 3


@checked
def mpc(
    task: Task,
    state: State,
    ctrl: Array,
    steps: int,
    plant: Model | None = None,
    settings: Ilqr | Sampling | None = None,
    key: Array | None = None,
) -> Trajectory:
    """Controls a world by model predictive control for a number of steps.

    Jit it with static `steps`; batch it with `jax.vmap` over states and controls.

    Args:
      task: the cost of a plan, over a horizon of ctrl.shape[0] steps.
      state: the first state of the world.
      ctrl: (horizon, nu) guess for the first plan; each later plan starts from the previous one, shifted in time.
      steps: number of steps to take.
      plant: the model of the world; None for the model of the task.
      settings: of each plan: an `Ilqr`, a `Sampling` to plan by sampling, or None for one iteration of iLQR, as in
        MuJoCo MPC.
      key: for sampling; None for `jax.random.key(0)`.

    Returns:
      The trajectory of the world: states, controls (steps, nu), status bits, and the cost of the last plan.

    Raises:
      ValueError: fewer than one step, or controls of the wrong shape.
      ArgumentError: sampling without bounds.
      UnsupportedError: a model with delays, for iLQR.
    """
    ctrl = controls_of(task, ctrl)
    if steps < 1:
        raise ValueError(f"steps is {steps}, expected one or more")
    if isinstance(settings, Sampling):
        return _mpc_by_sampling(task, state, ctrl, steps, plant, settings, jax.random.key(0) if key is None else key)
    settings = Ilqr(iterations=1) if settings is None else settings

    def advance(carry: tuple[State, Array], _: None) -> tuple[tuple[State, Array], tuple[State, Array, Array, Array]]:
        now, guess = carry
        plan = ilqr(task, now, guess, settings)
        if plant is None:
            later = jax.tree.map(lambda leaf: leaf[1], plan.states)
            status = plan.status
        else:
            later, data = step_data(plant, now, task.inputs.replace(ctrl=plan.ctrl[0]))
            status = data.status
        shifted = jnp.concatenate([plan.ctrl[1:], plan.ctrl[-1:]])
        return (later, shifted), (now, plan.ctrl[0], plan.cost, status)

    (final, _), (states, taken, costs, bits) = jax.lax.scan(advance, (state, ctrl), None, length=steps)
    return _trajectory(states, final, taken, costs, bits)


def _trajectory(states: State, final: State, ctrl: Array, costs: Array, bits: Array) -> Trajectory:
    """The trajectory, from states before each step (n, ...) and after the last, costs of plans and status bits (n,)."""
    states = jax.tree.map(lambda many, one: jnp.concatenate([many, one[None]]), states, final)
    status = jax.lax.reduce(bits, jnp.zeros((), jnp.int32), jax.lax.bitwise_or, (0,))
    return Trajectory(states=states, ctrl=ctrl, cost=costs[-1], status=status)


def _mpc_by_sampling(
    task: Task, state: State, ctrl: Array, steps: int, plant: Model | None, settings: Sampling, key: Array
) -> Trajectory:
    """`mpc` by sampling: one search after another; the first pieces of each plan are executed."""
    need_bounds(task)
    horizon = len(ctrl)
    pieces = min(settings.pieces, horizon)
    executed = max(1, min(settings.driven, pieces) * horizon // pieces)
    shape = (jnp.asarray(pieces), jnp.asarray(horizon))
    nothing = jnp.zeros_like(ctrl)

    def execute(now: State, ctrl: Array) -> tuple[State, tuple[State, Array, Array]]:
        later, data = step_data(task.model if plant is None else plant, now, task.inputs.replace(ctrl=ctrl))
        return later, (now, ctrl, data.status)

    def advance(carry: tuple[State, Array], turn: Array) -> tuple[tuple[State, Array], tuple]:
        now, guess = carry
        turn_key = jax.random.fold_in(key, turn)

        def better(i: Array, proposal: Proposal) -> Proposal:
            worlds = same_worlds(now, settings.samples)
            return improve(task, worlds, proposal, jax.random.fold_in(turn_key, i), shape, nothing, settings)

        first = propose(task, piece_centers(guess, pieces, horizon, pieces), settings.first)
        proposal = jax.lax.fori_loop(0, settings.rounds * jnp.where(turn == 0, FIRST_ROUNDS, 1), better, first)
        plan = spread(proposal.best, pieces, horizon, horizon)
        later, (states, taken, bits) = jax.lax.scan(execute, now, plan[:executed])
        shifted = plan[jnp.minimum(jnp.arange(horizon) + executed, horizon - 1)]
        return (later, shifted), (states, taken, jnp.full(executed, proposal.cost), bits)

    turns = -(-steps // executed)
    _, rows = jax.lax.scan(advance, (state, ctrl), jnp.arange(turns))
    # the last plan may have been executed for more steps than requested
    flat = jax.tree.map(lambda leaf: jax.lax.collapse(leaf, 0, 2), rows)
    states, taken, costs, bits = jax.tree.map(lambda leaf: leaf[:steps], flat)
    last = jax.tree.map(lambda leaf: leaf[-1], states)
    final = execute(last, taken[-1])[0]
    return _trajectory(states, final, taken, costs, bits)
