"""Exact line search: the root of the derivative of a convex, piecewise quadratic function.

Newton's method on the derivative, kept inside a shrinking bracket: every point that is tried becomes a bound, and a
Newton step that leaves the bracket is replaced by its midpoint. Only derivatives are used, so there is no
cancellation of costs in float32. Never differentiated.

In float32 there are `FEW` trials at most: more do not save an iteration of Newton's method or of conjugate gradients,
which go on from there, and in a batch all worlds would wait for the longest search. On a GPU few trials are written out
one after another. A search that is cut short ends at the trial that would have come next. Where the secant of bounds
vanishes is no better guess: rows that stick behind the root make it a step of next to nothing.
"""

import functools
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp

from diffsim.math import safe
from diffsim.xla.barriers import for_gpu
from diffsim.xla.select import where

Array = jax.Array

# relative accuracy beyond which rounding decides, in units of the machine epsilon
ROUNDING = 64.0
# stands for "no upper bound yet"
FAR = 1e30
# the most trials of a search in float32
FEW = 6


class Derivatives(Protocol):
    """The function on a line whose minimum is searched for."""

    def __call__(self, alpha: Array) -> tuple[Array, Array]:
        """First and second derivative with respect to the step length, at alpha ()."""
        ...


class _Bracket(NamedTuple):
    """The next trial, or the result once done; bounds of the root; trials so far.

    A bracket that is done keeps its result when it is advanced again.
    """

    alpha: Array
    lower: Array
    upper: Array
    tried: Array
    done: Array


def line_search(
    derivatives: Derivatives, first: Array, slope: Array, tolerance: Array, limit: int, idle: Array
) -> Array:
    """The step alpha >= 0 at which the derivative vanishes, within `tolerance` or after `limit` evaluations.

    Where it was not found: the next trial, or the lower bound where there is no upper one.

    Args:
      derivatives: alpha -> first and second derivative.
      first: first trial: the Newton step if it is known, else 0.
      slope: derivative at 0, negative.
      tolerance: for the absolute derivative; raised to what rounding allows.
      limit: largest number of evaluations; in float32 at most `FEW`.
      idle: whether there is nothing to search, as in a world that is done while others of its batch are not. It would
        chase rounding noise up to the limit, and the whole batch with it.
    """
    epsilon = float(jnp.finfo(slope.dtype).eps)
    tolerance = jnp.maximum(tolerance, ROUNDING * epsilon * jnp.abs(slope))
    zero, count = jnp.zeros_like(slope), jnp.zeros((), jnp.int32)
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
        final = jax.lax.while_loop(unfinished, advance, start)
    return where(final.done | (final.upper < FAR), final.alpha, final.lower)


def _advance(bracket: _Bracket, derivatives: Derivatives, tolerance: Array) -> _Bracket:
    """Evaluates the trial, which becomes a bound, and chooses the next one."""
    slope, curvature = derivatives(bracket.alpha)
    left = slope < 0
    lower, upper = where(left, bracket.alpha, bracket.lower), where(left, bracket.upper, bracket.alpha)
    newton = bracket.alpha - safe.divide(slope, curvature)
    middle = where(upper < FAR, 0.5 * (lower + upper), lower)
    trial = where((lower < newton) & (newton < upper), newton, middle)
    # also done where no number lies between the bounds, or the slope is not a number, or nothing is known of an end
    done = bracket.done | ~(jnp.abs(slope) > tolerance) | ~((lower < trial) & (trial < upper))
    return _Bracket(
        alpha=where(done, bracket.alpha, trial),
        lower=lower,
        upper=upper,
        tried=bracket.tried + 1,
        done=done,
    )
