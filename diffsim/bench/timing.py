"""Clocks: compile a jitted function apart from running it, and take the best of several runs."""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax

# how long a run is repeated, s
LASTING = 4.0


class Compiled(NamedTuple):
    """A compiled function and the seconds that tracing, lowering and compiling took."""

    call: Callable[..., Any]
    seconds: float


def compile_cold(options: dict[str, Any], function: Callable[..., Any], *args: Any) -> Compiled:
    """Traces and compiles with options of XLA, all caches empty or off. Measures it."""
    cached = jax.config.jax_enable_compilation_cache  # type: ignore[attr-defined]
    jax.config.update("jax_enable_compilation_cache", False)
    jax.clear_caches()
    start = time.perf_counter()
    call = jax.jit(function).lower(*args).compile(compiler_options=options)
    seconds = time.perf_counter() - start
    jax.config.update("jax_enable_compilation_cache", cached)
    return Compiled(call, seconds)


def best_seconds(call: Callable[..., Any], *args: Any, repeats: int = 3, lasting: float = LASTING) -> float:
    """The shortest of several runs, each waited for: at least so many, and those that begin within `lasting` s.

    Machines that are shared are slow for seconds at a time.
    """
    times, begun = [], time.perf_counter()
    while len(times) < repeats or time.perf_counter() - begun < lasting:
        start = time.perf_counter()
        jax.block_until_ready(call(*args))
        times.append(time.perf_counter() - start)
    return min(times)


def best_seconds_in_turn(
    calls: Sequence[Callable[..., Any]], starts: Sequence[Any], ctrl: Any, repeats: int
) -> list[float]:
    """The shortest of several runs of each call on its own start, all of them one after the other each time."""
    times = [
        [best_seconds(call, start, ctrl, repeats=1) for call, start in zip(calls, starts, strict=True)]
        for _ in range(repeats)
    ]
    return [min(column) for column in zip(*times, strict=True)]
