"""Beginnings of episodes."""

import jax

from diffsim.support.motion import integrate_pos
from diffsim.types import Inputs, Model, State
from diffsim.types.state import make_inputs, make_state

Array = jax.Array


def near(model: Model, key: Array, spread: float, keyframe: str | None = None) -> tuple[State, Inputs]:
    """A state near qpos0 or a keyframe, and the inputs there.

    Args:
      model: the model.
      key: of `jax.random`.
      spread: largest deviation of each position (m, rad) and of each velocity (m/s, rad/s), drawn evenly; quaternions
        are turned by small angles.
      keyframe: by name; None for qpos0.
    """
    state = make_state(model, keyframe)
    shift, speed = jax.random.uniform(key, (2, model.nv), state.qpos.dtype, -spread, spread)
    qpos = integrate_pos(model, state.qpos, shift, 1.0)
    return state.replace(qpos=qpos, qvel=state.qvel + speed), make_inputs(model, keyframe)
