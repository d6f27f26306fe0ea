"""Env: a task as a pair of pure functions of one world, in the shape that users of Brax and MuJoCo Playground know.

    env = envs.make("hopper")
    state = env.reset(jax.random.key(0))
    state = env.step(state, action)        # action (nu,), in [-1, 1]
    state.obs, state.reward, state.done, state.metrics, state.info

A `Task` says how to begin, what is seen, what is good and what is the end; `Env` adds what all tasks share: controls
from actions, several physics steps for each action, an end to worlds whose numbers went bad. Everything can be jitted,
vmapped and differentiated; `env.model` can be differentiated and batched too (`Env` is a pytree). `over_range`,
`around_keyframe` and `near` are what many tasks have as controls and as a beginning.
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
    """Controls (nu,) for actions in [-1, 1]: -1 and 1 are the ends of the control range; without a range the action.

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
    """Controls of a keyframe, plus `scale` times the action, within the control range: for `Task.control`.

    Args:
      keyframe: its name.
      scale: units of control for an action of 1.

    Returns:
      (model, action (nu,)) -> controls (nu,).
    """

    def control(model: Model, action: Array) -> Array:
        ctrl = make_inputs(model, keyframe).ctrl + scale * safe.clip(action, -1, 1)
        return clamp(ctrl, model.actuator_ctrlrange, model.topology.actuator_ctrllimited)

    return control


class Moment(NamedTuple):
    """A world after a step, as a task sees it.

    Attributes:
      model: with the numbers of this world.
      state, inputs: of the physics now, and the controls that led there.
      data: what follows from `state`; what is not read is not computed. Poses and velocities are cheap; what needs
        the constraint solver (accelerations, contact forces) costs as much as a physics step.
      before: the state before the action; at the beginning `state` itself.
      action: what was done (nu,), in [-1, 1]; zero at the beginning.
      key: of `jax.random`, another one at each moment, for noise; None unless the task is `noisy`.
      memory: what the task remembers, of this moment on; None unless it has `remember`.
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
    """What makes a model an environment.

    Attributes:
      start: (model, key) -> state and inputs at the beginning of an episode.
      observe: moment -> observation, an array or a dict of arrays.
      reward: moment -> terms by name, scalars; their sum is the reward, and each is a metric.
      failed: moment -> whether the episode ends here, a bool scalar.
      steps: physics steps for each action.
      control: (model, action in [-1, 1]) -> controls (nu,).
      noisy: whether moments have a key, for noise in what is seen and remembered, and for commands drawn anew.
      remember: moment -> what to keep for the moments to come, an array or a tree of them: commands, the last action,
        how long a foot has been in the air. `moment.memory` is there that of the moment before, None at the beginning;
        to all other functions it is what was just returned.
    """

    start: Callable[[Model, Array], tuple[State, Inputs]]
    observe: Callable[[Moment], Any]
    reward: Callable[[Moment], dict[str, Array]]
    failed: Callable[[Moment], Array]
    steps: int = 1
    control: Callable[[Model, Array], Array] = over_range
    noisy: bool = False
    remember: Callable[[Moment], Any] | None = None


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
      reward: of the last step.
      done: 1 where the episode has ended, else 0; a float, as in Brax.
      metrics: terms of the reward, by name.
      info: `status`, the bits of `diffsim.base.enums.Status` of the last step, `rng` and `memory` of tasks that have
        them, and what wrappers add.
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
    """A model with a task. `reset` and `step` are of one world; wrappers make batches and episodes of them."""

    model: Model
    task: Task

    def reset(self, key: Array) -> EnvState:
        """The beginning of an episode, drawn by a key of `jax.random`."""
        start_key, noise_key = jax.random.split(key) if self.task.noisy else (key, None)
        return self.begin(*self.task.start(self.model, start_key), noise_key)

    def begin(self, state: State, inputs: Inputs, key: Array | None = None) -> EnvState:
        """The beginning of an episode at a state of the physics.

        Args:
          state, inputs: where it begins.
          key: of `jax.random`, for tasks that are noisy.

        Returns:
          The first EnvState.

        Raises:
          ValueError: no key, and the task draws noise.
        """
        if self.task.noisy and key is None:
            raise ValueError("this task draws noise: begin needs a key of jax.random")
        no_action, zero = jnp.zeros(self.model.nu, state.qpos.dtype), jnp.zeros((), state.qpos.dtype)
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
        """The state `env.dt` seconds later.

        Args:
          state: from `reset` or `step`.
          action: (nu,), in [-1, 1]; what lies outside is clipped by `task.control`.

        Returns:
          The next state. Where numbers went bad (`diffsim.is_bad`) the episode is done; observation and reward are 0.

        Raises:
          ValueError: an action of another shape.
        """
        if jnp.shape(action) != (self.action_size,):
            raise ValueError(f"the action has shape {jnp.shape(action)}, expected ({self.action_size},)")
        action = jnp.asarray(action, state.physics.qpos.dtype)
        inputs = state.inputs.replace(ctrl=self.task.control(self.model, action))
        ctrl = jnp.broadcast_to(inputs.ctrl, (self.task.steps, self.model.nu))
        result = rollout(self.model, state.physics, ctrl, lambda state, data: None, inputs)
        moment, kept = self._moment(result.final, inputs, state.physics, action, state.info)
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
        """A moment, and the entries of `info` that the next one needs (`rng`, `memory`); `info` is that of the last."""
        moment, kept = Moment(self.model, state, inputs, forward(self.model, state, inputs), before, action), {}
        if self.task.noisy:
            kept["rng"], key = jax.random.split(info["rng"])
            moment = moment._replace(key=key)
        if self.task.remember is not None:
            kept["memory"] = self.task.remember(moment._replace(memory=info.get("memory")))
            moment = moment._replace(memory=kept["memory"])
        return moment, kept

    @property
    def dt(self) -> float:
        """Seconds between two actions."""
        return self.task.steps * float(self.model.opt.timestep)

    @property
    def action_size(self) -> int:
        """Numbers in an action."""
        return self.model.nu

    @functools.cached_property
    def observation_size(self) -> Any:
        """Numbers in an observation; a dict of shapes if it is a dict."""
        obs = jax.eval_shape(self.reset, jax.random.key(0)).obs
        return obs.shape[-1] if hasattr(obs, "shape") else jax.tree.map(lambda part: part.shape, obs)

    @property
    def unwrapped(self) -> "Env":
        """The environment without wrappers, which this is."""
        return self

    def replace(self, **fields: Any) -> Self:
        """A copy with another model or task."""
        return dataclasses.replace(self, **fields)


def near(model: Model, key: Array, spread: float, keyframe: str | None = None) -> tuple[State, Inputs]:
    """A state near qpos0 or a keyframe, to begin an episode at, and the inputs there.

    Args:
      model: the model.
      key: of `jax.random`.
      spread: largest deviation of each position (m, rad) and of each velocity (m/s, rad/s), drawn evenly; quaternions
        are turned by small angles.
      keyframe: by name; None for qpos0.

    Returns:
      State and inputs.
    """
    state = make_state(model, keyframe)
    shift, speed = jax.random.uniform(key, (2, model.nv), state.qpos.dtype, -spread, spread)
    qpos = integrate_pos(model, state.qpos, shift, 1.0)
    return state.replace(qpos=qpos, qvel=state.qvel + speed), make_inputs(model, keyframe)
