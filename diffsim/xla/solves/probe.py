"""Checks of the kernels of solves, alone and inside loops: each is compared with numpy in float64 before it is used.

When they run, and what happens if one fails, is in warp/probe.py.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.xla.solves import warp_cholesky
from diffsim.xla.solves.plain import product
from diffsim.xla.warp import machine, ptx
from diffsim.xla.warp.loop import Translated
from diffsim.xla.warp.probe import Check, all_pass, checked

# numbers of rows of the matrices: one, a free body, a humanoid, and more than the 32 lanes of a warp
SIZES = (1, 6, 27, 34)
# number of worlds, chosen so that they do not fill the last block of threads
WORLDS = 11


def check_kernels(kernels: Any, sizes: tuple[int, ...] = SIZES, **settings: Any) -> list[Check]:
    """Runs each kernel on random matrices of each size.

    Args:
      kernels: a module with `factor`, `solve`, `solve_sum` and `solve_gram`.
      sizes: numbers of rows.
      settings: further arguments of the kernels, such as `interpret=True`.

    Returns:
      One Check for each kernel and size.
    """
    return [check for n in sizes for check in _check_size(kernels, n, settings)]


def _check_size(kernels: Any, n: int, settings: dict[str, Any]) -> list[Check]:
    """Runs each kernel on random, well-conditioned matrices of n rows."""
    rng = np.random.default_rng(n)
    root = rng.normal(size=(WORLDS, n, n))
    rows = rng.normal(size=(WORLDS, 3 * 5, n)) / np.sqrt(n)
    matrix = np.eye(n) + root @ root.swapaxes(1, 2) / n
    diagonal = rng.uniform(1, 2, (WORLDS, n))
    b = rng.normal(size=(WORLDS, n))
    # J and K of five constraints with three rows each; the first rows of all constraints come first
    half = rng.normal(size=(WORLDS, 5, 3, 3)) / 3
    weights = half @ half.swapaxes(2, 3)
    by_constraint = rows.reshape(WORLDS, 3, 5, n)
    lower = np.linalg.cholesky(matrix)
    gram = matrix + np.eye(n) * diagonal[:, None]
    gram = gram + np.einsum("wicn,wcij,wjcm->wnm", by_constraint, weights, by_constraint)

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

    return [checked(name, n, functools.partial(error, name)) for name in cases]


def check_loops(solve_gram: Callable[..., Any], sizes: tuple[int, ...] = SIZES, interpret: bool = False) -> list[Check]:
    """Runs Newton's method as a loop kernel, on this GPU or in numpy, and measures the gradient at its result.

    It minimizes 1/2 x^T M x - b^T x plus 1/2 D (J x - 1)^2 for each row of J for which J x is less than 1. Worlds need
    different numbers of iterations. At the minimum the gradient is zero.

    Args:
      solve_gram: the solve of an iteration, a function of JAX.
      sizes: numbers of rows of M.
      interpret: whether the loop runs in numpy.

    Returns:
      One Check for each size.
    """

    def forces(problem: Any, x: Any) -> tuple[Any, Any]:
        """The stiffness of each spring at x, and the gradient."""
        m, rows, stiffness, b = problem
        gap = product(rows, x) - 1
        active = jnp.where(gap < 0, stiffness, 0)
        return active, product(m, x) - b + product(active * gap, rows)

    def advance(problem: Any, state: Any) -> Any:
        m, rows, _, _ = problem
        x, count, _ = state
        active, gradient = forces(problem, x)
        step = solve_gram(m, jnp.zeros_like(x), (rows, [active.reshape(1, -1, 1)]), gradient)
        return x - step, count + 1, jnp.sum(jnp.abs(step)) < 1e-5

    def error(n: int) -> float:
        """The gradient at the result for matrices of n rows, relative to the largest entry of the problem."""
        rng = np.random.default_rng(n)
        root = rng.normal(size=(WORLDS, n, n))
        rows = rng.normal(size=(WORLDS, 9, n)) / np.sqrt(n)
        m = np.eye(n) + root @ root.swapaxes(1, 2) / n
        stiffness = rng.uniform(1, 9, (WORLDS, 9))
        b = root[:, 0]
        problem = tuple(np.asarray(x, np.float32) for x in (m, rows, stiffness, b))
        start = np.zeros((WORLDS, n), np.float32), np.zeros(WORLDS, np.int32), np.zeros(WORLDS, bool)
        single = jax.tree.map(lambda x: x[0], (problem, start))
        loop = Translated.of(lambda state: ~state[2] & (state[1] < 20), advance, *single)
        call = machine.interpret if interpret else functools.partial(ptx.call, "loop")
        x = np.asarray(loop.run([*problem, *start], functools.partial(call, loop.kernel))[0], float)
        gap = np.einsum("wkn,wn->wk", rows, x) - 1
        push = np.einsum("wk,wkn->wn", np.where(gap < 0, stiffness, 0) * gap, rows)
        gradient = np.einsum("wmn,wn->wm", m, x) - b + push
        return float(np.max(np.abs(gradient)) / np.max(np.abs(root)))

    return [checked("loop", n, functools.partial(error, n)) for n in sizes]


@functools.cache
def cuda_kernels() -> Any:
    """The module of kernels; None if one of them fails on this machine's GPU."""
    return warp_cholesky if all_pass(lambda: check_kernels(warp_cholesky)) else None
