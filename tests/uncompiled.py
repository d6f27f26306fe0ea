"""uncompiled: `jax.jit` for functions that a test calls a few times on each of many models.

Compiling a stage for one model takes seconds, running it milliseconds. What is traced here is the program that
`jax.jit` would compile, run by numpy (diffsim/compiler/host/interpret.py); that compiled programs give the same numbers
is shown by tests/compiler/test_interpret.py, tests/parity/test_trajectories.py and all tests of steps and gradients.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr
from jax.interpreters import partial_eval

from diffsim.compiler.host.interpret import run_jaxpr


def trace(function: Callable[..., Any], arguments: Any) -> Any:
    """The program and the shapes of its results.

    JAX's older way to reverse mode, by the same rules, traces in half the time, but fails on `jacrev` of some scans.
    """
    name = "jax_use_direct_linearize"
    made, newer = jax.make_jaxpr(function, return_shape=True), getattr(jax.config, name, None)
    if not newer:
        return made(*arguments)
    jax.config.update(name, False)
    try:
        return made(*arguments)
    except ValueError:
        jax.config.update(name, newer)
        return made(*arguments)
    finally:
        jax.config.update(name, newer)


def needed(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The program without what no result depends on, as XLA compiles it."""
    jaxpr, _ = partial_eval.dce_jaxpr(closed.jaxpr, [True] * len(closed.jaxpr.outvars), instantiate=True)
    return ClosedJaxpr(jaxpr, closed.consts)


def uncompiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of pytrees of arrays, traced once for their structure and shapes; keywords are static."""
    traced: dict[Any, tuple[ClosedJaxpr, Any]] = {}

    def call(*arguments: Any, **static: Any) -> Any:
        leaves, structure = jax.tree.flatten(arguments)
        arrays = [np.asarray(leaf) for leaf in leaves]
        key = structure, tuple((a.shape, a.dtype) for a in arrays), tuple(static.items())
        if key not in traced:
            made = lambda *a: function(*a, **static)  # noqa: E731
            closed, shape = trace(made, jax.tree.unflatten(structure, arrays))
            traced[key] = needed(closed), jax.tree.structure(shape)
        closed, result = traced[key]
        return jax.tree.unflatten(result, run_jaxpr(closed, arrays))

    return call
