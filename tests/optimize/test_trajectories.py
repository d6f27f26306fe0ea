"""iLQR, shooting and receding horizon control, where the best motion is known."""

import functools
import types
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.optimize
from wide import only_wide

import diffsim
from diffsim import optimize
from diffsim.optimize.trajectory import ilqr
from diffsim.optimize.trajectory.ilqr import Quadratic, box_qp
from tests.optimize.problems import HORIZON, RAIL, exact, reach
from tests.uncompiled import uncompiled

TASK = reach((-1, 1))
NOTHING = jnp.zeros((HORIZON, 1))


def test_box_qp_finds_the_minimum() -> None:
    solve = jax.jit(box_qp)
    for seed in range(20):
        rng = np.random.default_rng(seed)
        root, g, mixed = rng.normal(size=(6, 4)), 3 * rng.normal(size=4), rng.normal(size=(4, 3))
        lower, upper = -rng.uniform(size=4), rng.uniform(size=4)
        u, gain = solve(Quadratic(root.T @ root, g, mixed), lower, upper)
        target = -np.linalg.solve(root.T @ root, g)
        expected = scipy.optimize.lsq_linear(root, root @ target, (lower, upper), tol=1e-14).x
        np.testing.assert_allclose(u, expected, atol=1e-8)
        moved = solve(Quadratic(root.T @ root, g + mixed @ np.full(3, 1e-6), mixed), lower, upper)[0]
        np.testing.assert_allclose(gain @ np.ones(3), (moved - u) / 1e-6, atol=1e-6)


def test_rounding_leaves_a_minimum_in_float32() -> None:
    """A stiff arm of four joints with strong motors: the cost to go stays convex while controls are at their bounds."""
    n, steps, h = 4, 40, 0.01

    @jax.jit
    def gain(system: Any, one: jax.Array) -> jax.Array:
        task: Any = types.SimpleNamespace(lower=-one, upper=one)
        ctrl = jnp.zeros((steps, n), one.dtype)
        return jnp.sum(ilqr.backward(task, system, ctrl, 1e-6 * one[0])[2])

    for seed in (0, 2):
        rng = np.random.default_rng(seed)
        turn = np.linalg.qr(rng.normal(size=(n, n)))[0]
        mobility, stiffness = turn @ np.diag(np.logspace(-1, 2, n)) @ turn.T, 10 * rng.normal(size=(n, n))
        A = np.block([[np.eye(n) + h * h * stiffness, h * np.eye(n)], [h * stiffness, np.eye(n)]])
        B = 100 * np.concatenate([h * h * mobility, h * mobility])
        r, r_x, r_u = (np.zeros((steps + 1, 3 * n, *width)) for width in ((), (2 * n,), (n,)))
        r[-1, n:], r_x[-1, n:] = 20 * rng.normal(size=2 * n), np.diag(np.repeat([10.0, 3.0], n))
        r_u[:-1, :n] = 0.05 * np.eye(n)
        parts = (np.broadcast_to(A, (steps + 1, *A.shape)), np.broadcast_to(B, (steps + 1, *B.shape)), r, r_x, r_u)
        kinds = (jnp.float32, jnp.float64)
        systems = [ilqr.LinearQuadratic(*(jnp.asarray(part, dtype) for part in parts)) for dtype in kinds]
        np.testing.assert_allclose(*(gain(system, jnp.ones(n, system.A.dtype)) for system in systems), rtol=0.01)


def test_ilqr_finds_the_best_controls() -> None:
    # one compilation serves both bounds
    for bound, iterations in ((np.inf, 2), (1.0, 12)):
        task = TASK.replace(lower=jnp.full(1, -bound), upper=jnp.full(1, bound))
        plan = optimize.ilqr(task, diffsim.make_state(task.model), NOTHING)
        np.testing.assert_allclose(plan.ctrl[:, 0], exact(bound), atol=1e-5)
        assert plan.converged and plan.iterations <= iterations and plan.status == 0 and plan.leaps == 0
        # feedback is off where controls are held
        held = np.abs(plan.ctrl[:, 0]) >= bound
        assert np.all(np.asarray(plan.gains)[held] == 0) and np.all(np.any(np.asarray(plan.gains)[~held], axis=(1, 2)))
        again = optimize.evaluate(task, diffsim.make_state(task.model), plan.ctrl)
        assert float(again.cost) == pytest.approx(float(plan.cost), rel=1e-12)


@pytest.mark.parametrize(
    "find",
    [
        optimize.evaluate,
        optimize.ilqr,
        functools.partial(optimize.mpc, steps=2),
        functools.partial(optimize.shooting, optimizer=optax.adam(1e-2)),
    ],
)
def test_controls_take_the_precision_of_the_model(find: Callable) -> None:
    found = jax.eval_shape(find, TASK, diffsim.make_state(TASK.model), NOTHING.astype(jnp.float32))
    assert all(leaf.dtype in (jnp.float64, jnp.int32, bool) for leaf in jax.tree.leaves(found))


def test_a_batch_in_slots_ends_where_each_would_alone() -> None:
    """More problems than slots, of different lengths; goals are held by the functions of the task."""
    model = TASK.model
    places, goals = jnp.linspace(-1, 1, 7), jnp.linspace(0.2, 3, 7)
    bounds = jnp.linspace(0.4, 2, 7)[:, None]

    def solve(place: jax.Array, goal: jax.Array, bound: jax.Array, slots: int) -> optimize.Plan:
        def final(state: diffsim.State, data: diffsim.Data) -> jax.Array:
            return 10 * jnp.concatenate([state.qpos - goal, state.qvel])

        task = optimize.make_task(model, TASK.running, final, bounds=(-bound, bound))
        state = diffsim.make_state(model).replace(qpos=place[None])
        return optimize.ilqr(task, state, NOTHING, optimize.Ilqr(slots=slots))

    batch = jax.jit(jax.vmap(functools.partial(solve, slots=3)))(places, goals, bounds)
    alone = jax.jit(functools.partial(solve, slots=0))
    each = [alone(*row) for row in zip(places, goals, bounds, strict=True)]
    np.testing.assert_array_equal(batch.iterations, [int(plan.iterations) for plan in each])
    assert len(set(batch.iterations.tolist())) > 2
    for name in ("ctrl", "gains", "cost", "converged"):
        expected = np.stack([getattr(plan, name) for plan in each])
        np.testing.assert_allclose(getattr(batch, name), expected, rtol=1e-6, atol=1e-9)


def test_what_no_derivative_reaches_is_not_converged() -> None:
    """Two masses that never touch: the motor of one does nothing for the other."""
    other = '<body><joint name="other" type="slide" axis="1 0 0"/><geom size=".1" contype="0" conaffinity="0"/></body>'
    model = diffsim.load(RAIL.replace("</worldbody>", f"{other}</worldbody>"))
    task = optimize.make_task(model, lambda state, data, ctrl: 0.1 * ctrl, lambda state, data: state.qpos - 1)
    solve = jax.jit(optimize.ilqr)
    plan = solve(task, diffsim.make_state(model), NOTHING)
    assert not plan.converged and plan.unreached > 0.9 and "no derivative reaches" in plan.advice
    there = diffsim.make_state(model).replace(qpos=jnp.array([0.0, 1.0]))
    plan = solve(task, there, NOTHING)
    assert plan.converged and plan.unreached == 0 and plan.advice.startswith("A local minimum")


@only_wide
def test_a_motion_at_the_edge_of_a_leap_is_not_converged() -> None:
    """The best motion ends a micrometre beyond a step of the cost, which no derivative tells."""
    u, h = exact(np.inf), 0.1
    edge = h * h * np.arange(HORIZON, 0, -1) @ u - 1e-6

    def final(state: diffsim.State, data: diffsim.Data) -> jax.Array:
        return jnp.concatenate([10 * (state.qpos - 1), 10 * state.qvel, jnp.where(state.qpos > edge, 0.0, 0.3)])

    task = optimize.make_task(TASK.model, TASK.running, final)
    plan = jax.jit(optimize.ilqr)(task, diffsim.make_state(task.model), NOTHING)
    np.testing.assert_allclose(plan.ctrl[:, 0], u, atol=1e-5)
    assert not plan.converged and plan.leaps > 0.1 and "small noise" in plan.advice


def test_a_task_without_contacts_falls_through_the_floor() -> None:
    ball = (
        "<geom type='plane' size='1 1 1'/><body pos='0 0 .1'><joint type='slide' axis='0 0 1'/><geom size='.1'/></body>"
    )
    model = diffsim.load(f"<mujoco><worldbody>{ball}</worldbody></mujoco>")
    task = optimize.make_task(model, lambda state, data, ctrl: state.qpos, contacts=False)
    fallen = uncompiled(optimize.evaluate)(task, diffsim.make_state(model), jnp.zeros((5, 0)))
    np.testing.assert_allclose(fallen.states.qpos[-1], -9.81 * 0.002**2 * 5 * 6 / 2)


def test_limits_and_goals_are_kept() -> None:
    """A speed limit and an exact end, beside the same quadratic program by another method."""

    def end(state: diffsim.State, data: diffsim.Data) -> jax.Array:
        return jnp.concatenate([state.qpos - 1, state.qvel])

    free = optimize.make_task(TASK.model, TASK.running, bounds=(-10, 10))
    limits = lambda state, data, ctrl: jnp.abs(state.qvel) - 0.6  # noqa: E731
    with pytest.raises(TypeError, match="task is a float, expected Task"):
        optimize.constrained(1.0, diffsim.make_state(TASK.model), NOTHING)
    plan = optimize.constrained(free, diffsim.make_state(TASK.model), NOTHING, limits=limits, goal=end)
    h, left = 0.1, np.arange(HORIZON, 0, -1)
    ends = np.stack([h * h * left, np.full(HORIZON, h)])
    speeds = h * np.tri(HORIZON)[:-1]
    best = scipy.optimize.minimize(
        lambda u: 0.5 * 0.01 * u @ u,
        np.zeros(HORIZON),
        jac=lambda u: 0.01 * u,
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 200},
        constraints=[
            {"type": "eq", "fun": lambda u: ends @ u - [1, 0]},
            {"type": "ineq", "fun": lambda u: 0.6 - speeds @ u},
        ],
    )
    assert float(plan.violation) < 1e-5
    np.testing.assert_allclose(plan.ctrl[:, 0], best.x, atol=1e-3)
    assert float(plan.cost) == pytest.approx(best.fun, rel=1e-3)
    # prices are paid at the speed limit alone
    fast = np.asarray(plan.states.qvel[:-1, 0]) > 0.6 - 1e-4
    assert np.any(fast) and np.all(np.asarray(plan.price[:, 0])[~fast] < 1e-6) and np.any(plan.price > 1e-3)


def test_shooting_takes_the_best_of_many_starts() -> None:
    starts = jnp.stack([NOTHING, NOTHING + 0.3])
    solve = jax.jit(
        functools.partial(
            optimize.shooting, optimizer=optax.adam(optax.cosine_decay_schedule(0.1, 300)), iterations=300
        )
    )
    shots = solve(TASK, diffsim.make_state(TASK.model), starts)
    assert shots.costs.shape == (2, 300) and shots.ctrl.shape == (2, HORIZON, 1)
    ideal = optimize.evaluate(TASK, diffsim.make_state(TASK.model), jnp.asarray(exact(1.0))[:, None])
    assert float(ideal.cost) <= float(shots.best.cost) < 1.02 * float(ideal.cost)
    assert float(shots.best.cost) == pytest.approx(float(jnp.min(shots.costs)), rel=1e-9)
    assert np.all(np.abs(shots.ctrl) <= 1)
    # with one guess there is no axis of guesses, as in a `Solution` and a `Plan`
    one = jax.eval_shape(solve, TASK, diffsim.make_state(TASK.model), NOTHING)
    assert one.costs.shape == (300,) and one.ctrl.shape == NOTHING.shape == one.best.ctrl.shape


def test_receding_horizon_reaches_the_goal() -> None:
    run = jax.jit(optimize.mpc, static_argnames="steps")
    path = run(TASK, diffsim.make_state(TASK.model), NOTHING, 60)
    assert path.ctrl.shape == (60, 1) and path.states.qpos.shape == (61, 1) and int(path.status) == 0
    assert abs(float(path.states.qpos[-1, 0]) - 1) < 0.02


def test_receding_searches_reach_the_goal() -> None:
    search = optimize.Sampling(samples=64, elites=8, driven=3)
    run = jax.jit(functools.partial(optimize.mpc, settings=search), static_argnames="steps")
    path = run(TASK, diffsim.make_state(TASK.model), NOTHING, steps=43)
    assert path.ctrl.shape == (43, 1) and path.states.qpos.shape == (44, 1) and int(path.status) == 0
    assert abs(float(path.states.qpos[-1, 0]) - 1) < 0.05
    again = optimize.evaluate(TASK, diffsim.make_state(TASK.model), path.ctrl)
    np.testing.assert_allclose(again.states.qpos, path.states.qpos, atol=1e-9)
    with pytest.raises(diffsim.ArgumentError, match="bounds of all controls"):
        optimize.mpc(reach((-np.inf, 1)), diffsim.make_state(TASK.model), NOTHING, 4, settings=search)


def test_wrong_controls_are_refused() -> None:
    with pytest.raises(ValueError, match=r"expected \(T, 1\)"):
        optimize.ilqr(TASK, diffsim.make_state(TASK.model), NOTHING[:, 0])
    with pytest.raises(ValueError, match=r"shape \(20,\), expected \(T, 1\)"):
        optimize.shooting(TASK, diffsim.make_state(TASK.model), NOTHING[:, 0], optax.adam(1e-2))


def test_wrong_counts_and_optimizers_are_refused() -> None:
    for steps in (0, -1):
        with pytest.raises(ValueError, match="expected one or more"):
            optimize.mpc(TASK, diffsim.make_state(TASK.model), NOTHING, steps)
    with pytest.raises(diffsim.ArgumentError, match="optimizer is a float"):
        optimize.shooting(TASK, diffsim.make_state(TASK.model), NOTHING, 1e-2)  # pyright: ignore[reportArgumentType]
