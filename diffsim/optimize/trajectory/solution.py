"""Solution: the result of `plan`, and what it says about itself."""

import math

import numpy as np
from jax import Array

from diffsim.optimize.trajectory.ilqr import Plan
from diffsim.types.record import leaf, record, static

# the goal is reached if at most this share of its cost at the start is left: costs are squares, so a tenth of the way
GOAL_REACHED = 0.01
# a motion holds if it reaches the goal in this share of the perturbed worlds
HOLDS = 0.95
# a motion without a goal is fragile if perturbations raise its mean cost by more than this factor ...
FRAGILE = 1.25
# ... and by more than this share of the cost of zero controls: less is negligible
NEGLIGIBLE = 0.01
# the advice mentions a jump of the cost under noise of 1e-4 if it is above this share of the cost
MENTIONED_JUMP = 0.25
# a motion fell back if it had been nearer to the goal by this factor of the cost, half of the distance
FELL_BACK = 0.25
# why a goal is missed: more than this share of the cost depends on no control ...
UNTOUCHED = 0.5
# ... or more than this share of the controls is at its bounds
SATURATED = 0.8
# the name of the last improvement, by iLQR, which also gives the feedback
POLISH = "the polish"


@record
class Solution(Plan):
    """The result of `plan`: a motion with feedback, like a `Plan` of `ilqr`, and how robust it is.

    The gains are zero if no feedback makes the motion more robust.

    Attributes:
      noisy: (worlds,) costs in worlds that differ from the model as `Perturbation` says, without feedback.
      held: (worlds,) costs with feedback in such worlds. With at least 256 samples, these are other worlds than for
        `noisy`.
      noisy_finals, held_finals: (worlds,) the goal's part of these costs.
      idle: the cost of controls at zero; if pushes or grips are proposed, of controls that hold the robot.
      goal: (2,) the final part of the cost, at the start and at the end.
      nearest: (2,) the least goal cost along the motion, and the step of it; looked for where the goal is missed.
      moved: whether the goal's cost ever changed along the motion; looked for where the goal is missed.
      saturated: share of the controls that are at their bounds.
      steps: number of simulated steps.
      untried: the searches for which there was no time.
    """

    noisy: Array = leaf("worlds")
    held: Array = leaf("worlds")
    noisy_finals: Array = leaf("worlds")
    held_finals: Array = leaf("worlds")
    idle: Array = leaf()
    goal: Array = leaf(2)
    nearest: Array = leaf(2)
    moved: Array = leaf(dtype=bool)
    saturated: Array = leaf()
    steps: Array = leaf(dtype=int)
    untried: tuple[str, ...] = static(default=())

    @property
    def advice(self) -> str:
        """How far the motion can be trusted, in a few sentences."""
        cost = float(self.cost)
        start, end = (float(value) for value in self.goal)
        goal = f", and the cost of the goal falls from {start:.3g} to {end:.3g}" if start > 0 else ""
        said = [f"The motion costs {cost:.3g}; doing nothing costs {float(self.idle):.3g}{goal}."]
        if float(self.leaps) > MENTIONED_JUMP:
            jump = f"noise of 1e-4 on the controls changes the cost by {float(self.leaps) * cost:.2g}"
            said.append(f"A contact is just made or just missed: {jump}, and so may rounding (optimize.evaluate).")
        if start > 0 and not end <= GOAL_REACHED * start:
            return " ".join([*said, *self._why_missed()])
        return " ".join([*said, self._how_robust() if start > 0 else self._how_robust_in_cost()])

    def reached(self, finals: Array) -> np.ndarray:
        """(worlds,) whether the goal is reached, given its cost in each world."""
        return np.asarray(finals) <= GOAL_REACHED * float(self.goal[0])

    def _left(self, final: float) -> str:
        """How much of the way to the goal is left, given its cost."""
        return f"{math.sqrt(final / float(self.goal[0])):.0%} of the way" if math.isfinite(final) else "everything"

    def _why_missed(self) -> list[str]:
        """Sentences on a motion that does not reach the goal: how far it came, what is in the way, what to try."""
        end = float(self.goal[1])
        nearest, step = (float(value) for value in self.nearest)
        said = [f"It does not reach the goal: {self._left(end)} is left."]
        if nearest < FELL_BACK * end:
            said.append(f"It was nearer at step {step:.0f}, with {self._left(nearest)} left, and went away again.")
        if not self.moved:
            said.append("Nothing that the goal depends on ever moved: the robot did not touch it.")
        elif float(self.unreached) > UNTOUCHED:
            said.append(f"No control ever acts on what {float(self.unreached):.0%} of the cost depends on.")
        if float(self.saturated) > SATURATED:
            said.append(f"{float(self.saturated):.0%} of the controls are at their bounds.")
        if self.untried:
            said.append(f"There was no time for {', '.join(self.untried)}: give it more seconds.")
        else:
            said.append("Give it more steps, or another key.")
        return said

    def _how_robust(self) -> str:
        """A sentence on a motion that reaches the goal: in how many perturbed worlds it does."""

        def among(finals: Array) -> str:
            """Such as "in 61 of 64 perturbed worlds; in the worst, 14% of the way is left"."""
            reached = self.reached(finals)
            return (
                f"reaches the goal in {reached.sum()} of {reached.size} perturbed worlds; in the worst, "
                f"{self._left(float(np.max(finals)))} is left"
            )

        alone, held = among(self.noisy_finals), among(self.held_finals)
        if np.mean(self.reached(self.noisy_finals)) >= HOLDS:
            return f"It holds: it {alone}."
        if not np.any(np.asarray(self.gains)):
            feedback = "there was no time for a feedback" if POLISH in self.untried else "no feedback helps"
            return f"Fragile: it {alone}, and {feedback}; replan while it runs (optimize.mpc)."
        if np.mean(self.reached(self.held_finals)) >= HOLDS:
            return f"It holds with its feedback (gains), with which it {held}. Without, it {alone}."
        instead = "plan with robust='mean', or replan while it runs (optimize.mpc)"
        return f"Fragile: it {alone}. With its feedback (gains), it {held}; {instead}."

    def _how_robust_in_cost(self) -> str:
        """A sentence on a motion without a goal: what it costs in perturbed worlds."""
        noisy = np.asarray(self.noisy)
        cost = float(self.cost)
        idle = float(self.idle)
        mean, worst = float(noisy.mean()), float(noisy.max())
        under = f"{mean:.3g} +- {float(noisy.std()):.2g} in {noisy.size} perturbed worlds, {worst:.3g} in the worst"
        enough = FRAGILE * cost + NEGLIGIBLE * idle
        held = float(np.mean(self.held))
        if not mean <= enough and held <= enough:
            return f"It holds with its feedback (gains): {held:.3g} in perturbed worlds; without: {under}."
        if not mean <= enough:
            under = f"{under}; with its feedback (gains) {held:.3g}"
            return f"Fragile: {under}; plan with robust='mean', or replan while it runs (optimize.mpc)."
        if not mean <= 2 * cost:
            return f"It costs more in perturbed worlds, {under}, but little compared with doing nothing."
        return f"It holds: {under}."
