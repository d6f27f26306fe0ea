"""Levenberg-Marquardt for least squares, with bounded unknowns that all windows share and unknowns of each window.

    minimize  1/2 sum_w |r_w(theta, x_w, x_{w+1})|^2,    lower <= theta <= upper

Each step minimizes the linearized problem, damped by mu and the scale S of the columns (their largest norms so far),
within the bounds:

    sum_w |r_w + J_w (dtheta, dx_w, dx_{w+1})|^2 + mu |S (dtheta, dx)|^2

The structure of J is used. The rows of each window are made triangular by QR. If windows are chained, their triangles
are passed on from one to the next, as in a square-root filter. What is left is a small problem in theta alone, and x_w
follows by substitution. J^T J is never formed: it would square the condition number and hide what the data barely show.

Sources: More 1978 (scaling, and tests of convergence); Golub and Pereyra 1973 (elimination of x); Nielsen 1999 (mu);
Bierman 1977 (the chain).
"""

import enum
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.optimize

# the search ends if the cost or the unknowns change by less than this, relative to themselves: rounding of float64 and
# of a simulation is not far below
CHANGE = 1e-9
# it ends if the cosine between the residuals and every column is below this
COSINE = 1e-10
# it ends if derivatives promise that a step lowers the cost by less than this fraction of the mean squared residual: no
# interval shows such a change
NO_MATTER = 1e-4
# mu of the first step, relative to the scale of the columns
FIRST_DAMPING = 1e-3
# the least mu: next to an undamped step
LEAST_DAMPING = 1e-14
# above this mu the search ends: steps would be smaller than rounding
LARGEST_DAMPING = 1e12
# mu falls to no less than this fraction of itself in one step
DAMPING_FALL = 0.1
# the first factor by which mu grows after a failed step; it doubles with each failure in a row
DAMPING_GROWTH = 2.0
# the scale of a column is at least this fraction of the largest one, so that an unknown without effect is not scaled
# up; columns of theta are compared in units of the sizes of their parameters
LEAST_COLUMN = 1e-6
# a step that gains less than this fraction of what its derivatives promise is refused: the motion jumps in between
LEAST_RATIO = 1e-3
# after this number of failed steps in a row, first states are moved one coordinate at a time
PATIENCE = 3
# these moves are kept if they lower the cost by this fraction
WORTH = 1e-3
# sizes of these moves, as fractions of the one-dimensional Newton step
COORDINATE_STEPS = (1.0, 0.3, 0.1)
# a point is a minimum if an undamped step would lower the cost by less than this fraction of the mean squared residual
MINIMUM = 1e-3
# a point is also a minimum if the step would lower the cost by less than this, for residuals that are next to zero
NOTHING = 1e-6
# where motions jump there may be no flat bottom: a point counts as a minimum of theta if the remaining step would lower
# the cost by less than this, which is a change of theta by two thirds of a standard deviation
EDGE = 0.2
# most entries of a matrix that is factored at once: BLAS factors larger ones on several threads, which wait for each
# other
LARGEST_PIECE = 9000
# stands in for zero in denominators
TINY = 1e-300


class Point(NamedTuple):
    """The unknowns: theta (n,) and x (windows, width)."""

    theta: np.ndarray
    x: np.ndarray


class Blocks(NamedTuple):
    """The nonzero blocks of the Jacobian of the residuals (windows, k).

    Attributes:
      by_theta: (windows, k, n).
      by_x: (windows, k, width), with respect to the x of the same window.
      by_next: (windows, k, width), with respect to the x of the next window, zero in the last one; None for windows
        that stand alone.
    """

    by_theta: np.ndarray
    by_x: np.ndarray
    by_next: np.ndarray | None = None


class LeastSquares(NamedTuple):
    """A least-squares problem.

    Attributes:
      residuals: the residuals (windows, k) at a point.
      blocks: their derivatives at a point.
      lower: (n,) lower bounds of theta.
      upper: (n,) upper bounds of theta.
      size: (n,) typical sizes of its parameters.
    """

    residuals: Callable[[Point], np.ndarray]
    blocks: Callable[[Point], Blocks]
    lower: np.ndarray
    upper: np.ndarray
    size: np.ndarray


class Outcome(NamedTuple):
    """Where the search ended.

    Attributes:
      point: the unknowns.
      residuals: (windows, k) there.
      blocks: their derivatives there.
      jacobians: how many times derivatives were taken.
      minimum: whether the point is a minimum, as far as jumps of the motion allow.
      message: why it ended.
      left: (n,) the step of theta that an undamped iteration would still take; zero at a minimum without jumps.
    """

    point: Point
    residuals: np.ndarray
    blocks: Blocks
    jacobians: int
    minimum: bool
    message: str
    left: np.ndarray

    @property
    def squares(self) -> float:
        """The sum of squares of the residuals."""
        return float(np.sum(self.residuals**2))


class _Ending(enum.Enum):
    """Why a search ended."""

    ITERATIONS = "out of iterations"
    ORTHOGONAL = "residuals are orthogonal to all columns"
    COST = "the cost no longer changes"
    UNKNOWNS = "the unknowns no longer change"
    NO_STEP = "no step lowers the cost as its derivatives promise (does the motion jump, as contacts begin or end?)"
    JUMPS = "a minimum of the parameters, as far as the motion allows: it jumps where contacts begin or friction holds"


class _Iterate(NamedTuple):
    """The state of the iteration.

    Attributes:
      point: the unknowns.
      residuals: (windows, k) there.
      blocks: their derivatives.
      scale: S, the largest norms of the columns so far.
      triangles: R of the QR of each window's (J_x, J_next, J_theta, r).
      damping: mu of the next step.
      growth: the factor by which mu grows if that step fails.
      refused: number of failed steps in a row.
      jacobians: how many times derivatives were taken.
      ending: why the search is to end; None if it goes on.
    """

    point: Point
    residuals: np.ndarray
    blocks: Blocks
    scale: Point
    triangles: np.ndarray
    damping: float
    growth: float
    refused: int
    jacobians: int
    ending: _Ending | None

    @property
    def cost(self) -> float:
        """Half the sum of squares."""
        return _cost(self.residuals)

    @property
    def mean_cost(self) -> float:
        """Twice the cost divided by the number of residuals: the mean squared residual."""
        return 2 * self.cost / max(np.count_nonzero(self.residuals), 1)


def least_squares(problem: LeastSquares, start: Point, iterations: int) -> Outcome:
    """Finds a local minimum of the sum of squares.

    Args:
      problem: residuals, derivatives and bounds.
      start: where to begin; theta is clipped to the bounds.
      iterations: number of steps that are tried, at most.
    """
    iterate = _init(problem, start)
    for _ in range(iterations):
        iterate = _advance(problem, iterate)
        if iterate.ending or iterate.damping > LARGEST_DAMPING:
            break
    return _conclude(problem, iterate)


def _init(problem: LeastSquares, start: Point) -> _Iterate:
    """The first iterate."""
    inside = start._replace(theta=np.clip(start.theta, problem.lower, problem.upper))
    residuals = problem.residuals(inside)
    blocks = problem.blocks(inside)
    return _Iterate(
        point=inside,
        residuals=residuals,
        blocks=blocks,
        scale=_scale(problem, None, blocks),
        triangles=_triangles(blocks, residuals),
        damping=FIRST_DAMPING,
        growth=DAMPING_GROWTH,
        refused=0,
        jacobians=1,
        ending=None,
    )


def _advance(problem: LeastSquares, now: _Iterate) -> _Iterate:
    """Tries one step; accepts it if it gains a fraction of what its derivatives promise, and adapts mu."""
    if _steepness(problem, now) < COSINE:
        return now._replace(ending=_Ending.ORTHOGONAL)
    step = _step(problem, now, now.damping)
    expected = _expected(now, step)
    if now.damping <= FIRST_DAMPING and expected <= NO_MATTER * now.mean_cost:
        return now._replace(ending=_Ending.COST)
    later = _moved(now.point, step)
    residuals = problem.residuals(later)
    gain = now.cost - _cost(residuals)
    # if the step fails, perhaps one first state is next to a jump: theta alone may still go on
    alone = bool(gain <= LEAST_RATIO * expected and step.x.size and step.theta.size)
    if alone:
        later = _moved(now.point, step._replace(x=np.zeros_like(step.x)))
        residuals = problem.residuals(later)
        gain = now.cost - _cost(residuals)
    after = now._replace(ending=_ending(now, step, expected, gain))
    if gain > LEAST_RATIO * expected and not alone:
        # Nielsen's rule: mu falls the more, the better the model predicted the gain
        ratio = min(gain / max(expected, TINY), 1.0)
        fall = max(DAMPING_FALL, 1 - (2 * ratio - 1) ** 3)
        damping = max(now.damping * fall, LEAST_DAMPING)
        after = after._replace(damping=damping, growth=DAMPING_GROWTH, refused=0)
    else:
        after = after._replace(damping=now.damping * now.growth, growth=now.growth * 2, refused=now.refused + 1)
    if gain > (0 if alone else LEAST_RATIO * expected):
        after = _at(problem, after, later, residuals)
    if after.refused == PATIENCE and now.point.x.size and now.blocks.by_next is None:
        after = _move_first_states(problem, after, now.cost)
    return after


def _at(problem: LeastSquares, before: _Iterate, point: Point, residuals: np.ndarray) -> _Iterate:
    """The iterate at another point, where derivatives are taken."""
    blocks = problem.blocks(point)
    return before._replace(
        point=point,
        residuals=residuals,
        blocks=blocks,
        scale=_scale(problem, before.scale, blocks),
        triangles=_triangles(blocks, residuals),
        jacobians=before.jacobians + 1,
    )


def _ending(now: _Iterate, step: Point, expected: float, gain: float) -> _Ending | None:
    """Why the search is to end after a step; None if it goes on."""
    if max(expected, abs(gain)) <= CHANGE * now.cost:
        return _Ending.COST
    step_length, length = (np.sqrt(sum(np.sum(part**2) for part in point)) for point in (step, now.point))
    return _Ending.UNKNOWNS if step_length <= CHANGE * (CHANGE + length) else None


def _conclude(problem: LeastSquares, now: _Iterate) -> Outcome:
    """Judges the last point by an undamped step: whether it is a minimum, and what is left."""
    step = _step(problem, now, LEAST_DAMPING)
    enough = max(MINIMUM * now.mean_cost, NOTHING)
    minimum = bool(_expected(now, step) <= enough)
    left = np.zeros_like(step.theta)
    ending = now.ending or _Ending.ITERATIONS
    if minimum and now.ending is _Ending.COST:
        # the last step is so small that the derivatives still hold
        later = _moved(now.point, step)
        residuals = problem.residuals(later)
        if _cost(residuals) < now.cost:
            now = now._replace(point=later, residuals=residuals)
    if not minimum:
        ending = _Ending.NO_STEP if now.ending or now.damping > LARGEST_DAMPING else _Ending.ITERATIONS
        if step.theta.size:
            # the part of the expected gain that belongs to theta, while first states follow it
            left = step.theta
            minimum = 0.5 * float(np.sum((projected(now.blocks) @ step.theta) ** 2)) <= EDGE
            ending = _Ending.JUMPS if minimum else ending
    return Outcome(
        point=now.point,
        residuals=now.residuals,
        blocks=now.blocks,
        jacobians=now.jacobians,
        minimum=bool(minimum),
        message=ending.value,
        left=left,
    )


def _move_first_states(problem: LeastSquares, now: _Iterate, cost: float) -> _Iterate:
    """Moves first states one coordinate at a time, in each window as far as that lowers its own cost.

    Where a motion jumps, one coordinate can make a step of all coordinates fail, and so holds up the others. For
    example, a body that is tilted leaves the floor. The iterate does not change unless the cost falls below `cost` by
    the fraction `WORTH`.
    """
    x = now.point.x
    residuals = now.residuals
    for coordinate in range(x.shape[1]):
        column = now.blocks.by_x[:, :, coordinate]
        whole = -np.sum(column * residuals, axis=1) / np.maximum(np.sum(column**2, axis=1), TINY)
        for part in COORDINATE_STEPS:
            moved = x.copy()
            moved[:, coordinate] += part * whole
            tried = problem.residuals(Point(now.point.theta, moved))
            better = np.sum(tried**2, axis=1) < np.sum(residuals**2, axis=1)
            x = np.where(better[:, None], moved, x)
            residuals = np.where(better[:, None], tried, residuals)
            if better.all():
                break
    if not _cost(residuals) < (1 - WORTH) * cost:
        return now
    there = _at(problem, now, Point(now.point.theta, x), residuals)
    return there._replace(damping=FIRST_DAMPING, growth=DAMPING_GROWTH, refused=0, ending=None)


def _moved(point: Point, step: Point) -> Point:
    """The point after a step."""
    return Point(theta=point.theta + step.theta, x=point.x + step.x)


def _cost(residuals: np.ndarray) -> float:
    """Half the sum of squares."""
    return 0.5 * float(np.sum(residuals**2))


def _expected(now: _Iterate, step: Point) -> float:
    """By how much a step would lower the cost if residuals were linear."""
    blocks = now.blocks
    moved = blocks.by_theta @ step.theta + np.einsum("wkx,wx->wk", blocks.by_x, step.x)
    if blocks.by_next is not None:
        moved = moved + np.einsum("wkx,wx->wk", blocks.by_next, np.roll(step.x, -1, axis=0))
    return now.cost - _cost(now.residuals + moved)


def _scale(problem: LeastSquares, before: Point | None, blocks: Blocks) -> Point:
    """The largest norm so far of each column; small ones are raised to a fraction of the largest, and zeros to 1."""
    theta = np.sqrt(np.sum(blocks.by_theta**2, axis=(0, 1))) * problem.size
    theta = np.maximum(theta, LEAST_COLUMN * theta.max(initial=0)) / problem.size
    squares = np.sum(blocks.by_x**2, axis=1)
    if blocks.by_next is not None:
        squares = squares + np.roll(np.sum(blocks.by_next**2, axis=1), 1, axis=0)
    x = np.sqrt(squares)
    x = np.maximum(x, LEAST_COLUMN * x.max(axis=1, initial=0, keepdims=True))
    now = Point(theta=np.where(theta > 0, theta, 1), x=np.where(x > 0, x, 1))
    return now if before is None else Point(*(np.maximum(old, new) for old, new in zip(before, now, strict=True)))


def _steepness(problem: LeastSquares, now: _Iterate) -> float:
    """The largest cosine between the residuals and a column whose unknown may still change."""
    residuals = now.residuals
    blocks = now.blocks
    theta = now.point.theta
    slope = np.einsum("wk,wkn->n", residuals, blocks.by_theta)
    at_bound = ((theta <= problem.lower) & (slope > 0)) | ((theta >= problem.upper) & (slope < 0))
    others = np.einsum("wk,wkx->wx", residuals, blocks.by_x)
    if blocks.by_next is not None:
        others = others + np.roll(np.einsum("wk,wkx->wx", residuals, blocks.by_next), 1, axis=0)
    norms = _scale(problem, None, blocks)
    steep = np.concatenate([np.where(at_bound, 0, np.abs(slope) / norms.theta), (np.abs(others) / norms.x).reshape(-1)])
    return float(steep.max(initial=0)) / max(float(np.sqrt(np.sum(residuals**2))), TINY)


def _triangles(blocks: Blocks, residuals: np.ndarray) -> np.ndarray:
    """(windows, rows, columns) the R of the QR of (J_x, J_next, J_theta, r), for each window.

    Q is dropped: it is a rotation of the rows, which changes no sum of squares.
    """
    following = [] if blocks.by_next is None else [blocks.by_next]
    return _triangle(np.concatenate([blocks.by_x, *following, blocks.by_theta, residuals[..., None]], axis=-1))


def _triangle(matrices: np.ndarray) -> np.ndarray:
    """The R of the QR of each matrix of a stack; tall matrices are reduced in pieces first."""
    count, rows, columns = matrices.shape
    most = max(LARGEST_PIECE // columns, 2 * columns)
    while rows > most:
        pieces = -(-rows // most)
        filled = np.concatenate([matrices, np.zeros((count, -rows % pieces, columns))], axis=1)
        matrices = np.asarray(np.linalg.qr(filled.reshape(count * pieces, -1, columns), mode="r"))
        rows = pieces * matrices.shape[1]
        matrices = matrices.reshape(count, rows, columns)
    return np.asarray(np.linalg.qr(matrices, mode="r"))


def _step(problem: LeastSquares, now: _Iterate, damping: float) -> Point:
    """The damped step within the bounds: the small problem in theta, then x by substitution."""
    before = now.point
    root = np.sqrt(damping)
    n = before.theta.size
    rest, substituted = _eliminated(now.triangles, n, root * now.scale.x)
    matrix = np.concatenate([rest[:, :n], root * np.diag(now.scale.theta)])
    goal = -np.concatenate([rest[:, n], np.zeros(n)])
    lower = problem.lower - before.theta
    upper = problem.upper - before.theta
    theta = np.linalg.lstsq(matrix, goal, rcond=None)[0] if n else np.zeros(0)
    if not np.all((lower <= theta) & (theta <= upper)):
        # scipy needs lower < upper
        room = np.minimum(lower, -TINY), np.maximum(upper, TINY)
        theta = np.clip(scipy.optimize.lsq_linear(matrix, goal, room, "bvls").x, lower, upper)
    return Point(theta=theta, x=substituted(np.append(theta, 1.0)[:, None])[..., 0])


def state_slopes(blocks: Blocks) -> np.ndarray:
    """(windows, width, n) dx/dtheta such that the residuals change least."""
    windows, k, n = blocks.by_theta.shape
    width = blocks.by_x.shape[-1]
    if not width or not n:
        return np.zeros((windows, width, n))
    triangles = _triangles(blocks, np.zeros((windows, k)))
    return _eliminated(triangles, n, np.zeros((windows, width)))[1](np.eye(n + 1, n))


def projected(blocks: Blocks) -> np.ndarray:
    """(windows, k, n) derivatives of the residuals with respect to theta, while x follows so that they change least.

    This is (1 - Q Q^T) J_theta, with Q an orthonormal basis of the columns of J_x (variable projection).
    """
    x = state_slopes(blocks)
    moved = blocks.by_theta + blocks.by_x @ x
    return moved if blocks.by_next is None else moved + blocks.by_next @ np.roll(x, -1, axis=0)


def without_states(blocks: Blocks, residuals: np.ndarray) -> np.ndarray:
    """(m, n + 1) rows of the linear problem in theta and the residuals, from which x is eliminated.

    For any change of theta, |rows @ (change, 1)|^2 is the least sum of squares that a change of x leaves.
    """
    width = (len(blocks.by_x), blocks.by_x.shape[-1])
    return _eliminated(_triangles(blocks, residuals), blocks.by_theta.shape[-1], np.zeros(width))[0]


def _eliminated(
    triangles: np.ndarray, n: int, damping: np.ndarray
) -> tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]:
    """Eliminates x from the linear problem.

    In the QR of a window's triangle, the first `width` rows contain x_w and the others do not. The others are the rows
    of the remaining problem; the first give x_w once theta is known. In a chain the other rows still contain x_{w+1}:
    they are put on top of the next window's rows before that is factored.

    Args:
      triangles: (windows, rows, columns); the columns belong to x, to the next x if windows are chained, to theta and
        to the residuals.
      n: number of parameters in theta.
      damping: (windows, width) further rows that hold x at zero.

    Returns:
      Rows (m, n + 1) of theta and the residuals; and a function that takes (theta, 1), one or several columns
      (n + 1, c), and returns x (windows, width, c).
    """
    windows, width = damping.shape
    if not width:
        return triangles.reshape(-1, triangles.shape[-1]), lambda known: np.zeros((windows, 0, known.shape[1]))
    damped = np.zeros((windows, width, triangles.shape[-1]))
    damped[:, np.arange(width), np.arange(width)] = damping
    stacked = np.concatenate([triangles, damped], axis=1)
    following = triangles.shape[-1] - width - n - 1
    if not following:
        triangular = _triangle(stacked)
        rest = triangular[:, width:, width:].reshape(-1, n + 1)
    else:
        passed = np.zeros((0, width + n + 1))
        rows = []
        for window in stacked:
            known = np.concatenate([passed[:, :width], np.zeros((len(passed), width)), passed[:, width:]], axis=1)
            full = np.linalg.qr(np.concatenate([known, window]), mode="r")
            rows.append(full[:width])
            passed = full[width:, width:]
        triangular = np.stack(rows)
        rest = passed[:, width:]

    def substituted(known: np.ndarray) -> np.ndarray:
        x = np.zeros((windows + 1, width, known.shape[1]))
        right = triangular[:, :width, width + following :] @ known
        for w in reversed(range(windows)):
            chain = triangular[w, :width, width : width + following] @ x[w + 1, :following]
            x[w] = -np.linalg.solve(triangular[w, :width, :width], right[w] + chain)
        return x[:windows]

    return rest, substituted
