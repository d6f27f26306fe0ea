"""JAX's loops and branches, made to run inside `jax.shard_map` with its defaults (check_vma=True).

There the type of an array says whether its values may differ between devices, and JAX refuses a loop whose state starts
as a constant and then depends on the worlds, or a `cond` whose branches differ in this. The functions here cast the
state of a loop, and the results of both branches, to values that may differ. Outside of `jax.shard_map` they do
nothing, and are JAX's functions. `varying` does the same for the arguments of our own primitives.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
from jax import Array

Tree = TypeVar("Tree")


def while_loop(unfinished: Callable[[Tree], Array], advance: Callable[[Tree], Tree], start: Tree) -> Tree:
    """`jax.lax.while_loop`."""
    return jax.lax.while_loop(unfinished, lambda state: varying(advance(state)), varying(start))


def fori_loop(lower: Any, upper: Any, advance: Callable[[Any, Tree], Tree], start: Tree) -> Tree:
    """`jax.lax.fori_loop`."""
    return jax.lax.fori_loop(lower, upper, lambda k, state: varying(advance(k, state)), varying(start))


def scan(step: Callable, start: Any, rows: Any = None, length: int | None = None, **options: Any) -> Any:
    """`jax.lax.scan`."""
    return jax.lax.scan(lambda state, row: varying(step(state, row)), varying(start), rows, length, **options)


def cond(chosen: Any, yes: Callable[..., Tree], no: Callable[..., Tree], *operands: Any) -> Tree:
    """`jax.lax.cond`."""
    return jax.lax.cond(chosen, lambda *x: varying(yes(*x)), lambda *x: varying(no(*x)), *operands)


def varying(tree: Tree) -> Tree:
    """The values as values that may differ between the devices of the surrounding `jax.shard_map`; else as they are."""
    axes = jax.sharding.get_abstract_mesh().manual_axes
    return jax.tree.map(lambda x: _differing(x, axes), tree) if axes else tree


def _differing(x: Any, axes: tuple[str, ...]) -> Array:
    kind = jax.typeof(x)
    # jax 0.12 keeps the axes under another name
    known = kind.mat.varying if hasattr(kind, "mat") else kind.vma
    missing = tuple(axis for axis in axes if axis not in known)
    return jax.lax.pcast(x, missing, to="varying") if missing else x
