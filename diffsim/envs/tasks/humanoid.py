"""humanoid: a person of 21 joints walks forward without falling."""

import jax
import jax.numpy as jnp

from diffsim.envs.env import Moment, Task, near
from diffsim.envs.tasks.floating import falls, gravity_direction, observe_floating
from diffsim.math import safe

Array = jax.Array

# m/s
FASTEST = 1.5


def reward(now: Moment) -> dict[str, Array]:
    """Speed forward up to `FASTEST`, an upright torso, a bonus for every step on the feet, little effort."""
    return {
        "forward": safe.minimum(now.state.qvel[0], FASTEST),
        "upright": -gravity_direction(now)[2],
        "alive": jnp.ones_like(now.state.time),
        "effort": -0.02 * jnp.sum(now.action**2),
    }


TASK = Task(
    start=lambda model, key: near(model, key, 0.01, "stand"),
    observe=observe_floating,
    reward=reward,
    failed=lambda now: falls(now, lowest=0.8, tilt=1.0),
    steps=3,
)
