"""VectorEnv with tensors: the same episodes as with numpy, in memory that is shared with JAX, and a learner on it."""

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from diffsim import envs
from diffsim.envs.vector import VectorEnv
from tests.envs.line import Line

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("mode", AutoresetMode)
def test_tensors_are_the_numbers_of_numpy(mode: AutoresetMode) -> None:
    one, two = (VectorEnv(Line(), 3, episode_length=6, autoreset_mode=mode, torch=each) for each in (False, True))
    left, right = one.reset(seed=1)[0], two.reset(seed=1)[0]
    assert right.dtype is torch.float32
    np.testing.assert_array_equal(left, right)
    for k in range(15):
        action = np.array([[0.4], [0.1 + 0.03 * k], [-0.1]], np.float32)
        left, right = one.step(action), two.step(torch.from_numpy(action))
        for mine, other in zip(left[:4], right[:4], strict=True):
            np.testing.assert_allclose(mine, other, atol=1e-6)
        assert right[1].dtype is torch.float32 and right[2].dtype is right[3].dtype is torch.bool
        np.testing.assert_array_equal(left[4]["metrics"]["place"], right[4]["metrics"]["place"])
        done = left[2] | left[3]
        if mode is AutoresetMode.SAME_STEP:
            np.testing.assert_array_equal(right[4]["_final_obs"], done)
            for world in np.flatnonzero(done):
                np.testing.assert_allclose(left[4]["final_obs"][world], right[4]["final_obs"][world], atol=1e-6)
        # in place, as trainers normalize: the environment has numbers of its own
        right[0].zero_()
        right[1].zero_()
        if mode is AutoresetMode.DISABLED and done.any():
            left, right = (each.reset(options={"reset_mask": done.copy()})[0] for each in (one, two))
            np.testing.assert_allclose(left, right, atol=1e-6)


def test_actions_of_a_network() -> None:
    worlds = VectorEnv(envs.make("cartpole"), 4, torch=True)
    obs, _ = worlds.reset(seed=0)
    network = torch.nn.Linear(5, 1)
    # actions know where they come from; the environment does not ask
    obs, reward, terminated, truncated, infos = worlds.step(network(obs))
    assert obs.shape == (4, 5) and reward.shape == (4,) and not (terminated | truncated).any()
    np.testing.assert_allclose(reward, sum(infos["metrics"].values()).numpy(), rtol=1e-6)
    # numpy's too
    assert isinstance(worlds.step(worlds.action_space.sample())[0], torch.Tensor)
