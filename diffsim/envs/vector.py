"""VectorEnv: many worlds as a Gymnasium vector environment: numpy arrays outside, one jitted step inside.

    from diffsim.envs.vector import VectorEnv
    worlds = VectorEnv(envs.make("hopper"), num_envs=256)
    obs, info = worlds.reset(seed=0)
    obs, reward, terminated, truncated, info = worlds.step(worlds.action_space.sample())

With `torch=True` it has PyTorch's tensors outside. Needs Gymnasium (extra `gym`).

Source: Gymnasium documentation, "VectorEnv" and its autoreset modes.
"""

from collections.abc import Callable
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from jax import Array

from diffsim import viz
from diffsim.envs.env import Env, EnvState
from diffsim.envs.wrappers import EpisodeWrapper, RandomizedVmapWrapper, VmapWrapper, next_episode
from diffsim.types import Model
from diffsim.xla.select import where_tree

# observations, rewards, terminated, truncated, infos
Step = tuple[Any, Any, Any, Any, dict[str, Any]]


class VectorEnv(gymnasium.vector.VectorEnv):
    """Many worlds of one environment, for trainers written for Gymnasium.

    `infos` holds the terms of the reward under "metrics". An episode that reaches its length is truncated, one that
    fails is terminated.

    Args:
      env: an `Env` without wrappers.
      num_envs: number of worlds.
      episode_length: steps after which an episode is truncated.
      autoreset_mode: when a world that is done is reset: NEXT_STEP (the next step resets it and ignores its action),
        SAME_STEP (at once; the last observation is in `infos["final_obs"]`) or DISABLED (the user calls
        `reset(options={"reset_mask": done})`).
      render_mode: "rgb_array" if `render` returns pictures, or None.
      camera, size: of the pictures, as in `diffsim.viz.render`.
      drawn: `render` draws at most this many worlds.
      torch: whether observations, rewards, flags and metrics are PyTorch tensors on the device of JAX. Actions may be
        tensors too. Nothing is copied between PyTorch and JAX. With SAME_STEP, `infos["final_obs"]` has the last
        observations of all worlds, done or not. Needs the extra `torch`.
      randomization_fn: as in `envs.wrap`: model -> (models, in_axes), a model for each world.
    """

    def __init__(
        self,
        env: Env,
        num_envs: int,
        episode_length: int = 1000,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
        camera: viz.View | str | int | None = None,
        size: tuple[int, int] = (320, 240),
        drawn: int = 4,
        torch: bool = False,
        randomization_fn: Callable[[Model], tuple[Model, Model]] | None = None,
    ) -> None:
        if render_mode not in (None, "rgb_array"):
            raise ValueError(f"render_mode is {render_mode!r}; expected None or 'rgb_array'")
        self._mode = AutoresetMode(autoreset_mode)
        self.num_envs = num_envs
        self.render_mode = render_mode
        self.metadata = {"autoreset_mode": self._mode, "render_modes": ["rgb_array"], "render_fps": round(1 / env.dt)}
        self._camera = camera
        self._size = size
        self._drawn = min(drawn, num_envs)
        self.single_action_space = gymnasium.spaces.Box(-1, 1, (env.action_size,), np.float32)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.single_observation_space = _space(jax.eval_shape(env.reset, jax.random.key(0)).obs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        batch = VmapWrapper(env) if randomization_fn is None else RandomizedVmapWrapper(env, randomization_fn)
        self._worlds = EpisodeWrapper(batch, episode_length)
        self._begin = jax.jit(lambda keys: _with_obs(self._worlds.reset(keys)))
        self._renew = jax.jit(lambda *args: _with_obs(self._reset_where(*args)))
        self._advance = jax.jit(self._one_step)
        # `_outside` converts results for the user, `_inside` converts the user's actions
        if torch:
            # imported only here, because PyTorch is optional
            from diffsim import torch as bridge

            self._outside = bridge.to_torch
            self._inside = bridge.argument
        else:
            self._outside = _numpy
            self._inside = jnp.asarray
        self._torch = torch
        self._state: EnvState | None = None
        self._key = jax.random.key(0)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Starts new episodes in all worlds, or in the worlds of `options["reset_mask"]` (num_envs,) bool.

        Raises:
          ValueError: the mask has another shape or dtype, there is a mask although not all worlds were reset before, or
            there are other options.
        """
        super().reset(seed=seed)
        if seed is not None or self._state is None:
            # the key is drawn from Gymnasium's generator, which is seeded by `seed`, or else by the operating system
            self._key = jax.random.key(int(self.np_random.integers(2**31)))
        mask = self._mask(options or {})
        if self._state is None or mask.all():
            state, obs = self._begin(self._keys())
        else:
            state, obs = self._renew(self._state, jnp.asarray(mask), self._keys())
        self._state = state
        return self._outside(obs), self._infos(state)

    def step(self, actions: Any) -> Step:
        """Steps all worlds; actions are (num_envs, nu).

        Raises:
          ValueError: `reset` was not called yet, or, with DISABLED, some worlds are done and were not reset.
        """
        if self._state is None:
            raise ValueError("call reset before step")
        if self._mode is AutoresetMode.DISABLED and np.any(self._state.done):
            raise ValueError('some worlds are done; reset them with reset(options={"reset_mask": done})')
        (self._state, obs), seen = self._advance(self._state, self._inside(actions), self._keys())
        infos = self._infos(seen)
        if self._torch:
            return self._tensors(obs, seen, infos)
        done = np.asarray(seen.done) > 0
        truncated = np.asarray(seen.info["truncation"]) > 0
        if self._mode is AutoresetMode.SAME_STEP and done.any():
            # Gymnasium's format: an object array with an observation where done, else None
            last = np.full(len(done), None, dtype=object)
            for world in np.flatnonzero(done):
                last[world] = _numpy(jax.tree.map(lambda leaf, world=world: leaf[world], seen.obs))
            infos |= {"final_obs": last, "_final_obs": done, "final_info": dict(infos)}
        reward = np.asarray(seen.reward, np.float64)
        return _numpy(obs), reward, done & ~truncated, truncated, infos

    def _tensors(self, obs: Any, seen: EnvState, infos: dict[str, Any]) -> Step:
        """The results of a step as tensors: `obs` of the states to continue from, all else from the states `seen`."""
        last, reward, done, truncated = self._outside((seen.obs, seen.reward, seen.done, seen.info["truncation"]))
        done = done > 0
        truncated = truncated > 0
        if self._mode is AutoresetMode.SAME_STEP:
            infos |= {"final_obs": last, "_final_obs": done, "final_info": dict(infos)}
        return self._outside(obs), reward.float(), done & ~truncated, truncated, infos

    @property
    def episode_length(self) -> int:
        """Steps after which an episode is truncated."""
        return self._worlds.length

    @property
    def ages(self) -> Array:
        """Steps (num_envs,) since the start of each world's episode; set it so that episodes end at different times.

        Raises:
          ValueError: `reset` was not called yet.
        """
        return self._started.info["steps"]

    @ages.setter
    def ages(self, ages: Any) -> None:
        state = self._started
        ages = jnp.broadcast_to(jnp.asarray(ages, state.reward.dtype), state.reward.shape)
        self._state = state.replace(info=state.info | {"steps": ages})

    @property
    def _started(self) -> EnvState:
        """The state of all worlds."""
        if self._state is None:
            raise ValueError("reset comes first")
        return self._state

    def render(self) -> tuple[np.ndarray, ...] | None:
        """Pictures (height, width, 3), uint8, of the first `drawn` worlds; None if `render_mode` is None.

        Raises:
          ValueError: `reset` was not called yet.
        """
        if self.render_mode is None:
            return None
        if self._state is None:
            raise ValueError("call reset before render")
        shown = jax.tree.map(lambda leaf: leaf[: self._drawn], (self._state.physics, self._state.inputs))
        # `render` draws one picture per time of a film: here the axis of worlds takes the place of the time axis
        poses = viz.poses_of(self._worlds.model, *shown)
        return tuple(viz.render(self._worlds.model, poses, self._camera, self._size, samples=1))

    def _one_step(self, state: EnvState, actions: Array, keys: Array) -> tuple[tuple[EnvState, Any], EnvState]:
        """The states to continue from, with their observations, and the states that the step led to.

        The states differ only with SAME_STEP.
        """
        later = self._worlds.step(state, actions)
        if self._mode is AutoresetMode.SAME_STEP:
            return _with_obs(self._reset_where(later, later.done > 0, keys)), later
        if self._mode is AutoresetMode.NEXT_STEP:
            # the step went on beyond the end of these episodes; they ended in `state`
            later = self._reset_where(later, state.done > 0, keys, state)
        return _with_obs(later), later

    def _reset_where(self, state: EnvState, chosen: Array, keys: Array, ended: EnvState | None = None) -> EnvState:
        """Replaces the states of the chosen worlds (num_envs,) bool by initial states of new episodes.

        The last episodes ended in the states `ended`, by default in `state`.
        """
        ended = state if ended is None else ended
        fresh = jax.lax.cond(jnp.any(chosen), lambda: next_episode(self._worlds, keys, ended), lambda: state)
        return where_tree(chosen, fresh, state)

    def _keys(self) -> Array:
        """New keys (num_envs,), one for each world."""
        self._key, now = jax.random.split(self._key)
        return jax.random.split(now, self.num_envs)

    def _mask(self, options: dict[str, Any]) -> np.ndarray:
        """(num_envs,) bool: which worlds the options of `reset` choose."""
        if set(options) - {"reset_mask"}:
            raise ValueError(f"reset takes the option 'reset_mask', not {sorted(set(options) - {'reset_mask'})}")
        if "reset_mask" not in options:
            return np.ones(self.num_envs, bool)
        mask = np.asarray(options["reset_mask"])
        if mask.dtype != bool or mask.shape != (self.num_envs,):
            raise ValueError(f"reset_mask is {mask.dtype}{list(mask.shape)}, expected bool[{self.num_envs}]")
        if self._state is None:
            raise ValueError("the first reset must reset all worlds: leave out reset_mask")
        return mask

    def _infos(self, state: EnvState) -> dict[str, Any]:
        """The infos for the user: the terms of the reward of each world."""
        to_user = self._outside if self._torch else np.array
        return {"metrics": {name: to_user(value) for name, value in state.metrics.items()}}


def _space(obs: Any) -> gymnasium.Space:
    """The Gymnasium space of observations, given their shapes."""
    if isinstance(obs, dict):
        return gymnasium.spaces.Dict({name: _space(part) for name, part in obs.items()})
    return gymnasium.spaces.Box(-np.inf, np.inf, obs.shape, np.float32)


def _with_obs(state: EnvState) -> tuple[EnvState, Any]:
    """States, and their observations as float32 for the user.

    A compiled program returns each result in its own memory, so a user may write into an observation.
    """
    return state, jax.tree.map(lambda leaf: leaf.astype(jnp.float32), state.obs)


def _numpy(tree: Any) -> Any:
    """Copies the arrays of a tree to numpy arrays of float32, which the user may modify."""
    return jax.tree.map(lambda leaf: np.array(leaf, np.float32), tree)
