"""The table of tasks. Each row is a `Task` from a file here; its model in `models/` has the same name by default."""

from diffsim.envs.env import Env, Task
from diffsim.envs.tasks import floating, hand, joystick, planar
from diffsim.load import MODELS as MODELS
from diffsim.load import load
from diffsim.types.record import near

TASKS: dict[str, Task] = {
    "cartpole": planar.CARTPOLE,
    "reacher": planar.REACHER,
    "hopper": planar.HOPPER,
    "walker": planar.WALKER,
    "quadruped": floating.QUADRUPED,
    "humanoid": floating.HUMANOID,
    "hand": hand.TASK,
    "joystick": joystick.TASK,
}
# tasks that use the model of another task
MODEL_OF = {"joystick": "quadruped"}


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
    return Env(load(MODELS / f"{MODEL_OF.get(name, name)}.xml"), TASKS[name])
