"""Checks that compare the kernels of solves, alone and inside loops, with numpy in float64 before programs use them."""

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
# number of worlds, which does not fill the last block of threads
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
    rng = np.random.default_rng(n)
    root, rows = rng.normal(size=(WORLDS, n, n)), rng.normal(size=(WORLDS, 3 * 5, n)) / np.sqrt(n)
    matrix = np.eye(n) + root @ root.swapaxes(1, 2) / n
    diagonal, b = rng.uniform(1, 2, (WORLDS, n)), rng.normal(size=(WORLDS, n))
    half = rng.normal(size=(WORLDS, 5, 3, 3)) / 3
    # K of five constraints with three rows each, whose first rows come first
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
        acting = jnp.where(gap < 0, stiffness, 0)
        return acting, product(m, x) - b + product(acting * gap, rows)

    def advance(problem: Any, state: Any) -> Any:
        (m, rows, _, _), (x, count, _) = problem, state
        acting, gradient = forces(problem, x)
        step = solve_gram(m, jnp.zeros_like(x), (rows, [acting.reshape(1, -1, 1)]), gradient)
        return x - step, count + 1, jnp.sum(jnp.abs(step)) < 1e-5

    def one(n: int) -> float:
        rng = np.random.default_rng(n)
        root, rows = rng.normal(size=(WORLDS, n, n)), rng.normal(size=(WORLDS, 9, n)) / np.sqrt(n)
        arrays = np.eye(n) + root @ root.swapaxes(1, 2) / n, rows, rng.uniform(1, 9, (WORLDS, 9)), root[:, 0]
        problem = tuple(np.asarray(x, np.float32) for x in arrays)
        start = np.zeros((WORLDS, n), np.float32), np.zeros(WORLDS, np.int32), np.zeros(WORLDS, bool)
        single = jax.tree.map(lambda x: x[0], (problem, start))
        loop = Translated.of(lambda state: ~state[2] & (state[1] < 20), advance, *single)
        call = machine.interpret if interpret else functools.partial(ptx.call, "loop")
        x = np.asarray(loop.run([*problem, *start], functools.partial(call, loop.kernel))[0], float)
        gap = np.einsum("wkn,wn->wk", arrays[1], x) - 1
        push = np.einsum("wk,wkn->wn", np.where(gap < 0, arrays[2], 0) * gap, arrays[1])
        return float(np.max(np.abs(np.einsum("wmn,wn->wm", arrays[0], x) - arrays[3] + push)) / np.max(np.abs(root)))

    return [checked("loop", n, functools.partial(one, n)) for n in sizes]


@functools.cache
def cuda_kernels() -> Any:
    """The module of kernels; None if one of them fails on this machine's GPU."""
    return warp_cholesky if all_pass(lambda: check_kernels(warp_cholesky)) else None
