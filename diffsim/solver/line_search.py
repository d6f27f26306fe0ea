"""Exact line search: the minimum of the objective on a line, a convex, piecewise quadratic function.

Newton's method finds the root of its derivative inside a shrinking bracket: every trial becomes a bound, and a Newton
step that leaves the bracket is replaced by the midpoint of the bracket. Only derivatives are used, so that no costs
cancel in float32. The search is not differentiated.

In float32 there are at most `FEW` trials: more do not save an iteration of Newton's method or of conjugate gradients,
which go on from there, and in a batch all worlds would wait for the longest search. On a GPU few trials are written out
one after another. A search that is cut short ends at the trial that would have come next. (The root of the secant
between the bounds is no better: rows that begin to act behind the root make it a tiny step.)

The cost of the rows at x + alpha v is a sum of costs of springs (constraint/laws.py), one for each row or edge of a
pyramid, except for elliptic contacts. On a GPU each sum of each trial is a kernel launch; there all springs that only
push are put into one list.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp

from diffsim.constraint import laws
from diffsim.constraint.laws import SPRINGS
from diffsim.math import safe
from diffsim.math.vector import total
from diffsim.types.constraints import Constraints, Law, PerGroup, RowGroup
from diffsim.xla.barriers import for_gpu, stored_on_gpu
from diffsim.xla.loops import while_loop

Array = jax.Array

# least relative tolerance of the derivative, in units of the machine epsilon: below it the derivative is rounding
ROUNDING = 64.0
# stands for the upper bound of the bracket while there is none: larger than any step
FAR = 1e30
# the most trials of a search in float32, and the most that a GPU runs without a loop
FEW = 6


class Derivatives(Protocol):
    """The derivatives of a function on a line."""

    def __call__(self, alpha: Array) -> tuple[Array, Array]:
        """First and second derivative at the step length alpha ()."""
        ...


class _Bracket(NamedTuple):
    """State of a search.

    Attributes:
      alpha: () the next trial, or the result once done.
      lower, upper: () bounds of the root.
      tried: () trials so far.
      done: () bool; `alpha` then no longer changes.
    """

    alpha: Array
    lower: Array
    upper: Array
    tried: Array
    done: Array


def line_search(
    derivatives: Derivatives, first: Array, slope: Array, tolerance: Array, limit: int, idle: Array
) -> Array:
    """() the step alpha >= 0 at which the derivative vanishes, within `tolerance` or after `limit` evaluations.

    If the evaluations run out, it is the next trial, or the lower bound where there is no upper bound.

    Args:
      derivatives: alpha -> first and second derivative.
      first: first trial: the Newton step if it is known, else 0.
      slope: derivative at 0, negative.
      tolerance: for the absolute derivative; raised to what rounding allows.
      limit: largest number of evaluations; in float32 at most `FEW`.
      idle: whether there is nothing to search, as in a world that is done while others of its batch go on. Its search
        would follow rounding noise up to the limit, and the whole batch would wait.
    """
    epsilon = float(jnp.finfo(slope.dtype).eps)
    tolerance = jnp.maximum(tolerance, ROUNDING * epsilon * jnp.abs(slope))
    zero = jnp.zeros_like(slope)
    count = jnp.zeros((), jnp.int32)
    start = _Bracket(first, zero, zero + FAR, count, idle)

    def unfinished(bracket: _Bracket) -> Array:
        return ~bracket.done & (bracket.tried < limit)

    def advance(bracket: _Bracket) -> _Bracket:
        return _advance(bracket, derivatives, tolerance)

    if slope.dtype == jnp.float32:
        limit = min(limit, FEW)
    if limit == 1 or (limit <= FEW and for_gpu()):
        final = functools.reduce(lambda bracket, _: advance(bracket), range(limit), start)
    else:
        final = while_loop(unfinished, advance, start)
    return jnp.where(final.done | (final.upper < FAR), final.alpha, final.lower)


def _advance(bracket: _Bracket, derivatives: Derivatives, tolerance: Array) -> _Bracket:
    """Evaluates the trial, which becomes a bound, and chooses the next one."""
    # phi is convex, so phi' grows: a negative slope says that the minimum is to the right
    slope, curvature = derivatives(bracket.alpha)
    left = slope < 0
    lower, upper = jnp.where(left, bracket.alpha, bracket.lower), jnp.where(left, bracket.upper, bracket.alpha)
    # Newton's step on phi'. Where phi' is piecewise linear, it can leave the bracket and cycle between two pieces
    newton = bracket.alpha - safe.divide(slope, curvature)
    middle = jnp.where(upper < FAR, 0.5 * (lower + upper), lower)
    trial = jnp.where((lower < newton) & (newton < upper), newton, middle)
    # done also where no number is left between the bounds, or the slope is NaN, or there is no upper bound and no step
    done = bracket.done | ~(jnp.abs(slope) > tolerance) | ~((lower < trial) & (trial < upper))
    return _Bracket(
        alpha=jnp.where(done, bracket.alpha, trial),
        lower=lower,
        upper=upper,
        tried=bracket.tried + 1,
        done=done,
    )


class _Cones(NamedTuple):
    """Elliptic contacts of one dimension on a line: residuals and their change (dim, n).

    The slope is -f(x + alpha v) . v, the curvature v . K v.
    """

    rows: RowGroup
    x: Array
    v: Array

    def __call__(self, alpha: Array) -> tuple[Array, Array]:
        x = self.x + alpha * self.v
        slope = -laws.force(self.rows, x) * self.v
        return jnp.sum(slope), jnp.sum(laws.hessian_product(self.rows, x, self.v) * self.v)


class _Springs(NamedTuple):
    """Springs of a group on a line: residuals x, their change v, and the x below which they push, (k, n) each."""

    rows: RowGroup
    x: Array
    v: Array
    threshold: Array

    def __call__(self, alpha: Array) -> tuple[Array, Array]:
        spring = laws.spring(self.rows, self.x + alpha * self.v, self.threshold)
        return -_sum(spring.force * self.v), _sum(spring.stiffness * self.v * self.v)


class _Pushing(NamedTuple):
    """Springs of several groups that push where x < 0: residuals x, their change v, and D v, (n,) each."""

    x: Array
    v: Array
    weighted: Array

    def __call__(self, alpha: Array) -> tuple[Array, Array]:
        x = self.x + alpha * self.v
        acts = x < 0
        return jnp.sum(jnp.where(acts, self.weighted * x, 0)), jnp.sum(jnp.where(acts, self.weighted * self.v, 0))


def _sum(terms: Array) -> Array:
    """The sum of terms (k, n), with the few k written out: XLA for CPU splits long sums, and stores their terms."""
    return jnp.sum(total(list(terms)))


class LineRows(NamedTuple):
    """The sum of the costs of all rows on a line, as groups."""

    groups: tuple[_Springs | _Cones | _Pushing, ...]

    def __call__(self, alpha: Array) -> tuple[Array, Array]:
        """First and second derivative of the sum of costs."""
        slopes, curvatures = zip(*(group(alpha) for group in self.groups), strict=True)
        return total(slopes), total(curvatures)


def line_rows(constraints: Constraints, x: PerGroup, v: PerGroup) -> LineRows:
    """The rows on the line from residuals x (dim, n) in the direction v, both of each group."""
    groups: list[_Springs | _Cones] = []
    for rows, x_of_rows, v_of_rows in zip(constraints.groups, x, v, strict=True):
        if rows.law not in SPRINGS:
            groups.append(_Cones(rows, x_of_rows, v_of_rows))
            continue
        y, change = (jnp.concatenate(laws.on_springs(rows, values)) for values in (x_of_rows, v_of_rows))
        thresholds = laws.thresholds(rows)
        threshold = jnp.concatenate(thresholds) if rows.threshold.size else thresholds[0]
        groups.append(_Springs(rows, y, change, threshold))

    # on a GPU one list of all springs that only push, from limits and contacts: two sums a trial, not two a group
    def pushes(rows: RowGroup) -> bool:
        """Whether springs act below zero only: in limits and contacts without an active set."""
        return rows.law in (Law.ONE_SIDED, Law.PYRAMID) and not rows.threshold.size

    pushing = [group for group in groups if for_gpu() and isinstance(group, _Springs) and pushes(group.rows)]
    others = [group for group in groups if all(group is not other for other in pushing)]
    return LineRows((*others, _listed(pushing)) if pushing else tuple(groups))


def _listed(groups: Sequence[_Springs]) -> _Pushing:
    """The springs of several groups as one list."""
    parts = [(group.x, group.v, group.rows.D * group.v) for group in groups]
    columns = (jnp.concatenate([part.reshape(-1) for part in column]) for column in zip(*parts, strict=True))
    return stored_on_gpu(_Pushing(*columns))
