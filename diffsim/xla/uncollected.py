"""uncollected: tracing without Python's garbage collector, which would take up to a third of its time.

A trace makes very many small objects, which live until the program is compiled; the collector goes
through them again and again. It goes on afterwards.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Garbage that refers to itself stays until the end; as a decorator, until the function returns."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
