"""How actuator forces change with velocity, for the implicit integrators.

d force / d velocity = gain' signal + gain signal' + bias', with the slopes of the table of laws. Where a law takes its
slope differs from its exact derivative, the table follows MuJoCo. Source: MuJoCo 3.8.1, mjd_actuator_vel.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.actuator.activation import signal
from diffsim.actuator.actuators import Actuators, Command, Conditions, at_places
from diffsim.actuator.control import switched_off
from diffsim.actuator.groups import Group, groups, members
from diffsim.types.data import Data
from diffsim.types.model import Model
from diffsim.types.state import Inputs, State
from diffsim.xla.pick import pick

Array = jax.Array


def velocity_slopes(model: Model, state: State, inputs: Inputs, data: Data) -> tuple[np.ndarray, Array]:
    """Actuators whose force depends on velocity, and d force / d velocity (n,), N s / m or N m s / rad.

    Zero where the force is at its limit. As in MuJoCo, the control is taken as the user set it, and limits of tendons
    and joints are not seen.
    """
    idle = switched_off(model)
    moving = [group.without(idle) for group in groups(model.topology) if _depends_on_velocity(group)]
    moving = [group for group in moving if group.ids.size]
    if not moving:
        return np.zeros(0, int), jnp.zeros((0,), data.actuator_velocity.dtype)
    conditions = Conditions(state.act, Command(inputs.ctrl), data.actuator_length, data.actuator_velocity)
    slopes = [_slope(group, members(model, group, conditions), data.act_dot) for group in moving]
    ids = np.concatenate([group.ids for group in moving])
    return ids, _unless_at_limit(model, ids, data.actuator_force, jnp.concatenate(slopes))


def _depends_on_velocity(group: Group) -> bool:
    return any((group.gain.slope, group.dynamics.signal_slope, group.bias.slope))


def _slope(group: Group, actuators: Actuators, act_dot: Array) -> Array:
    """(n,) gain' signal + gain signal' + bias'; act_dot is of the whole model, (na,) per second."""
    rate, terms = at_places(act_dot, group.places), []
    if group.gain.slope:
        terms.append(group.gain.slope(actuators, actuators.gainprm) * signal(group, actuators, rate))
    if group.dynamics.signal_slope:
        terms.append(group.gain.value(actuators, actuators.gainprm) * group.dynamics.signal_slope(actuators))
    if group.bias.slope:
        terms.append(group.bias.slope(actuators, actuators.biasprm))
    return _sum(terms)


def _sum(terms: Sequence[Array]) -> Array:
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


def _unless_at_limit(model: Model, ids: np.ndarray, force: Array, slope: Array) -> Array:
    """Slopes (n,) of the actuators `ids`, zero where the force, of all (nu,), is at its limit."""
    limited = model.topology.actuator_forcelimited[ids] != 0
    if not limited.any():
        return slope
    lower, upper = pick(model.actuator_forcerange, ids).T
    force = pick(force, ids)
    return jnp.where(limited & ((force <= lower) | (force >= upper)), 0, slope)
