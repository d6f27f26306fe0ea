"""Whether the kernels are right where they run: each on small problems, beside numpy in float64.

No test can know the GPU on which a program will run. `cuda_kernels` asks here once in a process, before the first
program with kernels is made, and `diffsim selftest` prints what was found.
"""

import functools
import importlib
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import numpy as np

# matrices of one row, of a humanoid, and of more rows than a warp has lanes; worlds that do not fill their last block
SIZES, WORLDS = (1, 6, 27, 34), 11
# of a solve with well conditioned matrices in float32, relative to the largest number of the answer
ALLOWED = 1e-4
# the kernels, which are read only where a program is made for CUDA
MODULE = "diffsim.xla.kernels.warp_kernels"


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


def check_kernels(kernels: Any, sizes: tuple[int, ...] = SIZES, **settings: Any) -> list[Check]:
    """Runs each kernel on matrices of each size.

    Args:
      kernels: a module with `factor`, `solve`, `solve_sum` and `solve_gram`.
      sizes: numbers of rows.
      settings: arguments of the kernels, as `interpret=True`.
    """
    return [check for n in sizes for check in _check_size(kernels, n, settings)]


def _check_size(kernels: Any, n: int, settings: dict[str, Any]) -> list[Check]:
    rng = np.random.default_rng(n)
    root, rows = rng.normal(size=(WORLDS, n, n)), rng.normal(size=(WORLDS, 3 * 5, n)) / np.sqrt(n)
    matrix = np.eye(n) + root @ root.swapaxes(1, 2) / n
    diagonal, b = rng.uniform(1, 2, (WORLDS, n)), rng.normal(size=(WORLDS, n))
    half = rng.normal(size=(WORLDS, 5, 3, 3)) / 3
    # blocks K of five constraints of three rows each, first components first
    weights = half @ half.swapaxes(2, 3)
    lower, gram = np.linalg.cholesky(matrix), matrix + np.eye(n) * diagonal[:, None]
    apart = rows.reshape(WORLDS, 3, 5, n)
    gram = gram + np.einsum("wicn,wcij,wjcm->wnm", apart, weights, apart)

    def solved(total: np.ndarray) -> np.ndarray:
        return np.linalg.solve(total, b[..., None])[..., 0]

    single = [np.asarray(x, np.float32) for x in (matrix, diagonal, rows, np.moveaxis(weights, 1, 2), b, lower)]
    m, d, j, k, right, triangle = single
    cases: dict[str, tuple[Callable[[], Any], np.ndarray]] = {
        "factor": (lambda: kernels.factor(m, **settings), lower),
        "solve": (lambda: kernels.solve(triangle, right[..., None], **settings)[..., 0], solved(matrix)),
        "solve_sum": (
            lambda: kernels.solve_sum(m, m, d, right, **settings),
            solved(2 * matrix + np.eye(n) * diagonal[:, None]),
        ),
        "solve_gram": (
            lambda: kernels.solve_gram(m, d, j, k, right, **settings),
            solved(gram),
        ),
    }
    checks = []
    for name, (run, expected) in cases.items():
        try:
            error = np.max(np.abs(np.asarray(run(), float) - expected)) / np.max(np.abs(expected))
            checks.append(Check(name, n, float(error)))
        # a compiler of kernels fails in many ways, each of which means the same
        except Exception as problem:
            checks.append(Check(name, n, np.nan, f"{type(problem).__name__}: {problem}".splitlines()[0]))
    return checks


@functools.cache
def cuda_kernels() -> Any:
    """The module of kernels; None where one of them fails on the GPU that is there.

    Of a failure it warns once. Where there is no GPU a program is compiled for one elsewhere, and nothing can be asked.
    """
    kernels, gpu = importlib.import_module(MODULE), find_gpu()
    if gpu is None:
        return kernels

    def ask() -> list[Check]:
        with jax.default_device(gpu):
            return check_kernels(kernels)

    # a program is being made when this is asked, and what is traced in another thread is none of it
    with ThreadPoolExecutor(1) as thread:
        failed = [check for check in thread.submit(ask).result() if not check.passed]
    if not failed:
        return kernels
    first = failed[0]
    warnings.warn(
        f"{len(failed)} kernels fail on this GPU, first {first.kernel} of {first.rows} rows "
        f"({first.failure or f'error {first.error:.1e}'}): programs use jax's own operations in their place, which are "
        "right and slower. Please report what `diffsim selftest` prints",
        RuntimeWarning,
        stacklevel=2,
    )
    return None


def find_gpu() -> Any:
    """The first CUDA device, or None."""
    try:
        return jax.devices("cuda")[0]
    except RuntimeError:
        return None
