"""What the user's hooks compute: passive forces, and dynamics, gains and biases of actuators of type `user`.

An actuator that needs a hook which the model has not raises when the step is traced.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.enums import BiasType, DisableBit, DynType, GainType
from diffsim.errors import Problem, UnsupportedError
from diffsim.types.data import Data, Passive
from diffsim.types.model import Model
from diffsim.types.state import Inputs, State

Array = jax.Array


class UserActuation(NamedTuple):
    """Rates (na,), gains and biases (nu,) of actuators of type `user`; zero for others."""

    rate: Array
    gain: Array
    bias: Array


def add_user_force(model: Model, state: State, data: Data, passive: Passive) -> Passive:
    """Passive forces with those of the hook, which stops with all other passive forces."""
    off = model.opt.disabled(DisableBit.SPRING) and model.opt.disabled(DisableBit.DAMPER)
    if model.hooks.passive is None or off:
        return passive
    return passive.replace(qfrc_passive=passive.qfrc_passive + model.hooks.passive(model, state, data))


def user_actuation(model: Model, state: State, inputs: Inputs, data: Data) -> UserActuation:
    """What the hooks say of actuators of type `user`.

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
    found = []
    for hook, name, wanted in kinds:
        value = jnp.zeros((len(wanted),), state.qvel.dtype)
        if wanted.any():
            if hook is None:
                reason = f"an actuator is of type 'user': model.replace(hooks=Hooks({name}=...)) says what it does"
                raise UnsupportedError([Problem("", 0, "<general>", reason, unsupported=True)])
            value = jnp.where(wanted, hook(model, state, inputs, data), 0)
        found.append(value)
    return UserActuation(*found)
