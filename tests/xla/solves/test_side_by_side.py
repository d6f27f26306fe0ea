"""Factors side by side beside LAPACK's: of matrices alone and in batches, scaled badly, and not positive definite."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matrices import MATRICES, ill_conditioned, wide

from diffsim.xla.solves import cholesky, cpu_cholesky
from diffsim.xla.solves.cpu_cholesky import LARGEST


@pytest.mark.parametrize(("n", "batch"), [(1, ()), (2, (5,)), (3, (3, 4)), (6, (5,)), (LARGEST, ()), (LARGEST, (3, 4))])
def test_factors_and_solves_are_the_plain_ones(n: int, batch: tuple[int, ...]) -> None:
    rng = np.random.default_rng(n)
    for name, make in MATRICES.items():
        matrix = make(rng, int(np.prod(batch)), n).reshape(*batch, n, n)
        b = rng.normal(size=(*batch, n, 2))
        lower = cpu_cholesky.factor(matrix)
        plain = cholesky.plain_factor(matrix)
        np.testing.assert_allclose(lower, plain, rtol=1e-9, atol=1e-12, err_msg=name)
        for found in (
            cpu_cholesky.solve(lower, b)[..., 0],
            cpu_cholesky.factor_and_solve(matrix, b[..., 0]),
        ):
            expected = cholesky.plain_solve(plain, b)[..., 0]
            assert np.max(np.abs(found - expected)) < 1e-9 * np.max(np.abs(expected)), name


def test_float32_errs_no_more_than_lapack() -> None:
    rng = np.random.default_rng(0)
    matrix, b = ill_conditioned(rng, 50, LARGEST), rng.normal(size=(50, LARGEST))
    exact = np.linalg.solve(matrix, b[..., None])[..., 0]
    unit = np.sqrt(np.diagonal(matrix, axis1=1, axis2=2))
    matrix, b = matrix.astype(np.float32), b.astype(np.float32)
    plain = cholesky.plain_solve(cholesky.plain_factor(matrix), b[..., None])[..., 0]
    own = cpu_cholesky.factor_and_solve(matrix, b)
    error, allowed = (np.max(np.abs(x - exact) * unit) for x in (own, plain))
    assert error < 2 * allowed


@pytest.mark.parametrize("n", [2, LARGEST])
def test_a_matrix_that_is_not_positive_definite_is_nan_and_no_other(n: int) -> None:
    matrix = np.stack([np.eye(n), np.diag([1.0] * (n - 1) + [-1.0]), np.full((n, n), np.nan), np.eye(n)])
    for found in (
        cpu_cholesky.factor_and_solve(matrix, np.ones((4, n))),
        cpu_cholesky.solve(cpu_cholesky.factor(matrix), np.ones((4, n, 1)))[..., 0],
    ):
        assert np.isnan(found).any(1).tolist() == [False, True, True, False]
        np.testing.assert_allclose(found[::3], 1)


@pytest.mark.parametrize(
    ("switch", "n", "calls"), [("1", LARGEST, 0), ("1", LARGEST + 1, 1), ("0", LARGEST, 1), ("0", LARGEST + 1, 1)]
)
def test_which_factors_are_lapacks_on_a_cpu(monkeypatch, switch: str, n: int, calls: int) -> None:
    monkeypatch.setenv("DIFFSIM_KERNELS", switch)
    matrix, b = wide(np.random.default_rng(0), 3, n), np.ones((3, n))
    for solve in (
        lambda matrix, b: cholesky.solve(cholesky.factor(matrix), b[..., None]),
        lambda matrix, b: cholesky.solve_sum([matrix], jnp.ones_like(b), b),
    ):
        assert jax.jit(solve).lower(matrix, b).as_text().count("potrf") == calls
