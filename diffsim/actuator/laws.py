"""The table of actuator laws: the dynamics, gain and bias of each dyntype, gaintype and biastype.

    d act / dt = rate(ctrl, act, length, velocity)
    force      = gain(length, velocity) * signal + bias(length, velocity)

The signal is the control, or the activation if the actuator has one. A row has the name of the law in MJCF, and its
dynamics, gain and bias as far as it has them. Models may combine the parts of different rows, unless a row is
`inseparable`. To add a law, write a function for each of its parts, here or in a file of its own, and a row of `LAWS`,
after adding its name to `DynType`, `GainType` or `BiasType`. This file has the laws that are not models of a device:
integrators and filters of the control, constant and affine gains and biases.
Source: MuJoCo documentation, "Computation", "Actuation model".
"""

import dataclasses
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.actuator import dcmotor, muscle, pid
from diffsim.actuator.actuators import Actuators, user_bias, user_gain, user_rate
from diffsim.base.enums import MINVAL, BiasType, DynType, GainType
from diffsim.math import safe


def control(actuators: Actuators, act: Array) -> Array:
    """(n,) the control, which is the signal of an actuator without activation."""
    return actuators.ctrl


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
    """(n, 1) the time constant tau, s."""
    return safe.maximum(actuators.dynprm[:, :1], MINVAL)


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


# The parameter that switches a state on when it is positive: the name of a parameter vector and an index. None for a
# state that every actuator with the law has.
Switch = tuple[str, int] | None
# (n actuators, their gainprm or biasprm (n, 10)) -> (n,)
Curve = Callable[[Actuators, Array], Array]


@dataclasses.dataclass(frozen=True)
class Dynamics:
    """How the activations of n actuators change, and the signal that their gains multiply.

    Attributes:
      rate: actuators -> d act / dt (n, k), per second.
      states: the k states that an actuator can have, in the order of its activations; None if `actdim` says how many.
      advance: (actuators, rate (n, k)) -> (n, k) activations one timestep later.
      signal: (actuators, act (n, k)) -> signal (n,), by default the last state. For actuators with `actearly`, `act`
        are the activations of the next timestep.
      signal_slope: actuators -> d signal / d velocity (n,), as the implicit integrators take it; None for zero.
      always_early: whether the law works only with `actearly`.
    """

    rate: Callable[[Actuators], Array]
    states: tuple[Switch, ...] | None = (None,)
    advance: Callable[[Actuators, Array], Array] = euler
    signal: Callable[[Actuators, Array], Array] = lambda actuators, act: act[:, -1]
    signal_slope: Callable[[Actuators], Array] | None = None
    always_early: bool = False


@dataclasses.dataclass(frozen=True)
class Force:
    """A gain or a bias.

    Attributes:
      value: the force per signal (gain), or the force (bias, N or N m).
      slope: d value / d velocity, as the implicit integrators take it; None for zero.
      limited: whether limits on forces apply to it. They do not apply to friction inside the actuator.
    """

    value: Curve
    slope: Curve | None = None
    limited: bool = True


@dataclasses.dataclass(frozen=True)
class Law:
    """A row of the table; `inseparable` if its dynamics, gain and bias work only together."""

    dynamics: Dynamics | None = None
    gain: Force | None = None
    bias: Force | None = None
    inseparable: bool = False


LAWS: dict[str, Law] = {
    "none": Law(
        Dynamics(lambda actuators: jnp.zeros_like(actuators.act), states=(), signal=control),
        bias=Force(nothing),
    ),
    "fixed": Law(gain=Force(constant)),
    "affine": Law(
        gain=Force(affine, affine_slope),
        bias=Force(affine, affine_slope),
    ),
    "integrator": Law(Dynamics(integrator)),
    "filter": Law(Dynamics(low_pass)),
    "filterexact": Law(Dynamics(low_pass, advance=exact_decay)),
    "muscle": Law(
        Dynamics(muscle.activation_rate),
        gain=Force(muscle.active_force, muscle.active_slope),
        bias=Force(muscle.passive_force),
    ),
    "dcmotor": Law(
        Dynamics(
            dcmotor.rate,
            states=dcmotor.STATES,
            advance=dcmotor.advance,
            signal=dcmotor.current,
            signal_slope=dcmotor.current_slope,
            always_early=True,
        ),
        gain=Force(dcmotor.motor_constant),
        bias=Force(dcmotor.friction, dcmotor.friction_slope, limited=False),
        inseparable=True,
    ),
    "user": Law(
        Dynamics(user_rate, states=None),
        gain=Force(user_gain),
        bias=Force(user_bias),
    ),
}


# the columns of the table
DYNAMICS = {DynType[name.upper()]: law.dynamics for name, law in LAWS.items() if law.dynamics}
GAINS = {GainType[name.upper()]: law.gain for name, law in LAWS.items() if law.gain}
BIASES = {BiasType[name.upper()]: law.bias for name, law in LAWS.items() if law.bias}


def of_plugin(dynamics: Dynamics) -> tuple[Dynamics, Force, Force]:
    """Dynamics, gain and bias of actuators whose force comes from the plugin mujoco.pid, with these inner dynamics."""
    controller = pid.controller(dynamics)
    states = (None,) * pid.STATES + (dynamics.states or ())
    dynamics = Dynamics(
        rate=controller.rate,
        states=states,
        advance=controller.advance,
        signal=controller.force,
    )
    return dynamics, Force(pid.unit_gain), Force(nothing)


def torn_apart(dyntype: DynType, gaintype: GainType, biastype: BiasType) -> str | None:
    """The name of an inseparable law if only some of these types belong to it; None if there is no such law."""
    names = [kind.name.lower() for kind in (dyntype, gaintype, biastype)]
    torn = [name for name in names if LAWS[name].inseparable and set(names) != {name}]
    return torn[0] if torn else None


def has_states(dyntype: np.ndarray, count: np.ndarray, dynprm: np.ndarray, gainprm: np.ndarray) -> np.ndarray:
    """(nu, k) bool: which states of its law each actuator has; they are in the last columns.

    Args:
      dyntype: (nu,) DynType.
      count: (nu,) number of states of actuators whose law does not list them (`user`).
      dynprm, gainprm: (nu, 10) parameters, which switch states on by being positive.
    """
    kinds = {DynType(kind): DYNAMICS[DynType(kind)].states for kind in np.unique(dyntype)}
    widest = max((np.max(count[dyntype == kind]) if s is None else len(s) for kind, s in kinds.items()), default=0)
    has = np.zeros((len(dyntype), widest), bool)
    parameters = {"dynprm": dynprm, "gainprm": gainprm}
    for kind, states in kinds.items():
        ids = np.flatnonzero(dyntype == kind)
        if states is None:
            has[ids] = np.arange(widest) >= widest - count[ids, None]
            continue
        for column, state in enumerate(states, widest - len(states)):
            has[ids, column] = state is None or parameters[state[0]][ids, state[1]] > 0
    return has


def state_slots(
    dyntype: np.ndarray, actnum: np.ndarray, dynprm: np.ndarray, gainprm: np.ndarray, plugin_states: np.ndarray
) -> np.ndarray:
    """(nu, k) int: which of an actuator's activations holds each state of its law; -1 for a state that it lacks.

    The states fill the last columns, so that the last state, which is the signal of most laws, is in the last column.
    The states of a plugin, `plugin_states` (nu, p) bool, come before the states of the law.
    """
    has = has_states(dyntype, actnum - plugin_states.sum(axis=1), dynprm, gainprm)
    width = plugin_states.shape[1]
    controlled = plugin_states.any(axis=1)
    has = np.concatenate([np.zeros_like(plugin_states), has], axis=1)
    for kind in np.unique(dyntype[controlled]):
        ids = np.flatnonzero(controlled & (dyntype == kind))
        stop = has.shape[1] - len(DYNAMICS[DynType(kind)].states or ())
        has[ids, stop - width : stop] = plugin_states[ids]
    return np.where(has, np.cumsum(has, axis=1) - 1, -1).astype(np.int32)
