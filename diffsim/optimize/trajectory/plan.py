"""plan: a motion through contact, in one call: searched for, made locally optimal, and tried under noise.

Where a pusher must go around a box first, every derivative points away from the way: what is nearest must be given up.
A search over controls (search.py) finds such ways, of three kinds, since each fails where another does not:

    whole      few pieces of control over the whole horizon, then twice as many, and again: detours
    receding   a plan over a quarter of the horizon drives a few steps, then the next: long chains of short deeds
    growing    a tree of motions, which goes on from where few went on (tree.py): around walls

The best is refined by more pieces that scatter less; near the goal but not at it, the goal counts ten times for a
while. What is fragile, or shall be robust, is steadied in worlds with noise of controls, friction, masses and start. Of
those that reach the goal, what costs least under noise is polished by steps of iLQR that keep it and cost no more under
noise. What runs on the host between the programs is numpy, which has nothing to compile.
"""

import functools
import sys
import time
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.checked import checked
from diffsim.base.errors import ArgumentError
from diffsim.optimize.linearize import refuse_delays
from diffsim.optimize.tangent import tangent_size
from diffsim.optimize.trajectory.doubt import Doubt, Find, doubtful, finds, kinds, row_of, shaken
from diffsim.optimize.trajectory.ilqr import LEAPS, PROMISED, UNREACHED
from diffsim.optimize.trajectory.search import (
    FRAGILE,
    WAYS,
    Aims,
    Attempt,
    Derivatives,
    Feedback,
    Proposal,
    Sampling,
    Solution,
    Worlds,
    attempts,
    draw,
    learn,
    middles,
    need_bounds,
    propose,
    repeated,
    soon,
    spread,
)
from diffsim.optimize.trajectory.task import Task, controls_of
from diffsim.optimize.trajectory.tree import grow
from diffsim.types import State

Array = jax.Array
Rows = Array | np.ndarray
Robust = Literal["mean", "worst quarter"]

# pieces of control at most; motions of so many steps are first planned in receding horizons, a quarter of them each
ROOM, LONG = 64, 200
# stages of a search over the whole horizon, pieces, rounds at most, first deviation in half ranges; and of what follows
# about the best motion
STAGES = ((4, 16, 1.0), (8, 12, 0.4), (16, 12, 0.3))
REFINED = ((32, 12, 0.2), (64, 12, 0.12))
# a stage ends when so many rounds gain less than this share of the cost, and controls scatter by less than NARROW
PATIENCE, GAIN, NARROW = 5, 0.01, 0.15
# the goal is reached at this share of the start's final cost, kept at that in half of the worlds, and near at the last
REACHED, KEPT, CLOSE = 7e-3, 1e-2, 5e-2
# between these shares the goal is pressed for, and where it is reached: its part of the cost counts so many times more
# pressing goes on while less than this share is left; the last tree has so many times more motions
AT, NEAR, PRESSED, NEARER, MORE = 3e-3, 0.2, 9.0, 0.8, 4
# worlds of robust planning, its stages about the best motion; and where none was asked for, but it is fragile
SET, STEADIED = 8, ((8, 10, 0.3), (16, 10, 0.2), (32, 10, 0.1))
STEADIER = ((16, 8, 0.2), (32, 8, 0.1))
# polish: iterations at most, and in the midst of a search; the first regularization, the share of the cost below which
# a step gains nothing, and by which the cost under noise may rise above the least so far
POLISHED, BRIEF, REGULARIZED, SETTLED, SLACK = 20, 6, 1e-2, 1e-5, 0.01


@checked
def plan(
    task: Task,
    state: State,
    steps: int,
    *,
    ctrl: Array | None = None,
    key: Array | int = 0,
    seconds: float | None = None,
    settings: Sampling | None = None,
    doubt: Doubt | None = None,
    robust: Robust | None = None,
    vmap: Callable = jax.vmap,
    show: Callable[[str], Any] | None = None,
) -> Solution:
    """Finds a motion through contact. Runs on the host, for seconds to minutes; interrupted (Ctrl-C), it gives the best
    so far. Equal keys give equal plans, unless time runs out.

    Args:
      task: costs and bounds; controls need bounds.
      state, steps: where the motion begins, and T, how many steps it has.
      ctrl: (T, nu) a guess to begin from; None for none.
      key: of `jax.random.key`, or a whole number.
      seconds: budget of time, compilation included; None for as long as it gains.
      settings: of the search, None for `Sampling()`.
      doubt: how the world may differ from the model, None for `Doubt()`.
      robust: what is found is then searched about in 8 such worlds at once, for the least mean of their costs, or the
        least mean of the worst quarter; worth it where a plan says that it is fragile.
      vmap: `parallel.vmap` to share worlds out over devices.
      show: called with a line of progress now and then; None writes to stderr where that is a terminal.

    Returns:
      The motion; `print(solution.advice)` tells how far to trust it.

    Raises:
      ArgumentError: controls without bounds, no steps, or another `robust`. ValueError: a guess of a wrong shape.
      UnsupportedError: a model with delays.
    """
    settings = settings or Sampling()
    if settings.samples % SET or settings.elites > settings.samples // SET:
        raise ArgumentError(f"plan: {settings.samples} samples are no multiple of {SET}, or too few for their elites")
    if steps < 1 or robust not in (None, "mean", "worst quarter"):
        expected = "1 or more, and 'mean' or 'worst quarter'"
        raise ArgumentError(f"plan: steps is {steps}, robust {robust!r}; expected {expected}")
    need_bounds(task)
    refuse_delays(task.model)
    key = jax.random.key(key) if isinstance(key, int) else key
    hunt = _Hunt(task, state, steps, settings, doubt or Doubt(), robust, vmap, show, key, seconds)
    if ctrl is not None:
        hunt.offer(controls_of(task, ctrl), "the guess")
    try:
        hunt.explore()
    except (KeyboardInterrupt, _TimeIsUp):
        hunt.say("stopped: the best so far")
    return hunt.conclude()


class _TimeIsUp(Exception):
    """The budget is used up."""


@functools.partial(soon, static_argnames="room")
def _opening(task: Task, ctrl: Array, pieces: int, deviation: float, room: int) -> tuple[Proposal, Array]:
    """The first proposal about controls (T, nu), and what pieces cannot say of them."""
    middle = middles(ctrl, pieces, len(ctrl), room)
    return propose(task, middle, deviation), ctrl - spread(middle, pieces, len(ctrl), len(ctrl))


_copies = soon(lambda tree, count: jax.tree.map(lambda x: repeated(x, count), tree), static_argnums=1)
_learn = soon(
    lambda task, old, knots, costs, how: learn(task, old, jnp.concatenate(knots), jnp.concatenate(costs), how)
)


class _Hunt:
    """The search for one motion: what is known so far, and what is left of the time."""

    def __init__(
        self,
        task: Task,
        state: State,
        steps: int,
        settings: Sampling,
        doubt: Doubt,
        robust: Robust | None,
        vmap: Callable,
        show: Callable[[str], Any] | None,
        key: Array,
        seconds: float | None,
    ) -> None:
        self.task, self.state, self.steps, self.settings, self.robust = task, state, steps, settings, robust
        self.attempts, self.doubt, self.show, self.key = attempts(vmap), doubt, show, key
        self.began, self.seconds, self.simulated, self.turn = time.monotonic(), seconds, 0, 0
        self.room, self.finds, self.since, self.steadying, self.pressing = min(ROOM, steps), [], 0, False, 0.0
        size, shape, dtype = settings.samples, (steps, task.model.nu), task.lower.dtype
        self.rest = np.clip(np.zeros(shape, dtype), task.lower, task.upper)
        # first, since it compiles longest
        self.aims, fields = Derivatives(task, state, self.rest, size), tuple(doubt.scatter().items())
        self.doubts = doubtful(task, key, doubt.controls, doubt.start, fields=fields, size=size, steps=steps)
        self.nearby, self.differs = np.asarray(self.doubts.nearby), kinds(size)[0]
        gains = np.zeros((WAYS, *shape, tangent_size(task.model)), dtype)
        self.open = Feedback(jnp.asarray(gains), _copies(state, steps + 1), jnp.asarray(np.zeros(size, np.int32)))
        (start,), (self.idle,) = (self.values(self.rest[None], length) for length in (0, steps))
        self.goal = start.final

    def say(self, text: str) -> None:
        """A line of progress."""
        best = f"cost {self.best.cost:.4g}, " if self.finds[self.since :] else ""
        line = f"plan: {text}: {best}{self.simulated / 1e6:.1f} M steps, {time.monotonic() - self.began:.1f} s"
        if self.show is not None:
            self.show(line)
        elif sys.stderr.isatty():
            print(line, file=sys.stderr, flush=True)

    @property
    def late(self) -> bool:
        """Whether the budget is used up, and there is a motion to return."""
        return bool(self.finds) and self.seconds is not None and time.monotonic() - self.began > self.seconds

    @property
    def best(self) -> Find:
        """The motion of least cost in the model, as the search counts it, of this try."""
        return min(self.finds[self.since :], key=self.merit)

    def merit(self, find: Find) -> float:
        """What the search lowers: the cost, of which the goal's part may count more."""
        return find.cost + self.pressing * find.final

    def reached(self, find: Find) -> bool:
        """Whether a motion reaches the goal in the model, if the task has one."""
        return self.goal > 0 and find.final < REACHED * self.goal

    def kept(self, find: Find) -> bool:
        """Whether it is reached under noise too."""
        return float(np.median(find.ends)) < KEPT * self.goal

    def demerit(self, find: Find) -> tuple[int, float]:
        """What the better motion has less of: how the goal is missed, if not robust; and the cost under noise."""
        far = sum(not find.final < share * self.goal for share in (REACHED, CLOSE))
        missed = 0 if self.robust else far + (not self.kept(find))
        return missed, float(self.over_worlds(find.noisy))

    def over_worlds(self, costs: np.ndarray) -> np.ndarray:
        """What many costs (..., worlds) count: their mean, or that of the worst quarter."""
        worst = np.sort(costs, axis=-1)[..., -(costs.shape[-1] // 4) :]
        return np.mean(worst if self.robust == "worst quarter" else costs, axis=-1)

    def tried(self, worlds: Worlds | State, ctrl: Rows, length: int, feedback: Feedback | None = None) -> Attempt:
        """As many motions as samples, a world each; of the model, from one state, where that is given."""
        self.simulated += len(ctrl) * (length + 1)
        if isinstance(worlds, State):
            worlds = Worlds(self.doubts.even, _copies(worlds, self.settings.samples))
        return self.attempts(self.task, worlds, ctrl, length, self.open if feedback is None else feedback)

    def in_doubt(
        self, state: State, ctrl: np.ndarray, length: int, count: int, feedback: Feedback | None = None
    ) -> list[tuple[Attempt, np.ndarray]]:
        """Controls (n, T, nu), each in `count` worlds: by parts what they did, and costs (n of the part, count)."""
        parts, repeats = [], self.settings.samples // count
        for first in range(0, len(ctrl), repeats):
            worlds, pushed = shaken(self.task, state, self.doubts, ctrl[first : first + repeats], count=count)
            tried = self.tried(worlds, pushed, length, feedback)
            parts.append((tried, np.asarray(tried.cost).reshape(repeats, count)))
        return parts

    def values(self, ctrl: Rows, length: int) -> list[Find]:
        """Of a few motions (n, T, nu), or of one in as many worlds as there are."""
        ((tried, costs),) = self.in_doubt(self.state, np.asarray(ctrl), length, self.settings.samples // len(ctrl))
        return finds(tried, costs, self.doubt.worlds)

    def offer(self, found: Rows | Find, source: str) -> None:
        """One more motion to choose from, or its controls."""
        self.finds.append(found if isinstance(found, Find) else self.values(np.asarray(found)[None], self.steps)[0])
        self.say(source)

    def round(
        self, state: State, proposal: Proposal, pieces: int, length: int, detail: Rows, batches: int = 1
    ) -> Proposal:
        """One round of the search, of one batch of samples or more; `detail` (T, nu) is added to what is drawn."""
        if self.late:
            raise _TimeIsUp
        samples = self.settings.samples
        # in a set of worlds each, a quarter as many cost twice as much
        size = 2 * (samples // SET) if self.steadying else samples
        knots, costs = [], []
        for _ in range(batches):
            self.turn += 1
            key = jax.random.fold_in(self.key, self.turn)
            # each a little off, and in each round otherwise: what rounding decides seldom costs little twice
            nearby = np.asarray(detail)[None] + np.roll(self.nearby, self.turn, axis=0)[:size]
            drawn = draw(self.task, proposal, key, (pieces, length), nearby, samples=size)
            knots.append(drawn[0])
            if self.steadying:
                parts = self.in_doubt(state, np.asarray(drawn[1]), length, SET)
                pressed = [costs + self.pressing * np.asarray(did.final).reshape(-1, SET) for did, costs in parts]
                costs.append(self.over_worlds(np.concatenate(pressed)))
            else:
                tried = self.tried(state, drawn[1], length)
                costs.append(np.asarray(tried.cost) + np.asarray(self.pressing * np.asarray(tried.final)))
        return _learn(self.task, proposal, knots, costs, self.settings)

    def stage(self, ctrl: Rows, pieces: int, rounds: int, deviation: float, batches: int = 1) -> Find:
        """A motion near controls (T, nu) that differs from them by so many pieces."""
        proposal, detail = _opening(self.task, jnp.asarray(ctrl), pieces, deviation, room=self.room)
        scale, history, best = 0.5 * np.subtract(self.task.upper, self.task.lower), [], []
        for turn in range(rounds):
            proposal = self.round(self.state, proposal, pieces, self.steps, detail, batches=batches if turn == 0 else 1)
            history.append(float(proposal.cost))
            best.append(proposal.best)
            narrow = np.mean((np.asarray(proposal.deviation) / scale)[:pieces]) < NARROW
            if narrow and turn >= PATIENCE and history[-1 - PATIENCE] - history[-1] < GAIN * history[-1]:
                break
        # of the best of the last rounds, and their mean
        knots = jnp.asarray(np.resize([proposal.mean, *best[::-1]], (SET, *proposal.mean.shape)))
        found = np.asarray(spread(knots, pieces, self.steps, self.steps)) + np.asarray(detail)
        finds = self.values(np.clip(found, self.task.lower, self.task.upper), self.steps)
        return min(finds, key=self.demerit if self.steadying else self.merit)

    def explore(self) -> None:
        """Tries of all kinds, some twice, until the goal is reached; without a goal, of both that follow costs."""
        first, second = (self.receding, self.whole) if self.steps >= LONG else (self.whole, self.receding)
        trees = self.growing, functools.partial(self.growing, more=MORE)
        for search in (first, trees[0], second, first, trees[1]) if self.goal > 0 else (first, second):
            # what a try finds is refined even where another found what costs less; a goal is not given up
            last, self.since = np.inf, len(self.finds) if self.turn else 0
            search()
            self.refine(REFINED, "refined", PRESSED * any(map(self.reached, self.finds[self.since :])))
            if self.close(self.best):
                self.offer(self.descend(self.best, BRIEF)[0], "polished")
            while self.close(self.best) and (left := min(f.final for f in self.finds[self.since :])) < NEARER * last:
                last = left
                self.refine(REFINED, "pressed", PRESSED)
            if any(map(self.reached, self.finds)):
                break
        find = min(self.finds, key=self.demerit)
        lost = self.reached(find) and not self.kept(find)
        fragile = not np.mean(find.noisy) <= FRAGILE * find.cost + 0.01 * self.idle.cost
        if self.robust or lost or fragile:
            self.steadying = True
            self.refine(STEADIED if self.robust else STEADIER, "steadied", PRESSED * lost, find)

    def close(self, find: Find) -> bool:
        """Whether it ends near the goal, but not at it."""
        return AT * self.goal <= find.final < NEAR * self.goal

    def refine(self, stages: tuple, source: str, pressing: float, find: Find | None = None) -> None:
        """Searches about a motion, None for the best, by ever more pieces that scatter less."""
        self.pressing = pressing
        ctrl = (find := find or self.best).motion.ctrl
        for pieces, rounds, deviation in stages:
            pieces, before = min(self.room, pieces), self.merit(self.best)
            self.offer(self.stage(ctrl, pieces, rounds, deviation), f"{source}, {pieces} pieces")
            if self.steadying and not self.robust and self.demerit(self.finds[-1]) >= self.demerit(find):
                break
            # what is left is for the polish
            if not self.steadying and self.reached(self.best) and before - self.merit(self.best) < GAIN * before:
                break
            ctrl = (self.finds[-1] if self.steadying else self.best).motion.ctrl
        self.pressing = 0.0

    def whole(self) -> None:
        """A search over the whole horizon."""
        ctrl = self.rest
        for i, (pieces, rounds, deviation) in enumerate(STAGES):
            if pieces <= self.room:
                found = self.stage(ctrl, pieces, rounds, deviation, 1 if i else 4)
                self.offer(found, f"whole horizon, {pieces} pieces")
                ctrl = found.motion.ctrl

    def receding(self) -> None:
        """Plans over a part of the horizon, each of which drives a few pieces."""
        horizon = min(self.steps, max(self.steps // 4, LONG // 4))
        pieces, taken, state = min(self.settings.pieces, horizon), [], self.state
        shift = min(self.settings.driven, pieces)
        act = max(1, shift * horizon // pieces)
        mean, nothing = middles(jnp.asarray(self.rest), pieces, horizon, self.room), np.zeros_like(self.rest)
        for done in range(0, self.steps, act):
            proposal = propose(self.task, jnp.asarray(mean), self.settings.first)
            for _ in range(self.settings.rounds * (1 if done else 3)):
                proposal = self.round(state, proposal, pieces, horizon, nothing)
            ctrl, count = np.asarray(spread(proposal.best, pieces, horizon, self.steps)), min(act, self.steps - done)
            state = row_of(self.tried(state, np.repeat(ctrl[None], self.settings.samples, 0), count).states, 0, count)
            taken.append(ctrl[:count])
            # the next plan begins from this one, a few pieces on
            mean = np.asarray(proposal.best)[np.minimum(np.arange(self.room) + shift, pieces - 1)]
        self.offer(np.concatenate(taken), "receding")

    def growing(self, more: int = 1) -> None:
        """A tree of motions, of so many times more of them."""
        samples, aims = self.settings.samples, self.aims(self.idle.motion, REGULARIZED)

        def tried(begin: State, ctrl: np.ndarray, length: int) -> Attempt:
            if self.late:
                raise _TimeIsUp
            return self.tried(Worlds(self.doubts.even, begin), ctrl, length)

        self.turn += 1
        seed = int(jax.random.randint(jax.random.fold_in(self.key, self.turn), (), 0, 1 << 30))
        goal = (self.goal, REACHED * self.goal, np.asarray(aims.depends))
        self.offer(grow(self.task, self.state, self.steps, samples, seed, goal, tried, more), "a tree of motions")

    def descend(self, find: Find, most: int) -> tuple[Find, Aims, int, bool]:
        """Newton steps from a motion that lower its cost, keep its goal, and cost no more under noise: the last motion,
        the steps tried from there, the number of iterations, whether nothing was left to gain."""
        mu, turn, least, share = REGULARIZED, 0, np.inf, self.settings.samples // WAYS
        while True:
            motion = find.motion
            aims = self.aims(motion, mu)
            if turn == most or (turn and self.late):
                return find, aims, turn, False
            turn += 1
            tried = self.tried(self.state, aims.ctrl, self.steps, aims.feedback)
            costs = np.asarray(tried.cost).reshape(WAYS, share)
            settled = not find.cost - np.min(costs) > SETTLED * find.cost
            # the best lengths of all ways but one, and the motion itself, under the same noise
            ways = np.argsort(np.min(costs, axis=1))[: SET - 1]
            rows = share * ways + np.argmin(costs[ways], axis=1)
            rivals = np.concatenate([np.asarray(motion.ctrl)[None], np.asarray(tried.ctrl)[rows]])
            finds = self.values(rivals, self.steps)
            least = min(least, self.demerit(finds[0])[1])
            limit = (self.demerit(find)[0], least + SLACK * max(least, 0.1 * self.idle.cost))
            better = [i for i in range(1, SET) if finds[i].cost < find.cost and self.demerit(finds[i]) <= limit]
            best = min(better, key=lambda i: finds[i].cost, default=0)
            find, mu = finds[best] if best else find, float(aims.mu[ways[best - 1]])
            if settled or not best:
                return find, aims, turn, settled

    def conclude(self) -> Solution:
        """Polishes what costs least under noise among what reaches the goal, and says how it fares."""
        searched = min(self.finds, key=self.demerit, default=self.idle)
        last, aims, iterations, settled = self.descend(searched, POLISHED)
        # both in all worlds, of which polish saw a few
        both = [self.values(np.asarray(find.motion.ctrl)[None], self.steps)[0] for find in (last, searched)]
        find = min(both, key=lambda find: (self.demerit(find)[0], find.cost))
        if find is both[1]:
            aims, iterations, settled = self.aims(find.motion, REGULARIZED), 0, False
        self.say(f"polished from {searched.cost:.4g} to {find.cost:.4g}")
        motion, cost = find.motion, max(find.cost, np.finfo(np.float32).tiny)
        promised, unreached = np.max(np.nan_to_num(aims.promised)) / cost, np.asarray(aims.unreached) / cost
        # of the feedback of all regularizations that which costs least under noise, and what it costs in other worlds
        samples, ctrl = self.settings.samples, np.asarray(motion.ctrl)[None]
        rivals, share = np.repeat(ctrl, WAYS, axis=0), samples // WAYS
        ((_, costs),) = self.in_doubt(self.state, rivals, self.steps, share, aims.feedback)
        way = int(np.argmin(self.over_worlds(costs[:, self.differs[:share]])))
        feedback = aims.feedback._replace(way=jnp.asarray(np.full(samples, way, np.int32)))
        ((_, costs),) = self.in_doubt(self.state, ctrl, self.steps, samples, feedback)
        near = np.asarray(self.tried(self.state, ctrl + self.nearby, self.steps, feedback).cost)
        leaps = np.max(np.abs(near - near[0])) / cost
        return Solution(
            **{name: getattr(motion, name) for name in ("states", "ctrl", "cost", "status")},
            gains=aims.feedback.gains[way],
            iterations=jnp.asarray(iterations),
            converged=jnp.asarray(settled and promised <= PROMISED and unreached <= UNREACHED and leaps <= LEAPS),
            promised=jnp.asarray(promised),
            unreached=jnp.asarray(unreached),
            leaps=jnp.asarray(leaps),
            noisy=jnp.asarray(find.noisy),
            held=jnp.asarray(costs[0, self.differs][-self.doubt.worlds :]),
            idle=self.idle.motion.cost,
            goal=jnp.asarray([self.goal, find.final]),
            steps=jnp.asarray(self.simulated),
        )
