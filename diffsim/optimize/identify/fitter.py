"""The search of `fit`: from several starts, over whole recordings or parts of them, until the residuals are noise.

It starts from the model's own parameters. If that ends in no minimum that explains the data (evidence.py), it starts
from other points within the bounds. Where bodies touch, the gradient of the cost does not lead far: if a contact begins
one step later, the cost jumps. The search then fits the beginning of a motion first, and then more and more of it.
Where it is stuck, it tries points nearby. If that fails too, it fits short windows first, and then chains them to one
motion.

Sources: Bock 1983 (several windows); McKay, Beckman and Conover 1979 (latin hypercube of starts); Venzon and Moolgavkar
1988 (profile likelihood).
"""

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import scipy.stats

from diffsim.optimize.identify.carry_over import NARROWER, CarryOver, carry_over, followed, with_prior
from diffsim.optimize.identify.evidence import (
    Evidence,
    Identified,
    ends_at_bound,
    examine,
    residual_scale,
    seen_and_unseen,
)
from diffsim.optimize.identify.information import Information, information_of
from diffsim.optimize.identify.jumps import nearby, profile
from diffsim.optimize.identify.least_squares import Outcome, Point, projected, state_slopes
from diffsim.optimize.identify.missing import Effect, hidden_friction, missing_effects
from diffsim.optimize.identify.noise import apparent_noise, by_sensor, checked_noise, least_noise
from diffsim.optimize.identify.prior import Prior, chosen_prior, with_width
from diffsim.optimize.identify.problem import Problem, make_problem, windows_of
from diffsim.optimize.identify.recording import Recording
from diffsim.optimize.identify.settings import Fit
from diffsim.optimize.identify.unknowns import Unknowns
from diffsim.optimize.progress import OutOfTime, Progress

# stands in for zero in denominators
TINY = 1e-300
# seconds between lines of progress
REPORT_EVERY = 1.0
# what the data do not show goes back to the first guess if the sum of squares rises by less than this: 0.3 standard
# deviations
UNSEEN_RISE = 0.1


# steps of the first search where motions jump
FIRST_STEPS = 20
# an effect that explains this share of the residuals is the reason why a search does not end in noise
MOST = 0.8
# but only where errors are below this part of the motion
NEAR_DATA = 0.1


class Ended(NamedTuple):
    """Where a search ended.

    Attributes:
      problem: with its noise, and its chain of windows.
      outcome: the solution.
      evidence: what its residuals say.
      good: whether nothing is left to search for: the residuals are noise, and at most a small step is left where
        motions jump.
    """

    problem: Problem
    outcome: Outcome
    evidence: Evidence
    good: bool

    @property
    def mean_square(self) -> float:
        """Mean square of the residuals; 1 is noise."""
        return 2 * self.cost / max(np.count_nonzero(self.outcome.residuals), 1)

    @property
    def part_missed(self) -> float:
        """Root mean square of the errors over that of the motion, both in units of the noise."""
        measured = self.problem.measured
        spread = np.where(np.isfinite(measured).any(axis=(0, 1)), np.nanstd(measured, axis=(0, 1)), 0)
        motion = np.sqrt(np.mean((spread / self.problem.noise) ** 2))
        return float(np.sqrt(self.mean_square) / max(motion, TINY))

    @property
    def cost(self) -> float:
        """Half the sum of squares."""
        return 0.5 * self.outcome.squares

    @property
    def order(self) -> tuple[bool, float]:
        """The key by which the ends of one problem are sorted; the best end comes first."""
        return not self.good, self.cost


class Fitter:
    """Searches from several starts, over whole recordings and then, if that does not explain them, over parts of them.

    Attributes:
      unknowns: theta.
      noise: (ny,) standard deviations from the user, or None.
      start_noise: the same of first states.
      settings: of `fit`.
      progress: lines of progress, and the budget of time.
      apparent_noise: (ny,) the noise that the readings of the last problem show by themselves.
      jacobians: how many times derivatives were taken so far.
      again: whether the last start led to a minimum that was found before.
      minima: cost and values at the end of each search from a start, the best first.
      stopped: whether time ran out, or the user interrupted.
      latest: the last problem and point at which derivatives were taken.
      ended: searches that ended, each with the problem of all its windows.
      prior: whether unknowns have a prior about the model's values.
      used: the prior that moved the estimates; None if none did.
      at_bound: (n,) bool, parameters that ended at a bound and were then fixed at the model's values.
      carry_over: how the slower part of the recordings predicts the faster part; None if it was not tried.
      information: what the recordings can tell, at the first guess.
      missing: effects that the model may lack, if it does not explain the data.
      tested: the cost at which these were tested.
    """

    def __init__(
        self,
        unknowns: Unknowns,
        noise: Any,
        start_noise: Any,
        settings: Fit,
        progress: Progress | None = None,
        prior: bool = True,
    ) -> None:
        self.unknowns = unknowns
        self.noise = checked_noise(unknowns.model, noise)
        self.start_noise = start_noise
        self.settings = settings
        self.progress = progress or Progress("fit", None, None)
        self.apparent_noise = np.zeros(0)
        self.jacobians = 0
        self.again = False
        self.minima: list[tuple[float, np.ndarray]] = []
        self.stopped = False
        self.latest: tuple[Problem, Point] | None = None
        self.ended: list[tuple[Ended, Problem]] = []
        self.prior = prior
        self.used: Prior | None = None
        self.at_bound = np.zeros(unknowns.start.size, bool)
        self.carry_over: CarryOver | None = None
        self.missing: list[Effect] = []
        self.information: Information | None = None
        self.tested: float | None = None

    def report(self, text: str) -> None:
        """Shows a line of progress."""
        self.progress.report(f"{text}, {self.jacobians} Jacobians")

    def watch(self, problem: Problem, point: Point | None) -> None:
        """Notes a point at which derivatives are taken; ends the search when time is up."""
        if point is not None:
            self.latest = problem, point
            self.jacobians += 1
            if self.progress.due(REPORT_EVERY):
                errors = problem.errors(point, problem.motions(point))
                self.report(f"residuals are {np.sqrt(np.nanmean(errors**2)):.4g} times the noise")
        self._end_in_time()

    def watch_time(self, problem: Problem, point: Point | None) -> None:
        """As `watch`, for points that are no results: they have other weights, or see a part of the rows."""
        self.jacobians += point is not None
        self._end_in_time()

    def _end_in_time(self) -> None:
        """Ends a search when time is up and there is a result."""
        if self.latest is not None and self.progress.out_of_time:
            raise OutOfTime

    def run(self, recordings: list[Recording]) -> tuple[Ended, np.ndarray | None, Problem]:
        """The whole search, or what it has found when it is stopped.

        Returns:
          The best end; the covariance (n, n) of theta there that jumps cause, or None; and the problem of all windows,
          with the windows that are held out.
        """
        try:
            return self.search(recordings)
        except (KeyboardInterrupt, OutOfTime):
            if self.latest is None:
                raise
            self.stopped = True
            self.report("stopped: the best so far")
        finally:
            self.progress.close()
        # the search may have seen a part of the rows, with bounds of its own: judge its last point by all of them
        problem, point = self.latest
        problem = dataclasses.replace(problem, end=None, unknowns=self.unknowns)
        self.ended.append((self._end(problem, problem.solve(point, 0)), self.all_windows))
        best, problem = min(self.ended, key=lambda pair: (not pair[0].good, self.size(pair[0])))
        return best, None, problem

    def search(self, recordings: list[Recording]) -> tuple[Ended, np.ndarray | None, Problem]:
        """The search of `run` without a time limit: whole recordings first, then short windows if that fails."""
        settings = self.settings
        shortest = min(len(part.ctrl) for part in recordings)
        lengths = [settings.window]
        free = not settings.window and not settings.known_start and not settings.held_out
        if free and shortest >= 2 * settings.short_window:
            lengths.append(settings.short_window)
        ends: list[tuple[Ended, Problem]] = []
        theta = self.unknowns.first
        for rows in lengths:
            problem = self._problem(recordings, rows)
            if settings.held_out >= problem.count:
                raise ValueError(f"{settings.held_out} windows held out of {problem.count}: none is left to fit")
            if self.information is None and self.prior and theta.size and not self.progress.out_of_time:
                self.information = information_of(dataclasses.replace(problem, watch=self.watch_time))
            end = self.from_starts(problem.part(slice(0, problem.count - settings.held_out)), theta)
            if len(ends) and end.good:
                end = self.chained(end)
            ends.append((end, problem))
            if end.good or self.again:
                break
            theta = end.outcome.point.theta
        best, problem = next((pair for pair in ends if pair[0].good), ends[0])
        best, spread = self.surrounded(best)
        best = self.unseen_put_back(best)
        self.test_effects(best)
        best = self.regularized(best)
        best, change = self.searched_for_friction(best)
        if change is not None:
            spread = np.outer(change, change) if spread is None else spread + np.outer(change, change)
        return best, spread, problem

    def searched_for_friction(self, end: Ended) -> tuple[Ended, np.ndarray | None]:
        """The end, and (n,) the change of theta by friction that its residuals hide; None if they hide none."""
        motions = end.problem.motions(end.outcome.point)
        unknown = end.outcome.point.theta.size
        if not end.evidence.explained or motions.contacts.any() or not unknown or self.progress.out_of_time:
            return end, None
        problem = dataclasses.replace(end.problem, watch=self.watch_time)
        try:
            found = hidden_friction(problem, end.outcome, self.apparent_noise if self.noise is None else None)
        except OutOfTime:
            return end, None
        if found is None:
            return end, None
        effect, change = found
        self.missing = [effect]
        if self.carry_over is not None:
            # a model that lacks friction must predict faster motions clearly better
            self.carry_over = self.carry_over._replace(explained=False)
        sentence = "The residuals look like noise, but friction that the model lacks explains a part of them"
        evidence = end.evidence._replace(explained=False, sentence=f"{sentence}: intervals are widened.")
        return end._replace(evidence=evidence), change

    def test_effects(self, end: Ended) -> None:
        """Notes effects that the model may lack, if it does not explain the data."""
        counts = end.problem.motions(end.outcome.point).contacts
        # next to jumps, a small change of the system tells nothing
        if end.evidence.explained or np.any(counts != counts[:, :1]):
            self.missing = []
        elif self.tested is None or not np.isclose(end.cost, self.tested, rtol=self.settings.same_minimum):
            self.report("effects that the model may lack")
            self.tested = end.cost
            problem = dataclasses.replace(end.problem, watch=self.watch_time)
            self.missing = missing_effects(problem, end.outcome, self.apparent_noise if self.noise is None else None)

    def regularized(self, end: Ended) -> Ended:
        """The end with a prior, where that matters; and how the slower rows predict the faster ones."""
        if not self.prior or not end.outcome.point.theta.size:
            return end
        self.report("a prior, and the faster rows predicted from the slower ones")
        problem = dataclasses.replace(end.problem, watch=self.watch_time)
        try:
            return self._regularized(end, problem)
        except OutOfTime:
            self.report("no time is left for them")
            return end

    def _regularized(self, end: Ended, problem: Problem) -> Ended:
        """The end, as `regularized`; `problem` is its problem with another watch."""
        outcome = end.outcome
        explained = end.evidence.explained
        unknowns = self.unknowns
        starts_there = ends_at_bound(unknowns, unknowns.start)
        at_bound = ends_at_bound(unknowns, outcome.point.theta) & ~starts_there
        fixed = at_bound & (not explained)
        prior = chosen_prior(problem, outcome, self.noise is not None, fixed)
        # without these numbers, others may go to their bounds
        while not explained and np.any(more := ends_at_bound(unknowns, prior.theta) & ~fixed & ~starts_there):
            fixed = fixed | more
            prior = chosen_prior(problem, outcome, self.noise is not None, fixed)
        factors = (1.0,) if explained else NARROWER
        priors = {factor: with_width(problem, outcome, prior, factor, fixed) for factor in factors}
        counts = problem.motions(outcome.point).contacts
        # a motion that jumps is not predicted over many contacts, by no numbers
        if np.all(counts == counts[:, :1]):
            self.carry_over = carry_over(problem, outcome, priors, fixed, explained, self.apparent_noise)
        factor = 1.0 if self.carry_over is None else self.carry_over.factor or 1.0
        if not priors[factor].matters and not fixed.any():
            return end
        weighted = with_prior(problem, priors[factor], fixed)
        found = weighted.solve(followed(problem, outcome, priors[factor].theta), 2 * self.settings.stage_iterations)
        # converged if both searches are; what is said is of the one that is not
        told = outcome if found.minimum or not outcome.minimum else found
        there = problem.solve(found.point, 0)
        there = there._replace(message=told.message, minimum=told.minimum, left=outcome.left)
        after = self._end(end.problem, there)
        if explained and not after.evidence.explained:
            return end
        # only now, since they say what the prior did
        self.used = priors[factor]
        self.at_bound = fixed
        return after

    @property
    def width(self) -> np.ndarray | None:
        """(n,) widths of the prior that moved the estimates, as `identify` wants them; None without one."""
        if self.used is None:
            return None
        # residuals have the priors that the user gave
        chosen = np.where(np.isfinite(self.unknowns.prior), np.inf, self.used.width)
        return np.where(self.at_bound, 0.0, chosen)

    def notes(self, identified: Identified) -> list[str]:
        """What the prior did, in sentences."""
        notes = []
        if self.information is not None and self.information.hidden:
            notes.append(str(self.information))
        labels = self.unknowns.labels
        held = np.zeros(len(labels), bool) if identified.by_prior is None else identified.by_prior & ~self.at_bound
        if self.at_bound.any():
            notes.append(f"{_listed(labels, self.at_bound)} would end at a bound; fixed at the value of the model.")
        if held.any():
            notes.append(f"The data say little about {_listed(labels, held)}: the prior holds them near the model.")
        check = self.carry_over
        if check is not None and check.carries and not check.explained:
            notes.append(f"{str(check)[0].upper()}{str(check)[1:]}.")
            if check.factor < 1:
                notes.append(f"That is best with a prior {check.factor:g} times as wide as the evidence says.")
        return notes

    def unseen_put_back(self, end: Ended) -> Ended:
        """Moves theta back to the first guess along the directions that the data do not show.

        Along such a direction a search drifts by rounding or by the curvature of the others, often to a bound.
        """
        problem = end.problem
        point = end.outcome.point
        if not point.theta.size:
            return end
        unknowns = self.unknowns
        size = unknowns.sizes(point.theta)
        sample = problem.sample(point, end.outcome.blocks, self.noise is not None)
        scale = residual_scale(sample, end.evidence)
        unseen, _ = seen_and_unseen(projected(end.outcome.blocks) * size, scale)
        drift = (unseen.T @ (unseen @ ((point.theta - unknowns.start) / size))) * size
        theta = np.clip(point.theta - drift, unknowns.lower, unknowns.upper)
        if np.array_equal(theta, point.theta):
            return end
        start = Point(theta, point.x + state_slopes(end.outcome.blocks) @ (theta - point.theta))
        back = problem.solve(start, self.settings.stage_iterations, "states")
        if not back.squares - end.outcome.squares < UNSEEN_RISE * max(scale, 1.0) ** 2:
            return end
        moved = problem.solve(back.point, 0)
        if end.outcome.minimum and not moved.minimum:
            return end
        return self._end(problem, moved._replace(message=end.outcome.message))

    def surrounded(self, end: Ended) -> tuple[Ended, np.ndarray | None]:
        """The end, or a better one next to it; and the covariance (n, n) of theta that jumps cause, or None."""
        spread = None
        for _ in range(self.settings.nearby_searches):
            if not end.good or not end.outcome.left.any():
                return end, None
            spread, better = profile(end.problem, end.outcome, self.settings)
            if end.outcome.squares - float(np.sum(end.problem.residuals(better) ** 2)) < 1:
                break
            other = self.solved(end.problem, better)
            if not other.good or other.cost > end.cost:
                break
            end = other
        return end, spread

    def size(self, end: Ended) -> float:
        """Mean square of the residuals over the noise that the first search began with: one measure for all ends."""
        noise = self.apparent_noise if self.noise is None else self.noise
        return float(np.nanmean((end.problem.rms(end.outcome.point) / noise) ** 2))

    def from_starts(self, problem: Problem, theta: np.ndarray) -> Ended:
        """The best end of the searches from a start and, if that is not good, from other starts."""
        settings = self.settings
        start = problem.point(theta)
        counts = problem.motions(start).contacts
        chosen = settings.window > 0
        # contacts begin or end: the motion is seen bit by bit
        search = self.grown if np.any(counts != counts[:, :1]) and not chosen else self.settled
        # where motions jump, a few steps show whether the whole motion leads anywhere
        few = min(FIRST_STEPS, settings.iterations) if search == self.grown and theta.size else None
        ends = [self.settled(problem, start, few)]
        rests = ends[0].problem.rest is not None and ends[0].mean_square < settings.close
        if rests and search == self.grown and not ends[0].good:
            ends = [self.settled(ends[0].problem, ends[0].outcome.point)]
        far = search == self.grown or ends[0].mean_square > settings.near
        if ends[0].outcome.minimum and not ends[0].good and theta.size:
            self.test_effects(ends[0])
        # an effect that the model lacks is found by no search; far from the data, an effect may explain much by chance
        lacking = bool(self.missing) and self.missing[0].share > MOST and ends[0].part_missed < NEAR_DATA
        if far and not chosen and not ends[0].good and theta.size and not rests and not lacking:
            ends.append(self.grown(problem, start))
        sizes = [self.size(end) for end in ends]
        # next to a jump there are many ends; if one of them is close, the others are not far from it
        elsewhere = search == self.settled or min(end.mean_square for end in ends) > settings.close
        if settings.starts > 1 and not ends[-1].good and theta.size and elsewhere:
            for other in self.candidates(problem)[: settings.starts - 1]:
                self.report(f"from another start, number {len(ends) + 1}")
                ends.append(search(problem, problem.point(other)))
                sizes.append(self.size(ends[-1]))
                # a minimum that two searches found is accepted: more starts, or shorter windows, would find nothing new
                best = int(np.argmin(sizes[:-1]))
                both = ends[best].outcome.minimum and ends[-1].outcome.minimum
                self.again = both and abs(sizes[-1] / sizes[best] - 1) < settings.same_minimum
                if ends[-1].good or self.again:
                    break
        order = sorted(range(len(ends)), key=lambda i: (not ends[i].good, sizes[i]))
        if few is not None and order[0] == 0 and not ends[0].good and not ends[0].outcome.minimum:
            # a few steps came further than all other searches
            ends[0] = self.settled(ends[0].problem, ends[0].outcome.point)
        self.minima = [(ends[i].cost, self.unknowns.values(ends[i].outcome.point.theta)) for i in order]
        return ends[order[0]]

    def candidates(self, problem: Problem) -> list[np.ndarray]:
        """Starts from a latin hypercube within the bounds, in the order of their costs.

        They are evaluated one after the other, by the program that is already compiled: a batch would need another one.
        """
        unknowns, reach = self.unknowns, self.settings.start_range
        start, size = unknowns.first, np.where(unknowns.log, 0.5, unknowns.sizes(unknowns.start))
        lower = np.where(np.isfinite(unknowns.lower), unknowns.lower, start - reach * size)
        upper = np.where(np.isfinite(unknowns.upper), unknowns.upper, start + reach * size)
        hypercube = scipy.stats.qmc.LatinHypercube(start.size, rng=np.random.default_rng(0))
        drawn = lower + hypercube.random(self.settings.start_candidates) * (upper - lower)
        costs = [float(np.sum(problem.residuals(problem.point(theta)) ** 2)) for theta in drawn]
        return [drawn[i] for i in np.argsort(costs)]

    def chained(self, end: Ended) -> Ended:
        """The end with chained windows, which continue one another: the whole motion says more than its parts."""
        if not np.any(end.problem.follows):
            return end
        now = end
        model = self.unknowns.model
        # velocities may fail to meet by ten times as much as positions, in their units
        scale = np.repeat([1.0, 10.0, 1.0], [model.nv, model.nv, model.na])
        for tightness in self.settings.tightness:
            problem = dataclasses.replace(now.problem, tightness=tightness * scale)
            now = self.settled(problem, now.outcome.point)
            if not now.good:
                return end
        return now

    def grown(self, problem: Problem, start: Point) -> Ended:
        """A search that sees the beginning of the windows first, and then more and more of them.

        Where bodies touch, the gradient of a whole motion's cost does not lead far: as soon as one contact acts
        differently, all later contacts come at other times. A motion that fits up to a contact makes it at about the
        recorded time.
        """
        settings = self.settings
        rows = problem.measured.shape[1]
        point = start
        earlier = None
        before = 0.0
        count = 0
        for end in np.unique(np.linspace(0, rows, settings.stages + 1).astype(int))[1:]:
            part = dataclasses.replace(problem, end=int(end))
            seen = part.residuals(point)
            new = np.count_nonzero(seen) - count
            if earlier is not None and end < rows and np.sum(seen**2) - before < settings.close * new:
                # the fit so far predicts the new rows
                before = float(np.sum(seen**2))
                count += new
                continue
            ends = [part.solve(point, settings.stage_iterations)]
            now = np.count_nonzero(ends[0].residuals)
            enough = before + settings.close * (now - count)
            for center in [ends[0]] if earlier is None else [earlier, ends[0]]:
                if min(each.squares for each in ends) <= enough or not point.theta.size:
                    break
                # The new rows do not fit: the step led to contacts in another order. A point nearby, among those that
                # the rows so far allow, leads back.
                ends.append(part.solve(nearby(part, center, settings, enough), settings.stage_iterations))
            earlier = min(ends, key=lambda outcome: outcome.squares)
            point, before, count = earlier.point, earlier.squares, now
        return self.settled(problem, point)

    def settled(self, problem: Problem, start: Point, steps: int | None = None) -> Ended:
        """A search of at most `steps`. If bodies rest on others at first, it tries first whether they stay at rest."""
        touching = bool(problem.motions(start).contacts.any())
        begins = touching and problem.width and start.theta.size and not start.x.any()
        rest = problem.resting(start.theta) if begins else None
        end = self.solved(problem if rest is None else rest, start, steps)
        end = self.continued(end) if touching and not self.settings.window and steps is None else end
        if rest is None or end.good or end.mean_square < self.settings.close:
            return end
        return min(end, self.solved(problem, start, steps), key=lambda end: end.order)

    def continued(self, end: Ended) -> Ended:
        """The end, or the end of a search from the best point nearby, where motions jump."""
        for _ in range(self.settings.nearby_searches):
            if end.good or end.mean_square > self.settings.near or not end.outcome.point.theta.size:
                break
            other = self.solved(end.problem, nearby(end.problem, end.outcome, self.settings))
            if not other.good and other.cost > 0.99 * end.cost:
                break
            end = other
        return end

    def solved(self, problem: Problem, start: Point, steps: int | None = None) -> Ended:
        """Least squares from a start, in at most `steps`, repeated while estimates of the noise change."""
        settings = self.settings
        outcome = problem.solve(self.approached(problem, start), steps or settings.iterations)
        for _ in range(0 if self.noise is not None or steps else settings.noise_rounds):
            rms = by_sensor(problem.unknowns.model, problem.rms(outcome.point))
            least = least_noise(problem.windows.sensordata.dtype, problem.measured)
            noise = np.where(np.isfinite(rms), np.maximum(rms, least), problem.noise)
            if np.all(np.abs(np.log(noise / problem.noise)) < np.log(settings.noise_change)):
                break
            problem = dataclasses.replace(problem, noise=noise)
            outcome = problem.solve(outcome.point, settings.iterations)
        self.ended.append((self._end(problem, outcome), self.all_windows))
        return self.ended[-1][0]

    def approached(self, problem: Problem, start: Point) -> Point:
        """A better start: theta alone next to contacts, or the first rows of motions that are far off."""
        settings = self.settings
        touching = bool(problem.motions(start).contacts.any())
        rows = problem.measured.shape[1]
        if touching and problem.width and start.theta.size and not start.x.any():
            # next to contacts, first states are near jumps: theta comes first
            start = problem.solve(start, settings.iterations, "theta").point
        end = rows if touching or settings.window or not start.theta.size else settings.first_rows
        while end < rows and np.mean(problem.residuals(start) ** 2) > settings.far:
            # Far from the solution, the simulated motion diverges from the recorded one in time. A fit of the first
            # rows leads to the solution directly, and costs least. A prior holds the parameters that these rows do not
            # show.
            part = dataclasses.replace(problem, end=end, unknowns=problem.unknowns.with_prior_about(start.theta))
            start = part.solve(start, settings.stage_iterations).point
            end = 3 * end
        return start

    def _problem(self, recordings: list[Recording], rows: int) -> Problem:
        """The problem of all windows of this length."""
        windows, follows = windows_of(recordings, rows)
        self.apparent_noise = apparent_noise(self.unknowns.model, np.asarray(windows.sensordata, float))
        problem = make_problem(
            unknowns=self.unknowns,
            windows=windows,
            noise=self.apparent_noise if self.noise is None else self.noise,
            start_noise=self.start_noise,
            known_start=self.settings.known_start,
            mode=self.settings.mode,
            follows=follows,
        )
        self.all_windows = dataclasses.replace(problem, watch=self.watch)
        return self.all_windows

    def _end(self, problem: Problem, outcome: Outcome) -> Ended:
        """Judges the end of a search."""
        sample = problem.sample(outcome.point, outcome.blocks, self.noise is not None)
        evidence = examine(sample, self.apparent_noise)
        small = np.abs(outcome.left) < self.settings.remaining_step * problem.unknowns.sizes(outcome.point.theta)
        good = evidence.explained and (outcome.minimum or bool(np.all(small)))
        return Ended(problem=problem, outcome=outcome, evidence=evidence, good=good)


def _listed(names: list[str], chosen: np.ndarray) -> str:
    """The chosen names (n,) bool, in words."""
    words = [names[i] for i in np.flatnonzero(chosen)]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
