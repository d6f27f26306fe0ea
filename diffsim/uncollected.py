"""uncollected: tracing without Python's garbage collector, which would take a third of its time.

A trace makes hundreds of thousands of small objects, nearly all of which live until the program is compiled; the
collector goes through them again and again and finds nothing. It goes on afterwards.
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
