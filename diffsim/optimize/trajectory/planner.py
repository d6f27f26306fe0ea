"""Planner: the search for one motion. plan.py is the public call.

The order of a search is `Planner.explore`: attempts of three kinds, each refined, until one reaches the goal; then, if
the best is fragile, a refinement in perturbed worlds. `Planner.solution` polishes the best and measures how robust it
is.
"""

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
    Held,
    Perturbation,
    candidates,
    kinds_of_worlds,
    perturb,
    perturbed_worlds,
    row_of,
)
from diffsim.optimize.trajectory.sampling import (
    SHARES,
    Attempt,
    Feedback,
    NewtonStepper,
    NewtonSteps,
    Proposal,
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
from diffsim.optimize.trajectory.settings import Level, PlanSettings
from diffsim.optimize.trajectory.solution import FRAGILE, NEGLIGIBLE, Solution
from diffsim.optimize.trajectory.task import Task
from diffsim.optimize.trajectory.tree import Goal, search_tree
from diffsim.types import State

Array = jax.Array
AnyArray = Array | np.ndarray
Robust = Literal["mean", "worst quarter"]

# the first level of a search over the whole horizon draws this many batches in its first round: nothing is known yet
FIRST_BATCHES = 4
# a receding plan looks over the horizon divided by this, but at least over `PlanSettings.long_horizon` divided by this
RECEDING = 4
# rounds of the first receding plan, as a multiple of the rounds of the others, which begin from the plan before
FIRST_ROUNDS = 3
# the slack of the polish is relative to the cost, or to this fraction of the cost of zero controls if that is more: a
# cost near zero is noise
LEAST_COST = 0.1
# of the budget of time, the searches end at this share: the rest is for the polish and for what the advice measures ...
SEARCH_TIME = 0.8
# ... of which the polish ends at this share
POLISH_TIME = 0.9
# feedback may raise the robust cost by this factor, since it also helps against larger deviations
FEEDBACK_MAY_COST = 1.5
# a motion that misses the goal is split into this many equal parts, to see whether it was nearer after one of them
LOOKS = 8


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
      deadline: s since the call began, at which the present search ends; None for never.
      untried: names of the searches that were not begun.
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
        self.deadline = self._until(SEARCH_TIME)
        self.untried: tuple[str, ...] = ()
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
        """Whether the time for what is under way is used up."""
        return self.deadline is not None and self.progress.elapsed > self.deadline

    def _until(self, share: float) -> float | None:
        """The time since the call began at which a share of the budget is used up, s; None without a budget."""
        return None if self.progress.seconds is None else share * self.progress.seconds

    def _end_of_search(self, left: int) -> float | None:
        """When the next of `left` searches ends: shares of time fall linearly, as 5, 4, 3, 2, 1 for five searches."""
        end, now = self._until(SEARCH_TIME), self.progress.elapsed
        return None if end is None else now + 2 / (left + 1) * max(0.0, end - now)

    # what is better

    @property
    def best(self) -> Candidate:
        """The candidate of least objective in the present attempt."""
        return min(self.candidates[self.attempt :], key=self.objective)

    def objective(self, candidate: Candidate) -> float:
        """What sampling minimizes: the cost in the model, in which the goal may count more."""
        return candidate.cost + self.goal_weight * candidate.final

    def rank(self, candidate: Candidate) -> tuple[int, float]:
        """Ranks candidates, the best with the least: by how many thresholds the goal is missed, then the robust cost.

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
            # in perturbed worlds a quarter of the samples, each in eight worlds, costs twice as much as all samples in
            # the model
            size = 2 * (self.samples // self.settings.robust_worlds) if self.in_worlds else self.samples
            # tiny noise, different in each round: a motion that owes its cost to rounding is seldom lucky twice
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
            try:
                proposal = self.sample(self.state, proposal, pieces, self.steps, detail, batches=many)
            except OutOfTime:
                if not best:
                    raise
                break
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
        ways = [("the whole horizon", self.search_whole_horizon), ("receding horizons", self.search_receding)]
        first, second = ways[::-1] if self.steps >= settings.long_horizon else ways
        if self.goal > 0:
            small = ("a tree of motions", self.search_tree)
            large = ("a larger tree", functools.partial(self.search_tree, more=settings.tree_growth))
            searches = [first, small, second, (f"{first[0]} again", first[1]), large]
        else:
            searches = [first, second]
        for number, (_, search) in enumerate(searches):
            self.untried = tuple(name for name, _ in searches[number + 1 :])
            self.deadline = self._end_of_search(len(searches) - number)
            try:
                self.attempt_by(search)
            except OutOfTime:
                end = self._until(SEARCH_TIME)
                if end is None or self.progress.elapsed > end:
                    raise
                self.report("its share of the time is used up")
            if any(map(self.reached, self.candidates)):
                break
        self.deadline = self._until(SEARCH_TIME)
        best = min(self.candidates, key=self.rank)
        lost = self.reached(best) and not self.kept(best)
        fragile = not np.mean(best.costs) <= FRAGILE * best.cost + NEGLIGIBLE * self.idle.cost
        if self.robust or lost or fragile:
            self.in_worlds = True
            levels = settings.robust_refinement if self.robust else settings.fragile_refinement
            self.refine(levels, "made robust", settings.goal_weight * lost, best)

    def attempt_by(self, search: Callable[[], None]) -> None:
        """One search and the refinement of what it finds."""
        # an attempt is refined even if an earlier one found a lower cost, since it may lead to the goal
        self.attempt = len(self.candidates) if self.turn else 0
        search()
        at_goal = any(map(self.reached, self.candidates[self.attempt :]))
        self.refine(self.settings.refinement, "refined", self.settings.goal_weight * at_goal)
        self.press()

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
            try:
                for _ in range(settings.rounds * (1 if done else FIRST_ROUNDS)):
                    proposal = self.sample(state, proposal, pieces, horizon, no_detail)
            except OutOfTime:
                if not taken:
                    raise
                # what was driven so far, and then nothing
                taken.append(self.zero_ctrl[done:])
                break
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
            late=lambda: self.late,
        )
        self.add(found, "a tree of motions")

    # the end

    def polish(self, candidate: Candidate, iterations: int) -> Polished:
        """Newton steps that lower the cost, keep the goal, and cost no more in perturbed worlds.

        Each iteration tries steps of `SHARES` regularizations and many sizes at once in the model. The best size of
        each regularization, except for the worst regularization, then competes with the motion itself in the same
        perturbed worlds.
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
        self.deadline = self._until(POLISH_TIME)
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
        feedback = self.choose_feedback(best, steps)
        bounds, ctrl = (np.asarray(self.task.lower), np.asarray(self.task.upper)), np.asarray(motion.ctrl)
        return Solution(
            states=motion.states,
            ctrl=motion.ctrl,
            cost=motion.cost,
            status=motion.status,
            gains=feedback.gains,
            iterations=jnp.asarray(polished.iterations),
            converged=jnp.asarray(
                polished.settled and promised <= PROMISED and unreached <= UNREACHED and feedback.leaps <= LEAPS
            ),
            promised=jnp.asarray(promised),
            unreached=jnp.asarray(unreached),
            leaps=jnp.asarray(feedback.leaps),
            noisy=jnp.asarray(best.costs),
            held=jnp.asarray(feedback.costs),
            noisy_finals=jnp.asarray(best.finals),
            held_finals=jnp.asarray(feedback.finals),
            idle=self.idle.motion.cost,
            goal=jnp.asarray([self.goal, best.final]),
            nearest=jnp.asarray(self.nearest(best)),
            saturated=jnp.asarray(np.mean((ctrl <= bounds[0]) | (ctrl >= bounds[1]))),
            steps=jnp.asarray(self.simulated),
            untried=() if self.reached(best) else self.untried,
        )

    def nearest(self, candidate: Candidate) -> tuple[float, int]:
        """The least goal cost along a motion, and its step; looked for if the goal is missed and there is time."""
        end = (candidate.final, self.steps)
        if not self.goal > 0 or self.reached(candidate) or self.late:
            return end
        ctrl = np.repeat(np.asarray(candidate.motion.ctrl)[None], self.samples, axis=0)
        looks = [self.steps * k // LOOKS for k in range(1, LOOKS)]
        return min([end, *((float(self.simulate(self.state, ctrl, step).final[0]), step) for step in looks if step)])

    def choose_feedback(self, candidate: Candidate, steps: NewtonSteps) -> Held:
        """The gains of least robust cost, of all regularizations; zero gains if feedback clearly costs more."""
        motion, share, most = candidate.motion, self.samples // SHARES, self.perturbation.worlds
        ctrl = np.asarray(motion.ctrl)[None]
        rivals = np.repeat(ctrl, SHARES, axis=0)
        ((_, costs),) = self.simulate_perturbed(self.state, rivals, self.steps, share, steps.feedback)
        way = int(np.argmin(self.robust_cost(costs[:, self.perturbed[:share]])))
        chosen = steps.feedback._replace(way=jnp.asarray(np.full(self.samples, way, np.int32)))
        # with these gains and without, in all worlds
        tried = []
        for feedback in (self.no_feedback, chosen):
            ((did, costs),) = self.simulate_perturbed(self.state, ctrl, self.steps, self.samples, feedback)
            near = np.asarray(self.simulate(self.state, ctrl + self.tiny_noise, self.steps, feedback).cost)
            tried.append(
                Held(
                    gains=feedback.gains[int(feedback.way[0])],
                    # the last worlds: others than those that candidates were compared in, if there are enough
                    costs=costs[0, self.perturbed][-most:],
                    finals=np.asarray(did.final)[self.perturbed][-most:],
                    leaps=np.max(np.abs(near - near[0])) / max(candidate.cost, float(np.finfo(np.float32).tiny)),
                )
            )
        without, held = tried
        return held if self.robust_cost(held.costs) <= FEEDBACK_MAY_COST * self.robust_cost(without.costs) else without
