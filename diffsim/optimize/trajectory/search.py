"""Search: motions found by trying many, where no derivative points the way.

Controls are constant over pieces of the horizon. In each round many are drawn about a mean, all are tried in the true
world side by side, and mean and deviation move towards the best of them (cross-entropy):

    z_i ~ N(mean, deviation^2), clipped to the bounds;    elites: the z_i of least cost, the best so far among them
    mean <- (1 - KEEN) mean + KEEN mean(elites),    deviation <- (1 - SHRINK) deviation + SHRINK deviation(elites)

down to a floor. One compiled program serves every length of horizon, number of pieces and world: a search first moves
few pieces, then more of them, and `mpc` and `plan` are made of the same rounds. Controls need bounds, which say how far
to look. Sources: Rubinstein and Kroese 2004; Pinneri et al. 2020 (elites are kept).
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.core
import jax.numpy as jnp

from diffsim.base.errors import ArgumentError
from diffsim.optimize.trajectory.task import Task, Trajectory, half_square, residuals
from diffsim.simulate.randomize import with_leaves
from diffsim.simulate.step import step_data
from diffsim.types import Model, State
from diffsim.types.record import Record, record, static, whole_number
from diffsim.xla.compiled import jit

Array = jax.Array

# how far the mean goes towards that of the elites, and the deviation towards theirs
KEEN, SHRINK = 0.7, 0.5


@record
class Sampling(Record):
    """Settings of a search, in terms that need no tuning by task: deviations are in half ranges of the controls.

    Attributes:
      samples: controls that are tried in a round, a multiple of the number of devices.
      elites: how many of them the next round learns from.
      first, floor: deviations in the first round, and the least.
      pieces: of constant control, in the horizon of a receding plan.
      rounds: of each receding plan; the first has three times as many.
      driven: pieces that a receding plan drives before the next.
    """

    samples: int = static(whole_number, default=512)
    elites: int = static(whole_number, default=12)
    first: float = static(default=1.0)
    floor: float = static(default=0.04)
    pieces: int = static(whole_number, default=10)
    rounds: int = static(whole_number, default=4)
    driven: int = static(whole_number, default=2)


class Worlds(NamedTuple):
    """As many worlds as samples: leaves of the model that differ, by name, and where each begins."""

    leaves: dict[str, Array]
    state: State


class Proposal(NamedTuple):
    """Where to look next: mean and deviation (pieces, nu), and the best so far with its cost."""

    mean: Array
    deviation: Array
    best: Array
    cost: Array


def inside(task: Task, ctrl: Array) -> Array:
    """Controls (..., nu), clipped to the bounds."""
    return jnp.clip(ctrl, *(jnp.broadcast_to(bound, ctrl.shape) for bound in (task.lower, task.upper)))


def half_ranges(task: Task, shape: tuple[int, ...]) -> Array:
    """Half of what controls may span, (..., nu)."""
    return jnp.broadcast_to(0.5 * (task.upper - task.lower), shape)


def propose(task: Task, mean: Array, deviation: float) -> Proposal:
    """The first proposal about controls (pieces, nu), with a deviation in half ranges."""
    return Proposal(mean, deviation * half_ranges(task, mean.shape), mean, jnp.full((), jnp.inf, mean.dtype))


def middles(ctrl: Array, pieces: Array | int, length: Array | int, room: int) -> Array:
    """(room, nu) the controls (T, nu) in the middle of each of so many pieces of the first `length` steps."""
    middle = (2 * jnp.arange(room) + 1) * length // (2 * pieces)
    return ctrl[jnp.minimum(middle, length - 1)]


def spread(knots: Array, pieces: Array | int, length: Array | int, steps: int) -> Array:
    """(..., steps, nu) controls from constants (..., room, nu): `pieces` of them fill the first `length` steps."""
    return knots[..., jnp.minimum(jnp.arange(steps) * pieces // length, pieces - 1), :]


def draw(task: Task, proposal: Proposal, key: Array, samples: int) -> Array:
    """(samples, room, nu) within the bounds; the first is the best so far, the second the mean."""
    noise = jax.random.normal(key, (samples, *proposal.mean.shape), proposal.mean.dtype)
    drawn = inside(task, proposal.mean[None] + proposal.deviation[None] * noise)
    return drawn.at[0].set(proposal.best).at[1].set(proposal.mean)


def learn(task: Task, proposal: Proposal, knots: Array, costs: Array, settings: Sampling) -> Proposal:
    """The next proposal, from what was tried (N, room, nu) and what it cost (N,)."""
    order = jax.lax.top_k(-costs, settings.elites)[1]
    elites = knots[order]
    mean = (1 - KEEN) * proposal.mean + KEEN * jnp.mean(elites, axis=0)
    deviation = (1 - SHRINK) * proposal.deviation + SHRINK * jnp.std(elites, axis=0)
    better = costs[order[0]] < proposal.cost
    return Proposal(
        mean=mean,
        deviation=jnp.maximum(deviation, settings.floor * half_ranges(task, deviation.shape)),
        best=jnp.where(better, elites[0], proposal.best),
        cost=jnp.where(better, costs[order[0]], proposal.cost),
    )


def attempt(task: Task, state: State, ctrl: Array, length: Array | int) -> tuple[Array, Array, State]:
    """The first `length` of controls (T, nu), a number that may be traced.

    Returns:
      Their cost, inf where the motion diverges, the final part of it, and the last state.
    """

    def advance(t: Array, carry: tuple) -> tuple:
        now, cost, *_ = carry
        last = t == length
        # the final cost is that of one more step, so that the step is compiled once
        later, residual, _ = residuals(task, now, jnp.where(last, 0, ctrl[t]), last)
        part = half_square(residual)
        return later, cost + part, part, now

    zero = jnp.zeros((), state.qpos.dtype)
    _, cost, final, end = jax.lax.fori_loop(0, length + 1, advance, (state, zero, zero, state))
    return jnp.where(jnp.isfinite(cost), cost, jnp.inf), final, end


@functools.cache
def attempts(vmap: Callable = jax.vmap) -> Callable[[Task, Worlds, Array, Array | int], tuple[Array, Array, State]]:
    """A compiled function: `attempt` of controls (N, T, nu), each in a world of its own.

    Args:
      vmap: such as `parallel.vmap`, which shares the worlds out over devices.
    """

    def one(task: Task, leaves: dict[str, Array], state: State, ctrl: Array, length: Array) -> tuple:
        return attempt(task.replace(model=with_leaves(task.model, leaves)), state, ctrl, length)

    many = vmap(one, in_axes=(None, 0, 0, 0, None))
    return jit(lambda task, worlds, ctrl, length: many(task, *worlds, ctrl, jnp.asarray(length)))


def improve(
    task: Task, worlds: Worlds, proposal: Proposal, key: Array, shape: tuple[Array, Array, int], settings: Sampling
) -> Proposal:
    """One round; inside of other programs.

    Args:
      shape: number of pieces, length of the horizon, and the number of steps that it never exceeds.
    """
    knots = draw(task, proposal, key, settings.samples)
    costs, *_ = attempts()(task, worlds, spread(knots, *shape), shape[1])
    return learn(task, proposal, knots, costs, settings)


def same_worlds(state: State, samples: int) -> Worlds:
    """Worlds of the task's own model that begin alike."""
    return Worlds({}, jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (samples, *leaf.shape)), state))


def need_bounds(task: Task) -> None:
    """Refuses controls without bounds, where they are known."""
    if not isinstance(task.lower, jax.core.Tracer) and not bool(jnp.all(jnp.isfinite(task.upper - task.lower))):
        raise ArgumentError("a search needs bounds of all controls: ctrlrange, or make_task(bounds=(lower, upper))")


def pursue(
    task: Task, state: State, ctrl: Array, steps: int, plant: Model | None, settings: Sampling, key: Array
) -> Trajectory:
    """Receding horizons, one search after another, each of which drives a few pieces: `optimize.mpc` by searches."""
    need_bounds(task)
    horizon = len(ctrl)
    pieces = min(settings.pieces, horizon)
    act = max(1, min(settings.driven, pieces) * horizon // pieces)
    shape = (jnp.asarray(pieces), jnp.asarray(horizon), horizon)

    def drive(now: State, ctrl: Array) -> tuple[State, tuple[State, Array, Array]]:
        later, data = step_data(task.model if plant is None else plant, now, task.inputs.replace(ctrl=ctrl))
        return later, (now, ctrl, data.status)

    def advance(carry: tuple[State, Array], turn: Array) -> tuple[tuple[State, Array], tuple]:
        now, guess = carry
        own = jax.random.fold_in(key, turn)

        def better(i: Array, proposal: Proposal) -> Proposal:
            worlds = same_worlds(now, settings.samples)
            return improve(task, worlds, proposal, jax.random.fold_in(own, i), shape, settings)

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
    states = jax.tree.map(lambda many, one: jnp.concatenate([many, one[None]]), states, final)
    status = jax.lax.reduce(bits, jnp.zeros((), jnp.int32), jax.lax.bitwise_or, (0,))
    return Trajectory(states=states, ctrl=taken, cost=costs[-1], status=status)
