"""fingerprint: a digest of everything that decides what JAX traces, found without tracing.

Tracing runs a function in Python, which takes seconds for a step. Its result is known beforehand if the function, the
values that it reads and the shapes of its arguments are the same as in an earlier process. Therefore the digest covers

- the bytecode of the user's functions, and the values of all global and enclosing variables that they name, in full:
  arrays with their bytes, and called functions likewise;
- functions of the packages in `TRUSTED` by their names, with the versions of these packages and all files of diffsim;
- the structure of the arguments with all static values, and the shape and type of each array;
- JAX's settings and diffsim's environment variables.

Where the list may not be complete, there is no digest: where a function imports, assigns to variables outside of
itself, reads files or random numbers of numpy, or names an object of a class that is not listed here, such as one of
the user's own classes. Two things are not seen: constants and methods of JAX, numpy or diffsim that a program replaces,
and files of diffsim that are edited while a process runs.
"""

import builtins
import dataclasses
import dis
import functools
import hashlib
import os
import sys
import types
from enum import Enum
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

# packages whose functions do what their names and versions say
TRUSTED = ("jax", "jaxlib", "numpy", "diffsim", "math", "operator", "functools", "itertools", "collections", "typing")
# packages whose versions are part of the digest; diffsim's own files are part of it too
VERSIONED = ("jax", "jaxlib", "numpy")
# builtins that read or write something that is not an argument, or whose results differ between processes
OUTSIDE = frozenset(
    [
        "__import__",
        "breakpoint",
        "compile",
        "delattr",
        "dir",
        "eval",
        "exec",
        "getattr",
        "globals",
        "hash",
        "id",
        "input",
        "locals",
        "memoryview",
        "object",
        "open",
        "print",
        "setattr",
        "super",
        "vars",
    ]
)
# attributes of modules, by their package, that read files or random numbers
READERS = {
    "numpy": frozenset(
        ["datetime64", "fromfile", "fromregex", "genfromtxt", "load", "loadtxt", "memmap", "random"],
    ),
    "jax": frozenset(["fromfile", "load"]),
    "diffsim": frozenset(["from_mujoco", "load", "load_program", "make", "read_csv"]),
}
# instructions that change something outside of the function, or run code that is not listed
FORBIDDEN = frozenset(["DELETE_ATTR", "DELETE_GLOBAL", "IMPORT_NAME", "LOAD_BUILD_CLASS", "STORE_ATTR", "STORE_GLOBAL"])
# settings of JAX whose names contain one of these do not matter for what is traced
IRRELEVANT = ("cache", "log_", "logging", "dump", "pprint", "traceback")
# environment variables of diffsim that do not matter for what is traced
QUIET = ("DIFFSIM_CACHE", "DIFFSIM_PROGRESS")
# bytes of all arrays that a function may name; beyond, reading them all takes longer than tracing
LARGEST = 16 << 20


class Unlisted(Exception):
    """What a function reads cannot be listed, or changes something outside of it."""


def fingerprint(function: Any, structure: Any, avals: Any) -> str | None:
    """The digest of a function and its arguments; None where what the function reads cannot be listed.

    Args:
      function: a function of pytrees of arrays.
      structure: the tree structure of its arguments.
      avals: shape, dtype and weak_type of each leaf.
    """
    content = _Content()
    try:
        _check_unpatched()
        content.add(_settings())
        content.add(function)
        content.add(structure)
        content.add(tuple((aval.shape, str(aval.dtype), bool(aval.weak_type)) for aval in avals))
    except Unlisted:
        return None
    return content.digest.hexdigest()


def content_digest(value: Any) -> str | None:
    """The digest of a value and of diffsim's files; None where the value's content cannot be listed."""
    content = _Content()
    try:
        _check_unpatched()
        content.add((package_digest(), jax.config.values["jax_enable_x64"]))
        content.add(value)
    except Unlisted:
        return None
    return content.digest.hexdigest()


@functools.cache
def package_digest() -> str:
    """The digest of all files of diffsim, of the versions of JAX and numpy, and of Python's version."""
    digest = hashlib.sha256(repr([metadata.version(name) for name in VERSIONED]).encode())
    digest.update(sys.version.encode())
    root = Path(__file__).parents[1]
    for path in sorted(path for path in root.rglob("*") if path.suffix in (".py", ".xml")):
        digest.update(f"{path.relative_to(root)} {path.stat().st_size}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _settings() -> tuple:
    """What else decides what is traced: files, JAX's settings, the device, and environment variables."""
    names = (name for name in sorted(jax.config.values) if not any(word in name for word in IRRELEVANT))
    configured = [(name, repr(getattr(jax.config, name, None))) for name in names]
    environment = [item for item in sorted(os.environ.items()) if item[0].startswith("DIFFSIM_")]
    device = jax.devices()[0]
    return (
        package_digest(),
        repr(configured),
        repr([item for item in environment if item[0] not in QUIET]),
        device.platform,
        device.device_kind,
    )


def _package(module: str | None) -> str:
    """The package of a module."""
    return (module or "").partition(".")[0]


def _is_trusted(module: str | None) -> bool:
    return _package(module) in TRUSTED and not (module or "").startswith("numpy.random")


def _check_unpatched() -> None:
    """Raises Unlisted where someone has put a function of his own into a module of diffsim."""
    for name, module in list(sys.modules.items()):
        if _package(name) != "diffsim":
            continue
        for value in vars(module).values():
            if isinstance(value, types.FunctionType) and not _is_home(value.__globals__.get("__name__")):
                raise Unlisted(f"{name} is patched")


def _is_home(module: str | None) -> bool:
    """Whether a function of this module may stand in a module of diffsim."""
    return _is_trusted(module) or _package(module) in sys.stdlib_module_names


def _is_named(value: Any) -> bool:
    """Whether a trusted module has this very object under its own name."""
    module = getattr(value, "__module__", None)
    if not _is_trusted(module):
        return False
    found = sys.modules.get(str(module))
    for name in str(getattr(value, "__qualname__", "")).split("."):
        found = getattr(found, name, None)
    return found is value


class _Content:
    """Collects a digest of values.

    Attributes:
      digest: of all values that were added.
      seen: the objects that were added, and the order in which they came, so that circles end.
      bytes: the size of all arrays that were added.
    """

    def __init__(self) -> None:
        self.digest = hashlib.sha256()
        self.seen: dict[int, tuple[int, Any]] = {}
        self.bytes = 0

    def note(self, *words: Any) -> None:
        """Adds words; their lengths keep neighbours apart."""
        for word in words:
            data = word if isinstance(word, bytes) else str(word).encode()
            self.digest.update(f"{len(data)}:".encode())
            self.digest.update(data)

    def add(self, value: Any) -> None:
        """Adds a value with everything in it."""
        if value is None or type(value) in (bool, int, float, complex, str, bytes, type(...)):
            self.note(type(value).__name__, value if isinstance(value, bytes) else repr(value))
            return
        if id(value) in self.seen:
            self.note("again", self.seen[id(value)][0])
            return
        # the object is kept, so that no other object gets its id
        self.seen[id(value)] = (len(self.seen), value)
        if isinstance(value, jax.core.Tracer):
            raise Unlisted("a value of a program that is being traced")
        if isinstance(value, jax.Array | np.ndarray | np.generic):
            self._add_array(value)
        elif isinstance(value, types.FunctionType):
            self._add_function(value)
        elif isinstance(value, types.MethodType):
            self.note("method")
            self.add(value.__func__)
            self.add(value.__self__)
        elif isinstance(value, types.CodeType):
            self._add_code(value)
        elif isinstance(value, jax.tree_util.PyTreeDef):
            self._add_structure(value)
        else:
            self._add_object(value)

    def _add_array(self, value: Any) -> None:
        if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            self.note("key", value.dtype)
            self.add(jax.random.key_data(value))
            return
        known = isinstance(value, jax.Array | np.generic) or type(value) is np.ndarray
        if not known or value.dtype.hasobject or value.dtype.fields is not None:
            raise Unlisted("an array of another class, of objects or of records")
        self.bytes += value.nbytes
        if self.bytes > LARGEST:
            raise Unlisted("large arrays")
        kind = "jax" if isinstance(value, jax.Array) else type(value).__name__
        self.note("array", kind, value.dtype.name, value.dtype.byteorder, value.shape)
        self.note(getattr(value, "strides", None), getattr(value, "weak_type", False), np.asarray(value).tobytes())

    def _add_function(self, function: types.FunctionType) -> None:
        # `functools.wraps` copies the name of a module, so the module that defines a function is asked by its globals
        home = function.__globals__.get("__name__")
        if _is_trusted(home) and _is_named(function):
            self._add_named(function)
            return
        code = function.__code__
        self.note("function", home)
        if _is_trusted(home):
            self.note(code.co_qualname, code.co_firstlineno)
            if _package(home) == "diffsim":
                self._check_instructions(code)
        else:
            self.add(code)
            for name in _global_names(code):
                self._add_global(name, function)
            self.add(dict(vars(function)) or None)
        self.add(function.__defaults__)
        self.add(tuple(sorted((function.__kwdefaults__ or {}).items())))
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            self.note(name)
            try:
                value = cell.cell_contents
            except ValueError:
                raise Unlisted(f"{name} has no value yet") from None
            # JAX's own functions do what their names say with the modules that they keep
            if isinstance(value, types.ModuleType) and _is_trusted(home):
                self.note("module", value.__name__)
            else:
                self.add(value)

    def _add_global(self, name: str, function: types.FunctionType) -> None:
        self.note("global", name)
        if name in function.__globals__:
            value = function.__globals__[name]
            if isinstance(value, types.ModuleType):
                self._add_module(value, function.__code__)
            else:
                self.add(value)
            return
        value = getattr(builtins, name, None)
        known = isinstance(value, types.BuiltinFunctionType) or getattr(value, "__module__", None) == "builtins"
        if name in OUTSIDE or not known:
            raise Unlisted(f"{name} reads or writes something else")

    def _add_module(self, module: types.ModuleType, code: types.CodeType) -> None:
        """Adds a module that a function names; what it takes of it must read no files."""
        if not _is_trusted(module.__name__):
            raise Unlisted(f"the module {module.__name__} may do anything")
        if READERS.get(_package(module.__name__), frozenset()) & _attributes(code):
            raise Unlisted(f"{module.__name__} may read files or random numbers")
        self.note("module", module.__name__)

    def _add_named(self, value: Any) -> None:
        """Adds a function or an object of a trusted module by its name."""
        if value.__qualname__ in READERS.get(_package(value.__module__), frozenset()):
            raise Unlisted(f"{value.__qualname__} reads files")
        self.note("named", value.__module__, value.__qualname__)

    def _add_code(self, code: types.CodeType) -> None:
        """Adds bytecode, its constants and the functions that it defines; where lines are does not matter."""
        self._check_instructions(code)
        self.note("code", code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        self.note(code.co_flags, code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount)
        self.note(code.co_exceptiontable)
        self.add(code.co_consts)

    def _check_instructions(self, code: types.CodeType) -> None:
        """Raises Unlisted where a function assigns to something outside of it, or imports."""
        for instruction in dis.get_instructions(code):
            name = instruction.opname
            outside = name in ("STORE_DEREF", "DELETE_DEREF") and instruction.argval in code.co_freevars
            if name in FORBIDDEN or outside:
                raise Unlisted(f"{code.co_qualname} has {name}")
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                self._check_instructions(constant)

    def _add_structure(self, structure: Any) -> None:
        """Adds a tree structure: the classes of its nodes, and their static values."""
        data = structure.node_data()
        if data is None:
            self.note("leaf")
            return
        kind, static = data
        self._add_class(kind)
        self.add(tuple(static) if isinstance(static, list) else static)
        children = structure.children()
        self.note(len(children))
        for child in children:
            self._add_structure(child)

    def _add_class(self, kind: type) -> None:
        if not (_is_trusted(kind.__module__) or kind.__module__ == "builtins"):
            raise Unlisted(f"the class {kind.__qualname__} may do anything")
        self.note("class", kind.__module__, kind.__qualname__)

    def _add_object(self, value: Any) -> None:
        if isinstance(value, types.ModuleType):
            raise Unlisted("what is taken of a module that is no global variable is not known")
        elif isinstance(value, type):
            self._add_class(value)
        elif _is_named(value):
            self._add_named(value)
        elif isinstance(value, np.dtype) and value.fields is None:
            self.note("dtype", value.name, value.byteorder)
        elif type(value) is object:
            # stands for a missing argument in JAX; it has no content
            self.note("object")
        else:
            self._add_class(type(value))
            self._add_parts(value)

    def _add_parts(self, value: Any) -> None:
        """Adds the elements of a container, or the fields of an object of a class that is known."""
        if isinstance(value, Enum):
            self.note(value.name)
        elif type(value) in (dict, types.MappingProxyType):
            self.note(len(value))
            for key, element in value.items():
                self.add(key)
                self.add(element)
        elif isinstance(value, tuple) or type(value) is list:
            self.note(len(value))
            for element in value:
                self.add(element)
        elif type(value) in (set, frozenset):
            self.note(*sorted(map(repr, value)))
            if not all(isinstance(element, str | int | float | bytes) for element in value):
                raise Unlisted("a set of objects has no order")
        elif isinstance(value, slice | range):
            self.note(repr(value))
        elif isinstance(value, functools.partial):
            self.add((value.func, value.args, tuple(value.keywords.items())))
        elif dataclasses.is_dataclass(value):
            for field in dataclasses.fields(value):
                self.note(field.name)
                self.add(getattr(value, field.name))
        elif isinstance(value, jax.custom_jvp | jax.custom_vjp):
            self.add(tuple(sorted(vars(value).items(), key=lambda item: item[0])))
        else:
            raise Unlisted(f"what an object of {type(value).__qualname__} reads is not known")


def _global_names(code: types.CodeType) -> list[str]:
    """The names of the global variables that a function reads, itself and in the functions that it defines."""
    names = {
        instruction.argval
        for instruction in dis.get_instructions(code)
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
    }
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= set(_global_names(constant))
    return sorted(names)


def _attributes(code: types.CodeType) -> set[str]:
    """The names of the attributes that a function reads, itself and in the functions that it defines."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _attributes(constant)
    return names
