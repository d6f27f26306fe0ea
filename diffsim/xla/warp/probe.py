"""Whether kernels are right where they run: each is compared with numpy, on small problems, before a program uses it.

No test can know the GPU on which a program will run. So kernels are asked once in a process, when the first program
that uses them is made, and `diffsim selftest` prints what was found. The checks are in `solves/probe.py`.
"""

import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import numpy as np

# largest error of a right kernel, relative to the largest number of the answer: of solves with well conditioned
# matrices in float32
ALLOWED = 1e-4


class Check(NamedTuple):
    """A kernel beside its definition: name, rows of the matrices, largest relative error, and why it did not run."""

    kernel: str
    rows: int
    error: float
    failure: str = ""

    @property
    def passed(self) -> bool:
        """Whether it ran and is right; an error of nan is not."""
        return not self.failure and self.error < ALLOWED


def checked(name: str, rows: int, error: Callable[[], float]) -> Check:
    """A check by what computes its error."""
    try:
        return Check(name, rows, error())
    # a compiler of kernels fails in many ways, each of which means the same
    except Exception as problem:
        return Check(name, rows, np.nan, f"{type(problem).__name__}: {problem}".splitlines()[0])


def all_pass(ask: Callable[[], list[Check]]) -> bool:
    """Whether all checks pass on the GPU that is there; of a failure it warns.

    Where there is no GPU a program is compiled for one elsewhere, and nothing can be asked.
    """
    gpu = find_gpu()
    if gpu is None:
        return True

    def ask_there() -> list[Check]:
        with jax.default_device(gpu):
            return ask()

    # a program is being made when this is asked, and what is traced in another thread is none of it
    with ThreadPoolExecutor(1) as thread:
        failed = [check for check in thread.submit(ask_there).result() if not check.passed]
    if failed:
        first = failed[0]
        warnings.warn(
            f"{len(failed)} kernels fail on this GPU, first {first.kernel} of {first.rows} rows "
            f"({first.failure or f'error {first.error:.1e}'}): programs use jax's own operations in their place, which "
            "are right and slower. Please report what `diffsim selftest` prints",
            RuntimeWarning,
            stacklevel=3,
        )
    return not failed


def find_gpu() -> Any:
    """The first CUDA device, or None."""
    try:
        return jax.devices("cuda")[0]
    except RuntimeError:
        return None
