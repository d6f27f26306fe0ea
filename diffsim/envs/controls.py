"""Controls from actions: policies act in [-1, 1], actuators have ranges of their own."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from diffsim.math import safe
from diffsim.types import Model
from diffsim.types.state import make_inputs

Array = jax.Array


def over_range(model: Model, action: Array) -> Array:
    """Controls (nu,) for actions (nu,): -1 and 1 are the ends of the control range; without a range the action."""
    lower, upper = model.actuator_ctrlrange[:, 0], model.actuator_ctrlrange[:, 1]
    inside = lower + 0.5 * (safe.clip(action, -1, 1) + 1) * (upper - lower)
    return jnp.where(jnp.asarray(model.topology.actuator_ctrllimited, bool), inside, action)


def around_keyframe(keyframe: str, scale: float) -> Callable[[Model, Array], Array]:
    """Controls of a keyframe, plus `scale` (in units of control) times the action, within the control range."""

    def control(model: Model, action: Array) -> Array:
        ctrl = make_inputs(model, keyframe).ctrl + scale * safe.clip(action, -1, 1)
        lower, upper = model.actuator_ctrlrange[:, 0], model.actuator_ctrlrange[:, 1]
        return jnp.where(jnp.asarray(model.topology.actuator_ctrllimited, bool), safe.clip(ctrl, lower, upper), ctrl)

    return control
