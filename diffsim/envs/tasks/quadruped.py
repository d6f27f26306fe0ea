"""quadruped: a robot of twelve joints trots straight on at a metre a second."""

import jax
import jax.numpy as jnp

from diffsim.envs.env import Moment, Task, around_keyframe, near
from diffsim.envs.tasks.floating import falls, gravity_direction, local_velocity, observe_floating

Array = jax.Array

# m/s
SPEED = 1.0


def reward(now: Moment) -> dict[str, Array]:
    """The right speed in the right direction, a level torso, gentle joints."""
    forward, sideways, vertical = local_velocity(now)
    return {
        "speed": jnp.exp(-2 * (forward - SPEED) ** 2),
        "straight": 0.3 * jnp.exp(-4 * sideways**2 - now.state.qvel[5] ** 2),
        "level": -jnp.sum(gravity_direction(now)[:2] ** 2) - 0.1 * vertical**2,
        "effort": -0.01 * jnp.sum(now.action**2) - 2e-5 * jnp.sum(now.state.qvel[6:] ** 2),
    }


TASK = Task(
    start=lambda model, key: near(model, key, 0.02, "stand"),
    observe=observe_floating,
    reward=reward,
    failed=lambda now: falls(now, lowest=0.16, tilt=1.0),
    steps=5,
    control=around_keyframe("stand", 0.5),
)
