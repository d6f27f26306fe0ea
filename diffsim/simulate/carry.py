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

from diffsim.checked import checked
from diffsim.simulate.arguments import check_record
from diffsim.types import Inputs, Model, State
from diffsim.types.history import buffer_size
from diffsim.types.kinds import KINDS, Block
from diffsim.types.state import make_inputs, make_state
from diffsim.types.topology import Topology


def _sensor_buffers(topology: Topology) -> np.ndarray:
    return buffer_size(topology.sensor_history.reshape(-1, 2)[:, 0], topology.sensor_dim)


# buffers of delays, beside the blocks of KINDS
BUFFERS = {
    "actuator": Block(
        "nhistory", "actuator_historyadr", lambda t: buffer_size(t.actuator_history.reshape(-1, 2)[:, 0], 1)
    ),
    "sensor": Block("nhistory", "sensor_historyadr", _sensor_buffers),
}


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
        given, first = getattr(record, field.name), getattr(start, field.name)
        if field.metadata["shape"]:
            source, target = _rows(old.topology, new.topology, field.metadata["shape"][0])
            given = first.at[target].set(given[source])
        carried[field.name] = given
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
    blocks = [block for block in (*KINDS[kind].blocks, BUFFERS.get(kind)) if block is not None and block.size == size]
    if KINDS[kind].size != size and not blocks:
        return
    for a, b in _same(old, new, kind):
        if KINDS[kind].size == size:
            yield np.asarray([a]), np.asarray([b])
        for block in blocks:
            source, target = _span(old, block, a), _span(new, block, b)
            if len(source) == len(target):
                yield source, target


def _span(topology: Topology, block: Block, index: int) -> np.ndarray:
    """The rows of a block that an object has."""
    first = int(getattr(topology, block.first)[index])
    count = 1 if block.number is None else int(block.counts(topology)[index])
    return first + np.arange(count if first >= 0 else 0)


def _same(old: Topology, new: Topology, kind: str) -> list[tuple[int, int]]:
    """Indices of the objects that both models have."""
    numbers: dict[Hashable, int] = {}
    known = {key: index for index, key in enumerate(_keys(old, kind, numbers))}
    found = [(known.get(key), index) for index, key in enumerate(_keys(new, kind, numbers))]
    return [(a, b) for a, b in found if a is not None]


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
