"""Robots with a free root: the body "torso", seven positions and six velocities before those of joints.

humanoid: a person of 21 joints walks forward without falling. quadruped: a robot of twelve joints trots straight on at
a metre a second.
"""

import jax.numpy as jnp
from jax import Array

from diffsim.envs.env import Moment, Task, around_keyframe, near
from diffsim.math import rotate_inv, safe
from diffsim.types.state import make_state

# m/s: up to which a humanoid is rewarded for speed, and that of a quadruped
FASTEST, SPEED = 1.5, 1.0


def gravity_direction(now: Moment) -> Array:
    """(3,) which way is down, in the frame of the torso."""
    return -now.model.body("torso").xmat(now.data)[2]


def local_velocity(now: Moment) -> Array:
    """(3,) velocity of the root, m/s, in its own frame."""
    return rotate_inv(now.state.qpos[3:7], now.state.qvel[:3])


def observe_floating(now: Moment) -> Array:
    """Which way is down, velocities, joints beside those of the keyframe "stand", the last action."""
    joints = now.state.qpos[7:] - make_state(now.model, "stand").qpos[7:]
    rates = [local_velocity(now), 0.25 * now.state.qvel[3:6], 0.1 * now.state.qvel[6:]]
    return jnp.concatenate([gravity_direction(now), *rates, joints, now.action])


def falls(now: Moment, lowest: float, tilt: float) -> Array:
    """Whether the torso is lower than `lowest` (m) or its z axis further than `tilt` (rad) from the vertical."""
    low = now.model.body("torso").xpos(now.data)[2] < lowest
    return low | (-gravity_direction(now)[2] < jnp.cos(tilt))


def reward_humanoid(now: Moment) -> dict[str, Array]:
    """Speed forward up to `FASTEST`, an upright torso, a bonus for every step on the feet, little effort."""
    return {
        "forward": safe.minimum(now.state.qvel[0], FASTEST),
        "upright": -gravity_direction(now)[2],
        "alive": jnp.ones_like(now.state.time),
        "effort": -0.02 * jnp.sum(now.action**2),
    }


HUMANOID = Task(
    start=lambda model, key: near(model, key, 0.01, "stand"),
    observe=observe_floating,
    reward=reward_humanoid,
    failed=lambda now: falls(now, lowest=0.8, tilt=1.0),
    steps=3,
)


def reward_quadruped(now: Moment) -> dict[str, Array]:
    """The right speed in the right direction, a level torso, gentle joints."""
    forward, sideways, vertical = local_velocity(now)
    return {
        "speed": jnp.exp(-2 * (forward - SPEED) ** 2),
        "straight": 0.3 * jnp.exp(-4 * sideways**2 - now.state.qvel[5] ** 2),
        "level": -jnp.sum(gravity_direction(now)[:2] ** 2) - 0.1 * vertical**2,
        "effort": -0.01 * jnp.sum(now.action**2) - 2e-5 * jnp.sum(now.state.qvel[6:] ** 2),
    }


QUADRUPED = Task(
    start=lambda model, key: near(model, key, 0.02, "stand"),
    observe=observe_floating,
    reward=reward_quadruped,
    failed=lambda now: falls(now, lowest=0.16, tilt=1.0),
    steps=5,
    control=around_keyframe("stand", 0.5),
)
