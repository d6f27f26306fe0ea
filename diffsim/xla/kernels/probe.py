"""Whether the kernels are right where they run: each on small problems, beside numpy in float64.

No test can know the GPU on which a program will run. `cuda_kernels` and `cuda_loops` ask here once in a process, before
the first program with kernels, or with a loop that is one, is made, and `diffsim selftest` prints what was found.
"""

import functools
import importlib
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

# matrices of one row, of a humanoid, and of more rows than a warp has lanes; worlds that do not fill their last block
SIZES, WORLDS = (1, 6, 27, 34), 11
# of a solve with well conditioned matrices in float32, relative to the largest number of the answer
ALLOWED = 1e-4
# where the kernels are, which are read only where a program is made for CUDA
PACKAGE = "diffsim.xla.kernels"


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

    def error(name: str) -> float:
        run, expected = cases[name]
        return float(np.max(np.abs(np.asarray(run(), float) - expected)) / np.max(np.abs(expected)))

    return [_checked(name, n, functools.partial(error, name)) for name in cases]


def check_loops(sizes: tuple[int, ...] = SIZES, interpret: bool = False) -> list[Check]:
    """Runs a search as `warp_loop` does, by kernels of this GPU or by numpy.

    It minimizes 1/2 x^T M x - b^T x and the cost of springs D that push where a row of J x is less than 1, by Newton's
    method, of which worlds need different numbers of steps. At the minimum the gradient is 0.
    """
    names = "warp_loop", "warp", "ptx", "cholesky"
    loops, warp, ptx, cholesky = (importlib.import_module(f"{PACKAGE}.{name}") for name in names)

    def forces(problem: Any, x: Any) -> tuple[Any, Any]:
        """The stiffness of each spring at x, and the gradient."""
        m, rows, stiffness, b = problem
        gap = cholesky.product(rows, x) - 1
        acting = jnp.where(gap < 0, stiffness, 0)
        return acting, cholesky.product(m, x) - b + cholesky.product(acting * gap, rows)

    def advance(problem: Any, state: Any) -> Any:
        (m, rows, _, _), (x, count, _) = problem, state
        acting, gradient = forces(problem, x)
        step = cholesky.solve_gram(m, jnp.zeros_like(x), (rows, [acting.reshape(1, -1, 1)]), gradient)
        return x - step, count + 1, jnp.sum(jnp.abs(step)) < 1e-5

    def one(n: int) -> float:
        rng = np.random.default_rng(n)
        root, rows = rng.normal(size=(WORLDS, n, n)), rng.normal(size=(WORLDS, 9, n)) / np.sqrt(n)
        arrays = np.eye(n) + root @ root.swapaxes(1, 2) / n, rows, rng.uniform(1, 9, (WORLDS, 9)), root[:, 0]
        problem = tuple(np.asarray(x, np.float32) for x in arrays)
        start = np.zeros((WORLDS, n), np.float32), np.zeros(WORLDS, np.int32), np.zeros(WORLDS, bool)
        single = jax.tree.map(lambda x: x[0], (problem, start))
        loop = loops.Translated.of(lambda state: ~state[2] & (state[1] < 20), advance, *single)
        call = warp.interpret if interpret else functools.partial(ptx.call, "loop")
        x = np.asarray(loop.run([*problem, *start], functools.partial(call, loop.kernel))[0], float)
        gap = np.einsum("wkn,wn->wk", arrays[1], x) - 1
        push = np.einsum("wk,wkn->wn", np.where(gap < 0, arrays[2], 0) * gap, arrays[1])
        return float(np.max(np.abs(np.einsum("wmn,wn->wm", arrays[0], x) - arrays[3] + push)) / np.max(np.abs(root)))

    return [_checked("loop", n, functools.partial(one, n)) for n in sizes]


def _checked(name: str, rows: int, error: Callable[[], float]) -> Check:
    """A check by what computes its error."""
    try:
        return Check(name, rows, error())
    # a compiler of kernels fails in many ways, each of which means the same
    except Exception as problem:
        return Check(name, rows, np.nan, f"{type(problem).__name__}: {problem}".splitlines()[0])


@functools.cache
def cuda_kernels() -> Any:
    """The module of kernels; None where one of them fails on the GPU that is there."""
    kernels = importlib.import_module(f"{PACKAGE}.warp_kernels")
    return kernels if _pass(lambda: check_kernels(kernels)) else None


@functools.cache
def cuda_loops() -> bool:
    """Whether the GPU that is there runs loops as kernels."""
    return cuda_kernels() is not None and _pass(check_loops)


def _pass(ask: Callable[[], list[Check]]) -> bool:
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
