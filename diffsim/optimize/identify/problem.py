"""The least-squares problem of `fit`: residuals of windows of recordings and their derivatives, on the host.

    r = (shown_i(t; theta, x_w) - measured_i(t)) / noise_i,    x_w / start_noise,    (theta - theta_0) / prior,
    and of chained windows (end_w - x_{w+1}) / tightness

Windows are cut from recordings. Each has a first state of its own, x_w in tangent coordinates about a guess, so that
errors do not grow over long motions. Chained windows are one motion: the last residual ties the end of each window to
the first state of the next (multiple shooting). While `tightness` is large, the search does not get lost in chaos. When
it is small, the chain is as good as one simulation of the whole motion.

Source: Bock 1983.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.enums import SensorType
from diffsim.optimize.identify.evidence import FittedWindows, Residuals
from diffsim.optimize.identify.least_squares import (
    Blocks,
    LeastSquares,
    Outcome,
    Point,
    least_squares,
)
from diffsim.optimize.identify.recording import Recording
from diffsim.optimize.identify.residuals import (
    Change,
    Clock,
    Derivatives,
    First,
    Guess,
    Motions,
    Pushed,
    WindowGaps,
    Windows,
    begins,
    changes_to,
    derivatives,
    mode_of,
    motions,
    pushed,
    sensing_slopes,
    shown,
    shown_slopes,
    spoilt_rows,
    window_gaps,
)
from diffsim.optimize.identify.unknowns import Unknown, Unknowns
from diffsim.optimize.tangent import tangent_size
from diffsim.types import Model, State

# residuals are clipped to this: a simulation that breaks down is infinitely wrong, and the search then avoids it
LARGEST_RESIDUAL = 1e12
# standard deviations of first states about their guesses if the user gives none: next to no knowledge. In m and rad
START_NOISE_POSITION = 10.0
# in m/s and rad/s
START_NOISE_VELOCITY = 100.0
# in the units of activations
START_NOISE_ACTIVATION = 10.0
# a reading at a time between two rows is interpolated from this number of rows after it (residuals.py)
ROWS_AHEAD = 2
# a parameter is no suspect if all but this fraction of its effect is also the effect of other unknowns
LEAST_EFFECT = 1e-6
# a window begins at rest if this many rows at its beginning are near the rows of a body at rest
REST_ROWS = 8
# near means within this number of standard deviations
REST_DEVIATIONS = 3.0
# a change of the first state lasts if this fraction of it is still there once the body has come to rest
LASTING = 0.1
# sensors that show a force integrated twice
POSITION_SENSORS = ("JOINTPOS", "TENDONPOS", "ACTUATORPOS", "BALLQUAT", "FRAMEPOS", "FRAMEQUAT")
# sensors that show a force integrated once
VELOCITY_SENSORS = (
    "JOINTVEL",
    "TENDONVEL",
    "ACTUATORVEL",
    "BALLANGVEL",
    "FRAMELINVEL",
    "FRAMEANGVEL",
    "VELOCIMETER",
    "GYRO",
)


class _Last:
    """The motions of the last simulation, and their arguments as a key. Problems of the same windows share one."""

    def __init__(self) -> None:
        self.key: tuple[bytes, bytes, int] | None = None
        self.motions: Motions | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Problem:
    """Residuals and derivatives of some windows, as functions of theta and of a change of each first state.

    `make_problem` makes one; variants are made by `dataclasses.replace`, `part` and `with_windows`.

    Attributes:
      unknowns: theta.
      windows: a Recording with leaves (windows, T, ...).
      noise: (ny,) standard deviations of the readings.
      start_noise: (width,) standard deviations of first states; width is 0 if these are known.
      mode: of differentiation (residuals.py).
      follows: (windows,) bool, whether a window goes on where the one before ended.
      spoilt: how many rows at the beginning and at the end of a window may show readings from outside it, because of
        sensor delays.
      end: measurements from this row on are ignored; None to ignore none.
      tightness: (nx,) standard deviation by which chained windows may fail to meet; None for windows that stand alone.
      rest: (windows, nx, nx) the part of a change of a first state that lasts while bodies rest on others; None if no
        window begins at rest.
      watch: called with this problem before each simulation, and with the point as well where derivatives are taken.
      last: the last motions that were simulated.
    """

    unknowns: Unknowns
    windows: Recording
    noise: np.ndarray
    start_noise: np.ndarray
    mode: str
    follows: np.ndarray
    spoilt: tuple[int, int]
    end: int | None = None
    tightness: np.ndarray | None = None
    rest: np.ndarray | None = None
    watch: "Callable[[Problem, Point | None], None]" = lambda *_: None
    last: _Last = dataclasses.field(default_factory=_Last)

    @functools.cached_property
    def timestep(self) -> float:
        """The timestep of the model, s."""
        return float(self.unknowns.model.opt.timestep)

    @property
    def count(self) -> int:
        """Number of windows."""
        return self.windows.ctrl.shape[0]

    @property
    def width(self) -> int:
        """Number of unknowns of a first state."""
        return self.start_noise.size

    @functools.cached_property
    def inside(self) -> Windows:
        """The windows as a simulation needs them."""
        first = (np.asarray(part)[:, 0] for part in (self.windows.qpos, self.windows.qvel, self.windows.act))
        return Windows(jnp.asarray(self.windows.ctrl), First(*map(jnp.asarray, first)))

    @functools.cached_property
    def measured(self) -> np.ndarray:
        """(windows, T, ny) measurements; NaN where there is none, or none that counts."""
        measured = np.array(self.windows.sensordata, float)
        rows = np.arange(measured.shape[1])
        measured[:, (rows < self.spoilt[0]) | (rows >= rows.size - self.spoilt[1])] = np.nan
        if self.end is not None:
            measured[:, self.end :] = np.nan
        return measured

    @functools.cached_property
    def clock(self) -> Clock:
        """The timestep, and how much later than its row each reading was taken."""
        return Clock(self.timestep, np.asarray(self.windows.offset, float))

    @property
    def ahead(self) -> int:
        """How many rows after its own row a reading may come from."""
        return self.spoilt[1] + ROWS_AHEAD if self.unknowns.sensing or np.any(self.clock.offset) else 0

    def with_windows(self, windows: Recording) -> "Problem":
        """The same problem of other windows. If they have the same shapes, the compiled programs are shared."""
        return dataclasses.replace(self, windows=windows, last=_Last())

    def part(self, chosen: slice) -> "Problem":
        """The problem of some of these windows."""
        return dataclasses.replace(
            self.with_windows(jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)[chosen]), self.windows)),
            follows=self.follows[chosen],
            rest=None if self.rest is None else self.rest[chosen],
        )

    def point(self, theta: np.ndarray) -> Point:
        """The point at theta with the guessed first states."""
        return Point(np.asarray(theta, float), np.zeros((self.count, self.width)))

    def solve(self, start: Point, iterations: int, free: str = "all") -> Outcome:
        """Least squares from a start.

        Args:
          start: the first point.
          iterations: most steps.
          free: "all" unknowns, "theta" alone, or the first "states" alone; the others do not change.
        """
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
        problem = LeastSquares(
            residuals=lambda point: self.residuals(with_fixed(point)),
            blocks=blocks,
            lower=bounds[0],
            upper=bounds[1],
            size=sizes,
        )
        outcome = least_squares(problem, Point(start.theta[:n], start.x[:, :width]), iterations)
        return outcome._replace(point=with_fixed(outcome.point))

    def motions(self, point: Point) -> Motions:
        """Simulates the windows up to the last measurement; the motions of the last point are kept."""
        guess = self._guess(point)
        rows = self.measured.shape[1]
        if self.tightness is None:
            last = int(np.flatnonzero(np.isfinite(self.measured).any(axis=(0, 2))).max(initial=0))
            rows = min(rows, last + 1 + self.ahead)
        key = np.asarray(guess.theta).tobytes(), np.asarray(guess.changes).tobytes(), rows
        if self.last.key != key or self.last.motions is None:
            self.last.motions = motions(self.unknowns.places, self.unknowns.model, self.inside, guess, rows)
            self.last.key = key
        return self.last.motions

    def pushed(self, point: Point, change: Change) -> Pushed:
        """Simulates the windows of a changed system (residuals.py)."""
        self.watch(self, None)
        return pushed(self.unknowns.places, self.unknowns.model, self.inside, self._guess(point), change)

    def resting(self, theta: np.ndarray) -> "Problem | None":
        """This problem with first states at rest, for windows that begin at rest on a floor or in a hand.

        A body at rest penetrates the floor by less than sensors see, and jumps if it begins elsewhere. Such a window
        therefore begins at the state where its guess, with velocities of zero, comes to rest under the first controls.
        Its first state may change only in directions that last: along the floor. Returns None if no window begins at
        rest.
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
        early = self.errors(Point(theta, changes), moved)[:, :REST_ROWS].reshape(count, -1)
        near = np.nansum(early**2, axis=1) < REST_DEVIATIONS**2 * np.maximum(np.isfinite(early).sum(axis=1), 1)
        still = near & (moved.contacts[:, 0] > 0) & np.isfinite(changes).all(axis=1)
        if not still.any():
            return None
        # what is left of small changes, by differences with a step of eps^(1/3)
        step = float(np.finfo(self.windows.qpos.dtype).eps) ** (1 / 3)
        again = settled(changes)
        lasting = np.stack([(settled(changes + step * side) - again) / step for side in np.eye(self.width)], axis=2)
        changes = np.where(still[:, None], changes, 0)
        states = begins(model, self.inside.first, jnp.asarray(changes, self.windows.qpos.dtype))[0]
        first = {
            name: getattr(self.windows, name).at[:, 0].set(getattr(states, name)) for name in ("qpos", "qvel", "act")
        }
        # a projection onto the directions that last: x has no directions without effect then
        basis, lengths, _ = np.linalg.svd(lasting)
        basis = basis * (lengths > LASTING)[:, None]
        rest = np.where(still[:, None, None], basis @ np.swapaxes(basis, 1, 2), np.eye(self.width))
        return dataclasses.replace(self.with_windows(self.windows.replace(**first)), rest=rest)

    def shown(self, point: Point, moved: Motions | Pushed) -> np.ndarray:
        """(windows, T, ny) readings as the recording shows them."""
        return shown(self.unknowns.sensing, point.theta, self.clock, np.asarray(moved.readings, float))

    def errors(self, point: Point, moved: Motions) -> np.ndarray:
        """(windows, T, ny) readings minus measurements, divided by the noise; NaN where nothing was measured."""
        readings = self.shown(point, moved)
        # a simulation that broke down may give any number
        with np.errstate(over="ignore", invalid="ignore"):
            errors = (readings - self._measured_near(readings)) / self.noise
        errors = np.where(np.abs(errors) < LARGEST_RESIDUAL, errors, LARGEST_RESIDUAL)
        return np.where(np.isfinite(self.measured), errors, np.nan)

    def residuals(self, point: Point) -> np.ndarray:
        """(windows, k) residuals: readings, first states, defects of a chain, and in the first window the prior."""
        self.watch(self, None)
        moved = self.motions(point)
        parts = [np.nan_to_num(self.errors(point, moved)).reshape(self.count, -1), point.x / self.start_noise]
        if self.tightness is not None:
            defects = np.asarray(self._window_gaps(point).defects)
            defects = np.where(np.abs(defects) < LARGEST_RESIDUAL, defects, LARGEST_RESIDUAL) / self.tightness
            parts.append(np.where(self._goes_on()[:, None], defects, 0))
        known = np.flatnonzero(np.isfinite(self.unknowns.prior))
        prior = np.zeros((self.count, known.size))
        prior[:1] = ((point.theta - self.unknowns.start) / self.unknowns.prior)[known]
        return np.concatenate([*parts, prior], axis=1)

    def blocks(self, point: Point) -> Blocks:
        """Derivatives of the residuals with respect to theta, each window's first state, and the next window's."""
        self.watch(self, point)
        unknowns, n, count, width = self.unknowns, point.theta.size, self.count, self.width
        moved = self.motions(point)
        where = unknowns.places, self.mode, unknowns.model, self.inside, self._guess(point), moved.states
        raw = derivatives(*where, touching=bool(np.any(moved.contacts)))
        by = Derivatives(*(np.nan_to_num(np.asarray(part, float), posinf=0, neginf=0) for part in raw))
        by_theta, by_x = self._of_readings(point, moved, by)
        # kinds of residuals, in the order of `residuals`: derivatives with respect to theta, and to the first state
        first = np.broadcast_to(np.diag(1 / self.start_noise), (count, width, width))
        kinds = [(by_theta, by_x), (np.zeros((count, width, n)), first)]
        known = np.flatnonzero(np.isfinite(unknowns.prior))
        prior = np.zeros((count, known.size, n))
        prior[:1, np.arange(known.size), known] = 1 / unknowns.prior[known]
        last = prior, np.zeros((count, known.size, width))
        by_next = None
        if self.tightness is not None:
            # defects, by way of the ends of the windows: the chain rule through `window_gaps`
            goes_on = np.where(self._goes_on()[:, None, None], 1 / self.tightness[:, None], 0)
            met, ends = self._window_gaps(point), np.zeros((count, self.tightness.size, n))
            ends[..., unknowns.in_model] = met.by_end @ by.ends_by_theta
            by_begin = met.by_end @ by.ends_by_change * goes_on
            by_next = np.asarray(met.by_next) * goes_on
            if self.rest is not None:
                by_begin = by_begin @ self.rest
                by_next = by_next @ np.roll(self.rest, -1, axis=0)
            before = np.zeros((count, by_x.shape[1] + width, width))
            by_next = np.concatenate([before, by_next, last[1]], axis=1)
            kinds.append((ends * goes_on, by_begin))
        by_theta, by_x = (np.concatenate(column, axis=1) for column in zip(*kinds, last, strict=True))
        return Blocks(by_theta=by_theta, by_x=by_x, by_next=by_next)

    def _of_readings(self, point: Point, moved: Motions, by: Derivatives) -> tuple[np.ndarray, np.ndarray]:
        """Derivatives of the residuals of readings, (windows, T * ny, n) and (windows, T * ny, width)."""
        unknowns, n = self.unknowns, point.theta.size
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
        rows = (self.count, weight[0].size)
        return (by_theta * weight).reshape(*rows, n), (by_x * weight).reshape(*rows, self.width)

    def sample(self, point: Point, blocks: Blocks, known: bool) -> FittedWindows:
        """The windows at a point, for statistics of the residuals. `known`: whether the user gave the noise."""
        moved, model = self.motions(point), self.unknowns.model
        readings = self.shown(point, moved)
        sensors = [SensorType(int(kind)).name for kind in model.sensor_type]
        order = [2 * (name in POSITION_SENSORS) + (name in VELOCITY_SENSORS) for name in sensors]
        return FittedWindows(
            errors=self.errors(point, moved),
            blocks=blocks,
            readings=readings,
            measured=np.where(np.isfinite(self.measured), self._measured_near(readings), np.nan),
            noise=self.noise,
            known=known,
            ctrl=np.asarray(self.windows.ctrl, float),
            contacts=np.asarray(moved.contacts),
            timestep=self.timestep,
            names=reading_names(model),
            order=np.repeat(order, model.sensor_dim),
        )

    def rms(self, point: Point) -> np.ndarray:
        """(ny,) root mean square error of each reading, in its unit; NaN if nothing was measured."""
        if not self.count:
            return np.full(self.noise.size, np.nan)
        errors = self.errors(point, self.motions(point))
        count = np.isfinite(errors).sum(axis=(0, 1))
        mean = np.divide(np.nansum(errors**2, axis=(0, 1)), count, out=np.full(count.size, np.nan), where=count > 0)
        return self.noise * np.sqrt(mean)

    def states(self, x: np.ndarray) -> State:
        """The initial states of all windows."""
        return begins(self.unknowns.model, self.inside.first, jnp.asarray(self._changes(x), self.windows.qpos.dtype))[0]

    def _window_gaps(self, point: Point) -> WindowGaps:
        """How far each window ends from where the next one begins."""
        changes = self._guess(point).changes
        return window_gaps(self.unknowns.model, self.inside.first, changes, self.motions(point).ends)

    def _goes_on(self) -> np.ndarray:
        """(windows,) bool, whether the next window continues this one."""
        return np.append(self.follows[1:], False)

    def _guess(self, point: Point) -> Guess:
        """The point as the arguments of a simulation."""
        dtype, theta = self.windows.qpos.dtype, point.theta[self.unknowns.in_model]
        return Guess(jnp.asarray(theta, dtype), jnp.asarray(self._changes(point.x), dtype))

    def _changes(self, x: np.ndarray) -> np.ndarray:
        """(windows, width) changes of first states that x stands for."""
        return x if self.rest is None else np.einsum("wij,wj->wi", self.rest, x)

    def _measured_near(self, readings: np.ndarray) -> np.ndarray:
        """The measurements; quaternions, whose sign is arbitrary, with the sign that is nearer to the readings."""
        measured, model = self.measured, self.unknowns.model
        for i in np.flatnonzero(np.asarray(model.sensor_dim) == 4):
            place = slice(int(model.sensor_adr[i]), int(model.sensor_adr[i]) + 4)
            side = np.sum(readings[..., place] * np.nan_to_num(measured[..., place]), axis=-1, keepdims=True)
            measured = measured.copy()
            measured[..., place] *= np.where(side < 0, -1, 1)
        return measured


def make_problem(
    unknowns: Unknowns,
    windows: Recording,
    noise: np.ndarray,
    start_noise: Any = None,
    known_start: bool = False,
    mode: str = "auto",
    follows: np.ndarray | None = None,
) -> Problem:
    """A problem, from what the user gives.

    Args:
      unknowns: theta.
      windows: a Recording with leaves (windows, T, ...).
      noise: (ny,) standard deviations of the readings.
      start_noise: standard deviations of first states about their guesses, one or (nx,); None for next to no knowledge.
      known_start: first states are the guesses, not unknowns.
      mode: of differentiation; "auto" for the cheapest one.
      follows: (windows,) bool, whether a window continues the one before; None if none does.

    Raises:
      ValueError: `start_noise` has the wrong shape, or is not positive.
    """
    model, nx = unknowns.model, tangent_size(unknowns.model)
    usual = (START_NOISE_POSITION, START_NOISE_VELOCITY, START_NOISE_ACTIVATION)
    spread = np.repeat(usual, [model.nv, model.nv, model.na]) if start_noise is None else start_noise
    spread = np.asarray(spread, float)
    if spread.shape not in ((), (nx,)) or not np.all(spread > 0):
        raise ValueError(f"start_noise is {start_noise}, expected positive numbers, one or ({nx},)")
    width = 0 if known_start else nx
    cheapest = mode_of(model, unknowns.places, width, windows.ctrl.shape[1])
    return Problem(
        unknowns=unknowns,
        windows=windows,
        noise=noise,
        start_noise=np.broadcast_to(spread, (nx,))[:width].copy(),
        mode=cheapest if mode == "auto" else mode,
        follows=np.zeros(windows.ctrl.shape[0], bool) if follows is None else follows,
        spoilt=spoilt_rows(unknowns.sensing, unknowns.lower, unknowns.upper, float(model.opt.timestep)),
    )


def windows_of(recordings: Sequence[Recording], rows: int) -> tuple[Recording, np.ndarray]:
    """Cuts recordings into windows of equal length; rows at the end that fill no window are left out.

    Args:
      recordings: of the same actuators and sensors.
      rows: length of a window; 0 for the length of the shortest recording.

    Returns:
      The windows, stacked; and whether each continues the one before, (windows,) bool.

    Raises:
      ValueError: windows of fewer than two rows, or longer than a recording.
    """
    shortest = min(len(recording.ctrl) for recording in recordings)
    rows = rows or shortest
    if rows < 2 or shortest < rows:
        raise ValueError(
            f"windows have {rows} rows, and the shortest recording has {shortest}; give a window from 2 to {shortest}"
        )
    places = [(k, first) for k, part in enumerate(recordings) for first in range(0, len(part.ctrl) - rows + 1, rows)]
    # on the host, where a slice is not a program
    arrays = [jax.tree.map(np.asarray, recording) for recording in recordings]
    cut = [jax.tree.map(lambda leaf, first=first: leaf[first : first + rows], arrays[k]) for k, first in places]
    windows = jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *cut)
    return windows, np.asarray([first > 0 for _, first in places])


def reading_names(model: Model) -> list[str]:
    """The name of each reading."""
    names = []
    for i in range(model.nsensor):
        name, width = model.name("sensor", i) or f"sensor {i}", int(model.sensor_dim[i])
        names += [name] if width == 1 else [f"{name}.{k}" for k in range(width)]
    return names


class Suspect(NamedTuple):
    """A parameter that may be wrong in the model.

    Attributes:
      label: its name, such as "dof_damping[elbow]".
      share: the share of the squared residuals that it would explain.
      value: an estimate of its value.
    """

    label: str
    share: float
    value: float


def suspects(problem: Problem, point: Point, blocks: Blocks, candidates: Sequence[Unknown]) -> list[Suspect]:
    """Score tests of parameters that a fit took as known; the likeliest to be wrong comes first.

    With c the derivative of the residuals r with respect to such a parameter, less what the fit can adjust, the
    parameter would explain the share (c r)^2 / (c^2 r^2) of the squared residuals, if it were larger by -(c r) / c^2.
    Source: Godfrey 1978.
    """
    unknowns = problem.unknowns
    model = unknowns.model_of(jnp.asarray(point.theta, unknowns.model.qpos0.dtype))
    taken = set(unknowns.labels)
    kept = []
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
        length = float(np.sum(outside**2))
        along = float(np.sum(outside * residuals.errors))
        if length > LEAST_EFFECT * np.sum(column**2):
            share = along**2 / length / max(squares, 1e-300)
            judged.append(Suspect(label=label, share=share, value=others.start[i] - along / length))
    return sorted(judged, key=lambda suspect: -suspect.share)
