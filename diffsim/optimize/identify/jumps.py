"""Searches and intervals where a motion jumps, since a contact begins one step later. Derivatives do not show jumps.

Source: Venzon and Moolgavkar 1988 (profile likelihood).
"""

import dataclasses
import itertools

import numpy as np

from diffsim.optimize.identify.evidence import seen_and_unseen
from diffsim.optimize.identify.least_squares import Outcome, Point, projected, state_slopes
from diffsim.optimize.identify.problem import Problem
from diffsim.optimize.identify.settings import Fit


def profile(problem: Problem, outcome: Outcome, settings: Fit) -> tuple[np.ndarray, Point]:
    """The covariance of theta for a motion that jumps, by the profile likelihood.

    Derivatives see the slopes between two jumps, which are steeper than the trend of the cost over many jumps. So each
    parameter is moved to both sides and held there, while all others follow, until the cost has risen by more than one
    standard deviation explains. If it rises too late, the interval of this parameter is widened.

    Returns:
      A covariance (n, n) of theta, and the point of least cost that was seen.
    """
    root = _spread(problem, outcome)
    covariance = root @ root.T
    deviations = np.sqrt(np.maximum(np.diag(covariance), 0))
    follow = state_slopes(outcome.blocks)
    best = outcome
    wider = np.full(deviations.size, settings.jump_widening)
    for i, side in itertools.product(np.flatnonzero(deviations), (-1.0, 1.0)):
        for reach in settings.profile_reach:
            # along the ridge: the other parameters have the values that a normal distribution expects
            theta = outcome.point.theta + side * reach * covariance[:, i] / deviations[i]
            part = dataclasses.replace(problem, unknowns=problem.unknowns.with_fixed(int(i), theta[i]))
            start = Point(theta, outcome.point.x + follow @ (theta - outcome.point.theta))
            held = part.solve(start, settings.stage_iterations)
            rise = held.squares - outcome.squares
            best = held if held.squares < best.squares else best
            wider[i] = max(wider[i], reach / np.sqrt(max(rise, 1.0)))
            if rise > 1:
                break
    return wider[:, None] * covariance * wider + np.outer(outcome.left, outcome.left), best.point


def nearby(problem: Problem, outcome: Outcome, settings: Fit | None = None, enough: float = 0.0) -> Point:
    """The point of least cost among random points about a solution, in rounds about the best so far.

    The points are drawn from the normal distribution of theta and first states that the data allow, near and far in
    turn. Where motions jump, no gradient leads to the next lower cost. The search ends at a sum of squares of `enough`.
    """
    settings = settings or Fit()
    rng = np.random.default_rng(0)
    follow = state_slopes(outcome.blocks)
    best = outcome.point
    unknowns = problem.unknowns
    least = float(np.sum(problem.residuals(best) ** 2))
    root = _spread(problem, outcome)
    # standard deviations of first states along the eigenvectors of their information; 0 for those that nothing shows
    values, vectors = np.linalg.eigh(np.einsum("wki,wkj->wij", outcome.blocks.by_x, outcome.blocks.by_x))
    floor = settings.unknown_start**-2
    spread = np.where(values > floor, 1 / np.sqrt(np.maximum(values, floor)), 0)
    for _ in range(settings.nearby_rounds):
        center, before = best, least
        for k in range(settings.nearby_points):
            size = settings.nearby_reach[k % len(settings.nearby_reach)]
            theta = center.theta + size * root @ rng.normal(size=root.shape[1])
            theta = np.clip(theta, unknowns.lower, unknowns.upper)
            turned = np.einsum("wij,wj->wi", vectors, size * spread * rng.normal(size=spread.shape))
            point = Point(theta, center.x + follow @ (theta - center.theta) + turned)
            cost = float(np.sum(problem.residuals(point) ** 2))
            if cost < least:
                best, least = point, cost
            if least <= enough:
                return best
        if least > (1 - settings.nearby_gain) * before:
            break
    return best


def _spread(problem: Problem, outcome: Outcome) -> np.ndarray:
    """(n, k) a root of the covariance of theta, without directions that the data do not show, which do not move."""
    size = problem.unknowns.sizes(outcome.point.theta)
    _, seen = seen_and_unseen(projected(outcome.blocks) * size, 1.0)
    return size[:, None] * seen
