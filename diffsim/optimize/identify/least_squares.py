"""Nonlinear least squares with unknowns that all windows share, in bounds, and unknowns of each window alone.

    minimize  1/2 sum_w |r_w(theta, x_w, x_{w+1})|^2,    lower <= theta <= upper

By Levenberg-Marquardt steps, which minimize sum_w |r_w + J_w (dtheta, dx_w, dx_{w+1})|^2 + mu |S (dtheta, dx)|^2 within
the bounds, S the largest norms of the columns so far. Each window is made triangular (QR); where windows are chained,
their triangles are passed on from one to the next, as a square-root filter does. That leaves a small problem in theta
alone; x_w follows by substitution. Nothing is squared, so that what the data hardly show is found too. Sources: More
1978; Golub and Pereyra 1973; Nielsen 1999 for mu; Bierman 1977 for the chain.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.optimize

# relative changes of cost and unknowns, and the cosine of residuals and columns, below which it ends
CHANGE, COSINE = 1e-9, 1e-10
FIRST_DAMPING, SMALLEST, LARGEST = 1e-3, 1e-14, 1e12
# columns count as no shorter than this part of the longest, those of theta by the sizes of their numbers
FLOOR = 1e-6
# a minimum: an undamped step would lower the cost by less than this part of a residual's own, or by less than this
MINIMUM, NOTHING = 1e-3, 1e-6
# a step that lowers the cost by less than this part of what its derivatives promise is refused; after so many in a row
# first states are moved alone, if that lowers the cost by this part
POOR, PATIENCE, WORTH = 1e-3, 3, 1e-3
# where motions jump there may be no flat bottom: a minimum of the numbers is where the step that is left would lower
# the cost by less than this, two thirds of a standard deviation
EDGE = 0.2
# the search ends where a step would lower the cost by less than this part of a residual's own, which no interval shows
NO_MATTER = 1e-4
# numbers of a matrix that one thread factors
PIECE = 9000


class Point(NamedTuple):
    """The unknowns: theta (n,) and x (windows, width)."""

    theta: np.ndarray
    x: np.ndarray


class Blocks(NamedTuple):
    """Residuals (windows, k) have derivatives (windows, k, n) by theta and (windows, k, width) by x.

    Chained windows have some by the next window's x too, zero in the last one's; None of windows that stand alone.
    """

    by_theta: np.ndarray
    by_x: np.ndarray
    by_next: np.ndarray | None = None


class Problem(NamedTuple):
    """Residuals and derivatives as functions of the unknowns; bounds (n,) of theta and sizes (n,) of its numbers."""

    residuals: Callable[[Point], np.ndarray]
    blocks: Callable[[Point], Blocks]
    lower: np.ndarray
    upper: np.ndarray
    size: np.ndarray


class Outcome(NamedTuple):
    """Where it ended: the unknowns, residuals (windows, k), their derivatives, how many of these it took, and why.

    `minimum` is whether no small step would lower the cost, by more than motions jump; `left` (n,) is the step of theta
    that is left then, zero at a minimum without jumps.
    """

    point: Point
    residuals: np.ndarray
    blocks: Blocks
    jacobians: int
    minimum: bool
    message: str
    left: np.ndarray


REASONS = {
    0: "out of iterations",
    1: "residuals are orthogonal to all columns",
    2: "the cost no longer changes",
    3: "the unknowns no longer change",
    4: "no step lowers the cost as its derivatives promise (motions that jump, such as of contacts that begin or end?)",
    5: "a minimum of the numbers, as far as the motion lets, which jumps where contacts begin or friction holds",
}


class _Iterate(NamedTuple):
    """A point, its residuals, derivatives, scales, and the triangles of the windows."""

    point: Point
    errors: np.ndarray
    blocks: Blocks
    scale: Point
    triangles: np.ndarray


def least_squares(problem: Problem, start: Point, iterations: int) -> Outcome:
    """The unknowns of least cost near a start; so many steps are tried at most."""
    inside = start._replace(theta=np.clip(start.theta, problem.lower, problem.upper))
    now = _iterate(problem, inside, problem.residuals(inside), Point(np.zeros(1), np.zeros(1)))
    damping, growth, jacobians, status, refused = FIRST_DAMPING, 2.0, 1, 0, 0
    for _ in range(iterations):
        if _steepness(problem, now) < COSINE:
            status = 1
            break
        step = _step(problem, now, damping)
        expected, cost = _expected(now, step), _cost(now.errors)
        if damping <= FIRST_DAMPING and expected <= NO_MATTER * 2 * cost / max(np.count_nonzero(now.errors), 1):
            status = 2
            break
        later = _moved(now.point, step)
        tried = problem.residuals(later)
        gain = cost - _cost(tried)
        alone = gain <= POOR * expected and step.x.size and step.theta.size
        if alone:
            # where first states are near a jump, the numbers alone may still go on
            later = _moved(now.point, step._replace(x=np.zeros_like(step.x)))
            tried = problem.residuals(later)
            gain = cost - _cost(tried)
        status = _status(now.point, step, expected, gain, cost)
        if gain > POOR * expected and not alone:
            ratio = min(gain / max(expected, 1e-300), 1.0)
            damping, growth, refused = max(damping * max(0.1, 1 - (2 * ratio - 1) ** 3), SMALLEST), 2.0, 0
        else:
            damping, growth, refused = damping * growth, growth * 2, refused + 1
        if gain > (0 if alone else POOR * expected):
            now, jacobians = _iterate(problem, later, tried, now.scale), jacobians + 1
        if refused == PATIENCE and now.point.x.size and now.blocks.by_next is None:
            later, tried = _by_coordinates(problem, now)
            if _cost(tried) < (1 - WORTH) * cost:
                now, jacobians = _iterate(problem, later, tried, now.scale), jacobians + 1
                damping, growth, refused, status = FIRST_DAMPING, 2.0, 0, 0
        if status or damping > LARGEST:
            break
    enough = max(MINIMUM * 2 * _cost(now.errors) / max(np.count_nonzero(now.errors), 1), NOTHING)
    step = _step(problem, now, SMALLEST)
    minimum, left = _expected(now, step) <= enough, np.zeros_like(step.theta)
    if minimum and status == 2:
        # the last step is so small that derivatives stay
        later = _moved(now.point, step)
        tried = problem.residuals(later)
        now = now._replace(point=later, errors=tried) if _cost(tried) < _cost(now.errors) else now
    if not minimum and step.theta.size:
        # of what is expected, the part of the numbers, where first states follow them
        left = step.theta
        minimum = 0.5 * float(np.sum((projected(now.blocks) @ step.theta) ** 2)) <= EDGE
        status = 5 if minimum else 4 if status or damping > LARGEST else 0
    elif not minimum:
        status = 4 if status or damping > LARGEST else 0
    return Outcome(now.point, now.errors, now.blocks, jacobians, bool(minimum), REASONS[status], left)


def _iterate(problem: Problem, point: Point, errors: np.ndarray, before: Point) -> _Iterate:
    blocks = problem.blocks(point)
    return _Iterate(point, errors, blocks, _scale(problem, before, blocks), _triangles(blocks, errors))


def _moved(point: Point, step: Point) -> Point:
    return Point(point.theta + step.theta, point.x + step.x)


def _cost(errors: np.ndarray) -> float:
    return 0.5 * float(np.sum(errors**2))


def _expected(now: _Iterate, step: Point) -> float:
    """By how much a step would lower the cost if residuals were linear."""
    blocks = now.blocks
    moved = blocks.by_theta @ step.theta + np.einsum("wkx,wx->wk", blocks.by_x, step.x)
    if blocks.by_next is not None:
        moved = moved + np.einsum("wkx,wx->wk", blocks.by_next, np.roll(step.x, -1, axis=0))
    return _cost(now.errors) - _cost(now.errors + moved)


def _status(now: Point, step: Point, expected: float, gain: float, cost: float) -> int:
    """The place in `REASONS` of why the search is to end; 0 if it goes on."""
    if max(expected, abs(gain)) <= CHANGE * cost:
        return 2
    size, whole = (np.sqrt(sum(np.sum(part**2) for part in point)) for point in (step, now))
    return 3 if size <= CHANGE * (CHANGE + whole) else 0


def _scale(problem: Problem, before: Point, blocks: Blocks) -> Point:
    """The norm of each column, the largest so far; of theta not much less than that of others."""
    theta = np.sqrt(np.sum(blocks.by_theta**2, axis=(0, 1))) * problem.size
    theta = np.maximum(theta, FLOOR * theta.max(initial=0)) / problem.size
    squares = np.sum(blocks.by_x**2, axis=1)
    if blocks.by_next is not None:
        squares = squares + np.roll(np.sum(blocks.by_next**2, axis=1), 1, axis=0)
    x = np.sqrt(squares)
    x = np.maximum(x, FLOOR * x.max(axis=1, initial=0, keepdims=True))
    return Point(*(np.maximum(old, np.where(new > 0, new, 1)) for old, new in zip(before, (theta, x), strict=True)))


def _steepness(problem: Problem, now: _Iterate) -> float:
    """The largest cosine between the residuals and a column that may still change."""
    errors, blocks, theta = now.errors, now.blocks, now.point.theta
    slope = np.einsum("wk,wkn->n", errors, blocks.by_theta)
    at_bound = ((theta <= problem.lower) & (slope > 0)) | ((theta >= problem.upper) & (slope < 0))
    others = np.einsum("wk,wkx->wx", errors, blocks.by_x)
    if blocks.by_next is not None:
        others = others + np.roll(np.einsum("wk,wkx->wx", errors, blocks.by_next), 1, axis=0)
    norms = _scale(problem, Point(np.zeros(1), np.zeros(1)), blocks)
    steep = np.concatenate([np.where(at_bound, 0, np.abs(slope) / norms.theta), (np.abs(others) / norms.x).reshape(-1)])
    return float(steep.max(initial=0)) / max(float(np.sqrt(np.sum(errors**2))), 1e-300)


def _triangles(blocks: Blocks, errors: np.ndarray) -> np.ndarray:
    """(windows, rows, columns) of each window the triangle that (J_x, J_next, J_theta, r) is but for a rotation."""
    following = [] if blocks.by_next is None else [blocks.by_next]
    return _triangle(np.concatenate([blocks.by_x, *following, blocks.by_theta, errors[..., None]], axis=-1))


def _triangle(matrices: np.ndarray) -> np.ndarray:
    """R of Q R, of a stack; tall ones in pieces that BLAS does not share between threads, which wait for each other."""
    count, rows, columns = matrices.shape
    most = max(PIECE // columns, 2 * columns)
    while rows > most:
        pieces = -(-rows // most)
        filled = np.concatenate([matrices, np.zeros((count, -rows % pieces, columns))], axis=1)
        matrices = np.asarray(np.linalg.qr(filled.reshape(count * pieces, -1, columns), mode="r"))
        rows = pieces * matrices.shape[1]
        matrices = matrices.reshape(count, rows, columns)
    return np.asarray(np.linalg.qr(matrices, mode="r"))


def _step(problem: Problem, now: _Iterate, damping: float) -> Point:
    """The damped step within the bounds."""
    before, root = now.point, np.sqrt(damping)
    n = before.theta.size
    rest, substituted = _eliminated(now.triangles, n, root * now.scale.x)
    matrix = np.concatenate([rest[:, :n], root * np.diag(now.scale.theta)])
    goal = -np.concatenate([rest[:, n], np.zeros(n)])
    lower, upper = problem.lower - before.theta, problem.upper - before.theta
    theta = np.linalg.lstsq(matrix, goal, rcond=None)[0] if n else np.zeros(0)
    if not np.all((lower <= theta) & (theta <= upper)):
        # scipy wants room between the bounds
        room = np.minimum(lower, -1e-300), np.maximum(upper, 1e-300)
        theta = np.clip(scipy.optimize.lsq_linear(matrix, goal, room, "bvls").x, lower, upper)
    return Point(theta, substituted(np.append(theta, 1.0)[:, None])[..., 0])


def _by_coordinates(problem: Problem, now: _Iterate) -> tuple[Point, np.ndarray]:
    """First states moved along one coordinate after the other, in each window as far as that lowers its own cost.

    Where a motion jumps, such as of a body that leaves a floor when it is tilted, a step of all coordinates fails in
    one of them, and all others with it.
    """
    x, errors = now.point.x, now.errors
    for coordinate in range(x.shape[1]):
        column = now.blocks.by_x[:, :, coordinate]
        whole = -np.sum(column * errors, axis=1) / np.maximum(np.sum(column**2, axis=1), 1e-300)
        for part in (1.0, 0.3, 0.1):
            moved = x.copy()
            moved[:, coordinate] += part * whole
            tried = problem.residuals(Point(now.point.theta, moved))
            better = np.sum(tried**2, axis=1) < np.sum(errors**2, axis=1)
            x, errors = np.where(better[:, None], moved, x), np.where(better[:, None], tried, errors)
            if better.all():
                break
    return Point(now.point.theta, x), errors


def state_slopes(blocks: Blocks) -> np.ndarray:
    """(windows, width, n) by which x follows theta so that the residuals change least."""
    (windows, k, n), width = blocks.by_theta.shape, blocks.by_x.shape[-1]
    if not width or not n:
        return np.zeros((windows, width, n))
    triangles = _triangles(blocks, np.zeros((windows, k)))
    return _eliminated(triangles, n, np.zeros((windows, width)))[1](np.eye(n + 1, n))


def projected(blocks: Blocks) -> np.ndarray:
    """(windows, k, n) derivatives of the residuals by theta, where x follows so that they change least."""
    x = state_slopes(blocks)
    moved = blocks.by_theta + blocks.by_x @ x
    return moved if blocks.by_next is None else moved + blocks.by_next @ np.roll(x, -1, axis=0)


def _eliminated(
    triangles: np.ndarray, n: int, damping: np.ndarray
) -> tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]:
    """The linear problem that is left once x is eliminated.

    Args:
      triangles: (windows, rows, columns) of x, of chained windows the next x, theta and the residuals.
      n: how many numbers theta has.
      damping: (windows, width) of x, further rows that hold it at zero.

    Returns:
      Rows (m, n + 1) of theta and the residuals; and a function of (theta, 1), one or several columns (n + 1, c), that
      gives x (windows, width, c).
    """
    windows, width = damping.shape
    if not width:
        return triangles.reshape(-1, triangles.shape[-1]), lambda known: np.zeros((windows, 0, known.shape[1]))
    damped = np.zeros((windows, width, triangles.shape[-1]))
    damped[:, np.arange(width), np.arange(width)] = damping
    stacked = np.concatenate([triangles, damped], axis=1)
    following = triangles.shape[-1] - width - n - 1
    if not following:
        both = _triangle(stacked)
        rest = both[:, width:, width:].reshape(-1, n + 1)
    else:
        # what a window says of the next one's state and of theta goes on with the next window
        passed, rows = np.zeros((0, width + n + 1)), []
        for window in stacked:
            known = np.concatenate([passed[:, :width], np.zeros((len(passed), width)), passed[:, width:]], axis=1)
            full = np.linalg.qr(np.concatenate([known, window]), mode="r")
            rows.append(full[:width])
            passed = full[width:, width:]
        both, rest = np.stack(rows), passed[:, width:]

    def substituted(known: np.ndarray) -> np.ndarray:
        x = np.zeros((windows + 1, width, known.shape[1]))
        right = both[:, :width, width + following :] @ known
        for w in reversed(range(windows)):
            chain = both[w, :width, width : width + following] @ x[w + 1, :following]
            x[w] = -np.linalg.solve(both[w, :width, :width], right[w] + chain)
        return x[:windows]

    return rest, substituted
