"""Worlds that begin anew as soon as their episode is done."""

import jax
import jax.numpy as jnp

from diffsim.envs.env import EnvState
from diffsim.envs.select import where
from diffsim.envs.wrapper import Environment, Wrapper

Array = jax.Array


class AutoResetWrapper(Wrapper):
    """Where a batch of worlds is done, the state returned is already that of the next episode.

    `done` and `reward` are those of the step that ended the episode, `info["final_obs"]` is what was seen then (to
    bootstrap from after a truncation); `obs` is the first of the new one. By default a world goes back to its own first
    state, which costs nothing, as in Brax; `redraw` draws another one, in the steps in which any world is done.

    Args:
      env: an environment of a batch.
      redraw: whether each episode begins at a state of its own.
    """

    def __init__(self, env: Environment, redraw: bool = False) -> None:
        super().__init__(env)
        self.redraw = redraw

    def reset(self, key: Array) -> EnvState:
        """The beginnings; `info` keeps what later ones are made of."""
        state = self.env.reset(key)
        first = {"key": key} if self.redraw else {"first": _seen(state)}
        return state.replace(info=state.info | first | {"final_obs": state.obs})

    def step(self, state: EnvState, action: Array) -> EnvState:
        """The next states, of a new episode where one is done."""
        later = self.env.step(state, action)
        done = later.done > 0
        info = later.info | {"final_obs": later.obs}
        here = _seen(later)
        if self.redraw:
            info, first = self._draw(info, done, here)
        else:
            first = info["first"]
        physics, inputs, obs, memory = where(done, first, here)
        return later.replace(physics=physics, inputs=inputs, obs=obs, info=info | memory)

    def _draw(self, info: dict, done: Array, here: tuple) -> tuple[dict, tuple]:
        """Other beginnings, if any world needs one, and the keys of the next."""
        keys = jax.vmap(jax.random.split)(info["key"])
        chosen = jnp.where(done.reshape(done.shape + (1,) * (keys.ndim - 2)), keys[:, 0], info["key"])

        def draw() -> tuple:
            return _seen(self.env.reset(keys[:, 1]))

        return info | {"key": chosen}, jax.lax.cond(jnp.any(done), draw, lambda: here)


def _seen(state: EnvState) -> tuple:
    """What an episode begins with: physics, inputs, observation, and what the task remembers, if it does."""
    return (
        state.physics,
        state.inputs,
        state.obs,
        {name: state.info[name] for name in ("memory",) if name in state.info},
    )
