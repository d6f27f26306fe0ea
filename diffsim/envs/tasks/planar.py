"""Robots in a plane: their first three coordinates are those of the torso, (x, z, pitch).

hopper: one leg hops forward, as fast as it can without falling. walker: two legs walk.
"""

import jax
import jax.numpy as jnp

from diffsim.envs.env import Moment, Task, near
from diffsim.math import safe

Array = jax.Array


def observe_planar(now: Moment) -> Array:
    """All positions but x, and all velocities."""
    return jnp.concatenate([now.state.qpos[1:], safe.clip(now.state.qvel, -10, 10)])


def reward_planar(now: Moment) -> dict[str, Array]:
    """Speed forward (m/s), a bonus for every step on the feet, little effort."""
    return {
        "forward": now.state.qvel[0],
        "alive": jnp.ones_like(now.state.time),
        "effort": -0.01 * jnp.sum(now.action**2),
    }


def leaves(now: Moment, lowest: float, pitch: float) -> Array:
    """Whether the torso is lower than `lowest` (m) or tilted by more than `pitch` (rad)."""
    return (now.model.body("torso").xpos(now.data)[2] < lowest) | (jnp.abs(now.state.qpos[2]) > pitch)


def planar_task(pitch: float) -> Task:
    """Forward from the keyframe "stand", until the torso is down or tilted by more than `pitch` (rad)."""
    return Task(
        start=lambda model, key: near(model, key, 0.01, "stand"),
        observe=observe_planar,
        reward=reward_planar,
        failed=lambda now: leaves(now, lowest=0.8, pitch=pitch),
        steps=4,
    )


HOPPER, WALKER = planar_task(0.6), planar_task(1.0)
