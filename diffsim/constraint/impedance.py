"""Stiffness, damping, impedance and regularization of constraint rows, from solref and solimp.

solref and solimp give the stiffness K, damping B and impedance d(pos - margin) in [1e-4, 0.9999] of a row:
aref = -B v - K d (pos - margin) - Jdot v, and D = 1 / R with R = (1 - d) / d * diagonal.
Source: MuJoCo documentation, "Computation", constraint model; "Modeling", solver parameters.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from diffsim.base.enums import MINVAL
from diffsim.math.safe import clip
from diffsim.xla.bilinear import powers

# range of the impedance: mjMINIMP and mjMAXIMP of mjmodel.h. R = (1 - d) / d * diagonal stays positive and finite
MINIMP = 1e-4
MAXIMP = 0.9999
# (time constant in s, damping ratio) where solref mixes its two formats, as in MuJoCo
DEFAULT_SOLREF = (0.02, 1.0)


class Reference(NamedTuple):
    """Stiffness K (1/s^2), damping B (1/s) and impedance d of each row."""

    stiffness: Array
    damping: Array
    impedance: Array


def at_least(x: Array, lower: Array | float) -> Array:
    """max(x, lower); at a tie its derivative is the derivative of x."""
    return jnp.where(x < lower, lower, x)


def reference(solref: Array, solimp: Array, violation: Array, timestep: Array, refsafe: bool) -> Reference:
    """K, B and d of n rows.

    Args:
      solref: (n, 2) (time constant, damping ratio), or (-stiffness, -damping).
      solimp: (n, 5) (d0, dmax, width, midpoint, power).
      violation: (n,) pos - margin.
      timestep: seconds; with `refsafe` the time constant is at least twice the timestep.
    """
    solref = usable_solref(solref, DEFAULT_SOLREF, timestep, refsafe)
    dmax = clip(solimp[..., 1], MINIMP, MAXIMP)
    return Reference(stiffness(solref, dmax), damping(solref, dmax), impedance(solimp, violation))


def usable_solref(solref: Array, default: tuple[float, float], timestep: Array, refsafe: bool) -> Array:
    """solref (n, 2) with mixed formats replaced by `default`, and with a safe time constant."""
    first, second = solref[..., 0], solref[..., 1]
    # two positive numbers are a time constant and a damping ratio, two others are -stiffness and -damping
    mixed = (first > 0) != (second > 0)
    first, second = jnp.where(mixed, default[0], first), jnp.where(mixed, default[1], second)
    if refsafe:
        first = jnp.where(first > 0, at_least(first, 2 * timestep), first)
    return jnp.stack([first, second], axis=-1)


def stiffness(solref: Array, dmax: Array) -> Array:
    """K = 1 / (dmax tc ratio)^2, or -solref[0] / dmax^2 in the direct format.

    At full impedance d = dmax, and without other forces, the constraint accelerates by d aref = -2 v / tc -
    (pos - margin) / (tc ratio)^2: a damped spring of this time constant and damping ratio, whatever mass it holds.
    """
    standard = solref[..., 0] > 0
    period = jnp.where(standard, dmax * solref[..., 0] * solref[..., 1], 1)
    return jnp.where(standard, 1 / at_least(period * period, MINVAL), -solref[..., 0] / (dmax * dmax))


def damping(solref: Array, dmax: Array) -> Array:
    """B = 2 / (dmax tc), or -solref[1] / dmax in the direct format."""
    standard = solref[..., 1] > 0
    period = jnp.where(standard, dmax * solref[..., 0], 1)
    return jnp.where(standard, 2 / at_least(period, MINVAL), -solref[..., 1] / dmax)


def impedance(solimp: Array, violation: Array) -> Array:
    """d (n,): from d0 at zero violation to dmax at `width`, along two power curves that meet at `midpoint`.

    With x = |violation| / width and m = midpoint: y = m (x/m)^p below m, and y = 1 - (1-m) ((1-x)/(1-m))^p above.
    """
    # the numbers of solimp within their ranges, as MuJoCo's getimpedance
    d0, dmax = clip(solimp[..., 0], MINIMP, MAXIMP), clip(solimp[..., 1], MINIMP, MAXIMP)
    width, power = at_least(solimp[..., 2], 0.0), at_least(solimp[..., 4], 1.0)
    midpoint = clip(solimp[..., 3], MINIMP, MAXIMP)
    constant = (d0 == dmax) | (width <= MINVAL)
    # outside of (0, 1) x is replaced, not clipped: powers have no finite derivative at 0
    x = jnp.abs(violation) / jnp.where(constant, 1, width)
    inside = (x > 0) & (x < 1)
    x = jnp.where(inside, x, 0.5)
    # both halves are the same power curve, seen from either end
    rising = x <= midpoint
    span = jnp.where(rising, midpoint, 1 - midpoint)
    arc = span * powers(jnp.where(rising, x, 1 - x) / span, power)
    y = jnp.where(rising, arc, 1 - arc)
    saturated = jnp.where(jnp.abs(violation) >= width, dmax, d0)
    curve = jnp.where(inside, d0 + y * (dmax - d0), saturated)
    return jnp.where(constant, 0.5 * (d0 + dmax), curve)


def kinks(solimp: Array) -> Array:
    """(2, n) the violations at which the impedance's rise has its midpoint and its end, m or rad; 0 if constant."""
    width = jnp.where(solimp[..., 0] == solimp[..., 1], 0, at_least(solimp[..., 2], 0.0))
    return jnp.stack([clip(solimp[..., 3], MINIMP, MAXIMP) * width, width])


def regularization(impedance: Array, diagonal: Array) -> Array:
    """R = (1 - d) / d * diagonal (n,), at least 1e-15."""
    return at_least((1 - impedance) * diagonal / impedance, MINVAL)
