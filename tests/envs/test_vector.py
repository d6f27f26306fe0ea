"""VectorEnv: its three autoreset modes, beside Gymnasium's own SyncVectorEnv of the same worlds."""

from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from diffsim import envs
from diffsim.envs.vector import VectorEnv
from tests.envs.line import Line

LENGTH = 6


class Single(gymnasium.Env):
    """One world, which Gymnasium's own vector environment cuts and resets."""

    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[np.ndarray, dict]:
        self.state, self.count = Line().reset(jax.random.key(0)), 0
        return np.asarray(self.state.obs, np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.state, self.count = Line().step(self.state, jnp.asarray(action)), self.count + 1
        done = bool(self.state.done)
        cut = self.count >= LENGTH and not done
        return np.asarray(self.state.obs, np.float32), float(self.state.reward), done, cut, {}


@pytest.mark.parametrize("mode", AutoresetMode)
def test_modes_are_those_of_gymnasium(mode: AutoresetMode) -> None:
    ours = VectorEnv(Line(), 3, episode_length=LENGTH, autoreset_mode=mode)
    theirs = SyncVectorEnv([Single] * 3, autoreset_mode=mode)
    assert ours.metadata["autoreset_mode"] == mode
    assert ours.single_observation_space == Single.observation_space
    np.testing.assert_array_equal(ours.reset(seed=1)[0], theirs.reset(seed=1)[0])
    failures = cuts = 0
    for k in range(15):
        action = np.array([[0.4], [0.1 + 0.03 * k], [-0.1]], np.float32)
        mine, other = ours.step(action), theirs.step(action)
        for one, two in zip(mine[:4], other[:4], strict=True):
            np.testing.assert_allclose(one, two, atol=1e-6)
        done = mine[2] | mine[3]
        assert ("final_obs" in mine[4]) == ("final_obs" in other[4]) == (mode is AutoresetMode.SAME_STEP and done.any())
        if "final_obs" in mine[4]:
            np.testing.assert_array_equal(mine[4]["_final_obs"], other[4]["_final_obs"])
            for world in np.flatnonzero(done):
                sides = [infos["final_obs"][world] for infos in (mine[4], other[4])]
                np.testing.assert_allclose(*sides, atol=1e-6)
        if mode is AutoresetMode.DISABLED and done.any():
            with pytest.raises(ValueError, match="reset_mask"):
                ours.step(action)
            sides = [worlds.reset(options={"reset_mask": done.copy()})[0] for worlds in (ours, theirs)]
            np.testing.assert_allclose(*sides, atol=1e-6)
        failures, cuts = failures + mine[2].sum(), cuts + mine[3].sum()
    assert failures >= 3 and cuts >= 2
    assert mine[4]["metrics"]["place"].shape == (3,)


def test_seeds_and_wrong_use() -> None:
    worlds = VectorEnv(Line(spread=1.0), 2)
    with pytest.raises(ValueError, match="call reset before step"):
        worlds.step(worlds.action_space.sample())
    first, _ = worlds.reset(seed=5)
    again, _ = worlds.reset(seed=5)
    np.testing.assert_array_equal(first, again)
    assert np.any(worlds.reset()[0] != first) and np.any(first[0] != first[1])
    assert worlds.observation_space.contains(first)
    with pytest.raises(ValueError, match=r"expected bool\[2\]"):
        worlds.reset(options={"reset_mask": np.ones(3, bool)})
    with pytest.raises(ValueError, match="'mask'"):
        worlds.reset(options={"mask": 1})


def test_ages_of_episodes() -> None:
    worlds = VectorEnv(Line(), 2, LENGTH, AutoresetMode.SAME_STEP)
    with pytest.raises(ValueError, match="reset comes first"):
        _ = worlds.ages
    worlds.reset(seed=0)
    worlds.ages = np.array([LENGTH - 1, 0])
    cut = [worlds.step(np.zeros((2, 1)))[3] for _ in range(2)]
    np.testing.assert_array_equal(cut, [[True, False], [False, False]])
    np.testing.assert_array_equal(worlds.ages, [1, 2])


def test_a_model_for_each_world() -> None:
    class Scaled(Line):
        model = 1.0

        def step(self, state: envs.EnvState, action: jax.Array) -> envs.EnvState:
            return super().step(state, self.model * action)

    worlds = VectorEnv(Scaled(), 2, randomization_fn=lambda model: (model * jnp.array([1.0, 3.0]), 0))
    worlds.reset(seed=0)
    np.testing.assert_allclose(worlds.step(np.full((2, 1), 0.2))[1], [0.2, 0.6], rtol=1e-6)


def test_a_task_is_a_vector_environment() -> None:
    worlds = VectorEnv(envs.make("cartpole"), 2, render_mode="rgb_array", size=(32, 16))
    assert worlds.action_space.shape == (2, 1) and worlds.observation_space.shape == (2, 5)
    with pytest.raises(ValueError, match="call reset before render"):
        worlds.render()
    worlds.reset(seed=0)
    left, right = worlds.render()
    assert left.shape == (16, 32, 3) and left.dtype == np.uint8 and np.any(left != right)
    with pytest.raises(ValueError, match="render_mode"):
        VectorEnv(envs.make("cartpole"), 2, render_mode="human")
