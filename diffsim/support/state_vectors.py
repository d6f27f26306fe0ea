"""States as flat vectors with the components of mjtState; keyframes; checkpoints."""

from collections.abc import Mapping
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.checked import checked
from diffsim.base.enums import StateBit
from diffsim.types import Inputs, Model, State
from diffsim.types.state import make_inputs, make_state

T = TypeVar("T")


@checked
def reset(model: Model, keyframe: int | str | None = None) -> tuple[State, Inputs]:
    """State and inputs at qpos0 or at a keyframe.

    Args:
      model: the model.
      keyframe: by index or name; None for qpos0.

    Returns:
      State and Inputs.

    Raises:
      KeyError: no keyframe of this name; the message lists near matches. IndexError: none of this index.
    """
    return make_state(model, keyframe), make_inputs(model, keyframe)


# fields of a keyframe in the model, and the record and field from which each is taken
KEYFRAME: dict[str, tuple[type, str]] = {
    "key_time": (State, "time"),
    "key_qpos": (State, "qpos"),
    "key_qvel": (State, "qvel"),
    "key_act": (State, "act"),
    "key_mpos": (Inputs, "mocap_pos"),
    "key_mquat": (Inputs, "mocap_quat"),
    "key_ctrl": (Inputs, "ctrl"),
}


@checked
def set_keyframe(model: Model, keyframe: int | str, state: State, inputs: Inputs | None = None) -> Model:
    """The model with one of its keyframes set to a state and its inputs.

    Args:
      model: the model.
      keyframe: by index or name.
      state: positions, velocities, activations and time of the keyframe.
      inputs: controls and mocap poses; None for `make_inputs(model)`.

    Returns:
      The Model.

    Raises:
      KeyError: no keyframe of this name; the message lists near matches. IndexError: none of this index.
    """
    records: dict[type, Any] = {State: state, Inputs: make_inputs(model) if inputs is None else inputs}
    key = model.key(keyframe).id
    values = {name: getattr(records[owner], field) for name, (owner, field) in KEYFRAME.items()}
    return model.replace(**{name: getattr(model, name).at[key].set(value) for name, value in values.items()})


# components of a state vector in MuJoCo's order, and the record and field that hold each
COMPONENTS: dict[StateBit, tuple[type, str]] = {
    StateBit.TIME: (State, "time"),
    StateBit.QPOS: (State, "qpos"),
    StateBit.QVEL: (State, "qvel"),
    StateBit.ACT: (State, "act"),
    StateBit.HISTORY: (State, "history"),
    StateBit.WARMSTART: (State, "qacc_warmstart"),
    StateBit.CTRL: (Inputs, "ctrl"),
    StateBit.QFRC_APPLIED: (Inputs, "qfrc_applied"),
    StateBit.XFRC_APPLIED: (Inputs, "xfrc_applied"),
    StateBit.EQ_ACTIVE: (Inputs, "eq_active"),
    StateBit.MOCAP_POS: (Inputs, "mocap_pos"),
    StateBit.MOCAP_QUAT: (Inputs, "mocap_quat"),
    StateBit.USERDATA: (Inputs, "userdata"),
    StateBit.PLUGIN: (State, "plugin_state"),
}


def checkpoint_leaves(tree: Any) -> dict[str, Array]:
    """The arrays of a pytree that are not empty, by their index; Orbax refuses empty arrays.

        checkpointer.save(path, checkpoint_leaves(states))
        states = from_checkpoint(states, checkpointer.restore(path, checkpoint_leaves(states)))

    Args:
      tree: States, Inputs, Models, or any pytree of them.

    Returns:
      A flat table of arrays.
    """
    return {str(place): leaf for place, leaf in enumerate(jax.tree.leaves(tree)) if np.size(leaf)}


def from_checkpoint(tree: T, leaves: Mapping[str, Array]) -> T:
    """The inverse of `checkpoint_leaves`: a pytree like `tree` with the arrays of the table.

    Args:
      tree: a pytree of the same structure and shapes.
      leaves: a table of arrays from `checkpoint_leaves`.

    Returns:
      The pytree.

    Raises:
      TypeError: `leaves` is not a table.
      ValueError: `leaves` belongs to a pytree of another structure or of other shapes.
    """
    if not isinstance(leaves, Mapping):
        raise TypeError(f"leaves is a {type(leaves).__name__}, expected a table such as checkpoint_leaves(tree)")
    old, structure = jax.tree.flatten(tree)
    expected = {place: np.shape(leaf) for place, leaf in checkpoint_leaves(tree).items()}
    shapes = {place: np.shape(leaf) for place, leaf in leaves.items()}
    if shapes != expected:
        odd = sorted((place for place in shapes | expected if shapes.get(place) != expected.get(place)), key=str)
        raise ValueError(f"the checkpoint belongs to another pytree: leaf {odd[0]} differs")
    return jax.tree.unflatten(structure, [leaves.get(str(place), leaf) for place, leaf in enumerate(old)])


@checked
def state_size(model: Model, bits: int) -> int:
    """The number of elements of the chosen components (mj_stateSize).

    Args:
      model: the model.
      bits: a sum of `diffsim.base.enums.StateBit`, MuJoCo's mjtState.

    Returns:
      The number of elements.
    """
    values = jax.eval_shape(lambda model: [value for _, _, value in _components(*reset(model), bits)], model)
    return sum(int(np.prod(value.shape)) for value in values)


@checked
def get_state(model: Model, state: State, inputs: Inputs, bits: int) -> Array:
    """The chosen components as one vector, in the order of the bits (mj_getState).

    Args:
      model, state, inputs: of one world.
      bits: as for `state_size`.

    Returns:
      (state_size(model, bits),)
    """
    dtype = state.qpos.dtype
    parts = [jnp.ravel(jnp.asarray(value, dtype)) for _, _, value in _components(state, inputs, bits)]
    return jnp.concatenate([jnp.zeros((0,), dtype), *parts])


@checked
def set_state(model: Model, state: State, inputs: Inputs, vector: Array, bits: int) -> tuple[State, Inputs]:
    """State and inputs with the chosen components taken from a vector of `get_state` (mj_setState).

    Args:
      model, state, inputs: of one world; the other components keep their values.
      vector: (state_size(model, bits),)
      bits: as for `state_size`.

    Returns:
      State and Inputs.

    Raises:
      ValueError: the vector has another length.
    """
    chosen = _components(state, inputs, bits)
    sizes = [int(np.prod(value.shape)) for _, _, value in chosen]
    if vector.shape != (sum(sizes),):
        raise ValueError(f"this state has {sum(sizes)} elements, got an array of shape {vector.shape}")
    changed: dict[type, dict[str, Array]] = {State: {}, Inputs: {}}
    start = 0
    for (owner, name, value), size in zip(chosen, sizes, strict=True):
        part = vector[start : start + size].reshape(value.shape)
        changed[owner][name] = part != 0 if value.dtype == bool else part
        start += size
    return state.replace(**changed[State]), inputs.replace(**changed[Inputs])


def _components(state: State, inputs: Inputs, bits: int) -> list[tuple[type, str, Any]]:
    """(record, field, value) of the chosen components."""
    records = {State: state, Inputs: inputs}
    return [(owner, name, getattr(records[owner], name)) for bit, (owner, name) in COMPONENTS.items() if bits & bit]
