"""MuJoCo's plugin `mujoco.pid`: force = kp e + ki (integral of e) + kd de/dt with e = setpoint - length.

The setpoint is the control, or the last activation of an actuator with dynamics. It changes by at most slewmax a
second, for which an activation keeps where it was. Another one is the integral, bounded so that its force stays within
imax. In this order they come before the activations of the actuator's own dynamics. As in MuJoCo, the first timestep is
not slewed, and the implicit integrators do not see how the force depends on velocity.
Source: plugin/actuator/pid.cc (3.8.1).
"""

import dataclasses
import functools
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.actuator.actuators import Actuators
from diffsim.math import safe
from diffsim.xla.select import where

Array = jax.Array

NAME = "mujoco.pid"
# settings, in the order of the columns of actuator_pidprm; a bound of -1 is none
SETTINGS = {"kp": 0.0, "ki": 0.0, "kd": 0.0, "imax": -1.0, "slewmax": -1.0}
# activations of the plugin's own
STATES = 2


def parameters(settings: Mapping[str, str]) -> np.ndarray:
    """(5,) the settings as numbers: N/m, N/(m s), N s/m, N, and units of the setpoint per second (or by rad).

    Raises:
      ValueError: a setting is unknown, no number, or negative where it is a bound.
    """
    unknown = sorted(set(settings) - set(SETTINGS))
    if unknown:
        raise ValueError(f"has no setting '{unknown[0]}', only {', '.join(SETTINGS)}")
    written = {name: text for name, text in settings.items() if text.strip()}
    numbers = SETTINGS | {name: float(text) for name, text in written.items()}
    for name in ("imax", "slewmax"):
        if name in written and numbers[name] < 0:
            raise ValueError(f"setting '{name}' cannot be negative")
    return np.array([numbers[name] for name in SETTINGS])


def has_states(prm: np.ndarray) -> np.ndarray:
    """(n, 2) which of its states, the integral and the last setpoint, a controller has, of parameters (n, 5)."""
    return np.stack([prm[:, 1] != 0, prm[:, 4] >= 0], axis=1)


@dataclasses.dataclass(frozen=True)
class Controller:
    """The functions of `laws.Dynamics` for controllers of actuators whose own dynamics are `inner`."""

    inner: "object"

    def rate(self, actuators: Actuators) -> Array:
        """(n, k) d act / dt: towards the next integral and setpoint, and that of the actuators' own dynamics."""
        setpoint = self._setpoint(actuators, actuators.act)
        integral = _integral(actuators, setpoint - actuators.length)
        towards = (jnp.stack([integral, setpoint], axis=1) - actuators.act[:, :STATES]) / actuators.timestep
        return jnp.concatenate([towards, self.inner.rate(_inner(actuators))], axis=1)  # type: ignore[attr-defined]

    def advance(self, actuators: Actuators, rate: Array) -> Array:
        """(n, k) activations one timestep later."""
        first = actuators.act[:, :STATES] + rate[:, :STATES] * actuators.timestep
        inner = self.inner.advance(_inner(actuators), rate[:, STATES:])  # type: ignore[attr-defined]
        return jnp.concatenate([actuators.within_range(first), inner], axis=1)

    def force(self, actuators: Actuators, act: Array) -> Array:
        """(n,) N or N m; `act` (n, k) is that of the next step where the setpoint is early."""
        inner, prm = self.inner.rate(_inner(actuators)), actuators.pidprm  # type: ignore[attr-defined]
        error = self._setpoint(actuators, act) - actuators.length
        change = inner[:, -1] if inner.shape[1] else jnp.zeros_like(error)
        integral = where(actuators.has[:, 0], _integral(actuators, error), 0)
        return prm[:, 0] * error + prm[:, 1] * integral + prm[:, 2] * (change - actuators.velocity)

    def _setpoint(self, actuators: Actuators, act: Array) -> Array:
        """(n,) the control or last activation, slewed."""
        wanted = act[:, -1] if act.shape[1] > STATES else actuators.ctrl
        last, reach = actuators.act[:, 1], actuators.pidprm[:, 4] * actuators.timestep
        slewed = actuators.has[:, 1] & (actuators.time > 0)
        return where(slewed, safe.clip(wanted, last - reach, last + reach), wanted)


def _integral(actuators: Actuators, error: Array) -> Array:
    """(n,) the integral of the error one timestep later, within its bound."""
    prm, moved = actuators.pidprm, actuators.act[:, 0] + error * actuators.timestep
    bound = safe.divide(prm[:, 3], jnp.abs(prm[:, 1]))
    return where(prm[:, 3] >= 0, safe.clip(moved, -bound, bound), moved)


def _inner(actuators: Actuators) -> Actuators:
    """The actuators without the activations of the controller, as their own dynamics see them."""
    return dataclasses.replace(actuators, act=actuators.act[:, STATES:], places=actuators.places[:, STATES:])


@functools.cache
def controller(inner: object) -> Controller:
    """One controller for each dynamics."""
    return Controller(inner)


def one(actuators: Actuators, parameters: Array) -> Array:
    """(n,) 1: the signal is the force."""
    return jnp.ones_like(actuators.length)
