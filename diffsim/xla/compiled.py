"""compiled: what a user calls by hand runs as one program, not operation by operation.

Outside of `jax.jit` JAX compiles and runs each operation by itself: the first `set_const` of a humanoid took
31 s of CPU that way, and takes 9 s as one program. Within a transformation (`jit`, `vmap`, `grad`) nothing changes.
"""

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import jax
import jax.core
import numpy as np

from diffsim.xla.uncollected import uncollected

NUMBERS = jax.Array | np.ndarray | np.number | np.bool_ | float | int

P = ParamSpec("P")
T = TypeVar("T")


def compiled(function: Callable[P, T]) -> Callable[P, T]:
    """The function of pytrees of arrays, compiled once for each structure and shapes when called with numbers."""
    traced = uncollected()(function)
    program = jax.jit(traced)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        numbers = all(map(_is_number, jax.tree.leaves((args, kwargs))))
        return (program if numbers else traced)(*args, **kwargs)

    return call


def _is_number(leaf: Any) -> bool:
    """Whether it is no placeholder of a transformation, and nothing that `jax.jit` would refuse."""
    return isinstance(leaf, NUMBERS) and not isinstance(leaf, jax.core.Tracer)
