"""plan: a motion through contact, in one call: searched for, made locally optimal, and tried under noise.

Where a pusher must go around a box first, every derivative points away from the way: what is nearest must be given up.
A search over controls (search.py) finds such ways, of two kinds, since each fails where the other does not:

    whole      few pieces of control over the whole horizon, then twice as many, and again: detours
    receding   a plan over a quarter of the horizon drives a few steps, then the next: long chains of short deeds

The best is refined by more pieces that scatter less; where it ends near the goal but not at it, the goal counts ten
times for a while. For `robust` plans it is steadied in a set of worlds with noise of controls, friction, masses and
start. Of those that reach the goal, what costs least under noise is polished by iLQR, which is kept only if that
reaches it too, and costs less under noise: a little can be bought with a grip that the least noise loses.
"""

import dataclasses
import functools
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from diffsim.base.checked import checked
from diffsim.base.errors import ArgumentError
from diffsim.optimize.linearize import refuse_delays
from diffsim.optimize.tangent import integrate, tangent_size
from diffsim.optimize.trajectory.ilqr import Ilqr, Plan, polished
from diffsim.optimize.trajectory.search import (
    Proposal,
    Sampling,
    Worlds,
    attempts,
    draw,
    half_ranges,
    inside,
    learn,
    middles,
    need_bounds,
    propose,
    spread,
)
from diffsim.optimize.trajectory.task import Task, Trajectory, controls_of
from diffsim.simulate.randomize import Scale, leaf, varied_leaves
from diffsim.types import State
from diffsim.types.record import leaf as field
from diffsim.types.record import record
from diffsim.xla.compiled import jit

Array = jax.Array
Robust = Literal["mean", "worst quarter"]

# pieces of control at most; motions of so many steps are first planned in receding horizons, a quarter of them each
ROOM, LONG = 64, 200
# stages of a search over the whole horizon, pieces, rounds at most, first deviation in half ranges; and of what follows
# about the best motion
STAGES = ((4, 16, 1.0), (8, 12, 0.4), (16, 12, 0.3))
REFINED = ((32, 12, 0.2), (64, 12, 0.12))
# a stage ends when so many rounds gain less than this share of the cost, and controls scatter by less than NARROW
PATIENCE, GAIN, NARROW = 5, 0.01, 0.15
# the goal counts as reached at this share of the final cost at the start; else there are so many tries
REACHED, TRIES = 7e-3, 3
# between these shares the goal is pressed for: its part of the cost counts so many times more in a search
AT, NEAR, PRESSED = 3e-3, 0.2, 9.0
# worlds of robust planning, and how many times as much the cost may be under noise before a motion is called fragile
SET, FRAGILE = 8, 1.25
# stages of robust planning about the best motion
STEADIED = ((8, 10, 0.3), (16, 10, 0.2), (32, 10, 0.1))


@dataclasses.dataclass(frozen=True)
class Doubt:
    """How the world may differ from the model.

    Attributes:
      controls: deviation of noise on each control at each step, in half ranges.
      fields: how leaves of the model scatter, as in `diffsim.randomize`; None for friction and masses by 5%.
      start: deviation of the first state in tangent coordinates, m, rad and their rates.
      worlds: how many worlds a motion is tried in.
    """

    controls: float = 0.003
    fields: Mapping[str, Any] | None = None
    start: float = 1e-3
    worlds: int = 64

    def scatter(self) -> dict[str, Any]:
        """How leaves scatter."""
        usual = {"geom_friction": Scale(0.95, 1.05), "body_mass": Scale(0.95, 1.05)}
        return usual if self.fields is None else dict(self.fields)


@record
class Solution(Plan):
    """What `plan` found: a motion with feedback, as of `ilqr`, and how it fares.

    `noisy` are costs in worlds that differ from the model as `Doubt` says; `idle` is the cost of controls at rest;
    `goal` the final part of the cost, at the start and at the end. `gains` are zero where polish was not kept.
    """

    noisy: Array = field("worlds")
    idle: Array = field()
    goal: Array = field(2)
    steps: Array = field(dtype=int)

    @property
    def advice(self) -> str:
        """How far the motion can be trusted, in a few words."""
        cost, mean, spread = float(self.cost), float(jnp.mean(self.noisy)), float(jnp.std(self.noisy))
        begin, end = (float(value) for value in self.goal)
        far = f", the goal's part falls from {begin:.3g} to {end:.3g}" if begin > 0 else ""
        first = f"It costs {cost:.3g} where rest costs {float(self.idle):.3g}{far}."
        worst = f"{float(jnp.max(self.noisy)):.3g} at worst"
        under = f"{mean:.3g} +- {spread:.2g} in {self.noisy.size} worlds of noise, {worst}"
        if begin > 0 and end > 0.1 * begin:
            return f"{first} It does not reach the goal: give it more steps, or another key. It costs {under}."
        if not mean <= FRAGILE * cost + 0.01 * float(self.idle):
            return f"{first} Fragile: {under}; plan with robust='mean', or replan as it goes (optimize.mpc)."
        return f"{first} It holds: {under}."


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
      state: where the motion begins.
      steps: T, how many steps it has.
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
    settings = Sampling() if settings is None else settings
    if settings.samples % SET or settings.elites > settings.samples // SET:
        raise ArgumentError(f"plan: {settings.samples} samples are no multiple of {SET}, or too few for their elites")
    if steps < 1 or robust not in (None, "mean", "worst quarter"):
        expected = "1 or more, and 'mean' or 'worst quarter'"
        raise ArgumentError(f"plan: steps is {steps}, robust {robust!r}; expected {expected}")
    need_bounds(task)
    refuse_delays(task.model)
    key = jax.random.key(key) if isinstance(key, int) else key
    hunt = _Hunt(task, state, steps, settings, Doubt() if doubt is None else doubt, robust, vmap, show, key, seconds)
    if ctrl is not None:
        hunt.offer(controls_of(task, ctrl), "the guess")
    try:
        hunt.explore()
    except (KeyboardInterrupt, _TimeIsUp):
        hunt.say("stopped: the best so far")
    return hunt.conclude()


def _repeated(leaf: Array, count: int) -> Array:
    """(count, ...) copies."""
    return jnp.broadcast_to(leaf, (count, *jnp.shape(leaf)))


class _TimeIsUp(Exception):
    """The budget is used up."""


class _Find(NamedTuple):
    """A motion: controls (T, nu), its cost in the model, the final part of that, and costs (worlds,) under noise."""

    ctrl: Array
    cost: float
    final: float
    noisy: Array


# programs that run a few times
_soon = functools.partial(jit, quick=True)
_varied = _soon(
    lambda model, key, fields, count: varied_leaves(model, key, dict(fields), count),
    static_argnames=("fields", "count"),
)
_draw = _soon(draw, static_argnums=3)
_learn = _soon(learn)
_displaced = _soon(jax.vmap(integrate, in_axes=(None, None, 0)))
_spread = _soon(spread, static_argnums=3)
_middles = _soon(middles, static_argnums=3)
_detailed = _soon(lambda task, ctrl, detail: inside(task, ctrl + jnp.broadcast_to(detail, ctrl.shape)))


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
        self.began, self.seconds, self.simulated = time.monotonic(), seconds, 0
        self.room, self.finds, self.steadying, self.pressing = min(ROOM, steps), [], False, 0.0
        size, dtype = settings.samples, task.lower.dtype
        # the same worlds for every motion that is compared; the first is the model itself
        varied = _varied(task.model, self.next_key(), fields=tuple(doubt.scatter().items()), count=size)
        self.even = {name: _repeated(leaf(task.model, name), size) for name in varied}
        self.varied = {name: x.at[0].set(self.even[name][0]) for name, x in varied.items()}
        noise = jax.random.normal(self.next_key(), (size, steps, task.model.nu), dtype).at[0].set(0)
        self.push = doubt.controls * half_ranges(task, noise.shape) * noise
        change = jax.random.normal(self.next_key(), (size, tangent_size(task.model)), dtype).at[0].set(0)
        self.change = doubt.start * change
        self.rest = inside(task, jnp.zeros((steps, task.model.nu), task.lower.dtype))
        self.goal = self.value(self.rest, 0).final
        self.idle = self.value(self.rest, steps)

    def next_key(self) -> Array:
        """A fresh key."""
        self.key, key = jax.random.split(self.key)
        return key

    def say(self, text: str) -> None:
        """A line of progress."""
        best = f"cost {self.best.cost:.4g}, " if self.finds else ""
        line = f"plan: {text}: {best}{self.simulated / 1e6:.1f} M steps, {time.monotonic() - self.began:.1f} s"
        if self.show is not None:
            self.show(line)
        elif sys.stderr.isatty():
            print(line, file=sys.stderr, flush=True)

    @property
    def best(self) -> _Find:
        """The motion of least cost in the model, as the search counts it."""
        return min(self.finds, key=lambda find: find.cost + self.pressing * find.final)

    def reached(self, find: _Find) -> bool:
        """Whether a motion reaches the goal in the model, if the task has one."""
        return self.goal > 0 and find.final < REACHED * self.goal

    def demerit(self, find: _Find) -> tuple[bool, float]:
        """What the better motion has less of: a goal that is missed, if not robust; and the cost under noise."""
        return self.robust is None and not self.reached(find), float(self.over_worlds(find.noisy))

    def worlds(self, state: State) -> Worlds:
        """Worlds of the model, that begin in one state."""
        return Worlds(self.even, jax.tree.map(functools.partial(_repeated, count=self.settings.samples), state))

    def doubtful(self, state: State, ctrl: Array, length: int, count: int) -> tuple[Array, Array]:
        """Costs and their final parts of controls (n, T, nu), each in `count` worlds, (n, count)."""
        repeats = self.settings.samples // count

        def tiled(x: Array) -> Array:
            return jnp.tile(x[:count], (repeats, *[1] * (x.ndim - 1)))

        states = _displaced(self.task.model, state, tiled(self.change))
        worlds = Worlds(jax.tree.map(tiled, self.varied), states)
        parts = []
        for first in range(0, len(ctrl), repeats):
            shaken = jnp.repeat(ctrl[first : first + repeats], count, axis=0) + tiled(self.push)
            costs, finals, _ = self.costs(worlds, inside(self.task, shaken), length)
            parts.append((costs.reshape(repeats, count), finals.reshape(repeats, count)))
        costs, finals = (jnp.concatenate(part) for part in zip(*parts, strict=True))
        return costs, finals

    def over_worlds(self, costs: Array) -> Array:
        """What many costs (..., worlds) count: their mean, or that of the worst quarter."""
        worst = jnp.sort(costs, axis=-1)[..., -(costs.shape[-1] // 4) :]
        return jnp.mean(worst if self.robust == "worst quarter" else costs, axis=-1)

    def costs(self, worlds: Worlds, ctrl: Array, length: int) -> tuple[Array, Array, State]:
        """Of controls (N, T, nu); for a set of worlds, where robust."""
        if self.seconds is not None and time.monotonic() - self.began > self.seconds and self.finds:
            raise _TimeIsUp
        self.simulated += len(ctrl) * (length + 1)
        return self.attempts(self.task, worlds, ctrl, length)

    def value(self, ctrl: Array, length: int) -> _Find:
        """Of one motion."""
        size = self.settings.samples
        costs, finals = (x[0] for x in self.doubtful(self.state, ctrl[None], length, size))
        return _Find(ctrl, float(costs[0]), float(finals[0]), costs[1 : 1 + min(self.doubt.worlds, size - 1)])

    def offer(self, ctrl: Array, source: str) -> None:
        """One more motion to choose from."""
        self.finds.append(self.value(ctrl, self.steps))
        self.say(source)

    def round(
        self, state: State, proposal: Proposal, pieces: int, length: int, detail: Array | float = 0.0, batches: int = 1
    ) -> Proposal:
        """One round of the search, of one batch of samples or more; `detail` (T, nu) is added to what is drawn."""
        # in a set of worlds each, a quarter as many cost twice as much
        size = 2 * (self.settings.samples // SET) if self.steadying else self.settings.samples
        drawn = [_draw(self.task, proposal, self.next_key(), size) for _ in range(batches)]
        costs = []
        for knots in drawn:
            ctrl = _detailed(self.task, _spread(knots, pieces, length, self.steps), detail)
            if self.steadying:
                costs.append(self.over_worlds(self.doubtful(state, ctrl, length, SET)[0]))
            else:
                cost, final, _ = self.costs(self.worlds(state), ctrl, length)
                costs.append(cost + self.pressing * final)
        return _learn(self.task, proposal, jnp.concatenate(drawn), jnp.concatenate(costs), self.settings)

    def stage(self, ctrl: Array, pieces: int, rounds: int, deviation: float, batches: int = 1) -> Array:
        """Controls (T, nu) near others that differ from them by so many pieces."""
        middle = _middles(ctrl, pieces, self.steps, self.room)
        detail = ctrl - _spread(middle, pieces, self.steps, self.steps)
        proposal, scale = propose(self.task, middle, deviation), half_ranges(self.task, middle.shape)
        history: list[float] = []
        for turn in range(rounds):
            proposal = self.round(self.state, proposal, pieces, self.steps, detail, batches=batches if turn == 0 else 1)
            history.append(float(proposal.cost))
            narrow = float(jnp.mean((proposal.deviation / scale)[:pieces])) < NARROW
            if narrow and turn >= PATIENCE and history[-1 - PATIENCE] - history[-1] < GAIN * history[-1]:
                break
        return _detailed(self.task, _spread(proposal.best, pieces, self.steps, self.steps), detail)

    def explore(self) -> None:
        """Tries of both kinds, each refined, until the goal is reached or, where the task has none, one of each."""
        kinds = [self.receding, self.whole] if self.steps >= LONG else [self.whole, self.receding]
        for turn in range(TRIES if self.goal > 0 else len(kinds)):
            kinds[turn % len(kinds)]()
            self.refine(REFINED, "refined")
            if AT * self.goal <= self.best.final < NEAR * self.goal:
                self.pressing = PRESSED
                self.refine(REFINED, "pressed")
                self.pressing = 0.0
            if any(map(self.reached, self.finds)):
                break
        if self.robust is not None:
            self.steadying = True
            self.refine(STEADIED, "steadied")

    def refine(self, stages: tuple, source: str) -> None:
        """Searches about the best, of ever more pieces that scatter less."""
        ctrl = self.best.ctrl
        for pieces, rounds, deviation in stages:
            ctrl = self.stage(ctrl, min(self.room, pieces), rounds, deviation)
            self.offer(ctrl, f"{source}, {min(self.room, pieces)} pieces")
            ctrl = ctrl if self.steadying else self.best.ctrl

    def whole(self) -> None:
        """A search over the whole horizon."""
        ctrl = self.rest
        for i, (pieces, rounds, deviation) in enumerate(STAGES):
            if pieces <= self.room:
                ctrl = self.stage(ctrl, pieces, rounds, deviation, 1 if i else 4)
                self.offer(ctrl, f"whole horizon, {pieces} pieces")

    def receding(self) -> None:
        """Plans over a part of the horizon, each of which drives a few pieces."""
        horizon = min(self.steps, max(self.steps // 4, LONG // 4))
        pieces, taken, state = min(self.settings.pieces, horizon), [], self.state
        shift = min(self.settings.driven, pieces)
        act = max(1, shift * horizon // pieces)
        mean = _middles(self.rest, pieces, horizon, self.room)
        for done in range(0, self.steps, act):
            proposal = propose(self.task, mean, self.settings.first)
            for _ in range(self.settings.rounds * (1 if done else 3)):
                proposal = self.round(state, proposal, pieces, horizon)
            ctrl, count = _spread(proposal.best, pieces, horizon, self.steps), min(act, self.steps - done)
            ends = self.costs(self.worlds(state), _repeated(ctrl, self.settings.samples), count)[2]
            state = jax.tree.map(lambda x: x[0], ends)
            taken.append(ctrl[:count])
            # the next plan begins from this one, a few pieces on
            mean = proposal.best[jnp.minimum(jnp.arange(self.room) + shift, pieces - 1)]
        self.offer(jnp.concatenate(taken), "receding")

    def conclude(self) -> Solution:
        """Polishes the best, keeps what costs less under noise, and says how it fares."""
        self.seconds = None
        best = min(self.finds, key=self.demerit, default=self.idle)
        before, after = polished(self.task, self.state, best.ctrl, Ilqr(iterations=50))
        finds = [self.value(path.ctrl, self.steps) for path in (before, after)]
        keep = self.demerit(finds[1]) <= self.demerit(finds[0])
        chosen: Trajectory = after if keep else before
        self.say(
            f"polished to {float(after.cost):.4g}, "
            + ("kept" if keep else "not kept: under noise it costs more, or it misses the goal")
        )
        return Solution(
            states=chosen.states,
            ctrl=chosen.ctrl,
            cost=chosen.cost,
            status=chosen.status,
            gains=after.gains if keep else jnp.zeros_like(after.gains),
            iterations=after.iterations,
            converged=after.converged & keep,
            promised=after.promised,
            unreached=after.unreached,
            noisy=finds[keep].noisy,
            idle=jnp.asarray(self.idle.cost),
            goal=jnp.asarray([self.goal, finds[keep].final]),
            steps=jnp.asarray(self.simulated),
        )
