"""Programs for a TPU, run on a CPU: what is written in another way for a TPU gives C MuJoCo's numbers."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from matrices import MATRICES, ill_conditioned
from oracle import inputs_of, load_oracle, state_of, visited_states
from wide import wide

import diffsim
from diffsim import envs
from diffsim.bench import selftest
from diffsim.xla.gather import pick, pick_existing
from diffsim.xla.products import matmul
from diffsim.xla.solves import cholesky, probe, tpu_cholesky
from diffsim.xla.solves.cpu_cholesky import Limbs, limbs_of

WORLDS = 5


@pytest.fixture(autouse=True)
def on_a_tpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Programs are traced as where a TPU is JAX's default backend, also those that other tests have traced."""
    monkeypatch.setenv("DIFFSIM_KERNELS", "1")
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    jax.clear_caches()
    yield
    jax.clear_caches()


def run(function: Any, *arguments: Any) -> Any:
    """The results of the program for a TPU, computed on the CPU that is there."""
    anywhere = [export.DisabledSafetyCheck.platform()]
    program = export.export(jax.jit(function), platforms=("tpu",), disabled_checks=anywhere)(*arguments)
    return program.call(*arguments)


@pytest.mark.parametrize("model_name", ["quadruped", *wide(["hand"])])
def test_accelerations_are_mujocos(model_name: str) -> None:
    """Of a robot on the ground, and of a hand: contact slots, limits and solves of a batch in float32."""
    text = (envs.MODELS / f"{model_name}.xml").read_text()
    theirs, ours = load_oracle(text), single(diffsim.load(text))
    visited = visited_states(theirs, WORLDS)
    assert any(data.ncon for data in visited)
    states, inputs = (
        single(jax.tree.map(lambda *leaves: jnp.stack(leaves), *map(convert, visited)))
        for convert in (state_of, inputs_of)
    )
    found = run(jax.vmap(lambda state, given: diffsim.forward(ours, state, given).qacc), states, inputs)
    for world, data in enumerate(visited):
        assert np.max(np.abs(found[world] - data.qacc)) < 1e-3 * np.max(np.abs(data.qacc))


def single(tree: Any) -> Any:
    """The arrays of a tree in float32."""
    return jax.tree.map(lambda x: x.astype(jnp.float32) if jnp.issubdtype(x.dtype, jnp.floating) else x, tree)


@pytest.mark.parametrize(("n", "batch"), [(1, (5,)), (2, (3, 4)), (6, (5,)), (9, (3, 4))])
def test_factors_and_solves_are_the_plain_ones(n: int, batch: tuple[int, ...]) -> None:
    rng = np.random.default_rng(n)
    for name, make in MATRICES.items():
        matrix = make(rng, int(np.prod(batch)), n).reshape(*batch, n, n)
        b = rng.normal(size=(*batch, n, 2))
        matrix, b = jnp.asarray(matrix), jnp.asarray(b)
        lower, plain = tpu_cholesky.factor(matrix), cholesky.plain_factor(matrix)
        np.testing.assert_allclose(lower, plain, rtol=1e-8, atol=1e-12, err_msg=name)
        expected = cholesky.plain_solve(plain, b)
        found = tpu_cholesky.solve(lower, b)
        assert np.max(np.abs(found - expected)) < 1e-9 * np.max(np.abs(expected)), name


def test_a_sum_with_limbs() -> None:
    rng = np.random.default_rng(0)
    parts, trunk = [np.arange(4, 10), np.arange(10, 13), np.arange(13, 16)], np.arange(4)
    pattern = np.zeros((16, 16), bool)
    for part in (trunk, *parts):
        both = np.concatenate([trunk, part])
        pattern[np.ix_(both, both)] = True
    order = rng.permutation(16)
    pattern = pattern[np.ix_(order, order)]
    limbs = limbs_of(pattern)
    assert limbs and len(limbs.limbs) == 3
    matrix = rng.normal(size=(7, 16, 16))
    matrix = (matrix + matrix.swapaxes(1, 2)) * pattern
    diagonal, b = np.full((7, 16), 60.0), rng.normal(size=(7, 16))
    terms = [jnp.asarray(x) for x in (matrix, matrix, diagonal, b)]
    expected = np.linalg.solve(2 * matrix + 60 * np.eye(16), b[..., None])[..., 0]
    for known in (limbs, None):
        found = tpu_cholesky.solve_sum(*terms, limbs=known)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
    wrong = Limbs(trunk=limbs.trunk, limbs=(*limbs.limbs[:-2], *((row,) for limb in limbs.limbs[-2:] for row in limb)))
    assert np.max(np.abs(tpu_cholesky.solve_sum(*terms, limbs=wrong) - expected)) > 1e-4


def test_float32_errs_no_more_than_lapack() -> None:
    rng, n = np.random.default_rng(0), 12
    matrix, b = ill_conditioned(rng, 50, n), rng.normal(size=(50, n))
    exact = np.linalg.solve(matrix, b[..., None])[..., 0]
    unit = np.sqrt(np.diagonal(matrix, axis1=1, axis2=2))
    matrix, b = jnp.asarray(matrix, jnp.float32), jnp.asarray(b, jnp.float32)
    plain = cholesky.plain_solve(cholesky.plain_factor(matrix), b[..., None])[..., 0]
    own = tpu_cholesky.solve_sum(matrix, b[:, :0], b)
    error, allowed = (np.max(np.abs(x - exact) * unit) for x in (own, plain))
    assert error < 2 * allowed


def test_solves_of_a_batch_are_written_out() -> None:
    def solve(matrix: jax.Array, b: jax.Array) -> jax.Array:
        lower = cholesky.factor(matrix)
        return cholesky.solve(lower, b[:, None])[:, 0] + cholesky.solve_sum([matrix], b[:0], b)

    rng = np.random.default_rng(0)
    matrix = MATRICES["wide"](rng, WORLDS, 9)
    given = matrix.astype(np.float32), rng.normal(size=(WORLDS, 9)).astype(np.float32)
    text = jax.jit(jax.vmap(solve)).trace(*given).lower(lowering_platforms=("tpu",)).as_text()
    assert "cholesky" not in text and "triangular_solve" not in text
    expected = 2 * np.linalg.solve(matrix, given[1][..., None])[..., 0]
    np.testing.assert_allclose(run(jax.vmap(solve), *given), expected, rtol=0, atol=1e-4 * np.max(np.abs(expected)))


def test_products_of_small_matrices_are_sums() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(WORLDS, 3, 4)), rng.normal(size=(WORLDS, 4, 5))
    text = jax.jit(jax.vmap(matmul)).trace(a, b).lower(lowering_platforms=("tpu",)).as_text()
    assert "dot_general" not in text
    np.testing.assert_allclose(run(jax.vmap(matmul), a, b), a @ b, rtol=0, atol=1e-13)


@pytest.mark.parametrize("kind", [np.float32, np.int32, bool])
@pytest.mark.parametrize("shape", [(7,), (7, 2), (7, 3, 3)])
def test_rows_at_ids_of_run_time_are_sums(kind: type, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    values = (10 * rng.normal(size=(WORLDS, *shape))).astype(kind)
    if kind is np.float32:
        # a row that is not picked does not matter
        values[:, 1] = np.nan
    ids = rng.choice([0, 2, 3, 6, -1, -7, 9], size=(WORLDS, 4)).astype(np.int32)
    text = jax.jit(jax.vmap(pick)).trace(values, ids).lower(lowering_platforms=("tpu",)).as_text()
    assert "gather" not in text
    expected = np.stack([values[world][np.minimum(ids[world], 6)] for world in range(WORLDS)])
    np.testing.assert_array_equal(run(jax.vmap(pick), values, ids), expected)
    ids = np.abs(ids) % 7
    expected = np.stack([values[world][ids[world]] for world in range(WORLDS)])
    np.testing.assert_array_equal(run(jax.vmap(pick_existing), values, ids), expected)


def test_a_large_table_is_gathered() -> None:
    table, ids = jnp.zeros(1 << 14), jnp.zeros((WORLDS, 5), jnp.int32)
    text = jax.jit(jax.vmap(lambda at: pick(table, at))).trace(ids).lower(lowering_platforms=("tpu",)).as_text()
    assert "gather" in text


def test_selftest_checks_the_solves() -> None:
    solves = SimpleNamespace(**{name: jax.jit(getattr(tpu_cholesky, name)) for name in selftest.SOLVES})
    checks = probe.check_kernels(solves, sizes=(6,))
    assert [check.kernel for check in checks] == ["factor", "solve", "solve_sum", "solve_gram"]
    assert all(check.passed for check in checks)
