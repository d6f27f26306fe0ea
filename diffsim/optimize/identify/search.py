"""The search of `fit`: from several starts, over whole recordings or parts of them, until residuals are noise.

From the model's numbers first; where that ends in no minimum that explains the data (evidence.py), from others within
the bounds. Where things touch, a search sees more and more of a motion, from its begin, and looks around where it is
stuck: a contact that begins a step later makes a jump, which has no slope. Where that fails too, windows are short at
first and then chained to one motion. Sources: Bock 1983 for several windows; McKay, Beckman and Conover 1979 for the
starts.
"""

import itertools
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.stats

from diffsim.optimize.identify.evidence import Evidence, examine
from diffsim.optimize.identify.least_squares import Outcome, Point, projected, state_slopes
from diffsim.optimize.identify.problem import Problem, root_of, windows_of
from diffsim.optimize.identify.recording import Recording
from diffsim.optimize.identify.residuals import MODES
from diffsim.optimize.identify.unknowns import Unknowns
from diffsim.types import Model
from diffsim.types.record import Record, one_word, record, static, whole_number

# rows of windows where things touch, and how far chained windows may fail to meet: (m, rad), one after the other
SHORT, TIGHTNESS = 30, (1e-2, 1e-4, 1e-6)
# starts that are looked at, and from which a search goes on; how far from the model's number where there are no bounds
LOOKED_AT, FOLLOWED, RANGE = 32, 4, 3.0
# how many times a search sees more of windows in which contacts begin, and how many steps it tries in between
STAGES, BETWEEN = 24, 6
# where squared residuals are this many times their noise's, points nearby are tried, so many in a round, and where they
# are no more than this other starts would lead no closer
NEAR, SHAKEN, ROUNDS, NEARBY, CLOSE = 10.0, 3, 12, 40, 1.5
# where squared residuals are this many times their noise's and nothing touches, so many rows are fitted first, then
# three times as many
BEGIN, FAR = 40, 1e4
# seconds between lines of progress
EVERY = 1.0
# standard deviation of a first state (m, rad, and a second of it) beyond which it is not searched
VAGUE = 0.3
# how far points are drawn about a solution, in standard deviations, and by which part they must lower the cost to go on
REACHES, WORTH = (0.1, 0.3, 1.0, 3.0), 1e-3
# where the data are explained and motions jump, a step that is left may be this part of a number; it widens intervals
LEFT = 0.05
# how much wider intervals are at least where a motion jumps, and how many standard deviations are tried beyond them
JUMPY, SIDEWAYS = 3.0, (4.0, 12.0, 36.0)
# minima whose costs differ by less than this part are one
SAME = 1e-4
# how often weights follow residuals where the noise is not known, and changes that matter
REWEIGHED, CHANGED = 4, 1.1
# noise is at least this part of a reading's range, by bytes of a number
LEAST_NOISE = {4: 1e-5, 8: 1e-7}


@record
class Fit(Record):
    """Settings of `fit`.

    Attributes:
      window: rows of each window; 0 to choose: whole recordings, and where things touch more and more of them, points
        nearby, and short ones that are then chained.
      held_out: how many windows, the last ones, only test the result.
      known_start: initial states are those of the recordings, no unknowns.
      iterations: of a search, at most.
      mode: of differentiation: "steps", "forward", "reverse" (residuals.py), or "auto", the cheapest of them.
      starts: from how many starts to search, if the first does not lead to a minimum that explains the data.
    """

    window: int = static(whole_number, default=0)
    held_out: int = static(whole_number, default=0)
    known_start: bool = static(default=False)
    iterations: int = static(whole_number, default=60)
    mode: str = static(one_word(MODES), default="auto")
    starts: int = static(whole_number, default=FOLLOWED)


class Ended(NamedTuple):
    """Where a search ended: its problem (noise, chain), the solution, and what its residuals say."""

    problem: Problem
    outcome: Outcome
    evidence: Evidence

    @property
    def good(self) -> bool:
        """Whether there is nothing left to search for: noise, and at most a small step that jumps do not allow."""
        if not self.evidence.explained:
            return False
        unknowns, left = self.problem.unknowns, np.abs(self.outcome.left)
        return self.outcome.minimum or bool(np.all(left < LEFT * unknowns.sizes(self.outcome.point.theta)))

    @property
    def noises(self) -> float:
        """The mean square of residuals."""
        return 2 * self.cost / max(np.count_nonzero(self.outcome.residuals), 1)

    @property
    def cost(self) -> float:
        """Half the sum of squares."""
        return 0.5 * float(np.sum(self.outcome.residuals**2))


class Search:
    """Searches from several starts, over whole recordings and then, where that does not explain them, parts of them.

    Attributes:
      unknowns: theta.
      noise: (ny,) the user's, or None; start_noise: of first states.
      apparent_noise: (ny,) the noise that the readings of the last problem show by themselves.
      settings: of `fit`.
      jacobians: how many were taken so far.
      again: whether two starts led to the same minimum.
      minima: of each search that came to its end the cost and the values, the best first.
      stopped: whether time ran out, or a user did not want to wait.
    """

    def __init__(self, unknowns: Unknowns, noise: Any, start_noise: Any, settings: Fit) -> None:
        self.unknowns, self.start_noise, self.settings = unknowns, start_noise, settings
        self.jacobians, self.again, self.stopped, self.said = 0, False, False, 0.0
        # the last point that derivatives were taken at; of searches that ended, their ends, and all windows
        self.latest: tuple[Problem, Point] | None = None
        self.ended: list[tuple[Ended, Problem]] = []
        self.minima, self.apparent_noise = list[tuple[float, np.ndarray]](), np.zeros(0)
        self.noise: np.ndarray | None = None
        if noise is not None:
            count, scale = unknowns.model.nsensordata, np.asarray(noise, float)
            if scale.shape not in ((), (1,), (count,)):
                raise ValueError(f"noise has shape {scale.shape}, expected one number or ({count},)")
            if not np.all(scale > 0):
                raise ValueError(f"noise is {noise}: standard deviations are positive")
            self.noise = np.broadcast_to(scale, (count,)).copy()

    def say(self, text: str) -> None:
        """A line of progress."""
        self.said = time.monotonic()
        line = f"fit: {text}, {self.jacobians} Jacobians, {self.said - self.began:.1f} s"
        if self.show is not None:
            self.show(line)
        elif sys.stderr.isatty():
            print(line, file=sys.stderr, flush=True)

    def watch(self, problem: Problem, point: Point | None) -> None:
        """Notes a point that derivatives are taken at; ends the search when time is up."""
        if point is not None:
            self.latest, self.jacobians = (problem, point), self.jacobians + 1
            if time.monotonic() - self.said > EVERY:
                errors = problem.errors(point, problem.motions(point))
                self.say(f"residuals are {np.sqrt(np.nanmean(errors**2)):.4g} times the noise")
        if self.latest is not None and time.monotonic() - self.began > self.seconds:
            raise TimeoutError

    def run(
        self, recordings: list[Recording], seconds: float | None, show: Callable[[str], Any] | None
    ) -> tuple[Ended, np.ndarray | None, Problem]:
        """The best end, what jumps leave open there (n, n), and the problem of all windows, those held out included."""
        self.began, self.seconds, self.show = time.monotonic(), np.inf if seconds is None else seconds, show
        try:
            return self.to_the_end(recordings)
        except (KeyboardInterrupt, TimeoutError):
            if self.latest is None:
                raise
            self.stopped = True
            self.say("stopped: the best so far")
        finally:
            # what is asked of its problems from now on has all the time
            self.seconds = self.said = np.inf
        problem, point = self.latest
        # all rows, and bounds, of a search that may have seen a part of them
        problem = problem.part(slice(None))
        problem.unknowns = self.unknowns
        self.ended.append((self._ended(problem, problem.solve(point, 0)), self.all_windows))
        best, problem = min(self.ended, key=lambda pair: (not pair[0].good, self.size(pair[0])))
        return best, None, problem

    def to_the_end(self, recordings: list[Recording]) -> tuple[Ended, np.ndarray | None, Problem]:
        """What `run` gives, with all the time that it takes."""
        settings = self.settings
        shortest = min(len(part.ctrl) for part in recordings)
        lengths = [settings.window]
        if not settings.window and not settings.known_start and not settings.held_out and shortest >= 2 * SHORT:
            lengths.append(SHORT)
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
        return *self.surrounded(best), problem

    def surrounded(self, end: Ended) -> tuple[Ended, np.ndarray | None]:
        """The end, or a better one beside it, and what jumps leave open of theta, (n, n); None where nothing jumps."""
        spread = None
        for _ in range(SHAKEN):
            if not end.good or not end.outcome.left.any():
                return end, None
            spread, better = jumps(end.problem, end.outcome)
            if _squares(end.outcome) - float(np.sum(end.problem.residuals(better) ** 2)) < 1:
                break
            other = self.searched(end.problem, better)
            if not other.good or other.cost > end.cost:
                break
            end = other
        return end, spread

    def _problem(self, recordings: list[Recording], rows: int) -> Problem:
        windows, follows = windows_of(recordings, rows)
        self.apparent_noise = _apparent_noise(self.unknowns.model, np.asarray(windows.sensordata, float))
        noise = self.apparent_noise if self.noise is None else self.noise
        known_start, mode = self.settings.known_start, self.settings.mode
        problem = Problem(self.unknowns, windows, noise, self.start_noise, known_start, mode, follows)
        problem.watch, self.all_windows = self.watch, problem
        return problem

    def size(self, end: Ended) -> float:
        """Mean square of the residuals, by one measure for all: the noise that the first search began with."""
        noise = self.apparent_noise if self.noise is None else self.noise
        return float(np.nanmean((end.problem.rms(end.outcome.point) / noise) ** 2))

    def from_starts(self, problem: Problem, theta: np.ndarray) -> Ended:
        """The best of the ends from a start, and where that is not good, from others."""
        start = problem.point(theta)
        counts = problem.motions(start).contacts
        chosen = self.settings.window > 0
        search = self.grown if np.any(counts != counts[:, :1]) and not chosen else self.weighed
        ends = [self.weighed(problem, start)]
        rests = ends[0].problem.rest is not None and ends[0].noises < CLOSE
        far = search == self.grown or ends[0].noises > NEAR
        if far and not chosen and not ends[0].good and theta.size and not rests:
            ends.append(self.grown(problem, start))
        sizes = [self.size(end) for end in ends]
        # beside a jump there are many ends; where one is as good as this, others are not far from it
        elsewhere = search == self.weighed or min(end.noises for end in ends) > CLOSE
        if self.settings.starts > 1 and not ends[-1].good and theta.size and elsewhere:
            for other in self.candidates(problem)[: self.settings.starts - 1]:
                self.say(f"from another start, the {len(ends) + 1}th")
                ends.append(search(problem, problem.point(other)))
                sizes.append(self.size(ends[-1]))
                # a minimum that is found again is the one: more starts, or shorter windows, would find nothing new
                best = int(np.argmin(sizes[:-1]))
                both = ends[best].outcome.minimum and ends[-1].outcome.minimum
                self.again = both and abs(sizes[-1] / sizes[best] - 1) < SAME
                if ends[-1].good or self.again:
                    break
        order = sorted(range(len(ends)), key=lambda i: (not ends[i].good, sizes[i]))
        self.minima = [(ends[i].cost, self.unknowns.values(ends[i].outcome.point.theta)) for i in order]
        return ends[order[0]]

    def candidates(self, problem: Problem) -> list[np.ndarray]:
        """Starts by a latin hypercube within bounds, those of least cost first.

        One after the other, by the program that there is: a batch of them would have to be compiled first.
        """
        unknowns = self.unknowns
        start, size = unknowns.first, np.where(unknowns.log, 0.5, unknowns.sizes(unknowns.start))
        lower = np.where(np.isfinite(unknowns.lower), unknowns.lower, start - RANGE * size)
        upper = np.where(np.isfinite(unknowns.upper), unknowns.upper, start + RANGE * size)
        cube = scipy.stats.qmc.LatinHypercube(start.size, rng=np.random.default_rng(0)).random(LOOKED_AT)
        drawn = lower + cube * (upper - lower)
        costs = [float(np.sum(problem.residuals(problem.point(theta)) ** 2)) for theta in drawn]
        return [drawn[i] for i in np.argsort(costs)]

    def chained(self, end: Ended) -> Ended:
        """The end with windows that go on where others end: what holds for the whole says more than for parts."""
        if not np.any(end.problem.follows):
            return end
        now, model = end, self.unknowns.model
        scale = np.repeat([1.0, 10.0, 1.0], [model.nv, model.nv, model.na])
        for tightness in TIGHTNESS:
            problem = now.problem.part(slice(None))
            problem.tightness = tightness * scale
            now = self.weighed(problem, now.outcome.point)
            if not now.good:
                return end
        return now

    def grown(self, problem: Problem, start: Point) -> Ended:
        """A search that sees a begin of the windows first and then more and more of them.

        Where things touch, the cost of a whole motion has no slope that leads far: each contact comes at another time
        once the one before acts otherwise. A motion that fits up to a contact meets it about when it was.
        """
        rows, point, earlier, before, count = problem.measured.shape[1], start, None, 0.0, 0
        for end in np.unique(np.linspace(0, rows, STAGES + 1).astype(int))[1:]:
            part = problem.part(slice(None))
            part.measured[:, end:] = np.nan
            ends = [part.solve(point, BETWEEN)]
            now = np.count_nonzero(ends[0].residuals)
            if _squares(ends[0]) - before > CLOSE * (now - count) and point.theta.size:
                # a step into another course of contacts: points that what was seen so far leaves open find back
                centers = [ends[0]] if earlier is None else [earlier, ends[0]]
                ends += [part.solve(nearby(part, center), BETWEEN) for center in centers]
            earlier = min(ends, key=_squares)
            point, before, count = earlier.point, _squares(earlier), now
        return self.weighed(problem, point)

    def weighed(self, problem: Problem, start: Point) -> Ended:
        """One search; where bodies rest on others at first, they stay so, if that explains it."""
        touching = bool(problem.motions(start).contacts.any())
        begins = touching and problem.width and start.theta.size and not start.x.any()
        rest = problem.resting(start.theta) if begins else None
        end = self.searched(problem if rest is None else rest, start)
        end = self.shaken(end) if touching and not self.settings.window else end
        if rest is None or end.good or end.noises < CLOSE:
            return end
        return min(end, self.searched(problem, start), key=lambda end: (not end.good, end.cost))

    def shaken(self, end: Ended) -> Ended:
        """The end, or that of a search from the best of points nearby, where motions jump."""
        for _ in range(SHAKEN):
            if end.good or end.noises > NEAR or not end.outcome.point.theta.size:
                break
            other = self.searched(end.problem, nearby(end.problem, end.outcome))
            if not other.good and other.cost > 0.99 * end.cost:
                break
            end = other
        return end

    def searched(self, problem: Problem, start: Point) -> Ended:
        """One search, and others from its end while estimates of the noise change."""
        touching, rows = bool(problem.motions(start).contacts.any()), problem.measured.shape[1]
        if touching and problem.width and start.theta.size and not start.x.any():
            # beside contacts first states are near jumps: numbers come first
            first = problem.solve(start, self.settings.iterations, "theta")
            start = first.point
        end = rows if touching or self.settings.window or not start.theta.size else BEGIN
        while end < rows and np.mean(problem.residuals(start) ** 2) > FAR:
            # far from the solution motions part in time: their begin leads there straight, and costs least; what it
            # does not show stays
            part = problem.part(slice(None))
            part.unknowns = problem.unknowns.held(start.theta)
            part.measured[:, end:] = np.nan
            first = part.solve(start, BETWEEN)
            start, end = first.point, 3 * end
        outcome = problem.solve(start, self.settings.iterations)
        for _ in range(0 if self.noise is not None else REWEIGHED):
            rms = _by_sensor(problem.unknowns.model, problem.rms(outcome.point))
            least = LEAST_NOISE[problem.windows.sensordata.dtype.itemsize] * _ranges(problem.measured)
            noise = np.where(np.isfinite(rms), np.maximum(rms, least), problem.noise)
            if np.all(np.abs(np.log(noise / problem.noise)) < np.log(CHANGED)):
                break
            problem = problem.part(slice(None))
            problem.noise = noise
            outcome = problem.solve(outcome.point, self.settings.iterations)
        self.ended.append((self._ended(problem, outcome), self.all_windows))
        return self.ended[-1][0]

    def _ended(self, problem: Problem, outcome: Outcome) -> Ended:
        sample = problem.sample(outcome.point, outcome.blocks, self.noise is not None)
        return Ended(problem, outcome, examine(sample, self.apparent_noise))


def jumps(problem: Problem, outcome: Outcome) -> tuple[np.ndarray, Point]:
    """What a motion that jumps leaves open of theta, (n, n), and the point of least cost that was seen.

    Derivatives see its slopes between two jumps, which are steeper than the way the cost goes over many. So each number
    is moved, and held, until the cost, with all others that follow, has risen by more than that of one standard
    deviation. Source: Venzon and Moolgavkar 1988, profile likelihood.
    """
    flat = projected(outcome.blocks).reshape(-1, outcome.point.theta.size)
    covariance = np.linalg.pinv(flat.T @ flat, rcond=1e-12, hermitian=True)
    deviations, follow, best = np.sqrt(np.maximum(np.diag(covariance), 0)), state_slopes(outcome.blocks), outcome
    wider = np.full(deviations.size, JUMPY)
    for i, side in itertools.product(np.flatnonzero(deviations), (-1.0, 1.0)):
        for reach in SIDEWAYS:
            theta = outcome.point.theta + side * reach * covariance[:, i] / deviations[i]
            part = problem.part(slice(None))
            part.unknowns = problem.unknowns.bounded(int(i), theta[i])
            nearby_outcome = part.solve(Point(theta, outcome.point.x + follow @ (theta - outcome.point.theta)), BETWEEN)
            rise = _squares(nearby_outcome) - _squares(outcome)
            best = nearby_outcome if _squares(nearby_outcome) < _squares(best) else best
            wider[i] = max(wider[i], reach / np.sqrt(max(rise, 1.0)))
            if rise > 1:
                break
    return wider[:, None] * covariance * wider + np.outer(outcome.left, outcome.left), best.point


def nearby(problem: Problem, outcome: Outcome) -> Point:
    """The point of least cost of some drawn about a solution, again and again about the best so far.

    They are drawn by what the data leave open of theta and of first states, near and far in turn: where motions jump,
    the next lower place has no slope that leads to it.
    """
    rng, follow, best = np.random.default_rng(0), state_slopes(outcome.blocks), outcome.point
    unknowns, least = problem.unknowns, float(np.sum(problem.residuals(best) ** 2))
    flat = projected(outcome.blocks).reshape(-1, best.theta.size)
    root = root_of(np.linalg.pinv(flat.T @ flat, rcond=1e-12, hermitian=True))
    values, vectors = np.linalg.eigh(np.einsum("wki,wkj->wij", outcome.blocks.by_x, outcome.blocks.by_x))
    spread = np.where(values > VAGUE**-2, 1 / np.sqrt(np.maximum(values, VAGUE**-2)), 0)
    for _ in range(ROUNDS):
        center, before = best, least
        for k in range(NEARBY):
            size = REACHES[k % len(REACHES)]
            theta = center.theta + size * root @ rng.normal(size=best.theta.size)
            theta = np.clip(theta, unknowns.lower, unknowns.upper)
            turned = np.einsum("wij,wj->wi", vectors, size * spread * rng.normal(size=spread.shape))
            point = Point(theta, center.x + follow @ (theta - center.theta) + turned)
            cost = float(np.sum(problem.residuals(point) ** 2))
            if cost < least:
                best, least = point, cost
        if least > (1 - WORTH) * before:
            break
    return best


def _squares(ended: Outcome) -> float:
    return float(np.sum(ended.residuals**2))


def _ranges(measured: np.ndarray) -> np.ndarray:
    """(ny,) how far each reading (windows, T, ny) moves; of one that stays, how far others do, or 1."""
    flat = measured.reshape(-1, measured.shape[-1])
    seen = np.isfinite(flat)
    high = np.max(np.where(seen, flat, -np.inf), axis=0, initial=-np.inf)
    low = np.min(np.where(seen, flat, np.inf), axis=0, initial=np.inf)
    moved = np.where(seen.any(axis=0), high - low, 0)
    return np.where(moved > 0, moved, moved.max(initial=0) or 1.0)


def _apparent_noise(model: Model, measured: np.ndarray) -> np.ndarray:
    """(ny,) noise of readings (windows, T, ny) by themselves: third differences of a smooth motion are little else."""
    least = LEAST_NOISE[model.qpos0.dtype.itemsize] * _ranges(measured)
    noise = 1e-3 * _ranges(measured)
    for i in range(measured.shape[-1]):
        # of rows that were measured, which may be few between those of the simulation
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
