"""A line on the terminal while a program compiles for long: which one, and what makes it large.

While a stage is traced it says what the program holds (`describe`). JAX reports the ends of lowering and of compiling
(`jax.monitoring`); between the two a timer waits, and prints where somebody is looking: on a terminal or in a notebook.
The variable DIFFSIM_PROGRESS says 0 for never and 1 for always.
"""

import os
import sys
import threading
import time
from typing import Any

import jax
import jax.monitoring

# s, how long a user waits before he is told what for
PATIENCE = 3.0
LOWERED = "/jax/core/compile/jaxpr_to_mlir_module_duration"
COMPILED = "/jax/core/compile/backend_compile_duration"


class _Waiting(threading.local):
    """What one thread is about to compile."""

    # what the program holds; None where no stage of ours was traced
    description: str | None = None
    # s, on the clock of `time.perf_counter`: since when it is being traced
    since: float = 0.0
    timer: threading.Timer | None = None


_waiting = _Waiting()


def describe(text: str) -> None:
    """Says what the program that is being traced holds: "3 kinds of pairs"."""
    if not _listening:
        _listen()
    if _waiting.description is None:
        _waiting.since = time.perf_counter()
    _waiting.description = text


# one listener for all threads, once a stage has said what it holds
_listening: list[bool] = []


def _listen() -> None:
    _listening.append(True)
    jax.monitoring.register_event_duration_secs_listener(_heard)


def _heard(event: str, duration_secs: float, **details: Any) -> None:
    """Starts the timer when a program of ours has been lowered, and stops it when it has been compiled."""
    if event == LOWERED and _waiting.description is not None and _watched():
        name = str(details.get("fun_name", "a program")).removeprefix("jit(").removesuffix(")")
        line = f"compiling {name}: {_waiting.description}"
        left = PATIENCE - (time.perf_counter() - _waiting.since)
        _waiting.timer = threading.Timer(max(left, 0.0), _print, [line])
        _waiting.timer.daemon = True
        _waiting.timer.start()
    elif event == COMPILED:
        if _waiting.timer is not None:
            _waiting.timer.cancel()
        _waiting.timer = None
        _waiting.description = None


def _watched() -> bool:
    """Whether somebody sees what is printed."""
    wish = os.environ.get("DIFFSIM_PROGRESS")
    return wish != "0" if wish else sys.stderr.isatty() or "ipykernel" in sys.modules


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
