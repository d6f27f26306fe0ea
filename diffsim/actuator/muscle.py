"""Muscles: activation dynamics and the force-length-velocity curves.

    force = -F0 (FL(L) FV(V) act + FP(L))

L is the length in units of the optimal length L0, at which the muscle is strongest. L0 is such that
actuator_lengthrange corresponds to the operating range in the parameters. V is the velocity over L0 vmax. FL, FV and FP
are the force-length, force-velocity and passive force curves, all piecewise quadratic.
Source: MuJoCo documentation, "Modeling", "Muscle actuators"; Millard et al. 2013.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from diffsim.actuator.actuators import Actuators
from diffsim.base.enums import MINVAL
from diffsim.math import safe


class Parameters(NamedTuple):
    """The parameters of the curves, in the order of the columns of gainprm and biasprm, (n,) each.

    Attributes:
      shortest, longest: the operating range, in units of L0 (`range` in MJCF).
      force: peak active force F0, N; if it is negative, F0 = scale / acc0.
      scale: F0 acc0 of a muscle without a given force, m / s^2.
      lmin, lmax: the shortest and longest length with active force, in units of L0.
      vmax: shortening velocity at which the force vanishes, in units of L0 per second.
      fpmax: passive force at lmax, in units of F0.
      fvmax: active force at the highest lengthening velocity, in units of F0.
    """

    shortest: Array
    longest: Array
    force: Array
    scale: Array
    lmin: Array
    lmax: Array
    vmax: Array
    fpmax: Array
    fvmax: Array


def _named(parameters: Array) -> Parameters:
    """The parameters from the columns of gainprm or biasprm (n, 10)."""
    return Parameters(*(parameters[:, k] for k in range(len(Parameters._fields))))


def activation_rate(actuators: Actuators) -> Array:
    """(n, 1) d act / dt = (ctrl - act) / tau, per second.

    The time constant is tau = tau_act (0.5 + 1.5 act) if ctrl > act, and tau_deact / (0.5 + 1.5 act) otherwise. dynprm
    holds tau_act and tau_deact, s, and the width of a smooth transition between the two.

    With a width of zero, tau jumps at ctrl = act. There the derivatives with respect to ctrl and act use the same tau,
    so that a steady act has the slope 1 with respect to a steady ctrl. This is tau_act at ctrl = 0, where ctrl can only
    grow, and tau_deact elsewhere, as in MuJoCo.
    """
    parameters = actuators.dynprm
    act = actuators.act[:, 0]
    ctrl = safe.clip(actuators.ctrl, 0, 1)
    excess = ctrl - act
    factor = 0.5 + 1.5 * safe.clip(act, 0, 1)
    activation = parameters[:, 0] * factor
    deactivation = parameters[:, 1] / factor
    width = parameters[:, 2]
    smooth = width >= MINVAL
    blend = sigmoid(excess / jnp.where(smooth, width, 1) + 0.5)
    blended = deactivation + (activation - deactivation) * blend
    # at ctrl = act the rate is zero with either tau; the choice only matters for the derivatives
    activates = (excess > 0) | ((excess == 0) & (ctrl <= 0))
    tau = jnp.where(smooth, blended, jnp.where(activates, activation, deactivation))
    return (excess / safe.maximum(tau, MINVAL))[:, None]


def sigmoid(x: Array) -> Array:
    """The quintic step from 0 at x <= 0 to 1 at x >= 1, which is twice continuously differentiable."""
    x = safe.clip(x, 0, 1)
    return x * x * x * (x * (6 * x - 15) + 10)


def active_force(actuators: Actuators, parameters: Array) -> Array:
    """(n,) force per activation, N, -F0 FL(L) FV(V); negative, because muscles pull."""
    return _active_force(actuators, parameters, actuators.velocity)


def active_slope(actuators: Actuators, parameters: Array) -> Array:
    """(n,) d active_force / d velocity, N s / m."""
    velocity = actuators.velocity
    return jax.jvp(lambda v: _active_force(actuators, parameters, v), (velocity,), (jnp.ones_like(velocity),))[1]


def passive_force(actuators: Actuators, parameters: Array) -> Array:
    """(n,) passive force, N, -F0 FP(L): zero up to L = 1, then quadratic, then linear."""
    muscle = _named(parameters)
    length, _ = _normalized(actuators, muscle)
    half = safe.maximum(0.5 * (muscle.lmax - 1), MINVAL)
    x = (length - 1) / half
    curve = jnp.where(x <= 0, 0, jnp.where(x <= 1, 0.5 * x * x, x - 0.5))
    return -_peak_force(actuators, muscle) * muscle.fpmax * curve


def _active_force(actuators: Actuators, parameters: Array, velocity: Array) -> Array:
    """-F0 FL(L) FV(V)."""
    muscle = _named(parameters)
    length, optimum = _normalized(actuators, muscle)
    speed = velocity / safe.maximum(optimum * muscle.vmax, MINVAL)
    by_length = _length_curve(length, muscle.lmin, muscle.lmax)
    by_speed = _speed_curve(speed, muscle.fvmax)
    return -_peak_force(actuators, muscle) * by_length * by_speed


def _peak_force(actuators: Actuators, muscle: Parameters) -> Array:
    """(n,) F0, the largest active force, N."""
    return jnp.where(muscle.force < 0, muscle.scale / safe.maximum(actuators.acc0, MINVAL), muscle.force)


def _normalized(actuators: Actuators, muscle: Parameters) -> tuple[Array, Array]:
    """(n,) the length L in units of L0, and the optimal length L0, m."""
    lower, upper = actuators.lengthrange[:, 0], actuators.lengthrange[:, 1]
    optimum = (upper - lower) / safe.maximum(muscle.longest - muscle.shortest, MINVAL)
    return muscle.shortest + (actuators.length - lower) / safe.maximum(optimum, MINVAL), optimum


def _length_curve(length: Array, lower: Array, upper: Array) -> Array:
    """(n,) FL, the active force at a length: 0 at `lower`, 1 at length 1, 0 at `upper`, in units of F0."""
    below = length <= 1
    end = jnp.where(below, lower, upper)
    half = safe.maximum(0.5 * jnp.abs(1 - end), MINVAL)
    # on each side of the peak, two parabolas meet with equal slopes halfway between peak and end; distances are in
    # units of half the way
    from_end = jnp.abs(length - end) / half
    from_peak = jnp.abs(length - 1) / half
    curve = jnp.where(from_end <= 1, 0.5 * from_end * from_end, 1 - 0.5 * from_peak * from_peak)
    return jnp.where((lower <= length) & (length <= upper), curve, 0)


def _speed_curve(speed: Array, maximum: Array) -> Array:
    """(n,) FV, the active force at a velocity: 0 at -1, 1 at rest, `maximum` when lengthening fast, in units of F0."""
    # (V + 1)^2 when shortening; when lengthening fv - (fv - 1 - V)^2 / (fv - 1), which reaches fv at V = fv - 1
    rise = maximum - 1
    lengthening = maximum - (rise - speed) * (rise - speed) / safe.maximum(rise, MINVAL)
    shortening = (speed + 1) * (speed + 1)
    slow = jnp.where(speed <= 0, shortening, lengthening)
    return jnp.where(speed <= -1, 0, jnp.where(speed <= safe.maximum(rise, 0), slow, maximum))
