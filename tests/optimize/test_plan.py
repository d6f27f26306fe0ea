"""plan: searches, what they find, what they say of it."""

import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from wide import only_wide

import diffsim
from diffsim import optimize
from diffsim.optimize.progress import Progress
from diffsim.optimize.trajectory.perturbation import Candidate, candidates, kinds_of_worlds
from diffsim.optimize.trajectory.planner import Planner
from diffsim.optimize.trajectory.sampling import Attempt, NewtonStepper, NewtonSteps
from diffsim.optimize.trajectory.tree import Goal, TreeSettings, search_tree
from tests.optimize.problems import HORIZON, exact, reach

FEW = optimize.Sampling(samples=128, elites=12)
# one task, one program for all tests
TASK = reach((-1, 1))
NOTHING = jnp.zeros((HORIZON, 1))

# a pusher on the wrong side of a ball
WRONG_SIDE = """<mujoco><option timestep=".05" gravity="0 0 0" integrator="implicitfast"/>
<default><joint type="slide" damping="5"/><geom size=".1" mass="1" condim="1"/></default>
<worldbody><body><joint name="x" axis="1 0 0"/><joint name="y" axis="0 1 0"/><geom name="pusher"/></body>
<body><joint name="ball" axis="1 0 0"/><geom name="ball" pos=".3 0 0"/></body></worldbody>
<actuator><velocity joint="x" kv="50" ctrlrange="-1 1"/><velocity joint="y" kv="50" ctrlrange="-1 1"/></actuator>
</mujoco>"""


def test_a_plan_finds_the_best_controls_and_tells_the_truth() -> None:
    task = TASK
    lines: list[str] = []
    state = diffsim.make_state(task.model)
    found = optimize.plan(task, state, HORIZON, settings=FEW, show=lines.append)
    np.testing.assert_allclose(found.ctrl[:, 0], exact(1.0), atol=1e-5)
    assert found.converged and np.any(found.gains != 0)
    again = optimize.evaluate(task, state, found.ctrl)
    assert float(again.cost) == pytest.approx(float(found.cost), rel=1e-12)

    def end(gains: np.ndarray) -> np.ndarray:
        """Where the mass ends that began 5 cm further."""
        x, v = 0.05, 0.0
        for u, K, x_t, v_t in zip(
            found.ctrl[:, 0], gains, found.states.qpos[:, 0], found.states.qvel[:, 0], strict=False
        ):
            v += 0.1 * float(np.clip(u + K @ np.array([x - x_t, v - v_t]), -1, 1))
            x += 0.1 * v
        return np.abs([x - 1, v])

    gains = np.asarray(found.gains[:, 0])
    assert np.max(end(gains)) < 0.1 * np.max(end(0 * gains))
    # 1/2 (10 (0 - 1))^2 at rest, and at the start
    assert float(found.idle) == pytest.approx(50) and float(found.goal[0]) == pytest.approx(50)
    assert found.noisy.shape == (64,) and 0 < float(jnp.std(found.noisy)) < 1e-3 * float(found.idle)
    assert "rounding" not in found.advice and "rounding" in found.replace(leaps=jnp.asarray(1.0)).advice
    assert f"It holds: it reaches the goal in {found.noisy.size} of {found.noisy.size}" in found.advice
    without_goal = found.replace(goal=jnp.zeros(2), noisy=found.noisy + found.cost)
    assert "little compared with doing nothing" in without_goal.advice
    assert any("whole horizon, 8 pieces" in line for line in lines)
    # equal keys, equal plans; a motion that was found costs as much as is said
    same = optimize.plan(task, state, HORIZON, settings=FEW)
    assert np.array_equal(same.ctrl, found.ctrl) and np.array_equal(same.noisy, found.noisy)


def test_advice_counts_the_worlds_that_reach_the_goal() -> None:
    """Robustness is judged by the goal, not by a cost that is small compared with doing nothing."""
    at_goal, missed = jnp.full(64, 0.2), jnp.full(64, 0.2).at[:6].set(2.0)
    # a fraction 0.01 of the goal's cost, a tenth of the way, is left at most; 2 of 50 is a fifth of the way
    found = a_solution(goal=(50.0, 0.2), noisy_finals=missed, held_finals=at_goal, gains=1.0)
    expected = "It holds with its feedback (gains), with which it reaches the goal in 64 of 64 perturbed worlds"
    assert (
        expected in found.advice
        and "in 58 of 64 perturbed worlds; in the worst, 20% of the way is left" in found.advice
    )
    fragile = found.replace(held_finals=missed)
    assert "Fragile: it reaches the goal in 58 of 64" in fragile.advice and "robust='mean'" in fragile.advice
    assert "no feedback helps" in fragile.replace(gains=0 * found.gains).advice
    assert "It holds: it reaches" in found.replace(noisy_finals=at_goal).advice


def test_advice_says_what_is_in_the_way() -> None:
    # 14% of the way left, as a cost 2%
    short = a_solution(goal=(50.0, 1.0), noisy_finals=jnp.ones(64), held_finals=jnp.ones(64), gains=1.0)
    assert "It does not reach the goal: 14% of the way is left." in short.advice and "It holds" not in short.advice
    assert short.advice.endswith("Give it more steps, or another key.")
    assert "was nearer at step 30, with 4% of the way left" in short.replace(nearest=jnp.asarray([0.1, 30.0])).advice
    lost = short.replace(unreached=jnp.asarray(0.9))
    assert "No control ever acts on what 90% of the cost depends on." in lost.advice
    assert "did not touch it" in lost.replace(moved=jnp.asarray(False)).advice
    assert "95% of the controls are at their bounds" in short.replace(saturated=jnp.asarray(0.95)).advice
    hurried = short.replace(untried=("a tree of motions", "a larger tree"))
    assert "no time for a tree of motions, a larger tree: give it more seconds" in hurried.advice


def test_feedback_that_makes_it_worse_is_not_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    state, steps_of = diffsim.make_state(TASK.model), NewtonStepper.__call__

    def spoiled(stepper: NewtonStepper, motion: Attempt, mu: float) -> NewtonSteps:
        """Gains of the wrong sign, which drive the mass away from its path."""
        steps = steps_of(stepper, motion, mu)
        return steps._replace(feedback=steps.feedback._replace(gains=-10 * steps.feedback.gains))

    monkeypatch.setattr(NewtonStepper, "__call__", spoiled)
    found = optimize.plan(TASK, state, HORIZON, settings=FEW)
    assert not np.any(found.gains) and np.mean(found.held) < 1.5 * np.mean(found.noisy)


def a_solution(
    goal: tuple[float, float], noisy_finals: jax.Array, held_finals: jax.Array, gains: float
) -> optimize.Solution:
    """A solution whose parts are made up."""
    states = jax.tree.map(lambda x: jnp.zeros((3, *x.shape), x.dtype), diffsim.make_state(TASK.model))
    small = jnp.zeros(())
    return optimize.Solution(
        states=states,
        ctrl=jnp.zeros((2, 1)),
        cost=jnp.asarray(goal[1] + 1),
        status=jnp.asarray(0),
        gains=jnp.full((2, 1, 2), gains),
        iterations=jnp.asarray(3),
        converged=jnp.asarray(False),
        promised=small,
        unreached=small,
        leaps=small,
        noisy=noisy_finals + 1,
        held=held_finals + 1,
        noisy_finals=noisy_finals,
        held_finals=held_finals,
        idle=jnp.asarray(goal[0]),
        goal=jnp.asarray(goal),
        nearest=jnp.asarray([goal[1], 2.0]),
        moved=jnp.asarray(True),
        saturated=small,
        steps=jnp.asarray(1000),
    )


def test_a_budget_is_shared_by_all_searches() -> None:
    planner = object.__new__(Planner)
    planner.progress = Progress("plan", 100.0, None)
    # nothing is spent yet: five searches get 5, 4, 3, 2, 1 parts of 80% of the budget, one after the other
    ends = []
    for left in (5, 4, 3, 2, 1):
        planner.progress.began = time.monotonic() - (ends[-1] if ends else 0.0)
        ends.append(planner._end_of_search(left))
    assert np.diff([0.0, *ends]) == pytest.approx(80 * np.array([5, 4, 3, 2, 1]) / 15, abs=0.1)
    planner.deadline = 1.0
    assert planner.late
    planner.deadline = None
    assert not planner.late


def test_a_plan_ends_when_it_is_told_to() -> None:
    task = TASK
    state = diffsim.make_state(task.model)
    lines: list[str] = []
    short = optimize.plan(
        task, state, HORIZON, settings=FEW, seconds=0, ctrl=jnp.full((HORIZON, 1), 0.1), show=lines.append
    )
    assert any("stopped" in line for line in lines) and int(short.steps) < 12 * 128 * HORIZON
    assert "There was no time for a tree of motions" in short.advice
    # even without a guess, it returns something, and says what it is
    lost = optimize.plan(task, state, HORIZON, settings=FEW, seconds=0)
    assert "It does not reach the goal" in lost.advice and "There was no time" in lost.advice

    def interrupt(line: str) -> None:
        lines.append(line)
        if "4 pieces" in line:
            raise KeyboardInterrupt

    stopped = optimize.plan(task, state, HORIZON, settings=FEW, show=interrupt)
    assert "8 pieces" not in lines[-1] and float(stopped.cost) < float(stopped.idle)
    # in a set of worlds the mean over worlds falls, or stays
    steady = optimize.plan(task, state, HORIZON, settings=FEW, robust="worst quarter", show=lines.append)
    assert any("made robust, 8 pieces" in line for line in lines) and np.max(steady.noisy) < 0.1 * float(steady.idle)


@only_wide
def test_a_plan_goes_around() -> None:
    """The ball shall come nearer, and the pusher stands on that side: all that derivatives say is to stay away."""
    model = diffsim.load(WRONG_SIDE)
    final = lambda state, data: 10 * (state.qpos[2:] + 0.2)  # noqa: E731
    task = optimize.make_task(model, lambda state, data, ctrl: 0.01 * ctrl, final)
    found = optimize.plan(task, diffsim.make_state(model), 60, settings=FEW)
    assert float(found.goal[1]) < 0.02 * float(found.goal[0])
    assert np.mean(found.noisy) < 0.1 * float(found.idle)


def test_a_tree_grows_out_of_a_trap() -> None:
    """A point within three walls, the goal behind the middle one: all ways there lead away from it first."""
    model = diffsim.load(
        """<mujoco><worldbody><body><joint type="slide" axis="1 0 0"/><joint name="y" type="slide" axis="0 1 0"/>
        <geom size=".1"/></body></worldbody><actuator><velocity joint="y" ctrlrange="-1 1"/>
        <velocity joint="y" ctrlrange="-1 1"/></actuator></mujoco>"""
    )
    task = optimize.make_task(model, lambda state, data, ctrl: ctrl)
    place_of_goal, walls = np.array([0.0, 0.6]), [(0, 0.3, 0.5, 0.05), (-0.5, 0.2, 0.05, 0.1), (0.5, 0.2, 0.05, 0.1)]

    def tried(begin: diffsim.State, ctrl: np.ndarray, length: int) -> Attempt:
        place = [np.asarray(begin.qpos)]
        for t in range(ctrl.shape[1]):
            later = place[-1] + 0.05 * ctrl[:, t] * (t < length)
            inside = [np.all(np.abs(later - wall[:2]) < wall[2:], axis=1) for wall in np.array(walls)]
            place.append(np.where(np.any(inside, axis=0)[:, None], place[-1], later))
        final = 50 * np.sum((place[-1] - place_of_goal) ** 2, axis=1)
        cost = 0.5e-3 * np.sum(ctrl[:, :length] ** 2, axis=(1, 2)) + final
        copies = jax.tree.map(lambda x: np.repeat(np.asarray(x)[:, None], len(place), axis=1), begin)
        states = copies.replace(qpos=np.stack(place, axis=1))
        return Attempt(cost, final, states, ctrl, np.zeros(len(ctrl), int))

    start = diffsim.make_state(model)
    begin = 50 * float(place_of_goal @ place_of_goal)
    goal = Goal(start=begin, reached=0.005 * begin, slope=np.array([10.0, 10, 0, 0]))
    ctrl = search_tree(task, start, 64, 256, 0, goal, tried)
    states = jax.tree.map(lambda x: jnp.asarray(x)[None], start)
    assert float(tried(states, ctrl[None], 64).final[0]) < 0.02 * begin
    # where nothing may go further away than the start, it stays behind the wall
    near = search_tree(task, start, 64, 256, 0, goal, tried, TreeSettings(pruned=1.0))
    assert float(tried(states, near[None], 64).final[0]) > 0.2 * begin


def test_no_goal_is_given_up_for_a_lower_cost() -> None:
    """Polish once took a box from 0.8% of the goal error to 2.6%, for 1% of the cost."""
    planner = object.__new__(Planner)
    planner.goal, planner.robust, planner.settings = 1.0, None, optimize.PlanSettings()

    def motion(cost: float, final: float, noisy: float, end: float = 0.0) -> Candidate:
        did = Attempt(*map(jnp.asarray, (cost, final)), diffsim.make_state(TASK.model), NOTHING, jnp.asarray(0))
        return Candidate(motion=did, costs=np.full(8, noisy), finals=np.full(8, end))

    searched, polished = motion(9.8, 0.004, 12.0), motion(9.7, 0.026, 10.0)
    assert min([polished, searched], key=planner.rank) is searched
    # nor is one that noise keeps for one that it does not
    assert min([motion(9.7, 0.004, 10.0, 0.02), searched], key=planner.rank) is searched
    # of two that reach it, what costs less under noise; where the task has no goal, or plans are robust, that alone
    assert min([searched, motion(9.7, 0.005, 10.0)], key=planner.rank).cost == pytest.approx(9.7)
    for goal, robust in ((0.0, None), (1.0, "mean")):
        planner.goal, planner.robust = goal, robust
        assert min([searched, polished], key=planner.rank) is polished


def test_a_motion_that_rounding_decides_counts_as_what_is_likelier() -> None:
    """Reported were 0.0037 of a push whose contact is just missed, and 0.0647 was what its controls cost elsewhere."""
    differs, near = kinds_of_worlds(128)
    assert not np.any(differs & near) and list(np.flatnonzero(~differs & ~near)) == list(range(0, 128, 16))
    costs = np.full((8, 16), 5.0)
    # in the model: by luck, by rounding alone, and by bad luck; and one that is likely, beside a rare leap
    costs[:4, 0], costs[3, np.flatnonzero(near)[0]] = (0.1, 5.001, 80, 5), 0.2
    ctrl = np.arange(128.0)[:, None, None] * np.ones((1, 3, 1))
    tried = Attempt(costs.ravel(), 0.5 * costs.ravel(), diffsim.make_state(TASK.model), ctrl, np.zeros(128, int))
    tried = tried._replace(states=jax.tree.map(lambda x: np.repeat(np.asarray(x)[None], 128, axis=0), tried.states))
    found = candidates(tried, costs, 9)
    assert [each.cost for each in found[:4]] == pytest.approx([5, 5.001, 5, 5])
    assert [each.final for each in found[:4]] == pytest.approx([2.5, 2.5005, 2.5, 2.5])
    # with the controls that do so
    rows = [int(each.motion.ctrl[0, 0]) for each in found[:4]]
    assert near[rows[0]] and rows[1] == 16 and near[rows[2]] and rows[3] == 48
    assert all(each.costs.shape == each.finals.shape == (9,) for each in found)


def test_plans_refuse_what_they_cannot_do() -> None:
    state = diffsim.make_state(TASK.model)
    with pytest.raises(diffsim.ArgumentError, match="bounds of all controls"):
        optimize.plan(reach(), state, HORIZON)
    with pytest.raises(diffsim.ArgumentError, match="expected a multiple of 8"):
        optimize.plan(TASK, state, HORIZON, settings=optimize.Sampling(samples=100))
    with pytest.raises(diffsim.ArgumentError, match="expected 1 or more"):
        optimize.plan(TASK, state, 0)


def test_old_names_of_plan_still_work() -> None:
    with pytest.warns(DeprecationWarning, match="Doubt is now Perturbation"):
        old = getattr(optimize, "Doubt")  # noqa: B009
    assert old is optimize.Perturbation
    # refused after the warning, before anything is compiled
    with (
        pytest.warns(DeprecationWarning, match="plan\\(perturbation="),
        pytest.raises(diffsim.ArgumentError, match="expected 1 or more"),
    ):
        optimize.plan(TASK, diffsim.make_state(TASK.model), 0, doubt=optimize.Perturbation(worlds=8))
