"""States as flat vectors with the components of mjtState; keyframes; delay buffers; states of an edited model.

Delay buffers are read and filled as in MuJoCo (mj_readCtrl, mj_readSensor, mj_initCtrlHistory, mj_initSensorHistory).
Times are in seconds; actuators and sensors are given by name, view or index.

`carry_over` converts a state or inputs of one model to another model, for example after an edit of its spec
(mj_recompile). Objects that both models have keep their values. Two objects are the same if they have the same name.
Objects without a name are the same if they have the same index among the unnamed objects of their kind; for bodies,
among the unnamed children of one parent; for joints, among the unnamed joints of one type on one body.
"""

import dataclasses
from collections import Counter
from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple, TypeVar, overload

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.checked import checked
from diffsim.base.enums import StateBit
from diffsim.simulate.arguments import check_record
from diffsim.types import Data, Inputs, Model, State
from diffsim.types.history import Buffers, control_buffers, filled, read, sensor_buffers, unroll
from diffsim.types.kinds import KINDS
from diffsim.types.state import make_inputs, make_state
from diffsim.types.topology import Topology

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


# name, view or index
Which = Any
# ways to interpolate between samples, by their name in MJCF
INTERPOLATION = ("zoh", "linear", "cubic")


class _Buffer(NamedTuple):
    """The buffer of one actuator or sensor.

    Attributes:
      place: (size,) indices of its elements in `state.history`.
      dim: numbers in a sample.
      samples: number of samples.
      interpolation: index into INTERPOLATION.
    """

    place: np.ndarray
    dim: int
    samples: int
    interpolation: int


@checked
def read_ctrl(
    model: Model, state: State, inputs: Inputs, actuator: Which, time: Array | float, interp: str | None = None
) -> Array:
    """The delayed control of an actuator at a time: its sample from `actuator_delay` earlier; without a buffer, `ctrl`.

    Args:
      model, state, inputs: of one world.
      actuator: by name, view or index.
      time: s, of the reading; the buffer has the samples of all steps up to `state`.
      interp: "zoh", "linear" or "cubic"; None for the actuator's own.

    Returns:
      (), in units of the control.

    Raises:
      KeyError: no actuator has this name.
      ValueError: the interpolation is unknown.
    """
    index = model.actuator(actuator).id
    buffer = _find(control_buffers(model.topology), index)
    if buffer is None:
        return inputs.ctrl[index]
    return _read(buffer, state, time - model.actuator_delay[index], interp)[0]


@checked
def read_sensor(
    model: Model, state: State, data: Data, sensor: Which, time: Array | float, interp: str | None = None
) -> Array:
    """The delayed reading of a sensor at a time: its sample from `sensor_delay` earlier, or its `sensordata`.

    Args:
      model: the model.
      state: its history is read.
      data: of the state, for sensors without a buffer.
      sensor: by name, view or index.
      time, interp: as for `read_ctrl`.

    Returns:
      (dim,), in units of the sensor.
    """
    view = model.sensor(sensor)
    buffer = _find(sensor_buffers(model.topology), view.id)
    if buffer is None:
        return view.sensordata(data)
    return _read(buffer, state, time - model.sensor_delay[view.id], interp)


@checked
def init_ctrl_history(model: Model, state: State, actuator: Which, values: Array, times: Array | None = None) -> State:
    """The state with an actuator's buffer filled with controls (n,) at increasing times (n,).

    Args:
      model, state: the model, and a state of one world.
      actuator: by name, view or index.
      values: (n,) controls, oldest first.
      times: (n,) s, oldest first; None keeps the times in the buffer.

    Returns:
      The State.

    Raises:
      KeyError: no actuator has this name.
      ValueError: the actuator has no buffer, or a buffer of another length.
    """
    index = model.actuator(actuator).id
    buffer = _required(_find(control_buffers(model.topology), index), "actuator", index)
    return _fill(buffer, state, jnp.asarray(values)[:, None], times, None)


@checked
def init_sensor_history(
    model: Model,
    state: State,
    sensor: Which,
    values: Array,
    times: Array | None = None,
    phase: Array | float | None = None,
) -> State:
    """The state with a sensor's buffer filled with readings (n, dim) at increasing times (n,).

    Args:
      model, state: the model, and a state of one world.
      sensor: by name, view or index.
      values: (n, dim) readings, oldest first.
      times: (n,) s, oldest first; None keeps the times in the buffer.
      phase: s, time of the last sample of a sensor that is sampled at intervals; None keeps the time in the buffer.

    Returns:
      The State.

    Raises:
      KeyError: no sensor has this name.
      ValueError: the sensor has no buffer, or a buffer of another shape.
    """
    index = model.sensor(sensor).id
    buffer = _required(_find(sensor_buffers(model.topology), index), "sensor", index)
    return _fill(buffer, state, jnp.asarray(values), times, phase)


def _find(groups: tuple[Buffers, ...], owner: int) -> _Buffer | None:
    """The buffer of an actuator or sensor, if it has one."""
    for buffers in groups:
        for row in np.flatnonzero(buffers.owners == owner):
            return _Buffer(buffers.places[row], buffers.dim, buffers.count, int(buffers.interpolation[row]))
    return None


def _required(buffer: _Buffer | None, kind: str, index: int) -> _Buffer:
    if buffer is None:
        raise ValueError(f"{kind} {index} has no history; set its attribute 'nsample' in the model")
    return buffer


def _read(buffer: _Buffer, state: State, time: Array | float, interp: str | None) -> Array:
    """(dim,) the value in a buffer at a time."""
    if interp is not None and interp not in INTERPOLATION:
        raise ValueError(f"interp is one of {', '.join(INTERPOLATION)}; got {interp!r}")
    kind = buffer.interpolation if interp is None else INTERPOLATION.index(interp)
    samples = unroll(state.history[buffer.place], buffer.dim)
    return read(samples, jnp.asarray(time, state.history.dtype), jnp.asarray(kind))


def _fill(buffer: _Buffer, state: State, values: Array, times: Array | None, clock: Array | float | None) -> State:
    """The state with new samples in a buffer."""
    old = jnp.asarray(state.history)[buffer.place]
    times = unroll(old, buffer.dim).times if times is None else jnp.asarray(times, old.dtype)
    if times.shape != (buffer.samples,) or values.shape != (buffer.samples, buffer.dim):
        expected = f"times ({buffer.samples},) and values ({buffer.samples}, {buffer.dim})"
        raise ValueError(f"this buffer takes {expected}, got {times.shape} and {values.shape}")
    clock = old[0] if clock is None else jnp.asarray(clock, old.dtype)
    new = filled(clock, times, values.astype(old.dtype).reshape(-1))
    return state.replace(history=jnp.asarray(state.history).at[buffer.place].set(new))


# kinds of objects with delay buffers, which KINDS does not list as blocks
BUFFERS = {"actuator": control_buffers, "sensor": sensor_buffers}


@overload
def carry_over(old: Model, new: Model, record: State) -> State: ...
@overload
def carry_over(old: Model, new: Model, record: Inputs) -> Inputs: ...
@checked
def carry_over(old: Model, new: Model, record: State | Inputs) -> State | Inputs:
    """Converts a state or inputs of one model to another model.

        spec.find("body", "torso").add("geom", type="box", size=[0.1, 0.1, 0.1])
        new = diffsim.compile(spec)
        state = support.carry_over(model, new, state)

    Args:
      old: the model that the record belongs to.
      new: another model, for example the same model after an edit.
      record: State or Inputs of `old`, of one world; use `jax.vmap` for batches.

    Returns:
      The record for `new`. It has the time, and for objects in both models their positions, velocities, activations,
      delay buffers, controls, forces, mocap poses and equalities. Joints must have the same type, actuators the same
      number of activations, buffers the same size. Everything else is as in `make_state(new)` and `make_inputs(new)`.

    Raises:
      TypeError, ValueError: the record does not belong to `old`.
    """
    check_record("record", old, record)
    start = make_state(new) if isinstance(record, State) else make_inputs(new)
    carried = {}
    for field in dataclasses.fields(start):
        value, first = getattr(record, field.name), getattr(start, field.name)
        if field.metadata["shape"]:
            source, target = _rows(old.topology, new.topology, field.metadata["shape"][0])
            value = first.at[target].set(value[source])
        carried[field.name] = value
    return start.replace(**carried)


def _rows(old: Topology, new: Topology, size: str) -> tuple[np.ndarray, np.ndarray]:
    """Indices of matching rows of arrays of length `size`, in the old model and in the new model."""
    pairs: list[tuple[np.ndarray, np.ndarray]] = []
    for kind in KINDS:
        before = _spans(old, kind, size)
        after = _spans(new, kind, size)
        numbers = dict[Hashable, int]()
        if not after:
            continue
        known = {key: index for index, key in enumerate(_keys(old, kind, numbers))}
        for b, key in enumerate(_keys(new, kind, numbers)):
            a = known.get(key)
            if a in before and b in after and len(before[a]) == len(after[b]):
                pairs.append((before[a], after[b]))
    if size == "nuserdata":
        common = np.arange(min(old.nuserdata, new.nuserdata))
        pairs.append((common, common))
    empty = np.zeros(0, int)
    return np.concatenate([empty, *(a for a, _ in pairs)]), np.concatenate([empty, *(b for _, b in pairs)])


def _spans(topology: Topology, kind: str, size: str) -> dict[int, np.ndarray]:
    """The rows of arrays of length `size` that belong to each object of a kind; objects without rows are left out."""
    if size == "nhistory":
        buffers = BUFFERS[kind](topology) if kind in BUFFERS else ()
        return {int(owner): place for b in buffers for owner, place in zip(b.owners, b.places, strict=True)}
    if KINDS[kind].size == size:
        return {index: np.asarray([index]) for index in range(getattr(topology, size))}
    block = next((block for block in KINDS[kind].blocks if block.size == size), None)
    if block is None:
        return {}
    first = getattr(topology, block.first)
    count = np.ones(len(first), int) if block.number is None else block.counts(topology)
    return {k: first[k] + np.arange(count[k]) for k in np.flatnonzero(first >= 0).tolist()}


def _keys(topology: Topology, kind: str, numbers: dict[Hashable, int]) -> list[int]:
    """A number for each object of a kind: the same for the same object in both models, which share `numbers`."""
    bodies = _keys(topology, "body", numbers) if kind == "joint" else []
    keys: list[int] = []
    nameless: Counter[Hashable] = Counter()
    for index in range(getattr(topology, KINDS[kind].size)):
        place: tuple[int, ...] = ()
        if kind == "joint":
            place = (int(topology.jnt_type[index]), bodies[topology.jnt_bodyid[index]])
        if kind == "body" and index:
            place = (keys[topology.body_parentid[index]],)
        name = topology.name(kind, index)
        key = (kind, place[:-1], name) if name else (kind, place, nameless[place])
        nameless[place] += not name
        keys.append(numbers.setdefault(key, len(numbers)))
    return keys
