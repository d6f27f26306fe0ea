"""Checks of the kernels on the user's GPU: each is compared with numpy on small problems before a program uses it.

Tests cannot cover the GPU on which a user's program will run. Therefore the checks run once per process, when the first
program with kernels is made; `diffsim selftest` prints their results. The checks themselves are in `solves/probe.py`.
"""

import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import numpy as np

# the largest error that a correct kernel can have in float32, relative to the largest value of the result; the matrices
# of the checks are well-conditioned
ALLOWED = 1e-4


class Check(NamedTuple):
    """The result of a check.

    Attributes:
      kernel: name of the kernel.
      rows: number of rows of the matrices.
      error: largest error, relative to the largest value of the result.
      failure: why the kernel did not run; "" if it did.
    """

    kernel: str
    rows: int
    error: float
    failure: str = ""

    @property
    def passed(self) -> bool:
        """Whether the kernel ran and its error is small; NaN is not."""
        return not self.failure and self.error < ALLOWED


def checked(name: str, rows: int, error: Callable[[], float]) -> Check:
    """The Check of a kernel whose error `error()` computes."""
    try:
        return Check(kernel=name, rows=rows, error=error())
    # a kernel compiler can fail in many ways; after any of them the kernel cannot be used
    except Exception as problem:
        failure = f"{type(problem).__name__}: {problem}".splitlines()[0]
        return Check(kernel=name, rows=rows, error=np.nan, failure=failure)


def all_pass(ask: Callable[[], list[Check]]) -> bool:
    """Whether all checks of `ask()` pass on this machine's GPU; warns if one fails.

    Without a GPU the result is True: then the program is compiled for a GPU in another machine, and nothing can be
    checked.
    """
    gpu = find_gpu()
    if gpu is None:
        return True

    def ask_there() -> list[Check]:
        with jax.default_device(gpu):
            return ask()

    # a program is being traced now; in another thread the checks do not become part of it
    with ThreadPoolExecutor(1) as thread:
        failed = [check for check in thread.submit(ask_there).result() if not check.passed]
    if failed:
        first = failed[0]
        warnings.warn(
            f"{len(failed)} kernels fail on this GPU, first {first.kernel} of {first.rows} rows "
            f"({first.failure or f'error {first.error:.1e}'}); programs use JAX's own operations instead, which are "
            "correct but slower. Please report the output of `diffsim selftest`",
            RuntimeWarning,
            stacklevel=3,
        )
    return not failed


def find_gpu() -> Any:
    """The first CUDA device; None if there is none."""
    try:
        return jax.devices("cuda")[0]
    except RuntimeError:
        return None
