"""reacher: an arm of two links moves its tip to a target on the table."""

import jax
import jax.numpy as jnp

from diffsim.envs.env import Moment, Task, near
from diffsim.math import safe
from diffsim.types import Inputs, Model, State

Array = jax.Array

# distances of targets from the shoulder, m
REACH = (0.06, 0.22)


def start(model: Model, key: Array) -> tuple[State, Inputs]:
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


def observe(now: Moment) -> Array:
    """(10,): cosines and sines of the angles, velocities, target, the way to it."""
    angles, target = now.state.qpos, now.inputs.mocap_pos[0, :2]
    return jnp.concatenate([jnp.cos(angles), jnp.sin(angles), 0.1 * now.state.qvel, target, to_target(now)])


def reward(now: Moment) -> dict[str, Array]:
    """Nearness, most of it within the last centimetres, and little effort."""
    miss = safe.norm(to_target(now))
    return {
        "distance": -miss,
        "near": jnp.exp(-((miss / 0.03) ** 2)),
        "effort": -0.02 * jnp.sum(now.action**2),
    }


def failed(now: Moment) -> Array:
    """Never."""
    return jnp.zeros((), bool)


TASK = Task(start, observe, reward, failed, steps=2)
