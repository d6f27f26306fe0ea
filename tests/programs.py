"""Traced programs, read over."""

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
