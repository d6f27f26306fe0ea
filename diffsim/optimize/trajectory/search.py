"""Search: motions found by trying many, where no derivative points the way.

Controls are constant over pieces of the horizon. In each round many are drawn about a mean, all are tried in the true
world side by side, and mean and deviation move towards the best of them (cross-entropy):

    z_i ~ N(mean, deviation^2), clipped to the bounds;    elites: the z_i of least cost, the best so far among them
    mean <- (1 - KEEN) mean + KEEN mean(elites),    deviation <- (1 - SHRINK) deviation + SHRINK deviation(elites)

down to a floor. One compiled program serves every length of horizon, number of pieces and world: a search first moves
few pieces, then more of them, and `mpc` and `plan` are made of the same rounds. Rounds of another kind descend: what
they try are Newton steps with feedback, of several regularizations and lengths (`aim`). Controls need bounds, which say
how far to look. Sources: Rubinstein and Kroese 2004; Pinneri et al. 2020 (elites are kept).
"""

import contextlib
import functools
import threading
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.errors import ArgumentError
from diffsim.optimize.tangent import difference
from diffsim.optimize.trajectory.ilqr import Plan, backward
from diffsim.optimize.trajectory.task import Task, expand, half_square, residuals
from diffsim.simulate.randomize import with_leaves
from diffsim.types import State
from diffsim.types.record import Record, leaf, record, static, whole_number
from diffsim.xla.compiled import jit

# programs that run a few times, by hand; within others they are a part of these
soon = functools.partial(jit, quick=True)

# how far the mean goes towards that of the elites, and the deviation towards theirs
KEEN, SHRINK = 0.7, 0.5
# how many times as much the cost may be under noise before a motion is called fragile
FRAGILE = 1.25
# the share of the cost that noise of a ten-thousandth may change before a plan's advice speaks of it
LEAPING = 0.25
# Newton steps: regularizations that are tried side by side, the factor between them, and the shortest length
WAYS, FACTOR, SHORTEST = 8, 10.0, 1e-3


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


@record
class Solution(Plan):
    """What `plan` found: a motion with feedback, as of `ilqr`, and how it fares.

    `noisy` are costs in worlds that differ from the model as `Doubt` says, and `held` with feedback in such worlds,
    others where samples are 256 or more; `idle` is the cost of controls at rest; `goal` the final part of the cost, at
    the start and at the end.
    """

    noisy: Array = leaf("worlds")
    held: Array = leaf("worlds")
    idle: Array = leaf()
    goal: Array = leaf(2)
    steps: Array = leaf(dtype=int)

    @property
    def advice(self) -> str:
        """How far the motion can be trusted, in a few words."""
        noisy = np.asarray(self.noisy)
        cost, mean, spread = float(self.cost), float(noisy.mean()), float(noisy.std())
        begin, end = (float(value) for value in self.goal)
        far = f", the goal's part falls from {begin:.3g} to {end:.3g}" if begin > 0 else ""
        first = f"It costs {cost:.3g} where rest costs {float(self.idle):.3g}{far}."
        if float(self.leaps) > LEAPING:
            near = f"noise of a ten-thousandth on its controls changes that by {float(self.leaps) * cost:.2g}"
            first = f"{first} A contact is just met or just missed: {near}, and rounding may, too (optimize.evaluate)."
        worst = f"{float(noisy.max()):.3g} at worst"
        under = f"{mean:.3g} +- {spread:.2g} in {noisy.size} worlds of noise, {worst}"
        if begin > 0 and end > 0.1 * begin:
            return f"{first} It does not reach the goal: give it more steps, or another key. It costs {under}."
        enough, held = FRAGILE * cost + 0.01 * float(self.idle), float(np.mean(self.held))
        if not mean <= enough and held <= enough:
            return f"{first} It holds with its feedback (gains): {held:.3g} in noise; fragile without: {under}."
        if not mean <= enough:
            under = f"{under}; with its feedback (gains) {held:.3g}"
            return f"{first} Fragile: {under}; plan with robust='mean', or replan as it goes (optimize.mpc)."
        if not mean <= 2 * cost:
            # rest costs so much that this counts as nothing
            return f"{first} Under noise it costs more, {under}, which is little beside rest."
        return f"{first} It holds: {under}."


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


@soon
def propose(task: Task, mean: Array, deviation: float) -> Proposal:
    """The first proposal about controls (pieces, nu), with a deviation in half ranges."""
    return Proposal(mean, deviation * half_ranges(task, mean.shape), mean, jnp.full((), jnp.inf, mean.dtype))


@functools.partial(soon, static_argnames="room")
def middles(ctrl: Array, pieces: Array | int, length: Array | int, room: int) -> Array:
    """(room, nu) the controls (T, nu) in the middle of each of so many pieces of the first `length` steps."""
    middle = (2 * jnp.arange(room) + 1) * length // (2 * pieces)
    return ctrl[jnp.minimum(middle, length - 1)]


@functools.partial(soon, static_argnames="steps")
def spread(knots: Array, pieces: Array | int, length: Array | int, steps: int) -> Array:
    """(..., steps, nu) controls from constants (..., room, nu): `pieces` of them fill the first `length` steps."""
    return knots[..., jnp.minimum(jnp.arange(steps) * pieces // length, pieces - 1), :]


@functools.partial(soon, static_argnames="samples")
def draw(
    task: Task,
    proposal: Proposal,
    key: Array,
    shape: tuple[Array | int, Array | int],
    detail: Array | np.ndarray,
    samples: int,
) -> tuple[Array, Array]:
    """What is tried next, within the bounds; the first is the best so far, the second the mean.

    Args:
      shape: number of pieces and length of the horizon.
      detail: (T, nu), or (samples, T, nu) of each its own, is added to constant pieces.

    Returns:
      Knots (samples, room, nu) and controls (samples, T, nu).
    """
    noise = jax.random.normal(key, (samples, *proposal.mean.shape), proposal.mean.dtype)
    drawn = inside(task, proposal.mean[None] + proposal.deviation[None] * noise)
    knots = drawn.at[0].set(proposal.best).at[1].set(proposal.mean)
    detail = jnp.reshape(detail, (-1, *detail.shape[-2:]))
    return knots, inside(task, spread(knots, *shape, detail.shape[1]) + detail)


def learn(task: Task, proposal: Proposal, knots: Array, costs: Array, settings: Sampling) -> Proposal:
    """The next proposal, from what was tried (N, room, nu) and what it cost (N,)."""
    order = jax.lax.top_k(-costs, settings.elites)[1]
    elites = knots[order]
    mean = (1 - KEEN) * proposal.mean + KEEN * jnp.mean(elites, axis=0)
    deviation = (1 - SHRINK) * proposal.deviation + SHRINK * jnp.std(elites, axis=0)
    # the best so far is tried again in each round
    deviation = jnp.maximum(deviation, settings.floor * half_ranges(task, deviation.shape))
    return Proposal(mean, deviation, elites[0], costs[order[0]])


class Feedback(NamedTuple):
    """What controls answer to: u_t = ctrl[t] + gains[way, t] difference(x_t, states[t]).

    gains (ways, T, nu, nx), T + 1 states, and the way of a sample, ().
    """

    gains: Array
    states: State
    way: Array


class Attempt(NamedTuple):
    """The cost of a motion, inf where it diverges; the final part of it; its states and controls; bits of status."""

    cost: Array
    final: Array
    states: State
    ctrl: Array
    status: Array


def attempt(task: Task, state: State, ctrl: Array, length: Array | int, feedback: Feedback | None = None) -> Attempt:
    """The first `length` of controls (T, nu), a number that may be traced; later states and controls are zeros."""

    def law(t: Array, now: State) -> Array:
        if feedback is None:
            return ctrl[t]
        planned = jax.tree.map(lambda leaf: leaf[t], feedback.states)
        gains, off = feedback.gains[:, t][feedback.way], difference(task.model, now, planned)
        # elementwise: as a product a batch would be a loop of small ones
        return inside(task, ctrl[t] + jnp.sum(gains * off[None], axis=-1))

    def advance(t: Array, carry: tuple[State, Attempt]) -> tuple[State, Attempt]:
        now, past = carry
        last = t == length
        # the final cost is that of one more step, so that the step is compiled once
        u = jnp.where(last, 0, law(t, now))
        later, residual, bits = residuals(task, now, u, last)
        part = half_square(residual)
        states = jax.tree.map(lambda leaf, row: leaf.at[t].set(row), past.states, now)
        taken = past.ctrl.at[t].set(u, mode="drop")
        return later, Attempt(past.cost + part, part, states, taken, past.status | bits)

    zero = jnp.zeros((), state.qpos.dtype)
    states = jax.tree.map(lambda leaf: jnp.zeros((len(ctrl) + 1, *leaf.shape), leaf.dtype), state)
    start = Attempt(zero, zero, states, jnp.zeros_like(ctrl), jnp.zeros((), jnp.int32))
    end = jax.lax.fori_loop(0, length + 1, advance, (state, start))[1]
    return end._replace(cost=jnp.where(jnp.isfinite(end.cost), end.cost, jnp.inf))


@functools.cache
def attempts(vmap: Callable = jax.vmap) -> Callable[..., Attempt]:
    """A compiled function: `attempt` of controls (N, T, nu), each in a world of its own, by a way of its own (N,).

    Args:
      vmap: such as `parallel.vmap`, which shares the worlds out over devices.
    """

    def one(
        task: Task, leaves: dict[str, Array], state: State, ctrl: Array, length: Array, feedback: Feedback | None
    ) -> Attempt:
        return attempt(task.replace(model=with_leaves(task.model, leaves)), state, ctrl, length, feedback)

    def all_of(
        task: Task, worlds: Worlds, ctrl: Array, length: Array | int, feedback: Feedback | None = None
    ) -> Attempt:
        axes = None if feedback is None else Feedback(None, None, 0)  # type: ignore[arg-type]
        many = vmap(one, in_axes=(None, 0, 0, 0, None, axes))
        return many(task, *worlds, ctrl, jnp.asarray(length), feedback)

    return jit(all_of)


def improve(
    task: Task,
    worlds: Worlds,
    proposal: Proposal,
    key: Array,
    shape: tuple[Array, Array],
    detail: Array,
    settings: Sampling,
) -> Proposal:
    """One round; inside of other programs. Arguments as of `draw`."""
    knots, ctrl = draw(task, proposal, key, shape, detail, settings.samples)
    tried = attempts()(task, worlds, ctrl, shape[1])
    return learn(task, proposal, knots, tried.cost, settings)


class Aims(NamedTuple):
    """Newton steps about a motion: what each sample tries (N, T, nu), with which feedback; of each way, regularization
    mu (ways,), what a whole step promises (ways,); the share of the cost that no derivative reaches; and how much the
    final residuals change with the last state (nx,).
    """

    ctrl: Array
    feedback: Feedback
    mu: Array
    promised: Array
    unreached: Array
    depends: Array


@functools.partial(soon, static_argnames="samples")
def aim(task: Task, states: State, ctrl: Array, mu: Array | float, samples: int) -> Aims:
    """Steps of iLQR from a motion, T + 1 states and controls (T, nu): of several regularizations, as many of each, ever
    shorter. `mu` () is in the middle of them.
    """
    system = expand(task, states, ctrl)
    mus = mu * FACTOR ** (jnp.arange(WAYS) - WAYS // 2).astype(ctrl.dtype)
    steps, gains, promised = jax.vmap(lambda mu: backward(task, system, ctrl, mu))(mus)
    sizes = jnp.geomspace(1, SHORTEST, samples // WAYS, dtype=ctrl.dtype)
    tried = jax.lax.collapse(ctrl[None, None] + sizes[None, :, None, None] * steps[:, None], 0, 2)
    way = jnp.repeat(jnp.arange(WAYS), samples // WAYS)
    depends = jnp.sqrt(jnp.sum(system.r_x[-1] ** 2, axis=0))
    return Aims(tried, Feedback(gains, states, way), mus, jnp.sum(promised, axis=1), system.unreached(), depends)


class Derivatives:
    """`aim` of motions of a task; its program is compiled in a thread, beside what is done before one is asked for.

    Args:
      task, state, ctrl, samples: the task, where motions begin, controls (T, nu), and how many are tried.
    """

    def __init__(self, task: Task, state: State, ctrl: np.ndarray, samples: int) -> None:
        self.task, self.samples = task, samples
        self.beside = threading.Thread(target=self._compile, args=(state, jnp.asarray(ctrl)))
        self.beside.start()

    def _compile(self, state: State, ctrl: Array) -> None:
        states = jax.tree.map(lambda x: jnp.zeros((len(ctrl) + 1, *x.shape), x.dtype), state)
        # what fails here fails again where it is needed
        with contextlib.suppress(Exception):
            aim(self.task, states, ctrl, 1.0, samples=self.samples)

    def __call__(self, motion: Attempt, mu: float) -> Aims:
        """Steps from a motion."""
        self.beside.join()
        return aim(self.task, motion.states, motion.ctrl, mu, samples=self.samples)


def same_worlds(state: State, samples: int) -> Worlds:
    """Worlds of the task's own model that begin alike."""
    return Worlds({}, jax.tree.map(lambda x: repeated(x, samples), state))


def repeated(x: Array, count: int) -> Array:
    """(count, ...) copies."""
    return jnp.broadcast_to(x, (count, *jnp.shape(x)))


def need_bounds(task: Task) -> None:
    """Refuses controls without bounds, where they are known."""
    if not isinstance(task.lower, jax.core.Tracer) and not bool(jnp.all(jnp.isfinite(task.upper - task.lower))):
        raise ArgumentError("a search needs bounds of all controls: ctrlrange, or make_task(bounds=(lower, upper))")
