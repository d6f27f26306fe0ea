"""Poses of everything in one state, or in each of many."""

import functools

import jax
import jax.numpy as jnp

from diffsim.base.checked import checked
from diffsim.kinematics.poses import compute_kinematics
from diffsim.types import Inputs, Model, State
from diffsim.types.data import Kinematics
from diffsim.types.state import make_inputs


@checked
def poses_of(model: Model, states: State, inputs: Inputs | None = None) -> Kinematics:
    """Where bodies, geoms, sites and cameras are.

    Args:
      model: the model.
      states: one state, or stacked ones with leading axes, such as readouts of a rollout (T, ...).
      inputs: where mocap bodies are, with the same leading axes or none; None for where the model has them.

    Returns:
      Kinematics with the leading axes of `states`.
    """
    inputs = make_inputs(model) if inputs is None else inputs
    batch = states.qpos.shape[:-1]
    spread = [jnp.broadcast_to(leaf, (*batch, *leaf.shape[-2:])) for leaf in (inputs.mocap_pos, inputs.mocap_quat)]
    return _kinematics(len(batch), model, states.qpos, *spread)


@functools.partial(jax.jit, static_argnums=0)
def _kinematics(axes: int, model: Model, *positions: jax.Array) -> Kinematics:
    """Poses of states with a number of leading axes."""
    function = compute_kinematics
    for _ in range(axes):
        function = jax.vmap(function, in_axes=(None, 0, 0, 0))
    return function(model, *positions)
