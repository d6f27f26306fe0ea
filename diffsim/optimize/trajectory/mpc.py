"""Receding horizon control: again and again a plan from where the world is, begun from the one before.

By iLQR a plan is improved at every step; by a search it drives a few steps (`Sampling.driven`), and finds ways that no
derivative points to.
"""

import jax
import jax.numpy as jnp
from jax import Array

from diffsim.base.checked import checked
from diffsim.optimize.trajectory.ilqr import Ilqr, ilqr
from diffsim.optimize.trajectory.search import (
    Proposal,
    Sampling,
    improve,
    middles,
    need_bounds,
    propose,
    same_worlds,
    spread,
)
from diffsim.optimize.trajectory.task import Task, Trajectory, controls_of
from diffsim.simulate.step import step_data
from diffsim.types import Model, State


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
    """Controls a world for some steps. Jit it with static `steps`; batch it with `jax.vmap` over states and controls.

    Args:
      task: what plans cost, over a horizon of ctrl.shape[0] steps.
      state: where the world is.
      ctrl: (horizon, nu) guess of the first plan; each later one begins from the last, shifted by what was driven.
      steps: how many steps to take.
      plant: the world's own model, None for that of the task.
      settings: of each plan: `Ilqr`, None for one iteration of it, as in MuJoCo MPC; or `Sampling`, for a search.
      key: of a search; None for `jax.random.key(0)`.

    Returns:
      What the world did: states, controls (steps, nu), bits of status, and the cost of the last plan.

    Raises:
      ValueError: fewer than one step. ArgumentError: a search without bounds. For controls and models those of `ilqr`.
    """
    ctrl = controls_of(task, ctrl)
    if steps < 1:
        raise ValueError(f"steps is {steps}, expected one or more")
    if isinstance(settings, Sampling):
        return _pursue(task, state, ctrl, steps, plant, settings, jax.random.key(0) if key is None else key)
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
    return _driven(states, final, taken, costs, bits)


def _driven(states: State, final: State, ctrl: Array, costs: Array, bits: Array) -> Trajectory:
    """What was driven: states before each step (n, ...) and after the last, costs of plans and status of steps (n,)."""
    states = jax.tree.map(lambda many, one: jnp.concatenate([many, one[None]]), states, final)
    status = jax.lax.reduce(bits, jnp.zeros((), jnp.int32), jax.lax.bitwise_or, (0,))
    return Trajectory(states=states, ctrl=ctrl, cost=costs[-1], status=status)


def _pursue(
    task: Task, state: State, ctrl: Array, steps: int, plant: Model | None, settings: Sampling, key: Array
) -> Trajectory:
    """Receding horizons, one search after another, each of which drives a few pieces: `mpc` by searches."""
    need_bounds(task)
    horizon = len(ctrl)
    pieces = min(settings.pieces, horizon)
    act = max(1, min(settings.driven, pieces) * horizon // pieces)
    shape, nothing = (jnp.asarray(pieces), jnp.asarray(horizon)), jnp.zeros_like(ctrl)

    def drive(now: State, ctrl: Array) -> tuple[State, tuple[State, Array, Array]]:
        later, data = step_data(task.model if plant is None else plant, now, task.inputs.replace(ctrl=ctrl))
        return later, (now, ctrl, data.status)

    def advance(carry: tuple[State, Array], turn: Array) -> tuple[tuple[State, Array], tuple]:
        now, guess = carry
        turn_key = jax.random.fold_in(key, turn)

        def better(i: Array, proposal: Proposal) -> Proposal:
            worlds = same_worlds(now, settings.samples)
            return improve(task, worlds, proposal, jax.random.fold_in(turn_key, i), shape, nothing, settings)

        first = propose(task, middles(guess, pieces, horizon, pieces), settings.first)
        proposal = jax.lax.fori_loop(0, settings.rounds * jnp.where(turn == 0, 3, 1), better, first)
        plan = spread(proposal.best, pieces, horizon, horizon)
        later, (states, taken, bits) = jax.lax.scan(drive, now, plan[:act])
        shifted = plan[jnp.minimum(jnp.arange(horizon) + act, horizon - 1)]
        return (later, shifted), (states, taken, jnp.full(act, proposal.cost), bits)

    turns = -(-steps // act)
    _, rows = jax.lax.scan(advance, (state, ctrl), jnp.arange(turns))
    # the last plan may drive further than was asked for
    flat = jax.tree.map(lambda leaf: jax.lax.collapse(leaf, 0, 2), rows)
    states, taken, costs, bits = jax.tree.map(lambda leaf: leaf[:steps], flat)
    last = jax.tree.map(lambda leaf: leaf[-1], states)
    final = drive(last, taken[-1])[0]
    return _driven(states, final, taken, costs, bits)
