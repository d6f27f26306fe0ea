"""Views: one object of a model, with what the model, a state or Data hold of it under short names.

    hip = model.joint("hip")
    hip.id, hip.range, hip.dofadr          # of the model: jnt_range, jnt_dofadr
    hip.qpos(state), hip.xaxis(data)       # of a record: the part that belongs to the hip
    state = hip.write(state, qpos=0.3)     # a changed copy; also model = hip.replace(damping=0.1)

A short name is mjModel's or mjData's without the prefix of its kind (`geom_friction`: `model.geom("foot").friction`);
full names work too. Which fields a kind has follows from the shapes that records declare and from types/kinds.py.
"""

import dataclasses
import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.errors import expect
from diffsim.types.kinds import KINDS, SHARED, Block
from diffsim.types.record import Record, near
from diffsim.types.topology import Topology

C = TypeVar("C", bound=type)
R = TypeVar("R", bound=Record)

# classes whose fields views show, in the order in which short names are given
_VIEWED: list[type] = []


def viewed(cls: C) -> C:
    """Lets views read the fields of a record class."""
    _VIEWED.append(cls)
    fields_of.cache_clear()
    return cls


class Field(NamedTuple):
    """A field that has parts of objects: where it is declared, and the block of rows that it belongs to, if any."""

    name: str
    owner: type
    block: Block | None


class View:
    """An object of a model, by kind and index. Functions that take an index take a view, arrays take `view.id`.

    Attributes:
      model: the model it was asked of.
      kind: a key of `diffsim.types.kinds.KINDS`.
      id: its index.
    """

    __slots__ = ("id", "kind", "model")

    def __init__(self, model: Any, kind: str, which: "str | int | View") -> None:
        topology = getattr(model, "topology", None)
        if not isinstance(topology, Topology):
            raise TypeError(f"model is a {type(model).__name__}, expected Model, such as diffsim.load(path)")
        index = topology.index(kind, which if isinstance(which, str) else operator.index(which))
        self.model, self.kind, self.id = model, kind, index

    @property
    def name(self) -> str:
        """The object's name, empty if it has none."""
        return self.model.topology.name(self.kind, self.id)

    def __index__(self) -> int:
        return self.id

    def __getattr__(self, word: str) -> Any:
        if word.startswith("_"):
            raise AttributeError(word)
        field = _find(self.kind, word)
        if field.owner is Topology:
            value = getattr(self.model.topology, field.name)[self.rows(word)]
            return value if np.ndim(value) else int(value)
        if isinstance(self.model, field.owner):
            return self.read(self.model, word)
        return functools.partial(self.read, field=word)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *fields_of(self.kind)]

    def __repr__(self) -> str:
        fields = [f for f in dict.fromkeys(fields_of(self.kind).values()) if isinstance(self.model, f.owner)]
        shown = [f"  {f.name}: {getattr(self, f.name)}".replace("\n", "\n    ") for f in fields]
        return "\n".join([f"{self.kind} {self.id} {self.name!r}", *shown])

    def read(self, record: Record, field: str) -> Array:
        """The object's part of a field of a record, or of a batch of records.

        Args:
          record: what holds the field: State, Inputs, Data, a stage's record or a Model.
          field: a short or a full name.

        Returns:
          A row of arrays with a row for each object (`xpos` (3,) of a body), several rows of others (`qpos` (1,) of a
          hinge, (7,) of a free joint); with the axes of the batch before.

        Raises:
          AttributeError: no such field; the message lists near matches. TypeError: it is not in this record.
        """
        declared = _declared(record, self.kind, field)
        rank = len(declared.metadata["shape"])
        return getattr(record, declared.name)[(..., self.rows(field), *[slice(None)] * (rank - 1))]

    def write(self, record: R, **values: Any) -> R:
        """A copy of a record in which the object's parts of some fields have other values.

        Raises:
          AttributeError, TypeError: as `read`. ValueError: a value of a wrong shape.
        """
        for field, value in values.items():
            record = write_named(self.model, self.kind, record, field, {self.id: value})
        return record

    def replace(self, **values: Any) -> Any:
        """The model with other values of this object: `model = model.body("torso").replace(mass=2.0)`.

        What follows from them is computed again by `diffsim.set_const`.

        Raises:
          AttributeError: no such field of the model. ValueError: a value of a wrong shape.
        """
        return self.write(self.model, **values)

    def rows(self, field: str) -> int | slice:
        """The rows of a field's array that are the object's: its own, or those of its block.

        Raises:
          AttributeError: no such field. ValueError: the object has none (`mocap_pos` of a body that is none).
        """
        name, _, block = _find(self.kind, field)
        if block is None:
            return self.id
        topology = self.model.topology
        first = int(getattr(topology, block.first)[self.id])
        if block.number is None and first < 0:
            raise ValueError(f"{self.kind} {self.name or self.id!r} has no {name}: its {block.first} is -1")
        if block.number is None:
            return first
        return slice(max(first, 0), max(first, 0) + int(block.counts(topology)[self.id]))


def named(kind: str) -> Callable[..., View]:
    """The method of Model that gives views of a kind."""

    def look_up(model: Any, which: str | int) -> View:
        return View(model, kind, which)

    look_up.__name__ = look_up.__qualname__ = kind
    look_up.__doc__ = f"The {kind} of a name or index, as a `View`; a KeyError lists near matches."
    return look_up


def write_named(model: Any, kind: str, record: R, field: str, values: Mapping[Any, Any]) -> R:
    """A copy of a record with other values of a field for some objects of a kind.

    Args:
      model: the model.
      kind: of the objects, such as "joint".
      record: State, Inputs, Model ..., or a batch of them.
      field: a short or full name.
      values: by name or index; each broadcasts to the object's part.

    Raises:
      KeyError: no object of a name. ValueError: a value of a wrong shape.
    """
    expect(values, "values", "a dictionary of values by name or index", "items")
    name = _find(kind, field).name
    rank = len(_declared(record, kind, field).metadata["shape"])
    array = jnp.asarray(getattr(record, name))
    axis = array.ndim - rank
    indices, parts = [np.zeros(0, int)], [jax.lax.slice_in_dim(array, 0, 0, axis=axis)]
    for which, value in values.items():
        view = View(model, kind, which)
        rows = np.atleast_1d(np.arange(array.shape[axis])[view.rows(field)])
        shape = view.read(record, field).shape
        try:
            # one number for a whole pose would be a quaternion of equal parts
            number = name == "qpos" and len(rows) > 1 and not np.ndim(value)
            part = jnp.broadcast_to(jnp.zeros(2) if number else jnp.asarray(value, array.dtype), shape)
        except ValueError:
            message = f"{name} of {kind} {which!r}: expected shape {shape}, got {tuple(np.shape(value))}"
            raise ValueError(message) from None
        indices.append(rows)
        parts.append(part.reshape(*array.shape[:axis], len(rows), *array.shape[axis + 1 :]))
    place = (..., np.concatenate(indices), *[slice(None)] * (rank - 1))
    return record.replace(**{name: array.at[place].set(jnp.concatenate(parts, axis=axis))})


def _declared(record: Record, kind: str, field: str) -> dataclasses.Field:
    """How a record declares a field of views of a kind."""
    name, owner, _ = _find(kind, field)
    declared = {f.name: f for f in dataclasses.fields(record)} if isinstance(record, Record) else {}  # type: ignore[arg-type]
    if name not in declared:
        raise TypeError(f"{name} is a field of {owner.__name__}, {type(record).__name__} was given")
    return declared[name]


@functools.cache
def fields_of(kind: str) -> dict[str, Field]:
    """Fields by short and by full name; where two have the same short name it is that of the first."""
    row = KINDS[kind]
    blocks: dict[str, Block | None] = {row.size: None, **{block.size: block for block in row.blocks}}
    # the integer fields, which declare no shapes
    inside = {name: block for block in row.blocks for name in block.integers}
    arrays = [f.name for f in dataclasses.fields(Topology) if f.type is np.ndarray and f.name not in SHARED]
    names = [name for name in arrays if name.startswith(row.prefixes[0]) and name not in inside]
    fields = [Field(name, Topology, inside.get(name)) for name in [*names, *inside]]
    for cls in _VIEWED:
        sizes = {f.name: f.metadata["shape"][:1] for f in dataclasses.fields(cls) if f.metadata.get("shape")}
        fields += [Field(name, cls, blocks[size]) for name, (size,) in sizes.items() if size in blocks]
    short: dict[str, Field] = {}
    for field in fields:
        prefix = next((p for p in row.prefixes if field.name.startswith(p)), "")
        short.setdefault(field.name.removeprefix(prefix), field)
    return short | {field.name: field for field in fields}


def kind_of(field: str) -> str | None:
    """The kind whose objects have parts of a field, by its full name; None if there is no such kind."""
    return next((kind for kind in KINDS if field in fields_of(kind)), None)


def named_rows(model: Any, field: str, count: int, objects: Any, argument: str) -> list[np.ndarray]:
    """The rows (k,) of each of some objects, by name or number, in a field of the model that has `count` rows.

    Raises:
      ValueError: the rows of the field belong to no objects: the `argument` that asks for some is to be left out.
      KeyError: no object of a name.
    """
    kind = kind_of(field)
    if kind is None:
        raise ValueError(f"{field} has no named objects; leave out {argument!r}")
    every = np.arange(count)
    chosen = (objects,) if isinstance(objects, str | int) else objects
    return [np.atleast_1d(every[View(model, kind, which).rows(field)]) for which in chosen]


def _find(kind: str, word: str) -> Field:
    fields = fields_of(kind)
    if word not in fields:
        raise AttributeError(f"a {kind} has no field {word!r}{near(word, fields)}")
    return fields[word]


def sensor(model: Any, data: Record, name: str | int) -> Array:
    """What a sensor shows: `diffsim.sensor(model, data, "imu")`, its part of `data.sensordata`.

    Args:
      model: the model.
      data: from `diffsim.forward` or `diffsim.step_data`; or a batch.
      name: of the sensor, or its index.

    Returns:
      (dim,), with the axes of the batch before.

    Raises:
      KeyError: no sensor of this name; the message lists near matches.
    """
    return View(model, "sensor", name).read(data, "sensordata")
