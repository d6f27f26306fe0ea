"""save and restore: a model, state or inputs as an npz file of arrays and JSON, which contains no code."""

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

T = TypeVar("T")

# version of the file format, which grows when saved fields change
VERSION = 6
# the first bytes of a zip file, which an npz file is
MAGIC = b"PK\x03\x04"
# the extension of a saved model
SUFFIX = ".npz"
# the largest total size of a file's arrays, in bytes, so that a damaged or hostile file cannot fill the memory
LARGEST = 2**30
# errors of zipfile, zlib, json and numpy for a damaged file (RuntimeError: encrypted, nested too deep, rare methods)
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
    zlib.error,
    lzma.LZMAError,
    tokenize.TokenError,
)


def is_saved(source: Any) -> bool:
    """Whether `source` is the path of a saved model, and not of an XML file."""
    path = Path(source)
    try:
        # reading from others, such as pipes, may block
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC or path.suffix == SUFFIX
    except (OSError, ValueError):
        return False


def save(record: Any, path: str | Path) -> None:
    """Writes a record to `path`, a model together with its Topology."""
    arrays: dict[str, np.ndarray] = {}
    facts: dict[str, Any] = {}
    _take_apart("", record, arrays, facts)
    header = {"format": _format(type(record)), "version": VERSION, "digest": _digest(record), "facts": facts}
    arrays["facts"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    Path(path).write_bytes(buffer.getvalue())


def restore(cls: type[T], path: str | Path) -> T:
    """The record of class `cls` in a file that `save` wrote.

    Raises:
      MjcfError: the file is damaged, has another version of the format, or was not written by diffsim.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(info.file_size for info in archive.infolist())
            if size > LARGEST:
                raise ValueError(f"its arrays have {size} bytes, more than {LARGEST}")
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        header = json.loads(arrays.pop("facts").tobytes())
        kind = str(header["format"])
        version = header["version"]
    except DAMAGED as problem:
        raise _refused(path, f"not a saved {cls.__name__}, or damaged ({problem})") from None
    if kind != _format(cls):
        raise _refused(path, f"not a saved {cls.__name__}: it says {kind!r}")
    if version != VERSION:
        hint = "create it again from its XML; numpy.load reads the arrays of the file"
        raise _refused(path, f"saved in format {version}, this diffsim reads format {VERSION}", hint)
    try:
        strange = [f"{name} of type {array.dtype}" for name, array in arrays.items() if array.dtype.kind not in "biuf"]
        if strange:
            raise ValueError(f"it has {strange[0]}")
        result = _put_together(cls, "", arrays, header["facts"], _common_axes(cls, arrays))
        _check(result, header["digest"], path)
    except MjcfError:
        raise
    except DAMAGED as problem:
        raise _refused(path, f"does not fit this version of diffsim ({problem})") from None
    return result


def _refused(path: str | Path, message: str, hint: str = "save it again, or create it again from its XML") -> MjcfError:
    """The error about a file that cannot be read."""
    return MjcfError([Problem(str(path), 0, "", message, hint)])


def _format(cls: type) -> str:
    """What the file of a record says that it contains."""
    return f"diffsim {cls.__name__.lower()}"


def _digest(record: Any) -> str | None:
    """The digest of a model's topology; None for other records."""
    return record.topology.digest if hasattr(record, "topology") else None


def _take_apart(key: str, value: Any, arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> None:
    """Adds the arrays in a value to `arrays`, and all else to `facts` (JSON); all names begin with `key`."""
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            _take_apart(f"{key}{field.name}/", getattr(value, field.name), arrays, facts)
    elif isinstance(value, Mapping):
        for name, entry in value.items():
            _take_apart(f"{key}{name}/", entry, arrays, facts)
    elif isinstance(value, jax.Array | np.ndarray):
        arrays[key.rstrip("/")] = np.asarray(value)
    elif any(map(callable, jax.tree.leaves(value))):
        raise ValueError(f"{key.rstrip('/')} is a function, which a file cannot hold: save without it and set it again")
    else:
        facts[key.rstrip("/")] = int(value) if isinstance(value, IntEnum) else value


def _common_axes(cls: type, arrays: Mapping[str, np.ndarray]) -> tuple[int, ...]:
    """The axes that every leaf of a record has before its declared ones, as in a batch; else none."""
    leading = set()
    for field in dataclasses.fields(cls):
        if "shape" in field.metadata and field.name in arrays:
            shape = arrays[field.name].shape
            leading.add(shape[: len(shape) - len(field.metadata["shape"])])
    return leading.pop() if len(leading) == 1 else ()


def _put_together(
    cls: type[T],
    prefix: str,
    arrays: Mapping[str, np.ndarray],
    facts: Mapping[str, Any],
    axes: tuple[int, ...],
) -> T:
    """An object of a dataclass from the entries whose names begin with `prefix`: the inverse of `_take_apart`.

    `axes`: the leading axes of fields that did not exist when the file was saved.
    """
    hints = get_type_hints(cls)

    def value_of(field: dataclasses.Field) -> Any:
        hint = hints[field.name]
        key = prefix + field.name
        if dataclasses.is_dataclass(hint):
            return _put_together(hint, f"{key}/", arrays, facts, axes)  # type: ignore[arg-type]
        if key in arrays:
            return jnp.asarray(arrays[key], dtype=float) if "shape" in field.metadata else arrays[key]
        if key in facts:
            return hint(facts[key]) if isinstance(hint, type) and issubclass(hint, Enum) else _tuples(facts[key])
        inside = [name for entries in (arrays, facts) for name in entries if name.startswith(f"{key}/")]
        if not inside and field.default is not dataclasses.MISSING:
            return field.default
        if not inside and field.metadata.get("old") is not None:
            # a size that the file lacks is a size of something that did not exist
            declared = field.metadata["shape"]
            sizes = [facts.get(f"topology/{size}", 0) if isinstance(size, str) else size for size in declared]
            return jnp.asarray(np.broadcast_to(field.metadata["old"], [*axes, *sizes]), dtype=float)
        if not inside:
            raise KeyError(f"'{key}' is missing")
        return {name[len(key) + 1 :]: arrays[name] if name in arrays else _tuples(facts[name]) for name in inside}

    return cls(**{field.name: value_of(field) for field in dataclasses.fields(cls)})  # type: ignore[arg-type]


def _tuples(value: Any) -> Any:
    """The value with JSON's lists converted to tuples, also lists in lists."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _check(record: Any, digest: str | None, path: str | Path) -> None:
    """Raises MjcfError unless the topology is the one that was saved, and every leaf has the shape that it implies."""
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
