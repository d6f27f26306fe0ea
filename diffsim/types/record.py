"""Records: frozen dataclasses that are pytrees, in which each field is declared with its shape."""

import dataclasses
from collections.abc import Callable, Collection, Iterable
from enum import Enum
from typing import TYPE_CHECKING, Any, Self, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.errors import near_match

C = TypeVar("C", bound=type)
T = TypeVar("T")


def leaf(*shape: str | int, dtype: type = float, switch: bool = False, derived: bool = False, old: Any = None) -> Any:
    """Declares an array field.

    Args:
      shape: each size as MuJoCo's name (`"nbody"`) or as a number.
      dtype: `float` (float32, or float64 under x64), `int` (int32) or `bool`.
      switch: whether the field has no code in the compiled program while it is zero (see `Topology.present`).
      derived: whether `set_const` computes the field from other fields.
      old: the value of each row in records from files that were saved before the field existed.
    """
    metadata = {"shape": shape, "dtype": dtype, "switch": switch, "derived": derived, "old": old}
    return dataclasses.field(metadata=metadata)


def static(legal: Callable[[Any], Any] | None = None, **options: Any) -> Any:
    """Declares a static field, which is part of the program: other values need another compilation.

    `legal` checks and converts a value that a user gives to `replace`, or raises ValueError.
    """
    return dataclasses.field(metadata={"static": True, "legal": legal}, **options)


def one_of(enum: type[Enum]) -> Callable[[Any], Any]:
    """A converter for `static`: a member of the enum from a member, its number, or its name in any case."""

    def legal(value: Any) -> Any:
        if isinstance(value, str):
            members = {name.lower(): member for name, member in enum.__members__.items()}
            if value.lower() in members:
                return members[value.lower()]
            raise ValueError(f"{value!r} is not one of {', '.join(enum.__members__)}{near(value.lower(), members)}")
        return enum(value)

    return legal


def one_word(words: Collection[str]) -> Callable[[Any], str]:
    """A converter for `static` that accepts only these words."""

    def legal(value: Any) -> str:
        if value not in words:
            raise ValueError(f"{value!r} is not one of {', '.join(words)}{near(str(value), words)}")
        return value

    return legal


def whole_number(value: Any) -> int:
    """A converter for `static`: an integer that is not negative, such as a number of iterations.

    Raises:
      ValueError: the value is anything else.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
        raise ValueError(f"{value!r} is not a whole number, zero or more")
    return int(value)


def child() -> Any:
    """Declares a field that is itself a record."""
    return dataclasses.field(metadata={"child": True})


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(leaf, static, child))
def record(cls: C) -> C:
    """A class decorator: makes the class a frozen, keyword-only dataclass and a pytree."""
    cls = dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)(cls)  # type: ignore[assignment]
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    meta = [f.name for f in fields if f.metadata.get("static")]
    data = [f.name for f in fields if not f.metadata.get("static")]
    jax.tree_util.register_dataclass(cls, data_fields=data, meta_fields=meta)
    cls.__setattr__ = _refuse_assignment  # type: ignore[assignment]
    return cls


def _refuse_assignment(self: Any, name: str, value: Any) -> None:
    """Raises FrozenInstanceError: records are immutable. The message says how to make a changed copy."""
    cls = type(self)
    variable = next((variable for variable, known in _PLACES.items() if known is cls), cls.__name__.lower())
    change = f"{variable}.replace({name}=...)"
    # a record within a record, such as `model.opt`
    while "." in variable:
        variable, _, field = variable.rpartition(".")
        change = f"{variable}.replace({field}={change})"
    raise dataclasses.FrozenInstanceError(f"{cls.__name__} is immutable; write {variable} = {change}")


class Record:
    """Base class of records: a readable repr, `replace`, and messages for fields that do not exist."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Raises AttributeError; the message says where the field is, if another record has it (`data.qpos`)."""
            raise AttributeError(
                f"{type(self).__name__} has no field {name!r}{elsewhere(self, name)}", name=name, obj=self
            )

    def __repr__(self) -> str:
        def shown(value: Any) -> str:
            array = isinstance(value, jax.Array | np.ndarray)
            return f"{value.dtype}{list(value.shape)}" if array else repr(value).replace("\n", "\n  ")

        lines = [f"  {f.name}: {shown(getattr(self, f.name))}" for f in dataclasses.fields(self)]  # type: ignore[arg-type]
        return "\n".join([f"{type(self).__name__}(", *lines, ")"])

    def replace(self, **fields: Any) -> Self:
        """A copy with some fields changed; names, dtypes and the last axes of shapes are checked.

        A leaf may get a leading batch axis, for use under `vmap`.

        Raises:
          TypeError: a field does not exist. ValueError: a shape does not end with the field's shape.
        """
        known = {f.name: f for f in dataclasses.fields(self)}  # type: ignore[arg-type]
        unknown = sorted(set(fields) - set(known))
        if unknown:
            raise TypeError(f"{type(self).__name__} has no field {unknown[0]!r}{elsewhere(self, unknown[0])}")
        checked = {name: conform(known[name], getattr(self, name), value) for name, value in fields.items()}
        return dataclasses.replace(self, **checked)  # type: ignore[type-var]


# A URDF cannot contain actuators, so this is often the first message that users of a URDF see.
NO_ACTUATORS = (
    "; the model has no actuators (a URDF has none): add them to its Spec before compiling, such as "
    'spec = diffsim.mjcf.read(path); spec.actuator.add("motor", name="m", joint="..."); model = diffsim.compile(spec)'
)

# attributes of MuJoCo's Python bindings and of MJX that records lack, and what to use instead
HABITS = {
    "keyframe": "use model.key(name) for its numbers, diffsim.make_state(model, name) to start there",
    "ncon": "diffsim.support.contacts(model, data) lists contacts as MuJoCo does",
    "nefc": "diffsim.support.efc(model, data) lists constraint rows as MuJoCo does",
    "sensor": "use data.sensordata, or model.sensor(name).data(data)",
    "bind": "use views, such as model.joint(name).qpos(state)",
}


def elsewhere(owner: Record, name: str, known: Iterable[str] = ()) -> str:
    """The end of a message about a field that `owner` lacks: which record has it, or which name is similar.

    Args:
      owner: the record.
      name: the field.
      known: names to compare with; by default the fields of the record.
    """
    if name.startswith("_"):
        return ""
    if name in HABITS:
        return f"; {HABITS[name]}"
    for place, cls in _PLACES.items():
        if name in cls.__dataclass_fields__ and not isinstance(owner, cls):
            return f"; it is in {cls.__name__}: {place}.{name}"
    return near(name, known or [f.name for f in dataclasses.fields(owner)])  # type: ignore[arg-type]


# records that users have in variables, by the usual names of these variables
_PLACES: dict[str, Any] = {}


def held_as(variable: str) -> Callable[[C], C]:
    """A class decorator that notes the usual variable name of a record, for messages about fields of other records."""

    def note(cls: C) -> C:
        _PLACES[variable] = cls
        return cls

    return note


def conform(field: dataclasses.Field, old: Any, new: Any) -> Any:
    """The value `new`, checked and converted for a field whose value is `old`.

    Raises:
      TypeError: the field is a record, and `new` is not one of its class.
      ValueError: the shape does not end with the shape of `old`, or a static value is not allowed.
    """
    if field.metadata.get("static"):
        legal = field.metadata.get("legal")
        try:
            return new if legal is None else legal(new)
        except ValueError as error:
            raise ValueError(f"{field.name}: {error}") from None
    if field.metadata.get("child"):
        if type(new) is not type(old):
            raise TypeError(f"{field.name} must be a {type(old).__name__}, got {type(new).__name__}")
        return new
    array = new if isinstance(new, jax.Array | np.ndarray) else np.asarray(new)
    # the old value may be a placeholder of a transformation (axes of vmap, a sharding), without a shape to compare
    if not hasattr(old, "shape"):
        return new
    rank = len(field.metadata.get("shape", old.shape))
    expected = old.shape[len(old.shape) - rank :]
    if array.shape[len(array.shape) - rank :] != expected or array.ndim < rank:
        hint = NO_ACTUATORS if field.metadata.get("shape") == ("nu",) and expected == (0,) else ""
        raise ValueError(f"{field.name} has shape {tuple(expected)}, got {tuple(array.shape)}{hint}")
    if np.issubdtype(array.dtype, np.complexfloating) and not np.issubdtype(old.dtype, np.complexfloating):
        raise ValueError(f"{field.name} is {old.dtype}, got {array.dtype}")
    return jnp.asarray(array, dtype=old.dtype)


def near(name: str, known: Iterable[str], listed: int = 0) -> str:
    """The end of a message about a misspelt name: a similar name, or all names if they are few; "" if neither."""
    hint = near_match(name, known, listed)
    return f"; {hint}" if hint else ""
