"""Exact line search: the root of the derivative of a convex, piecewise quadratic function.

Newton's method on the derivative, kept inside a shrinking bracket: every point that is tried becomes a bound, and a
Newton step that leaves the bracket is replaced by its midpoint. Only derivatives are used, so there is no
cancellation of costs in float32. Never differentiated.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from diffsim.math import safe

Array = jax.Array
Derivatives = Callable[[Array], tuple[Array, Array]]

# relative accuracy beyond which rounding decides, in units of the machine epsilon
ROUNDING = 64.0
# stands for "no upper bound yet"
FAR = 1e30


class _Search(NamedTuple):
    # the next trial, or the result once done
    alpha: Array
    lower: Array
    lower_slope: Array
    upper: Array
    upper_slope: Array
    tried: Array
    done: Array


def line_search(
    derivatives: Derivatives, first: Array, slope: Array, tolerance: Array, limit: int, idle: Array
) -> Array:
    """The step alpha >= 0 at which the derivative vanishes, within `tolerance` or after `limit` evaluations.

    Args:
      derivatives: alpha -> first and second derivative.
      first: first trial: the Newton step if it is known, else 0.
      slope: derivative at 0, negative.
      tolerance: for the absolute derivative; raised to what rounding allows.
      limit: largest number of evaluations.
      idle: whether there is nothing to search, as in a world that is done while others of its batch are not. It would
        chase rounding noise up to the limit, and the whole batch with it.
    """
    epsilon = float(jnp.finfo(slope.dtype).eps)
    tolerance = jnp.maximum(tolerance, ROUNDING * epsilon * jnp.abs(slope))
    zero, count = jnp.zeros_like(slope), jnp.zeros((), jnp.int32)
    start = _Search(first, zero, slope, zero + FAR, zero, count, idle)

    def unfinished(search: _Search) -> Array:
        return ~search.done & (search.tried < limit)

    def advance(search: _Search) -> _Search:
        return _advance(search, derivatives, tolerance)

    final = jax.lax.while_loop(unfinished, advance, start) if limit > 1 else advance(start)
    return jnp.where(final.done, final.alpha, _secant(final))


def _advance(search: _Search, derivatives: Derivatives, tolerance: Array) -> _Search:
    """Evaluates the trial, which becomes a bound, and chooses the next one."""
    slope, bend = derivatives(search.alpha)
    left = slope < 0
    lower, upper = jnp.where(left, search.alpha, search.lower), jnp.where(left, search.upper, search.alpha)
    newton = search.alpha - safe.divide(slope, bend)
    trial = jnp.where((lower < newton) & (newton < upper), newton, 0.5 * (lower + upper))
    # also done where no number lies between the bounds, or the slope is not a number
    done = ~(jnp.abs(slope) > tolerance) | ~((lower < trial) & (trial < upper))
    return _Search(
        alpha=jnp.where(done, search.alpha, trial),
        lower=lower,
        lower_slope=jnp.where(left, slope, search.lower_slope),
        upper=upper,
        upper_slope=jnp.where(left, search.upper_slope, slope),
        tried=search.tried + 1,
        done=done,
    )


def _secant(search: _Search) -> Array:
    """Where the secant between the bounds vanishes; the lower bound if there is no upper one."""
    span = safe.divide(search.lower_slope, search.lower_slope - search.upper_slope)
    secant = search.lower + span * (search.upper - search.lower)
    return jnp.where(search.upper < FAR, secant, search.lower)
