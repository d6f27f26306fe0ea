"""carry_over: the state or inputs of one model for another model, for example after an edit of its spec.

Objects that both models have keep their values, as in mj_recompile. Two objects are the same if they have the same
name. Objects without a name are the same if they have the same index among the unnamed objects of their kind; for
bodies, among the unnamed children of one parent; for joints, among the unnamed joints of one type on one body.
"""

import dataclasses
from collections import Counter
from collections.abc import Hashable
from typing import overload

import numpy as np

from diffsim.base.checked import checked
from diffsim.simulate.arguments import check_record
from diffsim.types import Inputs, Model, State
from diffsim.types.history import control_buffers, sensor_buffers
from diffsim.types.kinds import KINDS
from diffsim.types.state import make_inputs, make_state
from diffsim.types.topology import Topology

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
