"""Identification of an arm of seven joints from its encoders: what is found, how well it is known, and the time.

A parameter counts as identifiable where the standard deviation that the fit without noise reports, for an encoder's
noise, is under a quarter of the 2% that are asked for. The fit without noise starts from numbers that are wrong by up
to a fifth, those with noise from what it found; the programs are compiled once for all.
"""

import time
from collections.abc import Iterator

import numpy as np
import scipy.optimize

from diffsim import optimize
from diffsim.optimize.identify import Identified, identify
from diffsim.optimize.windows import Problem, windows_of
from tests.gradient_bars.arm import BODIES, ENCODER, WINDOW, arm, clean, guess, noisy, unknowns
from tests.gradient_bars.bar import Bar

SEEDS, CLOSE = 100, 0.02
SETTINGS = optimize.Fit(window=WINDOW)


def fits() -> Iterator[Bar]:
    """Without noise, with an encoder's in 100 seeds, and beside finite differences."""
    space = optimize.Unknowns(guess(), unknowns())
    true = optimize.Unknowns(arm(), unknowns())
    values = true.values(true.start)
    problem = Problem(space, windows_of([clean()], WINDOW), np.full(len(BODIES), ENCODER), SETTINGS)
    exact, theta = _solved(problem, clean(), space.start)
    known = np.isfinite(exact.std) & (exact.std < CLOSE / 4)
    hidden = ", ".join(label for label, there in zip(exact.labels, known, strict=True) if not there)
    yield Bar(f"arm: share of parameters that are not identifiable ({hidden})", float(np.mean(~known)), np.inf)
    yield Bar(f"arm, no noise: relative error of {known.sum()} parameters", _worst(exact, values, known), CLOSE)
    close, inside = [], []
    for seed in range(SEEDS):
        found, _ = _solved(problem, noisy(seed), theta)
        close.append(_worst(found, values, known) < CLOSE)
        inside.append(((found.lower < values) & (values < found.upper))[known])
    off = SEEDS * (1 - float(np.mean(close)))
    yield Bar(f"arm, encoder: seeds of {SEEDS} in which a parameter is off by 2% or more", off, 5)
    misses = SEEDS * (1 - np.mean(inside, axis=0))
    yield Bar(f"arm, encoder: seeds of {SEEDS} in which an interval misses, mean parameter", float(misses.mean()), 5)
    yield Bar(f"arm, encoder: seeds of {SEEDS} in which an interval misses, worst parameter", float(misses.max()), 5)
    yield from _times(problem)


def _solved(problem: Problem, recording: optimize.Recording, start: np.ndarray) -> tuple[Identified, np.ndarray]:
    """What `optimize.fit` finds in a recording, from a start; and theta."""
    problem.windows = windows_of([recording], WINDOW)
    found = problem.solve(start, True)
    theta = found.x[: start.size]
    return identify(problem.unknowns, theta, found.jac, found.fun, True), theta


def _worst(found: Identified, values: np.ndarray, known: np.ndarray) -> float:
    return float(np.max(np.abs(found.values / values - 1)[known]))


def _times(problem: Problem) -> Iterator[Bar]:
    """One search of scipy's with our Jacobian, and with its finite differences, from the same start."""
    space = problem.unknowns
    begin = time.perf_counter()
    ours = problem.solve(space.start, True)
    exact = time.perf_counter() - begin
    free = ours.x.size - space.start.size
    begin = time.perf_counter()
    theirs = scipy.optimize.least_squares(
        problem.residuals,
        np.concatenate([space.start, np.zeros(free)]),
        jac="2-point",
        bounds=[np.concatenate([bound, np.full(free, far)]) for bound, far in _bounds(space)],
        x_scale="jac",
        max_nfev=SETTINGS.iterations,
    )
    differences = time.perf_counter() - begin
    yield Bar("arm: cost by exact Jacobians over that by differences", ours.cost / theirs.cost, 1.001)
    yield Bar(f"arm: time of exact Jacobians ({exact:.2f} s) over that of differences", exact / differences, 0.1)


def _bounds(space: optimize.Unknowns) -> tuple[tuple[np.ndarray, float], tuple[np.ndarray, float]]:
    return (space.lower, -np.inf), (space.upper, np.inf)
