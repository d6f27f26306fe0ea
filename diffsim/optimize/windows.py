"""The least-squares problem of `fit`: residuals and Jacobians of windows of recordings, as scipy wants them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize

from diffsim.optimize.recording import Recording
from diffsim.optimize.tangent import integrate, tangent_size
from diffsim.optimize.unknowns import Unknowns
from diffsim.simulate.rollout import rollout
from diffsim.types import Model, State
from diffsim.types.record import Record, record, static, whole_number
from diffsim.types.state import make_state

Array = jax.Array

# one reverse pass costs about as much as this many forward ones
REVERSE_COST = 3.0


def _mode(value: str) -> str:
    if value not in ("auto", "forward", "reverse"):
        raise ValueError(f"{value!r} is none of auto, forward, reverse")
    return value


@record
class Fit(Record):
    """Settings of `fit`.

    Attributes:
      window: rows of each window; 0 for the length of the shortest recording.
      held_out: how many windows, the last ones, only test the result.
      known_start: initial states are those of the recordings, no unknowns.
      iterations: of the search, at most.
      mode: of differentiation: "auto", "forward" or "reverse".
    """

    window: int = static(whole_number, default=0)
    held_out: int = static(whole_number, default=0)
    known_start: bool = static(default=False)
    iterations: int = static(whole_number, default=50)
    mode: str = static(_mode, default="auto")


class Problem:
    """Residuals and Jacobians of some windows, as scipy wants them: x is theta, then a change of each first state."""

    def __init__(self, unknowns: Unknowns, windows: Recording, noise: np.ndarray, settings: Fit) -> None:
        self.unknowns, self.windows, self.noise, self.settings = unknowns, windows, noise, settings
        model = unknowns.model
        self.width = 0 if settings.known_start else tangent_size(model)
        self.dtype = model.qpos0.dtype
        self.programs = _programs(unknowns, noise, settings, windows.ctrl.shape[1])

    def divided(self) -> tuple["Problem", "Problem"]:
        """The windows to fit, and those held out.

        Raises:
          ValueError: none is left to fit.
        """
        count, held_out = self.windows.ctrl.shape[0], self.settings.held_out
        if held_out >= count:
            raise ValueError(f"{held_out} windows held out of {count}: none is left to fit")
        return self.part(slice(0, count - held_out)), self.part(slice(count - held_out, None))

    def part(self, chosen: slice) -> "Problem":
        """The same of some windows; programs are shared."""
        other = object.__new__(Problem)
        vars(other).update(vars(self), windows=jax.tree.map(lambda leaf: leaf[chosen], self.windows))
        return other

    def solve(self, theta: np.ndarray, free: bool) -> Any:
        """Least squares from theta; with `free` over theta too, else over initial states alone."""
        n, count = theta.size, self.windows.ctrl.shape[0] * self.width
        first = n if not free else 0
        start = np.concatenate([theta, np.zeros(count)])
        lower = np.concatenate([self.unknowns.lower, np.full(count, -np.inf)])
        upper = np.concatenate([self.unknowns.upper, np.full(count, np.inf)])
        # scipy wants a start strictly inside
        margin = 1e-10 * (1 + np.abs(start))
        inside = np.clip(start, lower + margin, upper - margin)

        def whole(x: np.ndarray) -> np.ndarray:
            return np.concatenate([start[:first], x])

        return (
            scipy.optimize.least_squares(
                lambda x: self.residuals(whole(x)),
                inside[first:],
                jac=lambda x: self.jacobian(whole(x))[:, first:],  # type: ignore[arg-type]
                bounds=(lower[first:], upper[first:]),
                x_scale="jac",
                max_nfev=self.settings.iterations,
            )
            if start.size > first
            else _nothing()
        )

    def residuals(self, x: np.ndarray) -> np.ndarray:
        """(k,) of all readings; a large number where the simulation broke down, which the search then avoids."""
        found = np.asarray(self.programs.residuals(*self._split(x), self.windows), float).reshape(-1)
        return np.where(np.abs(found) < 1e12, found, 1e12)

    def jacobian(self, x: np.ndarray) -> np.ndarray:
        """(k, n + windows * width), zero between a window and another's initial state."""
        by_theta, by_start = self.programs.jacobian(*self._split(x), self.windows)
        by_theta, by_start = np.asarray(by_theta, float), np.asarray(by_start, float)
        count, rows, width = by_start.shape
        blocks = np.zeros((count, rows, count, width))
        blocks[np.arange(count), :, np.arange(count)] = by_start
        full = np.concatenate([by_theta.reshape(count * rows, -1), blocks.reshape(count * rows, -1)], axis=1)
        return np.where(np.isfinite(full), full, 0)

    def rms(self, x: np.ndarray) -> np.ndarray:
        """(nsensordata,) root mean square error of each reading, in its unit; NaN where nothing was measured."""
        if not self.windows.ctrl.shape[0]:
            return np.full(self.noise.size, np.nan)
        measured = np.isfinite(np.asarray(self.windows.sensordata)).sum(axis=(0, 1))
        square = (self.residuals(x).reshape(-1, self.noise.size) ** 2).sum(axis=0)
        mean = np.divide(square, measured, out=np.full(self.noise.size, np.nan), where=measured > 0)
        return self.noise * np.sqrt(mean)

    def states(self, changes: np.ndarray) -> State:
        """The initial states of all windows."""
        moved = jnp.asarray(changes.reshape(-1, self.width), self.dtype) if self.width else self._no_changes()
        return jax.vmap(lambda change, row: _first_state(self.unknowns.model, change, row))(moved, self.windows)

    def _no_changes(self) -> Array:
        return jnp.zeros((self.windows.ctrl.shape[0], 0), self.dtype)

    def _split(self, x: np.ndarray) -> tuple[Array, Array]:
        n = self.unknowns.start.size
        moved = jnp.asarray(x[n:].reshape(-1, self.width), self.dtype) if self.width else self._no_changes()
        return jnp.asarray(x[:n], self.dtype), moved


class _Programs(NamedTuple):
    """Jitted, of (theta, changes (W, width), windows): residuals (W, k); derivatives (W, k, n) and (W, k, width)."""

    residuals: Callable[[Array, Array, Recording], Array]
    jacobian: Callable[[Array, Array, Recording], tuple[Array, Array]]


def _programs(unknowns: Unknowns, noise: np.ndarray, settings: Fit, length: int) -> _Programs:
    model = unknowns.model
    weight = jnp.asarray(1 / noise, model.qpos0.dtype)
    turns = _quaternions(model)

    def residual(theta: Array, change: Array, window: Recording) -> Array:
        state = _first_state(model, change, window)
        run = rollout(unknowns.model_of(theta), state, window.ctrl, lambda state, data: data.sensordata)
        seen = jnp.isfinite(window.sensordata)
        measured = jnp.where(seen, window.sensordata, 0)
        readings: jax.Array = run.readouts
        for place in turns:
            side = jnp.sum(readings[:, place] * measured[:, place], axis=1, keepdims=True)
            measured = measured.at[:, place].multiply(jnp.where(side < 0, -1, 1).astype(measured.dtype))
        return (jnp.where(seen, readings - measured, 0) * weight[None]).reshape(-1)

    width = 0 if settings.known_start else tangent_size(model)
    forward = unknowns.start.size + width <= REVERSE_COST * length * model.nsensordata
    forward = forward if settings.mode == "auto" else settings.mode == "forward"
    jacobian = (jax.jacfwd if forward else jax.jacrev)(residual, argnums=(0, 1))
    axes = (None, 0, 0)
    return _Programs(jax.jit(jax.vmap(residual, in_axes=axes)), jax.jit(jax.vmap(jacobian, in_axes=axes)))


def _quaternions(model: Model) -> list[slice]:
    """Readings that are quaternions, whose sign means nothing."""
    wide = np.flatnonzero(np.asarray(model.sensor_dim) == 4)
    return [slice(int(model.sensor_adr[i]), int(model.sensor_adr[i]) + 4) for i in wide]


def _first_state(model: Model, change: Array, window: Recording) -> State:
    """The guess of a window's first row, changed."""
    guess = make_state(model).replace(qpos=window.qpos[0], qvel=window.qvel[0], act=window.act[0])
    return integrate(model, guess, change) if change.size else guess


def windows_of(recordings: list[Recording], rows: int) -> Recording:
    """All windows, stacked; rows at the end that fill no window are left out."""
    shortest = min(len(recording.ctrl) for recording in recordings)
    rows = rows or shortest
    if rows < 2 or shortest < rows:
        raise ValueError(
            f"windows have {rows} rows, the shortest recording {shortest}; give a window between 2 and that"
        )
    cut = [
        jax.tree.map(lambda leaf, first=first: leaf[first : first + rows], recording)
        for recording in recordings
        for first in range(0, len(recording.ctrl) - rows + 1, rows)
    ]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *cut)


def _nothing() -> Any:
    """The result of a search without unknowns."""
    return scipy.optimize.OptimizeResult(x=np.zeros(0), njev=0, status=1, message="nothing to search for")
