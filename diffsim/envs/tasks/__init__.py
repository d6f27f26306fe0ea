"""The table of tasks. Each row is a `Task` from a file here; its model in `models/` has the same name by default.

`make` builds the environment of a task, with the model that the task expects.
"""

from collections.abc import Callable

from diffsim.envs.env import Env, Task
from diffsim.envs.tasks import floating, hand, planar
from diffsim.envs.tasks.robots import ROBOTS
from diffsim.envs.tasks.velocity import Velocity
from diffsim.load import MODELS as MODELS
from diffsim.load import load
from diffsim.types.record import near

# the quadruped follows commanded velocities
JOYSTICK = Velocity(ROBOTS["quadruped"])
TASKS: dict[str, Task] = {
    "cartpole": planar.CARTPOLE,
    "reacher": planar.REACHER,
    "hopper": planar.HOPPER,
    "walker": planar.WALKER,
    "quadruped": floating.QUADRUPED,
    "humanoid": floating.HUMANOID,
    "hand": hand.TASK,
    "joystick": JOYSTICK.task,
}
# tasks that use the model of another task, for tools that show models
MODEL_OF = {"joystick": "quadruped"}
# tasks that change their model: other motors, timestep and integrator
MAKERS: dict[str, Callable[[], Env]] = {"joystick": JOYSTICK.env}


def make(name: str) -> Env:
    """Makes the environment of a task.

    Args:
      name: a key of `TASKS`.

    Returns:
      The `Env`; `replace` changes its model or task.

    Raises:
      KeyError: there is no such task; the message lists similar names.
    """
    if name not in TASKS:
        raise KeyError(f"no task is called {name!r}{near(name, TASKS, listed=len(TASKS))}")
    if name in MAKERS:
        return MAKERS[name]()
    return Env(load(MODELS / f"{name}.xml"), TASKS[name])
