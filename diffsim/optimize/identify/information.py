"""What a recording can tell before anything is fitted: the Fisher information of the unknowns at the first guess.

With J the derivatives of the residuals with respect to theta along the simulated motion of the first guess, and first
states projected out, J^T J is the information. Directions of theta whose standard deviation is larger than the
parameters themselves are hidden: the recording cannot tell these parameters apart. Then the same commands are tried
two, four and eight times as fast, since slow motions hide inertia, delays and damping.

Source: Swevers et al. 1997 (excitation).
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from diffsim.base.checked import checked
from diffsim.optimize.identify.evidence import directions_in_words, seen_and_unseen
from diffsim.optimize.identify.least_squares import projected
from diffsim.optimize.identify.problem import Problem, make_problem, windows_of
from diffsim.optimize.identify.recording import Recording
from diffsim.optimize.identify.unknowns import Unknown, UnknownInertia, UnknownPayload, Unknowns
from diffsim.types import Model

# factors by which commands are tried faster
FASTER = (2, 4, 8)
# a motion's frequencies are those between these parts of the power of its rates
POWER = (0.05, 0.95)
# most hidden directions that are named
NAMED = 3


class Information(NamedTuple):
    """What a recording can tell about the unknowns; `print` it.

    Attributes:
      frequencies: (2,) Hz, the slowest and the fastest motion of the readings.
      hidden: combinations of unknowns that it does not show, in words.
      faster: by what factor the commands must be faster to show all of them; None if none of `FASTER` does, or if there
        are no commands.
    """

    frequencies: tuple[float, float]
    hidden: list[str]
    faster: int | None

    def __str__(self) -> str:
        low, high = self.frequencies
        moves = f"The recording moves at {low:.2g} to {high:.2g} Hz"
        if not self.hidden:
            return f"{moves} and shows all unknowns."
        more = "" if len(self.hidden) <= NAMED else f" and {len(self.hidden) - NAMED} more"
        cure = "`optimize.excite` designs commands that may show them"
        if self.faster is not None:
            cure = f"the same commands {self.faster} times as fast would; `optimize.excite` designs better ones"
        return f"{moves}, which does not show {'; '.join(self.hidden[:NAMED])}{more}: {cure}."


@checked
def information(
    model: Model,
    recordings: Recording | Sequence[Recording],
    unknowns: Sequence[Unknown | UnknownInertia | UnknownPayload],
    noise: Any,
) -> Information:
    """Tells which unknowns a recording can show, before they are fitted.

    Args:
      model: the first guess.
      recordings: one or several, of the same actuators and sensors.
      unknowns: as in `fit`.
      noise: standard deviation of each reading, a number or (nsensordata,).

    Returns:
      An `Information`; `print` shows it.
    """
    listed = [recordings] if isinstance(recordings, Recording) else list(recordings)
    windows, follows = windows_of(listed, 0)
    scale = np.broadcast_to(np.asarray(noise, float), (model.nsensordata,))
    return information_of(make_problem(Unknowns(model, unknowns), windows, scale, follows=follows))


def information_of(problem: Problem) -> Information:
    """The information of a problem at its first guess."""
    hidden = _hidden(problem)
    ctrl = np.asarray(problem.windows.ctrl)
    faster = None
    if hidden and ctrl.size:
        faster = next((factor for factor in FASTER if not _hidden(_hastened(problem, factor))), None)
    return Information(frequencies=_frequencies(problem.measured, problem.timestep), hidden=hidden, faster=faster)


def _hidden(problem: Problem) -> list[str]:
    """Combinations of unknowns that a problem does not show at its first guess."""
    unknowns = problem.unknowns
    size = unknowns.sizes(unknowns.start)
    blocks = problem.blocks(problem.point(unknowns.first))
    count = problem.measured.shape[1] * problem.noise.size
    # without the rows of priors, which are no data
    rows = projected(blocks)[:, :count] * size
    directions, _ = seen_and_unseen(rows, 1.0)
    return [directions_in_words(unknowns.labels, direction * size) for direction in directions]


def _hastened(problem: Problem, factor: int) -> Problem:
    """The problem with its commands played faster, forth and back; its programs are the same."""
    ctrl = np.asarray(problem.windows.ctrl)
    rows = np.arange(ctrl.shape[1]) * factor
    period = max(2 * (ctrl.shape[1] - 1), 1)
    rows = np.abs((rows + period // 2) % period - period // 2)
    windows = problem.windows.replace(ctrl=jnp.asarray(ctrl[:, rows]))
    return dataclasses.replace(problem.with_windows(windows), follows=problem.follows)


def _frequencies(measured: np.ndarray, timestep: float) -> tuple[float, float]:
    """The slowest and the fastest frequency of the readings (windows, T, ny), Hz, by the power of their rates."""
    seen = np.isfinite(measured).all(axis=(0, 2))
    rates = np.diff(measured[:, seen], axis=1)
    if rates.shape[1] < 4 or not rates.any():
        return 0.0, 0.0
    spread = np.sqrt(np.mean(rates**2, axis=(0, 1)))
    power = np.abs(np.fft.rfft(rates / np.where(spread > 0, spread, 1), axis=1)) ** 2
    total = np.cumsum(power.sum(axis=(0, 2)))
    frequency = np.fft.rfftfreq(rates.shape[1], timestep * len(seen) / max(np.count_nonzero(seen), 1))
    low, high = (float(frequency[np.searchsorted(total, part * total[-1])]) for part in POWER)
    return low, high
