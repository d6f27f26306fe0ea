"""What a least-squares fit knows of its parameters: covariance, intervals, and directions that the data do not show.

With J = [J_theta, J_x] at the solution, what J_x explains is taken out, P = (1 - Q Q^T) J_theta with Q a basis of the
columns of J_x (initial states). Then P S = U s V^T, with S a typical size of each parameter: covariance of theta is
sigma^2 S V s^-2 V^T S, and columns of V with tiny s are combinations of parameters that could have any value.
"""

from typing import Any, NamedTuple

import numpy as np
import scipy.stats

from diffsim.optimize.identify.levenberg_marquardt import Blocks
from diffsim.optimize.identify.unknowns import Unknowns

# singular values below this part of the largest count as zero, and standard deviations above this part of a
# parameter's size as not identified
NULL, LOOSE = 1e-7, 1.0
# the part of a direction that names a parameter
NAMED = 0.1
CONFIDENCE = 0.95


class Identified(NamedTuple):
    """Parameters and how well they are known, n of them; in units of the model.

    Attributes:
      labels: their names.
      values: found; start: before.
      std: standard deviations of theta (relative ones for logarithms); infinite where the data do not show a parameter.
      lower, upper: 95% intervals of the values, without regard to bounds.
      at_bound: bool, whether the search ended at a bound: interval and std then mean little.
      covariance: (n, n) of theta, within what is identified.
      null_directions: combinations of parameters that the data do not show, in words.
    """

    labels: list[str]
    values: np.ndarray
    start: np.ndarray
    std: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    at_bound: np.ndarray
    covariance: np.ndarray
    null_directions: list[str]

    def __str__(self) -> str:
        width = max(len(label) for label in self.labels) + 2
        lines = [f"{'parameter':<{width}}{'before':>12}{'found':>12}   95% interval"]
        rows = zip(self.labels, self.start, self.values, self.lower, self.upper, self.at_bound, strict=True)
        for label, start, value, lower, upper, bound in rows:
            told = f"[{lower:.6g}, {upper:.6g}]" if np.isfinite(upper - lower) else "not identified"
            lines.append(f"{label:<{width}}{start:>12.5g}{value:>12.5g}   {told}{'  at a bound' if bound else ''}")
        lines += [f"not identified: {direction}" for direction in self.null_directions]
        return "\n".join(lines)


def identify(
    unknowns: Unknowns, theta: np.ndarray, blocks: Blocks, residuals: np.ndarray, known_noise: bool
) -> Identified:
    """Statistics of a fit.

    Args:
      unknowns: names, bounds and logarithms.
      theta: (n,) found.
      blocks: derivatives of the weighted residuals by theta and by initial states, at the solution.
      residuals: (k,) weighted; exact zeros count as not measured.
      known_noise: whether their standard deviation is 1; else it is estimated from them.
    """
    n = theta.size
    size = _sizes(unknowns, theta)
    projected = _without(blocks.by_theta, blocks.by_x).reshape(-1, n) * size
    _, singular, directions = np.linalg.svd(np.asarray(np.linalg.qr(projected, mode="r")), full_matrices=False)
    free = max(int(np.count_nonzero(residuals)) - n - blocks.by_x[:, 0].size, 1)
    sigma = 1.0 if known_noise else float(np.sqrt(residuals @ residuals / free))
    spread = np.divide(sigma, singular, out=np.full(n, np.inf), where=singular > NULL * max(singular[0], 1e-300))
    null = directions[spread > LOOSE]
    kept = directions[spread <= LOOSE].T * spread[spread <= LOOSE]
    covariance = (kept @ kept.T) * size[:, None] * size
    hidden = np.max(np.abs(null), axis=0, initial=0) > NAMED
    std = np.where(hidden, np.inf, np.sqrt(np.diag(covariance)))
    half = scipy.stats.t.ppf(0.5 + CONFIDENCE / 2, free) * std
    values = unknowns.values(theta)
    low, high = (np.where(unknowns.log, values * np.exp(sign * half), theta + sign * half) for sign in (-1, 1))
    room = 1e-6 * (1 + np.abs(theta))
    at_bound = (theta - unknowns.lower < room) | (unknowns.upper - theta < room)
    return Identified(
        labels=unknowns.labels,
        values=values,
        start=unknowns.values(unknowns.start),
        std=std,
        lower=low,
        upper=high,
        at_bound=at_bound,
        covariance=covariance,
        null_directions=[_words(unknowns.labels, direction * size) for direction in null],
    )


def _sizes(unknowns: Unknowns, theta: np.ndarray) -> np.ndarray:
    """A typical size of each parameter: 1 for logarithms, else its value, or where that is small the bounds'."""
    span = unknowns.upper - unknowns.lower
    span = np.where(np.isfinite(span), span, 1.0)
    return np.where(unknowns.log, 1.0, np.maximum(np.abs(theta), 0.1 * span))


def _without(columns: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Columns (windows, k, n) of each window, with their parts in the span of others (windows, k, m) taken out."""
    if not others.size:
        return columns
    basis, values, _ = np.linalg.svd(others, full_matrices=False)
    largest = np.maximum(values.max(initial=0), 1e-300)
    basis = basis * (values > 1e-12 * largest)[:, None]
    return columns - basis @ (np.swapaxes(basis, 1, 2) @ columns)


def _words(labels: list[str], direction: Any) -> str:
    """A direction as a sum: "body_mass[a] - 0.5 body_mass[b]"."""
    scaled = direction / direction[np.argmax(np.abs(direction))]
    parts = [(value, label) for value, label in zip(scaled, labels, strict=True) if abs(value) > NAMED]
    numbers = [f"{abs(value):.2g}" for value, _ in parts]
    signs = ["-" if value < 0 else "+" for value, _ in parts]
    pieces = zip(signs, numbers, (label for _, label in parts), strict=True)
    words = [f"{sign} {label}" if number == "1" else f"{sign} {number} {label}" for sign, number, label in pieces]
    return " ".join(words).removeprefix("+ ")
