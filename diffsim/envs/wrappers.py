"""Wrappers: environments made of another one. Each changes `reset` and `step`, and passes on the rest.

Batches of worlds, of one model or each with a model of its own; episodes of bounded length, and what they sum up to;
worlds that begin anew as soon as their episode is done; `wrap` is all three, as trainers want it.
"""

import copy
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import Array

from diffsim.envs.env import Env, EnvState
from diffsim.types import Inputs, Model, State
from diffsim.xla.select import where_tree


class Environment(Protocol):
    """The methods and attributes that an `Env` and all wrappers have."""

    @property
    def model(self) -> Model: ...
    @property
    def dt(self) -> float: ...
    @property
    def action_size(self) -> int: ...
    @property
    def observation_size(self) -> Any: ...
    @property
    def unwrapped(self) -> Env: ...

    def reset(self, key: Array) -> EnvState: ...
    def step(self, state: EnvState, action: Array) -> EnvState: ...


class Wrapper:
    """Passes everything on to the environment inside, `env`."""

    def __init__(self, env: Environment) -> None:
        self.env = env

    def reset(self, key: Array) -> EnvState:
        """The beginning of an episode."""
        return self.env.reset(key)

    def step(self, state: EnvState, action: Array) -> EnvState:
        """The next state."""
        return self.env.step(state, action)

    @property
    def model(self) -> Model:
        """The model, without what a wrapper randomizes."""
        return self.env.model

    @property
    def dt(self) -> float:
        """Seconds between two actions."""
        return self.env.dt

    @property
    def action_size(self) -> int:
        """Numbers in an action of one world."""
        return self.env.action_size

    @property
    def observation_size(self) -> Any:
        """Numbers in an observation of one world."""
        return self.env.observation_size

    @property
    def unwrapped(self) -> Env:
        """The environment without wrappers."""
        return self.env.unwrapped


class VmapWrapper(Wrapper):
    """Many worlds at once: `reset` takes keys (worlds,), `step` states and actions (worlds, nu)."""

    def reset(self, key: Array) -> EnvState:
        """One beginning for each key."""
        return jax.vmap(self.env.reset)(key)

    def step(self, state: EnvState, action: Array) -> EnvState:
        """The next state of each world."""
        return jax.vmap(self.env.step)(state, action)


class RandomizedVmapWrapper(Wrapper):
    """Many worlds, each with a model of its own: world i always has model i.

        draw = lambda model: diffsim.randomize(model, key, {"geom_friction": diffsim.Scale(0.5, 1.5)}, 1024)
        env = envs.RandomizedVmapWrapper(envs.make("hopper"), draw)

    Args:
      env: an environment of one world, with or without wrappers: an `Env`, or any object with `model`, `reset` and
        `step`, which read the model from there.
      randomization: model -> (models, in_axes), as `diffsim.randomize` gives them.
    """

    def __init__(self, env: Environment, randomization: Callable[[Model], tuple[Model, Model]]) -> None:
        super().__init__(env)
        self.models, self.axes = randomization(env.model)

    def reset(self, key: Array) -> EnvState:
        """One beginning for each key (worlds,)."""
        one = lambda model, key: with_model(self.env, model).reset(key)  # noqa: E731
        return jax.vmap(one, in_axes=(self.axes, 0))(self.models, key)

    def step(self, state: EnvState, action: Array) -> EnvState:
        """The next state of each world; actions are (worlds, nu)."""
        one = lambda model, state, action: with_model(self.env, model).step(state, action)  # noqa: E731
        return jax.vmap(one, in_axes=(self.axes, 0, 0))(self.models, state, action)


def with_model(env: Environment, model: Model) -> Environment:
    """A copy of an environment with another model, also where it is inside of wrappers."""
    other: Any = copy.copy(env)
    inside = "env" if isinstance(env, Wrapper) else "model"
    # an Env is frozen; the copy is nobody else's
    object.__setattr__(other, inside, with_model(env.env, model) if isinstance(env, Wrapper) else model)
    return other


class EpisodeWrapper(Wrapper):
    """Ends episodes after a number of steps; `info` counts `steps` and tells a `truncation` from a failure.

    `info["episode_metrics"]` has the sums of the reward, `sum_reward`, and of each metric since the beginning of the
    episode, and its `length`; names are those that Brax's trainers read. Works on one world or on a batch.

    Args:
      env: the environment.
      length: steps after which an episode is done, counted in steps of `env`.
      action_repeat: steps of `env` for each action; their rewards are summed.
    """

    def __init__(self, env: Environment, length: int, action_repeat: int = 1) -> None:
        super().__init__(env)
        self.length, self.action_repeat = length, action_repeat

    @property
    def dt(self) -> float:
        """Seconds between two actions."""
        return self.action_repeat * self.env.dt

    def reset(self, key: Array) -> EnvState:
        """The beginning, with counts of zero."""
        state = self.env.reset(key)
        nothing = jnp.zeros_like(state.reward)
        sums = dict.fromkeys(["sum_reward", "length", *state.metrics], nothing)
        counts = dict.fromkeys(["steps", "truncation", "episode_done"], nothing)
        return state.replace(info=state.info | counts | {"episode_metrics": sums})

    def step(self, state: EnvState, action: Array) -> EnvState:
        """The next state; done at the end of its episode too. The step after that begins to count anew."""
        # 0 in the first step of an episode, where counts and sums begin anew
        going_on, info = (state.done == 0).astype(state.done.dtype), state.info
        later = self._repeat(state, action)
        steps = going_on * info["steps"] + self.action_repeat
        truncation = jnp.where(steps >= self.length, 1 - later.done, 0)
        added = {"sum_reward": later.reward, "length": self.action_repeat, **later.metrics}
        sums = {name: going_on * total + added[name] for name, total in info["episode_metrics"].items()}
        done = later.done + truncation
        counts = {"steps": steps, "truncation": truncation, "episode_done": done, "episode_metrics": sums}
        return later.replace(done=done, info=later.info | counts)

    def _repeat(self, state: EnvState, action: Array) -> EnvState:
        """Several steps with one action."""
        later = self.env.step(state, action)
        if self.action_repeat == 1:
            return later

        def again(state: EnvState, _: None) -> tuple[EnvState, None]:
            other = self.env.step(state, action)
            done = jnp.maximum(state.done, other.done)
            return other.replace(reward=state.reward + other.reward, done=done), None

        return jax.lax.scan(again, later, None, self.action_repeat - 1)[0]


class AutoResetWrapper(Wrapper):
    """Where a batch of worlds is done, the state returned is already that of the next episode.

    `done` and `reward` are those of the step that ended the episode, `info["final_obs"]` is what was seen then (to
    bootstrap from after a truncation); `obs` is the first of the new one. By default a world goes back to its own first
    state, which costs nothing, as in Brax; `redraw` draws another one, in the steps in which any world is done.

    Args:
      env: an environment of a batch.
      redraw: whether each episode begins at a state of its own.
    """

    def __init__(self, env: Environment, redraw: bool = False) -> None:
        super().__init__(env)
        self.redraw = redraw

    def reset(self, key: Array) -> EnvState:
        """The beginnings; `info` keeps the first states, or the keys that later ones are drawn with."""
        state = self.env.reset(key)
        first = {"key": key} if self.redraw else {"first": _beginning(state)}
        return state.replace(info=state.info | first | {"final_obs": state.obs})

    def step(self, state: EnvState, action: Array) -> EnvState:
        """The next states, of a new episode where one is done."""
        later = self.env.step(state, action)
        done = later.done > 0
        info = later.info | {"final_obs": later.obs}
        current = _beginning(later)
        if self.redraw:
            info, first = self._draw(info, done, current)
        else:
            first = info["first"]
        chosen = where_tree(done, first, current)
        return later.replace(physics=chosen.physics, inputs=chosen.inputs, obs=chosen.obs, info=info | chosen.memory)

    def _draw(self, info: dict, done: Array, current: "Beginning") -> tuple[dict, "Beginning"]:
        """`info` with the keys of the next draw, and other beginnings, or `current` where no world needs one."""
        keys = jax.vmap(jax.random.split)(info["key"])
        chosen = jnp.where(done.reshape(done.shape + (1,) * (keys.ndim - 2)), keys[:, 0], info["key"])

        def draw() -> Beginning:
            return _beginning(self.env.reset(keys[:, 1]))

        return info | {"key": chosen}, jax.lax.cond(jnp.any(done), draw, lambda: current)


class Beginning(NamedTuple):
    """What a new episode replaces; `memory` is empty unless the task remembers something."""

    physics: State
    inputs: Inputs
    obs: Any
    memory: dict[str, Any]


def _beginning(state: EnvState) -> Beginning:
    """These parts of a state."""
    memory = {name: state.info[name] for name in ("memory",) if name in state.info}
    return Beginning(state.physics, state.inputs, state.obs, memory)


def wrap(
    env: Environment,
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
