"""Prints a line on the terminal when a program takes long to compile, with the reasons why it is large.

Stages call `describe` while they are traced, to say what the program contains. JAX reports when lowering and compiling
end (`jax.monitoring`). Between these two events a timer runs, which prints the line on a terminal or in a notebook. The
environment variable DIFFSIM_PROGRESS turns it off (0), or on for other outputs too (1).
"""

import os
import sys
import threading
import time
from typing import Any

import jax
import jax.monitoring

# how long after the beginning of tracing the line is printed, s
PATIENCE = 3.0
# the events of `jax.monitoring` after lowering and after compiling
LOWERED = "/jax/core/compile/jaxpr_to_mlir_module_duration"
COMPILED = "/jax/core/compile/backend_compile_duration"


class _Waiting(threading.local):
    """The program that one thread is tracing or compiling."""

    # what the program contains; None if no stage of diffsim was traced
    description: str | None = None
    # when tracing began, in seconds of `time.perf_counter`
    since: float = 0.0
    timer: threading.Timer | None = None


_waiting = _Waiting()


def describe(text: str) -> None:
    """Notes what the program that is being traced contains, such as "3 kinds of pairs"."""
    if not _listening:
        _listen()
    if _waiting.description is None:
        _waiting.since = time.perf_counter()
    _waiting.description = text


# not empty if the listener is registered; one listener serves all threads
_listening: list[bool] = []


def _listen() -> None:
    """Registers the listener."""
    _listening.append(True)
    jax.monitoring.register_event_duration_secs_listener(_heard)


def _heard(event: str, duration_secs: float, **details: Any) -> None:
    """Starts the timer when a program with diffsim's stages is lowered, and stops it when it is compiled."""
    if event == LOWERED and _waiting.description is not None and watched():
        name = str(details.get("fun_name", "a program")).removeprefix("jit(").removesuffix(")")
        line = f"compiling {name}: {_waiting.description}"
        # a program that is stored is lowered twice (traces.py)
        if _waiting.timer is not None:
            _waiting.timer.cancel()
        left = PATIENCE - (time.perf_counter() - _waiting.since)
        _waiting.timer = threading.Timer(max(left, 0.0), _print, [line])
        _waiting.timer.daemon = True
        _waiting.timer.start()
    elif event == COMPILED:
        if _waiting.timer is not None:
            _waiting.timer.cancel()
        _waiting.timer = None
        _waiting.description = None


def watched() -> bool:
    """Whether lines of progress are printed: on a terminal and in a notebook, unless DIFFSIM_PROGRESS is set."""
    wish = os.environ.get("DIFFSIM_PROGRESS")
    return wish != "0" if wish else sys.stderr.isatty() or "ipykernel" in sys.modules


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
