"""Wrappers: each changes `reset` and `step` of an environment, and passes on everything else.

They add batches of worlds (of one model, or of a different model in each world), episodes of bounded length with their
returns, and automatic resets. `wrap` combines the three as trainers expect it.
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

    def reset(self, key: Array, ended: EnvState | None = None) -> EnvState: ...
    def step(self, state: EnvState, action: Array) -> EnvState: ...


class Wrapper:
    """Passes everything on to the environment inside, `env`.

    A subclass with a `reset` of its own takes `ended` too if it is to serve tasks with a curriculum.
    """

    def __init__(self, env: Environment) -> None:
        self.env = env

    def reset(self, key: Array, ended: EnvState | None = None) -> EnvState:
        """Starts an episode; see `Env.reset`."""
        return self.env.reset(key, *_given(ended))

    def step(self, state: EnvState, action: Array) -> EnvState:
        """Advances by one action."""
        return self.env.step(state, action)

    @property
    def model(self) -> Model:
        """The model before any randomization by a wrapper."""
        return self.env.model

    @property
    def dt(self) -> float:
        """Time between two actions, s."""
        return self.env.dt

    @property
    def action_size(self) -> int:
        """Size of an action of one world."""
        return self.env.action_size

    @property
    def observation_size(self) -> Any:
        """Size of an observation of one world."""
        return self.env.observation_size

    @property
    def unwrapped(self) -> Env:
        """The environment without wrappers."""
        return self.env.unwrapped


class VmapWrapper(Wrapper):
    """Many worlds at once: `reset` takes keys (worlds,), `step` states and actions (worlds, nu)."""

    def reset(self, key: Array, ended: EnvState | None = None) -> EnvState:
        """Starts one episode for each key."""
        return jax.vmap(self.env.reset)(key, *_given(ended))

    def step(self, state: EnvState, action: Array) -> EnvState:
        """Advances each world by one action."""
        return jax.vmap(self.env.step)(state, action)


class RandomizedVmapWrapper(Wrapper):
    """Many worlds, each with its own model: world i always has model i.

        draw = lambda model: diffsim.randomize(model, key, {"geom_friction": diffsim.Scale(0.5, 1.5)}, 1024)
        env = envs.RandomizedVmapWrapper(envs.make("hopper"), draw)

    Args:
      env: an environment of one world, with or without wrappers: an `Env`, or any object whose `reset` and `step` read
        its attribute `model`.
      randomization: model -> (models, in_axes), as `diffsim.randomize` returns them.
    """

    def __init__(self, env: Environment, randomization: Callable[[Model], tuple[Model, Model]]) -> None:
        super().__init__(env)
        self.models, self.axes = randomization(env.model)

    def reset(self, key: Array, ended: EnvState | None = None) -> EnvState:
        """Starts one episode for each key (worlds,)."""
        of_world = (key, *_given(ended))
        one = lambda model, of_world: with_model(self.env, model).reset(*of_world)  # noqa: E731
        return jax.vmap(one, in_axes=(self.axes, 0))(self.models, of_world)

    def step(self, state: EnvState, action: Array) -> EnvState:
        """Advances each world by one action; actions are (worlds, nu)."""
        one = lambda model, state, action: with_model(self.env, model).step(state, action)  # noqa: E731
        return jax.vmap(one, in_axes=(self.axes, 0, 0))(self.models, state, action)


def with_model(env: Environment, model: Model) -> Environment:
    """A copy of an environment, with or without wrappers, with another model."""
    other: Any = copy.copy(env)
    inside = "env" if isinstance(env, Wrapper) else "model"
    # Env is a frozen dataclass; changing the fresh copy is safe, since nobody else has it
    object.__setattr__(other, inside, with_model(env.env, model) if isinstance(env, Wrapper) else model)
    return other


class EpisodeWrapper(Wrapper):
    """Ends episodes after a number of steps.

    `info["steps"]` counts the steps, and `info["truncation"]` is 1 if an episode was done because of its length, not
    because of a failure. `info["episode_metrics"]` holds the sums of the reward (`sum_reward`) and of each metric since
    the start of the episode, and its `length`, under the names that Brax's trainers read. Works on one world or on a
    batch.

    Args:
      env: the environment.
      length: steps of `env` after which an episode is truncated.
      action_repeat: steps of `env` per action; their rewards are summed.
    """

    def __init__(self, env: Environment, length: int, action_repeat: int = 1) -> None:
        super().__init__(env)
        self.length = length
        self.action_repeat = action_repeat

    @property
    def dt(self) -> float:
        """Time between two actions, s."""
        return self.action_repeat * self.env.dt

    def reset(self, key: Array, ended: EnvState | None = None) -> EnvState:
        """Starts an episode with all counts at zero."""
        state = self.env.reset(key, *_given(ended))
        zero = jnp.zeros_like(state.reward)
        sums = dict.fromkeys(["sum_reward", "length", *state.metrics], zero)
        counts = dict.fromkeys(["steps", "truncation", "episode_done"], zero)
        return state.replace(info=state.info | counts | {"episode_metrics": sums})

    def step(self, state: EnvState, action: Array) -> EnvState:
        """Advances by one action; done if the episode failed or reached its length.

        If the last state was done, the counts and sums start again.
        """
        # the factor of the old counts and sums: 0 in the first step of a new episode, 1 later
        going_on = (state.done == 0).astype(state.done.dtype)
        info = state.info
        later = self._repeat(state, action)
        steps = going_on * info["steps"] + self.action_repeat
        truncation = jnp.where(steps >= self.length, 1 - later.done, 0)
        added = {"sum_reward": later.reward, "length": self.action_repeat, **later.metrics}
        sums = {name: going_on * total + added[name] for name, total in info["episode_metrics"].items()}
        done = later.done + truncation
        counts = {"steps": steps, "truncation": truncation, "episode_done": done, "episode_metrics": sums}
        return later.replace(done=done, info=later.info | counts)

    def _repeat(self, state: EnvState, action: Array) -> EnvState:
        """Takes `action_repeat` steps with one action, and sums their rewards; done if any of them is done."""
        later = self.env.step(state, action)
        if self.action_repeat == 1:
            return later

        def again(state: EnvState, _: None) -> tuple[EnvState, None]:
            other = self.env.step(state, action)
            done = jnp.maximum(state.done, other.done)
            return other.replace(reward=state.reward + other.reward, done=done), None

        return jax.lax.scan(again, later, None, self.action_repeat - 1)[0]


class AutoResetWrapper(Wrapper):
    """Resets the worlds of a batch that are done: `step` returns the initial state of their next episode.

    `done` and `reward` still belong to the step that ended the episode, and `info["final_obs"]` is its last observation
    (for the value after a truncation); `obs` is the first observation of the new episode. By default a world returns to
    its own first state, as in Brax; this needs no call of `reset`. With `redraw` it gets a new random initial state,
    chosen by how the last episode ended if the task has a curriculum (`Task.again`); this calls `reset` in every step
    in which any world is done.

    Args:
      env: an environment of a batch.
      redraw: whether each episode starts at a new random state.
    """

    def __init__(self, env: Environment, redraw: bool = False) -> None:
        super().__init__(env)
        self.redraw = redraw

    def reset(self, key: Array, ended: EnvState | None = None) -> EnvState:
        """Starts episodes; `info` keeps the first states, or, with `redraw`, the keys for later resets."""
        state = self.env.reset(key, *_given(ended))
        first = {"key": key} if self.redraw else {"first": _beginning(state)}
        return state.replace(info=state.info | first | {"final_obs": state.obs})

    def step(self, state: EnvState, action: Array) -> EnvState:
        """Advances by one action, and resets the worlds that are done."""
        later = self.env.step(state, action)
        done = later.done > 0
        info = later.info | {"final_obs": later.obs}
        current = _beginning(later)
        if self.redraw:
            info, first = self._draw(later.replace(info=info), done, current)
        else:
            first = info["first"]
        chosen = where_tree(done, first, current)
        return later.replace(physics=chosen.physics, inputs=chosen.inputs, obs=chosen.obs, info=info | chosen.memory)

    def _draw(self, ended: EnvState, done: Array, current: "Beginning") -> tuple[dict, "Beginning"]:
        """`info` with new keys, and new initial states; `current` if no world is done."""
        info = ended.info
        keys = jax.vmap(jax.random.split)(info["key"])
        chosen = jnp.where(done.reshape(done.shape + (1,) * (keys.ndim - 2)), keys[:, 0], info["key"])

        def draw() -> Beginning:
            return _beginning(next_episode(self.env, keys[:, 1], ended))

        return info | {"key": chosen}, jax.lax.cond(jnp.any(done), draw, lambda: current)


class Beginning(NamedTuple):
    """The parts of a state that a reset replaces; `memory` is empty unless the task has `remember`."""

    physics: State
    inputs: Inputs
    obs: Any
    memory: dict[str, Any]


def _beginning(state: EnvState) -> Beginning:
    """The parts of a state that a reset replaces."""
    memory = {name: state.info[name] for name in ("memory",) if name in state.info}
    return Beginning(physics=state.physics, inputs=state.inputs, obs=state.obs, memory=memory)


def next_episode(env: Environment, key: Array, ended: EnvState) -> EnvState:
    """The first state of the episode after the one that ended so; only tasks with a curriculum look at the end.

    Derivatives end with an episode.
    """
    # environments of users may have no task
    task = getattr(getattr(env, "unwrapped", None), "task", None)
    curriculum = getattr(task, "again", None)
    return env.reset(key) if curriculum is None else env.reset(key, jax.lax.stop_gradient(ended))


def _given(ended: EnvState | None) -> tuple[EnvState, ...]:
    """The second argument of `reset` where there is one: environments of users may take the key alone."""
    return () if ended is None else (ended,)


def wrap(
    env: Environment,
    episode_length: int = 1000,
    action_repeat: int = 1,
    randomization_fn: Callable[[Model], tuple[Model, Model]] | None = None,
    redraw: bool = False,
) -> Wrapper:
    """A batch of worlds with episodes and automatic resets: pass it as `wrap_env_fn` to Brax's trainers.

    Args:
      env: the environment of one world.
      episode_length: steps per episode.
      action_repeat: steps of `env` per action.
      randomization_fn: model -> (models, in_axes), to give each world its own model; see `diffsim.randomize`.
      redraw: see `AutoResetWrapper`.

    Returns:
      An environment whose `reset` takes keys (worlds,), and `step` states and actions (worlds, nu).
    """
    batch = VmapWrapper(env) if randomization_fn is None else RandomizedVmapWrapper(env, randomization_fn)
    return AutoResetWrapper(EpisodeWrapper(batch, episode_length, action_repeat), redraw)
