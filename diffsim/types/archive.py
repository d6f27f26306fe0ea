"""Saved models, states and inputs: a record as a file of arrays (npz), and back. Nothing in the file is code.

Arrays are stored under the path of their field (`opt/gravity`, `topology/body_parentid`), everything else as JSON in
the array `facts`, with the kind of record, the format's version and, of a model, the topology's digest, which is
compared on loading: equal content shares the compilation, also across processes. Floats are stored in the precision
that they have and loaded in the default one.
"""

import dataclasses
import io
import json
import lzma
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from enum import Enum, IntEnum
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.errors import MjcfError, Problem

VERSION = 4
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
        arrays = _arrays(Path(path))
        header = json.loads(arrays.pop("facts").tobytes())
        found, version = str(header["format"]), header["version"]
    except DAMAGED as problem:
        raise _refused(path, f"not a saved {cls.__name__}, or damaged ({problem})") from None
    if found != _format(cls):
        raise _refused(path, f"not a saved {cls.__name__}: it says {found!r}")
    if version != VERSION:
        raise _refused(path, f"saved in format {version}, this diffsim reads format {VERSION}")
    try:
        made = _put_together(cls, "", arrays, header["facts"])
        _check(made, header["digest"], path)
    except MjcfError:
        raise
    except DAMAGED as problem:
        raise _refused(path, f"does not fit this diffsim ({problem})") from None
    return made


def _arrays(path: Path) -> dict[str, np.ndarray]:
    with zipfile.ZipFile(path) as archive:
        size = sum(info.file_size for info in archive.infolist())
        if size > LARGEST:
            raise ValueError(f"it claims {size} bytes, more than {LARGEST}")
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def _refused(path: str | Path, message: str) -> MjcfError:
    return MjcfError([Problem(str(path), 0, "", message, "save it again, or make it anew from its XML")])


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
    values = {
        field.name: _value(field, hints[field.name], prefix + field.name, arrays, facts)
        for field in dataclasses.fields(cls)  # type: ignore[arg-type]
    }
    return cls(**values)


def _value(
    field: dataclasses.Field, hint: Any, key: str, arrays: Mapping[str, np.ndarray], facts: Mapping[str, Any]
) -> Any:
    if dataclasses.is_dataclass(hint):
        return _put_together(hint, f"{key}/", arrays, facts)  # type: ignore[arg-type]
    if key in arrays:
        return jnp.asarray(arrays[key], dtype=float) if "shape" in field.metadata else arrays[key]
    if key in facts:
        value = facts[key]
        return hint(value) if isinstance(hint, type) and issubclass(hint, Enum) else _tuples(value)
    inside = [name for entries in (arrays, facts) for name in entries if name.startswith(f"{key}/")]
    if not inside:
        raise KeyError(f"'{key}' is missing")
    return {name[len(key) + 1 :]: arrays[name] if name in arrays else _tuples(facts[name]) for name in inside}


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
        found = np.shape(getattr(record, field.name)) if declared else ()
        wanted = [getattr(topology, size, None) if isinstance(size, str) else size for size in declared or ()]
        tail = found[len(found) - len(wanted) :]
        fits = len(tail) == len(wanted) and all(w in (None, t) for w, t in zip(wanted, tail, strict=True))
        if not fits:
            raise _refused(path, f"damaged: {field.name} has shape {found}")
