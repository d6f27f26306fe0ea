"""Records: frozen dataclasses that are pytrees, each field declared once with its shape.

A field made by `leaf("nbody", 3)` is an array and a child of the pytree; a field made by `static()` shapes the
program and is part of the tree structure (it must be hashable and compare by value). The declared shape uses
MuJoCo's size names and drives checking, packing and documentation, so that no second table exists.
"""

import dataclasses
from collections.abc import Callable, Iterable
from enum import Enum
from typing import TYPE_CHECKING, Any, Self, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.errors import near_match

C = TypeVar("C", bound=type)


def leaf(*shape: str | int, dtype: type = float, switch: bool = False, derived: bool = False) -> Any:
    """Declares an array field.

    Args:
      shape: sizes by MuJoCo's name (`"nbody"`) or number.
      dtype: `float` (float32, or float64 under x64), `int` (int32) or `bool`.
      switch: a value of zero removes code from the compiled program (see `Topology.present`).
      derived: computed from other fields by `set_const`.
    """
    metadata = {"shape": shape, "dtype": dtype, "switch": switch, "derived": derived}
    return dataclasses.field(metadata=metadata)


def static(legal: Callable[[Any], Any] | None = None, **options: Any) -> Any:
    """Declares a field that is part of the program, not of the numbers.

    `legal` makes a legal value of what a user gives to `replace`, or raises ValueError.
    """
    return dataclasses.field(metadata={"static": True, "legal": legal}, **options)


def one_of(enum: type[Enum]) -> Callable[[Any], Any]:
    """Legal values of an enum: a member, its number, or its name in any case."""

    def legal(value: Any) -> Any:
        if isinstance(value, str):
            members = {name.lower(): member for name, member in enum.__members__.items()}
            if value.lower() in members:
                return members[value.lower()]
            raise ValueError(f"{value!r} is none of {', '.join(enum.__members__)}{near(value.lower(), members)}")
        return enum(value)

    return legal


def whole_number(value: Any) -> int:
    """A number of iterations or bits: an integer that is not negative.

    Raises:
      ValueError: anything else.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
        raise ValueError(f"{value!r} is not a whole number, zero or more")
    return int(value)


def child() -> Any:
    """Declares a field that is itself a record."""
    return dataclasses.field(metadata={"child": True})


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(leaf, static, child))
def record(cls: C) -> C:
    """Makes a class a frozen, keyword-only dataclass and a pytree."""
    cls = dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)(cls)  # type: ignore[assignment]
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    meta = [f.name for f in fields if f.metadata.get("static")]
    data = [f.name for f in fields if not f.metadata.get("static")]
    jax.tree_util.register_dataclass(cls, data_fields=data, meta_fields=meta)
    return cls


class Record:
    """What all records share: a readable repr and field lists."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Says where a field is that stands elsewhere: `data.qpos`, `state.ctrl`."""
            raise AttributeError(
                f"{type(self).__name__} has no field {name!r}{elsewhere(self, name)}", name=name, obj=self
            )

    def __repr__(self) -> str:
        shown = [f"  {f.name}: {_describe(getattr(self, f.name))}" for f in dataclasses.fields(self)]  # type: ignore[arg-type]
        return "\n".join([f"{type(self).__name__}(", *shown, ")"])

    def replace(self, **fields: Any) -> Self:
        """A copy with some fields changed; names, shapes (trailing) and dtypes are checked against the old values.

        A leading batch axis may be added to a leaf, for use under `vmap`.

        Raises:
          TypeError: an unknown field. ValueError: a shape that does not end with the field's shape.
        """
        known = {f.name: f for f in dataclasses.fields(self)}  # type: ignore[arg-type]
        unknown = sorted(set(fields) - set(known))
        if unknown:
            raise TypeError(f"{type(self).__name__} has no field {unknown[0]!r}{elsewhere(self, unknown[0])}")
        checked = {name: conform(known[name], getattr(self, name), value) for name, value in fields.items()}
        return dataclasses.replace(self, **checked)  # type: ignore[type-var]


# names of MuJoCo's Python and of MJX for what is reached in another way
HABITS = {
    "keyframe": "use model.key(name) for its numbers, diffsim.make_state(model, name) to start there",
    "ncon": "diffsim.support.contacts(model, data) lists contacts as MuJoCo does",
    "nefc": "diffsim.support.efc(model, data) lists constraint rows as MuJoCo does",
    "sensor": "use data.sensordata, or model.sensor(name).data(data)",
    "bind": "use views, such as model.joint(name).qpos(state)",
}


def elsewhere(owner: Record, name: str) -> str:
    """Where a field is that `owner` does not have, or what is called nearly so, as the end of a message."""
    if name.startswith("_"):
        return ""
    if name in HABITS:
        return f"; {HABITS[name]}"
    for place, cls in _PLACES.items():
        if name in cls.__dataclass_fields__ and not isinstance(owner, cls):
            return f"; it is in {cls.__name__}: {place}.{name}"
    return near(name, [f.name for f in dataclasses.fields(owner)])  # type: ignore[arg-type]


# records that users hold, by what they are mostly called
_PLACES: dict[str, Any] = {}


def held_as(variable: str) -> Callable[[C], C]:
    """Names the variable in which users have a record, for messages about fields that they look for elsewhere."""

    def note(cls: C) -> C:
        _PLACES[variable] = cls
        return cls

    return note


def conform(field: dataclasses.Field, old: Any, new: Any) -> Any:
    """`new` as a legal value of a field that holds `old`: array of the same dtype and trailing shape."""
    if field.metadata.get("static"):
        return _legal(field, new)
    if field.metadata.get("child"):
        if type(new) is not type(old):
            raise TypeError(f"{field.name} must be a {type(old).__name__}, got {type(new).__name__}")
        return new
    array = new if isinstance(new, jax.Array | np.ndarray) else np.asarray(new)
    # the old value may be a placeholder of a transformation (vmap axes, sharding): nothing to compare with
    if not hasattr(old, "shape"):
        return new
    rank = len(field.metadata.get("shape", old.shape))
    expected = old.shape[len(old.shape) - rank :]
    if array.shape[len(array.shape) - rank :] != expected or array.ndim < rank:
        raise ValueError(f"{field.name} has shape {tuple(expected)}, got {tuple(array.shape)}")
    if np.issubdtype(array.dtype, np.complexfloating) and not np.issubdtype(old.dtype, np.complexfloating):
        raise ValueError(f"{field.name} is {old.dtype}, got {array.dtype}")
    return jnp.asarray(array, dtype=old.dtype)


def _legal(field: dataclasses.Field, value: Any) -> Any:
    """What a user gave for a static field, made legal."""
    legal = field.metadata.get("legal")
    try:
        return value if legal is None else legal(value)
    except ValueError as error:
        raise ValueError(f"{field.name}: {error}") from None


def near(name: str, known: Iterable[str], listed: int = 0) -> str:
    """The near match of a misspelt name, or all names if they are few, as the end of a message; empty if neither."""
    hint = near_match(name, known, listed)
    return f"; {hint}" if hint else ""


def _describe(value: Any) -> str:
    if isinstance(value, jax.Array | np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    return repr(value).replace("\n", "\n  ")
