"""Sampling: motions found by trying many controls, where no derivative points the way (cross-entropy method).

Controls are constant over pieces of the horizon. Each round draws many of them about a mean, simulates all side by
side, and moves mean and deviation towards the best (the elites):

    z_i ~ N(mean, deviation^2), clipped to the bounds;    elites: the z_i of least cost, with the best so far among them
    mean <- (1 - a) mean + a mean(elites),    deviation <- (1 - b) deviation + b deviation(elites)

with a = `Sampling.mean_rate`, b = `Sampling.deviation_rate`; the deviation stays above a floor. One compiled program
serves every length of horizon, number of pieces and world: `plan` first moves few pieces and then more of them, and
`mpc` repeats the same rounds. Another kind of round tries Newton steps with feedback, for several regularizations and
step sizes at once (`newton_steps`). Controls need bounds, which set the scale of the draws.

Sources: Rubinstein and Kroese 2004; Pinneri et al. 2020 (iCEM: elites are kept).
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
from diffsim.optimize.trajectory.ilqr import backward
from diffsim.optimize.trajectory.task import Task, expand, half_square, residuals
from diffsim.simulate.randomize import with_leaves
from diffsim.types import State
from diffsim.types.record import Record, record, static, whole_number
from diffsim.xla.compiled import jit

# compiles faster and runs slower: for programs that the host calls a few times; inside other programs it does nothing
quick_jit = functools.partial(jit, quick=True)

# the samples of a round are divided into this many equal shares: one for each regularization of Newton steps, and one
# for each of the motions that are compared under the same perturbations
SHARES = 8
# neighbouring regularizations differ by this factor, so that eight of them span seven decades
REGULARIZATION_FACTOR = 10.0
# the shortest Newton step that is tried, as a fraction of the whole step
SHORTEST_STEP = 1e-3


@record
class Sampling(Record):
    """Settings of the cross-entropy search. Deviations are in half ranges of the controls, whatever their units.

    Attributes:
      samples: controls that are tried in a round; a multiple of 8 and of the number of devices.
      elites: the number of best samples that the next round learns from.
      first: standard deviation of the first round.
      floor: least standard deviation.
      pieces: number of constant pieces in the horizon of a receding plan.
      rounds: rounds of each receding plan; the first plan has three times this number.
      driven: pieces that a receding plan drives before the next plan.
      mean_rate: how far the mean moves towards the mean of the elites in a round, 0 to 1.
      deviation_rate: how far the deviation moves towards the deviation of the elites, 0 to 1. It is slower than the
        mean, so that the search does not narrow before it has moved.
    """

    samples: int = static(whole_number, default=512)
    elites: int = static(whole_number, default=12)
    first: float = static(default=1.0)
    floor: float = static(default=0.04)
    pieces: int = static(whole_number, default=10)
    rounds: int = static(whole_number, default=4)
    driven: int = static(whole_number, default=2)
    mean_rate: float = static(default=0.7)
    deviation_rate: float = static(default=0.5)


class Worlds(NamedTuple):
    """One world for each sample: the leaves of the model that differ, by name, and the state where each begins."""

    leaves: dict[str, Array]
    state: State


class Proposal(NamedTuple):
    """The distribution of the next samples: mean and deviation (pieces, nu); the best sample so far and its cost."""

    mean: Array
    deviation: Array
    best: Array
    cost: Array


def inside(task: Task, ctrl: Array) -> Array:
    """Clips controls (..., nu) to the bounds."""
    return jnp.clip(ctrl, *(jnp.broadcast_to(bound, ctrl.shape) for bound in (task.lower, task.upper)))


def half_ranges(task: Task, shape: tuple[int, ...]) -> Array:
    """Half of the range of each control, (..., nu)."""
    return jnp.broadcast_to(0.5 * (task.upper - task.lower), shape)


@quick_jit
def propose(task: Task, mean: Array, deviation: float) -> Proposal:
    """The first proposal about controls (pieces, nu), with a deviation in half ranges."""
    return Proposal(
        mean=mean,
        deviation=deviation * half_ranges(task, mean.shape),
        best=mean,
        cost=jnp.full((), jnp.inf, mean.dtype),
    )


@functools.partial(quick_jit, static_argnames="room")
def piece_centers(ctrl: Array, pieces: Array | int, length: Array | int, room: int) -> Array:
    """(room, nu) the controls (T, nu) in the middle of each piece, if `pieces` pieces fill the first `length` steps."""
    middle = (2 * jnp.arange(room) + 1) * length // (2 * pieces)
    return ctrl[jnp.minimum(middle, length - 1)]


@functools.partial(quick_jit, static_argnames="steps")
def spread(knots: Array, pieces: Array | int, length: Array | int, steps: int) -> Array:
    """(..., steps, nu) controls from constants (..., room, nu), if `pieces` pieces fill the first `length` steps."""
    return knots[..., jnp.minimum(jnp.arange(steps) * pieces // length, pieces - 1), :]


@functools.partial(quick_jit, static_argnames="room")
def opening(task: Task, ctrl: Array, pieces: int, deviation: float, room: int) -> tuple[Proposal, Array]:
    """The first proposal about controls (T, nu), and the detail of them that constant pieces cannot express."""
    middle = piece_centers(ctrl, pieces, len(ctrl), room)
    return propose(task, middle, deviation), ctrl - spread(middle, pieces, len(ctrl), len(ctrl))


@functools.partial(quick_jit, static_argnames="samples")
def draw(
    task: Task,
    proposal: Proposal,
    key: Array,
    shape: tuple[Array | int, Array | int],
    detail: Array | np.ndarray,
    samples: int,
) -> tuple[Array, Array]:
    """Draws the samples of a round, within the bounds; the first is the best so far, the second the mean.

    Args:
      shape: number of pieces and length of the horizon.
      detail: (T, nu), or (samples, T, nu) with one for each sample; it is added to the constant pieces.

    Returns:
      Knots (samples, room, nu) and controls (samples, T, nu).
    """
    noise = jax.random.normal(key, (samples, *proposal.mean.shape), proposal.mean.dtype)
    drawn = inside(task, proposal.mean[None] + proposal.deviation[None] * noise)
    knots = drawn.at[0].set(proposal.best).at[1].set(proposal.mean)
    detail = jnp.reshape(detail, (-1, *detail.shape[-2:]))
    return knots, inside(task, spread(knots, *shape, detail.shape[1]) + detail)


def learn(task: Task, proposal: Proposal, knots: Array, costs: Array, settings: Sampling) -> Proposal:
    """The next proposal, from the knots that were tried (N, room, nu) and their costs (N,)."""
    order = jax.lax.top_k(-costs, settings.elites)[1]
    elites = knots[order]
    keen, shrink = settings.mean_rate, settings.deviation_rate
    mean = (1 - keen) * proposal.mean + keen * jnp.mean(elites, axis=0)
    deviation = (1 - shrink) * proposal.deviation + shrink * jnp.std(elites, axis=0)
    deviation = jnp.maximum(deviation, settings.floor * half_ranges(task, deviation.shape))
    # the best sample is tried again in the next round, so that its cost always refers to this round's worlds
    return Proposal(mean=mean, deviation=deviation, best=elites[0], cost=costs[order[0]])


class Feedback(NamedTuple):
    """Feedback about a planned motion: u_t = ctrl[t] + gains[way, t] difference(x_t, states[t]).

    Attributes:
      gains: (ways, T, nu, nx), for several regularizations.
      states: T + 1 planned states.
      way: (), or (N,) the index into `gains` for each sample.
    """

    gains: Array
    states: State
    way: Array


class Attempt(NamedTuple):
    """A simulated motion: its cost (inf if it diverged), the final part of it, states, controls and status bits."""

    cost: Array
    final: Array
    states: State
    ctrl: Array
    status: Array


def attempt(task: Task, state: State, ctrl: Array, length: Array | int, feedback: Feedback | None = None) -> Attempt:
    """Simulates the first `length` steps of controls (T, nu); later states and controls are zeros.

    `length` may be traced, so that one program serves all lengths.
    """

    def law(t: Array, now: State) -> Array:
        if feedback is None:
            return ctrl[t]
        planned = jax.tree.map(lambda leaf: leaf[t], feedback.states)
        gains = feedback.gains[:, t][feedback.way]
        off = difference(task.model, now, planned)
        # elementwise: XLA would turn a batch of products into a loop of small ones
        return inside(task, ctrl[t] + jnp.sum(gains * off[None], axis=-1))

    def advance(t: Array, carry: tuple[State, Attempt]) -> tuple[State, Attempt]:
        now, past = carry
        last = t == length
        # the final cost is computed in one more step, so that the step is compiled once
        u = jnp.where(last, 0, law(t, now))
        later, residual, bits = residuals(task, now, u, last)
        part = half_square(residual)
        extended = Attempt(
            cost=past.cost + part,
            final=part,
            states=jax.tree.map(lambda leaf, row: leaf.at[t].set(row), past.states, now),
            ctrl=past.ctrl.at[t].set(u, mode="drop"),
            status=past.status | bits,
        )
        return later, extended

    zero = jnp.zeros((), state.qpos.dtype)
    start = Attempt(
        cost=zero,
        final=zero,
        states=jax.tree.map(lambda leaf: jnp.zeros((len(ctrl) + 1, *leaf.shape), leaf.dtype), state),
        ctrl=jnp.zeros_like(ctrl),
        status=jnp.zeros((), jnp.int32),
    )
    end = jax.lax.fori_loop(0, length + 1, advance, (state, start))[1]
    return end._replace(cost=jnp.where(jnp.isfinite(end.cost), end.cost, jnp.inf))


@functools.cache
def attempts(vmap: Callable = jax.vmap) -> Callable[..., Attempt]:
    """A compiled function: `attempt` of controls (N, T, nu), each in its own world and with its own feedback (N,).

    Args:
      vmap: `jax.vmap`, or `parallel.vmap` to share the worlds out over devices.
    """

    def one(
        task: Task, leaves: dict[str, Array], state: State, ctrl: Array, length: Array, feedback: Feedback | None
    ) -> Attempt:
        return attempt(task.replace(model=with_leaves(task.model, leaves)), state, ctrl, length, feedback)

    def all_of(
        task: Task, worlds: Worlds, ctrl: Array, length: Array | int, feedback: Feedback | None = None
    ) -> Attempt:
        axes = None if feedback is None else Feedback(gains=None, states=None, way=0)  # type: ignore[arg-type]
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
    """One round of the search, inside other programs. Arguments as in `draw`."""
    knots, ctrl = draw(task, proposal, key, shape, detail, settings.samples)
    tried = attempts()(task, worlds, ctrl, shape[1])
    return learn(task, proposal, knots, tried.cost, settings)


class NewtonSteps(NamedTuple):
    """Newton steps from a motion, for several regularizations ("ways") and step sizes.

    Attributes:
      ctrl: (N, T, nu) the controls that each sample tries.
      feedback: the feedback that each sample uses.
      mu: (ways,) regularizations.
      promised: (ways,) decrease of the cost that a whole step promises.
      unreached: the part of the cost that depends on no control.
      depends: (nx,) norm of the derivatives of the final residuals with respect to the last state.
    """

    ctrl: Array
    feedback: Feedback
    mu: Array
    promised: Array
    unreached: Array
    depends: Array


@functools.partial(quick_jit, static_argnames="samples")
def newton_steps(task: Task, states: State, ctrl: Array, mu: Array | float, samples: int) -> NewtonSteps:
    """Steps of iLQR from a motion, T + 1 states and controls (T, nu).

    Each of `SHARES` regularizations about `mu` () gets the same number of samples, with step sizes that fall
    geometrically from 1 to `SHORTEST_STEP`. All are then simulated side by side: a line search in two dimensions.
    """
    system = expand(task, states, ctrl)
    mus = mu * REGULARIZATION_FACTOR ** (jnp.arange(SHARES) - SHARES // 2).astype(ctrl.dtype)
    steps, gains, promised = jax.vmap(lambda mu: backward(task, system, ctrl, mu))(mus)
    sizes = jnp.geomspace(1, SHORTEST_STEP, samples // SHARES, dtype=ctrl.dtype)
    tried = jax.lax.collapse(ctrl[None, None] + sizes[None, :, None, None] * steps[:, None], 0, 2)
    way = jnp.repeat(jnp.arange(SHARES), samples // SHARES)
    depends = jnp.sqrt(jnp.sum(system.r_x[-1] ** 2, axis=0))
    return NewtonSteps(
        ctrl=tried,
        feedback=Feedback(gains=gains, states=states, way=way),
        mu=mus,
        promised=jnp.sum(promised, axis=1),
        unreached=system.unreached(),
        depends=depends,
    )


class NewtonStepper:
    """`newton_steps` of motions of a task. Its program compiles in a thread, while the caller does other things.

    The thread begins with `start`, or with the first call.

    Args:
      task: the task.
      state: where motions begin.
      ctrl: (T, nu) controls, of which the shape counts.
      samples: number of steps that are tried at once.
    """

    def __init__(self, task: Task, state: State, ctrl: np.ndarray, samples: int) -> None:
        self.task = task
        self.samples = samples
        self.compilation = threading.Thread(target=self._compile, args=(state, jnp.asarray(ctrl)))

    def start(self) -> None:
        """Begins to compile, unless it has begun."""
        if self.compilation.ident is None:
            self.compilation.start()

    def ready(self, seconds: float | None) -> bool:
        """Whether the program is compiled within some seconds from now; None to wait for it."""
        self.start()
        self.compilation.join(seconds)
        return not self.compilation.is_alive()

    def _compile(self, state: State, ctrl: Array) -> None:
        """Compiles the program of `__call__`, by calling it with zeros."""
        states = jax.tree.map(lambda x: jnp.zeros((len(ctrl) + 1, *x.shape), x.dtype), state)
        # an error here will be raised again by the first call, where somebody sees it
        with contextlib.suppress(Exception):
            newton_steps(self.task, states, ctrl, 1.0, samples=self.samples)

    def __call__(self, motion: Attempt, mu: float) -> NewtonSteps:
        """Steps from a motion, with regularizations about `mu`."""
        self.start()
        self.compilation.join()
        return newton_steps(self.task, motion.states, motion.ctrl, mu, samples=self.samples)


def same_worlds(state: State, samples: int) -> Worlds:
    """Worlds of the task's own model that all begin in one state."""
    return Worlds(leaves={}, state=jax.tree.map(lambda x: repeated(x, samples), state))


def repeated(x: Array, count: int) -> Array:
    """(count, ...) copies of an array."""
    return jnp.broadcast_to(x, (count, *jnp.shape(x)))


def need_bounds(task: Task) -> None:
    """Raises an ArgumentError if a control has no bounds; does nothing while bounds are traced."""
    if not isinstance(task.lower, jax.core.Tracer) and not bool(jnp.all(jnp.isfinite(task.upper - task.lower))):
        raise ArgumentError("a search needs bounds of all controls: ctrlrange, or make_task(bounds=(lower, upper))")
