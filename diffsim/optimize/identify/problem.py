"""The least-squares problem of `fit`: residuals and their derivatives, of windows of recordings, on the host.

    r = (shown_i(t; theta, x_w) - measured_i(t)) / noise_i,    x_w / start_noise,    (theta - theta_0) / prior,
    and of chained windows (end_w - x_{w+1}) / tightness

Windows are cut from recordings; each has a first state of its own, x_w in tangent coordinates about a guess. Chained
ones are one motion, whose states in between are unknowns that the last line ties together: as good as a simulation of
the whole once that is tight, and not lost in chaos before. Source: Bock 1983, multiple shooting.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.enums import SensorType
from diffsim.optimize.identify.evidence import Residuals, Sample
from diffsim.optimize.identify.least_squares import Blocks, Outcome, Point, least_squares, state_slopes
from diffsim.optimize.identify.least_squares import Problem as LeastSquares
from diffsim.optimize.identify.recording import Recording
from diffsim.optimize.identify.residuals import (
    Clock,
    Derivatives,
    First,
    Guess,
    Meetings,
    Motions,
    Windows,
    begins,
    changes_to,
    derivatives,
    meetings,
    mode_of,
    motions,
    sensing_slopes,
    shown,
    shown_slopes,
    spoilt_rows,
)
from diffsim.optimize.identify.unknowns import Unknown, Unknowns
from diffsim.optimize.tangent import tangent_size
from diffsim.types import Model, State

# residuals beyond this count as this: where a simulation breaks down, which the search then avoids
HUGE = 1e12
# standard deviations of first states about their guesses where the user gives none: positions, velocities, activations
START_NOISE = (10.0, 100.0, 10.0)
# rows after a time that its reading is interpolated from
BETWEEN = 2
# a number is no suspect where all but this part of its effect is that of other unknowns
SEEN = 1e-6
# a window begins at rest where so many readings are no farther than this many standard deviations from a state at rest
SETTLED, STILL = 8, 3.0
# part of a change that is still there once a body has come to rest; less than this is none
LASTING = 0.1
# share of the Metropolis steps that are left out at the beginning
BURNT = 0.2
# length of a Metropolis step in units of the covariance's root, over sqrt(n)
LENGTH = 1.7
# how often a force is integrated until a sensor shows it
TWICE = ("JOINTPOS", "TENDONPOS", "ACTUATORPOS", "BALLQUAT", "FRAMEPOS", "FRAMEQUAT")
ONCE = ("JOINTVEL", "TENDONVEL", "ACTUATORVEL", "BALLANGVEL", "FRAMELINVEL", "FRAMEANGVEL", "VELOCIMETER", "GYRO")


class Problem:
    """Residuals and derivatives of some windows, as functions of theta and of a change of each first state.

    Attributes:
      unknowns: theta.
      windows: Recording with leaves (windows, T, ...).
      noise: (ny,) of readings; start_noise: (nx,) of first states, None where these are known.
      follows: (windows,) bool, whether a window goes on where the one before ended.
      tightness: standard deviation by which chained windows may fail to meet, (nx,); None for windows that stand alone.
      rest: (windows, nx, nx) what is left of a change of a first state where bodies rest on others; None if none does.
      watch: told of this problem before each simulation, and of a point as well where derivatives are taken there.
    """

    def __init__(
        self,
        unknowns: Unknowns,
        windows: Recording,
        noise: np.ndarray,
        start_noise: Any = None,
        known_start: bool = False,
        mode: str = "auto",
        follows: np.ndarray | None = None,
    ) -> None:
        model, count = unknowns.model, windows.ctrl.shape[0]
        self.unknowns, self.windows, self.noise = unknowns, windows, noise
        self.width = 0 if known_start else tangent_size(model)
        nx = tangent_size(model)
        spread = np.repeat(START_NOISE, [model.nv, model.nv, model.na]) if start_noise is None else start_noise
        spread = np.asarray(spread, float)
        if spread.shape not in ((), (nx,)) or not np.all(spread > 0):
            raise ValueError(f"start_noise: expected positive numbers, one or ({nx},), not {start_noise}")
        self.start_noise = np.broadcast_to(spread, (nx,))[: self.width].copy()
        self.follows = np.zeros(count, bool) if follows is None else follows
        self.tightness: np.ndarray | None = None
        self.rest: np.ndarray | None = None
        self.watch: Callable[[Problem, Point | None], None] = lambda *_: None
        self.timestep = float(model.opt.timestep)
        cheapest = mode_of(model, unknowns.places, self.width, windows.ctrl.shape[1])
        self.mode = cheapest if mode == "auto" else mode
        self.set_windows(windows)

    def set_windows(self, windows: Recording) -> None:
        """Other windows of the same shapes: the programs stay."""
        unknowns, self.windows, self._last = self.unknowns, windows, None
        ends = spoilt_rows(unknowns.sensing, unknowns.lower, unknowns.upper, self.timestep)
        # what is shown in a row may be of rows after it
        self.ahead = ends[1] + BETWEEN if unknowns.sensing or np.any(windows.offset) else 0
        first = (np.asarray(part)[:, 0] for part in (windows.qpos, windows.qvel, windows.act))
        self.inside = Windows(windows.ctrl, First(*map(jnp.asarray, first)))
        self.measured = np.array(windows.sensordata, float)
        self.clock = Clock(self.timestep, np.asarray(windows.offset, float))
        rows = np.arange(self.measured.shape[1])
        self.measured[:, (rows < ends[0]) | (rows >= rows.size - ends[1])] = np.nan

    def part(self, chosen: slice) -> "Problem":
        """The problem of some of these windows."""
        other = object.__new__(Problem)
        rest = None if self.rest is None else self.rest[chosen]
        vars(other).update(vars(self), follows=self.follows[chosen], rest=rest)
        other.set_windows(jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)[chosen]), self.windows))
        other._last = self._last if other.count == self.count else None
        return other

    @property
    def count(self) -> int:
        """How many windows."""
        return self.windows.ctrl.shape[0]

    def point(self, theta: np.ndarray) -> Point:
        """First states as they are guessed."""
        return Point(np.asarray(theta, float), np.zeros((self.count, self.width)))

    def solve(self, start: Point, iterations: int, free: str = "all") -> Outcome:
        """Least squares from a start, over all unknowns, "theta" alone, or first "states" alone."""
        n, width = (start.theta.size, self.width) if free == "all" else (0, self.width)
        if free == "theta":
            n, width = start.theta.size, 0

        def with_fixed(point: Point) -> Point:
            return Point(point.theta if n else start.theta, point.x if width else start.x)

        def blocks(point: Point) -> Blocks:
            full = self.blocks(with_fixed(point))
            by_next = None if full.by_next is None or not width else full.by_next
            return Blocks(full.by_theta[..., :n], full.by_x[..., :width], by_next)

        sizes = self.unknowns.sizes(self.unknowns.start)[:n]
        bounds = self.unknowns.lower[:n], self.unknowns.upper[:n]
        problem = LeastSquares(lambda point: self.residuals(with_fixed(point)), blocks, *bounds, sizes)
        outcome = least_squares(problem, Point(start.theta[:n], start.x[:, :width]), iterations)
        return outcome._replace(point=with_fixed(outcome.point))

    def motions(self, point: Point) -> Motions:
        """The windows as they are simulated, up to the last measurement; those of the last point are kept."""
        guess, rows = self._guess(point), self.measured.shape[1]
        if self.tightness is None:
            last = int(np.flatnonzero(np.isfinite(self.measured).any(axis=(0, 2))).max(initial=0))
            rows = min(rows, last + 1 + self.ahead)
        key = np.asarray(guess.theta).tobytes(), np.asarray(guess.changes).tobytes(), rows
        if self._last is None or self._last[0] != key:
            self._last = key, motions(self.unknowns.places, self.unknowns.model, self.inside, guess, rows)
        return self._last[1]

    def resting(self, theta: np.ndarray) -> "Problem | None":
        """This problem with windows that begin at rest, on a floor or in a hand, beginning so; None where none does.

        What lies on a floor is pressed into it by less than sensors see, and jumps if it begins elsewhere. Such a
        window begins where its guess, halted, ends up under its first controls, and its first state changes only as far
        as a change lasts: along the floor.
        """
        model, nv, count = self.unknowns.model, self.unknowns.model.nv, self.count

        def settled(changes: np.ndarray) -> np.ndarray:
            held = self.inside._replace(ctrl=jnp.broadcast_to(self.inside.ctrl[:, :1], self.inside.ctrl.shape))
            ends = motions(self.unknowns.places, model, held, self._guess(Point(theta, changes))).ends
            return np.asarray(changes_to(model, self.inside.first, ends), float)

        halted = np.zeros((count, self.width))
        halted[:, nv : 2 * nv] = -np.asarray(self.inside.first.qvel, float)
        changes = settled(halted)
        moved = self.motions(Point(theta, changes))
        early = self.errors(Point(theta, changes), moved)[:, :SETTLED].reshape(count, -1)
        near = np.nansum(early**2, axis=1) < STILL**2 * np.maximum(np.isfinite(early).sum(axis=1), 1)
        still = near & (moved.contacts[:, 0] > 0) & np.isfinite(changes).all(axis=1)
        if not still.any():
            return None
        step = float(np.finfo(self.windows.qpos.dtype).eps) ** (1 / 3)
        again = settled(changes)
        lasting = np.stack([(settled(changes + step * side) - again) / step for side in np.eye(self.width)], axis=2)
        changes = np.where(still[:, None], changes, 0)
        states = begins(model, self.inside.first, jnp.asarray(changes, self.windows.qpos.dtype))[0]
        first = {
            name: getattr(self.windows, name).at[:, 0].set(getattr(states, name)) for name in ("qpos", "qvel", "act")
        }
        other = self.part(slice(None))
        other.set_windows(self.windows.replace(**first))
        # across what lasts, onto it: a basis has no directions that do nothing
        basis, lengths, _ = np.linalg.svd(lasting)
        basis = basis * (lengths > LASTING)[:, None]
        other.rest = np.where(still[:, None, None], basis @ np.swapaxes(basis, 1, 2), np.eye(self.width))
        return other

    def shown(self, point: Point, moved: Motions) -> np.ndarray:
        """(windows, T, ny) readings as the recording shows them."""
        return shown(self.unknowns.sensing, point.theta, self.clock, np.asarray(moved.readings, float))

    def errors(self, point: Point, moved: Motions) -> np.ndarray:
        """(windows, T, ny) readings minus measurements over the noise; NaN where nothing was measured."""
        readings = self.shown(point, moved)
        # a simulation that broke down may be anywhere
        with np.errstate(over="ignore", invalid="ignore"):
            away = (readings - self._measured_beside(readings)) / self.noise
        away = np.where(np.abs(away) < HUGE, away, HUGE)
        return np.where(np.isfinite(self.measured), away, np.nan)

    def residuals(self, point: Point) -> np.ndarray:
        """(windows, k): of readings, first states, defects, and in the first window of what was known of theta."""
        self.watch(self, None)
        moved = self.motions(point)
        parts = [np.nan_to_num(self.errors(point, moved)).reshape(self.count, -1), point.x / self.start_noise]
        if self.tightness is not None:
            defects = np.asarray(self._meetings(point).defects)
            defects = np.where(np.abs(defects) < HUGE, defects, HUGE) / self.tightness
            parts.append(np.where(self._goes_on()[:, None], defects, 0))
        known = np.flatnonzero(np.isfinite(self.unknowns.prior))
        prior = np.zeros((self.count, known.size))
        prior[:1] = ((point.theta - self.unknowns.start) / self.unknowns.prior)[known]
        return np.concatenate([*parts, prior], axis=1)

    def blocks(self, point: Point) -> Blocks:
        """Derivatives of the residuals by theta, by each window's first state, and by that of the next one."""
        self.watch(self, point)
        unknowns, n, count, width = self.unknowns, point.theta.size, self.count, self.width
        moved = self.motions(point)
        where = unknowns.places, self.mode, unknowns.model, self.inside, self._guess(point), moved.states
        by = Derivatives(*(np.nan_to_num(np.asarray(part, float), posinf=0, neginf=0) for part in derivatives(*where)))
        by_theta, by_x = np.zeros((*by.readings_by_theta.shape[:3], n)), by.readings_by_change
        by_theta[..., unknowns.in_model] = by.readings_by_theta
        if unknowns.sensing or self.clock.offset.any():
            of_sensors = unknowns.sensing, point.theta, self.clock
            readings = np.nan_to_num(np.asarray(moved.readings, float))
            by_theta = shown_slopes(*of_sensors, by_theta) + sensing_slopes(*of_sensors, readings)
            by_x = shown_slopes(*of_sensors, by_x)
        if self.rest is not None:
            by_x = by_x @ self.rest[:, None]
        weight = np.where(np.isfinite(self.measured), 1 / self.noise, 0)[..., None]
        first = np.broadcast_to(np.diag(1 / self.start_noise), (count, width, width))
        known = np.flatnonzero(np.isfinite(unknowns.prior))
        prior = np.zeros((count, known.size, n))
        prior[:1, np.arange(known.size), known] = 1 / unknowns.prior[known]
        # kinds of residuals, in the order of `residuals`: derivatives by theta, and by the first state
        of_readings = (by_theta * weight).reshape(count, -1, n), (by_x * weight).reshape(count, weight[0].size, width)
        kinds = [of_readings, (np.zeros((count, width, n)), first)]
        last = prior, np.zeros((count, known.size, width))
        by_next = None
        if self.tightness is not None:
            goes_on = np.where(self._goes_on()[:, None, None], 1 / self.tightness[:, None], 0)
            met, ends = self._meetings(point), np.zeros((count, self.tightness.size, n))
            ends[..., unknowns.in_model] = met.by_end @ by.ends_by_theta
            by_begin, by_next = met.by_end @ by.ends_by_change * goes_on, np.asarray(met.by_next) * goes_on
            if self.rest is not None:
                by_begin, by_next = by_begin @ self.rest, by_next @ np.roll(self.rest, -1, axis=0)
            before = np.zeros((count, weight[0].size + width, width))
            by_next = np.concatenate([before, by_next, last[1]], axis=1)
            kinds.append((ends * goes_on, by_begin))
        by_theta, by_x = (np.concatenate(column, axis=1) for column in zip(*kinds, last, strict=True))
        return Blocks(by_theta, by_x, by_next)

    def sample(self, point: Point, blocks: Blocks, known: bool) -> Sample:
        """The windows there, to judge what is left."""
        moved, model = self.motions(point), self.unknowns.model
        readings = self.shown(point, moved)
        sensors = [SensorType(int(kind)).name for kind in model.sensor_type]
        order = [2 * (name in TWICE) + (name in ONCE) for name in sensors]
        return Sample(
            errors=self.errors(point, moved),
            blocks=blocks,
            readings=readings,
            measured=np.where(np.isfinite(self.measured), self._measured_beside(readings), np.nan),
            noise=self.noise,
            known=known,
            ctrl=np.asarray(self.windows.ctrl, float),
            contacts=np.asarray(moved.contacts),
            timestep=self.timestep,
            names=reading_names(model),
            order=np.repeat(order, model.sensor_dim),
        )

    def rms(self, point: Point) -> np.ndarray:
        """(ny,) root mean square error of each reading, in its unit; NaN where nothing was measured."""
        if not self.count:
            return np.full(self.noise.size, np.nan)
        errors = self.errors(point, self.motions(point))
        count = np.isfinite(errors).sum(axis=(0, 1))
        mean = np.divide(np.nansum(errors**2, axis=(0, 1)), count, out=np.full(count.size, np.nan), where=count > 0)
        return self.noise * np.sqrt(mean)

    def states(self, x: np.ndarray) -> State:
        """The initial states of all windows."""
        return begins(self.unknowns.model, self.inside.first, jnp.asarray(self._changes(x), self.windows.qpos.dtype))[0]

    def _meetings(self, point: Point) -> Meetings:
        """How far windows fail to meet."""
        changes = self._guess(point).changes
        return meetings(self.unknowns.model, self.inside.first, changes, self.motions(point).ends)

    def _goes_on(self) -> np.ndarray:
        """(windows,) whether the next window follows."""
        return np.append(self.follows[1:], False)

    def _guess(self, point: Point) -> Guess:
        dtype, theta = self.windows.qpos.dtype, point.theta[self.unknowns.in_model]
        return Guess(jnp.asarray(theta, dtype), jnp.asarray(self._changes(point.x), dtype))

    def _changes(self, x: np.ndarray) -> np.ndarray:
        """(windows, width) changes of first states, of what x stands for."""
        return x if self.rest is None else np.einsum("wij,wj->wi", self.rest, x)

    def _measured_beside(self, readings: np.ndarray) -> np.ndarray:
        """The measurements; quaternions, whose sign means nothing, with the sign that is nearer to the readings."""
        measured, model = self.measured, self.unknowns.model
        for i in np.flatnonzero(np.asarray(model.sensor_dim) == 4):
            place = slice(int(model.sensor_adr[i]), int(model.sensor_adr[i]) + 4)
            side = np.sum(readings[..., place] * np.nan_to_num(measured[..., place]), axis=-1, keepdims=True)
            measured = measured.copy()
            measured[..., place] *= np.where(side < 0, -1, 1)
        return measured


def windows_of(recordings: Sequence[Recording], rows: int) -> tuple[Recording, np.ndarray]:
    """All windows, stacked, and whether each follows the one before; rows at the end that fill none are left out."""
    shortest = min(len(recording.ctrl) for recording in recordings)
    rows = rows or shortest
    if rows < 2 or shortest < rows:
        raise ValueError(
            f"windows have {rows} rows, the shortest recording {shortest}; give a window between 2 and that"
        )
    places = [(k, first) for k, part in enumerate(recordings) for first in range(0, len(part.ctrl) - rows + 1, rows)]
    # on the host, where a slice is not a program
    arrays = [jax.tree.map(np.asarray, recording) for recording in recordings]
    cut = [jax.tree.map(lambda leaf, first=first: leaf[first : first + rows], arrays[k]) for k, first in places]
    windows = jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *cut)
    return windows, np.asarray([first > 0 for _, first in places])


def reading_names(model: Model) -> list[str]:
    """A name of each reading."""
    names = []
    for i in range(model.nsensor):
        name, width = model.name("sensor", i) or f"sensor {i}", int(model.sensor_dim[i])
        names += [name] if width == 1 else [f"{name}.{k}" for k in range(width)]
    return names


class Suspect(NamedTuple):
    """What a model may lack: its label, the share of squared residuals that it would explain, and about its value."""

    label: str
    share: float
    value: float


def suspects(problem: Problem, point: Point, blocks: Blocks, candidates: Sequence[Unknown]) -> list[Suspect]:
    """Scores of numbers that a fit took as known, the likeliest to be wrong first.

    With c the derivative of the residuals r by such a number, less what the fit can adjust, the number would explain
    (c r)^2 / (c^2 r^2) of them, at a value of -(c r) / c^2 more. Source: Godfrey 1978.
    """
    unknowns = problem.unknowns
    model = unknowns.model_of(jnp.asarray(point.theta, unknowns.model.qpos0.dtype))
    taken, kept = set(unknowns.labels), []
    for candidate in candidates:
        try:
            labels = Unknowns(model, [candidate]).labels
        except ValueError:
            continue
        kept += [candidate] if labels and not taken & set(labels) else []
    if not kept:
        return []
    others = Unknowns(model, kept)
    start = jnp.asarray(others.first[others.in_model], model.qpos0.dtype), jnp.asarray(point.x, model.qpos0.dtype)
    mode = mode_of(model, others.places, problem.width, problem.inside.ctrl.shape[1])
    moved = problem.motions(point)
    raw = derivatives(others.places, mode, model, problem.inside, Guess(*start), moved.states).readings_by_theta
    readings = np.asarray(moved.readings, float)
    slopes = sensing_slopes(others.sensing, others.start, problem.clock, readings)
    slopes[..., others.in_model] = np.nan_to_num(np.asarray(raw, float))
    slopes = shown_slopes(unknowns.sensing, point.theta, problem.clock, slopes)
    residuals = Residuals(problem.sample(point, blocks, True))
    weight = np.where(residuals.seen, 1 / problem.noise, 0)
    squares, judged = float(np.sum(residuals.errors**2)), []
    for i, label in enumerate(others.labels):
        column = slopes[..., i] * weight
        outside = residuals.outside(column)
        length, along = float(np.sum(outside**2)), float(np.sum(outside * residuals.errors))
        if length > SEEN * np.sum(column**2):
            judged.append(Suspect(label, along**2 / length / max(squares, 1e-300), others.start[i] - along / length))
    return sorted(judged, key=lambda suspect: -suspect.share)


def laplace(problem: Problem, theta: np.ndarray, covariance: np.ndarray, count: int, seed: int) -> np.ndarray:
    """(count, n) draws of a normal distribution, within the bounds."""
    rng, unknowns = np.random.default_rng(seed), problem.unknowns
    root = root_of(covariance)
    drawn = theta + rng.normal(size=(count, theta.size)) @ root.T
    return np.clip(drawn, unknowns.lower, unknowns.upper)


def metropolis(
    problem: Problem, point: Point, blocks: Blocks, covariance: np.ndarray, count: int, seed: int
) -> np.ndarray:
    """(count, n) draws by Metropolis steps of that shape, accepted by the simulator's own cost: one simulation each.

    First states follow theta so that residuals change least. Source: Roberts and Rosenthal 2001 for the steps' length.
    """
    rng, unknowns = np.random.default_rng(seed), problem.unknowns
    root, follow = root_of(covariance), state_slopes(blocks)
    length = LENGTH / np.sqrt(max(point.theta.size, 1))

    def cost(theta: np.ndarray) -> float:
        moved = Point(theta, point.x + follow @ (theta - point.theta))
        return 0.5 * float(np.sum(problem.residuals(moved) ** 2))

    theta, now, kept = point.theta, cost(point.theta), []
    skipped = int(BURNT * count)
    for step in range(count + skipped):
        other = theta + length * root @ rng.normal(size=theta.size)
        if np.all((other >= unknowns.lower) & (other <= unknowns.upper)):
            other_cost = cost(other)
            if np.log(rng.random()) < now - other_cost:
                theta, now = other, other_cost
        if step >= skipped:
            kept.append(theta)
    return np.asarray(kept)


def root_of(covariance: np.ndarray) -> np.ndarray:
    """A matrix R with R R^T the covariance."""
    values, vectors = np.linalg.eigh(0.5 * (covariance + covariance.T))
    return vectors * np.sqrt(np.maximum(values, 0))
