"""Nonlinear least squares with unknowns that all windows share, in bounds, and unknowns of each window alone.

    minimize  1/2 sum_w |r_w(theta, x_w)|^2,    lower <= theta <= upper

By Levenberg-Marquardt steps, which minimize sum_w |r_w + J_w (dtheta, dx_w)|^2 + mu |S (dtheta, dx)|^2 within the
bounds, S the largest norms of the columns so far. Each window is made triangular (QR), which leaves a small problem in
theta alone; x_w follows by substitution. Nothing is squared, so that what the data hardly show is found too. Sources:
More 1978; Golub and Pereyra 1973; Nielsen 1999 for mu.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.linalg
import scipy.optimize

# relative changes of cost and unknowns, and the cosine of residuals and columns, below which it ends
CHANGE, COSINE = 1e-9, 1e-10
FIRST_DAMPING, SMALLEST = 1e-3, 1e-14
# numbers of a matrix that one thread factors
PIECE = 9000


class Unknown(NamedTuple):
    """theta (n,) and x (windows, width)."""

    theta: np.ndarray
    x: np.ndarray


class Blocks(NamedTuple):
    """Residuals (windows, k) have derivatives (windows, k, n) by theta and (windows, k, width) by x."""

    by_theta: np.ndarray
    by_x: np.ndarray


class Found(NamedTuple):
    """Where it ended: the unknowns, residuals (windows, k), their derivatives, how many of these it took, and why.

    `status` is 0 where it ran out of iterations.
    """

    unknown: Unknown
    residuals: np.ndarray
    blocks: Blocks
    jacobians: int
    status: int
    message: str


class Problem(NamedTuple):
    """Residuals and derivatives as functions of the unknowns, and bounds (n,) of theta."""

    residuals: Callable[[Unknown], np.ndarray]
    blocks: Callable[[Unknown], Blocks]
    lower: np.ndarray
    upper: np.ndarray


REASONS = {
    0: "out of iterations",
    1: "residuals are orthogonal to all columns",
    2: "the cost no longer changes",
    3: "the unknowns no longer change",
}


class _Point(NamedTuple):
    """The unknowns, residuals, derivatives, scales, and the triangles of the windows."""

    unknown: Unknown
    errors: np.ndarray
    blocks: Blocks
    scale: Unknown
    triangles: np.ndarray


def least_squares(problem: Problem, start: Unknown, iterations: int) -> Found:
    """The unknowns of least cost near a start; so many steps are tried at most."""
    inside = start._replace(theta=np.clip(start.theta, problem.lower, problem.upper))
    now = _point(problem, inside, problem.residuals(inside), Unknown(np.zeros(1), np.zeros(1)))
    damping, growth, jacobians, status = FIRST_DAMPING, 2.0, 1, 0
    for _ in range(iterations):
        if _steepness(problem, now) < COSINE:
            status = 1
            break
        step = _step(problem, now, damping)
        later = Unknown(now.unknown.theta + step.theta, now.unknown.x + step.x)
        tried, cost = problem.residuals(later), _cost(now.errors)
        expected, gain = cost - _cost(now.errors + _moved(now.blocks, step)), cost - _cost(tried)
        status = _status(now.unknown, step, expected, gain, cost)
        if gain > 0:
            ratio = min(gain / max(expected, 1e-300), 1.0)
            damping, growth = max(damping * max(0.1, 1 - (2 * ratio - 1) ** 3), SMALLEST), 2.0
            now, jacobians = _point(problem, later, tried, now.scale), jacobians + 1
        else:
            damping, growth = damping * growth, growth * 2
        if status:
            break
    return Found(now.unknown, now.errors, now.blocks, jacobians, status, REASONS[status])


def _point(problem: Problem, unknown: Unknown, errors: np.ndarray, before: Unknown) -> _Point:
    blocks = problem.blocks(unknown)
    return _Point(unknown, errors, blocks, _scale(before, blocks), _triangles(blocks, errors))


def _cost(errors: np.ndarray) -> float:
    return 0.5 * float(np.sum(errors**2))


def _status(now: Unknown, step: Unknown, expected: float, gain: float, cost: float) -> int:
    """Why to end, 0 for not at all."""
    if max(expected, abs(gain)) <= CHANGE * cost:
        return 2
    size, whole = (np.sqrt(sum(np.sum(part**2) for part in each)) for each in (step, now))
    return 3 if size <= CHANGE * (CHANGE + whole) else 0


def _moved(blocks: Blocks, step: Unknown) -> np.ndarray:
    """J s, (windows, k)."""
    return blocks.by_theta @ step.theta + np.einsum("wkx,wx->wk", blocks.by_x, step.x)


def _scale(before: Unknown, blocks: Blocks) -> Unknown:
    """The norm of each column, the largest so far; 1 where it is zero."""
    theta = np.sqrt(np.sum(blocks.by_theta**2, axis=(0, 1)))
    x = np.sqrt(np.sum(blocks.by_x**2, axis=1))
    return Unknown(*(np.maximum(old, np.where(new > 0, new, 1)) for old, new in zip(before, (theta, x), strict=True)))


def _steepness(problem: Problem, now: _Point) -> float:
    """The largest cosine between the residuals and a column that may still change."""
    errors, blocks, theta = now.errors, now.blocks, now.unknown.theta
    slope = np.einsum("wk,wkn->n", errors, blocks.by_theta)
    held = ((theta <= problem.lower) & (slope > 0)) | ((theta >= problem.upper) & (slope < 0))
    others = np.einsum("wk,wkx->wx", errors, blocks.by_x)
    norms = _scale(Unknown(np.zeros(1), np.zeros(1)), blocks)
    steep = np.concatenate([np.where(held, 0, np.abs(slope) / norms.theta), (np.abs(others) / norms.x).reshape(-1)])
    return float(steep.max(initial=0)) / max(float(np.sqrt(np.sum(errors**2))), 1e-300)


def _triangles(blocks: Blocks, errors: np.ndarray) -> np.ndarray:
    """(windows, rows, width + n + 1) of each window the triangle that (J_x, J_theta, r) is but for a rotation."""
    return _triangle(np.concatenate([blocks.by_x, blocks.by_theta, errors[..., None]], axis=-1))


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


def _step(problem: Problem, now: _Point, damping: float) -> Unknown:
    """The damped step within the bounds."""
    triangles, scale, before = now.triangles, now.scale, now.unknown
    (windows, width), n, root = before.x.shape, before.theta.size, np.sqrt(damping)
    damped = np.zeros((windows, width, triangles.shape[-1]))
    damped[:, np.arange(width), np.arange(width)] = root * scale.x
    both = _triangle(np.concatenate([triangles, damped], axis=1)) if width else triangles
    rest = both[:, width:, width:].reshape(-1, n + 1)
    matrix = np.concatenate([rest[:, :n], root * np.diag(scale.theta)])
    goal = -np.concatenate([rest[:, n], np.zeros(n)])
    theta = _within(matrix, goal, problem.lower - before.theta, problem.upper - before.theta)
    x = [
        -scipy.linalg.solve_triangular(own[:width, :width], own[:width, -1] + own[:width, width:-1] @ theta)
        for own in (both if width else [])
    ]
    return Unknown(theta, np.array(x).reshape(windows, width))


def _within(matrix: np.ndarray, goal: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """The vector of least |matrix v - goal| in a box that holds zero."""
    if not matrix.shape[1]:
        return np.zeros(0)
    free = np.linalg.lstsq(matrix, goal, rcond=None)[0]
    if np.all((lower <= free) & (free <= upper)):
        return free
    # scipy wants room between the bounds
    found = scipy.optimize.lsq_linear(matrix, goal, (np.minimum(lower, -1e-300), np.maximum(upper, 1e-300)), "bvls")
    return np.clip(found.x, lower, upper)
