"""Robots with a free root, the body "torso": qpos[:7] and qvel[:6] are the root, the rest are joints.

humanoid: 21 joints, walks forward without falling. quadruped: 12 joints, trots straight ahead at 1 m/s.
"""

import jax.numpy as jnp
from jax import Array

from diffsim.envs.env import Moment, Task, around_keyframe, near
from diffsim.math import rotate_inv, safe
from diffsim.types.state import make_state

# the speed up to which the humanoid is rewarded, m/s: a brisk walk
FASTEST = 1.5
# the target speed of the quadruped, m/s: a trot
SPEED = 1.0


def gravity_direction(now: Moment) -> Array:
    """Unit vector (3,) of gravity in the frame of the torso."""
    return -now.model.body("torso").xmat(now.data)[2]


def local_velocity(now: Moment) -> Array:
    """Velocity (3,) of the root in its own frame, m/s."""
    return rotate_inv(now.state.qpos[3:7], now.state.qvel[:3])


def observe_floating(now: Moment) -> Array:
    """Direction of gravity, velocities, joint positions relative to the keyframe "stand", the last action.

    The factors bring velocities (rad/s) to about the same size as the other parts, which helps the networks.
    """
    joints = now.state.qpos[7:] - make_state(now.model, "stand").qpos[7:]
    rates = [local_velocity(now), 0.25 * now.state.qvel[3:6], 0.1 * now.state.qvel[6:]]
    return jnp.concatenate([gravity_direction(now), *rates, joints, now.action])


def falls(now: Moment, lowest: float, tilt: float) -> Array:
    """Whether the torso is lower than `lowest` (m) or its z axis is more than `tilt` (rad) from vertical."""
    low = now.model.body("torso").xpos(now.data)[2] < lowest
    return low | (-gravity_direction(now)[2] < jnp.cos(tilt))


def reward_humanoid(now: Moment) -> dict[str, Array]:
    """Rewards forward speed up to `FASTEST`, an upright torso and each step without a fall; penalizes effort."""
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
    """Rewards forward motion at `SPEED`, straight ahead; penalizes a tilted torso, effort and joint velocities."""
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
