"""DC motors: voltage, current, heat and friction of a brushed motor with an optional controller.

voltage V = control, or kp (u - length) + ki x - kd velocity, or kp (u - velocity) + ki (x - length), clipped to V_max;
current i = (V - K velocity) / R, at once or with the lag te; torque K i; R rises with temperature. Friction is LuGre's:
a bristle z with z' = velocity - sigma0 |velocity| z / g(velocity). Which of the five states a motor has is static; the
parameters' layout is said in `mjcf/elements/dcmotor.py`. Source: MuJoCo documentation, "Modeling", "dcmotor".
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.enums import GainType
from diffsim.math import safe
from diffsim.math.pick import pick, place
from diffsim.types.model import Model
from diffsim.types.topology import Topology, per_topology

Array = jax.Array

MINIMUM = 1e-15
# the states, in the order of their activations
SLEW, INTEGRAL, TEMPERATURE, BRISTLE, CURRENT = range(5)
# what the controller follows: nothing, a position, a velocity
POSITION, VELOCITY = 1, 2


class MotorIds(NamedTuple):
    """The motors (n,), which of the five states they have (n, 5), and the activations that hold these (n, 5)."""

    actuators: np.ndarray
    has: np.ndarray
    act: np.ndarray


@per_topology
def motors(topology: Topology) -> MotorIds:
    """Index work of this file; activations of absent states are 0."""
    actuators = np.flatnonzero(topology.actuator_gaintype == GainType.DCMOTOR)
    slots = topology.actuator_motorslots[actuators]
    start = np.maximum(topology.actuator_actadr[actuators], 0)
    return MotorIds(actuators, slots >= 0, np.where(slots >= 0, start[:, None] + slots, 0))


class Motors(NamedTuple):
    """Motors (n) in one state of the world: parameters (n, 10), states (n, 5), what drives them (n,)."""

    gain: Array
    dynamics: Array
    bias: Array
    state: Array
    has: np.ndarray
    ctrl: Array
    length: Array
    velocity: Array


def gather(model: Model, act: Array, ctrl: Array, length: Array, velocity: Array) -> Motors:
    """The motors of a model, with their controls after the limit on slew."""
    ids = motors(model.topology)
    gain, dynamics, bias, ctrl, length, velocity = (
        pick(values, ids.actuators)
        for values in (model.actuator_gainprm, model.actuator_dynprm, model.actuator_biasprm, ctrl, length, velocity)
    )
    held = jnp.concatenate([act, jnp.zeros((1,), act.dtype)])
    state = jnp.where(ids.has, held[np.where(ids.has, ids.act, len(act))], 0)
    reach = dynamics[:, 7] * model.opt.timestep
    before = state[:, SLEW]
    ctrl = jnp.where(ids.has[:, SLEW], safe.clip(ctrl, before - reach, before + reach), ctrl)
    return Motors(gain, dynamics, bias, state, ids.has, ctrl, length, velocity)


def motor_rates(model: Model, motor: Motors) -> Array:
    """(na,) rates of the motors' activations, zero for other activations."""
    rates = jnp.stack(
        [
            (motor.ctrl - motor.state[:, SLEW]) / model.opt.timestep,
            _integral_rate(motor),
            _heating(motor),
            motor.velocity + _decay(motor) * motor.state[:, BRISTLE],
            _current_rate(motor),
        ],
        axis=1,
    )
    return _to_activations(model.topology, rates)


def next_motor_activation(model: Model, act: Array, act_dot: Array, velocity: Array) -> Array:
    """(na,) activations of motors after one timestep (garbage for others): exact for current and bristle."""
    ids = motors(model.topology)
    h = model.opt.timestep
    motor = gather(model, act, jnp.zeros_like(velocity), velocity, velocity)
    rate = jnp.where(ids.has, act_dot[ids.act], 0)
    after = motor.state + h * rate
    lag = jnp.maximum(motor.dynamics[:, 0], MINIMUM)
    current = motor.state[:, CURRENT] - rate[:, CURRENT] * lag * jnp.expm1(-h / lag)
    bound = motor.dynamics[:, 8]
    integral = jnp.where(bound > 0, safe.clip(after[:, INTEGRAL], -bound, bound), after[:, INTEGRAL])
    decay = _decay(motor)
    grown = jnp.expm1(decay * h)
    moving = jnp.abs(decay) > MINIMUM
    gathered = jnp.where(moving, grown / jnp.where(moving, decay, 1), h)
    bristle = (1 + grown) * motor.state[:, BRISTLE] + gathered * motor.velocity
    columns = [after[:, SLEW], integral, after[:, TEMPERATURE], bristle, current]
    return _to_activations(model.topology, jnp.stack(columns, axis=1))


def motor_activations(topology: Topology) -> np.ndarray:
    """(na,) bool: activations that belong to motors."""
    ids = motors(topology)
    mask = np.zeros(topology.na, dtype=bool)
    mask[ids.act[ids.has]] = True
    return mask


def motor_force(model: Model, motor: Motors, next_act: Array) -> Array:
    """(n,) torque of the current, before force limits; next_act (na,) are the activations after the step."""
    ids = motors(model.topology)
    lagging = ids.has[:, CURRENT]
    held = jnp.concatenate([next_act, jnp.zeros((1,), next_act.dtype)])
    current = held[np.where(lagging, ids.act[:, CURRENT], len(next_act))]
    constant = motor.gain[:, 1]
    at_once = constant / jnp.maximum(_resistance(motor), MINIMUM) * (_voltage(motor) - constant * motor.velocity)
    return jnp.where(lagging, constant * current, at_once)


def motor_friction(motor: Motors, rates: Array, topology: Topology) -> Array:
    """(n,) cogging and LuGre friction, which no force limit bounds; rates (na,) as `motor_rates`."""
    ids = motors(topology)
    cogging = motor.bias[:, 0] * jnp.sin(motor.bias[:, 1] * motor.length + motor.bias[:, 2])
    held = jnp.concatenate([rates, jnp.zeros((1,), rates.dtype)])
    slip = held[np.where(ids.has[:, BRISTLE], ids.act[:, BRISTLE], len(rates))]
    return (
        cogging
        - motor.dynamics[:, 5] * motor.state[:, BRISTLE]
        - motor.dynamics[:, 6] * jnp.where(ids.has[:, BRISTLE], slip, 0)
    )


def motor_slopes(model: Model, ids: np.ndarray) -> Array:
    """(n,) d force / d velocity of the motors `ids`, as MuJoCo's implicit integrators take it.

    Back-EMF, controller and bristle damping at the nominal resistance; clips do not count.
    """
    gain, dynamics = pick(model.actuator_gainprm, ids), pick(model.actuator_dynprm, ids)
    mode = jnp.round(gain[:, 8])
    by_controller = -jnp.where(mode == POSITION, gain[:, 6], jnp.where(mode == VELOCITY, gain[:, 4], 0))
    lag = dynamics[:, 0]
    share = jnp.where(lag > 0, -jnp.expm1(-model.opt.timestep / jnp.where(lag > 0, lag, 1)), 1)
    constant = gain[:, 1]
    electric = constant * (by_controller - constant) * share / jnp.maximum(gain[:, 0], MINIMUM)
    return electric - jnp.maximum(dynamics[:, 6], 0)


def _to_activations(topology: Topology, columns: Array) -> Array:
    """(na,) with the columns (n, 5) of the states that motors have."""
    ids = motors(topology)
    return place(topology.na, ids.act[ids.has], columns[np.nonzero(ids.has)])


def _resistance(motor: Motors) -> Array:
    """(n,) ohm, at the motor's temperature."""
    rise = motor.state[:, TEMPERATURE] + motor.dynamics[:, 4] - motor.gain[:, 3]
    return motor.gain[:, 0] * jnp.where(motor.has[:, TEMPERATURE], 1 + motor.gain[:, 2] * rise, 1)


def _voltage(motor: Motors) -> Array:
    """(n,) volt: the control, or what the controller makes of it."""
    mode, (proportional, integral, derivative) = jnp.round(motor.gain[:, 8]), motor.gain[:, 4:7].T
    x = motor.state[:, INTEGRAL]
    on_position = proportional * (motor.ctrl - motor.length) + integral * x - derivative * motor.velocity
    on_velocity = proportional * (motor.ctrl - motor.velocity) + integral * (x - motor.length)
    volt = jnp.where(mode == POSITION, on_position, jnp.where(mode >= VELOCITY, on_velocity, motor.ctrl))
    bound = motor.gain[:, 7]
    return jnp.where(bound > 0, safe.clip(volt, -bound, bound), volt)


def _integral_rate(motor: Motors) -> Array:
    """(n,) the controller's error, zero where it would drive the integral beyond its bound."""
    error = motor.ctrl - jnp.where(jnp.round(motor.gain[:, 8]) == POSITION, motor.length, 0)
    x, bound = motor.state[:, INTEGRAL], motor.dynamics[:, 8]
    error = jnp.where((bound > 0) & (x >= bound), safe.clip(error, -jnp.inf, 0), error)
    return jnp.where((bound > 0) & (x <= -bound), safe.clip(error, 0, jnp.inf), error)


def _heating(motor: Motors) -> Array:
    """(n,) kelvin per second: (R i^2 - T / R_th) / C."""
    resistance = _resistance(motor)
    at_once = safe.divide(_voltage(motor) - motor.gain[:, 1] * motor.velocity, resistance)
    current = jnp.where(motor.has[:, CURRENT], motor.state[:, CURRENT], at_once)
    loss = safe.divide(motor.state[:, TEMPERATURE], motor.dynamics[:, 2])
    return safe.divide(resistance * current * current - loss, motor.dynamics[:, 3])


def _decay(motor: Motors) -> Array:
    """(n,) per second: -sigma0 |v| / g(v), with Stribeck's curve g = F_c + (F_s - F_c) exp(-(v / v_s)^2)."""
    coulomb, static, stribeck = motor.bias[:, 3], motor.bias[:, 4], motor.bias[:, 5]
    ratio = motor.velocity / jnp.maximum(stribeck, MINIMUM)
    # beyond 30 the exponential is zero anyway, and its square cannot overflow
    ratio = safe.clip(ratio, -30.0, 30.0)
    curve = coulomb + (static - coulomb) * jnp.exp(-ratio * ratio)
    return -motor.dynamics[:, 5] * jnp.abs(motor.velocity) / jnp.maximum(curve, MINIMUM)


def _current_rate(motor: Motors) -> Array:
    """(n,) ampere per second: ((V - K velocity) / R - i) / te, within the limit."""
    target = safe.divide(_voltage(motor) - motor.gain[:, 1] * motor.velocity, _resistance(motor))
    lag, bound = motor.dynamics[:, 0], motor.dynamics[:, 1]
    rate = safe.divide(target - motor.state[:, CURRENT], lag)
    return jnp.where(bound > 0, safe.clip(rate, -bound, bound), rate)
