"""Wrapper: an environment made of another one. Each changes `reset` and `step`, and passes on the rest."""

from typing import Any, Protocol

import jax

from diffsim.envs.env import Env, EnvState
from diffsim.types import Model

Array = jax.Array


class Environment(Protocol):
    """What an `Env` and all wrappers offer."""

    @property
    def model(self) -> Model: ...
    @property
    def dt(self) -> float: ...
    @property
    def action_size(self) -> int: ...
    @property
    def observation_size(self) -> Any: ...
    @property
    def unwrapped(self) -> Env: ...

    def reset(self, key: Array) -> EnvState: ...
    def step(self, state: EnvState, action: Array) -> EnvState: ...


class Wrapper:
    """Passes everything on to the environment inside, `env`."""

    def __init__(self, env: Environment) -> None:
        self.env = env

    def reset(self, key: Array) -> EnvState:
        """The beginning of an episode."""
        return self.env.reset(key)

    def step(self, state: EnvState, action: Array) -> EnvState:
        """The next state."""
        return self.env.step(state, action)

    @property
    def model(self) -> Model:
        """The model, without what a wrapper randomizes."""
        return self.env.model

    @property
    def dt(self) -> float:
        """Seconds between two actions."""
        return self.env.dt

    @property
    def action_size(self) -> int:
        """Numbers in an action of one world."""
        return self.env.action_size

    @property
    def observation_size(self) -> Any:
        """Numbers in an observation of one world."""
        return self.env.observation_size

    @property
    def unwrapped(self) -> Env:
        """The environment without wrappers."""
        return self.env.unwrapped
