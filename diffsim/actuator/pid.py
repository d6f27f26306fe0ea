"""MuJoCo's plugin `mujoco.pid`: force = kp e + ki (integral of e) + kd de/dt with e = setpoint - length.

The setpoint is the control. If the actuator also has dynamics of its own (the `inner` dynamics), the setpoint is their
last activation. It changes by at most slewmax per second. The plugin adds up to two activations before the activations
of the inner dynamics: the integral of the error, bounded so that its force stays within imax, and the previous
setpoint. As in MuJoCo, slewmax does not limit the first timestep, and the implicit integrators ignore that the force
depends on velocity.
Source: plugin/actuator/pid.cc (3.8.1).
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Protocol

import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.actuator.actuators import Actuators
from diffsim.math import safe
from diffsim.types.hooks import check_settings

# name of the plugin
NAME = "mujoco.pid"
# the settings with their defaults, in the order of the columns of actuator_pidprm; -1 means no bound
SETTINGS = {"kp": 0.0, "ki": 0.0, "kd": 0.0, "imax": -1.0, "slewmax": -1.0}
KP, KI, KD, IMAX, SLEWMAX = range(5)
# number of activations that the plugin can add: the integral of the error, and the previous setpoint
STATES = 2


class Dynamics(Protocol):
    """The functions of `laws.Dynamics` that a controller calls."""

    @property
    def rate(self) -> Callable[[Actuators], Array]: ...
    @property
    def advance(self) -> Callable[[Actuators, Array], Array]: ...


def parameters(settings: Mapping[str, str]) -> np.ndarray:
    """(5,) kp, ki, kd, imax and slewmax from the texts of the plugin's `<config>` elements.

    Their units are N / m, N / (m s), N s / m, N (with N m and rad on a hinge), and units of the setpoint per second.

    Raises:
      ValueError: a setting is unknown, is not a number, or is a negative bound.
    """
    check_settings(settings, SETTINGS)
    written = {name: text for name, text in settings.items() if text.strip()}
    numbers = SETTINGS | {name: float(text) for name, text in written.items()}
    for name in ("imax", "slewmax"):
        if name in written and numbers[name] < 0:
            raise ValueError(f"setting '{name}' cannot be negative")
    return np.array([numbers[name] for name in SETTINGS])


def has_states(prm: np.ndarray) -> np.ndarray:
    """(n, 2) bool: whether controllers with parameters (n, 5) need an integral, and a previous setpoint."""
    return np.stack([prm[:, KI] != 0, prm[:, SLEWMAX] >= 0], axis=1)


@dataclasses.dataclass(frozen=True)
class Controller:
    """The dynamics of actuators with the plugin, which contain their `inner` dynamics (see `laws.Dynamics`)."""

    inner: Dynamics

    def rate(self, actuators: Actuators) -> Array:
        """(n, k) d act / dt, per second.

        The first two are such that one timestep leads to the next integral and setpoint; the others belong to
        the inner dynamics.
        """
        setpoint = self._setpoint(actuators, actuators.act)
        integral = _next_integral(actuators, setpoint - actuators.length)
        rate = (jnp.stack([integral, setpoint], axis=1) - actuators.act[:, :STATES]) / actuators.timestep
        return jnp.concatenate([rate, self.inner.rate(_inner(actuators))], axis=1)

    def advance(self, actuators: Actuators, rate: Array) -> Array:
        """(n, k) activations one timestep later."""
        states = actuators.act[:, :STATES] + rate[:, :STATES] * actuators.timestep
        inner = self.inner.advance(_inner(actuators), rate[:, STATES:])
        return jnp.concatenate([actuators.within_range(states), inner], axis=1)

    def force(self, actuators: Actuators, act: Array) -> Array:
        """(n,) the force, N or N m, at activations `act` (n, k); with `actearly` they are the next timestep's."""
        inner = self.inner.rate(_inner(actuators))
        prm = actuators.pidprm
        error = self._setpoint(actuators, act) - actuators.length
        setpoint_rate = inner[:, -1] if inner.shape[1] else jnp.zeros_like(error)
        integral = jnp.where(actuators.has[:, 0], _next_integral(actuators, error), 0)
        return prm[:, KP] * error + prm[:, KI] * integral + prm[:, KD] * (setpoint_rate - actuators.velocity)

    def _setpoint(self, actuators: Actuators, act: Array) -> Array:
        """(n,) the control or the last inner activation, at most slewmax h away from the previous setpoint."""
        wanted = act[:, -1] if act.shape[1] > STATES else actuators.ctrl
        last = actuators.act[:, 1]
        reach = actuators.pidprm[:, SLEWMAX] * actuators.timestep
        limited = actuators.has[:, 1] & (actuators.time > 0)
        return jnp.where(limited, safe.clip(wanted, last - reach, last + reach), wanted)


def _next_integral(actuators: Actuators, error: Array) -> Array:
    """(n,) the integral of the error one timestep later, bounded so that ki times the integral is at most imax."""
    prm = actuators.pidprm
    integral = actuators.act[:, 0] + error * actuators.timestep
    bound = safe.divide(prm[:, IMAX], jnp.abs(prm[:, KI]))
    return jnp.where(prm[:, IMAX] >= 0, safe.clip(integral, -bound, bound), integral)


def _inner(actuators: Actuators) -> Actuators:
    """The actuators for the inner dynamics, without the activations of the controller."""
    return dataclasses.replace(actuators, act=actuators.act[:, STATES:], places=actuators.places[:, STATES:])


@functools.cache
def controller(inner: Dynamics) -> Controller:
    """The controller around some inner dynamics; always the same object, so that compiled programs are shared."""
    return Controller(inner)


def unit_gain(actuators: Actuators, parameters: Array) -> Array:
    """(n,) 1, because the signal that the gain multiplies is already the force (`Controller.force`)."""
    return jnp.ones_like(actuators.length)
