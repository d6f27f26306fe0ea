"""carry_over: a state or inputs of one model for another, as after an edit of its spec (mj_recompile).

What both models have keeps its values. Objects are the same if they have the same name; those without one if they are
at the same place: the same number among the nameless of their kind, of bodies among those of one parent, of joints
among those of one type of one body.
"""

import dataclasses
from collections import Counter
from collections.abc import Hashable, Iterator
from typing import overload

import numpy as np

from diffsim.base.checked import checked
from diffsim.simulate.arguments import check_record
from diffsim.types import Inputs, Model, State
from diffsim.types.history import control_buffers, sensor_buffers
from diffsim.types.kinds import KINDS
from diffsim.types.state import make_inputs, make_state
from diffsim.types.topology import Topology

# whose delays are kept in buffers, beside the blocks of KINDS
BUFFERS = {"actuator": control_buffers, "sensor": sensor_buffers}


@overload
def carry_over(old: Model, new: Model, record: State) -> State: ...
@overload
def carry_over(old: Model, new: Model, record: Inputs) -> Inputs: ...
@checked
def carry_over(old: Model, new: Model, record: State | Inputs) -> State | Inputs:
    """What a state or inputs of one model are for another.

        spec.body("torso").geoms.append(...)
        new = diffsim.compile(spec)
        state = support.carry_over(model, new, state)

    Args:
      old: the model that the record belongs to.
      new: another, such as the same after an edit.
      record: State or Inputs of `old`, of one world; batches by `jax.vmap`.

    Returns:
      The same for `new`: positions, velocities, activations, delays, controls, forces, mocap poses and equalities of
      objects that both have (of joints of the same type, actuators with as many activations, buffers of the same
      size), and the time; the rest as `make_state(new)` and `make_inputs(new)` have it.

    Raises:
      TypeError, ValueError: the record is not one of `old`.
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
    """Rows of arrays that `size` counts, of the old model and, one by one, of the new one, that belong together."""
    pairs = [pair for kind in KINDS for pair in _rows_of(old, new, kind, size)]
    if size == "nuserdata":
        common = np.arange(min(old.nuserdata, new.nuserdata))
        pairs.append((common, common))
    empty = np.zeros(0, int)
    return np.concatenate([empty, *(a for a, _ in pairs)]), np.concatenate([empty, *(b for _, b in pairs)])


def _rows_of(old: Topology, new: Topology, kind: str, size: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The rows of the objects of one kind that both models have."""
    before, after = _spans(old, kind, size), _spans(new, kind, size)
    for a, b in _same(old, new, kind) if after else []:
        if a in before and b in after and len(before[a]) == len(after[b]):
            yield before[a], after[b]


def _spans(topology: Topology, kind: str, size: str) -> dict[int, np.ndarray]:
    """The rows of arrays that `size` counts, of each object of a kind that has any."""
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


def _same(old: Topology, new: Topology, kind: str) -> list[tuple[int, int]]:
    """Indices of the objects that both models have."""
    numbers: dict[Hashable, int] = {}
    known = {key: index for index, key in enumerate(_keys(old, kind, numbers))}
    pairs = [(known.get(key), index) for index, key in enumerate(_keys(new, kind, numbers))]
    return [(a, b) for a, b in pairs if a is not None]


def _keys(topology: Topology, kind: str, numbers: dict[Hashable, int]) -> list[int]:
    """A number for each object, the same in both models for the same object; `numbers` are those given so far."""
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
