"""The table of tasks: one row each, a `Task` of a file here and a model of `models/`, mostly with the row's name."""

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
# the model of a task that has none of its own
MODEL_OF = {"joystick": "quadruped"}


def make(name: str) -> Env:
    """An environment by name.

    Args:
      name: a key of `TASKS`.

    Returns:
      The `Env`, whose model and task can be changed with `replace`.

    Raises:
      KeyError: no task of this name; the message lists near matches.
    """
    if name not in TASKS:
        raise KeyError(f"no task is called {name!r}{near(name, TASKS, listed=len(TASKS))}")
    return Env(load(MODELS / f"{MODEL_OF.get(name, name)}.xml"), TASKS[name])
