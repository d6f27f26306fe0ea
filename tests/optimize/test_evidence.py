"""What residuals say of a model, the search, and sensors, on made-up windows and problems. Nothing compiles."""

from types import SimpleNamespace

import numpy as np
import pytest

from diffsim.optimize.identify.evidence import Evidence, FittedWindows, examine, identify
from diffsim.optimize.identify.jumps import nearby
from diffsim.optimize.identify.least_squares import Blocks, LeastSquares, Outcome, Point, least_squares, projected
from diffsim.optimize.identify.residuals import Clock, Sensing, sensing_slopes, shown, shown_slopes, spoilt_rows

WINDOWS, ROWS, H, NOISE = 4, 100, 0.01, 1e-3
TIME = H * np.arange(ROWS)
# what a torque does to a place
TWICE = lambda torque: H**2 * np.cumsum(np.cumsum(torque, axis=1), axis=1)  # noqa: E731
# two joints that swing, windows apart by phase
MOVED = np.stack([np.stack([np.sin(5 * TIME + w), 0.5 * np.cos(7 * TIME - w)], axis=1) for w in range(WINDOWS)])


def sample(errors: np.ndarray, known: bool = True) -> FittedWindows:
    """Windows with such errors, in the readings' units, whose first states (place and speed) were fitted."""
    rng = np.random.default_rng(1)
    line = np.stack([np.ones(ROWS), TIME], axis=1) / NOISE
    by_x = np.zeros((WINDOWS, ROWS, 2, 4))
    by_x[:, :, 0, :2], by_x[:, :, 1, 2:] = line, line
    blocks = Blocks(rng.normal(size=(WINDOWS, 2 * ROWS, 1)), by_x.reshape(WINDOWS, 2 * ROWS, 4))
    # what the first states can take away is taken away, as a fit does
    flat = (errors / NOISE).reshape(WINDOWS, -1)
    basis = np.linalg.qr(blocks.by_x)[0]
    left = flat - (basis @ (np.swapaxes(basis, 1, 2) @ flat[..., None]))[..., 0]
    return FittedWindows(
        errors=left.reshape(errors.shape),
        blocks=blocks,
        readings=MOVED,
        measured=MOVED - errors,
        noise=np.full(2, NOISE),
        known=known,
        ctrl=np.zeros((WINDOWS, ROWS, 0)),
        contacts=np.zeros((WINDOWS, ROWS), int),
        timestep=H,
        names=["q1", "q2"],
        order=np.full(2, 2),
    )


def noise(seed: int = 0) -> np.ndarray:
    return NOISE * np.random.default_rng(seed).normal(size=MOVED.shape)


def judged(errors: np.ndarray, known: bool = True) -> Evidence:
    return examine(sample(errors, known), np.full(2, NOISE))


def test_noise_explains_itself() -> None:
    """False alarms are as rare as they are said to be, though windows are fitted and lose degrees of freedom."""
    verdicts = [judged(noise(seed)) for seed in range(60)]
    assert sum(not verdict.explained for verdict in verdicts) <= 1
    sizes = np.mean([verdict.size for verdict in verdicts])
    assert sizes == pytest.approx(1, abs=0.01) and verdicts[0].widened == 1.0
    assert verdicts[0].freedom == pytest.approx(2 * WINDOWS * ROWS - 4 * WINDOWS - 1)


def test_a_reading_that_is_always_as_the_model_says_is_no_evidence() -> None:
    errors = noise()
    errors[..., 1] = 0
    assert judged(errors).explained


def test_larger_noise_is_said_and_widens() -> None:
    verdict = judged(1.8 * noise())
    assert verdict.explained and verdict.widened == pytest.approx(1.8, rel=0.1) and "1.8 times" in verdict.sentence


@pytest.mark.parametrize(
    ("spoilt", "words", "where"),
    [
        (0.004 * np.gradient(MOVED, H, axis=1) * [1, 0], "a delay of 0.004 s", "q1"),
        (-0.01 * MOVED * [0, 1], "a gain of 1 +0.0", "q2"),
        (0.05 * TWICE(np.sign(np.gradient(MOVED, axis=1))) * [0, 1], "more friction", "q2"),
        (0.1 * TWICE(np.gradient(MOVED, H, axis=1)) * [1, 0], "more damping", "q1"),
    ],
)
def test_what_a_model_lacks_is_named(spoilt: np.ndarray, words: str, where: str) -> None:
    verdict = judged(noise() + spoilt)
    assert not verdict.explained and verdict.widened > 1
    assert verdict.causes[0].startswith(words) and where in verdict.causes[0]
    assert "does not explain" in verdict.sentence or "NOT" in verdict.sentence


def test_intervals_are_withheld_where_residuals_are_no_noise() -> None:
    verdict = judged(noise() + 0.05 * np.sin(3 * TIME)[:, None])
    assert not verdict.explained and np.isinf(verdict.widened) and "do not trust" in verdict.sentence


def test_a_burst_in_one_window_is_seen() -> None:
    errors = noise()
    errors[2, 40:44] += 8 * NOISE * np.asarray([1, -1, 1, -1])[:, None]
    verdict = judged(errors)
    assert not verdict.explained and np.argmax(verdict.by_window.max(axis=1)) == 2


def linear(chained: bool) -> tuple[LeastSquares, np.ndarray]:
    """Random residuals, linear in the unknowns, and their dense matrix."""
    rng, count, rows, n, width = np.random.default_rng(0), 4, 15, 3, 2
    by_theta, by_x, by_next = (rng.normal(size=(count, rows, size)) for size in (n, width, width))
    by_next[-1] = 0
    first = rng.normal(size=(count, rows))
    blocks = Blocks(by_theta, by_x, by_next if chained else None)

    def residuals(point: Point) -> np.ndarray:
        moved = first + by_theta @ point.theta + np.einsum("wkx,wx->wk", by_x, point.x)
        return moved + np.einsum("wkx,wx->wk", by_next, np.roll(point.x, -1, 0)) if chained else moved

    dense = np.zeros((count, rows, n + count * width))
    dense[..., :n] = by_theta
    for w in range(count):
        dense[w, :, n + w * width : n + (w + 1) * width] = by_x[w]
        if chained and w + 1 < count:
            dense[w, :, n + (w + 1) * width : n + (w + 2) * width] = by_next[w]
    bounds = np.full(n, -np.inf), np.full(n, np.inf)
    return LeastSquares(residuals, lambda point: blocks, *bounds, np.ones(n)), dense.reshape(count * rows, -1)


@pytest.mark.parametrize("chained", [False, True])
def test_windows_are_eliminated_one_after_the_other(chained: bool) -> None:
    problem, dense = linear(chained)
    zero = Point(np.zeros(3), np.zeros((4, 2)))
    found = least_squares(problem, zero, 50)
    wanted = np.linalg.lstsq(dense, -problem.residuals(zero).reshape(-1), rcond=None)[0]
    np.testing.assert_allclose(np.concatenate([found.point.theta, found.point.x.reshape(-1)]), wanted, atol=1e-9)
    basis = np.linalg.qr(dense[:, 3:])[0]
    outside = dense[:, :3] - basis @ (basis.T @ dense[:, :3])
    np.testing.assert_allclose(projected(found.blocks).reshape(-1, 3), outside, atol=1e-12)
    assert found.minimum


def test_converged_is_said_of_a_minimum_alone() -> None:
    """A derivative that promises what no step holds: the search ends, and says so."""
    jump = lambda point: np.asarray([[1 + abs(point.theta[0]), 0.0]])  # noqa: E731
    slope = lambda point: Blocks(np.asarray([[[-1.0], [0.0]]]), np.zeros((1, 2, 0)))  # noqa: E731
    problem = LeastSquares(jump, slope, np.full(1, -np.inf), np.full(1, np.inf), np.ones(1))
    found = least_squares(problem, Point(np.zeros(1), np.zeros((1, 0))), 60)
    assert not found.minimum and "no step lowers the cost" in found.message


def test_a_first_state_beside_a_jump_does_not_hold_up_the_others() -> None:
    """A kink in one coordinate, which steps of all coordinates fail at; the other one still reaches its minimum."""

    def residuals(point: Point) -> np.ndarray:
        a, b = point.x[0]
        return np.asarray([[a - 1 - 50 * abs(b), 0.5 * b + 0.2, 30 * abs(b), point.theta[0] - 2]])

    def blocks(point: Point) -> Blocks:
        # of one side of the kink
        by_x = np.asarray([[[1.0, 0.0], [0.0, 0.5], [0.0, 0.0], [0.0, 0.0]]])
        return Blocks(np.asarray([[[0.0], [0.0], [0.0], [1.0]]]), by_x)

    problem = LeastSquares(residuals, blocks, np.full(1, -np.inf), np.full(1, np.inf), np.ones(1))
    found = least_squares(problem, Point(np.zeros(1), np.zeros((1, 2))), 60)
    np.testing.assert_allclose([found.point.theta[0], found.point.x[0, 0]], [2, 1], atol=1e-6)
    assert found.minimum and "jumps" in found.message


def test_points_nearby_lead_over_a_jump() -> None:
    """A lower place beside a step, to which no slope leads; points stay within the bounds."""

    class Stairs:
        unknowns = SimpleNamespace(lower=np.zeros(1), upper=np.ones(1), sizes=lambda theta: np.ones(1))

        def residuals(self, point: Point) -> np.ndarray:
            theta, x = point.theta[0], point.x[0, 0]
            assert 0 <= theta <= 1
            return np.asarray([[5 * (theta - 0.9), 0, 4 * x] if theta > 0.6 else [5 * (theta - 0.3), 3, 4 * x]])

    problem, start = Stairs(), Point(np.asarray([0.3]), np.zeros((1, 1)))
    blocks = Blocks(np.asarray([[[5.0], [0.0], [0.0]]]), np.asarray([[[0.0], [0.0], [4.0]]]))
    ended = Outcome(start, problem.residuals(start), blocks, 1, True, "", np.zeros(1))
    there = nearby(problem, ended)  # type: ignore[arg-type]
    assert there.theta[0] == pytest.approx(0.9, abs=0.05) and abs(there.x[0, 0]) < 0.05


def test_sensors_show_late_scaled_and_off() -> None:
    """Beside a sine that is known between the rows; derivatives beside differences."""
    sensing = [
        Sensing("sensor.delay", (0,), ((0,),)),
        Sensing("sensor.gain", (1,), ((0,),)),
        Sensing("sensor.bias", (2,), ((0, 1),)),
    ]
    theta, clock = np.asarray([0.0234, 1.1, 0.3]), Clock(H, np.zeros((1, ROWS)))
    readings = np.stack([np.sin(3 * TIME), np.cos(TIME)], axis=1)[None]
    seen = shown(sensing, theta, clock, readings)
    inside = slice(4, -1)
    np.testing.assert_allclose(seen[0, inside, 0], 1.1 * np.sin(3 * (TIME - 0.0234))[inside] + 0.3, atol=2e-6)
    np.testing.assert_allclose(seen[0, :, 1], np.cos(TIME) + 0.3, atol=1e-15)
    slopes = sensing_slopes(sensing, theta, clock, readings)
    for i, move in enumerate(1e-6 * np.eye(3)):
        both = [shown(sensing, theta + sign * move, clock, readings) for sign in (1, -1)]
        np.testing.assert_allclose(slopes[..., i], (both[0] - both[1]) / 2e-6, atol=1e-7)
    # linear in the readings
    other = shown_slopes(sensing, theta, clock, readings[..., None])[..., 0]
    np.testing.assert_allclose(other, seen - [[0.3, 0.3]], atol=1e-12)
    assert spoilt_rows(sensing, np.zeros(3), np.full(3, 0.031), H) == (5, 1)


def test_rows_that_were_taken_between_steps_are_compared_there() -> None:
    offset = np.where(np.arange(ROWS) % 2, 0.004, 0.0)[None]
    readings = np.sin(3 * TIME)[None, :, None]
    seen = shown([], np.zeros(0), Clock(H, offset), readings)
    np.testing.assert_allclose(seen[0, 2:-2, 0], np.sin(3 * (TIME + offset[0]))[2:-2], atol=2e-6)


@pytest.mark.parametrize("jumps", [None, np.diag([1e-6, 0.04])])
def test_intervals_with_a_prior_are_those_of_the_posterior(jumps: np.ndarray | None) -> None:
    """The mean and covariance of a normal distribution, for a parameter that the data show and one that they do not."""
    rng = np.random.default_rng(2)
    slopes = rng.normal(size=(WINDOWS, 2 * ROWS, 2)) * [1.0, 1e-3] / NOISE
    blocks = Blocks(slopes, np.zeros((WINDOWS, 2 * ROWS, 0)))
    seen = sample(noise())._replace(blocks=blocks)
    unknowns = SimpleNamespace(
        labels=["a", "b"], start=np.zeros(2), lower=np.full(2, -9.0), upper=np.full(2, 9.0), log=np.zeros(2, bool),
        sizes=lambda theta: np.ones(2), values=lambda theta: theta,
    )  # fmt: skip
    verdict = examine(seen, np.full(2, NOISE))._replace(explained=True, widened=1.0)
    width = np.asarray([0.3, 0.02])
    found = identify(unknowns, np.zeros(2), seen, verdict, jumps, width)  # type: ignore[arg-type]
    flat = slopes.reshape(-1, 2)
    of_data = np.linalg.inv(flat.T @ flat) + (0 if jumps is None else jumps)
    exact = np.linalg.inv(np.linalg.inv(of_data) + np.diag(width**-2))
    np.testing.assert_allclose(found.covariance, exact, rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(found.upper, 1.96 * np.sqrt(np.diag(exact)), rtol=5e-3)
    assert found.by_prior is not None and list(found.by_prior) == [False, True] and "by the prior" in str(found)
    # a parameter that is fixed has no interval, and the others are known better
    fixed = identify(unknowns, np.zeros(2), seen, verdict, jumps, np.asarray([0.3, 0.0]))  # type: ignore[arg-type]
    assert np.isinf(fixed.std[1]) and not fixed.covariance[1].any() and fixed.std[0] <= found.std[0]
