"""Trials: motions tried in the model and in perturbed worlds, compared, and polished.

This is what every search of a plan needs (planner.py): all samples of a round are simulated side by side by one
compiled program, and a few motions are compared in the same perturbed worlds.
"""

from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.optimize.progress import Progress
from diffsim.optimize.tangent import tangent_size
from diffsim.optimize.trajectory.contact_search import propose_contacts
from diffsim.optimize.trajectory.perturbation import (
    Candidate,
    Held,
    Perturbation,
    Polished,
    candidates,
    kinds_of_worlds,
    perturb,
    perturbed_worlds,
)
from diffsim.optimize.trajectory.sampling import (
    SHARES,
    Attempt,
    Feedback,
    NewtonStepper,
    NewtonSteps,
    Worlds,
    attempts,
    quick_jit,
    repeated,
)
from diffsim.optimize.trajectory.settings import PlanSettings
from diffsim.optimize.trajectory.task import Task
from diffsim.types import State

Array = jax.Array
AnyArray = Array | np.ndarray
Robust = Literal["mean", "worst quarter"]

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
# the goal's cost has not changed if it stays within this share of its value at the start
UNMOVED = 1e-3

_copies = quick_jit(lambda tree, count: jax.tree.map(lambda x: repeated(x, count), tree), static_argnums=1)


class Trials:
    """What is known of the motions of one plan, and how they are tried, ranked and polished.

    Attributes:
      candidates: the motions that were found, in order.
      attempt: index of the first candidate of the present attempt; `best` looks at these alone.
      goal_weight: the present extra weight of the goal's cost; 0 unless the goal is pressed.
      in_worlds: whether samples are tried in perturbed worlds at present, instead of the model.
      simulated: number of steps so far.
      turn: number of random draws so far; each one has its own key.
      deadline: s since the call began, at which the present search ends; None for never.
      untried: names of the searches that were not begun.
      contacts: the pushes and grips that geometry proposes, or None.
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
        self.bounds = np.asarray(task.lower), np.asarray(task.upper)
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
        self.contacts = propose_contacts(task, state, steps, self.samples, settings.contacts)
        if self.contacts is not None:
            # servo targets near what the robot may touch; doing nothing is to stay
            task = self.task = task.replace(lower=self.contacts.lower, upper=self.contacts.upper)
            self.zero_ctrl = self.zero_ctrl * 0 + self.contacts.hold
        self.newton_steps = NewtonStepper(task, state, self.zero_ctrl, self.samples)
        if self.contacts is None:
            # first of all, since it compiles longest; the rest compiles meanwhile
            self.newton_steps.start()
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

    @property
    def left(self) -> float | None:
        """The time that is left for what is under way, s; None without a budget."""
        return None if self.deadline is None else max(0.0, self.deadline - self.progress.elapsed)

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

    def add_guess(self, ctrl: np.ndarray) -> None:
        """Adds the caller's controls (T, nu), which may be outside of the bounds that proposals narrow."""
        lower, upper = np.minimum(self.task.lower, ctrl.min(axis=0)), np.maximum(self.task.upper, ctrl.max(axis=0))
        within = np.maximum(lower, self.bounds[0]), np.minimum(upper, self.bounds[1])
        self.task = self.task.replace(lower=jnp.asarray(within[0]), upper=jnp.asarray(within[1]))
        self.newton_steps.task = self.task
        self.add(ctrl, "the guess")

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

    def looks(self, candidate: Candidate) -> tuple[tuple[float, int], bool]:
        """The least goal cost along a motion and its step, and whether the goal's cost ever changed.

        Looked for if the goal is missed and there is time.
        """
        costs = {self.steps: candidate.final}
        if not self.goal > 0 or self.reached(candidate) or self.late:
            return (candidate.final, self.steps), True
        ctrl = np.repeat(np.asarray(candidate.motion.ctrl)[None], self.samples, axis=0)
        for step in {self.steps * k // LOOKS for k in range(1, LOOKS)} - {0}:
            costs[step] = float(self.simulate(self.state, ctrl, step).final[0])
        step = min(costs, key=lambda step: (costs[step], -step))
        moved = any(not abs(cost - self.goal) < UNMOVED * self.goal for cost in costs.values())
        return (costs[step], step), moved

    def choose_feedback(self, candidate: Candidate, steps: NewtonSteps | None) -> Held:
        """The gains of least robust cost, of all regularizations; zero gains if feedback makes it worse.

        It does if it clearly costs more, or if fewer of the perturbed worlds reach the goal.
        """
        without = self.held(candidate, self.no_feedback)
        if steps is None:
            return without
        share = self.samples // SHARES
        rivals = np.repeat(np.asarray(candidate.motion.ctrl)[None], SHARES, axis=0)
        ((_, costs),) = self.simulate_perturbed(self.state, rivals, self.steps, share, steps.feedback)
        way = int(np.argmin(self.robust_cost(costs[:, self.perturbed[:share]])))
        held = self.held(candidate, steps.feedback._replace(way=jnp.asarray(np.full(self.samples, way, np.int32))))
        cheap = self.robust_cost(held.costs) <= FEEDBACK_MAY_COST * self.robust_cost(without.costs)
        at_goal = [np.sum(each.finals <= self.settings.goal_kept * self.goal) for each in (held, without)]
        return held if cheap and at_goal[0] >= at_goal[1] else without

    def held(self, candidate: Candidate, feedback: Feedback) -> Held:
        """How a motion fares with a feedback in all perturbed worlds."""
        ctrl = np.asarray(candidate.motion.ctrl)[None]
        ((did, costs),) = self.simulate_perturbed(self.state, ctrl, self.steps, self.samples, feedback)
        near = np.asarray(self.simulate(self.state, ctrl + self.tiny_noise, self.steps, feedback).cost)
        most = self.perturbation.worlds
        return Held(
            gains=feedback.gains[int(feedback.way[0])],
            # the last worlds: others than those that candidates were compared in, if there are enough
            costs=costs[0, self.perturbed][-most:],
            finals=np.asarray(did.final)[self.perturbed][-most:],
            leaps=np.max(np.abs(near - near[0])) / max(candidate.cost, float(np.finfo(np.float32).tiny)),
        )
