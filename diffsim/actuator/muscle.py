"""Muscles: activation dynamics and the force-length-velocity curves.

    force = -F0 (FL(L) FV(V) act + FP(L))

L is the length in units of the optimal length L0, chosen so that actuator_lengthrange maps to the operating range in
the parameters; V is the velocity over L0 vmax. FL, FV and FP are the force-length, force-velocity and passive curves,
all piecewise quadratic. Source: MuJoCo documentation, "Modeling", "Muscle actuators"; Millard et al. 2013.
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
      shortest, longest: the operating range, in optimal lengths (MuJoCo's range).
      force: peak active force F0, N; if it is negative, F0 = scale / acc0.
      scale: the peak force per acceleration acc0 of a unit force at qpos0.
      lmin, lmax: lengths beyond which there is no active force, in optimal lengths.
      vmax: shortening speed without force, optimal lengths per second.
      fpmax: passive force at lmax, in peak forces.
      fvmax: active force when lengthening fast, in peak forces.
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

    tau = tau_act (0.5 + 1.5 act) where ctrl > act, else tau_deact / (0.5 + 1.5 act); dynprm holds tau_act and tau_deact
    (s), and the width of the smooth switch between them. If the width is zero, tau jumps at ctrl = act. Derivatives
    with respect to ctrl and act there share one tau, so that a steady act follows a steady ctrl with slope 1: tau_act
    if ctrl is 0, which can only grow, and tau_deact elsewhere, as in MuJoCo. They are the one-sided slope for ctrl that
    grows faster than act from 0, and for ctrl that falls faster than act from any other level.
    """
    parameters, act = actuators.dynprm, actuators.act[:, 0]
    ctrl = safe.clip(actuators.ctrl, 0, 1)
    excess = ctrl - act
    factor = 0.5 + 1.5 * safe.clip(act, 0, 1)
    activation, deactivation, width = parameters[:, 0] * factor, parameters[:, 1] / factor, parameters[:, 2]
    smooth = width >= MINVAL
    blend = sigmoid(excess / jnp.where(smooth, width, 1) + 0.5)
    blended = deactivation + (activation - deactivation) * blend
    # where ctrl = act the rate is zero with either tau, and only its derivative depends on the choice
    activates = (excess > 0) | ((excess == 0) & (ctrl <= 0))
    tau = jnp.where(smooth, blended, jnp.where(activates, activation, deactivation))
    return (excess / safe.maximum(tau, MINVAL))[:, None]


def sigmoid(x: Array) -> Array:
    """Quintic step from 0 at x <= 0 to 1 at x >= 1, twice continuously differentiable."""
    x = safe.clip(x, 0, 1)
    return x * x * x * (x * (6 * x - 15) + 10)


def active_force(actuators: Actuators, parameters: Array) -> Array:
    """(n,) force per activation, N; negative, because muscles pull."""
    return _active_force(actuators, parameters, actuators.velocity)


def active_slope(actuators: Actuators, parameters: Array) -> Array:
    """(n,) d active_force / d velocity, N s / m."""
    velocity = actuators.velocity
    return jax.jvp(lambda v: _active_force(actuators, parameters, v), (velocity,), (jnp.ones_like(velocity),))[1]


def passive_force(actuators: Actuators, parameters: Array) -> Array:
    """(n,) N, -F0 FP(L): zero up to the optimal length, then quadratic, then linear."""
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
    by_length, by_speed = _length_curve(length, muscle.lmin, muscle.lmax), _speed_curve(speed, muscle.fvmax)
    return -_peak_force(actuators, muscle) * by_length * by_speed


def _peak_force(actuators: Actuators, muscle: Parameters) -> Array:
    """(n,) F0, the largest active force, N."""
    return jnp.where(muscle.force < 0, muscle.scale / safe.maximum(actuators.acc0, MINVAL), muscle.force)


def _normalized(actuators: Actuators, muscle: Parameters) -> tuple[Array, Array]:
    """(n,) L, and the optimal length L0, m."""
    lower, upper = actuators.lengthrange[:, 0], actuators.lengthrange[:, 1]
    optimum = (upper - lower) / safe.maximum(muscle.longest - muscle.shortest, MINVAL)
    return muscle.shortest + (actuators.length - lower) / safe.maximum(optimum, MINVAL), optimum


def _length_curve(length: Array, lower: Array, upper: Array) -> Array:
    """FL, active force over length: four parabolas from 0 at `lower` through 1 at length 1 to 0 at `upper`."""
    below = length <= 1
    end = jnp.where(below, lower, upper)
    half = safe.maximum(0.5 * jnp.abs(1 - end), MINVAL)
    # each side is two parabolas, which meet with equal slopes halfway between peak and end; in units of that half
    from_end, from_peak = jnp.abs(length - end) / half, jnp.abs(length - 1) / half
    curve = jnp.where(from_end <= 1, 0.5 * from_end * from_end, 1 - 0.5 * from_peak * from_peak)
    return jnp.where((lower <= length) & (length <= upper), curve, 0)


def _speed_curve(speed: Array, maximum: Array) -> Array:
    """FV, active force over speed: 0 at -1, 1 at rest, `maximum` when lengthening fast."""
    # (V + 1)^2 when shortening; when lengthening fv - (fv - 1 - V)^2 / (fv - 1), which reaches fv at V = fv - 1
    rise = maximum - 1
    lengthening = maximum - (rise - speed) * (rise - speed) / safe.maximum(rise, MINVAL)
    shortening = (speed + 1) * (speed + 1)
    slow = jnp.where(speed <= 0, shortening, lengthening)
    return jnp.where(speed <= -1, 0, jnp.where(speed <= safe.maximum(rise, 0), slow, maximum))
