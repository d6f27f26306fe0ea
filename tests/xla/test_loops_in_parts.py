"""Batches in parts: every world ends as it does by itself, whatever its place and the number of its iterations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from wide import only_wide

import diffsim
from diffsim.xla import batched_loops
from diffsim.xla.batched_loops import (
    EIGHTH,
    LARGE_STATE,
    SMALLEST_SPLIT,
    Loop,
    kernel,
    last_eighth,
    quarters,
    run,
)

Array = jax.Array
BALL = """<mujoco><worldbody><geom type="plane" size="1 1 1"/>
  <body pos="0 0 .09"><freejoint/><geom size=".1"/></body></worldbody></mujoco>"""
# counts down from the number that the problem gives, in steps that are shared by all worlds
COUNTDOWN = Loop(
    lambda state: state[0] > 0,
    lambda problem, state: (state[0] - problem[1], state[1] + problem[0] * state[2], state[2] + 1),
)


def countdown(length: Array, step: Array) -> tuple[Array, Array, Array]:
    start = length, jnp.zeros(()), jnp.zeros((), jnp.int32)
    return run(COUNTDOWN, (length, step), start, cpu=quarters, gpu=kernel)


def expected(lengths: np.ndarray) -> np.ndarray:
    return np.array([length * sum(range(int(length))) for length in lengths])


LENGTHS = {
    "few take long": lambda rng, size: np.where(rng.uniform(size=size) < 0.05, 40, rng.integers(0, 5, size)),
    "one part takes long": lambda rng, size: np.where(np.arange(size) < size // 4, 30, 1),
    "all alike": lambda rng, size: np.full(size, 7),
    "nothing to do": lambda rng, size: np.zeros(size),
}


@pytest.mark.parametrize("kind", LENGTHS)
@pytest.mark.parametrize("size", [3, 2 * EIGHTH, SMALLEST_SPLIT, 5 * EIGHTH + 3])
def test_the_last_eighth_of_short_loops(kind: str, size: int) -> None:
    lengths = LENGTHS[kind](np.random.default_rng(size), size).astype(float)
    start = jnp.asarray(lengths), jnp.zeros(size), jnp.zeros(size, jnp.int32)
    ends = jax.jit(jax.vmap(lambda length, start: last_eighth(COUNTDOWN, (length, jnp.ones(())), start)))(
        start[0], start
    )
    assert np.array_equal(ends[0], np.zeros(size))
    assert np.array_equal(ends[1], expected(lengths))
    assert np.array_equal(ends[2], lengths.astype(int))


@pytest.mark.parametrize("kind", LENGTHS)
@pytest.mark.parametrize("size", [8, SMALLEST_SPLIT, 4 * SMALLEST_SPLIT, 4 * SMALLEST_SPLIT + 2])
def test_each_world_ends_as_by_itself(kind: str, size: int) -> None:
    lengths = LENGTHS[kind](np.random.default_rng(size), size).astype(float)
    state = jax.jit(jax.vmap(countdown, (0, None)))(jnp.asarray(lengths), jnp.ones(()))
    assert np.array_equal(state[0], np.zeros(size))
    assert np.array_equal(state[1], expected(lengths))
    assert np.array_equal(state[2], lengths.astype(int)) and state[2].dtype == jnp.int32


@pytest.mark.parametrize("size", [8, 4 * SMALLEST_SPLIT])
def test_each_world_prepares_its_own_problem(size: int) -> None:
    """A problem is a number and a step; the prepared problem also has the square of the number, which is added up."""
    search = Loop(
        lambda state: state[0] > 0,
        lambda problem, state: (state[0] - problem[1], state[1] + problem[2]),
        lambda problem: (*problem, problem[0] ** 2),
    )
    lengths = np.random.default_rng(1).integers(0, 9, size).astype(float)
    run_one = lambda length: quarters(search, (length, jnp.ones(())), (length, jnp.zeros(())))[1]  # noqa: E731
    assert np.array_equal(jax.jit(jax.vmap(run_one))(jnp.asarray(lengths)), lengths**3)


@pytest.mark.parametrize("many", [1, 1 << 30])
def test_a_gpu_leaves_few_worlds_for_the_end(many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(batched_loops, "BUSY_GPU", many)
    lengths = LENGTHS["few take long"](np.random.default_rng(0), SMALLEST_SPLIT).astype(float)
    batch = jax.jit(jax.vmap(countdown, (0, None)))
    assert np.array_equal(batch(jnp.asarray(lengths), jnp.ones(()))[1], expected(lengths))
    loops = batch.lower(jnp.asarray(lengths), jnp.ones(())).as_text().count("stablehlo.while")
    assert loops == (2 if many == 1 else 1)


def test_batches_of_batches() -> None:
    lengths = np.random.default_rng(0).integers(0, 9, (3, SMALLEST_SPLIT)).astype(float)
    state = jax.jit(jax.vmap(jax.vmap(countdown, (0, None)), (0, None)))(jnp.asarray(lengths), jnp.ones(()))
    assert np.array_equal(state[1], expected(lengths.reshape(-1)).reshape(lengths.shape))


@pytest.mark.parametrize("how", [quarters, last_eighth])
def test_large_worlds_go_one_after_another(how) -> None:
    """No array of the loop has a batch axis, whatever was mapped; some of the problem is shared."""
    wide = Loop(lambda state: state[0] > 0, lambda problem, state: (state[0] - problem[1], state[1] + problem[0]))
    lengths = np.random.default_rng(0).integers(0, 9, (2, 3)).astype(float)
    one = lambda x: how(wide, (jnp.arange(LARGE_STATE) * x, jnp.ones(())), (x, jnp.zeros(LARGE_STATE)))[1]  # noqa: E731
    batch = jax.jit(jax.vmap(jax.vmap(one)))
    assert np.array_equal(batch(jnp.asarray(lengths)), lengths[..., None] ** 2 * np.arange(LARGE_STATE))
    loops = [line for line in batch.lower(jnp.asarray(lengths)).as_text().splitlines() if "stablehlo.while" in line]
    assert len(loops) == 3


@only_wide
def test_nothing_traced_stays_in_a_search() -> None:
    """`jax.checking_leaks` raises for none in the program of a step: the functions of a search are kept in it."""
    model = diffsim.load(BALL)
    state = diffsim.make_state(model)
    with jax.checking_leaks():
        assert jax.jit(diffsim.step).lower(model, state).out_info.qpos.shape == state.qpos.shape
