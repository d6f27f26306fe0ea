"""wrap: an environment as trainers want it."""

from collections.abc import Callable

from diffsim.envs.autoreset import AutoResetWrapper
from diffsim.envs.batch import RandomizedVmapWrapper, VmapWrapper
from diffsim.envs.env import Env
from diffsim.envs.episode import EpisodeWrapper
from diffsim.envs.wrapper import Wrapper
from diffsim.types import Model


def wrap(
    env: Env,
    episode_length: int = 1000,
    action_repeat: int = 1,
    randomization_fn: Callable[[Model], tuple[Model, Model]] | None = None,
    redraw: bool = False,
) -> Wrapper:
    """A batch of worlds with episodes that begin anew: what `wrap_env_fn` of Brax's trainers is to be.

    Args:
      env: the environment of one world.
      episode_length: steps of an episode.
      action_repeat: steps for each action.
      randomization_fn: model -> (models, in_axes), for a model of its own in each world; see `diffsim.randomize`.
      redraw: see `AutoResetWrapper`.

    Returns:
      An environment whose `reset` takes keys (worlds,), and `step` states and actions (worlds, nu).
    """
    batch = VmapWrapper(env) if randomization_fn is None else RandomizedVmapWrapper(env, randomization_fn)
    return AutoResetWrapper(EpisodeWrapper(batch, episode_length, action_repeat), redraw)
