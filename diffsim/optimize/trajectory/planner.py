"""Planner: the search for one motion, and its settings. plan.py is the public call.

The order of a search is `Planner.explore`: attempts of three kinds, each refined, until one reaches the goal; then, if
the best is fragile, a refinement in perturbed worlds. `Planner.solution` polishes the best and measures how robust it
is.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.optimize.progress import OutOfTime, Progress
from diffsim.optimize.tangent import tangent_size
from diffsim.optimize.trajectory.ilqr import LEAPS, PROMISED, UNREACHED
from diffsim.optimize.trajectory.perturbation import (
    Candidate,
    Perturbation,
    candidates,
    kinds_of_worlds,
    perturb,
    perturbed_worlds,
    row_of,
)
from diffsim.optimize.trajectory.sampling import (
    FRAGILE,
    NEGLIGIBLE,
    SHARES,
    Attempt,
    Feedback,
    NewtonStepper,
    NewtonSteps,
    Proposal,
    Sampling,
    Solution,
    Worlds,
    attempts,
    draw,
    learn,
    piece_centers,
    propose,
    quick_jit,
    repeated,
    spread,
)
from diffsim.optimize.trajectory.task import Task
from diffsim.optimize.trajectory.tree import Goal, TreeSettings, search_tree
from diffsim.types import State

Array = jax.Array
AnyArray = Array | np.ndarray
Robust = Literal["mean", "worst quarter"]

# the first level of a search over the whole horizon draws this many batches in its first round: nothing is known yet
FIRST_BATCHES = 4
# a receding plan looks over this part of the horizon (one in four), but at least over this part of a long one
RECEDING = 4
# rounds of the first receding plan, as a multiple of the rounds of the others, which begin from the plan before
FIRST_ROUNDS = 3
# slack of the polish counts the cost as at least this part of the cost of zero controls: near zero all is noise
LEAST_COST = 0.1


class Level(NamedTuple):
    """One level of a search from coarse to fine.

    Attributes:
      pieces: number of constant pieces of control in the horizon.
      rounds: rounds of sampling, at most.
      deviation: standard deviation of the first round, in half ranges of the controls.
    """

    pieces: int
    rounds: int
    deviation: float


@dataclasses.dataclass(frozen=True)
class PlanSettings:
    """Settings of `plan`. The defaults were chosen on eight tasks of pushing and turning (`make measure WHAT=plan`).

    The goal's part of the cost is compared with its value at the start: a share of 0.01 is a tenth of the distance,
    since costs are squares.

    Attributes:
      sampling: of the rounds of sampling.
      tree: of the tree of motions.
      max_pieces: most pieces of control; it sets the size of the compiled programs.
      long_horizon: motions of at least this number of steps are first planned by receding horizons.
      levels: of a search over the whole horizon. Few pieces find detours, more pieces adjust them.
      refinement: levels about the best motion.
      robust_refinement: levels in perturbed worlds, if `robust` is given.
      fragile_refinement: levels in perturbed worlds for a fragile motion, if it is not.
      patience: a level ends when this number of rounds ...
      least_gain: ... lowered the cost by less than this share of it, and ...
      narrow: ... the deviation is below this, in half ranges.
      goal_reached: share of the goal's cost at which the goal is reached in the model.
      goal_kept: share at which it is reached in half of the perturbed worlds.
      goal_close: share at which the goal is nearly reached: a worse motion is ranked behind one that gets so far.
      press_below: below this share of the goal's cost ...
      press_above: ... and above this share, the goal is pressed: its cost counts more, as long as that helps.
      goal_weight: how many times more the goal counts while it is pressed.
      press_gain: pressing goes on while the goal's cost falls to less than this share of the last one.
      tree_growth: the second tree has this many times more nodes than the first.
      robust_worlds: number of perturbed worlds in which each sample is tried while refining in perturbed worlds.
      polish_iterations: iterations of iLQR at the end, at most.
      brief_polish_iterations: the same in the middle of a search.
      regularization: of the first Newton step of a polish (mu in ilqr.py).
      polish_tolerance: the polish ends when a step lowers the cost by less than this share.
      polish_slack: a step may raise the cost in perturbed worlds above the least so far by this share.
    """

    sampling: Sampling = dataclasses.field(default_factory=Sampling)
    tree: TreeSettings = dataclasses.field(default_factory=TreeSettings)
    max_pieces: int = 64
    long_horizon: int = 200
    levels: tuple[Level, ...] = (Level(4, 16, 1.0), Level(8, 12, 0.4), Level(16, 12, 0.3))
    refinement: tuple[Level, ...] = (Level(32, 12, 0.2), Level(64, 12, 0.12))
    robust_refinement: tuple[Level, ...] = (Level(8, 10, 0.3), Level(16, 10, 0.2), Level(32, 10, 0.1))
    fragile_refinement: tuple[Level, ...] = (Level(16, 8, 0.2), Level(32, 8, 0.1))
    patience: int = 5
    least_gain: float = 0.01
    narrow: float = 0.15
    goal_reached: float = 7e-3
    goal_kept: float = 1e-2
    goal_close: float = 5e-2
    press_below: float = 0.2
    press_above: float = 3e-3
    goal_weight: float = 9.0
    press_gain: float = 0.8
    tree_growth: int = 4
    robust_worlds: int = 8
    polish_iterations: int = 20
    brief_polish_iterations: int = 6
    regularization: float = 1e-2
    polish_tolerance: float = 1e-5
    polish_slack: float = 0.01


@functools.partial(quick_jit, static_argnames="room")
def _opening(task: Task, ctrl: Array, pieces: int, deviation: float, room: int) -> tuple[Proposal, Array]:
    """The first proposal about controls (T, nu), and the detail of them that constant pieces cannot express."""
    middle = piece_centers(ctrl, pieces, len(ctrl), room)
    return propose(task, middle, deviation), ctrl - spread(middle, pieces, len(ctrl), len(ctrl))


_copies = quick_jit(lambda tree, count: jax.tree.map(lambda x: repeated(x, count), tree), static_argnums=1)
_learn = quick_jit(
    lambda task, old, knots, costs, how: learn(task, old, jnp.concatenate(knots), jnp.concatenate(costs), how)
)


class Polished(NamedTuple):
    """The end of a polish.

    Attributes:
      candidate: the last motion.
      steps: the Newton steps that were tried from it.
      iterations: how many there were.
      settled: whether no step lowered the cost any more.
    """

    candidate: Candidate
    steps: NewtonSteps
    iterations: int
    settled: bool


class Planner:
    """The search for one motion: what is known so far, and the methods that find more.

    Attributes:
      candidates: the motions that were found, in order.
      attempt: index of the first candidate of the present attempt; `best` looks at these alone.
      goal_weight: the present extra weight of the goal's cost; 0 unless the goal is pressed.
      in_worlds: whether samples are tried in perturbed worlds at present, instead of the model.
      simulated: number of steps so far.
      turn: number of random draws so far; each one has its own key.
      idle: the motion of zero controls, over the whole horizon.
      goal: the goal's cost at the start; 0 for a task without one.
    """

    def __init__(
        self,
        task: Task,
        state: State,
        steps: int,
        settings: PlanSettings,
        perturbation: Perturbation,
        robust: Robust | None,
        vmap: Callable,
        progress: Progress,
        key: Array,
    ) -> None:
        self.task = task
        self.state = state
        self.steps = steps
        self.settings = settings
        self.perturbation = perturbation
        self.robust = robust
        self.attempts = attempts(vmap)
        self.progress = progress
        self.key = key
        self.samples = settings.sampling.samples
        self.room = min(settings.max_pieces, steps)
        self.candidates: list[Candidate] = []
        self.attempt = 0
        self.goal_weight = 0.0
        self.in_worlds = False
        self.simulated = 0
        self.turn = 0
        shape, dtype = (steps, task.model.nu), task.lower.dtype
        self.zero_ctrl = np.clip(np.zeros(shape, dtype), task.lower, task.upper)
        # first of all, since it compiles longest; the rest compiles meanwhile
        self.newton_steps = NewtonStepper(task, state, self.zero_ctrl, self.samples)
        self.worlds = perturbed_worlds(
            task,
            key,
            perturbation.controls,
            perturbation.start,
            fields=tuple(perturbation.distributions().items()),
            size=self.samples,
            steps=steps,
        )
        self.tiny_noise = np.asarray(self.worlds.tiny_noise)
        self.perturbed, _ = kinds_of_worlds(self.samples)
        # gains of zero: one program simulates with and without feedback
        self.no_feedback = Feedback(
            gains=jnp.asarray(np.zeros((SHARES, *shape, tangent_size(task.model)), dtype)),
            states=_copies(state, steps + 1),
            way=jnp.asarray(np.zeros(self.samples, np.int32)),
        )
        (start,), (self.idle,) = (self.evaluate(self.zero_ctrl[None], length) for length in (0, steps))
        self.goal = start.final

    def report(self, text: str) -> None:
        """Shows a line of progress."""
        best = f"cost {self.best.cost:.4g}, " if self.candidates[self.attempt :] else ""
        self.progress.report(f"{text}: {best}{self.simulated / 1e6:.1f} M steps")

    @property
    def late(self) -> bool:
        """Whether the budget is used up, and there is a motion to return."""
        return bool(self.candidates) and self.progress.out_of_time

    # what is better

    @property
    def best(self) -> Candidate:
        """The candidate of least objective in the present attempt."""
        return min(self.candidates[self.attempt :], key=self.objective)

    def objective(self, candidate: Candidate) -> float:
        """What sampling minimizes: the cost in the model, in which the goal may count more."""
        return candidate.cost + self.goal_weight * candidate.final

    def rank(self, candidate: Candidate) -> tuple[int, float]:
        """The better candidate has less of this: by how many thresholds the goal is missed, then the robust cost.

        If `robust` is given, the robust cost alone counts.
        """
        shares = (self.settings.goal_reached, self.settings.goal_close)
        missed = sum(not candidate.final < share * self.goal for share in shares) + (not self.kept(candidate))
        return 0 if self.robust else missed, float(self.robust_cost(candidate.costs))

    def robust_cost(self, costs: np.ndarray) -> np.ndarray:
        """One number for costs (..., worlds): their mean, or the mean of the worst quarter."""
        worst = np.sort(costs, axis=-1)[..., -(costs.shape[-1] // 4) :]
        return np.mean(worst if self.robust == "worst quarter" else costs, axis=-1)

    def reached(self, candidate: Candidate) -> bool:
        """Whether a motion reaches the goal in the model, if the task has a goal."""
        return self.goal > 0 and candidate.final < self.settings.goal_reached * self.goal

    def kept(self, candidate: Candidate) -> bool:
        """Whether a motion reaches the goal in half of the perturbed worlds."""
        return float(np.median(candidate.finals)) < self.settings.goal_kept * self.goal

    def close(self, candidate: Candidate) -> bool:
        """Whether a motion ends near the goal, but not at it."""
        return self.settings.press_above * self.goal <= candidate.final < self.settings.press_below * self.goal

    # simulation

    def simulate(
        self, worlds: Worlds | State, ctrl: AnyArray, length: int, feedback: Feedback | None = None
    ) -> Attempt:
        """Simulates one motion a sample, each in its own world; from a State, all in the model and from there."""
        self.simulated += len(ctrl) * (length + 1)
        if isinstance(worlds, State):
            worlds = Worlds(leaves=self.worlds.nominal, state=_copies(worlds, self.samples))
        return self.attempts(self.task, worlds, ctrl, length, self.no_feedback if feedback is None else feedback)

    def simulate_perturbed(
        self, state: State, ctrl: np.ndarray, length: int, count: int, feedback: Feedback | None = None
    ) -> list[tuple[Attempt, np.ndarray]]:
        """Simulates controls (n, T, nu) in `count` perturbed worlds each.

        Returns:
          For each batch of as many motions as fit, the simulated motions and their costs (motions, count).
        """
        batches, fitting = [], self.samples // count
        for first in range(0, len(ctrl), fitting):
            worlds, noisy = perturb(self.task, state, self.worlds, ctrl[first : first + fitting], count=count)
            tried = self.simulate(worlds, noisy, length, feedback)
            batches.append((tried, np.asarray(tried.cost).reshape(fitting, count)))
        return batches

    def evaluate(self, ctrl: AnyArray, length: int) -> list[Candidate]:
        """Candidates from controls (n, T, nu), n at most `SHARES`; all samples are divided among their worlds."""
        count = self.samples // len(ctrl)
        ((tried, costs),) = self.simulate_perturbed(self.state, np.asarray(ctrl), length, count)
        return candidates(tried, costs, self.perturbation.worlds)

    def add(self, found: AnyArray | Candidate, source: str) -> None:
        """Adds a candidate, or its controls (T, nu), and reports it."""
        known = isinstance(found, Candidate)
        self.candidates.append(found if known else self.evaluate(np.asarray(found)[None], self.steps)[0])
        self.report(source)

    # sampling

    def sample(
        self, state: State, proposal: Proposal, pieces: int, length: int, detail: AnyArray, batches: int = 1
    ) -> Proposal:
        """One round of the cross-entropy method.

        Args:
          state: where the motions begin.
          proposal: the distribution of the controls.
          pieces: number of constant pieces in the first `length` steps.
          length: number of steps.
          detail: (T, nu) is added to the constant pieces.
          batches: number of batches of samples.
        """
        if self.late:
            raise OutOfTime
        knots, costs = [], []
        for _ in range(batches):
            self.turn += 1
            key = jax.random.fold_in(self.key, self.turn)
            # in perturbed worlds a quarter of the samples, each in eight worlds, costs twice as much as all of them
            size = 2 * (self.samples // self.settings.robust_worlds) if self.in_worlds else self.samples
            # tiny noise, other in each round: a motion that owes its cost to rounding is seldom lucky twice
            noisy = np.asarray(detail)[None] + np.roll(self.tiny_noise, self.turn, axis=0)[:size]
            drawn, ctrl = draw(self.task, proposal, key, (pieces, length), noisy, samples=size)
            knots.append(drawn)
            costs.append(self.objectives(state, ctrl, length))
        return _learn(self.task, proposal, knots, costs, self.settings.sampling)

    def objectives(self, state: State, ctrl: Array, length: int) -> np.ndarray:
        """(n,) objectives of controls (n, T, nu), in the model or over perturbed worlds."""
        if not self.in_worlds:
            tried = self.simulate(state, ctrl, length)
            return np.asarray(tried.cost) + np.asarray(self.goal_weight * np.asarray(tried.final))
        count = self.settings.robust_worlds
        batches = self.simulate_perturbed(state, np.asarray(ctrl), length, count)
        weighed = [costs + self.goal_weight * np.asarray(did.final).reshape(-1, count) for did, costs in batches]
        return self.robust_cost(np.concatenate(weighed))

    def search_level(self, ctrl: AnyArray, level: Level, batches: int = 1) -> Candidate:
        """The best motion that differs from controls (T, nu) by the constant pieces of a level."""
        settings, pieces = self.settings, min(self.room, level.pieces)
        proposal, detail = _opening(self.task, jnp.asarray(ctrl), pieces, level.deviation, room=self.room)
        scale, history, best = 0.5 * np.subtract(self.task.upper, self.task.lower), [], []
        for turn in range(level.rounds):
            many = batches if turn == 0 else 1
            proposal = self.sample(self.state, proposal, pieces, self.steps, detail, batches=many)
            history.append(float(proposal.cost))
            best.append(proposal.best)
            narrow = np.mean((np.asarray(proposal.deviation) / scale)[:pieces]) < settings.narrow
            if narrow and turn >= settings.patience:
                gain = history[-1 - settings.patience] - history[-1]
                if gain < settings.least_gain * history[-1]:
                    break
        # the mean and the best of the last rounds, compared in perturbed worlds
        knots = jnp.asarray(np.resize([proposal.mean, *best[::-1]], (SHARES, *proposal.mean.shape)))
        found = np.asarray(spread(knots, pieces, self.steps, self.steps)) + np.asarray(detail)
        compared = self.evaluate(np.clip(found, self.task.lower, self.task.upper), self.steps)
        return min(compared, key=self.rank if self.in_worlds else self.objective)

    # the search

    def explore(self) -> None:
        """Searches in several ways, some of them twice, until the goal is reached.

        A task without a goal is searched in the two ways that follow costs; they are both tried.
        """
        settings = self.settings
        ways = (self.search_whole_horizon, self.search_receding)
        first, second = ways[::-1] if self.steps >= settings.long_horizon else ways
        larger_tree = functools.partial(self.search_tree, more=settings.tree_growth)
        for search in (first, self.search_tree, second, first, larger_tree) if self.goal > 0 else (first, second):
            # an attempt is refined even if an earlier one found a lower cost, since it may lead to the goal
            self.attempt = len(self.candidates) if self.turn else 0
            search()
            at_goal = any(map(self.reached, self.candidates[self.attempt :]))
            self.refine(settings.refinement, "refined", settings.goal_weight * at_goal)
            self.press()
            if any(map(self.reached, self.candidates)):
                break
        best = min(self.candidates, key=self.rank)
        lost = self.reached(best) and not self.kept(best)
        fragile = not np.mean(best.costs) <= FRAGILE * best.cost + NEGLIGIBLE * self.idle.cost
        if self.robust or lost or fragile:
            self.in_worlds = True
            levels = settings.robust_refinement if self.robust else settings.fragile_refinement
            self.refine(levels, "made robust", settings.goal_weight * lost, best)

    def press(self) -> None:
        """Near the goal but not at it: a brief polish, then refinements in which the goal counts more."""
        if self.close(self.best):
            self.add(self.polish(self.best, self.settings.brief_polish_iterations).candidate, "polished")
        last = np.inf
        while self.close(self.best):
            left = min(candidate.final for candidate in self.candidates[self.attempt :])
            if not left < self.settings.press_gain * last:
                break
            last = left
            self.refine(self.settings.refinement, "pressed", self.settings.goal_weight)

    def refine(
        self, levels: tuple[Level, ...], source: str, goal_weight: float, about: Candidate | None = None
    ) -> None:
        """Searches about a candidate, None for the best, by more and more pieces that vary less and less."""
        self.goal_weight = goal_weight
        about = about or self.best
        ctrl = about.motion.ctrl
        for level in levels:
            before = self.objective(self.best)
            self.add(self.search_level(ctrl, level), f"{source}, {min(self.room, level.pieces)} pieces")
            if self.in_worlds and not self.robust and self.rank(self.candidates[-1]) >= self.rank(about):
                break
            # at the goal, the polish gains what is left faster
            gain = before - self.objective(self.best)
            if not self.in_worlds and self.reached(self.best) and gain < self.settings.least_gain * before:
                break
            ctrl = (self.candidates[-1] if self.in_worlds else self.best).motion.ctrl
        self.goal_weight = 0.0

    def search_whole_horizon(self) -> None:
        """A search over the whole horizon, from few pieces to more."""
        ctrl = self.zero_ctrl
        for i, level in enumerate(self.settings.levels):
            if level.pieces <= self.room:
                found = self.search_level(ctrl, level, 1 if i else FIRST_BATCHES)
                self.add(found, f"whole horizon, {level.pieces} pieces")
                ctrl = found.motion.ctrl

    def search_receding(self) -> None:
        """Plans over a part of the horizon, each of which drives a few pieces before the next plan."""
        settings = self.settings.sampling
        horizon = min(self.steps, max(self.steps // RECEDING, self.settings.long_horizon // RECEDING))
        pieces, taken, state = min(settings.pieces, horizon), [], self.state
        shift = min(settings.driven, pieces)
        act = max(1, shift * horizon // pieces)
        mean = piece_centers(jnp.asarray(self.zero_ctrl), pieces, horizon, self.room)
        no_detail = np.zeros_like(self.zero_ctrl)
        for done in range(0, self.steps, act):
            proposal = propose(self.task, jnp.asarray(mean), settings.first)
            for _ in range(settings.rounds * (1 if done else FIRST_ROUNDS)):
                proposal = self.sample(state, proposal, pieces, horizon, no_detail)
            # drive the first pieces in the model
            ctrl, count = np.asarray(spread(proposal.best, pieces, horizon, self.steps)), min(act, self.steps - done)
            driven = self.simulate(state, np.repeat(ctrl[None], self.samples, 0), count)
            state = row_of(driven.states, 0, count)
            taken.append(ctrl[:count])
            # the next plan begins from this one, shifted by the pieces that were driven
            mean = np.asarray(proposal.best)[np.minimum(np.arange(self.room) + shift, pieces - 1)]
        self.add(np.concatenate(taken), "receding")

    def search_tree(self, more: int = 1) -> None:
        """A tree of motions; `more` multiplies its size."""
        slope = self.newton_steps(self.idle.motion, self.settings.regularization).depends

        def simulate(begin: State, ctrl: np.ndarray, length: int) -> Attempt:
            if self.late:
                raise OutOfTime
            return self.simulate(Worlds(leaves=self.worlds.nominal, state=begin), ctrl, length)

        self.turn += 1
        found = search_tree(
            self.task,
            self.state,
            steps=self.steps,
            samples=self.samples,
            seed=int(jax.random.randint(jax.random.fold_in(self.key, self.turn), (), 0, 1 << 30)),
            goal=Goal(start=self.goal, reached=self.settings.goal_reached * self.goal, slope=np.asarray(slope)),
            simulate=simulate,
            settings=self.settings.tree,
            more=more,
        )
        self.add(found, "a tree of motions")

    # the end

    def polish(self, candidate: Candidate, iterations: int) -> Polished:
        """Newton steps that lower the cost, keep the goal, and cost no more in perturbed worlds.

        Each iteration tries steps of `SHARES` regularizations and many sizes at once in the model. The best size of
        each regularization, but the worst one, then competes with the motion itself in the same perturbed worlds.
        """
        settings, share = self.settings, self.samples // SHARES
        mu, turn, least = settings.regularization, 0, np.inf
        while True:
            motion = candidate.motion
            steps = self.newton_steps(motion, mu)
            if turn == iterations or (turn and self.late):
                return Polished(candidate=candidate, steps=steps, iterations=turn, settled=False)
            turn += 1
            tried = self.simulate(self.state, steps.ctrl, self.steps, steps.feedback)
            costs = np.asarray(tried.cost).reshape(SHARES, share)
            settled = not candidate.cost - np.min(costs) > settings.polish_tolerance * candidate.cost
            ways = np.argsort(np.min(costs, axis=1))[: SHARES - 1]
            rows = share * ways + np.argmin(costs[ways], axis=1)
            rivals = np.concatenate([np.asarray(motion.ctrl)[None], np.asarray(tried.ctrl)[rows]])
            compared = self.evaluate(rivals, self.steps)
            # the robust cost may rise a little, but over all iterations by no more than the slack above its least
            least = min(least, self.rank(compared[0])[1])
            slack = settings.polish_slack * max(least, LEAST_COST * self.idle.cost)
            limit = (self.rank(candidate)[0], least + slack)
            better = [
                i for i in range(1, SHARES) if compared[i].cost < candidate.cost and self.rank(compared[i]) <= limit
            ]
            best = min(better, key=lambda i: compared[i].cost, default=0)
            if best:
                candidate = compared[best]
            mu = float(steps.mu[ways[best - 1]])
            if settled or not best:
                return Polished(candidate=candidate, steps=steps, iterations=turn, settled=settled)

    def solution(self) -> Solution:
        """Polishes the candidate of best rank, and measures how robust the result is."""
        searched = min(self.candidates, key=self.rank, default=self.idle)
        polished = self.polish(searched, self.settings.polish_iterations)
        # both again in all perturbed worlds, since the polish saw a few of them
        both = [
            self.evaluate(np.asarray(candidate.motion.ctrl)[None], self.steps)[0]
            for candidate in (polished.candidate, searched)
        ]
        best = min(both, key=lambda candidate: (self.rank(candidate)[0], candidate.cost))
        if best is both[1]:
            steps = self.newton_steps(best.motion, self.settings.regularization)
            polished = polished._replace(steps=steps, iterations=0, settled=False)
        self.report(f"polished from {searched.cost:.4g} to {best.cost:.4g}")
        motion, steps = best.motion, polished.steps
        cost = max(best.cost, float(np.finfo(np.float32).tiny))
        promised = np.max(np.nan_to_num(steps.promised)) / cost
        unreached = np.asarray(steps.unreached) / cost
        way, held, leaps = self.choose_feedback(motion, steps, cost)
        return Solution(
            states=motion.states,
            ctrl=motion.ctrl,
            cost=motion.cost,
            status=motion.status,
            gains=steps.feedback.gains[way],
            iterations=jnp.asarray(polished.iterations),
            converged=jnp.asarray(
                polished.settled and promised <= PROMISED and unreached <= UNREACHED and leaps <= LEAPS
            ),
            promised=jnp.asarray(promised),
            unreached=jnp.asarray(unreached),
            leaps=jnp.asarray(leaps),
            noisy=jnp.asarray(best.costs),
            held=jnp.asarray(held),
            idle=self.idle.motion.cost,
            goal=jnp.asarray([self.goal, best.final]),
            steps=jnp.asarray(self.simulated),
        )

    def choose_feedback(self, motion: Attempt, steps: NewtonSteps, cost: float) -> tuple[int, np.ndarray, np.ndarray]:
        """The gains of least robust cost, of all regularizations.

        Returns:
          Their index; (worlds,) costs with them in perturbed worlds; and the largest change of the cost under tiny
          noise, as a share of it.
        """
        ctrl, share = np.asarray(motion.ctrl)[None], self.samples // SHARES
        rivals = np.repeat(ctrl, SHARES, axis=0)
        ((_, costs),) = self.simulate_perturbed(self.state, rivals, self.steps, share, steps.feedback)
        way = int(np.argmin(self.robust_cost(costs[:, self.perturbed[:share]])))
        feedback = steps.feedback._replace(way=jnp.asarray(np.full(self.samples, way, np.int32)))
        ((_, costs),) = self.simulate_perturbed(self.state, ctrl, self.steps, self.samples, feedback)
        near = np.asarray(self.simulate(self.state, ctrl + self.tiny_noise, self.steps, feedback).cost)
        # the last worlds: others than those that candidates were compared in, if there are enough
        held = costs[0, self.perturbed][-self.perturbation.worlds :]
        return way, held, np.max(np.abs(near - near[0])) / cost
