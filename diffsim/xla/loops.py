"""JAX's loops and branches, for use inside `jax.shard_map` with its default arguments (check_vma=True).

Inside `jax.shard_map`, the type of an array says whether its values may vary between devices. JAX refuses a loop whose
carry is a constant at the start and varies later, and a `cond` if the result of only one branch varies. The functions
here cast the carry of a loop, and the results of both branches, to values that may vary. Outside of `jax.shard_map`
they are JAX's functions. `varying` casts the arguments of diffsim's own primitives.

`inlined` traces with the functions of `jax.numpy` written out, but not these loops.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, TypeVar

import jax
from jax import Array

Tree = TypeVar("Tree")


# whether `inlined` is active
_inlined: ContextVar[bool] = ContextVar("inlined", default=False)


@contextmanager
def inlined() -> Iterator[None]:
    """A context in which tracing writes out compiled functions, as most of `jax.numpy` are: it takes 40% less time.

    A compiled function is otherwise traced by itself, with its own arguments, and called. Unlike under
    `jax.disable_jit` alone, loops stay loops.
    """
    token = _inlined.set(True)
    try:
        with jax.disable_jit():
            yield
    finally:
        _inlined.reset(token)


def _as_loops() -> AbstractContextManager[Any]:
    """A context in which JAX's loops are not written out."""
    return jax.disable_jit(False) if _inlined.get() else nullcontext()


def while_loop(unfinished: Callable[[Tree], Array], advance: Callable[[Tree], Tree], start: Tree) -> Tree:
    """The last carry, as by `jax.lax.while_loop`."""
    with _as_loops():
        return jax.lax.while_loop(unfinished, lambda state: varying(advance(state)), varying(start))


def fori_loop(lower: Any, upper: Any, advance: Callable[[Any, Tree], Tree], start: Tree) -> Tree:
    """The last carry, as by `jax.lax.fori_loop`."""
    with _as_loops():
        return jax.lax.fori_loop(lower, upper, lambda k, state: varying(advance(k, state)), varying(start))


def scan(step: Callable, start: Any, rows: Any = None, length: int | None = None, **options: Any) -> Any:
    """The last carry and the stacked results, as by `jax.lax.scan`."""
    with _as_loops():
        return jax.lax.scan(lambda state, row: varying(step(state, row)), varying(start), rows, length, **options)


def cond(chosen: Any, yes: Callable[..., Tree], no: Callable[..., Tree], *operands: Any) -> Tree:
    """The results of one of two branches, as by `jax.lax.cond`."""
    with _as_loops():
        return jax.lax.cond(chosen, lambda *x: varying(yes(*x)), lambda *x: varying(no(*x)), *operands)


def varying(tree: Tree) -> Tree:
    """The same values, cast to values that may vary between the devices of a surrounding `jax.shard_map`, if any."""
    axes = jax.sharding.get_abstract_mesh().manual_axes
    return jax.tree.map(lambda x: _differing(x, axes), tree) if axes else tree


def _differing(x: Any, axes: tuple[str, ...]) -> Array:
    """The value, cast to one that may vary along all of these axes."""
    kind = jax.typeof(x)
    # jax 0.12 stores the axes over which a value varies under another name
    known = kind.mat.varying if hasattr(kind, "mat") else kind.vma
    missing = tuple(axis for axis in axes if axis not in known)
    return jax.lax.pcast(x, missing, to="varying") if missing else x
