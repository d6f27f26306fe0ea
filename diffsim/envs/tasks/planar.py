"""What robots in a plane share: the first three coordinates are those of the torso, (x, z, pitch)."""

import jax
import jax.numpy as jnp

from diffsim.envs.env import Moment
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
