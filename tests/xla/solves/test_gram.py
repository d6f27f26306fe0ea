"""CUDA's kernel of a solve with M + diagonal + J^T K J by its interpreter, beside plain definitions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from uncompiled import uncompiled

from diffsim.xla.solves import cholesky, warp_cholesky

EPSILON = float(np.finfo(np.float32).eps)
ALL = range(6)


def problem(count: int, n: int, groups: list[tuple[int, int]]) -> list[np.ndarray]:
    """M, diagonal, J, K of (dim, number) constraints each, and b; more constraints than push have K = 0."""
    rng = np.random.default_rng(n)
    root = rng.normal(size=(count, n, n + 3))
    weights = []
    for dim, number in groups:
        half = rng.normal(size=(count, number, dim, dim)) * rng.integers(0, 2, (count, number, 1, 1))
        weights.append(np.moveaxis(half @ half.swapaxes(2, 3), 1, 2))
    rows = rng.normal(size=(count, sum(dim * number for dim, number in groups), n))
    diagonal, b = rng.uniform(1, 2, (count, n)), rng.normal(size=(count, n))
    terms = root @ root.swapaxes(1, 2) / n, diagonal, rows, *weights, b
    return [np.asarray(term, np.float32) for term in terms]


def summed(matrix, diagonal, rows, *weights):
    """The sum by one constraint after another, in the precision of the arguments."""
    total, start = matrix + jnp.diag(diagonal), 0
    for weight in weights:
        dim, number, _ = weight.shape
        for one in range(number):
            own = rows[start + one : start + dim * number : number]
            total = total + own.T @ weight[:, one] @ own
        start += dim * number
    return total


# one column, more rows than are added at once, sizes that are no powers of two, and the widest matrix
SHAPES = [(1, 3, [(1, 2)]), (6, 5, [(1, 5), (4, 3), (6, 1)]), (27, 3, [(3, 8)]), (40, 2, [(1, 70)]), (64, 1, [(3, 4)])]


@pytest.mark.parametrize(("n", "count", "groups"), SHAPES)
def test_the_kernel_is_the_plain_definition(n, count, groups):
    *terms, b = problem(count, n, groups)
    expected = np.stack([summed(*(np.asarray(term[i], float) for term in terms)) for i in range(count)])
    size = np.abs(expected).max()
    assert np.max(np.abs(cholesky.plain_gram(*terms) - expected)) < 1e-6 * size
    exact = np.linalg.solve(expected, np.asarray(b, float)[..., None])[..., 0]
    allowed = max(1e-6, 2 * EPSILON * np.linalg.cond(expected).max()) * np.abs(exact).max()
    for found in (warp_cholesky.solve_gram(*terms, b, interpret=True), cholesky.plain_solve_gram(*terms, b)):
        assert np.max(np.abs(found - exact)) < allowed


def solve(matrix, diagonal, rows, first, second, b):
    return cholesky.solve_gram(matrix + matrix.T, diagonal, (rows, (first, second)), b)


def reference(matrix, diagonal, rows, first, second, b):
    return jnp.linalg.solve(summed(matrix + matrix.T, diagonal, rows, first, second), b)


def test_derivatives() -> None:
    arguments = problem(2, 5, [(1, 2), (3, 2)])
    for argument in ALL:
        found, expected = (uncompiled(jax.vmap(jax.jacrev(f, argument)))(*arguments) for f in (solve, reference))
        assert np.max(np.abs(found - expected)) < 1e-5 * np.max(np.abs(expected)), argument


def test_linear_in_the_right_side() -> None:
    *terms, b = problem(2, 5, [(1, 2), (3, 2)])

    def pulled(f, *arguments):
        *own, b = arguments
        return jax.linear_transpose(lambda b: f(*own, b), b)(b)[0]

    found, expected = (jax.vmap(lambda *a, f=f: pulled(f, *a))(*terms, b) for f in (solve, reference))
    assert np.max(np.abs(found - expected)) < 1e-5 * np.max(np.abs(expected))


@pytest.mark.parametrize("mapped", [{5}, {0}, {2, 4}])
def test_a_batch_of_some_of_its_terms(mapped: set[int]) -> None:
    arguments = problem(3, 5, [(1, 2), (3, 2)])
    some = [x if index in mapped else x[0] for index, x in enumerate(arguments)]
    axes = [0 if index in mapped else None for index in ALL]
    found, expected = (jax.vmap(f, axes)(*some) for f in (solve, reference))
    assert np.max(np.abs(found - expected)) < 1e-5 * np.max(np.abs(expected))
