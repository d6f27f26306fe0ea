"""Episodes of bounded length, and what they sum up to."""

import jax
import jax.numpy as jnp

from diffsim.envs.env import EnvState
from diffsim.envs.wrapper import Environment, Wrapper

Array = jax.Array


class EpisodeWrapper(Wrapper):
    """Ends episodes after a number of steps; `info` counts `steps` and tells a `truncation` from a failure.

    `info["episode_metrics"]` has the sums of the reward, `sum_reward`, and of each metric since the beginning of the
    episode, and its `length`; names are those that Brax's trainers read. Works on one world or on a batch.

    Args:
      env: the environment.
      length: steps after which an episode is done, counted in steps of `env`.
      action_repeat: steps of `env` for each action; their rewards are summed.
    """

    def __init__(self, env: Environment, length: int, action_repeat: int = 1) -> None:
        super().__init__(env)
        self.length, self.action_repeat = length, action_repeat

    @property
    def dt(self) -> float:
        """Seconds between two actions."""
        return self.action_repeat * self.env.dt

    def reset(self, key: Array) -> EnvState:
        """The beginning, with counts of zero."""
        state = self.env.reset(key)
        nothing = jnp.zeros_like(state.reward)
        sums = dict.fromkeys(["sum_reward", "length", *state.metrics], nothing)
        counts = dict.fromkeys(["steps", "truncation", "episode_done"], nothing)
        return state.replace(info=state.info | counts | {"episode_metrics": sums})

    def step(self, state: EnvState, action: Array) -> EnvState:
        """The next state; done at the end of its episode too. The step after that begins to count anew."""
        goes_on, info = (state.done == 0).astype(state.done.dtype), state.info
        later = self._repeat(state, action)
        steps = goes_on * info["steps"] + self.action_repeat
        truncation = jnp.where(steps >= self.length, 1 - later.done, 0)
        added = {"sum_reward": later.reward, "length": self.action_repeat, **later.metrics}
        sums = {name: goes_on * total + added[name] for name, total in info["episode_metrics"].items()}
        done = later.done + truncation
        counts = {"steps": steps, "truncation": truncation, "episode_done": done, "episode_metrics": sums}
        return later.replace(done=done, info=later.info | counts)

    def _repeat(self, state: EnvState, action: Array) -> EnvState:
        """Several steps with one action."""
        later = self.env.step(state, action)
        if self.action_repeat == 1:
            return later

        def again(state: EnvState, _: None) -> tuple[EnvState, None]:
            other = self.env.step(state, action)
            done = jnp.maximum(state.done, other.done)
            return other.replace(reward=state.reward + other.reward, done=done), None

        return jax.lax.scan(again, later, None, self.action_repeat - 1)[0]
