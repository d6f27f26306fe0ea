"""laplace, metropolis: draws of the parameters from the posterior of a fit."""

import numpy as np

from diffsim.optimize.identify.least_squares import Blocks, Point, state_slopes
from diffsim.optimize.identify.problem import Problem

# this fraction of the Metropolis draws, at the beginning, is dropped
BURN_IN = 0.2
# length of a Metropolis step in units of the covariance's root, over sqrt(n). For a normal posterior of many parameters
# 2.38 is best (Roberts and Rosenthal 2001); shorter steps are accepted more often.
METROPOLIS_STEP = 1.7


def laplace(problem: Problem, theta: np.ndarray, covariance: np.ndarray, count: int, seed: int) -> np.ndarray:
    """(count, n) draws from the normal distribution with this mean and covariance, clipped to the bounds."""
    rng, unknowns = np.random.default_rng(seed), problem.unknowns
    root = root_of(covariance)
    drawn = theta + rng.normal(size=(count, theta.size)) @ root.T
    return np.clip(drawn, unknowns.lower, unknowns.upper)


def metropolis(
    problem: Problem, point: Point, blocks: Blocks, covariance: np.ndarray, count: int, seed: int
) -> np.ndarray:
    """(count, n) draws from the posterior by the Metropolis algorithm, with one simulation for each draw.

    Proposals are normal with the shape of the covariance, and are accepted with probability exp(-increase of the cost).
    First states follow theta so that residuals change least: a profile of the posterior, not an integral. The residuals
    of the problem have the prior, if there is one.
    Source: Roberts and Rosenthal 2001, for the length of the steps.
    """
    rng, unknowns = np.random.default_rng(seed), problem.unknowns
    root, follow = root_of(covariance), state_slopes(blocks)
    length = METROPOLIS_STEP / np.sqrt(max(point.theta.size, 1))

    def cost(theta: np.ndarray) -> float:
        moved = Point(theta, point.x + follow @ (theta - point.theta))
        return 0.5 * float(np.sum(problem.residuals(moved) ** 2))

    theta, now, kept = point.theta, cost(point.theta), []
    skipped = int(BURN_IN * count)
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
    """A matrix R such that R R^T is the covariance."""
    values, vectors = np.linalg.eigh(0.5 * (covariance + covariance.T))
    return vectors * np.sqrt(np.maximum(values, 0))
