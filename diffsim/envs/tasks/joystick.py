"""joystick: the quadruped follows commanded velocities, which change every few seconds.

The task remembers the command, the last actions and how long each foot has been in the air. Observations are noisy, as
on a robot.
"""

import jax
import jax.numpy as jnp
from jax import Array

from diffsim.envs.env import Moment, Task, around_keyframe, near
from diffsim.envs.tasks.floating import falls, gravity_direction, local_velocity, observe_floating

FEET = ("front_left_foot", "front_right_foot", "rear_left_foot", "rear_right_foot")
# the largest commands: speed forward and to the left, m/s, and turning to the left, rad/s
FASTEST = (1.0, 0.4, 0.8)
# the mean duration of a command, s: long enough to reach the commanded velocity, short enough for several in an episode
LASTS = 4.0
# the time in the air above which a step of a foot is rewarded, s
SWING = 0.2
# bound of the uniform noise on each observation
NOISE = 0.02


def remember(now: Moment) -> dict[str, Array]:
    """Updates the memory.

    Returns:
      command: (3,) the commanded velocities.
      action, before: (nu,) the last action and the one before it.
      air: (4,) the time that each foot has been in the air, s.
      landed: (4,) this time for a foot that landed in this step, else 0.
    """
    draw, again = jax.random.split(now.key)
    fresh = jax.random.uniform(draw, (3,), now.action.dtype, -1, 1) * jnp.array(FASTEST, now.action.dtype)
    idle = jnp.zeros(len(FEET), now.action.dtype)
    if now.memory is None:
        return {"command": fresh, "action": now.action, "before": now.action, "air": idle, "landed": idle}
    elapsed = now.state.time - now.before.time
    # commands change with probability dt / LASTS in each step, so their durations have the mean LASTS
    changes = jax.random.uniform(again) < elapsed / LASTS
    # A foot is down if its center is within its radius plus 5 mm of the floor. Contact forces would tell exactly, but
    # would cost one more call of the solver.
    feet = [now.model.geom(foot) for foot in FEET]
    down = jnp.stack([foot.xpos(now.data)[2] < foot.size[0] + 0.005 for foot in feet])
    up = now.memory["air"] + elapsed
    return {
        "command": jnp.where(changes, fresh, now.memory["command"]),
        "action": now.action,
        "before": now.memory["action"],
        "air": jnp.where(down, 0, up),
        "landed": jnp.where(down & (now.memory["air"] > 0), up, 0),
    }


def observe(now: Moment) -> Array:
    """The observation of floating robots with noise, then the command without noise."""
    seen = observe_floating(now)
    noise = jax.random.uniform(now.key, seen.shape, seen.dtype, -NOISE, NOISE)
    return jnp.concatenate([seen + noise, now.memory["command"]])


def reward(now: Moment) -> dict[str, Array]:
    """Rewards the commanded velocities, and steps longer than `SWING` unless the command is to stand.

    It penalizes a tilted torso, vertical motion, joint velocities and changes of the action.
    """
    memory = now.memory
    command = memory["command"]
    forward, sideways, vertical = local_velocity(now)
    error = (forward - command[0]) ** 2 + (sideways - command[1]) ** 2
    # below this the command is to stand
    moving = jnp.sum(jnp.abs(command)) > 0.2
    swings = jnp.where(memory["landed"] > 0, memory["landed"] - SWING, 0)
    return {
        "velocity": jnp.exp(-4 * error),
        "turn": 0.5 * jnp.exp(-4 * (now.state.qvel[5] - command[2]) ** 2),
        "level": -jnp.sum(gravity_direction(now)[:2] ** 2) - 0.2 * vertical**2,
        "swing": jnp.where(moving, 2 * jnp.sum(swings), 0),
        "effort": -2e-5 * jnp.sum(now.state.qvel[6:] ** 2) - 0.02 * jnp.sum((memory["action"] - memory["before"]) ** 2),
    }


TASK = Task(
    start=lambda model, key: near(model, key, 0.02, "stand"),
    observe=observe,
    reward=reward,
    failed=lambda now: falls(now, lowest=0.16, tilt=1.0),
    steps=5,
    control=around_keyframe("stand", 0.5),
    noisy=True,
    remember=remember,
)
