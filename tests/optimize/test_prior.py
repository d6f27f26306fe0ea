"""The prior of the unknowns and what carries over to faster motions, on made-up problems. Nothing compiles."""

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.stats

from diffsim.optimize.identify.carry_over import CarryOver, faster_rows
from diffsim.optimize.identify.evidence import FittedWindows
from diffsim.optimize.identify.least_squares import Blocks, Outcome, Point
from diffsim.optimize.identify.prior import Quadratic, chosen_prior, with_width

ROWS, NOISE = 200, 1e-2


class Linear:
    """Readings that are linear in theta, whose least squares are known; no first states."""

    def __init__(self, slopes: np.ndarray, errors: np.ndarray, theta: np.ndarray, group: list[int]) -> None:
        n = theta.size
        self.unknowns = SimpleNamespace(
            start=np.zeros(n), width=np.ones(n), prior=np.full(n, np.inf), group=np.asarray(group),
            lower=np.full(n, -10.0), upper=np.full(n, 10.0),
        )  # fmt: skip
        self.count, self.noise, self.measured = 1, np.full(1, NOISE), np.zeros((1, ROWS, 1))
        self.errors, self.slopes = errors, slopes / NOISE
        blocks = Blocks(self.slopes[None], np.zeros((1, ROWS, 0)))
        self.outcome = Outcome(Point(theta, np.zeros((1, 0))), (errors / NOISE)[None], blocks, 1, True, "", np.zeros(n))

    def sample(self, point: Point, blocks: Blocks, known: bool) -> FittedWindows:
        """The windows there."""
        nothing = np.zeros((1, ROWS, 1))
        return FittedWindows(
            errors=(self.errors / NOISE).reshape(1, ROWS, 1), blocks=blocks, readings=nothing, measured=nothing,
            noise=self.noise, known=known, ctrl=np.zeros((1, ROWS, 0)), contacts=np.zeros((1, ROWS)), timestep=0.01,
            names=["q"], order=np.zeros(1),
        )  # fmt: skip


def fitted(slopes: np.ndarray, truth: np.ndarray, group: list[int], noise: np.ndarray) -> Linear:
    """The least-squares solution for readings slopes @ truth + noise."""
    seen = slopes @ truth + noise
    theta = np.linalg.lstsq(slopes, seen, rcond=None)[0]
    return Linear(slopes, slopes @ theta - seen, theta, group)


def test_the_evidence_is_that_of_a_normal_distribution() -> None:
    """The readings are normal with covariance s^2 + J W^2 J^T: the ratio for two widths, and the posterior mean."""
    rng = np.random.default_rng(0)
    slopes = rng.normal(size=(ROWS, 2)) * [1.0, 0.01]
    problem = fitted(slopes, np.asarray([0.4, 2.0]), [0, 1], NOISE * rng.normal(size=ROWS))
    quadratic = Quadratic(problem, problem.outcome, np.ones(1))  # type: ignore[arg-type]
    free = np.zeros(2, bool)
    measured = slopes @ problem.outcome.point.theta - problem.errors
    widths = [np.asarray([0.3, 1.0]), np.asarray([3.0, 0.1])]
    exact = [
        scipy.stats.multivariate_normal.logpdf(measured, cov=NOISE**2 * np.eye(ROWS) + (slopes * w**2) @ slopes.T)  # type: ignore[arg-type]
        for w in widths
    ]
    ours = [quadratic.evidence(w, free) for w in widths]
    assert ours[0] - ours[1] == pytest.approx(exact[0] - exact[1], rel=1e-6)
    mean = np.linalg.solve(slopes.T @ slopes / NOISE**2 + np.diag(widths[1] ** -2.0), slopes.T @ measured / NOISE**2)
    np.testing.assert_allclose(quadratic.solved(widths[1], free), mean, rtol=1e-8)


def test_data_that_decide_are_not_moved_and_others_are_held() -> None:
    rng = np.random.default_rng(1)
    slopes = rng.normal(size=(ROWS, 2)) * [1.0, 1e-5]
    problem = fitted(slopes, np.asarray([0.4, 0.0]), [0, 1], NOISE * rng.normal(size=ROWS))
    prior = chosen_prior(problem, problem.outcome, True, np.zeros(2, bool))  # type: ignore[arg-type]
    assert list(prior.held) == [False, True] and abs(prior.shift[0]) < 0.05
    assert abs(prior.theta[1]) < 0.1 * abs(problem.outcome.point.theta[1]) and prior.matters
    # a narrower one holds more, down to the model's numbers
    narrow = with_width(problem, problem.outcome, prior, 1e-6, np.zeros(2, bool))  # type: ignore[arg-type]
    assert narrow.held.all() and np.all(np.abs(narrow.theta) < 1e-3)


def test_two_numbers_that_trade_against_each_other_share_what_is_seen() -> None:
    """Only their sum is seen: the prior divides it, and no longer lets them run away with opposite signs."""
    rng = np.random.default_rng(2)
    both = rng.normal(size=(ROWS, 1))
    slopes = np.concatenate([both, both + 1e-5 * rng.normal(size=(ROWS, 1))], axis=1)
    problem = fitted(slopes, np.asarray([0.5, 0.5]), [0, 1], NOISE * rng.normal(size=ROWS))
    assert np.max(np.abs(problem.outcome.point.theta)) > 2
    prior = chosen_prior(problem, problem.outcome, True, np.zeros(2, bool))  # type: ignore[arg-type]
    assert prior.theta.sum() == pytest.approx(1, abs=0.01) and np.ptp(prior.theta) < 0.2


def test_rows_that_are_correlated_count_less() -> None:
    """Noise with a memory of ten rows: standard deviations are about four times as large."""
    rng = np.random.default_rng(3)
    white = rng.normal(size=ROWS + 100)
    noise = np.zeros(ROWS + 100)
    for t in range(1, noise.size):
        noise[t] = 0.9 * noise[t - 1] + np.sqrt(1 - 0.81) * white[t]
    slopes = np.sin(np.arange(ROWS) / 30)[:, None]
    problem = fitted(slopes, np.asarray([0.4]), [0], NOISE * noise[100:])
    prior = chosen_prior(problem, problem.outcome, True, np.zeros(1, bool))  # type: ignore[arg-type]
    assert 2 * NOISE < prior.noise[0] < 8 * NOISE


def test_the_faster_half_is_left_out() -> None:
    t = 0.01 * np.arange(800)
    window = np.sin(np.where(t < 4, 2, 5) * (t - 4))[None, :, None]
    window[0, 10] = np.nan
    found = faster_rows(window, np.full(1, NOISE))
    assert found is not None
    fast, ratio = found
    assert not fast[0, :400].any() and fast[0, 400:].all() and ratio == pytest.approx(2.5, rel=0.1)
    assert faster_rows(window[:, :50], np.full(1, NOISE)) is None


def test_a_joint_that_hardly_moves_is_not_fast() -> None:
    """Its noise, over its small motion, would outweigh a joint that moves; and where nothing moves, nothing is fast."""
    t = 0.01 * np.arange(800)
    rng = np.random.default_rng(4)
    noise = np.where(t < 4, 3, 0.3)[:, None] * NOISE * rng.normal(size=(800, 3))
    noise[:, 0] /= 300
    window = (noise + np.stack([np.sin(np.where(t < 4, 2, 5) * (t - 4)), 0 * t, 0 * t], axis=1))[None]
    found = faster_rows(window, np.asarray([NOISE / 300, NOISE, NOISE]))
    assert found is not None
    assert found[0][0, 400:].all() and not found[0][0, :400].any() and found[1] == pytest.approx(2.5, rel=0.1)
    assert faster_rows(window[..., 1:], np.full(2, NOISE)) is None


@pytest.mark.parametrize("weights", [[1.0, 1.0], [1.0, 5.0]])
def test_first_states_follow_the_noise_with_which_rows_count(weights: list[float]) -> None:
    """Two readings, a first state that both show, and a prior that the user gave: the normal equations of all rows."""
    rng = np.random.default_rng(5)
    by_theta, by_x = rng.normal(size=(1, 2 * ROWS + 2, 2)), rng.normal(size=(1, 2 * ROWS + 2, 1))
    by_theta[0, -2:], by_x[0, -2:] = [[0, 0], [0, 2]], [[0.5], [0]]
    residuals = rng.normal(size=(1, 2 * ROWS + 2))
    unknowns = SimpleNamespace(prior=np.asarray([np.inf, 0.5]), start=np.zeros(2))
    problem = SimpleNamespace(unknowns=unknowns, measured=np.zeros((1, ROWS, 2)))
    outcome = Outcome(Point(np.zeros(2), np.zeros((1, 1))), residuals, Blocks(by_theta, by_x), 1, True, "", np.zeros(2))
    quadratic = Quadratic(problem, outcome, np.asarray(weights))  # type: ignore[arg-type]
    whole = np.concatenate([by_x[0], by_theta[0], residuals[0, :, None]], axis=1)[:-1]
    whole[: 2 * ROWS] /= np.tile(weights, ROWS)[:, None]
    normal = whole.T @ whole
    left = normal[1:, 1:] - np.outer(normal[1:, 0], normal[0, 1:]) / normal[0, 0]
    ours = np.concatenate([quadratic.rows, quadratic.residuals[:, None]], axis=1)
    np.testing.assert_allclose((ours.T @ ours)[:2], left[:2], rtol=1e-9)


def test_the_model_keeps_its_numbers_where_no_fit_predicts_better() -> None:
    better = CarryOver(faster=1.5, errors={1.0: 4.0, 0.3: 1.4, 0.1: 1.9}, nominal=2.0, explained=False)
    assert better.factor == 0.3 and better.carries
    worse = CarryOver(faster=1.5, errors={1.0: 4.0, 0.3: 3.0, 0.1: 2.1}, nominal=2.0, explained=False)
    assert worse.factor == 0 and not worse.carries and "first guess 2" in str(worse)
    # both are noise: the first guess was right
    # a right first guess: the estimates are as good, whatever the noise is
    for error in (1.01, 1.3):
        assert CarryOver(faster=1.5, errors={1.0: error}, nominal=error - 0.01, explained=True).carries
    assert not CarryOver(faster=1.5, errors={1.0: 1.3}, nominal=1.1, explained=True).carries
    little = CarryOver(faster=1.5, errors={1.0: 8.0}, nominal=10.0, explained=False)
    assert not little.carries and "too little better" in str(little)
