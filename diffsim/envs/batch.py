"""Batches of worlds: of one model, or each with a model of its own."""

import copy
from collections.abc import Callable
from typing import Any

import jax

from diffsim.envs.env import EnvState
from diffsim.envs.wrapper import Environment, Wrapper
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
      env: an environment of one world, with or without wrappers: an `Env`, or any object with `model`, `reset` and
        `step`, which read the model from there.
      randomization: model -> (models, in_axes), as `diffsim.randomize` gives them.
    """

    def __init__(self, env: Environment, randomization: Callable[[Model], tuple[Model, Model]]) -> None:
        super().__init__(env)
        self.models, self.axes = randomization(env.model)

    def reset(self, key: Array) -> EnvState:
        """One beginning for each key (worlds,)."""
        one = lambda model, key: with_model(self.env, model).reset(key)  # noqa: E731
        return jax.vmap(one, in_axes=(self.axes, 0))(self.models, key)

    def step(self, state: EnvState, action: Array) -> EnvState:
        """The next state of each world; actions are (worlds, nu)."""
        one = lambda model, state, action: with_model(self.env, model).step(state, action)  # noqa: E731
        return jax.vmap(one, in_axes=(self.axes, 0, 0))(self.models, state, action)


def with_model(env: Environment, model: Model) -> Environment:
    """A copy of an environment with another model, also where it is inside of wrappers."""
    other: Any = copy.copy(env)
    inside = "env" if isinstance(env, Wrapper) else "model"
    # an Env is frozen; the copy is nobody else's
    object.__setattr__(other, inside, with_model(env.env, model) if isinstance(env, Wrapper) else model)
    return other
