"""Files of the cache: values that a later process reads instead of computing them again.

`kept` stores the result of a function of arrays under the digest of its arguments (fingerprint.py); traces.py stores
programs. Nothing is stored before `use_cache` is called. Like compiled programs, these files are code that Python runs,
so a cache should only be shared with those whom one trusts.
"""

import os
import pickle
import threading
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from diffsim.xla.fingerprint import content_digest, package_digest

T = TypeVar("T")

# errors of zlib and pickle for a damaged file, or one of another version of jax
DAMAGED = (
    OSError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ImportError,
    EOFError,
    zlib.error,
    pickle.PickleError,
)


class _Cache(NamedTuple):
    """The folder for values, None before `use_cache` is called, and whether traced programs are stored."""

    folder: Path | None = None
    traces: bool = False


_cache = [_Cache()]


def store_in(path: Path | None, traces: bool = False) -> None:
    """Stores values, and traced programs if they are asked for, in this folder from now on; None stores nothing."""
    _cache[0] = _Cache(path, traces and path is not None)
    if traces:
        # before anybody edits the files
        package_digest()


def storing() -> bool:
    """Whether values are stored."""
    return _cache[0].folder is not None


def storing_traces() -> bool:
    """Whether traced programs are stored."""
    return _cache[0].traces


def _path(name: str) -> Path:
    """The file of a value."""
    folder = _cache[0].folder
    assert folder is not None, "nothing is stored"
    return folder / name


def read(name: str) -> Any:
    """The value of this name; None if there is none, or its file is damaged."""
    with suppress(*DAMAGED):
        return pickle.loads(zlib.decompress(_path(name).read_bytes()))
    return None


def write(name: str, value: Any) -> None:
    """Stores a value as one action, since several processes may do so; does nothing where that is impossible."""
    path = _path(name)
    draft = path.with_name(f"{name}.{os.getpid()}.{threading.get_ident()}")
    with suppress(OSError, TypeError, AttributeError, pickle.PickleError):
        data = zlib.compress(pickle.dumps(value), 1)
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(data)
        draft.replace(path)


def kept(label: str, compute: Callable[[], T], *inputs: Any) -> T:
    """compute(), or what it returned in an earlier process for equal inputs.

    Args:
      label: what is computed; part of the file's name.
      compute: a function that depends on nothing but `inputs`; it returns numpy arrays in tuples or dicts.
      inputs: everything that decides the result: records, arrays, numbers.
    """
    digest = content_digest(inputs) if storing() else None
    if digest is None:
        return compute()
    name = f"{label}-{digest}-kept"
    found = read(name)
    if found is None:
        found = compute()
        write(name, found)
    return found
