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

# relative accuracy beyond which rounding decides, in units of the machine epsilon
ROUNDING = 64.0
# stands for "no upper bound yet"
FAR = 1e30


class _Search(NamedTuple):
    alpha: Array
    slope: Array
    bend: Array
    lower: Array
    lower_slope: Array
    upper: Array
    upper_slope: Array
    tried: Array


def line_search(
    derivatives: Callable[[Array], tuple[Array, Array]],
    first: Array,
    slope: Array,
    tolerance: Array,
    limit: int,
) -> Array:
    """The step alpha >= 0 at which the derivative vanishes, within `tolerance` or after `limit` evaluations.

    Args:
      derivatives: alpha -> first and second derivative.
      first: first trial, the Newton step from 0.
      slope: derivative at 0, negative.
      tolerance: for the absolute derivative; raised to what rounding allows.
      limit: largest number of evaluations.
    """
    epsilon = float(jnp.finfo(slope.dtype).eps)
    tolerance = jnp.maximum(tolerance, ROUNDING * epsilon * jnp.abs(slope))
    zero = jnp.zeros_like(slope)
    start = _tried(
        _Search(first, *derivatives(first), zero, slope, zero + FAR, zero, jnp.ones((), jnp.int32)),
    )

    def unfinished(search: _Search) -> Array:
        inside = (search.lower < search.alpha) & (search.alpha < search.upper)
        return (jnp.abs(search.slope) > tolerance) & (search.tried < limit) & (inside | (search.tried == 1))

    def again(search: _Search) -> _Search:
        return _tried(_next(search, derivatives))

    final = jax.lax.while_loop(unfinished, again, start) if limit > 1 else start
    return jnp.where(jnp.abs(final.slope) <= tolerance, final.alpha, _best(final))


def _tried(search: _Search) -> _Search:
    """The point just evaluated becomes a bound."""
    left = search.slope < 0
    return search._replace(
        lower=jnp.where(left, search.alpha, search.lower),
        lower_slope=jnp.where(left, search.slope, search.lower_slope),
        upper=jnp.where(left, search.upper, search.alpha),
        upper_slope=jnp.where(left, search.upper_slope, search.slope),
    )


def _next(search: _Search, derivatives: Callable[[Array], tuple[Array, Array]]) -> _Search:
    newton = search.alpha - safe.divide(search.slope, search.bend)
    inside = (search.lower < newton) & (newton < search.upper)
    alpha = jnp.where(inside, newton, 0.5 * (search.lower + search.upper))
    slope, bend = derivatives(alpha)
    return search._replace(alpha=alpha, slope=slope, bend=bend, tried=search.tried + 1)


def _best(search: _Search) -> Array:
    """Where the secant between the bounds vanishes; the lower bound if there is no upper one."""
    span = safe.divide(search.lower_slope, search.lower_slope - search.upper_slope)
    secant = search.lower + span * (search.upper - search.lower)
    return jnp.where(search.upper < FAR, secant, search.lower)
