"""Env: a task as two pure functions of one world, `reset` and `step`, as in Brax and MuJoCo Playground.

    env = envs.make("hopper")
    state = env.reset(jax.random.key(0))
    state = env.step(state, action)        # action (nu,), in [-1, 1]
    state.obs, state.reward, state.done, state.metrics, state.info

A `Task` defines the initial state, the observation, the reward and the failure. `Env` adds what all tasks share: it
maps actions to controls, runs several physics steps for each action, and ends the episode of a world that diverged.
Everything works under jit, vmap and grad; `env.model` can be differentiated and batched too (`Env` is a pytree).
`over_range` and `around_keyframe` are common maps from actions to controls, and `near` is a common initial state.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
from jax import Array

from diffsim.actuator.actuators import clamp
from diffsim.math import safe
from diffsim.simulate.forward import forward
from diffsim.simulate.status import is_bad
from diffsim.simulate.step import rollout
from diffsim.support.motion import integrate_pos
from diffsim.types import Data, Inputs, Model, State
from diffsim.types.state import make_inputs, make_state


def over_range(model: Model, action: Array) -> Array:
    """Maps an action in [-1, 1] linearly to the control range; an actuator without a range gets the action itself.

    Args:
      model: the model.
      action: (nu,).

    Returns:
      Controls (nu,), in the units of the actuators.
    """
    lower, upper = model.actuator_ctrlrange[:, 0], model.actuator_ctrlrange[:, 1]
    inside = lower + 0.5 * (safe.clip(action, -1, 1) + 1) * (upper - lower)
    return jnp.where(jnp.asarray(model.topology.actuator_ctrllimited, bool), inside, action)


def around_keyframe(keyframe: str, scale: float) -> Callable[[Model, Array], Array]:
    """Makes a function for `Task.control`: the controls of a keyframe plus `scale` times the action, clipped.

    Args:
      keyframe: name of the keyframe.
      scale: change of the control for an action of 1, in the units of the actuators.

    Returns:
      (model, action (nu,)) -> controls (nu,), within the control range.
    """

    def control(model: Model, action: Array) -> Array:
        ctrl = make_inputs(model, keyframe).ctrl + scale * safe.clip(action, -1, 1)
        return clamp(ctrl, model.actuator_ctrlrange, model.topology.actuator_ctrllimited)

    return control


class Moment(NamedTuple):
    """What a task sees of a world after a step.

    Attributes:
      model: the model of this world.
      state: the current State.
      inputs: the Inputs, with the controls of the last step.
      data: the Data of `state`. Under jit, fields that the task does not read are not computed. Poses and velocities
        are cheap; accelerations and contact forces need the constraint solver and cost as much as a physics step.
      before: the State before the action; at the start of an episode, `state`.
      action: (nu,) the last action, in [-1, 1]; zero at the start of an episode.
      key: a fresh key of `jax.random` for noise; None unless the task is `noisy`.
      memory: what `remember` returned; None unless the task has `remember`.
    """

    model: Model
    state: State
    inputs: Inputs
    data: Data
    before: State
    action: Array
    key: Any = None
    memory: Any = None


class Task(NamedTuple):
    """The functions and settings that turn a model into an environment.

    Attributes:
      start: (model, key) -> initial state and inputs of an episode.
      observe: moment -> observation, an array or a dict of arrays.
      reward: moment -> scalar terms by name; their sum is the reward, and each term is a metric.
      failed: moment -> bool scalar, whether the episode ends in failure.
      steps: physics steps per action.
      control: (model, action in [-1, 1]) -> controls (nu,).
      noisy: whether moments have a `key`, for noisy observations and random commands.
      remember: moment -> memory for the next moments, an array or a pytree: commands, the last action, the time that a
        foot has been in the air. When `remember` is called, `moment.memory` is the previous memory, None at the start
        of an episode; the other functions see the new memory.
      disturb: (model, state, key) -> the state from which the physics of a step begins: pushes. Only for noisy tasks.
      again: (model, key, the EnvState in which the last episode of this world ended) -> as `start`, for the episodes
        after the first: a curriculum, harder for a policy that succeeds. No derivative passes from one episode to the
        next. None: all episodes begin by `start`.
      relative: whether `control` returns changes, which are added to the controls of the last step and then clipped.
    """

    start: Callable[[Model, Array], tuple[State, Inputs]]
    observe: Callable[[Moment], Any]
    reward: Callable[[Moment], dict[str, Array]]
    failed: Callable[[Moment], Array]
    steps: int = 1
    control: Callable[[Model, Array], Array] = over_range
    noisy: bool = False
    remember: Callable[[Moment], Any] | None = None
    disturb: Callable[[Model, State, Array], State] | None = None
    again: Callable[[Model, Array, "EnvState"], tuple[State, Inputs]] | None = None
    relative: bool = False


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["physics", "inputs", "obs", "reward", "done", "metrics", "info"],
    meta_fields=[],
)
@dataclasses.dataclass(frozen=True)
class EnvState:
    """The state of an environment, carried from step to step.

    Attributes:
      physics: the State of the simulation.
      inputs: controls, mocap poses and applied forces.
      obs: the observation.
      reward: the reward of the last step.
      done: 1 where the episode has ended, else 0; a float, as in Brax.
      metrics: terms of the reward, by name.
      info: `status` (bits of `diffsim.base.enums.Status` of the last step), `rng` and `memory` if the task has them,
        and entries of the wrappers.
    """

    physics: State
    inputs: Inputs
    obs: Any
    reward: Array
    done: Array
    metrics: dict[str, Array]
    info: dict[str, Any]

    def replace(self, **fields: Any) -> Self:
        """A copy with some fields changed."""
        return dataclasses.replace(self, **fields)


@functools.partial(jax.tree_util.register_dataclass, data_fields=["model"], meta_fields=["task"])
@dataclasses.dataclass(frozen=True)
class Env:
    """A model with a task. `reset` and `step` act on one world; wrappers add batches and episodes."""

    model: Model
    task: Task

    def reset(self, key: Array, ended: EnvState | None = None) -> EnvState:
        """Starts an episode at a random initial state.

        Args:
          key: of `jax.random`.
          ended: how the last episode of this world ended, for tasks with a curriculum (`Task.again`).

        Returns:
          The first EnvState.
        """
        start_key, noise_key = jax.random.split(key) if self.task.noisy else (key, None)
        if ended is None or self.task.again is None:
            start = self.task.start(self.model, start_key)
        else:
            start = self.task.again(self.model, start_key, ended)
        return self.begin(*start, noise_key)

    def begin(self, state: State, inputs: Inputs, key: Array | None = None) -> EnvState:
        """Starts an episode at a given state.

        Args:
          state, inputs: the initial state and inputs.
          key: of `jax.random`, for noisy tasks.

        Returns:
          The first EnvState.

        Raises:
          ValueError: the task is noisy and there is no key.
        """
        if self.task.noisy and key is None:
            raise ValueError("this task is noisy: begin needs a key of jax.random")
        no_action = jnp.zeros(self.model.nu, state.qpos.dtype)
        zero = jnp.zeros((), state.qpos.dtype)
        moment, kept = self._moment(state, inputs, state, no_action, {"rng": key})
        metrics = jax.tree.map(jnp.zeros_like, self.task.reward(moment))
        return EnvState(
            physics=state,
            inputs=inputs,
            obs=self.task.observe(moment),
            reward=zero,
            done=zero,
            metrics=metrics,
            info={"status": jnp.zeros((), jnp.int32)} | kept,
        )

    def step(self, state: EnvState, action: Array) -> EnvState:
        """Advances by `env.dt` seconds with one action.

        Args:
          state: from `reset` or `step`.
          action: (nu,), in [-1, 1]; `task.control` clips values outside.

        Returns:
          The next state. If the simulation diverged (`diffsim.is_bad`), the episode is done, and the observation and
          reward are 0.

        Raises:
          ValueError: the action has another shape.
        """
        if jnp.shape(action) != (self.action_size,):
            raise ValueError(f"the action has shape {jnp.shape(action)}, expected ({self.action_size},)")
        action = jnp.asarray(action, state.physics.qpos.dtype)
        ctrl = self.task.control(self.model, action)
        if self.task.relative:
            ctrl = state.inputs.ctrl + ctrl
            ctrl = clamp(ctrl, self.model.actuator_ctrlrange, self.model.topology.actuator_ctrllimited)
        inputs = state.inputs.replace(ctrl=ctrl)
        ctrl = jnp.broadcast_to(inputs.ctrl, (self.task.steps, self.model.nu))
        physics, info = state.physics, state.info
        if self.task.disturb is not None:
            rng, key = jax.random.split(info["rng"])
            physics = self.task.disturb(self.model, physics, key)
            info = info | {"rng": rng}
        result = rollout(self.model, physics, ctrl, lambda state, data: None, inputs)
        moment, kept = self._moment(result.final, inputs, state.physics, action, info)
        # zeros instead of nan, so that one world that diverged does not spoil means and gradients of the batch
        bad = is_bad(result)
        values = self.task.observe(moment), self.task.reward(moment)
        obs, metrics = jax.tree.map(lambda value: jnp.where(bad, jnp.zeros_like(value), value), values)
        return EnvState(
            physics=result.final,
            inputs=inputs,
            obs=obs,
            reward=functools.reduce(jnp.add, metrics.values()),
            done=(bad | self.task.failed(moment)).astype(action.dtype),
            metrics=metrics,
            info=state.info | {"status": result.status} | kept,
        )

    def _moment(
        self, state: State, inputs: Inputs, before: State, action: Array, info: dict[str, Any]
    ) -> tuple[Moment, dict[str, Any]]:
        """The moment of a state, given the previous `info`; and the new entries of `info` (`rng`, `memory`)."""
        moment = Moment(
            model=self.model,
            state=state,
            inputs=inputs,
            data=forward(self.model, state, inputs),
            before=before,
            action=action,
        )
        kept: dict[str, Any] = {}
        if self.task.noisy:
            kept["rng"], key = jax.random.split(info["rng"])
            moment = moment._replace(key=key)
        if self.task.remember is not None:
            kept["memory"] = self.task.remember(moment._replace(memory=info.get("memory")))
            moment = moment._replace(memory=kept["memory"])
        return moment, kept

    @property
    def dt(self) -> float:
        """Time between two actions, s."""
        return self.task.steps * float(self.model.opt.timestep)

    @property
    def action_size(self) -> int:
        """Size of an action, nu."""
        return self.model.nu

    @functools.cached_property
    def observation_size(self) -> Any:
        """Size of an observation; a dict of shapes if the observation is a dict."""
        obs = jax.eval_shape(self.reset, jax.random.key(0)).obs
        return obs.shape[-1] if hasattr(obs, "shape") else jax.tree.map(lambda part: part.shape, obs)

    @property
    def unwrapped(self) -> "Env":
        """The environment without wrappers: itself."""
        return self

    def replace(self, **fields: Any) -> Self:
        """A copy with another model or task."""
        return dataclasses.replace(self, **fields)


def near(model: Model, key: Array, spread: float, keyframe: str | None = None) -> tuple[State, Inputs]:
    """A random initial state near qpos0 or a keyframe, and its inputs.

    Args:
      model: the model.
      key: of `jax.random`.
      spread: bound of the uniform deviations of positions (m, rad) and velocities (m/s, rad/s); quaternions are
        rotated by such deviations about each axis.
      keyframe: name of the keyframe; None for qpos0.

    Returns:
      State and inputs.
    """
    state = make_state(model, keyframe)
    shift, speed = jax.random.uniform(key, (2, model.nv), state.qpos.dtype, -spread, spread)
    qpos = integrate_pos(model, state.qpos, shift, 1.0)
    return state.replace(qpos=qpos, qvel=state.qvel + speed), make_inputs(model, keyframe)
