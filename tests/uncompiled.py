"""uncompiled: `jax.jit` for functions that a test calls a few times on each of many models.

Compiling a stage for one model takes seconds, running it milliseconds. What is traced here is the program that
`jax.jit` would compile, run by numpy (diffsim/compiler/interpret.py); that compiled programs give the same numbers is
shown by tests/compiler/test_interpret.py, tests/parity/test_trajectories.py and all tests of steps and gradients.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr

from diffsim.compiler.interpret import run_jaxpr


@contextlib.contextmanager
def quick_reverse_mode() -> Iterator[None]:
    """JAX's older way to the same reverse mode, by the same rules: it traces in half the time."""
    name = "jax_use_direct_linearize"
    before = getattr(jax.config, name, None)
    if before:
        jax.config.update(name, False)
    try:
        yield
    finally:
        if before:
            jax.config.update(name, before)


def uncompiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of pytrees of arrays, traced once for their structure and shapes; keywords are static."""
    traced: dict[Any, tuple[ClosedJaxpr, Any]] = {}

    def call(*arguments: Any, **static: Any) -> Any:
        leaves, structure = jax.tree.flatten(arguments)
        arrays = [np.asarray(leaf) for leaf in leaves]
        key = structure, tuple((a.shape, a.dtype) for a in arrays), tuple(static.items())
        if key not in traced:
            made = lambda *a: function(*a, **static)  # noqa: E731
            with quick_reverse_mode():
                closed, shape = jax.make_jaxpr(made, return_shape=True)(*jax.tree.unflatten(structure, arrays))
            traced[key] = closed, jax.tree.structure(shape)
        closed, result = traced[key]
        return jax.tree.unflatten(result, run_jaxpr(closed, arrays))

    return call
