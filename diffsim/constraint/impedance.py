"""Impedance: how solref and solimp become the weight D and the reference acceleration of a row.

aref = -B v - K d (pos - margin), R = (1 - d) / d * diagonal, D = 1 / R, with the impedance d(pos - margin) in
[1e-4, 0.9999]. Source: MuJoCo documentation, "Modeling", solver parameters.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from diffsim.math.safe import clip
from diffsim.xla.barriers import for_cpu, stored
from diffsim.xla.select import where

Array = jax.Array

MINVAL, MINIMP, MAXIMP = 1e-15, 1e-4, 0.9999
DEFAULT_SOLREF = (0.02, 1.0)
# numbers that a CPU raises to a power at once
VECTOR = 8


class Reference(NamedTuple):
    """Stiffness K (1/s^2), damping B (1/s) and impedance d of each row."""

    stiffness: Array
    damping: Array
    impedance: Array


def at_least(x: Array, lower: Array | float) -> Array:
    """max(x, lower); the derivative at a tie is that of x."""
    return where(x < lower, lower, x)


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
    """solref with mixed formats replaced by `default`, and with a safe time constant."""
    first, second = solref[..., 0], solref[..., 1]
    mixed = (first > 0) != (second > 0)
    first, second = where(mixed, default[0], first), where(mixed, default[1], second)
    if refsafe:
        first = where(first > 0, at_least(first, 2 * timestep), first)
    return jnp.stack([first, second], axis=-1)


def stiffness(solref: Array, dmax: Array) -> Array:
    """K = 1 / (dmax tc ratio)^2, or -solref[0] / dmax^2 in the direct format."""
    standard = solref[..., 0] > 0
    period = where(standard, dmax * solref[..., 0] * solref[..., 1], 1)
    return where(standard, 1 / at_least(period * period, MINVAL), -solref[..., 0] / (dmax * dmax))


def damping(solref: Array, dmax: Array) -> Array:
    """B = 2 / (dmax tc), or -solref[1] / dmax in the direct format."""
    standard = solref[..., 1] > 0
    period = where(standard, dmax * solref[..., 0], 1)
    return where(standard, 2 / at_least(period, MINVAL), -solref[..., 1] / dmax)


def impedance(solimp: Array, violation: Array) -> Array:
    """d: from d0 at zero violation to dmax at `width`, along two power curves that meet at `midpoint`.

    With x = |violation| / width and m = midpoint: y = m (x/m)^p below m, and y = 1 - (1-m) ((1-x)/(1-m))^p above.
    """
    d0, dmax = clip(solimp[..., 0], MINIMP, MAXIMP), clip(solimp[..., 1], MINIMP, MAXIMP)
    width, power = at_least(solimp[..., 2], 0.0), at_least(solimp[..., 4], 1.0)
    midpoint = clip(solimp[..., 3], MINIMP, MAXIMP)
    constant = (d0 == dmax) | (width <= MINVAL)
    x = jnp.abs(violation) / where(constant, 1, width)
    inside = (x > 0) & (x < 1)
    x = where(inside, x, 0.5)
    # both halves are the same power curve, seen from either end
    rising = x <= midpoint
    span = where(rising, midpoint, 1 - midpoint)
    arc = span * _power(where(rising, x, 1 - x) / span, power)
    y = where(rising, arc, 1 - arc)
    saturated = where(jnp.abs(violation) >= width, dmax, d0)
    curve = where(inside, d0 + y * (dmax - d0), saturated)
    return where(constant, 0.5 * (d0 + dmax), curve)


def _power(base: Array, exponent: Array) -> Array:
    """base^exponent (n,) of bases above zero; on a CPU of whole vectors, for what is left of one takes as long."""
    n = base.shape[-1]
    rest = -n % VECTOR if for_cpu() and n > VECTOR // 2 else 0
    if not rest:
        return jnp.exp(exponent * jnp.log(base))
    base, exponent = (stored(jnp.pad(x, (0, rest), constant_values=1)) for x in (base, exponent))
    return stored(jnp.exp(exponent * jnp.log(base)))[:n]


def bends(solimp: Array) -> Array:
    """(2, n) the violations at which the rise of the impedance turns and ends, m or rad; 0 where it is constant."""
    width = where(solimp[..., 0] == solimp[..., 1], 0, at_least(solimp[..., 2], 0.0))
    return jnp.stack([clip(solimp[..., 3], MINIMP, MAXIMP) * width, width])


def regularization(impedance: Array, diagonal: Array) -> Array:
    """R = (1 - d) / d * diagonal, at least 1e-15."""
    return at_least((1 - impedance) * diagonal / impedance, MINVAL)
