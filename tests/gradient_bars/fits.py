"""Identification of an arm of seven joints from its encoders: what is found, how well it is known, and the time.

A parameter counts as identifiable where the standard deviation that the fit without noise reports, for an encoder's
noise, is under a quarter of the 2% that are asked for. The fit without noise starts from numbers that are wrong by up
to a fifth, those with noise from what it found; the programs are compiled once for all. An interval that misses in 5 of
100 seeds on average misses more often for some parameters: the limit for the worst is what the worst of so many exact
intervals stays under in 99 of 100 cases.
"""

import dataclasses
import time
from collections.abc import Iterator

import numpy as np
import scipy.optimize
import scipy.stats

from diffsim import optimize
from diffsim.optimize.identify.evidence import Identified, examine, identify
from diffsim.optimize.identify.least_squares import Blocks, Outcome, Point
from diffsim.optimize.identify.problem import Problem, make_problem, windows_of
from tests.gradient_bars.arm import BODIES, ENCODER, WINDOW, arm, clean, guess, noisy, unknowns
from tests.gradient_bars.bar import Bar

SEEDS, CLOSE = 100, 0.02
ITERATIONS = 50


def fits() -> Iterator[Bar]:
    """Without noise, with an encoder's in 100 seeds, and beside finite differences."""
    problem, true = _problem(), optimize.Unknowns(arm(), unknowns())
    values = true.values(true.start)
    exact, theta = _solved(problem, clean(), problem.unknowns.start)
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
    worst = float(scipy.stats.binom.ppf(0.99 ** (1 / known.sum()), SEEDS, 0.05))
    yield Bar(
        f"arm, encoder: seeds of {SEEDS} in which an interval misses, worst parameter", float(misses.max()), worst
    )


def _problem() -> Problem:
    """The arm's, with the first seed's noise."""
    space = optimize.Unknowns(guess(), unknowns())
    return make_problem(space, windows_of([noisy(0)], WINDOW)[0], np.full(len(BODIES), ENCODER))


def _solved(problem: Problem, recording: optimize.Recording, start: np.ndarray) -> tuple[Identified, np.ndarray]:
    """What `optimize.fit` finds in a recording, from a start; and theta."""
    problem = problem.with_windows(windows_of([recording], WINDOW)[0])
    found = problem.solve(problem.point(start), ITERATIONS)
    sample = problem.sample(found.point, found.blocks, True)
    return identify(problem.unknowns, found.point.theta, sample, examine(sample, problem.noise)), found.point.theta


def _worst(found: Identified, values: np.ndarray, known: np.ndarray) -> float:
    return float(np.max(np.abs(found.values / values - 1)[known]))


def fit_times() -> Iterator[Bar]:
    """One search with our Jacobian, and with forward differences of each unknown, from the same start."""
    problem = _problem()
    start = problem.point(problem.unknowns.start)
    problem.solve(start, ITERATIONS)
    begin = time.perf_counter()
    ours = problem.solve(start, ITERATIONS)
    exact = time.perf_counter() - begin
    fields = {field.name: getattr(problem, field.name) for field in dataclasses.fields(problem)}
    by_differences = _ByDifferences(**fields)
    begin = time.perf_counter()
    theirs = by_differences.solve(start, ITERATIONS)
    differences = time.perf_counter() - begin
    yield Bar("arm: cost by exact Jacobians over that by differences", _cost(ours) / _cost(theirs), 1.001)
    size = theirs.point.theta.size + theirs.point.x.size
    one = f"{theirs.jacobians} by scipy's approx_fprime, {size} simulations of all windows each"
    name = f"arm: time of exact Jacobians ({ours.jacobians} in {exact:.2f} s) over that of differences ({one})"
    yield Bar(name, exact / differences, 0.1)
    yield Bar("arm: the same for one Jacobian", exact / ours.jacobians / (differences / theirs.jacobians), 0.1)


def _cost(outcome: Outcome) -> float:
    return float(np.sum(outcome.residuals**2))


class _ByDifferences(Problem):
    """The same problem with derivatives by differences."""

    def blocks(self, point: Point) -> Blocks:
        """Derivatives as scipy takes them."""
        return _differences(self, point)


def _differences(problem: Problem, point: Point) -> Blocks:
    """Derivatives as scipy's "2-point" takes them: a simulation of all windows for each unknown."""
    n, count = point.theta.size, problem.count
    x = np.concatenate([point.theta, point.x.reshape(-1)])

    def residuals(x: np.ndarray) -> np.ndarray:
        return problem.residuals(Point(x[:n], x[n:].reshape(count, -1))).reshape(-1)

    steps = np.sqrt(np.finfo(float).eps) * np.maximum(1, np.abs(x))
    dense = np.asarray(scipy.optimize.approx_fprime(x, residuals, steps))
    by_window = dense.reshape(count, -1, x.size)
    own = by_window[..., n:].reshape(count, -1, count, problem.width)
    return Blocks(by_window[..., :n], own[np.arange(count), :, np.arange(count)])
