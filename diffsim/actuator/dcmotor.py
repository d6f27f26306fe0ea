"""DC motors: voltage, current, heat and friction of a brushed motor with an optional controller.

    force = K i + cogging + friction,     i = (V - K velocity) / R at once, or with the lag te

The voltage V is the control u, or kp (u - length) + ki x - kd velocity, or kp (u - velocity) + ki (x - length),
clipped to its limit; R rises with the temperature. Friction follows the LuGre model: a bristle z with
z' = velocity - sigma0 |velocity| z / g(velocity), and the force -sigma0 z - sigma1 z'. A motor has an activation for
each state of `MotorState` that it uses; `base/motor_layout.py` says where parameters and states are.
Source: MuJoCo documentation, "Modeling", "dcmotor".
"""

import jax.numpy as jnp
from jax import Array

from diffsim.actuator.actuators import Actuators
from diffsim.base.enums import MINVAL
from diffsim.base.motor_layout import SWITCHES, MotorBias, MotorDynamics, MotorGain, MotorInput, MotorState
from diffsim.math import safe

# the states that a motor may have, and the parameter that gives it each
STATES = SWITCHES


def rate(motors: Actuators) -> Array:
    """(n, 5) rates of the states, per second."""
    return jnp.stack(
        [
            (_command(motors) - motors.act[:, MotorState.SLEW]) / motors.timestep,
            _integral_rate(motors),
            _heating(motors),
            _bristle_rate(motors),
            _current_rate(motors),
        ],
        axis=1,
    )


def advance(motors: Actuators, rate: Array) -> Array:
    """(n, 5) states one timestep later: exact for bristle and current, Euler for the others."""
    h, act = motors.timestep, motors.act
    after = act + h * rate
    bound = motors.dynprm[:, MotorDynamics.MAX_INTEGRAL]
    integral = after[:, MotorState.INTEGRAL]
    integral = jnp.where(bound > 0, safe.clip(integral, -bound, bound), integral)
    lag = safe.maximum(motors.dynprm[:, MotorDynamics.LAG], MINVAL)
    current = act[:, MotorState.CURRENT] - rate[:, MotorState.CURRENT] * lag * jnp.expm1(-h / lag)
    return jnp.stack(
        [after[:, MotorState.SLEW], integral, after[:, MotorState.TEMPERATURE], _next_bristle(motors), current], axis=1
    )


def current(motors: Actuators, act: Array) -> Array:
    """(n,) ampere: the state among the activations (n, 5) if the current lags, else (V - K velocity) / R."""
    volt = _voltage(motors) - _constant(motors) * motors.velocity
    at_once = volt / safe.maximum(_resistance(motors), MINVAL)
    return jnp.where(motors.has[:, MotorState.CURRENT], act[:, MotorState.CURRENT], at_once)


def current_slope(motors: Actuators) -> Array:
    """(n,) d current / d velocity, ampere s / rad, as MuJoCo's implicit integrators take it.

    It has the terms of back-EMF and controller, at the reference temperature; clipping is ignored.
    """
    gain = motors.gainprm
    on_position, on_velocity = gain[:, MotorGain.DERIVATIVE], gain[:, MotorGain.PROPORTIONAL]
    mode = _input(motors)
    follows = jnp.where(mode == MotorInput.VELOCITY, on_velocity, 0)
    by_controller = jnp.where(mode == MotorInput.POSITION, on_position, follows)
    # the share of its way that a lagging current covers in one timestep
    lag = motors.dynprm[:, MotorDynamics.LAG]
    share = jnp.where(lag > 0, -jnp.expm1(-motors.timestep / jnp.where(lag > 0, lag, 1)), 1)
    resistance = safe.maximum(gain[:, MotorGain.RESISTANCE], MINVAL)
    return -(by_controller + _constant(motors)) * share / resistance


def motor_constant(motors: Actuators, parameters: Array) -> Array:
    """(n,) K, N m per ampere."""
    return parameters[:, MotorGain.CONSTANT]


def friction(motors: Actuators, parameters: Array) -> Array:
    """(n,) cogging and LuGre friction, N m."""
    period, phase = parameters[:, MotorBias.PERIODICITY], parameters[:, MotorBias.PHASE]
    cogging = parameters[:, MotorBias.COGGING] * jnp.sin(period * motors.length + phase)
    stiffness, damping = _bristles(motors)
    slip = jnp.where(motors.has[:, MotorState.BRISTLE], _bristle_rate(motors), 0)
    return cogging - stiffness * motors.act[:, MotorState.BRISTLE] - damping * slip


def friction_slope(motors: Actuators, parameters: Array) -> Array:
    """(n,) d friction / d velocity, N m s / rad, as MuJoCo takes it: only the damping of the bristles."""
    return -safe.maximum(_bristles(motors)[1], 0)


def _constant(motors: Actuators) -> Array:
    """(n,) K, volt s / rad."""
    return motors.gainprm[:, MotorGain.CONSTANT]


def _input(motors: Actuators) -> Array:
    """(n,) which MotorInput the control is."""
    return jnp.round(motors.gainprm[:, MotorGain.INPUT])


def _bristles(motors: Actuators) -> tuple[Array, Array]:
    """(n,) stiffness and damping of the bristles, N m / rad and N m s / rad."""
    return motors.dynprm[:, MotorDynamics.BRISTLE_STIFFNESS], motors.dynprm[:, MotorDynamics.BRISTLE_DAMPING]


def _command(motors: Actuators) -> Array:
    """(n,) the control; if the slew rate is limited, within reach of the last control."""
    reach = motors.dynprm[:, MotorDynamics.MAX_SLEW] * motors.timestep
    before = motors.act[:, MotorState.SLEW]
    limited = motors.has[:, MotorState.SLEW]
    return jnp.where(limited, safe.clip(motors.ctrl, before - reach, before + reach), motors.ctrl)


def _resistance(motors: Actuators) -> Array:
    """(n,) ohm, at the motor's temperature."""
    gain, ambient = motors.gainprm, motors.dynprm[:, MotorDynamics.AMBIENT_TEMPERATURE]
    rise = motors.act[:, MotorState.TEMPERATURE] + ambient - gain[:, MotorGain.REFERENCE_TEMPERATURE]
    factor = jnp.where(motors.has[:, MotorState.TEMPERATURE], 1 + gain[:, MotorGain.TEMPERATURE_COEFFICIENT] * rise, 1)
    return gain[:, MotorGain.RESISTANCE] * factor


def _voltage(motors: Actuators) -> Array:
    """(n,) volt: the control, or the output of the controller."""
    gain, mode, command = motors.gainprm, _input(motors), _command(motors)
    kp, ki, kd = (gain[:, k] for k in (MotorGain.PROPORTIONAL, MotorGain.INTEGRAL, MotorGain.DERIVATIVE))
    x = motors.act[:, MotorState.INTEGRAL]
    on_position = kp * (command - motors.length) + ki * x - kd * motors.velocity
    on_velocity = kp * (command - motors.velocity) + ki * (x - motors.length)
    followed = jnp.where(mode >= MotorInput.VELOCITY, on_velocity, command)
    volt = jnp.where(mode == MotorInput.POSITION, on_position, followed)
    bound = gain[:, MotorGain.MAX_VOLTAGE]
    return jnp.where(bound > 0, safe.clip(volt, -bound, bound), volt)


def _integral_rate(motors: Actuators) -> Array:
    """(n,) the controller's error, zero where it would drive the integral beyond its bound."""
    error = _command(motors) - jnp.where(_input(motors) == MotorInput.POSITION, motors.length, 0)
    x, bound = motors.act[:, MotorState.INTEGRAL], motors.dynprm[:, MotorDynamics.MAX_INTEGRAL]
    error = jnp.where((bound > 0) & (x >= bound), safe.clip(error, -jnp.inf, 0), error)
    return jnp.where((bound > 0) & (x <= -bound), safe.clip(error, 0, jnp.inf), error)


def _heating(motors: Actuators) -> Array:
    """(n,) kelvin per second: (R i^2 - T / R_th) / C."""
    resistance = _resistance(motors)
    at_once = safe.divide(_voltage(motors) - _constant(motors) * motors.velocity, resistance)
    flow = jnp.where(motors.has[:, MotorState.CURRENT], motors.act[:, MotorState.CURRENT], at_once)
    loss = safe.divide(motors.act[:, MotorState.TEMPERATURE], motors.dynprm[:, MotorDynamics.THERMAL_RESISTANCE])
    return safe.divide(resistance * flow * flow - loss, motors.dynprm[:, MotorDynamics.HEAT_CAPACITY])


def _bristle_rate(motors: Actuators) -> Array:
    """(n,) rad per second: the velocity minus the slip."""
    return motors.velocity + _decay(motors) * motors.act[:, MotorState.BRISTLE]


def _next_bristle(motors: Actuators) -> Array:
    """(n,) rad, one timestep later at constant velocity: exp(a h) z + (exp(a h) - 1) / a velocity, a the decay."""
    h, decay = motors.timestep, _decay(motors)
    grown = jnp.expm1(decay * h)
    moving = jnp.abs(decay) > MINVAL
    gathered = jnp.where(moving, grown / jnp.where(moving, decay, 1), h)
    return (1 + grown) * motors.act[:, MotorState.BRISTLE] + gathered * motors.velocity


def _decay(motors: Actuators) -> Array:
    """(n,) per second: -sigma0 |v| / g(v), with Stribeck's curve g = F_c + (F_s - F_c) exp(-(v / v_s)^2)."""
    bias = motors.biasprm
    coulomb, static = bias[:, MotorBias.COULOMB_FRICTION], bias[:, MotorBias.STATIC_FRICTION]
    ratio = motors.velocity / safe.maximum(bias[:, MotorBias.STRIBECK_VELOCITY], MINVAL)
    # beyond 30 the exponential is zero anyway, and its square cannot overflow
    ratio = safe.clip(ratio, -30.0, 30.0)
    curve = coulomb + (static - coulomb) * jnp.exp(-ratio * ratio)
    return -_bristles(motors)[0] * jnp.abs(motors.velocity) / safe.maximum(curve, MINVAL)


def _current_rate(motors: Actuators) -> Array:
    """(n,) ampere per second: ((V - K velocity) / R - i) / te, within the limit."""
    target = safe.divide(_voltage(motors) - _constant(motors) * motors.velocity, _resistance(motors))
    lag, bound = motors.dynprm[:, MotorDynamics.LAG], motors.dynprm[:, MotorDynamics.MAX_CURRENT_RATE]
    rate = safe.divide(target - motors.act[:, MotorState.CURRENT], lag)
    return jnp.where(bound > 0, safe.clip(rate, -bound, bound), rate)
