"""States as flat vectors, as MuJoCo's mjtState lists their components, and as keyframes of the model."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.checked import checked
from diffsim.base.enums import StateBit
from diffsim.types import Inputs, Model, State
from diffsim.types.state import make_inputs, make_state

Array = jax.Array


@checked
def reset(model: Model, keyframe: int | str | None = None) -> tuple[State, Inputs]:
    """State and inputs at qpos0, or of a keyframe given by index or name."""
    return make_state(model, keyframe), make_inputs(model, keyframe)


# what a keyframe holds: field of the model, and the record and field that it is taken from
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
    """The model with one of its keyframes set to a state and its inputs (None for `make_inputs(model)`).

    Raises:
      KeyError: no keyframe of this name; the message lists near matches. IndexError: none of this index.
    """
    records: dict[type, Any] = {State: state, Inputs: make_inputs(model) if inputs is None else inputs}
    key = model.key(keyframe).id
    values = {name: getattr(records[owner], field) for name, (owner, field) in KEYFRAME.items()}
    return model.replace(**{name: getattr(model, name).at[key].set(value) for name, value in values.items()})


# components of a state vector in MuJoCo's order, and the record that holds each
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
}


@checked
def state_size(model: Model, bits: int) -> int:
    """How many numbers the chosen components have (mj_stateSize)."""
    values = jax.eval_shape(lambda model: [value for _, _, value in _components(*reset(model), bits)], model)
    return sum(int(np.prod(value.shape)) for value in values)


@checked
def get_state(model: Model, state: State, inputs: Inputs, bits: int) -> Array:
    """The chosen components as one vector, in the order of the bits (mj_getState)."""
    dtype = state.qpos.dtype
    parts = [jnp.ravel(jnp.asarray(value, dtype)) for _, _, value in _components(state, inputs, bits)]
    return jnp.concatenate([jnp.zeros((0,), dtype), *parts])


@checked
def set_state(model: Model, state: State, inputs: Inputs, vector: Array, bits: int) -> tuple[State, Inputs]:
    """State and inputs with the chosen components taken from a vector as `get_state` makes it.

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
