"""rollout: many steps in one scan, which carries only State."""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from diffsim.math.xla import SEARCH_RESULT
from diffsim.simulate.arguments import check_arguments
from diffsim.simulate.step import step_data
from diffsim.types import Data, Inputs, Model, State

Array = jax.Array
T = TypeVar("T")


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
    base = check_arguments(model, state, inputs)
    ctrl = jnp.asarray(ctrl, dtype=state.qpos.dtype)
    if ctrl.ndim != 2 or ctrl.shape[1] != model.nu:
        raise ValueError(f"ctrl has shape {ctrl.shape}, expected (T, {model.nu}); batch with jax.vmap")

    def one_step(carry: State, row: Array) -> tuple[State, Any]:
        later, data = step_data(model, carry, base.replace(ctrl=row))
        return later, carry if readout is None else readout(carry, data)

    keep_found = jax.checkpoint_policies.save_only_these_names(SEARCH_RESULT)
    # barriers against merging are for code outside of a scan; here they would keep what is constant in the loop
    lean = jax.checkpoint(one_step, policy=keep_found, prevent_cse=False)
    return jax.lax.scan(lean if checkpoint else one_step, state, ctrl)
