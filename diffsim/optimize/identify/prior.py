"""The prior of the unknowns: normal about the model's own values, with widths that the evidence chooses.

    minimize over theta, x:  sum_i |r_i(theta, x)|^2 / (s_i^2 m_i) + sum_j ((theta_j - theta_0j) / (a_g(j) w_j))^2

r_i are the residuals of reading i over its noise, s_i^2 is their mean square, and m_i says how many correlated rows
count as one. w_j is the first width of parameter j (unknowns.py), and a_g a factor for all parameters of one unknown.

The factors maximize the marginal likelihood. Let residuals be linear about a solution, H = J^T J / (s^2 m) the
information of the data with first states projected out, and W = diag(a w). Then Laplace's approximation is

    log p(data | a) = -cost(theta_MAP) / 2 - 1/2 log det(1 + W H W) + constant

A factor has a wide prior of its own, log a ~ N(0, 1): data that show little about an unknown leave its factor at 1.
Where the data decide, the prior changes next to nothing: a parameter whose standard deviation is a part e of its width
moves by a part e^2 of its distance from the model.

Sources: MacKay 1992 (evidence); Tipping 2001 (a width for each group); Bayarri and DasGupta 1987 (correlated rows).
"""

from typing import NamedTuple

import numpy as np
import scipy.optimize

from diffsim.optimize.identify.evidence import Residuals
from diffsim.optimize.identify.least_squares import Blocks, Outcome, without_states
from diffsim.optimize.identify.problem import Problem

# the factors of the widths that are compared: from a tenth of a parameter's size to a hundred times it
FACTORS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
# rounds over all groups; each changes the factor of one group at a time, and two rounds mostly change nothing more
ROUNDS = 3
# a prior that moves no parameter by more than this part of its standard deviation is left out
MATTERS = 0.1
# the prior holds a parameter if the data reduce its variance by less than this part
HELD = 0.5
# residuals count as at least this part of the noise: a fit without residuals is as good as its arithmetic
LEAST_SIZE = 1e-3
# stands in for zero in denominators
TINY = 1e-300


class Prior(NamedTuple):
    """A prior and what it does to a solution, for residuals that are linear about it.

    Attributes:
      width: (n,) standard deviations.
      noise: (ny,) standard deviations of the readings, with the size and the memory of the residuals.
      theta: (n,) the estimate.
      shift: (n,) how far the prior moves the solution, in standard deviations of the estimate.
      held: (n,) bool, whether the prior says more about a parameter than the data do.
    """

    width: np.ndarray
    noise: np.ndarray
    theta: np.ndarray
    shift: np.ndarray
    held: np.ndarray

    @property
    def matters(self) -> bool:
        """Whether it moves any parameter by a part of its standard deviation that counts."""
        return bool(np.any(np.abs(self.shift) > MATTERS))


def effective_noise(residuals: Residuals) -> np.ndarray:
    """(ny,) standard deviations of the readings with which rows count as independent, as multiples of the noise."""
    size = np.nan_to_num(residuals.size)
    if residuals.sample.known:
        size = np.maximum(size, 1.0)
    return np.maximum(size, LEAST_SIZE) * np.sqrt(np.maximum(residuals.memory(), 1.0))


def chosen_prior(problem: Problem, outcome: Outcome, known: bool, fixed: np.ndarray) -> Prior:
    """The prior of greatest evidence.

    Args:
      problem: without a prior, except for what the user gave.
      outcome: its solution.
      known: whether the user gave the noise.
      fixed: (n,) bool, parameters that stay at the model's values.
    """
    unknowns = problem.unknowns
    sample = problem.sample(outcome.point, outcome.blocks, known)
    noise = effective_noise(Residuals(sample))
    quadratic = Quadratic(problem, outcome, noise)
    given = np.isfinite(unknowns.prior)
    groups = [np.flatnonzero((unknowns.group == g) & ~given & ~fixed) for g in np.unique(unknowns.group)]
    width = np.where(given, unknowns.prior, unknowns.width)
    factor = np.ones(width.size)

    def evidence_of(index: np.ndarray, a: float) -> float:
        tried = factor.copy()
        tried[index] = a
        return quadratic.evidence(tried * width, fixed) - 0.5 * np.log(a) ** 2

    for _ in range(ROUNDS):
        before = factor.copy()
        for index in (index for index in groups if index.size):
            factor[index] = max(FACTORS, key=lambda a, index=index: evidence_of(index, a))
        if np.array_equal(before, factor):
            break
    return quadratic.prior(factor * width, problem.noise * noise, fixed)


def with_width(problem: Problem, outcome: Outcome, prior: Prior, part: float, fixed: np.ndarray) -> Prior:
    """The same prior, narrower or wider by a factor; the widths that the user gave stay."""
    given = np.isfinite(problem.unknowns.prior)
    width = np.where(given, prior.width, part * prior.width)
    quadratic = Quadratic(problem, outcome, prior.noise / problem.noise)
    return quadratic.prior(width, prior.noise, fixed)


class Quadratic:
    """The cost about a solution as a quadratic function of theta, first states following.

    Attributes:
      unknowns: names, bounds and start.
      theta: (n,) the solution.
      rows: (k, n) derivatives of the weighted residuals, while first states follow theta.
      residuals: (k,) these residuals.
    """

    def __init__(self, problem: Problem, outcome: Outcome, noise: np.ndarray) -> None:
        self.unknowns = problem.unknowns
        self.theta = outcome.point.theta
        length = problem.measured.shape[1]
        blocks = outcome.blocks
        # the last rows are priors that the user gave, which `width` stands for here; readings have the given noise
        data = outcome.residuals.shape[1] - np.count_nonzero(np.isfinite(self.unknowns.prior))
        weight = np.ones(data)
        weight[: length * noise.size] = np.tile(1 / noise, length)
        weighted = Blocks(
            by_theta=blocks.by_theta[:, :data] * weight[:, None],
            by_x=blocks.by_x[:, :data] * weight[:, None],
            by_next=None if blocks.by_next is None else blocks.by_next[:, :data] * weight[:, None],
        )
        reduced = without_states(weighted, outcome.residuals[:, :data] * weight)
        # all that counts is the triangle of the QR of (J, r)
        triangle = np.asarray(np.linalg.qr(reduced, mode="r"))
        self.rows = triangle[:, :-1]
        self.residuals = triangle[:, -1]

    def solved(self, width: np.ndarray, fixed: np.ndarray) -> np.ndarray:
        """(n,) the estimate of theta with a prior, within the bounds."""
        free = ~fixed
        start = self.unknowns.start
        offset = (start - self.theta)[fixed]
        goal = self.residuals + self.rows[:, fixed] @ offset
        scaled = self.rows[:, free] * width[free]
        # in units of the widths: u = (theta - theta_0) / width
        home = (start - self.theta)[free]
        matrix = np.concatenate([scaled, np.eye(scaled.shape[1])])
        right = np.concatenate([-(goal + self.rows[:, free] @ home), np.zeros(scaled.shape[1])])
        lower = (self.unknowns.lower - start)[free] / width[free]
        upper = (self.unknowns.upper - start)[free] / width[free]
        moved = np.linalg.lstsq(matrix, right, rcond=None)[0]
        if not np.all((lower <= moved) & (moved <= upper)):
            room = np.minimum(lower, -TINY), np.maximum(upper, TINY)
            moved = np.clip(scipy.optimize.lsq_linear(matrix, right, room, "bvls").x, lower, upper)
        theta = start.copy()
        theta[free] = start[free] + width[free] * moved
        return theta

    def evidence(self, width: np.ndarray, fixed: np.ndarray) -> float:
        """The logarithm of the marginal likelihood, less a constant."""
        theta = self.solved(width, fixed)
        free = ~fixed
        misfit = np.sum((self.residuals + self.rows @ (theta - self.theta)) ** 2)
        penalty = np.sum(((theta - self.unknowns.start) / width)[free] ** 2)
        scaled = self.rows[:, free] * width[free]
        volume = np.sum(np.log1p(np.linalg.svd(scaled, compute_uv=False) ** 2))
        return -0.5 * float(misfit + penalty + volume)

    def prior(self, width: np.ndarray, noise: np.ndarray, fixed: np.ndarray) -> Prior:
        """What a prior of this width does."""
        theta = self.solved(width, fixed)
        scaled = self.rows * width
        # the variance that is left, as a part of the prior's: the diagonal of (1 + W H W)^-1
        _, singular, directions = np.linalg.svd(scaled)
        unseen = np.zeros(width.size - singular.size)
        left = (1 / (1 + np.concatenate([singular, unseen]) ** 2)) @ directions**2
        shift = (theta - self.theta) / (width * np.sqrt(np.maximum(left, TINY)))
        return Prior(width=width, noise=noise, theta=theta, shift=shift, held=(left > HELD) | fixed)
