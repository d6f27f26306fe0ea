"""hand: four fingers turn a cube on the palm to the orientation of the small cube next to the hand."""

import jax
import jax.numpy as jnp
from jax import Array

from diffsim.envs.env import Moment, Task, around_keyframe, near
from diffsim.math import quat_normalize, quat_sub, safe
from diffsim.types import Inputs, Model, State

FINGERS = ("first_tip", "second_tip", "third_tip", "thumb_tip")


def start(model: Model, key: Array) -> tuple[State, Inputs]:
    """The cube in the hand, and a random goal orientation.

    A normalized vector of four Gaussians is a quaternion that is uniform over all rotations.
    """
    pose_key, goal_key = jax.random.split(key)
    state, inputs = near(model, pose_key, 0.02, "hold")
    quat = quat_normalize(jax.random.normal(goal_key, (1, 4), state.qpos.dtype))
    return state, inputs.replace(mocap_quat=quat)


def to_goal(now: Moment) -> Array:
    """Rotation vector (3,) from the cube to its goal, rad, in the frame of the cube."""
    return quat_sub(now.inputs.mocap_quat[0], now.model.body("cube").xquat(now.data))


def off_palm(now: Moment) -> Array:
    """Vector (3,) from the palm to the cube, m."""
    return now.model.body("cube").xpos(now.data) - now.model.body("palm").xpos(now.data)


def observe(now: Moment) -> Array:
    """(76,): what the hand sees of itself and of the cube.

    The parts are the finger joints, all velocities, the position of the cube, its orientation, its rotation to the
    goal, the fingertips relative to the cube, and the last action. Positions (m) are multiplied by 10 and velocities by
    0.1, so that all parts have about the same size.
    """
    cube = now.model.body("cube").xpos(now.data)
    tips = jnp.concatenate([now.model.site(name).xpos(now.data) - cube for name in FINGERS])
    # qpos is 16 finger joints, then the position (3,) and the quaternion (4,) of the cube
    joints = now.state.qpos[:16]
    orientation = now.state.qpos[19:23]
    return jnp.concatenate(
        [joints, 0.1 * now.state.qvel, 10 * off_palm(now), orientation, to_goal(now), 10 * tips, now.action]
    )


def reward(now: Moment) -> dict[str, Array]:
    """Rewards a small angle to the goal, reaching it, and the cube in the middle of the palm; penalizes effort."""
    angle = safe.norm(to_goal(now))
    return {
        "angle": 1 - angle / jnp.pi,
        "reached": jnp.where(angle < 0.2, jnp.ones_like(angle), jnp.zeros_like(angle)),
        "held": jnp.exp(-400 * jnp.sum(off_palm(now)[:2] ** 2)),
        "effort": -0.02 * jnp.sum(now.action**2),
    }


def failed(now: Moment) -> Array:
    """Whether the cube has fallen off the palm."""
    return off_palm(now)[2] < 0.0


# an action of 1 moves the target of a finger joint by 0.7 rad
TASK = Task(
    start=start,
    observe=observe,
    reward=reward,
    failed=failed,
    steps=5,
    control=around_keyframe("hold", 0.7),
)
