"""A bar, and what measures one."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np


class Bar(NamedTuple):
    """A measured number, and what it may be at most."""

    name: str
    value: float
    limit: float


def differences(function: Callable[[np.ndarray], Any], x: np.ndarray) -> np.ndarray:
    """Central differences of a vector function, extrapolated; one column per entry of x."""

    def central(eps: float) -> np.ndarray:
        columns = [(np.asarray(function(x + eps * e)) - function(x - eps * e)) / (2 * eps) for e in np.eye(x.size)]
        return np.stack(columns, axis=1)

    return (4 * central(1e-5) - central(2e-5)) / 3


def timed(function: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    """The result, and the seconds of the best of three runs after compilation."""
    result = jax.block_until_ready(function(*arguments))
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        jax.block_until_ready(function(*arguments))
        seconds.append(time.perf_counter() - start)
    return result, min(seconds)
