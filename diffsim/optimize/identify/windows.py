"""The least-squares problem of `fit`: residuals and Jacobians of windows of recordings, as the search wants them."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.optimize.identify.levenberg_marquardt import Blocks, Unknown, least_squares
from diffsim.optimize.identify.levenberg_marquardt import Problem as LeastSquares
from diffsim.optimize.identify.recording import Recording
from diffsim.optimize.identify.residuals import MODES, Guess, Known, first_state, jacobian, mode_of, residuals
from diffsim.optimize.identify.unknowns import Unknowns
from diffsim.optimize.tangent import tangent_size
from diffsim.types import State
from diffsim.types.record import Record, record, static, whole_number

Array = jax.Array


def _mode(value: str) -> str:
    if value not in MODES:
        raise ValueError(f"{value!r} is none of {', '.join(MODES)}")
    return value


@record
class Fit(Record):
    """Settings of `fit`.

    Attributes:
      window: rows of each window; 0 for the length of the shortest recording.
      held_out: how many windows, the last ones, only test the result.
      known_start: initial states are those of the recordings, no unknowns.
      iterations: of the search, at most.
      mode: of differentiation: "steps", "forward", "reverse" (residuals.py), or "auto", the cheapest of them.
    """

    window: int = static(whole_number, default=0)
    held_out: int = static(whole_number, default=0)
    known_start: bool = static(default=False)
    iterations: int = static(whole_number, default=50)
    mode: str = static(_mode, default="auto")


class Solved(NamedTuple):
    """What a search found: x, residuals, their derivatives, the cost, how many Jacobians it took, and how it ended.

    `status` is 0 where it ran out of iterations.
    """

    x: np.ndarray
    fun: np.ndarray
    blocks: Blocks
    cost: float
    njev: int
    status: int
    message: str


class Problem:
    """Residuals and Jacobians of some windows: x is theta, then a change of each first state."""

    def __init__(self, unknowns: Unknowns, windows: Recording, noise: np.ndarray, settings: Fit) -> None:
        self.unknowns, self.windows, self.noise, self.settings = unknowns, windows, noise, settings
        model = unknowns.model
        self.width = 0 if settings.known_start else tangent_size(model)
        self.dtype = model.qpos0.dtype
        self.weight = jnp.asarray(1 / noise, self.dtype)
        cheapest = mode_of(model, unknowns.places, self.width, windows.ctrl.shape[1])
        self.mode = cheapest if settings.mode == "auto" else settings.mode

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
        """The same of some windows."""
        other = object.__new__(Problem)
        vars(other).update(vars(self), windows=jax.tree.map(lambda leaf: leaf[chosen], self.windows))
        return other

    def solve(self, theta: np.ndarray, free: bool) -> Solved:
        """Least squares from theta; with `free` over theta too, else over initial states alone."""
        count, n = self.windows.ctrl.shape[0], theta.size if free else 0
        if not n + count * self.width:
            return Solved(
                theta[:0],
                np.zeros(0),
                Blocks(np.zeros((0, 0, 0)), np.zeros((0, 0, 0))),
                0.0,
                0,
                1,
                "nothing to search for",
            )

        def whole(unknown: Unknown) -> np.ndarray:
            return np.concatenate([unknown.theta if free else theta, unknown.x.reshape(-1)])

        def errors(unknown: Unknown) -> np.ndarray:
            return self.residuals(whole(unknown)).reshape(count, -1)

        def blocks(unknown: Unknown) -> Blocks:
            found = self.blocks(whole(unknown))
            return found._replace(by_theta=found.by_theta[..., :n])

        question = LeastSquares(errors, blocks, self.unknowns.lower[:n], self.unknowns.upper[:n])
        found = least_squares(question, Unknown(theta[:n], np.zeros((count, self.width))), self.settings.iterations)
        x = np.concatenate([found.unknown.theta, found.unknown.x.reshape(-1)])
        fun = found.residuals.reshape(-1)
        return Solved(x, fun, found.blocks, 0.5 * float(fun @ fun), found.jacobians, found.status, found.message)

    def residuals(self, x: np.ndarray) -> np.ndarray:
        """(k,) of all readings; a large number where the simulation broke down, which the search then avoids."""
        found = np.asarray(residuals(self.unknowns.places, self._known(), self._guess(x)), float).reshape(-1)
        return np.where(np.abs(found) < 1e12, found, 1e12)

    def blocks(self, x: np.ndarray) -> Blocks:
        """Derivatives of each window's residuals by theta and by its own first state."""
        found = jacobian(self.unknowns.places, self.mode, self._known(), self._guess(x))
        by_theta, by_start = (np.nan_to_num(np.asarray(part, float), posinf=0, neginf=0) for part in found)
        return Blocks(by_theta, by_start)

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
        return jax.vmap(lambda change, row: first_state(self.unknowns.model, change, row))(moved, self.windows)

    def _no_changes(self) -> Array:
        return jnp.zeros((self.windows.ctrl.shape[0], 0), self.dtype)

    def _guess(self, x: np.ndarray) -> Guess:
        n = self.unknowns.start.size
        moved = jnp.asarray(x[n:].reshape(-1, self.width), self.dtype) if self.width else self._no_changes()
        return Guess(jnp.asarray(x[:n], self.dtype), moved)

    def _known(self) -> Known:
        return Known(self.unknowns.model, self.weight, self.windows)


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
