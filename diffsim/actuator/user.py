"""The user's hooks: passive forces, and the laws of actuators of type `user`.

An actuator that needs a hook which the model has not raises when the step is traced.
"""

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.actuator.actuators import Actuators, UserLaws, at_places
from diffsim.base.enums import BiasType, DisableBit, DynType, GainType
from diffsim.base.errors import Problem, UnsupportedError
from diffsim.types.data import Data, Passive
from diffsim.types.model import Model
from diffsim.types.state import Inputs, State
from diffsim.xla.gather import pick

Array = jax.Array


def rate(actuators: Actuators) -> Array:
    """(n, k) d act / dt by the hook `act_dyn`, per second."""
    if actuators.user is None:
        return jnp.zeros_like(actuators.act)
    return at_places(actuators.user.rate, actuators.places)


def gain(actuators: Actuators, parameters: Array) -> Array:
    """(n,) force per signal by the hook `act_gain`."""
    return jnp.zeros_like(actuators.length) if actuators.user is None else pick(actuators.user.gain, actuators.ids)


def bias(actuators: Actuators, parameters: Array) -> Array:
    """(n,) force by the hook `act_bias`, N or N m."""
    return jnp.zeros_like(actuators.length) if actuators.user is None else pick(actuators.user.bias, actuators.ids)


def add_user_force(model: Model, state: State, data: Data, passive: Passive) -> Passive:
    """Passive forces with those of the hook, which stops with all other passive forces."""
    off = model.opt.disabled(DisableBit.SPRING) and model.opt.disabled(DisableBit.DAMPER)
    if model.hooks.passive is None or off:
        return passive
    return passive.replace(qfrc_passive=passive.qfrc_passive + model.hooks.passive(model, state, data))


def user_laws(model: Model, state: State, inputs: Inputs, data: Data) -> UserLaws:
    """What the hooks say of actuators of type `user`; zero for others.

    Raises:
      UnsupportedError: an actuator is of type `user` and the model has no hook for it.
    """
    topology, hooks = model.topology, model.hooks
    owner = np.repeat(np.arange(topology.nu), topology.actuator_actnum)
    kinds = (
        (hooks.act_dyn, "act_dyn", topology.actuator_dyntype[owner] == DynType.USER),
        (hooks.act_gain, "act_gain", topology.actuator_gaintype == GainType.USER),
        (hooks.act_bias, "act_bias", topology.actuator_biastype == BiasType.USER),
    )
    values = []
    for hook, name, wanted in kinds:
        value = jnp.zeros((len(wanted),), state.qvel.dtype)
        if wanted.any():
            if hook is None:
                reason = f"an actuator is of type 'user': model.replace(hooks=Hooks({name}=...)) says what it does"
                raise UnsupportedError([Problem("", 0, "<general>", reason, unsupported=True)])
            value = jnp.where(wanted, hook(model, state, inputs, data), 0)
        values.append(value)
    return UserLaws(*values)
