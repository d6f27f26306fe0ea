"""The laws without a model of a device: integrators and filters of the control, constant and affine gains and biases.

Source: MuJoCo documentation, "Computation", "Actuation model".
"""

import jax
import jax.numpy as jnp

from diffsim.actuator.actuators import Actuators
from diffsim.math import safe

Array = jax.Array

MIN_TIME_CONSTANT = 1e-15


def control(actuators: Actuators, act: Array) -> Array:
    """(n,) the signal of an actuator without activation: its control."""
    return actuators.ctrl


def last_activation(actuators: Actuators, act: Array) -> Array:
    """(n,) the signal of an actuator with activations (n, k): the last of them."""
    return act[:, -1]


def nothing_changes(actuators: Actuators) -> Array:
    """(n, k) d act / dt = 0."""
    return jnp.zeros_like(actuators.act)


def integrator(actuators: Actuators) -> Array:
    """(n, 1) d act / dt = ctrl."""
    return actuators.ctrl[:, None]


def low_pass(actuators: Actuators) -> Array:
    """(n, 1) d act / dt = (ctrl - act) / tau, with tau (s) in dynprm[0]."""
    return (actuators.ctrl[:, None] - actuators.act) / _time_constant(actuators)


def euler(actuators: Actuators, rate: Array) -> Array:
    """(n, k) act + h d act / dt, within the actuators' ranges."""
    return actuators.within_range(actuators.act + rate * actuators.timestep)


def exact_decay(actuators: Actuators, rate: Array) -> Array:
    """(n, 1) act + tau (1 - exp(-h / tau)) d act / dt, the solution of `low_pass` under a constant control."""
    tau = _time_constant(actuators)
    return actuators.within_range(actuators.act - rate * tau * jnp.expm1(-actuators.timestep / tau))


def _time_constant(actuators: Actuators) -> Array:
    """(n, 1) seconds."""
    return safe.maximum(actuators.dynprm[:, :1], MIN_TIME_CONSTANT)


def nothing(actuators: Actuators, parameters: Array) -> Array:
    """(n,) 0."""
    return jnp.zeros_like(actuators.length)


def constant(actuators: Actuators, parameters: Array) -> Array:
    """(n,) p0."""
    return parameters[:, 0]


def affine(actuators: Actuators, parameters: Array) -> Array:
    """(n,) p0 + p1 length + p2 velocity."""
    return parameters[:, 0] + parameters[:, 1] * actuators.length + parameters[:, 2] * actuators.velocity


def affine_slope(actuators: Actuators, parameters: Array) -> Array:
    """(n,) d affine / d velocity = p2."""
    return parameters[:, 2]
