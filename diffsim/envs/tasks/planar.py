"""Planar tasks.

cartpole: a motor moves a cart so that the pole on it stays up. reacher: an arm with two links moves its tip to a target
on the table. hopper and walker: robots with one and two legs move forward as fast as they can without falling; their
first three coordinates are the pose of the torso, (x, z, pitch).
"""

import jax
import jax.numpy as jnp
from jax import Array

from diffsim.envs.env import Moment, Task, near
from diffsim.math import safe
from diffsim.types import Inputs, Model, State


def observe_cartpole(now: Moment) -> Array:
    """(5,): position of the cart, sine and cosine of the angle of the pole, velocities."""
    place, angle = now.state.qpos
    return jnp.concatenate([jnp.stack([place, jnp.sin(angle), jnp.cos(angle)]), now.state.qvel])


def reward_cartpole(now: Moment) -> dict[str, Array]:
    """At most 1, for an upright pole in the middle of the rail and no effort."""
    place, angle = now.state.qpos
    return {
        "upright": 0.5 * (1 + jnp.cos(angle)),
        "centred": -0.1 * place**2,
        "effort": -0.01 * jnp.sum(now.action**2),
    }


CARTPOLE = Task(
    # a random state near qpos0
    start=lambda model, key: near(model, key, 0.1),
    observe=observe_cartpole,
    reward=reward_cartpole,
    # the pole is tilted by more than half a radian
    failed=lambda now: jnp.abs(now.state.qpos[1]) > 0.5,
    steps=2,
)


# the smallest and the largest distance of targets from the shoulder, m: within reach of the arm
REACH = (0.06, 0.22)


def start_reacher(model: Model, key: Array) -> tuple[State, Inputs]:
    """A random pose of the arm, and a random target within reach."""
    pose_key, distance_key, angle_key = jax.random.split(key, 3)
    state, inputs = near(model, pose_key, 0.5)
    distance = jax.random.uniform(distance_key, (), state.qpos.dtype, *REACH)
    angle = jax.random.uniform(angle_key, (), state.qpos.dtype, -jnp.pi, jnp.pi)
    target = inputs.mocap_pos.at[0, :2].set(distance * jnp.stack([jnp.cos(angle), jnp.sin(angle)]))
    return state, inputs.replace(mocap_pos=target)


def to_target(now: Moment) -> Array:
    """Vector (2,) from the tip to the target, m."""
    return (now.inputs.mocap_pos[0] - now.model.site("tip").xpos(now.data))[:2]


def observe_reacher(now: Moment) -> Array:
    """(10,): cosines and sines of the angles, velocities, target, vector from the tip to the target."""
    angles = now.state.qpos
    target = now.inputs.mocap_pos[0, :2]
    return jnp.concatenate([jnp.cos(angles), jnp.sin(angles), 0.1 * now.state.qvel, target, to_target(now)])


def reward_reacher(now: Moment) -> dict[str, Array]:
    """Rewards a small distance to the target, mostly within the last 3 cm; penalizes effort."""
    miss = safe.norm(to_target(now))
    return {
        "distance": -miss,
        "near": jnp.exp(-((miss / 0.03) ** 2)),
        "effort": -0.02 * jnp.sum(now.action**2),
    }


REACHER = Task(
    start=start_reacher,
    observe=observe_reacher,
    reward=reward_reacher,
    # the arm cannot fail
    failed=lambda now: jnp.zeros((), bool),
    steps=2,
)


def observe_robot(now: Moment) -> Array:
    """All positions except x, and all velocities, clipped at 10."""
    return jnp.concatenate([now.state.qpos[1:], safe.clip(now.state.qvel, -10, 10)])


def reward_robot(now: Moment) -> dict[str, Array]:
    """Rewards forward speed (m/s) and each step without a fall; penalizes effort."""
    return {
        "forward": now.state.qvel[0],
        "alive": jnp.ones_like(now.state.time),
        "effort": -0.01 * jnp.sum(now.action**2),
    }


def forward_task(pitch: float) -> Task:
    """A task: move forward from the keyframe "stand".

    It fails if the torso is below 0.8 m or tilts more than `pitch` (rad).
    """

    def falls(now: Moment) -> Array:
        return (now.model.body("torso").xpos(now.data)[2] < 0.8) | (jnp.abs(now.state.qpos[2]) > pitch)

    return Task(
        start=lambda model, key: near(model, key, 0.01, "stand"),
        observe=observe_robot,
        reward=reward_robot,
        failed=falls,
        steps=4,
    )


HOPPER = forward_task(0.6)
WALKER = forward_task(1.0)
