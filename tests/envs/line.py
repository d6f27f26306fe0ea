"""A world without physics, in the shape of an `Env`: a place that actions move, and a task that ends beyond 1."""

import jax
import jax.numpy as jnp

from diffsim import envs

Array = jax.Array


class Line:
    """x moves by the action; the reward is x. Compiles in no time, so that wrappers can be tested with it."""

    action_size, observation_size, dt = 1, 2, 0.5

    def __init__(self, spread: float = 0.0) -> None:
        self.spread = spread

    @property
    def unwrapped(self) -> "Line":
        return self

    def reset(self, key: Array) -> envs.EnvState:
        place = self.spread * jax.random.uniform(key)
        nothing = jnp.zeros_like(place)
        return envs.EnvState(place, nothing, self.look(place), nothing, nothing, {"place": nothing}, {})

    def step(self, state: envs.EnvState, action: Array) -> envs.EnvState:
        place = state.physics + action[0]
        done = (place > 1).astype(place.dtype)
        return state.replace(physics=place, obs=self.look(place), reward=place, done=done, metrics={"place": place})

    def look(self, place: Array) -> Array:
        return jnp.stack([place, place**2])
