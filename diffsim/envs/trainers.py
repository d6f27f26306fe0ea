"""Vector environments for the trainers of PyTorch: rsl_rl and Stable-Baselines3. skrl takes a `VectorEnv` as it is.

    from diffsim.envs import trainers
    worlds = trainers.for_rsl_rl(envs.make("joystick"), num_envs=256, episode_length=500)
    rsl_rl.runners.OnPolicyRunner(worlds, settings).learn(500)

Both adapters hold a `VectorEnv`, in their attribute `worlds`, which resets each world as soon as its episode ends.
Needs the extras `gym` and `torch`, and the trainer.

Sources: rsl_rl 5.5, `rsl_rl/env/vec_env.py`; Stable-Baselines3 2.9 documentation, "Vectorized Environments".
"""

import importlib
from typing import Any

import jax
import numpy as np

from diffsim.envs.env import Env
from diffsim.envs.vector import VectorEnv


def for_rsl_rl(env: Env, num_envs: int, episode_length: int = 1000, seed: int = 0, **settings: Any) -> "RslRl":
    """An environment for the runners of rsl_rl (tried with version 5.5).

    An observation that is an array is the group "policy" of its TensorDict; a dict of arrays has a group for each key.

    Args:
      env: an `Env` without wrappers.
      num_envs, episode_length: as in `VectorEnv`.
      seed: of the initial states.
      settings: other arguments of `VectorEnv`, such as `randomization_fn`.

    Raises:
      ImportError: PyTorch or tensordict is not installed.
    """
    return RslRl(VectorEnv(env, num_envs, episode_length, "SameStep", torch=True, **settings), seed)


def for_stable_baselines3(env: Env, num_envs: int, episode_length: int = 1000, **settings: Any) -> Any:
    """An environment for Stable-Baselines3: a `VecEnv` whose `infos` have the return and length of finished episodes.

    Args:
      env: an `Env` without wrappers.
      num_envs, episode_length: as in `VectorEnv`.
      settings: other arguments of `VectorEnv`, such as `randomization_fn` and `render_mode`.

    Raises:
      ImportError: Stable-Baselines3 is not installed.
    """
    # Stable-Baselines3 checks that an environment is a VecEnv. This class is imported only here, because it is
    # optional.
    base = importlib.import_module("stable_baselines3.common.vec_env").VecEnv
    worlds = VectorEnv(env, num_envs, episode_length, "SameStep", **settings)
    return type("VecEnv", (_StableBaselines3, base), {})(worlds)


class RslRl:
    """rsl_rl's VecEnv.

    Attributes:
      worlds: the `VectorEnv`.
      num_envs, num_actions, max_episode_length, device, cfg: attributes that rsl_rl reads.
    """

    def __init__(self, worlds: VectorEnv, seed: int) -> None:
        self.worlds = worlds
        self.num_envs = worlds.num_envs
        self.max_episode_length = worlds.episode_length
        (self.num_actions,) = worlds.single_action_space.shape or (0,)
        self.cfg: dict[str, Any] = {}
        self._dict = importlib.import_module("tensordict").TensorDict
        self._obs = worlds.reset(seed=seed)[0]
        self.device = jax.tree.leaves(self._obs)[0].device

    def get_observations(self) -> Any:
        """The current observations, a TensorDict of (num_envs, size)."""
        groups = self._obs if isinstance(self._obs, dict) else {"policy": self._obs}
        return self._dict(groups, batch_size=[self.num_envs], device=self.device)

    def step(self, actions: Any) -> tuple[Any, Any, Any, dict[str, Any]]:
        """Steps all worlds with actions (num_envs, num_actions).

        Returns:
          Observations, rewards (num_envs,), whether episodes ended (num_envs,), and extras: `time_outs` (num_envs,)
          says which episodes were truncated, and `log` has the mean of each term of the reward.
        """
        self._obs, reward, terminated, truncated, infos = self.worlds.step(actions)
        log = {f"/reward/{name}": value.mean() for name, value in infos["metrics"].items()}
        return self.get_observations(), reward, terminated | truncated, {"time_outs": truncated, "log": log}

    @property
    def episode_length_buf(self) -> Any:
        """(num_envs,) int, the number of steps since the start of each episode."""
        # PyTorch is optional
        from diffsim import torch as bridge

        return bridge.to_torch(self.worlds.ages).long()

    @episode_length_buf.setter
    def episode_length_buf(self, ages: Any) -> None:
        self.worlds.ages = np.asarray(ages.cpu())


class _StableBaselines3:
    """The methods of a VecEnv that Stable-Baselines3 leaves to its subclasses."""

    _get_indices: Any
    _reset_seeds: Any

    def __init__(self, worlds: VectorEnv) -> None:
        self.worlds = worlds
        self.actions = worlds.action_space.sample()
        spaces = worlds.single_observation_space, worlds.single_action_space
        super().__init__(worlds.num_envs, *spaces)  # pyright: ignore[reportCallIssue]
        self.returns = np.zeros(worlds.num_envs)
        self.lengths = np.zeros(worlds.num_envs, int)

    def reset(self) -> Any:
        """Starts new episodes in all worlds, with the seed that the method `seed` has set."""
        seed = getattr(self, "_seeds", [None])[0]
        obs, _ = self.worlds.reset(seed=seed)
        self._reset_seeds()
        self._begin(np.ones(self.worlds.num_envs, bool))
        return obs

    def _begin(self, worlds: np.ndarray) -> None:
        """Sets the returns and lengths of the chosen worlds to zero."""
        self.returns[worlds] = 0
        self.lengths[worlds] = 0

    def step_async(self, actions: Any) -> None:
        """Keeps the actions for `step_wait`."""
        self.actions = actions

    def step_wait(self) -> tuple[Any, Any, Any, list[dict[str, Any]]]:
        """Steps all worlds with the actions of `step_async`."""
        obs, reward, terminated, truncated, infos = self.worlds.step(self.actions)
        done = terminated | truncated
        self.returns += reward
        self.lengths += 1
        each: list[dict[str, Any]] = [{} for _ in done]
        for world in np.flatnonzero(done):
            each[world] = {
                "terminal_observation": infos["final_obs"][world],
                "TimeLimit.truncated": bool(truncated[world]),
                "episode": {"r": float(self.returns[world]), "l": int(self.lengths[world])},
            }
        self._begin(done)
        return obs, reward.astype(np.float32), done, each

    def close(self) -> None:
        """Does nothing."""

    def get_images(self) -> list[np.ndarray]:
        """Pictures of the first worlds."""
        return list(self.worlds.render() or ())

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """An attribute of the `VectorEnv`, once for each world."""
        return [getattr(self.worlds, attr_name) for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Raises AttributeError, because all worlds are one program."""
        raise AttributeError(f"{attr_name} cannot be set in single worlds")

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        """Calls a method of the `VectorEnv`; each world gets its result."""
        result = getattr(self.worlds, method_name)(*args, **kwargs)
        return [result for _ in self._get_indices(indices)]

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """Whether each world has a wrapper. True for Monitor, because `infos` have the entries that it would add."""
        return [wrapper_class.__name__ == "Monitor" for _ in self._get_indices(indices)]
