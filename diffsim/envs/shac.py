"""SHAC: a policy learns by derivatives of the simulator over short horizons (short-horizon actor-critic).

    learned = envs.shac(envs.make("hopper"), 300_000)
    action = learned.policy(state.obs)

Worlds go on from where they are, h steps at a time. The policy's gradient is that of the return of these steps, through
all of them and their contacts, and of what the critic expects beyond:

    J = mean over worlds of  sum_{t < h} gamma^t r_t + gamma^h V(o_h)

An episode that ends within the horizon ends its sum: with V of what was seen last where its time was over, with nothing
where it failed; the next begins anew. A horizon is short, so that the gradient of a long motion does not grow without
bound; what comes later is V's, which is smooth. V learns from the same steps, towards TD(lambda) targets of a V that
lags behind. Source: Xu et al. 2022, "Accelerated policy learning with parallel differentiable simulation".
"""

import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.flatten_util import ravel_pytree

from diffsim.base.checked import checked
from diffsim.base.errors import ArgumentError
from diffsim.envs.env import EnvState
from diffsim.envs.wrappers import Environment, Wrapper, wrap
from diffsim.math import safe
from diffsim.types import Model
from diffsim.types.record import Record, child, leaf, record, static, whole_number
from diffsim.types.state import Saved
from diffsim.xla.compiled import jit

# "matrix 0", "bias 0", ... of layers
Layers = dict[str, Array]

# observations are clipped at so many deviations, gradients at this norm
FAR, NORM = 10.0, 1.0
# averages of Adam over few steps, as in the paper: what is best changes with the policy
AVERAGES = (0.7, 0.95)


@record
class Shac(Record):
    """Settings of the learner.

    Attributes:
      worlds, horizon: an update takes `horizon` steps in each of `worlds`.
      discount, trace: gamma, and lambda of TD(lambda).
      rate, critic_rate: of Adam; that of the policy falls to a tenth as learning goes on.
      passes, parts: the critic learns from all steps of an update so often, in so many parts.
      lag: the share of the critic that the lagging one takes over in an update.
      deviation: of the noise on actions at first, before they are squashed; it is learned.
      hidden: sizes of hidden layers, of policy and critic.
    """

    worlds: int = static(whole_number, default=16)
    horizon: int = static(whole_number, default=16)
    discount: float = static(default=0.99)
    trace: float = static(default=0.95)
    rate: float = static(default=2e-3)
    critic_rate: float = static(default=2e-3)
    passes: int = static(whole_number, default=8)
    parts: int = static(whole_number, default=4)
    lag: float = static(default=0.5)
    deviation: float = static(default=0.4)
    hidden: tuple[int, ...] = static(default=(64, 64))


@record
class Policy(Saved, Record):
    """A policy that was learned, a function of an observation or of a batch; `save(path)` and `Policy.load(path)`.

    `log_deviation` is of the noise with which it was learned; `mean` and `scale` are of the observations seen.
    """

    layers: Layers = child()
    log_deviation: Array = leaf("nu")
    mean: Array = leaf("observations")
    scale: Array = leaf("observations")

    def __call__(self, obs: Any, noise: Array | float = 0.0) -> Array:
        """Actions (..., nu), in [-1, 1]; `noise` counts in deviations, before they are squashed."""
        mean = network(self.layers, scaled(flat(obs), self))
        return jnp.tanh(mean + jnp.broadcast_to(jnp.exp(self.log_deviation), mean.shape) * noise)


class Learned(NamedTuple):
    """The policy after the last update, and of each update: steps of the simulator so far, the mean return of the
    episodes that ended in it (NaN where none did), the loss of the critic, and the norm of the policy's gradient."""

    policy: Policy
    steps: np.ndarray
    returns: np.ndarray
    critic_loss: np.ndarray
    gradient: np.ndarray


class Learner(NamedTuple):
    """The state of learning: policy, critic, the critic that lags, memories of both optimizers; the number of
    observations so far, and the sum of squares of what is off their mean."""

    policy: Policy
    critic: Layers
    lagging: Layers
    memory: tuple[Any, Any]
    number: Array
    square: Array

    def seen(self, obs: Array) -> "Learner":
        """With mean and scale of all observations so far, these (h, worlds, size) included."""
        rows = obs.reshape(-1, obs.shape[-1])
        number = self.number + len(rows)
        share, off = len(rows) / number, jnp.mean(rows, axis=0) - self.policy.mean
        square = self.square + len(rows) * jnp.var(rows, axis=0) + self.number * share * off**2
        policy = self.policy.replace(mean=self.policy.mean + share * off, scale=jnp.sqrt(square / number + 1e-4))
        return self._replace(policy=policy, number=number, square=square)


class Steps(NamedTuple):
    """Steps of a horizon (h, worlds): what was seen, the reward, what was seen after it, whether the episode ended
    there and whether it failed, 1 or 0."""

    obs: Array
    reward: Array
    after: Array
    done: Array
    failed: Array

    def targets(self, beyond: Array, discount: float, trace: float) -> Array:
        """(h, worlds) for the critic by TD(lambda): a mean of the returns after 1, 2, ... steps, with v for the rest.

            y_t = r_t + gamma ((1 - lambda) v_t + lambda y_{t+1});  r_t + gamma v_t at the end of an episode or of all

        Args:
          beyond: (h, worlds) v, what is expected after each step.
          discount, trace: gamma and lambda.
        """

        def back(later: Array, row: tuple[Array, Array, Array]) -> tuple[Array, Array]:
            reward, beyond, done = row
            mixed = beyond + trace * (1 - done) * (later - beyond)
            return (target := reward + discount * mixed), target

        return jax.lax.scan(back, beyond[-1], (self.reward, beyond, self.done), reverse=True)[1]


@checked
def shac(
    env: Environment,
    steps: int,
    *,
    episode_length: int = 500,
    settings: Shac | None = None,
    key: Array | int = 0,
    randomization_fn: Callable[[Model], tuple[Model, Model]] | None = None,
    watch: Callable[[int, Policy, float], Any] | None = None,
) -> Learned:
    """Learns a policy. Runs on the host, a program an update.

    Args:
      env: the environment of one world; its observations and rewards must be differentiable.
      steps: of the simulator, all worlds together.
      episode_length: steps of an episode.
      settings: None for `Shac()`.
      key: of `jax.random.key`, or a whole number.
      randomization_fn: as of `envs.wrap`.
      watch: called after each update with the steps so far, the policy, and the mean return of the episodes that ended
        in this update, with noise; NaN where none did. The last policy need not be the best: keep what you like.

    Returns:
      The policy after the last update, and how learning went.

    Raises:
      ArgumentError: fewer steps than one update takes, or worlds and steps that cannot be cut into parts.
    """
    settings = settings or Shac()
    once = settings.worlds * settings.horizon
    if steps < once or once % settings.parts:
        expected = f"{once} or more, the steps of an update, which {settings.parts} parts share evenly"
        raise ArgumentError(f"shac: steps is {steps}; expected {expected}")
    key = jax.random.key(key) if isinstance(key, int) else key
    worlds = wrap(env, episode_length, 1, randomization_fn, redraw=True)
    learning = Learning(worlds, episode_length, settings, steps // once)
    learner, state = learning.begin(key)
    rows = []
    for turn in range(steps // once):
        learner, state, row = learning.update(learner, state, jax.random.fold_in(key, turn))
        rows.append([float(value) for value in row])
        if watch is not None:
            watch((turn + 1) * once, learner.policy, rows[-1][0])
    returns, losses, norms = np.array(rows).T
    return Learned(learner.policy, once * np.arange(1, 1 + len(rows)), returns, losses, norms)


class Learning:
    """The program of an update."""

    def __init__(self, env: Wrapper, length: int, settings: Shac, updates: int) -> None:
        self.env, self.length, self.settings = env, length, settings
        slower = optax.linear_schedule(settings.rate, 0.1 * settings.rate, updates)
        self.actor, self.judge = (
            optax.chain(optax.clip_by_global_norm(NORM), optax.adam(rate, *AVERAGES))
            for rate in (slower, settings.critic_rate)
        )
        self.begin, self.update = jit(self._begin), jit(self._update)

    def _begin(self, key: Array) -> tuple[Learner, EnvState]:
        """Random weights, and worlds at the beginning of episodes, whose ends are spread over time."""
        of_policy, of_critic, of_worlds, of_ages = jax.random.split(key, 4)
        settings, actions = self.settings, self.env.action_size
        state = self.env.reset(jax.random.split(of_worlds, settings.worlds))
        ages = jnp.floor(self.length * jax.random.uniform(of_ages, state.reward.shape, state.reward.dtype))
        state = state.replace(info=state.info | {"steps": ages})
        size = flat(state.obs).shape[-1]
        zeros = jnp.zeros(size, state.reward.dtype)
        deviation = jnp.full(actions, math.log(settings.deviation), zeros.dtype)
        layers = random_layers(of_policy, (size, *settings.hidden, actions))
        policy = Policy(layers=layers, log_deviation=deviation, mean=zeros, scale=zeros + 1)
        critic = random_layers(of_critic, (size, *settings.hidden, 1))
        memory = (self.actor.init((layers, deviation)), self.judge.init(critic))
        return Learner(policy, critic, critic, memory, jnp.zeros((), zeros.dtype), zeros), state

    def _update(self, learner: Learner, state: EnvState, key: Array) -> tuple[Learner, EnvState, tuple[Array, ...]]:
        """One update; the next states, and mean return, loss of the critic, norm of the gradient."""
        acting, judging = jax.random.split(key)
        weights = (learner.policy.layers, learner.policy.log_deviation)
        slope, (later, steps, ended) = jax.grad(self._loss, has_aux=True)(weights, learner, state, acting)
        norm = jnp.linalg.norm(ravel_pytree(slope)[0])
        # a motion that diverged gives no direction
        slope = jax.tree.map(lambda x: jnp.where(jnp.isfinite(norm), x, 0), slope)
        change, memory = self.actor.update(slope, learner.memory[0], weights)
        updated: Any = optax.apply_updates(weights, change)
        layers, deviation = updated
        critic, judge, loss = self._judged(learner, steps, judging)
        lagging = optax.incremental_update(critic, learner.lagging, self.settings.lag)
        policy = learner.policy.replace(layers=layers, log_deviation=deviation)
        learner = learner._replace(policy=policy, critic=critic, lagging=lagging, memory=(memory, judge))
        return learner.seen(steps.obs), later, (ended, loss, norm)

    def _loss(self, weights: Any, learner: Learner, state: EnvState, key: Array) -> tuple[Array, Any]:
        """Minus J by the reward of a step; the states after the horizon, its steps, and the mean return."""
        settings = self.settings
        policy = learner.policy.replace(layers=weights[0], log_deviation=weights[1])

        def one(carry: tuple, key: Array) -> tuple[tuple, tuple[Steps, Array]]:
            now, total, factor = carry
            noise = jax.random.normal(key, (settings.worlds, self.env.action_size), total.dtype)
            later = self.env.step(now, policy(now.obs, noise))
            failed = later.done * (1 - later.info["truncation"])
            after = flat(later.info["final_obs"])
            beyond = settings.discount * (1 - failed) * self._value(learner.lagging, learner, after)
            total = total + factor * (later.reward + later.done * beyond)
            factor = jnp.where(later.done > 0, 1, settings.discount * factor)
            step = Steps(flat(now.obs), later.reward, after, later.done, failed)
            return (later, total, factor), (step, later.info["episode_metrics"]["sum_reward"])

        start = (state, jnp.zeros_like(state.reward), jnp.ones_like(state.reward))
        (later, total, factor), (steps, sums) = jax.lax.scan(one, start, jax.random.split(key, settings.horizon))
        total = total + factor * self._value(learner.lagging, learner, flat(later.obs))
        ended = jnp.sum(steps.done * sums) / jnp.sum(steps.done)
        return -jnp.mean(total) / settings.horizon, jax.lax.stop_gradient((later, steps, ended))

    def _value(self, critic: Layers, learner: Learner, obs: Array) -> Array:
        """(...,) V of observations: what the network says is a reward a step."""
        return network(critic, scaled(obs, learner.policy))[..., 0] / (1 - self.settings.discount)

    def _judged(self, learner: Learner, steps: Steps, key: Array) -> tuple[Layers, Any, Array]:
        """The critic after some passes over the steps, the memory of its optimizer, and its last loss."""
        settings = self.settings
        beyond = (1 - steps.failed) * self._value(learner.lagging, learner, steps.after)
        targets = steps.targets(beyond, settings.discount, settings.trace)
        rows = steps.obs.reshape(-1, steps.obs.shape[-1]), targets.reshape(-1)
        scale = 1 - settings.discount

        def part(carry: tuple[Layers, Any], chosen: Array) -> tuple[tuple[Any, Any], Array]:
            critic, memory = carry
            obs, target = (row[chosen] for row in rows)
            loss, slope = jax.value_and_grad(
                lambda critic: jnp.mean((scale * (self._value(critic, learner, obs) - target)) ** 2)
            )(critic)
            change, memory = self.judge.update(slope, memory, critic)
            return (optax.apply_updates(critic, change), memory), loss

        keys = jax.random.split(key, settings.passes)
        order = jax.vmap(lambda key: jax.random.permutation(key, rows[1].size))(keys)
        parts = order.reshape(settings.passes * settings.parts, -1)
        (critic, memory), losses = jax.lax.scan(part, (learner.critic, learner.memory[1]), parts)
        return critic, memory, jnp.mean(losses[-settings.parts :])


def flat(obs: Any) -> Array:
    """(..., size) an observation, or all arrays of a dict of them, one after another."""
    parts = jax.tree.leaves(obs)
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts, axis=-1)


def scaled(obs: Array, policy: Policy) -> Array:
    """Observations with mean 0 and deviation 1, as far as seen."""
    mean, scale = (jnp.broadcast_to(x, obs.shape) for x in (policy.mean, policy.scale))
    return safe.clip((obs - mean) / scale, -FAR, FAR)


def network(layers: Layers, x: Array) -> Array:
    """Layers with elu between."""
    for i in range(len(layers) // 2):
        x = (x if i == 0 else jax.nn.elu(x)) @ layers[f"matrix {i}"]
        x = x + jnp.broadcast_to(layers[f"bias {i}"], x.shape)
    return x


def random_layers(key: Array, sizes: tuple[int, ...]) -> Layers:
    """Random weights, those of the last layer small."""
    keys, layers = jax.random.split(key, len(sizes) - 1), {}
    for i, (rows, columns) in enumerate(itertools.pairwise(sizes)):
        small = 0.01 if i == len(sizes) - 2 else 1.0
        layers[f"matrix {i}"] = small / rows**0.5 * jax.random.normal(keys[i], (rows, columns))
        layers[f"bias {i}"] = jnp.zeros(columns)
    return layers
