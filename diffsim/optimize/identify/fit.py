"""fit: system identification, the numbers of a model and initial states under which it shows what was recorded.

    minimize over theta, x_w:  sum over windows w, times t, sensors i of ((y_i(t; theta, x_w) - measured) / noise_i)^2

Recordings are cut into windows of equal length, each with an initial state x_w of its own (tangent coordinates), so
that errors do not pile up over long motions and chaos stays out. Jacobians are exact (residuals.py), and fits of the
same shapes share their compiled programs. The search is by Levenberg-Marquardt steps within the bounds
(least_squares.py), from the model's numbers, and where that ends in no minimum that explains the data (evidence.py),
from others within the bounds. Where things touch, windows are short at first and then chained to one motion.
Sources: Bock 1983 for several windows; McKay, Beckman and Conover 1979 for the starts.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats

from diffsim.base.checked import checked
from diffsim.optimize.identify.evidence import Evidence, Identified, examine, identify
from diffsim.optimize.identify.least_squares import Blocks, Found, Point
from diffsim.optimize.identify.places import changed_leaves, with_numbers
from diffsim.optimize.identify.problem import (
    Problem,
    Suspect,
    laplace,
    metropolis,
    reading_names,
    suspects,
    windows_of,
)
from diffsim.optimize.identify.recording import Recording
from diffsim.optimize.identify.report import report
from diffsim.optimize.identify.residuals import MODES
from diffsim.optimize.identify.unknowns import Unknown, UnknownInertia, UnknownPayload, Unknowns
from diffsim.simulate.randomize import leaf
from diffsim.types import Model, State
from diffsim.types.record import Record, record, static, whole_number

Array = jax.Array

# rows of windows where things touch, and how far chained windows may fail to meet: (m, rad), one after the other
SHORT, TIGHTNESS = 30, (1e-2, 1e-4, 1e-6)
# starts that are looked at, and from which a search goes on; how far from the model's number where there are no bounds
LOOKED_AT, FOLLOWED, RANGE = 32, 4, 3.0
# what is often wrong with a model
SUSPECTED = "dof_frictionloss dof_damping dof_armature jnt_stiffness gravity.tilt sensor.gain sensor.bias sensor.delay"
SUSPECTS = tuple(Unknown(field) for field in SUSPECTED.split())
# minima whose costs differ by less than this part are one
SAME = 1e-4
# how often weights follow residuals where the noise is not known, and changes that matter
REWEIGHED, CHANGED = 4, 1.1
# noise is at least this part of a reading's range, by bytes of a number
LEAST_NOISE = {4: 1e-5, 8: 1e-7}


def _mode(value: str) -> str:
    if value not in MODES:
        raise ValueError(f"{value!r} is none of {', '.join(MODES)}")
    return value


@record
class Fit(Record):
    """Settings of `fit`.

    Attributes:
      window: rows of each window; 0 to choose: whole recordings, and where things touch short ones that are then
        chained.
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
    mode: str = static(_mode, default="auto")
    starts: int = static(whole_number, default=FOLLOWED)


class FitResult(NamedTuple):
    """What `fit` found; `print` it.

    Attributes:
      model: the recorded system, as far as it can be told.
      theta: (n,) the unknowns, logarithms where so asked.
      identified: values, standard deviations, intervals and what cannot be told apart.
      evidence: whether the model explains the data.
      states: initial states of all windows, stacked; those held out are the last.
      rms: (nsensordata,) root mean square of reading minus measurement, in its unit; held_out_rms: of windows held out.
      start_rms: the same before the search, of the windows that were fitted.
      noise: (nsensordata,) standard deviations of readings, those of the user or those that were estimated.
      iterations: how many Jacobians the search took.
      converged: whether it ended in a minimum.
      message: how it ended.
      minima: of each start that was followed the cost and (n,) values at its end, the best first.
      problem, point, blocks: the windows that were fitted, the solution, and derivatives there.
    """

    model: Model
    theta: np.ndarray
    identified: Identified
    evidence: Evidence
    states: State
    rms: np.ndarray
    held_out_rms: np.ndarray
    start_rms: np.ndarray
    noise: np.ndarray
    iterations: int
    converged: bool
    message: str
    minima: list[tuple[float, np.ndarray]]
    problem: Problem
    point: Point
    blocks: Blocks

    @property
    def explained(self) -> bool:
        """Whether this is a minimum, where the model explains the data."""
        return self.converged and self.evidence.explained

    def __str__(self) -> str:
        ended = (
            f"{'converged' if self.converged else 'NOT CONVERGED'} after {self.iterations} Jacobians: {self.message}"
        )
        lines = [str(self.evidence), ended, str(self.identified)]
        if len(self.minima) > 1:
            costs = ", ".join(f"{cost:.4g}" for cost, _ in self.minima)
            lines.append(f"searches from {len(self.minima)} starts ended at costs of {costs}; the least is shown")
        lines.append("sensor            before       after    held out       noise   (root mean square error)")
        numbers = zip(self.start_rms, self.rms, self.held_out_rms, self.noise, strict=True)
        for name, row in zip(reading_names(self.model), numbers, strict=True):
            lines.append(f"{name:<14}" + "".join(f"{number:>12.4g}" for number in row))
        return "\n".join(lines)

    def draw(self, count: int, seed: int = 0, method: Literal["laplace", "metropolis"] = "laplace") -> np.ndarray:
        """Draws (count, n) of the values from what the data leave open.

        Args:
          count: how many.
          seed: of the draws.
          method: "laplace", a normal distribution of theta; or "metropolis", by one simulation of all windows a draw,
            which sees bent and one-sided distributions.

        Raises:
          ValueError: intervals are withheld, since the model does not explain the data.
        """
        return self.problem.unknowns.values(self._drawn(count, seed, method))

    def suspects(self, candidates: Sequence[Unknown] = SUSPECTS) -> list[Suspect]:
        """Numbers that were taken as known and whose change would explain what is left, the likeliest first.

        Where a model does not explain the data. One more program is compiled, with derivatives by all candidates.

        Args:
          candidates: unknowns that were none; by default friction, damping, motors' inertia, springs, the direction of
            gravity, and gain, bias and delay of each sensor.
        """
        return suspects(self.problem, self.point, self.blocks, candidates)

    def worlds(self, model: Model, key: Array, count: int) -> dict[str, Array]:
        """Leaves (count, ...) of a model that differ with draws of its numbers, for `diffsim.randomize`."""
        unknowns = self.problem.unknowns
        seed = int(jax.random.randint(key, (), 0, np.iinfo(np.int32).max))
        theta = jnp.asarray(self._drawn(count, seed, "laplace")[:, unknowns.in_model], model.qpos0.dtype)
        names = changed_leaves(model, unknowns.places, theta[0])

        def one(theta: Array) -> dict[str, Array]:
            fitted = with_numbers(model, unknowns.places, theta)
            return {name: leaf(fitted, name) for name in names}

        return jax.jit(jax.vmap(one))(theta)

    def _drawn(self, count: int, seed: int, method: str) -> np.ndarray:
        if self.identified.withheld:
            raise ValueError(f"there is nothing to draw from: {self.evidence.sentence}")
        covariance = self.identified.covariance
        if method == "laplace":
            return laplace(self.problem, self.theta, covariance, count, seed)
        return metropolis(self.problem, self.point, self.blocks, covariance, count, seed)

    def report(self, path: str | Path, title: str = "Identification") -> None:
        """Writes one HTML file: verdict, numbers, correlations, curves of what was recorded and what is simulated."""
        how = "converged" if self.converged else "NOT CONVERGED"
        ended = f"The search {how} after {self.iterations} Jacobians: {self.message}."
        samples = [("Windows that were fitted", self.problem.sample(self.point, self.blocks, True))]
        Path(path).write_text(report(title, self.explained, ended, self.evidence, self.identified, samples))

    def save(self, path: str | Path) -> None:
        """Writes what was found as JSON: numbers, intervals, covariance, errors and the verdict."""
        shown, judged = self.identified, self.evidence
        numbers = {name: getattr(shown, name).tolist() for name in ("values", "start", "std", "lower", "upper")}
        errors = {name: getattr(self, name).tolist() for name in ("rms", "held_out_rms", "start_rms", "noise")}
        words = {"verdict": judged.sentence, "causes": judged.causes, "message": self.message}
        flags = {"explained": self.explained, "converged": self.converged}
        told = {"labels": shown.labels, **numbers, "covariance": shown.covariance.tolist(), **errors, **words, **flags}
        Path(path).write_text(json.dumps(told, indent=1))


@checked
def fit(
    model: Model,
    recordings: Recording | Sequence[Recording],
    unknowns: Sequence[Unknown | UnknownInertia | UnknownPayload],
    noise: Any = None,
    settings: Fit | None = None,
    start_noise: Any = None,
) -> FitResult:
    """Identifies numbers of a model. Runs on the host; simulations are jitted and batched over windows.

    Args:
      model: the first guess.
      recordings: one or several, of the same actuators and sensors.
      unknowns: what is not known, with bounds; further bounds come from logarithms.
      noise: standard deviation of each reading, in its unit, a number or (nsensordata,); None to estimate that of each
        sensor from the residuals.
      settings: None for `Fit()`.
      start_noise: standard deviation of initial states about the recordings' guesses, a number or (2 nv + na,) of
        positions, velocities and activations; None for next to no knowledge.

    Returns:
      A `FitResult`; `print` shows it. Its first sentence says whether to trust the rest.

    Raises:
      ValueError: no unknowns, no such field, a start out of bounds, too short recordings, noise that is not positive.
    """
    chosen = Fit() if settings is None else settings
    listed = [recordings] if isinstance(recordings, Recording) else list(recordings)
    unknown = Unknowns(model, unknowns)
    told = None if noise is None else _noise(model, noise)
    search = Search(unknown, told, start_noise, chosen)
    best, problem = search.run(listed)
    point, train = best.found.point, best.problem
    test = problem.part(slice(train.count, None))
    test.noise = train.noise
    tested = test.solve(test.point(point.theta), chosen.iterations, "states").point if test.count else None
    sample = train.sample(point, best.found.blocks, told is not None)
    return FitResult(
        model=unknown.model_of(jnp.asarray(point.theta, model.qpos0.dtype)),
        theta=point.theta,
        identified=identify(unknown, point.theta, sample, best.evidence),
        evidence=best.evidence,
        states=problem.states(np.concatenate([point.x, *([] if tested is None else [tested.x])])),
        rms=train.rms(point),
        held_out_rms=test.rms(tested or test.point(point.theta)),
        start_rms=train.rms(train.point(unknown.start)),
        noise=train.noise,
        iterations=search.jacobians,
        converged=best.found.minimum,
        message=best.found.message,
        minima=search.minima,
        problem=train,
        point=point,
        blocks=best.found.blocks,
    )


class Ended(NamedTuple):
    """Where a search ended: its problem (noise, chain), the solution, and what its residuals say."""

    problem: Problem
    found: Found
    evidence: Evidence

    @property
    def good(self) -> bool:
        """Whether there is nothing left to search for."""
        return self.found.minimum and self.evidence.explained

    @property
    def cost(self) -> float:
        """Half the sum of squares."""
        return 0.5 * float(np.sum(self.found.residuals**2))


class Search:
    """Searches from several starts, over whole recordings and then, where that does not explain them, parts of them.

    Attributes:
      unknowns: theta.
      noise: (ny,) the user's, or None; start_noise: of first states.
      settings: of `fit`.
      jacobians: how many were taken so far.
      again: whether two starts led to the same minimum.
      minima: of each search that came to its end the cost and the values, the best first.
    """

    def __init__(self, unknowns: Unknowns, noise: np.ndarray | None, start_noise: Any, settings: Fit) -> None:
        self.unknowns, self.noise, self.start_noise, self.settings = unknowns, noise, start_noise, settings
        self.jacobians, self.again, self.minima = 0, False, list[tuple[float, np.ndarray]]()

    def run(self, recordings: list[Recording]) -> tuple[Ended, Problem]:
        """The best end, and the problem of all windows, those held out included."""
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
            theta = end.found.point.theta
        return next((pair for pair in ends if pair[0].good), ends[0])

    def _problem(self, recordings: list[Recording], rows: int) -> Problem:
        windows, follows = windows_of(recordings, rows)
        self.heard = _heard(self.unknowns.model, np.asarray(windows.sensordata, float))
        noise = self.heard if self.noise is None else self.noise
        known_start, mode = self.settings.known_start, self.settings.mode
        return Problem(self.unknowns, windows, noise, self.start_noise, known_start, mode, follows)

    def from_starts(self, problem: Problem, theta: np.ndarray) -> Ended:
        """The best of the ends from a start, and where that is not good, from others."""

        def size(end: Ended) -> float:
            """Mean square of the residuals, by one measure for all: the noise that the first search began with."""
            return float(np.nanmean((end.problem.rms(end.found.point) / problem.noise) ** 2))

        ends = [self.weighed(problem, problem.point(theta))]
        sizes = [size(ends[0])]
        if self.settings.starts > 1 and not ends[0].good and theta.size:
            for other in self.candidates(problem)[: self.settings.starts - 1]:
                ends.append(self.weighed(problem, problem.point(other)))
                sizes.append(size(ends[-1]))
                # a minimum that is found again is the one: more starts, or shorter windows, would find nothing new
                best = int(np.argmin(sizes[:-1]))
                both = ends[best].found.minimum and ends[-1].found.minimum
                self.again = both and abs(sizes[-1] / sizes[best] - 1) < SAME
                if ends[-1].good or self.again:
                    break
        order = sorted(range(len(ends)), key=lambda i: (not ends[i].good, sizes[i]))
        self.minima = [(ends[i].cost, self.unknowns.values(ends[i].found.point.theta)) for i in order]
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
        """The same with windows that go on where others end: what holds for the whole says more than for parts."""
        if not np.any(end.problem.follows):
            return end
        now, model = end, self.unknowns.model
        scale = np.repeat([1.0, 10.0, 1.0], [model.nv, model.nv, model.na])
        for tightness in TIGHTNESS:
            problem = now.problem.part(slice(None))
            problem.tightness = tightness * scale
            now = self.weighed(problem, now.found.point)
            if not now.good:
                return end
        return now

    def weighed(self, problem: Problem, start: Point) -> Ended:
        """One search, and others from its end while estimates of the noise change."""
        if problem.width and start.theta.size and problem.motions(start).contacts.any():
            # beside contacts first states are near jumps: numbers come first
            starts = [start, problem.at_rest(start)] if not start.x.any() else [start]
            founds = [problem.solve(point, self.settings.iterations, "theta") for point in starts]
            start = min(founds, key=lambda found: float(np.sum(found.residuals**2))).point
            self.jacobians += sum(found.jacobians for found in founds)
        found = problem.solve(start, self.settings.iterations)
        for _ in range(0 if self.noise is not None else REWEIGHED):
            rms = _by_sensor(problem.unknowns.model, problem.rms(found.point))
            least = LEAST_NOISE[problem.windows.sensordata.dtype.itemsize] * _ranges(problem.measured)
            noise = np.where(np.isfinite(rms), np.maximum(rms, least), problem.noise)
            if np.all(np.abs(np.log(noise / problem.noise)) < np.log(CHANGED)):
                break
            problem = problem.part(slice(None))
            problem.noise = noise
            self.jacobians += found.jacobians
            found = problem.solve(found.point, self.settings.iterations)
        self.jacobians += found.jacobians
        sample = problem.sample(found.point, found.blocks, self.noise is not None)
        return Ended(problem, found, examine(sample, self.heard))


def _noise(model: Model, noise: Any) -> np.ndarray:
    """(nsensordata,) standard deviations."""
    scale = np.asarray(noise, float)
    if scale.shape not in ((), (1,), (model.nsensordata,)):
        raise ValueError(f"noise has shape {scale.shape}, expected one number or ({model.nsensordata},)")
    if not np.all(scale > 0):
        raise ValueError(f"noise is {noise}: standard deviations are positive")
    return np.broadcast_to(scale, (model.nsensordata,)).copy()


def _ranges(measured: np.ndarray) -> np.ndarray:
    """(ny,) how far each reading (windows, T, ny) moves; of one that stays, how far others do, or 1."""
    flat = measured.reshape(-1, measured.shape[-1])
    seen = np.isfinite(flat)
    high = np.max(np.where(seen, flat, -np.inf), axis=0, initial=-np.inf)
    low = np.min(np.where(seen, flat, np.inf), axis=0, initial=np.inf)
    moved = np.where(seen.any(axis=0), high - low, 0)
    return np.where(moved > 0, moved, moved.max(initial=0) or 1.0)


def _heard(model: Model, measured: np.ndarray) -> np.ndarray:
    """(ny,) noise of readings (windows, T, ny) by themselves: third differences of a smooth motion are little else."""
    least = LEAST_NOISE[model.qpos0.dtype.itemsize] * _ranges(measured)
    if measured.shape[1] < 5:
        return np.maximum(least, 1e-3 * _ranges(measured))
    third = np.abs(np.diff(measured, n=3, axis=1)).reshape(-1, measured.shape[-1]) / np.sqrt(20)
    heard = np.zeros(measured.shape[-1])
    for i, column in enumerate(third.T):
        there = column[np.isfinite(column)]
        if there.size:
            heard[i] = max(1.4826 * float(np.median(there)), 0.2 * float(np.sqrt(np.mean(there**2))))
    return np.maximum(_by_sensor(model, heard), least)


def _by_sensor(model: Model, deviations: np.ndarray) -> np.ndarray:
    """(ny,) the root mean square over the readings of each sensor."""
    pooled = deviations.copy()
    for first, width in zip(model.sensor_adr, model.sensor_dim, strict=True):
        place = slice(int(first), int(first + width))
        pooled[place] = np.sqrt(np.nanmean(deviations[place] ** 2)) if np.isfinite(deviations[place]).any() else np.nan
    return pooled
