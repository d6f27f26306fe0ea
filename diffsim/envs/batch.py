"""Batches of worlds: of one model, or each with a model of its own."""

from collections.abc import Callable

import jax

from diffsim.envs.env import Env, EnvState
from diffsim.envs.wrapper import Wrapper
from diffsim.types import Model

Array = jax.Array


class VmapWrapper(Wrapper):
    """Many worlds at once: `reset` takes keys (worlds,), `step` states and actions (worlds, nu)."""

    def reset(self, key: Array) -> EnvState:
        """One beginning for each key."""
        return jax.vmap(self.env.reset)(key)

    def step(self, state: EnvState, action: Array) -> EnvState:
        """The next state of each world."""
        return jax.vmap(self.env.step)(state, action)


class RandomizedVmapWrapper(Wrapper):
    """Many worlds, each with its own model; world i is always of model i.

        draw = lambda model: diffsim.randomize(model, key, {"geom_friction": diffsim.Scale(0.5, 1.5)}, 1024)
        env = envs.RandomizedVmapWrapper(envs.make("hopper"), draw)

    Args:
      env: an `Env` without wrappers.
      randomization: model -> (models, in_axes), as `diffsim.randomize` gives them.
    """

    def __init__(self, env: Env, randomization: Callable[[Model], tuple[Model, Model]]) -> None:
        super().__init__(env)
        models, axes = randomization(env.model)
        self.envs, self.axes = env.replace(model=models), Env(axes, env.task)

    def reset(self, key: Array) -> EnvState:
        """One beginning for each key (worlds,)."""
        return jax.vmap(lambda env, key: env.reset(key), in_axes=(self.axes, 0))(self.envs, key)

    def step(self, state: EnvState, action: Array) -> EnvState:
        """The next state of each world; actions are (worlds, nu)."""
        return jax.vmap(lambda env, state, action: env.step(state, action), in_axes=(self.axes, 0, 0))(
            self.envs, state, action
        )
