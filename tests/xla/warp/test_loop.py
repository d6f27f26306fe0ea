"""Loops as warps run them, beside XLA's: operation by operation, of random problems and of models."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import diffsim
from diffsim.xla.solves.cholesky import solve_gram
from diffsim.xla.solves.probe import check_loops
from diffsim.xla.warp.loop import Translated
from diffsim.xla.warp.machine import interpret
from tests.xla.warp.emulate import call

WORLDS = 3


def random_arrays(shapes, seed=0):
    """(WORLDS, ...) normal numbers of each shape."""
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(WORLDS, *shape)).astype(np.float32) for shape in shapes]


def run_all(advance, problem, start, trips=3):
    """The last states of `trips` iterations, by warps in numpy and in PTX, and by XLA."""
    counted = [*start, np.zeros(WORLDS, np.int32)]

    def next_state(problem, state):
        return [*advance(problem, state[:-1]), state[-1] + 1]

    loop = Translated.of(lambda state: state[-1] < trips, next_state, *jax.tree.map(lambda x: x[0], (problem, counted)))
    assert loop is not None
    operands = [*problem, *counted]
    calls = functools.partial(interpret, loop.kernel), functools.partial(call, "loop", loop.kernel)
    return *(loop.run(operands, run) for run in calls), loop.plain(*operands)


# of a matrix (5, n), weights (3, 4) and a vector (n,), whose new values they are
OPERATIONS = {
    "arithmetic": lambda m, k, x: jnp.abs(x * 0.5 - 1) / (1 + x * x) + jnp.sqrt(jnp.abs(x)) - (-jnp.sign(x - 0.5)),
    "orders": lambda m, k, x: (
        jnp.where((x < 0) | (x >= 1), x, jnp.maximum(x, 0.5)) + jnp.minimum(x, jnp.where(x == x, 1, 0))
    ),
    "truths": lambda m, k, x: jnp.where(jnp.all(x < 3) & ~(x > 0.2), 1.0, x * jnp.where((x > 0) != (x > 1), 2, 3)),
    "numbers": lambda m, k, x: x * jnp.sum(x) + jnp.linalg.norm(x) + jnp.vdot(x, x) * k[1, 2],
    "parts": lambda m, k, x: jnp.concatenate([x[2:], x[:1], jnp.sum(k)[None]]),
    "groups": lambda m, k, x: x + jnp.sum(jnp.stack([k[0], *jnp.unstack(k * k[:, :1])])),
    "axes": lambda m, k, x: x * jnp.sum(jnp.sum(k, axis=0)) + jnp.sum(k.T[1] * k[:, 1]),
    "rows": lambda m, k, x: x * jnp.sum((m @ x) * jnp.arange(5)),
    "columns": lambda m, k, x: x - jnp.concatenate([jnp.sum(k, axis=0), k[0, :1]]) @ m,
    "known": lambda m, k, x: (
        x + jnp.arange(len(x), dtype=x.dtype) * jnp.sum(jnp.eye(len(x), dtype=x.dtype) * x[None], axis=0)
    ),
    "wide": lambda m, k, x: x + jnp.sum(jnp.concatenate([jnp.outer(x, x).reshape(-1), x]) * 0.01),
}


# of one number there are no parts
@pytest.mark.parametrize(
    ("name", "n"), [(name, n) for name in OPERATIONS for n in (1, 7, 40) if n > 1 or name != "parts"]
)
def test_operations_are_xlas(name, n):
    operation = OPERATIONS[name]
    problem, start = random_arrays([(5, n), (3, 4)]), random_arrays([(n,)], seed=1)
    *found, expected = run_all(lambda problem, state: [0.3 * operation(*problem, *state)], problem, start)
    for states in found:
        for x, y in zip(states, expected, strict=True):
            np.testing.assert_allclose(x, y, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("n", [1, 7, 40])
def test_worlds_end_by_themselves(n):
    assert all(check.passed for check in check_loops(solve_gram, sizes=(n,), interpret=True))


def test_more_batches_are_more_worlds():
    """What is shared by worlds is not copied, and two maps are one."""
    problem, start = random_arrays([(5, 6), (3, 4)]), random_arrays([(6,)], seed=1)

    def advance(problem, state):
        return [0.5 * state[0] + problem[1][0, 0] * (problem[0][0]), state[1] + 1]

    loop = Translated.of(lambda state: state[1] < 3, advance, [x[0] for x in problem], [start[0][0], np.int32(0)])
    one = jax.jit(jax.vmap(lambda m, x: loop([m, problem[1][0]], [x, jnp.int32(0)])[0]))(problem[0], start[0])
    twice = jax.vmap(lambda m: jax.vmap(lambda x: loop([m, problem[1][0]], [x, jnp.int32(0)])[0])(start[0]))(problem[0])
    assert twice.shape == (WORLDS, WORLDS, 6)
    np.testing.assert_allclose(jax.vmap(jnp.diag, -1, 1)(twice), one, rtol=1e-6)
    alone = loop([problem[0][1], problem[1][0]], [start[0][1], jnp.int32(0)])[0]
    np.testing.assert_allclose(alone, one[1], rtol=1e-6)


@pytest.mark.parametrize(
    "operation",
    [
        jnp.sin,
        jnp.sort,
        lambda x: jnp.outer(x, x) @ x,
        lambda x: x.astype(jnp.int32).astype(jnp.float32),
        lambda x: x + jnp.sum(jnp.where(x < 1, 1, jnp.arange(4, dtype=jnp.int32)), dtype=jnp.int32),
        lambda x: x + (jnp.where(x < 1, 1, jnp.int32(2)) & jnp.int32(2)),
    ],
)
def test_what_a_warp_does_not_know_stays_xlas(operation):
    x = jnp.ones(4, jnp.float32)
    assert (
        Translated.of(lambda state: state[1] < 3, lambda _, s: (operation(s[0]), s[1] + 1), (), (x, np.int32(0)))
        is None
    )


def test_a_loop_in_a_mesh_runs_in_a_warp():
    """Where a mesh is set, jax adds `reshard` to a choice with a number; the numbers stay as they are."""
    x = jnp.arange(4, dtype=jnp.float32)
    loop = None
    with jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((1,), ("x",))):
        loop = Translated.of(
            lambda state: state[1] < 3, lambda _, s: (jnp.where(s[0] < 2, s[0], 0), s[1] + 1), (), (x, np.int32(0))
        )
    assert loop is not None


def test_float64_stays_xlas():
    with jax.enable_x64(True):
        assert Translated.of(lambda x: x[0] < 3, lambda _, x: x + 1, (), jnp.ones(4)) is None


# every law: an elliptic contact, dry friction of a dof and of a tendon, a limit, an equality
MANY_LAWS = """<mujoco><option cone="elliptic"/><worldbody><geom type="plane" size="5 5 .1"/>
  <body pos="0 0 .08"><joint type="slide" axis="0 0 1"/><joint name="a" axis="0 1 0" frictionloss="0.3"/>
    <geom size=".1" condim="6"/></body>
  <body pos="1 0 .3"><joint name="b" axis="0 1 0" range="10 40"/><geom size=".05" pos=".1 0 0" contype="0"/></body>
  </worldbody><equality><joint joint1="a" joint2="b"/></equality>
  <tendon><fixed frictionloss=".1"><joint joint="a" coef="1"/><joint joint="b" coef="1"/></fixed></tendon></mujoco>"""


@pytest.mark.parametrize("source", ["hopper", MANY_LAWS], ids=["hopper", "laws"])
def test_the_search_of_a_step_is_xlas(source, monkeypatch):
    """A step as a GPU takes it: the same iterations of the solver, and the same acceleration."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    calls = []

    def interpreted(loop, *operands):
        def run(*operands):
            calls.append(len(operands))
            return loop.run(list(map(np.asarray, operands)), functools.partial(call, "loop", loop.kernel))

        return jax.pure_callback(run, loop.results(max(map(len, operands))), *operands)

    with jax.enable_x64(False):
        model = diffsim.load(source)
        model = model.replace(opt=model.opt.replace(iterations=50, ls_iterations=10))
        state = diffsim.make_state(model)
        # pressed into the ground, and against limits
        if source == "hopper":
            state = state.replace(qpos=state.qpos.at[:4].add(-0.06))
        speeds = np.random.default_rng(0).normal(size=(WORLDS, model.nv)).astype(np.float32)

        def forward(qvel):
            data = diffsim.forward(model, state.replace(qvel=qvel))
            return data.solver_niter, data.qacc

        expected = jax.jit(jax.vmap(forward))(speeds)
        assert not calls
        monkeypatch.setattr(Translated, "plain", interpreted)
        found = jax.jit(jax.vmap(lambda qvel: forward(qvel)))(speeds)
    assert calls
    assert np.max(expected[0]) > 1
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-3, atol=1e-3 * np.max(np.abs(expected[1])))
