"""Wrappers: batches, episodes, resets, models of each world's own, worlds that go bad, derivatives."""

import functools
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import diffsim
from diffsim import envs
from diffsim.base.enums import Status
from diffsim.envs import brax
from diffsim.envs.vector import VectorEnv
from tests.envs.line import Line
from tests.uncompiled import uncompiled

KEYS = jax.random.split(jax.random.key(0), 3)
# one world leaves soon, one later, one never
PUSHES = jnp.array([[0.4], [0.25], [0.0]])


def run(env: Any, steps: int) -> list[envs.EnvState]:
    """The first state and those after it; all by one program."""
    states = [jax.jit(env.reset)(KEYS)]
    step = jax.jit(env.step)
    for _ in range(steps):
        states.append(step(states[-1], PUSHES))
    assert step._cache_size() == 1
    return states


def test_episodes_are_counted_and_cut() -> None:
    states = run(envs.EpisodeWrapper(envs.VmapWrapper(Line()), length=4), 5)
    np.testing.assert_array_equal([state.done for state in states[1:5]], [[0, 0, 0], [0, 0, 0], [1, 0, 0], [1, 1, 1]])
    # of the worlds that are cut the first has failed at the same time
    np.testing.assert_array_equal(states[4].info["truncation"], [0, 1, 1])
    np.testing.assert_array_equal(states[5].info["steps"], [1, 1, 1])
    np.testing.assert_allclose(states[4].info["episode_metrics"]["sum_reward"][1], 0.25 * (1 + 2 + 3 + 4))
    np.testing.assert_allclose(states[4].info["episode_metrics"]["length"][1:], 4)
    np.testing.assert_allclose(states[5].info["episode_metrics"]["place"], states[5].physics)


def test_an_action_can_be_repeated() -> None:
    env = envs.EpisodeWrapper(envs.VmapWrapper(Line()), length=10, action_repeat=2)
    states = run(env, 2)
    np.testing.assert_allclose(states[2].physics, 4 * PUSHES[:, 0])
    np.testing.assert_allclose(states[2].reward, (3 + 4) * PUSHES[:, 0])
    np.testing.assert_allclose(states[2].info["steps"], 4)
    # the first world was over after the first of the two steps already
    np.testing.assert_allclose(states[2].done, [1, 0, 0])
    assert env.dt == 1.0


@pytest.mark.parametrize("redraw", [False, True])
def test_worlds_that_are_done_begin_anew(redraw: bool) -> None:
    states = run(envs.wrap(Line(spread=0.1), episode_length=25, redraw=redraw), 30)
    first, third = states[0].physics, states[3]
    np.testing.assert_array_equal(third.done, [1, 0, 0])
    assert 0 <= third.physics[0] < 0.1 < 1 < third.info["final_obs"][0, 0]
    np.testing.assert_allclose(third.obs[0, 0], third.physics[0])
    assert (third.physics[0] == first[0]) == (not redraw)
    np.testing.assert_array_equal(states[4].info["steps"], [1, 4, 4])
    np.testing.assert_allclose(third.physics[1], first[1] + 3 * 0.25, rtol=1e-12)
    np.testing.assert_array_equal([state.info["truncation"][2] for state in states], np.arange(31) == 25)
    # each new episode has a beginning of its own
    begun = [float(state.physics[0]) for state in states if state.done[0]]
    assert len(set(begun)) == (len(begun) if redraw else 1)


@functools.cache
def cartpole() -> envs.Env:
    return envs.make("cartpole")


@jax.jit
def begin(env: envs.Env, key: jax.Array) -> envs.EnvState:
    return env.reset(key)


@jax.jit
def advance(env: envs.Env, state: envs.EnvState, action: jax.Array) -> envs.EnvState:
    return env.step(state, action)


class Taught(Line):
    """The line with a curriculum: each episode begins at minus half of the place where the last one ended."""

    task = SimpleNamespace(again=True)

    def reset(self, key: jax.Array, ended: envs.EnvState | None = None) -> envs.EnvState:
        state = super().reset(key)
        return state if ended is None else state.replace(physics=-0.5 * ended.physics)


def test_a_curriculum_sees_how_the_last_episode_ended() -> None:
    states = run(envs.wrap(Taught(), episode_length=3, redraw=True), 4)
    # the first world leaves at 1.2, the second is cut at 0.75; then they go on from there, with their counts anew
    np.testing.assert_array_equal(states[3].done, 1)
    np.testing.assert_allclose(states[3].physics, [-0.6, -0.375, 0])
    np.testing.assert_allclose(states[4].physics, [-0.2, -0.125, 0])
    np.testing.assert_array_equal(states[4].info["steps"], 1)
    # without `redraw` worlds return to where they began
    np.testing.assert_array_equal(run(envs.wrap(Taught(), episode_length=3), 3)[3].physics, 0)
    # with NextStep the reset comes a step later, of the state in which the episode ended
    for mode, steps in (("SameStep", 3), ("NextStep", 4)):
        worlds = VectorEnv(Taught(), num_envs=3, episode_length=3, autoreset_mode=mode)  # type: ignore[arg-type]
        worlds.reset(seed=0)
        for _ in range(steps):
            worlds.step(np.asarray(PUSHES))
        np.testing.assert_allclose(worlds._started.physics, [-0.6, -0.375, 0])


def test_no_derivative_passes_from_one_episode_to_the_next() -> None:
    env = envs.wrap(Taught(), episode_length=3, redraw=True)
    begun = jax.jit(env.reset)(KEYS)

    def later(push: jax.Array, steps: int) -> jax.Array:
        state = begun
        for _ in range(steps):
            state = env.step(state, PUSHES + push)
        return state.physics

    one, two = (jax.jacfwd(later)(0.0, steps) for steps in (2, 3))
    np.testing.assert_array_equal(one, 2)
    np.testing.assert_array_equal(two, 0)


def test_each_world_has_a_model_of_its_own_and_a_bad_one_harms_nobody() -> None:
    mass = cartpole().model.body_mass
    models = cartpole().model.replace(body_mass=mass[None] * jnp.array([[0.5], [1.0], [2.0]]))
    env = envs.wrap(cartpole(), randomization_fn=lambda model: (models, diffsim.model_axes(models)))
    states = jax.jit(env.reset)(KEYS)
    # the second world goes bad
    bad = states.physics.replace(qvel=states.physics.qvel.at[1, 0].set(jnp.nan))
    later = jax.jit(env.step)(states.replace(physics=bad), PUSHES)
    for world in (0, 2):
        own = cartpole().replace(model=models.replace(body_mass=models.body_mass[world]))
        state = advance(own, begin(own, KEYS[world]), PUSHES[world])
        np.testing.assert_allclose(later.obs[world], state.obs, atol=1e-12)
    np.testing.assert_array_equal(later.done, [0, 1, 0])
    assert later.info["status"][1] & Status.BAD_QVEL
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves((later.physics, later.obs, later.reward)))
    assert env.unwrapped == cartpole() and env.observation_size == 5 and env.action_size == 1


def test_any_environment_is_randomized_through_its_wrappers() -> None:
    """The model inside is what the environment reads, whatever class it is of and whatever is around it."""

    class Scaled(Line):
        def __init__(self) -> None:
            super().__init__()
            self.model = jnp.ones(())

        def step(self, state: envs.EnvState, action: jax.Array) -> envs.EnvState:
            return super().step(state, self.model * action)

    env = envs.RandomizedVmapWrapper(envs.EpisodeWrapper(Scaled(), 25), lambda model: (jnp.array([1.0, 2.0, 3.0]), 0))
    later = env.step(env.reset(KEYS), jnp.full((3, 1), 0.1))
    np.testing.assert_allclose(later.physics, [0.1, 0.2, 0.3])
    np.testing.assert_array_equal(later.info["steps"], 1)


def test_a_task_remembers_and_draws_noise() -> None:
    """What is remembered follows the moments, begins anew with episodes, and noise is another one at each moment."""
    task = envs.Task(
        start=lambda model, key: envs.near(model, key, 0.1),
        noisy=True,
        remember=lambda now: (0.0 if now.memory is None else now.memory) + 1.0,
        observe=lambda now: jnp.stack([now.memory, jax.random.uniform(now.key)]),
        reward=lambda now: {"place": now.state.qpos[0]},
        failed=lambda now: now.memory > 3,
    )
    mover = "<mujoco><worldbody><body><joint type='slide'/><geom size='.1'/></body></worldbody></mujoco>"
    env = envs.AutoResetWrapper(envs.VmapWrapper(envs.Env(diffsim.load(mover), task)))
    state, seen, step = jax.jit(env.reset)(KEYS), [], jax.jit(env.step)
    for _ in range(5):
        seen.append(np.asarray(state.obs))
        state = step(state, jnp.zeros((3, 0)))
    counts, noise = np.moveaxis(np.stack(seen), -1, 0)
    np.testing.assert_array_equal(counts[:, 0], [1, 2, 3, 1, 2])
    # an episode that begins as the one before looks the same at first, and then no more
    assert len(np.unique(noise)) == 3 * 4
    with pytest.raises(ValueError, match="needs a key"):
        env.unwrapped.begin(*task.start(env.model, KEYS[0]))


def test_a_return_has_derivatives_by_actions_and_model() -> None:
    first = begin(cartpole(), KEYS[0])

    def total(env: envs.Env, action: jax.Array) -> jax.Array:
        later = env.step(first, action)
        return later.reward + later.obs[0]

    by_env, by_action = uncompiled(jax.grad(total, argnums=(0, 1)))(cartpole(), jnp.array([0.3]))
    model, h = cartpole().model, 1e-5

    def value(action: float, mass: float) -> float:
        env = cartpole().replace(model=model.replace(body_mass=model.body_mass.at[1].add(mass)))
        later = advance(env, first, jnp.array([action]))
        return float(later.reward + later.obs[0])

    np.testing.assert_allclose(by_action[0], (value(0.3 + h, 0) - value(0.3 - h, 0)) / (2 * h), rtol=1e-6)
    np.testing.assert_allclose(by_env.model.body_mass[1], (value(0.3, h) - value(0.3, -h)) / (2 * h), rtol=1e-5)


def test_what_brax_and_playground_call_and_jax_has_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((jax, "device_put_replicated"), (jnp, "clip")):
        monkeypatch.setattr(module, name, getattr(module, name, None), raising=False)
    monkeypatch.delattr(jax, "device_put_replicated")
    for _ in range(2):
        brax.prepare()
    clip: Any = jnp.clip
    np.testing.assert_array_equal(clip(jnp.arange(4), a_max=2), [0, 1, 2, 2])
    np.testing.assert_array_equal(jnp.clip(jnp.arange(4), 1, max=2), [1, 1, 2, 2])
    replicated = jax.device_put_replicated({"a": jnp.arange(2)}, jax.devices())  # type: ignore[attr-defined]
    np.testing.assert_array_equal(replicated["a"], [[0, 1]] * jax.device_count())
