"""MuJoCo's plugin `mujoco.pid`: force = kp e + ki (integral of e) + kd de/dt with e = setpoint - length.

The setpoint is the control, or, if the actuator has dynamics (the `inner` dynamics), their last activation. It changes
by at most slewmax per second. The plugin adds up to two activations, before the activations of the inner dynamics: the
integral, bounded so that its force stays within imax, and the last setpoint, from which the next one may differ only by
the slew. As in MuJoCo, slewmax does not limit the first timestep, and the implicit integrators ignore that the force
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

NAME = "mujoco.pid"
# settings, in the order of the columns of actuator_pidprm; -1 means that there is no bound
SETTINGS = {"kp": 0.0, "ki": 0.0, "kd": 0.0, "imax": -1.0, "slewmax": -1.0}
KP, KI, KD, IMAX, SLEWMAX = range(5)
# activations that the plugin adds: the integral of the error, the last setpoint
STATES = 2


class Dynamics(Protocol):
    """The functions of `laws.Dynamics` that a controller calls."""

    @property
    def rate(self) -> Callable[[Actuators], Array]: ...
    @property
    def advance(self) -> Callable[[Actuators, Array], Array]: ...


def parameters(settings: Mapping[str, str]) -> np.ndarray:
    """(5,) the settings as numbers: N/m, N/(m s), N s/m, N, and units of the setpoint per second (or by rad).

    Raises:
      ValueError: a setting is unknown, no number, or negative where it is a bound.
    """
    check_settings(settings, SETTINGS)
    written = {name: text for name, text in settings.items() if text.strip()}
    numbers = SETTINGS | {name: float(text) for name, text in written.items()}
    for name in ("imax", "slewmax"):
        if name in written and numbers[name] < 0:
            raise ValueError(f"setting '{name}' cannot be negative")
    return np.array([numbers[name] for name in SETTINGS])


def has_states(prm: np.ndarray) -> np.ndarray:
    """(n, 2) whether controllers with parameters (n, 5) have an integral, and a last setpoint."""
    return np.stack([prm[:, KI] != 0, prm[:, SLEWMAX] >= 0], axis=1)


@dataclasses.dataclass(frozen=True)
class Controller:
    """The functions of `laws.Dynamics` of actuators with the plugin, around their `inner` dynamics."""

    inner: Dynamics

    def rate(self, actuators: Actuators) -> Array:
        """(n, k) d act / dt: by which a timestep leads to the next integral and setpoint, and of the inner dynamics."""
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
        """(n,) N or N m; `act` (n, k), of the next timestep for actuators with `actearly`."""
        inner, prm = self.inner.rate(_inner(actuators)), actuators.pidprm
        error = self._setpoint(actuators, act) - actuators.length
        setpoint_rate = inner[:, -1] if inner.shape[1] else jnp.zeros_like(error)
        integral = jnp.where(actuators.has[:, 0], _next_integral(actuators, error), 0)
        return prm[:, KP] * error + prm[:, KI] * integral + prm[:, KD] * (setpoint_rate - actuators.velocity)

    def _setpoint(self, actuators: Actuators, act: Array) -> Array:
        """(n,) the control or last activation, at most slewmax a second from the last setpoint."""
        wanted = act[:, -1] if act.shape[1] > STATES else actuators.ctrl
        last, reach = actuators.act[:, 1], actuators.pidprm[:, SLEWMAX] * actuators.timestep
        limited = actuators.has[:, 1] & (actuators.time > 0)
        return jnp.where(limited, safe.clip(wanted, last - reach, last + reach), wanted)


def _next_integral(actuators: Actuators, error: Array) -> Array:
    """(n,) the integral of the error one timestep later, whose force ki times it is at most imax."""
    prm, integral = actuators.pidprm, actuators.act[:, 0] + error * actuators.timestep
    bound = safe.divide(prm[:, IMAX], jnp.abs(prm[:, KI]))
    return jnp.where(prm[:, IMAX] >= 0, safe.clip(integral, -bound, bound), integral)


def _inner(actuators: Actuators) -> Actuators:
    """The actuators without the activations of the controller, as the inner dynamics see them."""
    return dataclasses.replace(actuators, act=actuators.act[:, STATES:], places=actuators.places[:, STATES:])


@functools.cache
def controller(inner: Dynamics) -> Controller:
    """One controller for each dynamics, so that programs are shared."""
    return Controller(inner)


def unit_gain(actuators: Actuators, parameters: Array) -> Array:
    """(n,) 1: the signal that the gain multiplies, `Controller.force`, is the force."""
    return jnp.ones_like(actuators.length)
