"""What robots with a free root share: the body "torso", seven positions and six velocities before those of joints."""

import jax
import jax.numpy as jnp

from diffsim.envs.env import Moment
from diffsim.math import rotate_inv
from diffsim.types.state import make_state

Array = jax.Array


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
