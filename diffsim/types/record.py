"""Records: frozen dataclasses that are pytrees, each field declared once with its shape; and their files.

A saved model, state or inputs is a file of arrays (npz). Nothing in it is code.
"""

import dataclasses
import io
import json
import lzma
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum, IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, dataclass_transform, get_type_hints

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.errors import MjcfError, Problem, near_match

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


def one_word(words: Collection[str]) -> Callable[[Any], str]:
    """Legal values of a choice that is a word."""

    def legal(value: Any) -> str:
        if value not in words:
            raise ValueError(f"{value!r} is none of {', '.join(words)}{near(str(value), words)}")
        return value

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
    cls.__setattr__ = _refuse_assignment  # type: ignore[assignment]
    return cls


def _refuse_assignment(self: Any, name: str, value: Any) -> None:
    """Records are immutable: says how to make a changed copy instead."""
    cls = type(self)
    variable = next((variable for variable, known in _PLACES.items() if known is cls), cls.__name__.lower())
    change = f"{variable}.replace({name}=...)"
    # a record within a record, such as `model.opt`
    holder, _, field = variable.rpartition(".")
    if holder:
        variable = holder
        change = f"{holder}.replace({field}={change})"
    raise dataclasses.FrozenInstanceError(f"{cls.__name__} is immutable; write {variable} = {change}")


class Record:
    """What all records share: a readable repr and field lists."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Says where a field is that stands elsewhere: `data.qpos`, `state.ctrl`."""
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


# a URDF cannot contain actuators, so this is often the first surprise with one
NO_ACTUATORS = (
    "; the model has no actuators (a URDF has none): add them to its Spec before compiling, such as "
    'spec = diffsim.mjcf.read(path); spec.actuator.add("motor", name="m", joint="..."); model = diffsim.compile(spec)'
)

# names of MuJoCo's Python and of MJX for what is reached in another way
HABITS = {
    "keyframe": "use model.key(name) for its numbers, diffsim.make_state(model, name) to start there",
    "ncon": "diffsim.support.contacts(model, data) lists contacts as MuJoCo does",
    "nefc": "diffsim.support.efc(model, data) lists constraint rows as MuJoCo does",
    "sensor": "use data.sensordata, or model.sensor(name).data(data)",
    "bind": "use views, such as model.joint(name).qpos(state)",
}


def elsewhere(owner: Record, name: str, known: Iterable[str] = ()) -> str:
    """Where a field is that `owner` does not have, or what of the known names is nearly so, as the end of a message."""
    if name.startswith("_"):
        return ""
    if name in HABITS:
        return f"; {HABITS[name]}"
    for place, cls in _PLACES.items():
        if name in cls.__dataclass_fields__ and not isinstance(owner, cls):
            return f"; it is in {cls.__name__}: {place}.{name}"
    return near(name, known or [f.name for f in dataclasses.fields(owner)])  # type: ignore[arg-type]


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
    # the old value may be a placeholder of a transformation (vmap axes, sharding): nothing to compare with
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
    """The near match of a misspelt name, or all names if they are few, as the end of a message; empty if neither."""
    hint = near_match(name, known, listed)
    return f"; {hint}" if hint else ""


VERSION = 6
MAGIC = b"PK\x03\x04"
SUFFIX = ".npz"

# arrays of a file may have this many bytes altogether
LARGEST = 2**30

# what a damaged file makes zipfile, zlib, json and numpy raise (RuntimeError: encrypted, nested too deep, odd methods)
DAMAGED = (
    OSError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    RuntimeError,
    SyntaxError,
    EOFError,
    MemoryError,
    struct.error,
    zipfile.BadZipFile,
    zipfile.LargeZipFile,
    zlib.error,
    lzma.LZMAError,
    tokenize.TokenError,
)

T = TypeVar("T")


def is_saved(source: Any) -> bool:
    """Whether this is the path of a saved model, and not of XML."""
    path = Path(source)
    try:
        # others, such as pipes, may wait for ever
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC or path.suffix == SUFFIX
    except (OSError, ValueError):
        return False


def save(record: Any, path: str | Path) -> None:
    """Writes a record of arrays and records, of a model its Topology too, to `path`."""
    arrays: dict[str, np.ndarray] = {}
    facts: dict[str, Any] = {}
    _take_apart("", record, arrays, facts)
    header = {"format": _format(type(record)), "version": VERSION, "digest": _digest(record), "facts": facts}
    arrays["facts"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    Path(path).write_bytes(buffer.getvalue())


def restore(cls: type[T], path: str | Path) -> T:
    """Reads what `save` wrote. Raises MjcfError if the file is damaged, or of another version or program."""
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(info.file_size for info in archive.infolist())
            if size > LARGEST:
                raise ValueError(f"it claims {size} bytes, more than {LARGEST}")
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        header = json.loads(arrays.pop("facts").tobytes())
        kind, version = str(header["format"]), header["version"]
    except DAMAGED as problem:
        raise _refused(path, f"not a saved {cls.__name__}, or damaged ({problem})") from None
    if kind != _format(cls):
        raise _refused(path, f"not a saved {cls.__name__}: it says {kind!r}")
    if version != VERSION:
        hint = "make it anew from its XML; numpy.load reads the arrays of the file"
        raise _refused(path, f"saved in format {version}, this diffsim reads format {VERSION}", hint)
    try:
        strange = [f"{name} of type {array.dtype}" for name, array in arrays.items() if array.dtype.kind not in "biuf"]
        if strange:
            raise ValueError(f"it has {strange[0]}")
        result = _put_together(cls, "", arrays, header["facts"])
        _check(result, header["digest"], path)
    except MjcfError:
        raise
    except DAMAGED as problem:
        raise _refused(path, f"does not fit this diffsim ({problem})") from None
    return result


def _refused(path: str | Path, message: str, hint: str = "save it again, or make it anew from its XML") -> MjcfError:
    return MjcfError([Problem(str(path), 0, "", message, hint)])


def _format(cls: type) -> str:
    return f"diffsim {cls.__name__.lower()}"


def _digest(record: Any) -> str | None:
    """The digest of a model's topology; other records have none."""
    return record.topology.digest if hasattr(record, "topology") else None


# ------------------------------------------------------------------------------------------------ fields and entries


def _take_apart(key: str, value: Any, arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> None:
    """Entries of a value: arrays, and facts that JSON can say."""
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            _take_apart(f"{key}{field.name}/", getattr(value, field.name), arrays, facts)
    elif isinstance(value, Mapping):
        for name, entry in value.items():
            _take_apart(f"{key}{name}/", entry, arrays, facts)
    elif isinstance(value, jax.Array | np.ndarray):
        arrays[key.rstrip("/")] = np.asarray(value)
    elif any(map(callable, jax.tree.leaves(value))):
        raise ValueError(f"{key.rstrip('/')} is a function: save the model without it and set it again")
    else:
        facts[key.rstrip("/")] = int(value) if isinstance(value, IntEnum) else value


def _put_together(cls: type[T], prefix: str, arrays: Mapping[str, np.ndarray], facts: Mapping[str, Any]) -> T:
    """An object of a dataclass from the entries below `prefix`."""
    hints = get_type_hints(cls)

    def value_of(field: dataclasses.Field) -> Any:
        hint, key = hints[field.name], prefix + field.name
        if dataclasses.is_dataclass(hint):
            return _put_together(hint, f"{key}/", arrays, facts)  # type: ignore[arg-type]
        if key in arrays:
            return jnp.asarray(arrays[key], dtype=float) if "shape" in field.metadata else arrays[key]
        if key in facts:
            is_enum = isinstance(hint, type) and issubclass(hint, Enum)
            return hint(facts[key]) if is_enum else _tuples(facts[key])
        inside = [name for entries in (arrays, facts) for name in entries if name.startswith(f"{key}/")]
        if not inside and field.default is not dataclasses.MISSING:
            return field.default
        if not inside:
            raise KeyError(f"'{key}' is missing")
        return {name[len(key) + 1 :]: arrays[name] if name in arrays else _tuples(facts[name]) for name in inside}

    return cls(**{field.name: value_of(field) for field in dataclasses.fields(cls)})  # type: ignore[arg-type]


def _tuples(value: Any) -> Any:
    """JSON's lists as tuples."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _check(record: Any, digest: str | None, path: str | Path) -> None:
    """The topology is the one that was saved, and every leaf of a model has the shape that goes with it."""
    if _digest(record) != digest:
        raise _refused(path, "damaged: its structure is not the one that was saved")
    topology = getattr(record, "topology", None)
    for field in dataclasses.fields(record):
        declared = field.metadata.get("shape")
        shape = np.shape(getattr(record, field.name)) if declared else ()
        expected = [getattr(topology, size, None) if isinstance(size, str) else size for size in declared or ()]
        tail = shape[len(shape) - len(expected) :]
        fits = len(tail) == len(expected) and all(w in (None, t) for w, t in zip(expected, tail, strict=True))
        if not fits:
            raise _refused(path, f"damaged: {field.name} has shape {shape}")
