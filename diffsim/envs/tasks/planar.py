"""Tasks in a plane.

cartpole: a motor moves a cart so that the pole on it stays up. reacher: an arm of two links moves its tip to a target
on the table. hopper and walker: robots whose first three coordinates are those of the torso, (x, z, pitch); one leg
hops forward, as fast as it can without falling, two legs walk.
"""

import jax
import jax.numpy as jnp
from jax import Array

from diffsim.envs.env import Moment, Task, near
from diffsim.math import safe
from diffsim.types import Inputs, Model, State


def observe_cartpole(now: Moment) -> Array:
    """(5,): place of the cart, sine and cosine of the pole's angle, velocities."""
    place, angle = now.state.qpos
    return jnp.concatenate([jnp.stack([place, jnp.sin(angle), jnp.cos(angle)]), now.state.qvel])


def reward_cartpole(now: Moment) -> dict[str, Array]:
    """1 for a pole upright in the middle of the rail."""
    place, angle = now.state.qpos
    return {
        "upright": 0.5 * (1 + jnp.cos(angle)),
        "centred": -0.1 * place**2,
        "effort": -0.01 * jnp.sum(now.action**2),
    }


CARTPOLE = Task(
    start=lambda model, key: near(model, key, 0.1),
    observe=observe_cartpole,
    reward=reward_cartpole,
    # the pole has tilted by more than half a radian
    failed=lambda now: jnp.abs(now.state.qpos[1]) > 0.5,
    steps=2,
)


# distances of targets from the reacher's shoulder, m
REACH = (0.06, 0.22)


def start_reacher(model: Model, key: Array) -> tuple[State, Inputs]:
    """Any pose of the arm, any target in reach."""
    pose, far, side = jax.random.split(key, 3)
    state, inputs = near(model, pose, 0.5)
    distance = jax.random.uniform(far, (), state.qpos.dtype, *REACH)
    angle = jax.random.uniform(side, (), state.qpos.dtype, -jnp.pi, jnp.pi)
    target = inputs.mocap_pos.at[0, :2].set(distance * jnp.stack([jnp.cos(angle), jnp.sin(angle)]))
    return state, inputs.replace(mocap_pos=target)


def to_target(now: Moment) -> Array:
    """(2,) from the tip to the target, m."""
    return (now.inputs.mocap_pos[0] - now.model.site("tip").xpos(now.data))[:2]


def observe_reacher(now: Moment) -> Array:
    """(10,): cosines and sines of the angles, velocities, target, the way to it."""
    angles, target = now.state.qpos, now.inputs.mocap_pos[0, :2]
    return jnp.concatenate([jnp.cos(angles), jnp.sin(angles), 0.1 * now.state.qvel, target, to_target(now)])


def reward_reacher(now: Moment) -> dict[str, Array]:
    """Nearness, most of it within the last centimetres, and little effort."""
    miss = safe.norm(to_target(now))
    return {
        "distance": -miss,
        "near": jnp.exp(-((miss / 0.03) ** 2)),
        "effort": -0.02 * jnp.sum(now.action**2),
    }


REACHER = Task(start_reacher, observe_reacher, reward_reacher, failed=lambda now: jnp.zeros((), bool), steps=2)


def observe_robot(now: Moment) -> Array:
    """All positions but x, and all velocities."""
    return jnp.concatenate([now.state.qpos[1:], safe.clip(now.state.qvel, -10, 10)])


def reward_robot(now: Moment) -> dict[str, Array]:
    """Speed forward (m/s), a bonus for every step on the feet, little effort."""
    return {
        "forward": now.state.qvel[0],
        "alive": jnp.ones_like(now.state.time),
        "effort": -0.01 * jnp.sum(now.action**2),
    }


def forward_task(pitch: float) -> Task:
    """Forward from the keyframe "stand", until the torso is below 0.8 m or tilted by more than `pitch` (rad)."""

    def falls(now: Moment) -> Array:
        return (now.model.body("torso").xpos(now.data)[2] < 0.8) | (jnp.abs(now.state.qpos[2]) > pitch)

    return Task(lambda model, key: near(model, key, 0.01, "stand"), observe_robot, reward_robot, falls, steps=4)


HOPPER, WALKER = forward_task(0.6), forward_task(1.0)
