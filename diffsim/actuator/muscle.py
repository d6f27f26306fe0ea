"""Muscles: activation dynamics and the force-length-velocity curves.

Lengths are normalized so that the operating range (actuator_lengthrange) maps to the parameters' range; the curves
are piecewise quadratic. Parameters: range (2), force, scale, lmin, lmax, vmax, fpmax, fvmax; of the dynamics: time
constants of activation and deactivation, width of the smooth switch. Source: MuJoCo documentation, "Modeling",
"Muscle actuators"; Millard et al. 2013.
"""

import jax
import jax.numpy as jnp

from diffsim.math import safe

Array = jax.Array

MINIMUM = 1e-15


def muscle_dynamics(prm: Array, ctrl: Array, act: Array) -> Array:
    """(n,) activation rates from excitations and activations (n,), parameters (n, 10)."""
    excess = safe.clip(ctrl, 0, 1) - act
    stretch = 0.5 + 1.5 * safe.clip(act, 0, 1)
    rise, fall, width = prm[:, 0] * stretch, prm[:, 1] / stretch, prm[:, 2]
    smooth = width >= MINIMUM
    blend = sigmoid(excess / jnp.where(smooth, width, 1) + 0.5)
    tau = jnp.where(smooth, fall + (rise - fall) * blend, jnp.where(excess > 0, rise, fall))
    return excess / jnp.maximum(tau, MINIMUM)


def sigmoid(x: Array) -> Array:
    """Quintic step from 0 at x <= 0 to 1 at x >= 1, twice continuously differentiable."""
    x = safe.clip(x, 0, 1)
    return x * x * x * (x * (6 * x - 15) + 10)


def muscle_gain(prm: Array, length: Array, velocity: Array, lengthrange: Array, acc0: Array) -> Array:
    """(n,) force per activation, negative: muscles pull."""
    normal, optimum = _normalized(prm, length, lengthrange)
    speed = velocity / jnp.maximum(optimum * prm[:, 6], MINIMUM)
    return -_peak_force(prm, acc0) * _length_curve(normal, prm[:, 4], prm[:, 5]) * _speed_curve(speed, prm[:, 8])


def muscle_bias(prm: Array, length: Array, velocity: Array, lengthrange: Array, acc0: Array) -> Array:
    """(n,) passive force: zero up to the optimal length, then quadratic, then linear."""
    normal, _ = _normalized(prm, length, lengthrange)
    half = jnp.maximum(0.5 * (prm[:, 5] - 1), MINIMUM)
    x = (normal - 1) / half
    curve = jnp.where(x <= 0, 0, jnp.where(x <= 1, 0.5 * x * x, x - 0.5))
    return -_peak_force(prm, acc0) * prm[:, 7] * curve


def _peak_force(prm: Array, acc0: Array) -> Array:
    """Peak active force; if negative, `scale` over the acceleration that a unit force causes."""
    return jnp.where(prm[:, 2] < 0, prm[:, 3] / jnp.maximum(acc0, MINIMUM), prm[:, 2])


def _normalized(prm: Array, length: Array, lengthrange: Array) -> tuple[Array, Array]:
    """Length in units of the optimal length, and that length."""
    lower, upper = lengthrange[:, 0], lengthrange[:, 1]
    optimum = (upper - lower) / jnp.maximum(prm[:, 1] - prm[:, 0], MINIMUM)
    return prm[:, 0] + (length - lower) / jnp.maximum(optimum, MINIMUM), optimum


def _length_curve(length: Array, lower: Array, upper: Array) -> Array:
    """Active force over length: four parabolas from 0 at `lower` through 1 at length 1 to 0 at `upper`."""
    below = length <= 1
    end = jnp.where(below, lower, upper)
    half = jnp.maximum(0.5 * jnp.abs(1 - end), MINIMUM)
    # distances from the end and from the peak, in half widths of this side
    outer, inner = jnp.abs(length - end) / half, jnp.abs(length - 1) / half
    curve = jnp.where(outer <= 1, 0.5 * outer * outer, 1 - 0.5 * inner * inner)
    return jnp.where((lower <= length) & (length <= upper), curve, 0)


def _speed_curve(speed: Array, maximum: Array) -> Array:
    """Active force over speed: 0 at -1, 1 at rest, `maximum` when lengthening fast."""
    rise = maximum - 1
    lengthening = maximum - (rise - speed) * (rise - speed) / jnp.maximum(rise, MINIMUM)
    shortening = (speed + 1) * (speed + 1)
    slow = jnp.where(speed <= 0, shortening, lengthening)
    return jnp.where(speed <= -1, 0, jnp.where(speed <= jnp.maximum(rise, 0), slow, maximum))
