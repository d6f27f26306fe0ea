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
import itertools
from typing import Any, NamedTuple

import numpy as np
import scipy.stats

from diffsim.optimize.identify.evidence import Evidence, examine, residual_scale, seen_and_unseen
from diffsim.optimize.identify.least_squares import Outcome, Point, projected, state_slopes
from diffsim.optimize.identify.problem import Problem, make_problem, root_of, windows_of
from diffsim.optimize.identify.recording import Recording
from diffsim.optimize.identify.residuals import MODES
from diffsim.optimize.identify.unknowns import Unknowns
from diffsim.optimize.progress import OutOfTime, Progress
from diffsim.types import Model
from diffsim.types.record import Record, one_word, record, static, whole_number

# seconds between lines of progress
REPORT_EVERY = 1.0
# estimated noise is at least this part of a reading's range, for numbers of 4 and of 8 bytes: below it is the rounding
# of a simulation
LEAST_NOISE = {4: 1e-5, 8: 1e-7}
# the noise of a reading whose rows are too few to estimate it, as a part of its range
ASSUMED_NOISE = 1e-3
# singular values of the information matrix below this part of the largest count as zero; they are squared singular
# values of J
LEAST_INFORMATION = 1e-12
# what the data do not show goes back to the first guess if the sum of squares rises by less than this: 0.3 standard
# deviations
UNSEEN_RISE = 0.1


@record
class Fit(Record):
    """Settings of `fit`. The first six are what a user may want to set; the others have defaults that rarely matter.

    Attributes:
      window: rows of each window; 0 to choose automatically: whole recordings, and where things touch, more and more of
        them, points nearby, and short windows that are then chained.
      held_out: number of windows, the last ones, that only test the result.
      known_start: initial states are taken from the recordings, and are not unknowns.
      iterations: of one search, at most.
      mode: of differentiation: "steps", "forward", "reverse" (residuals.py), or "auto", the cheapest of them.
      starts: number of starts to search from, if the first one does not lead to a minimum that explains the data.
      short_window: rows of the short windows.
      tightness: how far chained windows may fail to meet (m, rad), one value after the other.
      start_candidates: number of points that are evaluated to choose further starts from.
      start_range: how far these points are from the model's parameters where there are no bounds, in sizes of the
        parameters.
      stages: number of stages in which a search sees more and more of a motion with contacts.
      stage_iterations: iterations of each of these searches.
      first_rows: without contacts, far from the solution, this number of rows is fitted first, then three times as
        many.
      far: a start is far if the mean square of the residuals is above this (1 is noise).
      near: points nearby are tried if the mean square is below this.
      close: no further starts are tried if the mean square is below this: they would lead no closer.
      nearby_points: number of points nearby in a round.
      nearby_rounds: most rounds about the best point so far.
      nearby_searches: most searches that continue from a point nearby.
      nearby_reach: distances of these points, in standard deviations, in turn.
      nearby_gain: a further round needs a fall of the cost by this part.
      unknown_start: points nearby do not change a coordinate of a first state whose standard deviation is above this
        (m, rad, and per second).
      remaining_step: where motions jump, a search may end although a step of at most this part of a parameter's size
        remains; this step widens the intervals.
      jump_widening: intervals are at least this factor wider where a motion jumps.
      profile_reach: distances at which the profile likelihood is evaluated, in standard deviations.
      same_minimum: two minima are one if their costs differ by less than this part.
      noise_rounds: how often the noise is estimated anew from the residuals, if the user gives none.
      noise_change: the estimate has converged if no standard deviation changes by more than this factor.
    """

    window: int = static(whole_number, default=0)
    held_out: int = static(whole_number, default=0)
    known_start: bool = static(default=False)
    iterations: int = static(whole_number, default=60)
    mode: str = static(one_word(MODES), default="auto")
    starts: int = static(whole_number, default=4)
    short_window: int = static(whole_number, default=30)
    tightness: tuple[float, ...] = static(default=(1e-2, 1e-4, 1e-6))
    start_candidates: int = static(whole_number, default=32)
    start_range: float = static(default=3.0)
    stages: int = static(whole_number, default=24)
    stage_iterations: int = static(whole_number, default=6)
    first_rows: int = static(whole_number, default=40)
    far: float = static(default=1e4)
    near: float = static(default=10.0)
    close: float = static(default=1.5)
    nearby_points: int = static(whole_number, default=40)
    nearby_rounds: int = static(whole_number, default=12)
    nearby_searches: int = static(whole_number, default=3)
    nearby_reach: tuple[float, ...] = static(default=(0.1, 0.3, 1.0, 3.0))
    nearby_gain: float = static(default=1e-3)
    unknown_start: float = static(default=0.3)
    remaining_step: float = static(default=0.05)
    jump_widening: float = static(default=3.0)
    profile_reach: tuple[float, ...] = static(default=(4.0, 12.0, 36.0))
    same_minimum: float = static(default=1e-4)
    noise_rounds: int = static(whole_number, default=4)
    noise_change: float = static(default=1.1)


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
    def cost(self) -> float:
        """Half the sum of squares."""
        return 0.5 * _squares(self.outcome)

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
    """

    def __init__(
        self, unknowns: Unknowns, noise: Any, start_noise: Any, settings: Fit, progress: Progress | None = None
    ) -> None:
        self.unknowns = unknowns
        self.noise = _checked_noise(unknowns.model, noise)
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
            end = self.from_starts(problem.part(slice(0, problem.count - settings.held_out)), theta)
            if len(ends) and end.good:
                end = self.chained(end)
            ends.append((end, problem))
            if end.good or self.again:
                break
            theta = end.outcome.point.theta
        best, problem = next((pair for pair in ends if pair[0].good), ends[0])
        best, spread = self.surrounded(best)
        return self.unseen_put_back(best), spread, problem

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
        if not _squares(back) - _squares(end.outcome) < UNSEEN_RISE * max(scale, 1.0) ** 2:
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
            if _squares(end.outcome) - float(np.sum(end.problem.residuals(better) ** 2)) < 1:
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
        ends = [self.settled(problem, start)]
        rests = ends[0].problem.rest is not None and ends[0].mean_square < settings.close
        far = search == self.grown or ends[0].mean_square > settings.near
        if far and not chosen and not ends[0].good and theta.size and not rests:
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
            ends = [part.solve(point, settings.stage_iterations)]
            now = np.count_nonzero(ends[0].residuals)
            if _squares(ends[0]) - before > settings.close * (now - count) and point.theta.size:
                # The new rows do not fit: the step led to contacts in another order. A point nearby, among those that
                # the rows so far allow, leads back.
                centers = [ends[0]] if earlier is None else [earlier, ends[0]]
                points = [nearby(part, center, settings) for center in centers]
                ends += [part.solve(each, settings.stage_iterations) for each in points]
            earlier = min(ends, key=_squares)
            point, before, count = earlier.point, _squares(earlier), now
        return self.settled(problem, point)

    def settled(self, problem: Problem, start: Point) -> Ended:
        """One search. If bodies rest on others at first, it tries first whether they stay at rest."""
        touching = bool(problem.motions(start).contacts.any())
        begins = touching and problem.width and start.theta.size and not start.x.any()
        rest = problem.resting(start.theta) if begins else None
        end = self.solved(problem if rest is None else rest, start)
        end = self.continued(end) if touching and not self.settings.window else end
        if rest is None or end.good or end.mean_square < self.settings.close:
            return end
        return min(end, self.solved(problem, start), key=lambda end: end.order)

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

    def solved(self, problem: Problem, start: Point) -> Ended:
        """Least squares from a start, repeated while estimates of the noise change."""
        settings = self.settings
        outcome = problem.solve(self.approached(problem, start), settings.iterations)
        for _ in range(0 if self.noise is not None else settings.noise_rounds):
            rms = _by_sensor(problem.unknowns.model, problem.rms(outcome.point))
            least = LEAST_NOISE[problem.windows.sensordata.dtype.itemsize] * _ranges(problem.measured)
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
        self.apparent_noise = _apparent_noise(self.unknowns.model, np.asarray(windows.sensordata, float))
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


def profile(problem: Problem, outcome: Outcome, settings: Fit) -> tuple[np.ndarray, Point]:
    """The covariance of theta for a motion that jumps, by the profile likelihood.

    Derivatives see the slopes between two jumps, which are steeper than the trend of the cost over many jumps. So each
    parameter is moved to both sides and held there, while all others follow, until the cost has risen by more than one
    standard deviation explains. If it rises too late, the interval of this parameter is widened.

    Returns:
      A covariance (n, n) of theta, and the point of least cost that was seen.
    """
    flat = projected(outcome.blocks).reshape(-1, outcome.point.theta.size)
    covariance = np.linalg.pinv(flat.T @ flat, rcond=LEAST_INFORMATION, hermitian=True)
    deviations = np.sqrt(np.maximum(np.diag(covariance), 0))
    follow = state_slopes(outcome.blocks)
    best = outcome
    wider = np.full(deviations.size, settings.jump_widening)
    for i, side in itertools.product(np.flatnonzero(deviations), (-1.0, 1.0)):
        for reach in settings.profile_reach:
            # along the ridge: the other parameters have the values that a normal distribution expects
            theta = outcome.point.theta + side * reach * covariance[:, i] / deviations[i]
            part = dataclasses.replace(problem, unknowns=problem.unknowns.with_fixed(int(i), theta[i]))
            start = Point(theta, outcome.point.x + follow @ (theta - outcome.point.theta))
            held = part.solve(start, settings.stage_iterations)
            rise = _squares(held) - _squares(outcome)
            best = held if _squares(held) < _squares(best) else best
            wider[i] = max(wider[i], reach / np.sqrt(max(rise, 1.0)))
            if rise > 1:
                break
    return wider[:, None] * covariance * wider + np.outer(outcome.left, outcome.left), best.point


def nearby(problem: Problem, outcome: Outcome, settings: Fit | None = None) -> Point:
    """The point of least cost among random points about a solution, in rounds about the best so far.

    The points are drawn from the normal distribution of theta and first states that the data allow, near and far in
    turn. Where motions jump, no gradient leads to the next lower cost.
    """
    settings = settings or Fit()
    rng = np.random.default_rng(0)
    follow = state_slopes(outcome.blocks)
    best = outcome.point
    unknowns = problem.unknowns
    least = float(np.sum(problem.residuals(best) ** 2))
    flat = projected(outcome.blocks).reshape(-1, best.theta.size)
    root = root_of(np.linalg.pinv(flat.T @ flat, rcond=LEAST_INFORMATION, hermitian=True))
    # standard deviations of first states along the eigenvectors of their information; 0 for those that nothing shows
    values, vectors = np.linalg.eigh(np.einsum("wki,wkj->wij", outcome.blocks.by_x, outcome.blocks.by_x))
    floor = settings.unknown_start**-2
    spread = np.where(values > floor, 1 / np.sqrt(np.maximum(values, floor)), 0)
    for _ in range(settings.nearby_rounds):
        center, before = best, least
        for k in range(settings.nearby_points):
            size = settings.nearby_reach[k % len(settings.nearby_reach)]
            theta = center.theta + size * root @ rng.normal(size=best.theta.size)
            theta = np.clip(theta, unknowns.lower, unknowns.upper)
            turned = np.einsum("wij,wj->wi", vectors, size * spread * rng.normal(size=spread.shape))
            point = Point(theta, center.x + follow @ (theta - center.theta) + turned)
            cost = float(np.sum(problem.residuals(point) ** 2))
            if cost < least:
                best, least = point, cost
        if least > (1 - settings.nearby_gain) * before:
            break
    return best


def _checked_noise(model: Model, noise: Any) -> np.ndarray | None:
    """(ny,) standard deviations from what the user gives.

    Raises:
      ValueError: the wrong shape, or numbers that are not positive.
    """
    if noise is None:
        return None
    count = model.nsensordata
    scale = np.asarray(noise, float)
    if scale.shape not in ((), (1,), (count,)):
        raise ValueError(f"noise has shape {scale.shape}, expected one number or ({count},)")
    if not np.all(scale > 0):
        raise ValueError(f"noise is {noise}, expected positive standard deviations")
    return np.broadcast_to(scale, (count,)).copy()


def _squares(outcome: Outcome) -> float:
    """The sum of squares of the residuals."""
    return float(np.sum(outcome.residuals**2))


def _ranges(measured: np.ndarray) -> np.ndarray:
    """(ny,) the range of each reading (windows, T, ny); for a constant reading the largest range of all, or 1."""
    flat = measured.reshape(-1, measured.shape[-1])
    seen = np.isfinite(flat)
    high = np.max(np.where(seen, flat, -np.inf), axis=0, initial=-np.inf)
    low = np.min(np.where(seen, flat, np.inf), axis=0, initial=np.inf)
    moved = np.where(seen.any(axis=0), high - low, 0)
    return np.where(moved > 0, moved, moved.max(initial=0) or 1.0)


def _apparent_noise(model: Model, measured: np.ndarray) -> np.ndarray:
    """(ny,) the noise of readings (windows, T, ny), from the readings alone.

    Third differences of a smooth motion are nearly zero, so what is left is noise, sqrt(1 + 9 + 9 + 1) times as large.
    Their median, times 1.4826 for a normal distribution, ignores rows with impacts.
    """
    least = LEAST_NOISE[model.qpos0.dtype.itemsize] * _ranges(measured)
    noise = ASSUMED_NOISE * _ranges(measured)
    for i in range(measured.shape[-1]):
        # measured rows may be sparse among the rows of the simulation
        read = [window[np.isfinite(window)] for window in measured[..., i]]
        third = np.abs(np.concatenate([np.diff(part, n=3) for part in read])) / np.sqrt(20)
        if third.size > 1:
            noise[i] = max(1.4826 * float(np.median(third)), 0.2 * float(np.sqrt(np.mean(third**2))))
    return np.maximum(_by_sensor(model, noise), least)


def _by_sensor(model: Model, deviations: np.ndarray) -> np.ndarray:
    """(ny,) the root mean square over the readings of each sensor."""
    pooled = deviations.copy()
    for first, width in zip(model.sensor_adr, model.sensor_dim, strict=True):
        place = slice(int(first), int(first + width))
        pooled[place] = np.sqrt(np.nanmean(deviations[place] ** 2)) if np.isfinite(deviations[place]).any() else np.nan
    return pooled
