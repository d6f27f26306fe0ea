"""Adapters for rsl_rl, Stable-Baselines3 and skrl: the numbers of a VectorEnv, and an update by each trainer's PPO.

`make measure WHAT=trainers` trains the quadruped with the programs of docs/recipes/pytorch.md.
"""

import pathlib
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from diffsim import envs
from diffsim.envs import trainers
from diffsim.envs.vector import VectorEnv
from tests.envs.line import Line

LENGTH = 6
WORLDS = 3
line: Any = Line()


def actions(step: int) -> np.ndarray:
    """The first world fails, the second first truncates and then fails, the third truncates."""
    return np.array([[0.4], [0.1 + 0.03 * step], [-0.1]], np.float32)


def test_rsl_rl_gets_the_numbers_of_a_vector_environment() -> None:
    torch, _ = pytest.importorskip("torch"), pytest.importorskip("tensordict")
    worlds = trainers.for_rsl_rl(line, WORLDS, LENGTH, seed=1)
    other = VectorEnv(line, WORLDS, LENGTH, "SameStep")
    first, _ = other.reset(seed=1)
    assert (worlds.num_envs, worlds.num_actions, worlds.max_episode_length) == (WORLDS, 1, LENGTH)
    np.testing.assert_array_equal(worlds.get_observations()["policy"], first)
    for step in range(15):
        obs, reward, terminated, truncated, _ = other.step(actions(step))
        mine, mine_reward, done, extras = worlds.step(torch.from_numpy(actions(step)))
        assert mine.batch_size == (WORLDS,)
        np.testing.assert_allclose(mine["policy"], obs, atol=1e-6)
        np.testing.assert_allclose(mine_reward, reward, atol=1e-6)
        np.testing.assert_array_equal(done, terminated | truncated)
        np.testing.assert_array_equal(extras["time_outs"], truncated)
        assert extras["log"]["/reward/place"] == pytest.approx(reward.mean(), abs=1e-6)


def test_rsl_rl_lets_episodes_end_apart() -> None:
    torch, _ = pytest.importorskip("torch"), pytest.importorskip("tensordict")
    worlds = trainers.for_rsl_rl(line, WORLDS, LENGTH)
    worlds.episode_length_buf = torch.tensor([5, 0, 3])
    assert worlds.episode_length_buf.dtype is torch.int64
    ends = [worlds.step(torch.zeros((WORLDS, 1)))[2].tolist() for _ in range(3)]
    assert ends == [[True, False, False], [False, False, False], [False, False, True]]
    assert worlds.episode_length_buf.tolist() == [2, 3, 0]


def test_rsl_rl_learns_and_its_policy_is_ours(tmp_path: pathlib.Path) -> None:
    torch, runners = pytest.importorskip("torch"), pytest.importorskip("rsl_rl.runners")
    network = {"class_name": "MLPModel", "hidden_dims": [8, 8], "activation": "elu", "obs_normalization": True}
    settings = {
        "num_steps_per_env": 8,
        "save_interval": 10,
        "obs_groups": {"actor": ["policy"], "critic": ["policy"]},
        "actor": network | {"distribution_cfg": {"class_name": "GaussianDistribution"}},
        "critic": network,
        "algorithm": {"class_name": "PPO"},
    }
    worlds = trainers.for_rsl_rl(line, 8, LENGTH)
    runner = runners.OnPolicyRunner(worlds, settings)
    runner.learn(2, init_at_random_ep_len=True)
    runner.save(str(tmp_path / "model.pt"))
    obs = worlds.get_observations()
    with torch.inference_mode():
        expected = runner.get_inference_policy()(obs)
    assert runner.get_inference_policy().obs_normalizer.mean.abs().max() > 0
    for policy in (
        envs.Policy.load(tmp_path / "model.pt"),
        envs.Policy.from_torch(runner.alg.get_policy()),
    ):
        np.testing.assert_allclose(policy(jnp.asarray(obs["policy"].numpy())), expected, atol=1e-6)


def test_stable_baselines3_gets_the_numbers_of_a_vector_environment() -> None:
    pytest.importorskip("stable_baselines3")
    worlds = trainers.for_stable_baselines3(line, WORLDS, LENGTH)
    other = VectorEnv(line, WORLDS, LENGTH, "SameStep")
    worlds.seed(1)
    np.testing.assert_array_equal(worlds.reset(), other.reset(seed=1)[0])
    total, kinds = np.zeros(WORLDS), set()
    for step in range(15):
        obs, reward, terminated, truncated, infos = other.step(actions(step))
        mine, mine_reward, done, each = worlds.step(actions(step))
        np.testing.assert_array_equal(mine, obs)
        np.testing.assert_allclose(mine_reward, reward, atol=1e-6)
        np.testing.assert_array_equal(done, terminated | truncated)
        total += reward
        for world in range(WORLDS):
            assert ("episode" in each[world]) == done[world]
            if done[world]:
                np.testing.assert_array_equal(each[world]["terminal_observation"], infos["final_obs"][world])
                assert each[world]["TimeLimit.truncated"] == truncated[world]
                assert each[world]["episode"]["r"] == pytest.approx(total[world], abs=1e-5)
                assert each[world]["episode"]["l"] <= LENGTH
                kinds.add(bool(truncated[world]))
        total[done] = 0
    assert kinds == {False, True}


def test_stable_baselines3_learns() -> None:
    sb3 = pytest.importorskip("stable_baselines3")
    evaluate = pytest.importorskip("stable_baselines3.common.evaluation").evaluate_policy
    worlds = trainers.for_stable_baselines3(line, 8, LENGTH)
    learner = sb3.PPO("MlpPolicy", worlds, n_steps=8, batch_size=32, device="cpu").learn(128)
    assert len(learner.ep_info_buffer) >= 16
    # without a warning about a missing Monitor
    mean, _ = evaluate(learner, worlds, n_eval_episodes=8)
    assert np.isfinite(mean)


def test_skrl_learns() -> None:
    torch, _ = pytest.importorskip("torch"), pytest.importorskip("skrl")
    wrap_env = pytest.importorskip("skrl.envs.wrappers.torch").wrap_env
    runner = pytest.importorskip("skrl.utils.runner.torch").Runner
    worlds = wrap_env(VectorEnv(line, 8, LENGTH, "SameStep"), verbose=False)
    layers = [{"name": "net", "input": "OBSERVATIONS", "layers": [8, 8], "activations": "elu"}]
    settings = {
        "seed": 0,
        "models": {
            "separate": True,
            "policy": {"class": "GaussianMixin", "network": layers, "output": "ACTIONS"},
            "value": {"class": "DeterministicMixin", "network": layers, "output": "ONE"},
        },
        "memory": {"class": "RandomMemory", "memory_size": -1},
        "agent": {"class": "PPO", "rollouts": 8, "experiment": {"write_interval": 0, "checkpoint_interval": 0}},
        "trainer": {"class": "SequentialTrainer", "timesteps": 16, "headless": True, "disable_progressbar": True},
    }
    learner = runner(worlds, settings)
    before = [weight.detach().clone() for weight in learner.agent.policy.parameters()]
    learner.trainer.train()
    after = list(learner.agent.policy.parameters())
    assert any(bool((one != other).any()) for one, other in zip(before, after, strict=True))
    # the network is ours too
    obs = np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32)
    expected = learner.agent.policy.compute({"observations": torch.from_numpy(obs)})[0].detach()
    np.testing.assert_allclose(envs.Policy.from_torch(learner.agent.policy.net_container)(obs), expected, atol=1e-6)
