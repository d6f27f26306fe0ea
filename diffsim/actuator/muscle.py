"""Muscles: activation dynamics and the force-length-velocity curves.

    force = -F0 (length curve * speed curve * act + passive curve)

Lengths are in units of the optimal length, so that the operating range (actuator_lengthrange) maps to the range of the
parameters, and speeds in optimal lengths per second over the largest; the curves are piecewise quadratic. Source:
MuJoCo documentation, "Modeling", "Muscle actuators"; Millard et al. 2013.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from diffsim.actuator.actuators import Actuators
from diffsim.math import safe

Array = jax.Array

MINIMUM = 1e-15


class Shape(NamedTuple):
    """The parameters of the curves in gainprm and biasprm, (n,) each.

    Attributes:
      shortest, longest: the operating range, in optimal lengths.
      peak: largest active force, N; if negative, it is scale / acc0.
      scale: the same per mass that the muscle moves at qpos0, N / kg.
      lmin, lmax: lengths where the active force ends, in optimal lengths.
      vmax: shortening speed without force, optimal lengths per second.
      fpmax: passive force at lmax, in peak forces.
      fvmax: active force when lengthening fast, in peak forces.
    """

    shortest: Array
    longest: Array
    peak: Array
    scale: Array
    lmin: Array
    lmax: Array
    vmax: Array
    fpmax: Array
    fvmax: Array


def _shape(parameters: Array) -> Shape:
    return Shape(*(parameters[:, k] for k in range(len(Shape._fields))))


def activation_rate(actuators: Actuators) -> Array:
    """(n, 1) d act / dt = (ctrl - act) / tau, per second.

    dynprm holds the time constants of activation and deactivation (s) and the width of the smooth switch between them.
    Without width, tau jumps where ctrl = act. There each of the two has the derivative of the side to which it can go:
    at 0 it can only rise, at 1 only fall.
    """
    parameters, act = actuators.dynprm, actuators.act[:, 0]
    ctrl = safe.clip(actuators.ctrl, 0, 1)
    excess = ctrl - act
    stretch = 0.5 + 1.5 * safe.clip(act, 0, 1)
    rise, fall, width = parameters[:, 0] * stretch, parameters[:, 1] / stretch, parameters[:, 2]
    smooth = width >= MINIMUM
    blend = sigmoid(excess / jnp.where(smooth, width, 1) + 0.5)
    equal = excess == 0

    def rate(gap: Array, rises: Array) -> Array:
        tau = jnp.where(smooth, fall + (rise - fall) * blend, jnp.where(rises, rise, fall))
        return gap / safe.maximum(tau, MINIMUM)

    by_ctrl = rate(_change(ctrl), (excess > 0) | (equal & (ctrl <= 0)))
    by_act = rate(_change(act), (excess > 0) | (equal & (act >= 1)))
    return (rate(jax.lax.stop_gradient(excess), excess > 0) + by_ctrl - by_act)[:, None]


def _change(x: Array) -> Array:
    """Zero, with the derivative of x."""
    return x - jax.lax.stop_gradient(x)


def sigmoid(x: Array) -> Array:
    """Quintic step from 0 at x <= 0 to 1 at x >= 1, twice continuously differentiable."""
    x = safe.clip(x, 0, 1)
    return x * x * x * (x * (6 * x - 15) + 10)


def active_force(actuators: Actuators, parameters: Array) -> Array:
    """(n,) force per activation, N, negative: muscles pull."""
    return _active_force(actuators, parameters, actuators.velocity)


def active_slope(actuators: Actuators, parameters: Array) -> Array:
    """(n,) d active_force / d velocity, N s / m."""
    velocity = actuators.velocity
    return jax.jvp(lambda v: _active_force(actuators, parameters, v), (velocity,), (jnp.ones_like(velocity),))[1]


def passive_force(actuators: Actuators, parameters: Array) -> Array:
    """(n,) N: zero up to the optimal length, then quadratic, then linear."""
    shape = _shape(parameters)
    length, _ = _normalized(actuators, shape)
    half = safe.maximum(0.5 * (shape.lmax - 1), MINIMUM)
    x = (length - 1) / half
    curve = jnp.where(x <= 0, 0, jnp.where(x <= 1, 0.5 * x * x, x - 0.5))
    return -_peak_force(actuators, shape) * shape.fpmax * curve


def _active_force(actuators: Actuators, parameters: Array, velocity: Array) -> Array:
    shape = _shape(parameters)
    length, optimum = _normalized(actuators, shape)
    speed = velocity / safe.maximum(optimum * shape.vmax, MINIMUM)
    by_length, by_speed = _length_curve(length, shape.lmin, shape.lmax), _speed_curve(speed, shape.fvmax)
    return -_peak_force(actuators, shape) * by_length * by_speed


def _peak_force(actuators: Actuators, shape: Shape) -> Array:
    """(n,) largest active force, N."""
    return jnp.where(shape.peak < 0, shape.scale / safe.maximum(actuators.acc0, MINIMUM), shape.peak)


def _normalized(actuators: Actuators, shape: Shape) -> tuple[Array, Array]:
    """(n,) length in units of the optimal length, and that length in m."""
    lower, upper = actuators.lengthrange[:, 0], actuators.lengthrange[:, 1]
    optimum = (upper - lower) / safe.maximum(shape.longest - shape.shortest, MINIMUM)
    return shape.shortest + (actuators.length - lower) / safe.maximum(optimum, MINIMUM), optimum


def _length_curve(length: Array, lower: Array, upper: Array) -> Array:
    """Active force over length: four parabolas from 0 at `lower` through 1 at length 1 to 0 at `upper`."""
    below = length <= 1
    end = jnp.where(below, lower, upper)
    half = safe.maximum(0.5 * jnp.abs(1 - end), MINIMUM)
    # distances from the end and from the peak, in half widths of this side
    outer, inner = jnp.abs(length - end) / half, jnp.abs(length - 1) / half
    curve = jnp.where(outer <= 1, 0.5 * outer * outer, 1 - 0.5 * inner * inner)
    return jnp.where((lower <= length) & (length <= upper), curve, 0)


def _speed_curve(speed: Array, maximum: Array) -> Array:
    """Active force over speed: 0 at -1, 1 at rest, `maximum` when lengthening fast."""
    rise = maximum - 1
    lengthening = maximum - (rise - speed) * (rise - speed) / safe.maximum(rise, MINIMUM)
    shortening = (speed + 1) * (speed + 1)
    slow = jnp.where(speed <= 0, shortening, lengthening)
    return jnp.where(speed <= -1, 0, jnp.where(speed <= safe.maximum(rise, 0), slow, maximum))
