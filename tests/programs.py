"""Traced programs, read over, and what is compiled."""

import contextlib
from collections.abc import Iterator
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr


def equations(jaxpr: Jaxpr) -> Iterator[Any]:
    """All operations of a program, those of calls, loops and branches too."""
    for equation in jaxpr.eqns:
        yield equation
        for inside in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns")):
            if isinstance(inside, ClosedJaxpr):
                yield from equations(inside.jaxpr)
            elif isinstance(inside, Jaxpr):
                yield from equations(inside)


@contextlib.contextmanager
def compilations() -> Iterator[list[str]]:
    """A list that gets an entry for each program that XLA compiles in this context."""
    seen: list[str] = []

    def note(event: str, duration_secs: float, **kwargs: str | int) -> None:
        if "backend_compile" in event:
            seen.append(event)

    jax.monitoring.register_event_duration_secs_listener(note)
    try:
        yield seen
    finally:
        jax.monitoring.unregister_event_duration_listener(note)
