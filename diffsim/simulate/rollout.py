"""Batches and rollouts: the only place with an outer vmap or scan.

`model_axes` says which leaves of a Model differ between worlds; `rollout` scans over controls and carries only State.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from diffsim.math.xla import SEARCH_RESULT
from diffsim.simulate.step import advance
from diffsim.types import Data, Inputs, Model, State
from diffsim.types.record import near
from diffsim.types.state import make_inputs

Array = jax.Array
T = TypeVar("T")


def model_axes(model: Model, *fields: str) -> Model:
    """The `in_axes` of a Model some of whose leaves have a leading batch axis.

    Example:
      `jax.vmap(diffsim.step, in_axes=(diffsim.model_axes(model, "body_mass", "opt.timestep"), 0, 0))`

    Raises:
      ValueError: an unknown field; the message lists near matches.
    """
    paths, tree = jax.tree_util.tree_flatten_with_path(model)
    names = [".".join(key.name for key in path) for path, _ in paths]
    for field in fields:
        if field not in names:
            raise ValueError(f"the model has no leaf {field!r}{near(field, names)}")
    return jax.tree_util.tree_unflatten(tree, [0 if name in fields else None for name in names])


def rollout(
    model: Model,
    state: State,
    ctrl: Array,
    readout: Callable[[State, Data], T] | None = None,
    inputs: Inputs | None = None,
    checkpoint: bool = True,
) -> tuple[State, T | Any]:
    """Steps through a sequence of controls.

    Args:
      model: the compiled model.
      state: the first state.
      ctrl: controls, shape (T, nu); one step for each row.
      readout: what to keep of each step, a function of the state before the step and its Data; None keeps the state.
      inputs: everything else that the user sets, constant; None for `make_inputs(model)`.
      checkpoint: in reverse mode compute each step again instead of storing it, its solver's result excepted, so that
        memory grows by a state and an acceleration a step, with PGS and noslip by constraint forces too. Without it,
        reverse mode is somewhat faster.

    Returns:
      The final state, and the readouts stacked along a leading axis of length T.

    Raises:
      ValueError: controls of a wrong shape.
    """
    ctrl = jnp.asarray(ctrl, dtype=state.qpos.dtype)
    if ctrl.ndim != 2 or ctrl.shape[1] != model.nu:
        raise ValueError(f"ctrl has shape {ctrl.shape}, expected (T, {model.nu}); batch with jax.vmap")
    base = make_inputs(model) if inputs is None else inputs

    def one_step(carry: State, row: Array) -> tuple[State, Any]:
        later, data = advance(model, carry, base.replace(ctrl=row))
        return later, carry if readout is None else readout(carry, data)

    keep_found = jax.checkpoint_policies.save_only_these_names(SEARCH_RESULT)
    # barriers against merging are for code outside of a scan; here they would keep what is constant in the loop
    lean = jax.checkpoint(one_step, policy=keep_found, prevent_cse=False)
    return jax.lax.scan(lean if checkpoint else one_step, state, ctrl)
