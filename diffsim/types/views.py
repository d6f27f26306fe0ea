"""Views: one object, with its part of each field of the model, a state or Data, under short names.

    hip = model.joint("hip")
    hip.id, hip.range, hip.dofadr          # fields of the model: jnt_range, jnt_dofadr
    hip.qpos(state), hip.xaxis(data)       # fields of another record: the hip's part
    state = hip.write(state, qpos=0.3)     # a changed copy; also model = hip.replace(damping=0.1)

A short name is the name of mjModel or mjData without its prefix: `model.geom("foot").friction` is `geom_friction`. Full
names work too. The fields of each kind follow from the shapes that records declare and from types/kinds.py.
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

# the record classes whose fields views can read; if two have a field with the same short name, the first one counts
_VIEWED: list[type] = []


def viewed(cls: C) -> C:
    """A class decorator that lets views read the fields of a record."""
    _VIEWED.append(cls)
    fields_of.cache_clear()
    return cls


class Field(NamedTuple):
    """A field that views can read.

    Attributes:
      name: its full name.
      owner: the class that declares it.
      block: the block of rows to which it belongs (`kinds.Block`); None if it has one row per object.
    """

    name: str
    owner: type
    block: Block | None


class View:
    """One object of a model. Functions that take an index also take a view; to index an array, use `view.id`.

    Attributes:
      model: the model.
      kind: the kind of object, a key of `diffsim.types.kinds.KINDS`.
      id: the index of the object.
    """

    __slots__ = ("id", "kind", "model")

    def __init__(self, model: Any, kind: str, which: "str | int | View") -> None:
        topology = getattr(model, "topology", None)
        if not isinstance(topology, Topology):
            raise TypeError(f"model is a {type(model).__name__}, expected Model, such as diffsim.load(path)")
        index = topology.index(kind, which if isinstance(which, str) else operator.index(which))
        self.model = model
        self.kind = kind
        self.id = index

    @property
    def name(self) -> str:
        """The object's name, "" if it has none."""
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
          record: the record with the field: State, Inputs, Data, the record of a stage, or a Model.
          field: the short or full name.

        Returns:
          The object's row, if the field has one row per object (`xpos` (3,) of a body), else its rows (`qpos` (1,) of a
          hinge, (7,) of a free joint). A batch has its axes first.

        Raises:
          AttributeError: the field does not exist; the message suggests similar ones.
          TypeError: another record has it.
        """
        declared = _declared(record, self.kind, field)
        rank = len(declared.metadata["shape"])
        return getattr(record, declared.name)[(..., self.rows(field), *[slice(None)] * (rank - 1))]

    def write(self, record: R, **values: Any) -> R:
        """A copy of a record with other values of this object: `state = hip.write(state, qpos=0.3)`.

        Raises:
          AttributeError, TypeError: as `read`.
          ValueError: a value has a wrong shape.
        """
        for field, value in values.items():
            record = write_named(self.model, self.kind, record, field, {self.id: value})
        return record

    def replace(self, **values: Any) -> Any:
        """A copy of the model with other values of this object: `model = model.body("torso").replace(mass=2.0)`.

        Call `diffsim.set_const` afterwards to update the fields that depend on these values.

        Raises:
          AttributeError: the model has no such field.
          ValueError: a value has a wrong shape.
        """
        return self.write(self.model, **values)

    def rows(self, field: str) -> int | slice:
        """The object's row or rows in the array of a field.

        Raises:
          AttributeError: the field does not exist.
          ValueError: the object has no row (`mocap_pos` of most bodies).
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
    """The method of Model that returns views of a kind: `model.joint(name)`."""

    def look_up(model: Any, which: str | int) -> View:
        return View(model, kind, which)

    look_up.__name__ = look_up.__qualname__ = kind
    look_up.__doc__ = f"A `View` of the {kind} with a name or index; raises KeyError if there is none."
    return look_up


def write_named(model: Any, kind: str, record: R, field: str, values: Mapping[Any, Any]) -> R:
    """A copy of a record in which some objects have other values of a field.

    Args:
      model: the model.
      kind: the kind of the objects, such as "joint".
      record: State, Inputs, Model or another record, or a batch of them.
      field: the short or full name of the field.
      values: values by the object's name or index; each broadcasts to the object's part of the field.

    Raises:
      KeyError: no object has this name.
      ValueError: a value has a wrong shape.
    """
    expect(values, "values", "a dictionary of values by name or index", "items")
    name = _find(kind, field).name
    rank = len(_declared(record, kind, field).metadata["shape"])
    array = jnp.asarray(getattr(record, name))
    axis = array.ndim - rank
    indices = [np.zeros(0, int)]
    parts = [jax.lax.slice_in_dim(array, 0, 0, axis=axis)]
    for which, value in values.items():
        view = View(model, kind, which)
        rows = np.atleast_1d(np.arange(array.shape[axis])[view.rows(field)])
        shape = view.read(record, field).shape
        try:
            # refuse one number for the qpos of a ball or free joint: it would make a quaternion of equal components
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
    """The dataclass field of `record` with the short or full name `field` for objects of a kind.

    Raises:
      TypeError: another record has this field.
    """
    name, owner, _ = _find(kind, field)
    declared = {f.name: f for f in dataclasses.fields(record)} if isinstance(record, Record) else {}  # type: ignore[arg-type]
    if name not in declared:
        raise TypeError(f"{name} is a field of {owner.__name__}, not of {type(record).__name__}")
    return declared[name]


@functools.cache
def fields_of(kind: str) -> dict[str, Field]:
    """The fields of a kind by short and by full name; if two fields share a short name, it means the first one."""
    row = KINDS[kind]
    blocks: dict[str, Block | None] = {row.size: None, **{block.size: block for block in row.blocks}}
    # integer fields declare no shapes: those with several rows per object are listed, others are found by their prefix
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
    """The kind of object to which the rows of a field belong, given its full name; None if there is none."""
    return next((kind for kind in KINDS if field in fields_of(kind)), None)


def named_rows(model: Any, field: str, count: int, objects: Any, argument: str) -> list[np.ndarray]:
    """The rows (k,) of each of some objects in a field of the model.

    Args:
      model: the model.
      field: the full name of the field.
      count: number of rows of the field.
      objects: name or index of an object, or several of them.
      argument: name of the argument with which the user asked for objects, for the message.

    Raises:
      ValueError: the rows of this field do not belong to objects.
      KeyError: no object has this name.
    """
    kind = kind_of(field)
    if kind is None:
        raise ValueError(f"{field} has no named objects; leave out {argument!r}")
    every = np.arange(count)
    chosen = (objects,) if isinstance(objects, str | int) else objects
    return [np.atleast_1d(every[View(model, kind, which).rows(field)]) for which in chosen]


def _find(kind: str, word: str) -> Field:
    """The field of a kind with this short or full name; raises AttributeError if there is none."""
    fields = fields_of(kind)
    if word not in fields:
        raise AttributeError(f"a {kind} has no field {word!r}{near(word, fields)}")
    return fields[word]


def sensor(model: Any, data: Record, name: str | int) -> Array:
    """The reading of a sensor, its part of `data.sensordata`: `diffsim.sensor(model, data, "imu")`.

    Args:
      model: the model.
      data: the Data of `diffsim.forward` or `diffsim.step_data`, or a batch.
      name: name or index of the sensor.

    Returns:
      (dim,) the reading; a batch has its axes first.

    Raises:
      KeyError: no sensor has this name; the message suggests similar ones.
    """
    return View(model, "sensor", name).read(data, "sensordata")
