"""Planner: the search for one motion. plan.py is the public call.

The order of a search is `Planner.explore`: pushes and grips that geometry proposes, if there are any, then attempts of
three kinds, each refined, until one reaches the goal; then, if the best is fragile, a refinement in perturbed worlds.
`Planner.solution` polishes the best and measures how robust it is.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.optimize.progress import OutOfTime
from diffsim.optimize.trajectory.ilqr import LEAPS, PROMISED, UNREACHED
from diffsim.optimize.trajectory.perturbation import Candidate, Polished, row_of
from diffsim.optimize.trajectory.sampling import (
    SHARES,
    Attempt,
    Proposal,
    Worlds,
    draw,
    learn,
    opening,
    piece_centers,
    propose,
    quick_jit,
    spread,
)
from diffsim.optimize.trajectory.settings import Level
from diffsim.optimize.trajectory.solution import FRAGILE, NEGLIGIBLE, POLISH, Solution
from diffsim.optimize.trajectory.tree import Goal, search_tree
from diffsim.optimize.trajectory.trials import POLISH_TIME, SEARCH_TIME, AnyArray, Trials
from diffsim.types import State

Array = jax.Array

# the first level of a search over the whole horizon draws this many batches in its first round: nothing is known yet
FIRST_BATCHES = 4
# a receding plan looks over the horizon divided by this, but at least over `PlanSettings.long_horizon` divided by this
RECEDING = 4
# rounds of the first receding plan, as a multiple of the rounds of the others, which begin from the plan before
FIRST_ROUNDS = 3
# after its first round, a search among pushes and grips shares the time that is left as if this many searches were to
# come: most of it is its own
NEXT_SEARCHES = 2
_learn = quick_jit(
    lambda task, old, knots, costs, how: learn(task, old, jnp.concatenate(knots), jnp.concatenate(costs), how)
)


class Planner(Trials):
    """The search for one motion."""

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
        proposal, detail = opening(self.task, jnp.asarray(ctrl), pieces, level.deviation, room=self.room)
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
        if self.contacts is not None:
            searches.insert(0, ("pushes and grips", self.search_contacts))
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

    def search_contacts(self) -> None:
        """Pushes and grips that geometry proposes."""
        assert self.contacts is not None
        self.turn += 1
        first = True

        def cost(ctrl: np.ndarray) -> np.ndarray:
            return np.asarray(self.simulate(self.state, ctrl, self.steps).cost)

        for found in self.contacts.search(cost, self._seed(), late=lambda: self.late):
            # the best ones, compared in perturbed worlds
            self.candidates += self.evaluate(found.ctrl[:SHARES], self.steps)
            self.report("a grip" if len(found.mode.effectors) > 1 else "a push")
            self.newton_steps.start()
            if first:
                # compilation does not count: it took the time that this search was given
                self.deadline = self._end_of_search(NEXT_SEARCHES)
                first = False

    def _seed(self) -> int:
        """A seed for numpy's random numbers, which belongs to this turn."""
        return int(jax.random.randint(jax.random.fold_in(self.key, self.turn), (), 0, 1 << 30))

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
        if not self.newton_steps.ready(self.left):
            raise OutOfTime
        slope = self.newton_steps(self.idle.motion, self.settings.regularization).depends

        def simulate(begin: State, ctrl: np.ndarray, length: int) -> Attempt:
            return self.simulate(Worlds(leaves=self.worlds.nominal, state=begin), ctrl, length)

        self.turn += 1
        found = search_tree(
            self.task,
            self.state,
            steps=self.steps,
            samples=self.samples,
            seed=self._seed(),
            goal=Goal(start=self.goal, reached=self.settings.goal_reached * self.goal, slope=np.asarray(slope)),
            simulate=simulate,
            settings=self.settings.tree,
            more=more,
            late=lambda: self.late,
        )
        self.add(found, "a tree of motions")

    # the end

    def solution(self) -> Solution:
        """Polishes the candidate of best rank, if there is time, and measures how robust it is."""
        self.deadline = self._until(POLISH_TIME)
        best = min(self.candidates, key=self.rank, default=self.idle)
        # the program of the polish may still be compiled when the time is up
        polished = None if self.late or not self.newton_steps.ready(self.left) else self.improved(best)
        settled = False
        promised, unreached = np.inf, 0.0
        iterations = 0
        if polished is not None:
            best, steps = polished.candidate, polished.steps
            cost = max(best.cost, float(np.finfo(np.float32).tiny))
            promised = np.max(np.nan_to_num(steps.promised)) / cost
            unreached = np.asarray(steps.unreached) / cost
            settled = polished.settled and promised <= PROMISED and unreached <= UNREACHED
            iterations = polished.iterations
        feedback = self.choose_feedback(best, None if polished is None else polished.steps)
        motion, ctrl = best.motion, np.asarray(best.motion.ctrl)
        nearest, moved = self.looks(best)
        return Solution(
            states=motion.states,
            ctrl=motion.ctrl,
            cost=motion.cost,
            status=motion.status,
            gains=feedback.gains,
            iterations=jnp.asarray(iterations),
            converged=jnp.asarray(settled and feedback.leaps <= LEAPS),
            promised=jnp.asarray(promised),
            unreached=jnp.asarray(unreached),
            leaps=jnp.asarray(feedback.leaps),
            noisy=jnp.asarray(best.costs),
            held=jnp.asarray(feedback.costs),
            noisy_finals=jnp.asarray(best.finals),
            held_finals=jnp.asarray(feedback.finals),
            idle=self.idle.motion.cost,
            goal=jnp.asarray([self.goal, best.final]),
            nearest=jnp.asarray(nearest),
            moved=jnp.asarray(moved),
            saturated=jnp.asarray(np.mean((ctrl <= self.bounds[0]) | (ctrl >= self.bounds[1]))),
            steps=jnp.asarray(self.simulated),
            untried=(*(() if self.reached(best) else self.untried), *((POLISH,) if polished is None else ())),
        )

    def improved(self, searched: Candidate) -> Polished:
        """The polished motion, or the motion itself if it is the better one in all perturbed worlds."""
        polished = self.polish(searched, self.settings.polish_iterations)
        # both again in all perturbed worlds, since the polish saw a few of them
        both = [
            self.evaluate(np.asarray(candidate.motion.ctrl)[None], self.steps)[0]
            for candidate in (polished.candidate, searched)
        ]
        best = min(both, key=lambda candidate: (self.rank(candidate)[0], candidate.cost))
        self.report(f"polished from {searched.cost:.4g} to {best.cost:.4g}")
        if best is both[0]:
            return polished._replace(candidate=best)
        steps = self.newton_steps(best.motion, self.settings.regularization)
        return Polished(candidate=best, steps=steps, iterations=0, settled=False)
