"""Traced programs on disk, so that a later process traces nothing: `remembered`, for functions that `jit` compiles.

A program is stored as StableHLO by `jax.export`, under the digest of all that decides how it is traced
(fingerprint.py). A function that has no digest is traced as always. XLA's part of the work is in JAX's own cache.
"""

import functools
import re
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, ParamSpec, TypeVar

import jax
import jax.export
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import mlir

from diffsim.xla.barriers import for_cpu
from diffsim.xla.fingerprint import fingerprint
from diffsim.xla.stored import DAMAGED, read, storing_traces, write

P = ParamSpec("P")
T = TypeVar("T")

# functions that are traced faster than this, in s, are not stored, because reading them would take as long
WORTH_STORING = 0.25
# the largest program that is stored, in bytes; arrays that it contains count
LARGEST = 64 << 20
# how many characters of a function's name its file has
READABLE = 40
# how JAX types and lowers a call of an exported program; None in a version of JAX that has them elsewhere
try:
    from jax._src.export import _export

    CALLED = (_export._call_exported_abstract_eval, _export._call_exported_lowering)
except (ImportError, AttributeError):
    CALLED = None

# like `Exported.call`, whose results are bound to their device, so that a loop would compile its step twice
recalled_p = Primitive("recalled")
recalled_p.multiple_results = True
if CALLED is not None:
    recalled_p.def_effectful_abstract_eval(CALLED[0])
    mlir.register_lowering(recalled_p, CALLED[1])


class _Program(NamedTuple):
    """A traced function of arrays.

    Attributes:
      module: the serialized `jax.export.Exported`, a function of flat arrays.
      structure: the tree structure of its results.
      weak: for each result, whether its type is weak, as that of a Python number.
    """

    module: bytes
    structure: Any
    weak: tuple[bool, ...]

    def __call__(self, leaves: list) -> Any:
        exported = jax.export.deserialize(bytearray(self.module))
        results = recalled_p.bind(*map(jnp.asarray, leaves), exported=exported)
        # an exported program has no weak types
        whole = [_weakened(result) if weak else result for result, weak in zip(results, self.weak, strict=True)]
        return jax.tree.unflatten(self.structure, whole)


def _weakened(value: jax.Array) -> jax.Array:
    """The value as one of a Python number's type."""
    return jax.lax.convert_element_type_p.bind(value, new_dtype=value.dtype, weak_type=True, sharding=None)


def remembered(function: Callable[P, T]) -> Callable[P, T]:
    """The function, which reads its traced program from disk if an earlier process has stored it.

    It is meant for functions that `jax.jit` traces with nothing else around it.
    """

    @functools.wraps(function)
    def traced(*args: P.args, **kwargs: P.kwargs) -> T:
        if CALLED is None or not (storing_traces() and _is_plain()):
            return function(*args, **kwargs)
        leaves, structure = jax.tree.flatten((args, kwargs))
        key = fingerprint(function, structure, list(map(jax.typeof, leaves)))
        if key is None:
            return function(*args, **kwargs)
        # a partial function has no name
        readable = re.sub(r"\W", "", getattr(function, "__name__", ""))[:READABLE] or "program"
        name = f"{readable}-{key}-trace"
        program = read(name)
        if isinstance(program, _Program):
            with suppress(*DAMAGED):
                return program(leaves)
        same = lambda: fingerprint(function, structure, list(map(jax.typeof, leaves))) == key  # noqa: E731
        return _trace(function, leaves, structure, name, same)

    return traced


def _is_plain() -> bool:
    """Whether programs are for one CPU, and JAX is not asked to look into them."""
    names = ("jax_disable_jit", "jax_debug_nans", "jax_debug_infs", "jax_enable_checks", "jax_check_tracer_leaks")
    watched = any(getattr(jax.config, name) for name in names)
    return for_cpu() and jax.device_count() == 1 and not watched and jax.sharding.get_abstract_mesh().empty


def _trace(function: Callable[..., T], leaves: list, structure: Any, name: str, unchanged: Callable[[], bool]) -> T:
    """The results of the function, which is traced; its program is stored if tracing took long and changed nothing."""
    returned = []

    @functools.wraps(function)
    def flat(*leaves: Any) -> list:
        args, kwargs = jax.tree.unflatten(structure, leaves)
        results, shape = jax.tree.flatten(function(*args, **kwargs))
        returned[:] = [shape]
        return results

    del flat.__wrapped__  # type: ignore[attr-defined]
    program = jax.jit(flat)
    given = [jax.ShapeDtypeStruct(x.shape, x.dtype, weak_type=x.weak_type) for x in map(jax.typeof, leaves)]
    begin = time.perf_counter()
    out = program.trace(*given).out_info
    # tracing may have changed a list or an array that the function names
    if time.perf_counter() - begin > WORTH_STORING and unchanged():
        # jax.export refuses some programs, such as those that call Python
        with suppress(NotImplementedError, ValueError, ImportError):
            module = bytes(jax.export.export(program)(*given).serialize())
            weak = tuple(bool(leaf.weak_type) for leaf in out)
            stored = _Program(module, returned[0], weak)
            if len(module) <= LARGEST:
                write(name, stored)
                return stored(leaves)
    return jax.tree.unflatten(returned[0], program(*leaves))
