"""cartpole: a motor moves a cart so that the pole on it stays up."""

import jax
import jax.numpy as jnp

from diffsim.envs.env import Moment, Task, near

Array = jax.Array


def observe(now: Moment) -> Array:
    """(5,): place of the cart, sine and cosine of the pole's angle, velocities."""
    place, angle = now.state.qpos
    return jnp.concatenate([jnp.stack([place, jnp.sin(angle), jnp.cos(angle)]), now.state.qvel])


def reward(now: Moment) -> dict[str, Array]:
    """1 for a pole upright in the middle of the rail."""
    place, angle = now.state.qpos
    return {
        "upright": 0.5 * (1 + jnp.cos(angle)),
        "centred": -0.1 * place**2,
        "effort": -0.01 * jnp.sum(now.action**2),
    }


def failed(now: Moment) -> Array:
    """The pole has tilted by more than half a radian."""
    return jnp.abs(now.state.qpos[1]) > 0.5


TASK = Task(lambda model, key: near(model, key, 0.1), observe, reward, failed, steps=2)
