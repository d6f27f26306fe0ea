"""CUDA's kernels, run by their interpreter, beside their plain definitions; the primitives and their derivatives.

float32: that is what the kernels are for.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matrices import MATRICES, chain, wide
from uncompiled import uncompiled

from diffsim.math import block_solves, linalg
from diffsim.xla.solves import cholesky, cpu_cholesky, lapack, warp_cholesky
from diffsim.xla.solves.cpu_cholesky import Limbs, limbs_of
from diffsim.xla.solves.lapack import solve_bordered

EPSILON = float(np.finfo(np.float32).eps)


# not all of a program's worlds, and more than one program
@pytest.mark.parametrize(("n", "count"), [(1, 3), (6, 35), (27, 9), (64, 2)])
def test_kernels_are_the_plain_definitions(n, count):
    rng = np.random.default_rng(n)
    for name, make in MATRICES.items():
        matrix, b = make(rng, count, n).astype(np.float32), rng.normal(size=(count, n, 2)).astype(np.float32)
        lower = warp_cholesky.factor(matrix, interpret=True)
        x = np.asarray(warp_cholesky.solve(lower, b, interpret=True), float)
        scale = np.sqrt(np.einsum("bi,bj->bij", *2 * [np.diagonal(matrix, axis1=1, axis2=2)]))
        product = np.asarray(lower, float) @ np.asarray(lower, float).swapaxes(1, 2)
        # in units of the entries: the rounding of n products
        assert np.max(np.abs(product - matrix) / scale) < 1e-6, name
        assert np.array_equal(np.triu(lower, 1), np.zeros_like(lower))
        plain = np.asarray(cholesky.plain_solve(cholesky.plain_factor(matrix), b), float)
        unit = np.sqrt(np.diagonal(matrix, axis1=1, axis2=2))[..., None]
        for found in (x, plain):
            size = np.max(np.abs(unit * found), axis=1, keepdims=True)
            assert np.max(np.abs(matrix @ found - b) / unit / (size * n + np.abs(b / unit))) < 1e-6, name
        if name != "ill_conditioned":
            condition = np.linalg.cond(matrix.astype(float)).max()
            assert np.max(np.abs(x - plain)) < max(1e-6, 2 * EPSILON * condition) * np.max(np.abs(plain)), name


@pytest.mark.parametrize(("n", "count", "addends"), [(1, 3, 1), (6, 35, 2), (27, 9, 2)])
def test_the_kernel_of_a_sum_is_factor_and_solve(n, count, addends):
    rng = np.random.default_rng(n)
    matrices = [make(rng, count, n).astype(np.float32) for make in (chain, wide)][:addends]
    diagonal, b = (rng.uniform(1, 2, (count, n)).astype(np.float32) for _ in range(2))
    found = warp_cholesky.solve_sum(*matrices, diagonal, b, interpret=True)
    total = sum(matrices[1:], matrices[0] + np.eye(n, dtype=np.float32) * diagonal[:, None])
    lower = warp_cholesky.factor(total, interpret=True)
    apart = warp_cholesky.solve(lower, b[..., None], interpret=True)[..., 0]
    plain = cholesky.plain_solve_sum(*matrices, diagonal, b)
    condition = np.linalg.cond(total.astype(float)).max()
    assert np.max(np.abs(found - apart)) < max(1e-6, 2 * EPSILON * condition) * np.max(np.abs(plain))
    assert np.max(np.abs(found - plain)) < max(1e-6, 2 * EPSILON * condition) * np.max(np.abs(plain))


def solve_terms(matrix, diagonal, b):
    return cholesky.solve_sum([matrix + matrix.T, matrix @ matrix.T], diagonal, b)


def solve_summed(matrix, diagonal, b):
    return jnp.linalg.solve(matrix + matrix.T + matrix @ matrix.T + jnp.diag(diagonal), b)


def test_derivatives_of_the_sum():
    matrix, b = problem()
    arguments = matrix, 0.5 + np.abs(b), b
    for argument in range(3):
        found, expected = (
            uncompiled(jax.vmap(jax.jacrev(f, argument)))(*arguments) for f in (solve_terms, solve_summed)
        )
        assert np.max(np.abs(found - expected)) < 1e-5 * np.max(np.abs(expected)), argument


def test_the_sum_is_linear_in_the_right_side():
    """The solve is its own transpose, as the adjoint of the solver needs it."""
    matrix, b = problem()

    def pulled(solve, matrix, b):
        return jax.linear_transpose(lambda b: solve(matrix, 0.5 + jnp.abs(matrix[0]), b), b)(b)[0]

    found, expected = (jax.vmap(lambda m, b, f=f: pulled(f, m, b))(matrix, b) for f in (solve_terms, solve_summed))
    assert np.max(np.abs(found - expected)) < 1e-5 * np.max(np.abs(expected))


@pytest.mark.parametrize("mapped", [(None, None, 0), (0, None, None), (None, 0, 0)])
def test_the_sum_in_a_batch_of_some_of_its_terms(mapped):
    many = problem()[0], 0.5 + np.abs(problem()[1]), problem()[1]
    arguments = [x if axis == 0 else x[0] for x, axis in zip(many, mapped, strict=True)]
    found, expected = (jax.vmap(f, mapped)(*arguments) for f in (solve_terms, solve_summed))
    assert np.max(np.abs(found - expected)) < 1e-5 * np.max(np.abs(expected))


def test_a_matrix_that_is_not_positive_definite_gives_nan_in_its_own_world():
    matrix = np.stack([np.eye(4), np.diag([1, 1, -1, 1]), np.eye(4)]).astype(np.float32)
    lower = warp_cholesky.factor(matrix, interpret=True)
    x = warp_cholesky.solve(lower, np.ones((3, 4, 1), np.float32), interpret=True)
    assert np.isnan(x[1]).all()
    assert np.array_equal(x[::2], np.ones((2, 4, 1)))


def solve(matrix, b):
    return linalg.solve_spd(0.5 * (matrix + matrix.T), b)


def reference(matrix, b):
    return jnp.linalg.solve(0.5 * (matrix + matrix.T), b)


def problem(count: int = 4, n: int = 5) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return wide(rng, count, n).astype(np.float32), rng.normal(size=(count, n)).astype(np.float32)


@pytest.mark.parametrize("derivative", [jax.jacfwd, jax.jacrev])
@pytest.mark.parametrize("argument", [0, 1])
def test_derivatives_in_a_batch(derivative, argument):
    arguments = problem()
    found, expected = (uncompiled(jax.vmap(derivative(f, argument)))(*arguments) for f in (solve, reference))
    assert np.max(np.abs(found - expected)) < 1e-5 * np.max(np.abs(expected))


def test_second_derivatives():
    matrix, b = (part[0] for part in problem())
    expected = uncompiled(jax.hessian(lambda m: jnp.sum(reference(m, b) ** 2)))(matrix)
    for twice in (jax.hessian, lambda f: jax.jacrev(jax.jacrev(f)), lambda f: jax.jacrev(jax.jacfwd(f))):
        found = uncompiled(twice(lambda m: jnp.sum(solve(m, b) ** 2)))(matrix)
        assert np.max(np.abs(found - expected)) < 1e-4 * np.max(np.abs(expected))


def test_the_factor_has_derivatives():
    matrix = problem()[0][0]
    change = np.random.default_rng(1).normal(size=matrix.shape).astype(np.float32)
    pair = (matrix,), (change + change.T,)
    found, expected = jax.jvp(linalg.cholesky, *pair), jax.jvp(jnp.linalg.cholesky, *pair)
    assert np.max(np.abs(found[1] - expected[1])) < 1e-5 * np.max(np.abs(expected[1]))


def test_every_order_of_maps():
    matrix, b = problem()
    expected = np.linalg.solve(matrix[:, None], b[None, ..., None])[..., 0]
    outer = jax.vmap(jax.vmap(solve, (None, 0)), (0, None))(matrix, b)
    inner = jax.vmap(jax.vmap(solve, (0, None)), (None, 0))(matrix, b)
    for found in (outer, np.swapaxes(inner, 0, 1)):
        assert np.max(np.abs(found - expected)) < 1e-5 * np.max(np.abs(expected))


@pytest.mark.parametrize(
    ("switch", "dtype", "n", "count"),
    [("1", np.float32, 64, 2), ("0", np.float32, 27, 0), ("1", np.float64, 27, 0), ("1", np.float32, 65, 0)],
)
def test_which_solves_are_the_kernels(monkeypatch, switch, dtype, n, count):
    monkeypatch.setenv("DIFFSIM_KERNELS", switch)
    shapes = jax.ShapeDtypeStruct((n, n), dtype), jax.ShapeDtypeStruct((n,), dtype)
    assert str(jax.make_jaxpr(linalg.solve_spd)(*shapes)).count("small_cholesky") == count


@pytest.mark.parametrize(("n", "count"), [(1, 3), (6, 35), (27, 9), (64, 2)])
def test_bordered_solves_are_the_plain_ones(n: int, count: int) -> None:
    rng = np.random.default_rng(n)
    for name, make in MATRICES.items():
        matrix, b = make(rng, count, n).astype(np.float32), rng.normal(size=(count, n)).astype(np.float32)
        unit = np.sqrt(np.diagonal(matrix, axis1=1, axis2=2))
        exact = np.linalg.solve(matrix.astype(float), b[..., None].astype(float))[..., 0]
        plain = cholesky.plain_solve(cholesky.plain_factor(matrix), b[..., None])[..., 0]
        error, allowed = (np.max(np.abs(x - exact) * unit) for x in (solve_bordered(matrix, b)[0], plain))
        assert error < 4 * allowed + 1e-6 * np.max(np.abs(exact) * unit), name


@pytest.mark.parametrize("count", [1, 128, 131])
def test_shares_of_a_batch_are_the_batch(monkeypatch, count: int) -> None:
    """To the bit: each matrix is solved alone, in a share or not."""
    monkeypatch.setenv("DIFFSIM_KERNELS", "1")
    matrix, b = problem(count, 9)
    diagonal = np.abs(b)
    found = []
    for cores, since in ((1, (0, 10)), (2, (9, 0)), (4, (0, 0))):
        monkeypatch.setattr(lapack, "DISTRIBUTED_SINCE", since)
        monkeypatch.setattr(lapack.os, "cpu_count", lambda cores=cores: cores)
        calls = jax.jit(lambda *terms: cholesky.solve_sum(terms[:1], *terms[1:])).lower(matrix, diagonal, b).as_text()
        # each share twice: once more where a sum has no factor
        assert calls.count("potrf") == (4 if cores == 2 and count == 128 else 2)
        found.append(jax.jit(lambda *terms: cholesky.solve_sum(terms[:1], *terms[1:]))(matrix, diagonal, b))
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])


# rows of the trunk of some matrices, not all in a row, and of their limbs
TRUNK, LIMBS = (0, 1, 5), ((9, 10, 11, 12, 13), (2, 3, 4), (6, 7, 8), (14, 15))


def falls_apart() -> np.ndarray:
    pattern = np.zeros((16, 16), bool)
    pattern[list(TRUNK)] = pattern[:, list(TRUNK)] = True
    for limb in LIMBS:
        pattern[np.ix_(limb, limb)] = True
    return pattern


def test_limbs_are_what_a_trunk_holds_together() -> None:
    pattern = falls_apart()
    assert limbs_of(pattern) == Limbs(TRUNK, LIMBS)
    # all in one; too few rows; a chain of three limbs with more rows in its trunk than it may have
    assert limbs_of(np.ones((16, 16), bool)) is None and limbs_of(pattern[:8, :8]) is None
    chained = np.abs(np.subtract.outer(np.arange(60), np.arange(60))) < 7
    assert limbs_of(chained) is None


def test_matrices_that_fall_apart_are_solved_without_lapack() -> None:
    """In a batch, with derivatives by both; and with a pivot that rounding took."""
    pattern, rng, count = falls_apart(), np.random.default_rng(0), 64
    half = np.where(pattern, rng.normal(size=(count, 16, 16)), 0)
    terms = [x.astype(np.float32) for x in (half + half.swapaxes(1, 2), 16 * np.eye(16)[None] + 0 * half)]
    diagonal, b = (rng.uniform(1, 2, (count, 16)).astype(np.float32) for _ in range(2))
    total = sum(terms).astype(float) + np.eye(16) * diagonal[:, None]
    solve_all = jax.jit(jax.vmap(lambda *terms: cholesky.solve_sum(terms[:2], *terms[2:], Limbs(TRUNK, LIMBS))))
    assert "potrf" not in solve_all.lower(*terms, diagonal, b).as_text()
    few = [x[:8] for x in (*terms, diagonal, b)]
    assert "potrf" in solve_all.lower(*few).as_text()
    for found, exact in ((solve_all(*terms, diagonal, b), total), (solve_all(*few), total[:8])):
        assert np.max(np.abs(found - np.linalg.solve(exact, b[: len(found), :, None])[..., 0])) < 1e-5
    matrices = total.astype(np.float32)
    slopes = [
        jax.jit(jax.vmap(jax.jacrev(f, (0, 1))))(matrices, b)
        for f in (lambda m, b: block_solves.solve_once(Limbs(TRUNK, LIMBS), m, b), jnp.linalg.solve)
    ]
    for found, expected in zip(*slopes, strict=True):
        assert np.max(np.abs(found - expected)) < 1e-5 * np.max(np.abs(expected))
    rounded = np.eye(16, dtype=np.float32)
    rounded[2, 3] = rounded[3, 2] = 1
    one, none = np.ones((1, 16), np.float32), np.zeros((1, 0), np.float32)
    x = np.asarray(cpu_cholesky.solve_limbs([rounded[None]], none, one, Limbs(TRUNK, LIMBS))[0])
    assert np.max(np.abs(rounded @ x - 1)) < 4 * lapack.lost_to_rounding(16) * np.max(np.abs(x))


def lost(n: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Terms of a chain of n links whose ends a stiff row joins, whose sum in float32 has no factor; the exact sum."""
    steps = np.tril(np.ones((n, n)))
    row = np.cos(np.arange(n))
    inertia, joined = steps.T @ steps @ steps.T @ steps, 1e7 * np.outer(row, row)
    terms = [inertia.astype(np.float32), joined.astype(np.float32)]
    assert np.linalg.eigvalsh((terms[0] + terms[1]).astype(float))[0] < 0
    return terms, inertia + joined


@pytest.mark.parametrize("batch", [(), (3,)])
def test_a_sum_that_rounding_leaves_without_a_factor_is_solved(batch) -> None:
    """To within what rounding took; alone, and between worlds that are not so."""
    n = 40
    terms, exact = lost(n)
    b, none = np.random.default_rng(0).normal(size=n).astype(np.float32), np.zeros(n, np.float32)
    if batch:
        terms = [np.stack([np.eye(n, dtype=np.float32), term, term]) for term in terms]
        b, none = (np.stack([x] * 3) for x in (b, none))
    cpu = np.asarray(jax.jit(lambda *terms: cholesky.solve_sum(terms[:2], *terms[2:]))(*terms, none, b))
    arguments = [x.reshape(-1, *x.shape[len(batch) :]) for x in (*terms, none, b)]
    cuda = np.asarray(warp_cholesky.solve_sum(*arguments, interpret=True)).reshape(cpu.shape)
    for x in (cpu, cuda):
        found = x[1] if batch else x
        allowed = 4 * lapack.lost_to_rounding(n) * np.max(np.diagonal(exact)) * np.max(np.abs(found))
        assert np.max(np.abs(exact @ found - b.reshape(-1, n)[0])) < allowed
        assert not batch or np.allclose(x[0], b[0] / 2)


def test_bordered_solves_are_nan_where_a_matrix_is_not_positive() -> None:
    matrix = np.stack([np.eye(3), -np.eye(3), np.diag([1, 0, 1])]).astype(np.float32)
    x, lost = solve_bordered(matrix, np.ones((3, 3), np.float32))
    assert np.isnan(x).any(1).tolist() == lost.tolist() == [False, True, True]


@pytest.mark.parametrize("size", [0.0, 1e-30, 1e17, 1e30])
def test_bordered_solves_are_of_any_size(size: float) -> None:
    """Derivatives along a chaotic motion grow without bounds, and are numbers all the same."""
    matrix, b = 2 * np.eye(3, dtype=np.float32)[None], np.full((1, 3), size, np.float32)
    np.testing.assert_allclose(solve_bordered(matrix, b)[0], b / 2, rtol=1e-6)
