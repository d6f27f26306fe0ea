"""DC motors: voltage, current, heat and friction of a brushed motor with an optional controller.

    force = K i + cogging + friction,     i = (V - K velocity) / R,  or te di/dt = (V - K velocity) / R - i

The current i follows the voltage at once, or with the time constant te ("lag"). The voltage V depends on the control u:

    V = u                                            without a controller
    V = kp (u - length) + ki x - kd velocity         controller of the position, x the integral of the error
    V = kp (u - velocity) + ki (x - length)          controller of the velocity, x the integral of u

Since MuJoCo 3.12, the controller asks for a torque, and the voltage compensates the back-EMF:

    V = (R / K) (kp (q - length) + kd (w - velocity) + ki x + u_ff) + K velocity

The control is one of q, w and u_ff, and the other two are zero; or it is V itself. V is clipped to its limit, and the
resistance R rises with the temperature. Friction follows the LuGre model, in which a bristle deflects by z, with
z' = velocity - sigma0 |velocity| z / g(velocity), and the force is -sigma0 z - sigma1 z'. A motor has one activation
for each state of `MotorState` that it uses. `base/motor_layout.py` has the layout of parameters and states.
Source: MuJoCo documentation, "Modeling", "dcmotor".
"""

import jax.numpy as jnp
from jax import Array

from diffsim.actuator.actuators import Actuators
from diffsim.base.enums import MINVAL
from diffsim.base.motor_layout import SWITCHES, MotorBias, MotorDynamics, MotorGain, MotorInput, MotorState
from diffsim.math import safe

# for each state that a motor can have, the parameter that switches it on
STATES = SWITCHES
# largest ratio of the velocity to the Stribeck velocity: there exp(-ratio^2) is zero, and ratio^2 cannot overflow
FAST = 30.0


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
    """(n, 5) states one timestep later: the exact solution for bristle and current, Euler's method for the others."""
    h = motors.timestep
    act = motors.act
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
    """(n,) the current, A: its state in the activations (n, 5) if it lags, else (V - K velocity) / R."""
    volt = _voltage(motors) - _constant(motors) * motors.velocity
    at_once = volt / safe.maximum(_resistance(motors), MINVAL)
    return jnp.where(motors.has[:, MotorState.CURRENT], act[:, MotorState.CURRENT], at_once)


def current_slope(motors: Actuators) -> Array:
    """(n,) d current / d velocity, A s / rad, as MuJoCo's implicit integrators take it.

    It contains the back-EMF and the controller. Before MuJoCo 3.12, it is taken at the reference temperature,
    and before 4.0 it ignores clipping.
    """
    gain = motors.gainprm
    mode = _input(motors)
    resistance = safe.maximum(gain[:, MotorGain.RESISTANCE], MINVAL)
    # - d voltage / d velocity: kd of a position controller, kp of a velocity controller, 0 without a controller
    of_velocity = jnp.where(mode == MotorInput.VELOCITY, gain[:, MotorGain.PROPORTIONAL], 0)
    by_controller = jnp.where(mode == MotorInput.POSITION, gain[:, MotorGain.DERIVATIVE], of_velocity)
    if _asks_for_torque(motors):
        driven = gain[:, MotorGain.DERIVATIVE] * resistance / _constant(motors) - _constant(motors)
        bound = gain[:, MotorGain.MAX_VOLTAGE]
        clipped = (bound > 0) & (jnp.abs(_wanted_voltage(motors)) >= bound) & motors.model.opt.follows("clipped_motors")
        by_controller = jnp.where((mode == MotorInput.VOLTAGE) | clipped, 0, driven)
        resistance = safe.maximum(_resistance(motors), MINVAL)
    # in one timestep a lagging current makes this fraction of its change: 1 - exp(-h / te)
    lag = motors.dynprm[:, MotorDynamics.LAG]
    fraction = jnp.where(lag > 0, -jnp.expm1(-motors.timestep / jnp.where(lag > 0, lag, 1)), 1)
    return -(by_controller + _constant(motors)) * fraction / resistance


def motor_constant(motors: Actuators, parameters: Array) -> Array:
    """(n,) K, N m / A."""
    return parameters[:, MotorGain.CONSTANT]


def friction(motors: Actuators, parameters: Array) -> Array:
    """(n,) cogging and LuGre friction, N m."""
    period = parameters[:, MotorBias.PERIODICITY]
    phase = parameters[:, MotorBias.PHASE]
    cogging = parameters[:, MotorBias.COGGING] * jnp.sin(period * motors.length + phase)
    stiffness, damping = _bristles(motors)
    slip = jnp.where(motors.has[:, MotorState.BRISTLE], _bristle_rate(motors), 0)
    return cogging - stiffness * motors.act[:, MotorState.BRISTLE] - damping * slip


def friction_slope(motors: Actuators, parameters: Array) -> Array:
    """(n,) d friction / d velocity, N m s / rad; as in MuJoCo, only the damping of the bristles counts."""
    return -safe.maximum(_bristles(motors)[1], 0)


def _constant(motors: Actuators) -> Array:
    """(n,) K, V s / rad."""
    return motors.gainprm[:, MotorGain.CONSTANT]


def _input(motors: Actuators) -> Array:
    """(n,) the MotorInput: what the control means."""
    return jnp.round(motors.gainprm[:, MotorGain.INPUT])


def _bristles(motors: Actuators) -> tuple[Array, Array]:
    """(n,) stiffness and damping of the bristles, N m / rad and N m s / rad."""
    return motors.dynprm[:, MotorDynamics.BRISTLE_STIFFNESS], motors.dynprm[:, MotorDynamics.BRISTLE_DAMPING]


def _command(motors: Actuators) -> Array:
    """(n,) the control; if its slew rate is limited, clipped to what is within reach of the previous control."""
    reach = motors.dynprm[:, MotorDynamics.MAX_SLEW] * motors.timestep
    before = motors.act[:, MotorState.SLEW]
    limited = motors.has[:, MotorState.SLEW]
    return jnp.where(limited, safe.clip(motors.ctrl, before - reach, before + reach), motors.ctrl)


def _resistance(motors: Actuators) -> Array:
    """(n,) the resistance, ohm, at the motor's temperature."""
    gain = motors.gainprm
    ambient = motors.dynprm[:, MotorDynamics.AMBIENT_TEMPERATURE]
    rise = motors.act[:, MotorState.TEMPERATURE] + ambient - gain[:, MotorGain.REFERENCE_TEMPERATURE]
    factor = jnp.where(motors.has[:, MotorState.TEMPERATURE], 1 + gain[:, MotorGain.TEMPERATURE_COEFFICIENT] * rise, 1)
    return gain[:, MotorGain.RESISTANCE] * factor


def _voltage(motors: Actuators) -> Array:
    """(n,) the voltage, V: the control, or the output of the controller."""
    if _asks_for_torque(motors):
        return _driven_voltage(motors)
    gain = motors.gainprm
    mode = _input(motors)
    command = _command(motors)
    kp, ki, kd = (gain[:, k] for k in (MotorGain.PROPORTIONAL, MotorGain.INTEGRAL, MotorGain.DERIVATIVE))
    x = motors.act[:, MotorState.INTEGRAL]
    on_position = kp * (command - motors.length) + ki * x - kd * motors.velocity
    on_velocity = kp * (command - motors.velocity) + ki * (x - motors.length)
    followed = jnp.where(mode >= MotorInput.VELOCITY, on_velocity, command)
    volt = jnp.where(mode == MotorInput.POSITION, on_position, followed)
    bound = gain[:, MotorGain.MAX_VOLTAGE]
    return jnp.where(bound > 0, safe.clip(volt, -bound, bound), volt)


def _asks_for_torque(motors: Actuators) -> bool:
    """Whether controllers ask for torques, as since MuJoCo 3.12."""
    return motors.model.opt.follows("dcmotor_inputs")


def _driven_voltage(motors: Actuators) -> Array:
    """(n,) the voltage, V, since MuJoCo 3.12: only the output of a controller has a limit."""
    bound = motors.gainprm[:, MotorGain.MAX_VOLTAGE]
    volt = _wanted_voltage(motors)
    volt = jnp.where(bound > 0, safe.clip(volt, -bound, bound), volt)
    return jnp.where(_input(motors) == MotorInput.VOLTAGE, _command(motors), volt)


def _wanted_voltage(motors: Actuators) -> Array:
    """(n,) the output of the controller, V, without its limit, since MuJoCo 3.12."""
    gain = motors.gainprm
    mode, command = _input(motors), _command(motors)
    position, velocity, feedforward = (
        jnp.where(mode == kind, command, 0) for kind in (MotorInput.POS, MotorInput.VEL, MotorInput.FF)
    )
    torque = gain[:, MotorGain.PROPORTIONAL] * (position - motors.length) + feedforward
    torque = torque + gain[:, MotorGain.DERIVATIVE] * (velocity - motors.velocity)
    torque = torque + gain[:, MotorGain.INTEGRAL] * motors.act[:, MotorState.INTEGRAL]
    constant = _constant(motors)
    return gain[:, MotorGain.RESISTANCE] / constant * torque + constant * motors.velocity


def _integral_rate(motors: Actuators) -> Array:
    """(n,) rate of the controller's integral; zero where it would drive the integral beyond its bound (anti-windup)."""
    of_position = _input(motors) == (MotorInput.POS if _asks_for_torque(motors) else MotorInput.POSITION)
    error = _command(motors) - jnp.where(of_position, motors.length, 0)
    x = motors.act[:, MotorState.INTEGRAL]
    bound = motors.dynprm[:, MotorDynamics.MAX_INTEGRAL]
    error = jnp.where((bound > 0) & (x >= bound), safe.clip(error, -jnp.inf, 0), error)
    return jnp.where((bound > 0) & (x <= -bound), safe.clip(error, 0, jnp.inf), error)


def _heating(motors: Actuators) -> Array:
    """(n,) rate of the temperature, K / s: (R i^2 - T / R_th) / C, T above the ambient temperature."""
    resistance = _resistance(motors)
    at_once = safe.divide(_voltage(motors) - _constant(motors) * motors.velocity, resistance)
    flow = jnp.where(motors.has[:, MotorState.CURRENT], motors.act[:, MotorState.CURRENT], at_once)
    loss = safe.divide(motors.act[:, MotorState.TEMPERATURE], motors.dynprm[:, MotorDynamics.THERMAL_RESISTANCE])
    return safe.divide(resistance * flow * flow - loss, motors.dynprm[:, MotorDynamics.HEAT_CAPACITY])


def _bristle_rate(motors: Actuators) -> Array:
    """(n,) rate of the bristle's deflection z, rad / s: z' = v + a z with the velocity v and the decay a."""
    return motors.velocity + _decay(motors) * motors.act[:, MotorState.BRISTLE]


def _next_bristle(motors: Actuators) -> Array:
    """(n,) the bristle's deflection z, rad, one timestep h later, at constant velocity v.

    The exact solution of z' = v + a z, with the decay a: exp(a h) z + (exp(a h) - 1) / a v.
    """
    h = motors.timestep
    decay = _decay(motors)
    grown = jnp.expm1(decay * h)
    moving = jnp.abs(decay) > MINVAL
    gathered = jnp.where(moving, grown / jnp.where(moving, decay, 1), h)
    return (1 + grown) * motors.act[:, MotorState.BRISTLE] + gathered * motors.velocity


def _decay(motors: Actuators) -> Array:
    """(n,) the decay of the bristle, 1 / s: -sigma0 |v| / g(v), Stribeck's g = F_c + (F_s - F_c) exp(-(v / v_s)^2)."""
    bias = motors.biasprm
    coulomb, static = bias[:, MotorBias.COULOMB_FRICTION], bias[:, MotorBias.STATIC_FRICTION]
    ratio = motors.velocity / safe.maximum(bias[:, MotorBias.STRIBECK_VELOCITY], MINVAL)
    ratio = safe.clip(ratio, -FAST, FAST)
    curve = coulomb + (static - coulomb) * jnp.exp(-ratio * ratio)
    return -_bristles(motors)[0] * jnp.abs(motors.velocity) / safe.maximum(curve, MINVAL)


def _current_rate(motors: Actuators) -> Array:
    """(n,) rate of the current, A / s: ((V - K velocity) / R - i) / te, clipped to its limit."""
    target = safe.divide(_voltage(motors) - _constant(motors) * motors.velocity, _resistance(motors))
    lag, bound = motors.dynprm[:, MotorDynamics.LAG], motors.dynprm[:, MotorDynamics.MAX_CURRENT_RATE]
    rate = safe.divide(target - motors.act[:, MotorState.CURRENT], lag)
    return jnp.where(bound > 0, safe.clip(rate, -bound, bound), rate)
