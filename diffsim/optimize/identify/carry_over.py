"""Whether a fit carries over: the slower part of the recordings is fitted, and predicts the faster part.

A wrong model can fit slow motions with numbers that are wrong for faster ones: it takes friction for damping, or a
delay for inertia. So the faster half of the rows is left out, theta is estimated from the other half, and the errors on
the rows that were left out are compared with the errors of the model's own numbers. Where the model does not explain
the data, its evidence does not tell how wide the prior should be (prior.py). Then the width that predicts the faster
rows best is taken. A width of zero means the model's own numbers.

Source: Stone 1974 (cross-validation).
"""

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from diffsim.optimize.identify.least_squares import Outcome, Point, state_slopes
from diffsim.optimize.identify.prior import Prior
from diffsim.optimize.identify.problem import Problem

# parts into which the windows are cut, by speed: a half of them is the fewest that tell slow from fast
PARTS = 8
# a part has at least this number of rows
LEAST_ROWS = 20
# readings move if their standard deviation is larger than the noise by this factor
MOVES = 5.0
# rates are changes over this number of rows
LAG = 3
# the fits of the slower rows begin next to their solutions
ITERATIONS = 4
# first states follow a change of theta nearly linearly
STATE_ITERATIONS = 2
# factors of the prior's width that are compared where the model does not explain the data
NARROWER = (1.0, 0.3, 0.1)
# the estimates are preferred to the model's own numbers only if they predict with errors smaller by this factor
BETTER = 0.95
# the same where the model does not explain the data: errors that wrong numbers make grow with the speed
CLEARLY_BETTER = 0.75


class CarryOver(NamedTuple):
    """How well the slower part of the recordings predicts the faster part; `print` it.

    Attributes:
      faster: by what factor the faster part is faster (root mean square of the rates of the readings).
      errors: root mean square error on the faster part, over the noise, by factor of the prior's width.
      nominal: the same error with the model's own numbers.
      explained: whether the model explains the recordings.
    """

    faster: float
    errors: dict[float, float]
    nominal: float
    explained: bool

    @property
    def factor(self) -> float:
        """The factor of the prior's width that predicts best; 0 for the model's own numbers."""
        # a wider prior is preferred if a narrower one is hardly better
        best = min(self.errors, key=lambda factor: self.errors[factor] * (1 if factor == 1 else 1 / BETTER))
        return best if self.errors[best] < (BETTER if self.explained else CLEARLY_BETTER) * self.nominal else 0.0

    @property
    def carries(self) -> bool:
        """Whether the estimates may replace the model's own numbers.

        Where the model explains the recordings, they must not predict the faster part worse; where it does not, they
        must predict it with errors smaller by `CLEARLY_BETTER`.
        """
        return self.factor > 0 or (self.explained and self.errors[1.0] <= self.nominal / BETTER)

    def __str__(self) -> str:
        error = self.errors[self.factor] if self.factor else min(self.errors.values())
        asked = "" if self.carries or error >= self.nominal else ", which is too little better for a wrong model"
        return (
            f"fitted to the slower half of the rows alone, the model predicts the other half, {self.faster:.2g} times "
            f"as fast, with errors of {error:.3g} times the noise, and with the first guess {self.nominal:.3g}{asked}"
        )


def faster_rows(measured: np.ndarray, noise: np.ndarray) -> tuple[np.ndarray, float] | None:
    """Which rows belong to the faster half of the recordings, and how much faster they are.

    Rows are taken in parts of a window, so that motions stay whole.

    Args:
      measured: (windows, T, ny) readings; NaN where nothing was measured.
      noise: (ny,) their standard deviations.

    Returns:
      (windows, T) bool, and the ratio of the rates; None for recordings that are too short, or in which nothing moves.
    """
    count, length = measured.shape[:2]
    pieces = -(-PARTS // count)
    rows = length // pieces
    if rows < LEAST_ROWS:
        return None
    seen = np.isfinite(measured)
    filled = np.where(seen, measured, 0)
    # readings that move, and their changes over a lag over which the motion is larger than the noise
    number = np.maximum(seen.sum(axis=(0, 1)), 1)
    mean = filled.sum(axis=(0, 1)) / number
    spread = np.sqrt(np.sum(np.where(seen, filled - mean, 0) ** 2, axis=(0, 1)) / number)
    moves = spread > MOVES * noise
    both = seen[:, LAG:] & seen[:, :-LAG] & moves
    change = np.where(both, filled[:, LAG:] - filled[:, :-LAG], 0) / np.where(moves, spread, 1)
    # the mean square of a change less the part that noise makes
    expected = np.where(both, 2 * (noise / np.where(moves, spread, 1)) ** 2, 0)
    part = np.minimum(np.arange(length - LAG) // rows, pieces - 1)
    squares = np.stack([np.sum((change**2 - expected)[:, part == k], axis=(1, 2)) for k in range(pieces)], axis=1)
    number = np.stack([both[:, part == k].sum(axis=(1, 2)) for k in range(pieces)], axis=1)
    speed = np.sqrt(np.maximum(squares, 0) / np.maximum(number, 1))
    if np.count_nonzero(number) < 2:
        return None
    fast = (speed > np.median(speed[number > 0])) & (number > 0)
    slow = ~fast & (number > 0)
    if not fast.any() or not slow.any():
        return None
    ratio = np.sqrt(np.mean(speed[fast] ** 2) / max(np.mean(speed[slow] ** 2), 1e-300))
    return fast[:, np.minimum(np.arange(length) // rows, pieces - 1)], float(ratio)


def without(problem: Problem, rows: np.ndarray) -> Problem:
    """The problem without the measurements of some rows, (windows, T) bool; its programs are the same."""
    seen = np.where(rows[..., None], np.nan, np.asarray(problem.windows.sensordata, float))
    readings = jnp.asarray(seen, problem.windows.sensordata.dtype)
    return problem.with_windows(problem.windows.replace(sensordata=readings))


def with_prior(problem: Problem, prior: Prior, fixed: np.ndarray) -> Problem:
    """The problem with a prior, and with parameters (n,) bool that keep the model's values."""
    unknowns = problem.unknowns.with_prior(prior.width)
    for i in np.flatnonzero(fixed):
        unknowns = unknowns.with_fixed(int(i), unknowns.start[i])
    return dataclasses.replace(problem, unknowns=unknowns, noise=prior.noise)


def followed(problem: Problem, outcome: Outcome, theta: np.ndarray) -> Point:
    """The point at another theta. Each first state follows, stays, or is the guess, whichever fits its window best."""
    x = outcome.point.x
    if not problem.width:
        return Point(theta, x)
    tried = [x + state_slopes(outcome.blocks) @ (theta - outcome.point.theta), x, np.zeros_like(x)]
    squares = [np.sum(problem.residuals(Point(theta, each)) ** 2, axis=1) for each in tried]
    best = np.argmin(squares, axis=0)
    return Point(theta, np.stack(tried)[best, np.arange(len(x))])


def carry_over(
    problem: Problem,
    outcome: Outcome,
    priors: dict[float, Prior],
    fixed: np.ndarray,
    explained: bool,
    apparent_noise: np.ndarray,
) -> CarryOver | None:
    """Predicts the faster rows by fits of the slower ones.

    Args:
      problem: of all rows, without a prior.
      outcome: its solution.
      priors: by the factor of their widths.
      fixed: (n,) bool, parameters that keep the model's values.
      explained: whether the model explains the recordings there.
      apparent_noise: (ny,) the noise that recordings show by themselves.

    Returns:
      The errors; None if the recordings are too short to be divided.
    """
    divided = faster_rows(problem.measured, apparent_noise)
    if divided is None:
        return None
    fast, ratio = divided
    slow = without(problem, fast)
    errors = {}
    theta = outcome.point.theta
    for factor, prior in priors.items():
        # the first fit begins at the solution of all rows, and each other one at the fit with a wider prior
        theta = with_prior(slow, prior, fixed).solve(followed(problem, outcome, theta), ITERATIONS).point.theta
        errors[factor] = _error(problem, followed(problem, outcome, theta), fast)
    nominal = _error(problem, followed(problem, outcome, problem.unknowns.start), fast)
    return CarryOver(faster=ratio, errors=errors, nominal=nominal, explained=explained)


def _error(problem: Problem, point: Point, rows: np.ndarray) -> float:
    """Root mean square error over the noise on some rows, with first states that fit all rows best."""
    there = problem.solve(point, STATE_ITERATIONS, "states").point if problem.width else point
    errors = problem.errors(there, problem.motions(there))[rows]
    return float(np.sqrt(np.nanmean(errors**2)))
