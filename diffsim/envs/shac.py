"""SHAC (short-horizon actor-critic): learns a policy with gradients of the simulator over short horizons.

    learned = envs.shac(envs.make("hopper"), 300_000)
    action = learned.policy(state.obs)

Each update continues the simulation of all worlds for h steps. The actor maximizes the discounted reward of these steps
plus the critic's value V of the last observation, and differentiates it through all steps and their contacts:

    J = mean over worlds of  sum_{t < h} gamma^t r_t + gamma^h V(o_h)

If an episode ends within the horizon, its sum ends there: with V of its last observation if it was truncated, and with
0 if it failed. The sum of the next episode starts with the discount 1. The horizon is short because the gradients of
long chaotic motions explode; the smooth V stands for all later rewards. The critic learns from the same steps; its
TD(lambda) targets use a lagging copy of V.
Source: Xu et al. 2022, "Accelerated policy learning with parallel differentiable simulation".
"""

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
from diffsim.envs.policy import Layers, Policy, flat, network, random_layers
from diffsim.envs.wrappers import Environment, Wrapper, wrap
from diffsim.types import Model
from diffsim.types.record import Record, record, static, whole_number
from diffsim.xla.compiled import jit

# norm at which gradients are clipped, as in the paper
NORM = 1.0
# b1 and b2 of Adam, as in the paper: short averages, because the optimum moves with the policy
AVERAGES = (0.7, 0.95)


@record
class Shac(Record):
    """Settings of the learner.

    Attributes:
      worlds: number of worlds.
      horizon: steps of each world per update.
      discount: gamma.
      trace: lambda of TD(lambda).
      rate: learning rate of the policy (Adam); it falls linearly to a tenth.
      critic_rate: learning rate of the critic (Adam).
      passes: passes of the critic over the steps of an update.
      parts: minibatches per pass.
      lag: in each update the lagging critic moves by this fraction towards the critic.
      deviation: initial standard deviation of the noise on actions, before tanh; it is learned.
      hidden: sizes of the hidden layers of policy and critic.
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


class Learned(NamedTuple):
    """The result of `shac`.

    Attributes:
      policy: the policy after the last update.
      steps: (updates,) steps of the simulator so far.
      returns: (updates,) mean return of the episodes that ended in the update, NaN if none did.
      critic_loss: (updates,) loss of the critic.
      gradient: (updates,) norm of the policy's gradient.
    """

    policy: Policy
    steps: np.ndarray
    returns: np.ndarray
    critic_loss: np.ndarray
    gradient: np.ndarray


class Learner(NamedTuple):
    """The state of learning.

    Attributes:
      policy: the actor.
      critic, lagging: weights of V, and of its lagging copy, which gives the targets.
      memory: states of the optimizers of the policy and the critic.
      number: () number of observations so far.
      square: (observations,) sum of squared deviations of the observations from their mean.
    """

    policy: Policy
    critic: Layers
    lagging: Layers
    memory: tuple[Any, Any]
    number: Array
    square: Array

    def seen(self, obs: Array) -> "Learner":
        """Updates mean and scale with new observations (h, worlds, size).

        Chan's parallel update for n old and m new values: mean += m / (n + m) d, squares += m var + n m / (n + m) d^2,
        where d is the new mean minus the old.
        """
        rows = obs.reshape(-1, obs.shape[-1])
        number = self.number + len(rows)
        fraction = len(rows) / number
        change = jnp.mean(rows, axis=0) - self.policy.mean
        square = self.square + len(rows) * jnp.var(rows, axis=0) + self.number * fraction * change**2
        # a variance of 1e-4 is added for observations that hardly vary
        scale = jnp.sqrt(square / number + 1e-4)
        policy = self.policy.replace(mean=self.policy.mean + fraction * change, scale=scale)
        return self._replace(policy=policy, number=number, square=square)


class Steps(NamedTuple):
    """The steps of a horizon, each field (h, worlds, ...).

    Attributes:
      obs: observation before the step.
      reward: reward of the step.
      after: observation after the step, before any reset.
      done: 1 if the episode ended here, else 0.
      failed: 1 if it ended in failure, else 0.
    """

    obs: Array
    reward: Array
    after: Array
    done: Array
    failed: Array

    def targets(self, beyond: Array, discount: float, trace: float) -> Array:
        """TD(lambda) targets (h, worlds) of the critic: a weighted mean of the 1-step, 2-step, ... returns.

            y_t = r_t + gamma ((1 - lambda) v_t + lambda y_{t+1}),  and r_t + gamma v_t where an episode or h ends

        Args:
          beyond: (h, worlds) v, the value of the observation after each step.
          discount, trace: gamma and lambda.
        """

        def back(later: Array, row: tuple[Array, Array, Array]) -> tuple[Array, Array]:
            """y_t from y_{t+1} (`later`)."""
            reward, beyond, done = row
            mixed = beyond + trace * (1 - done) * (later - beyond)
            target = reward + discount * mixed
            return target, target

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
    policy: Policy | None = None,
    watch: Callable[[int, Policy, float], Any] | None = None,
) -> Learned:
    """Learns a policy with SHAC. A loop on the host calls one compiled program per update.

    Args:
      env: the environment of one world; its observations and rewards must be differentiable.
      steps: steps of the simulator, summed over all worlds.
      episode_length: steps per episode.
      settings: None for `Shac()`.
      key: a key of `jax.random`, or an integer seed.
      randomization_fn: as in `envs.wrap`.
      policy: the policy to continue from, which keeps its normalization; None begins with random weights. The critic
        always begins with random weights.
      watch: called after each update with the steps so far, the policy, and the mean return (with noisy actions) of the
        episodes that ended in the update, NaN if none did. Use it to keep the best policy, which may not be the last.

    Returns:
      The policy after the last update, and the progress of learning.

    Raises:
      ArgumentError: there are fewer steps than one update takes, the steps of an update are not divisible by `parts`,
        or the sizes of observations or actions differ between the policy and the environment.
    """
    settings = settings or Shac()
    per_update = settings.worlds * settings.horizon
    if steps < per_update or per_update % settings.parts:
        expected = (
            f"{per_update} or more (worlds * horizon, the steps of an update, divisible by parts={settings.parts})"
        )
        raise ArgumentError(f"shac: steps is {steps}; expected {expected}")
    key = jax.random.key(key) if isinstance(key, int) else key
    worlds = wrap(env, episode_length, 1, randomization_fn, redraw=True)
    learning = Learning(worlds, episode_length, settings, steps // per_update, policy)
    learner, state = learning.begin(key)
    rows = []
    for number in range(steps // per_update):
        learner, state, row = learning.update(learner, state, jax.random.fold_in(key, number))
        rows.append([float(value) for value in row])
        if watch is not None:
            watch((number + 1) * per_update, learner.policy, rows[-1][0])
    returns, losses, norms = np.array(rows).T
    return Learned(
        policy=learner.policy,
        steps=per_update * np.arange(1, 1 + len(rows)),
        returns=returns,
        critic_loss=losses,
        gradient=norms,
    )


class Learning:
    """The two compiled programs: `begin` and `update`."""

    def __init__(self, env: Wrapper, length: int, settings: Shac, updates: int, policy: Policy | None = None) -> None:
        self.env = env
        self.length = length
        self.settings = settings
        self.policy = policy
        falling = optax.linear_schedule(settings.rate, 0.1 * settings.rate, updates)
        self.actor_optimizer, self.critic_optimizer = (
            optax.chain(optax.clip_by_global_norm(NORM), optax.adam(rate, *AVERAGES))
            for rate in (falling, settings.critic_rate)
        )
        self.begin = jit(self._begin)
        self.update = jit(self._update)

    def _begin(self, key: Array) -> tuple[Learner, EnvState]:
        """Random weights, and the initial states of all worlds.

        The episodes get random ages, so that they do not all end in the same update.
        """
        of_policy, of_critic, of_worlds, of_ages = jax.random.split(key, 4)
        settings = self.settings
        actions = self.env.action_size
        state = self.env.reset(jax.random.split(of_worlds, settings.worlds))
        ages = jnp.floor(self.length * jax.random.uniform(of_ages, state.reward.shape, state.reward.dtype))
        state = state.replace(info=state.info | {"steps": ages})
        size = flat(state.obs).shape[-1]
        zeros = jnp.zeros(size, state.reward.dtype)
        policy = self.policy
        if policy is None:
            deviation = jnp.full(actions, math.log(settings.deviation), zeros.dtype)
            layers = random_layers(of_policy, (size, *settings.hidden, actions))
            policy = Policy(layers=layers, log_deviation=deviation, mean=zeros, scale=zeros + 1)
        if (policy.mean.size, policy.log_deviation.size) != (size, actions):
            ours = f"{policy.mean.size} observations and {policy.log_deviation.size} actions"
            raise ArgumentError(f"shac: the policy has {ours}, the environment {size} and {actions}")
        critic = random_layers(of_critic, (size, *settings.hidden, 1))
        memory = (
            self.actor_optimizer.init((policy.layers, policy.log_deviation)),
            self.critic_optimizer.init(critic),
        )
        learner = Learner(
            policy=policy,
            critic=critic,
            lagging=critic,
            memory=memory,
            number=jnp.zeros((), zeros.dtype),
            square=zeros,
        )
        return learner, state

    def _update(self, learner: Learner, state: EnvState, key: Array) -> tuple[Learner, EnvState, tuple[Array, ...]]:
        """One update: the new learner, the next states, and (mean return, critic loss, gradient norm)."""
        of_noise, of_order = jax.random.split(key)
        weights = (learner.policy.layers, learner.policy.log_deviation)
        slope, (later, steps, ended) = jax.grad(self._loss, has_aux=True)(weights, learner, state, of_noise)
        norm = jnp.linalg.norm(ravel_pytree(slope)[0])
        # skip the update if a motion diverged and the gradient is not finite
        slope = jax.tree.map(lambda x: jnp.where(jnp.isfinite(norm), x, 0), slope)
        change, memory = self.actor_optimizer.update(slope, learner.memory[0], weights)
        updated: Any = optax.apply_updates(weights, change)
        layers, deviation = updated
        critic, memory_of_critic, loss = self._trained_critic(learner, steps, of_order)
        lagging = optax.incremental_update(critic, learner.lagging, self.settings.lag)
        policy = learner.policy.replace(layers=layers, log_deviation=deviation)
        learner = learner._replace(policy=policy, critic=critic, lagging=lagging, memory=(memory, memory_of_critic))
        # a policy that was given keeps its normalization: changing it would change the policy
        learner = learner.seen(steps.obs) if self.policy is None else learner
        return learner, later, (ended, loss, norm)

    def _loss(self, weights: Any, learner: Learner, state: EnvState, key: Array) -> tuple[Array, Any]:
        """-J / h, and (the states after the horizon, its steps, the mean return of the episodes that ended)."""
        settings = self.settings
        policy = learner.policy.replace(layers=weights[0], log_deviation=weights[1])

        def one(carry: tuple, key: Array) -> tuple[tuple, tuple[Steps, Array]]:
            """One step of all worlds; `total` is J so far, and `factor` is gamma^t."""
            now, total, factor = carry
            noise = jax.random.normal(key, (settings.worlds, self.env.action_size), total.dtype)
            later = self.env.step(now, policy(now.obs, noise))
            # `final_obs` is the observation before a reset, so V is of the episode that ended
            failed = later.done * (1 - later.info["truncation"])
            after = flat(later.info["final_obs"])
            beyond = settings.discount * (1 - failed) * self._value(learner.lagging, learner, after)
            total = total + factor * (later.reward + later.done * beyond)
            # the discount starts again at 1 with each episode
            factor = jnp.where(later.done > 0, 1, settings.discount * factor)
            step = Steps(
                obs=flat(now.obs),
                reward=later.reward,
                after=after,
                done=later.done,
                failed=failed,
            )
            return (later, total, factor), (step, later.info["episode_metrics"]["sum_reward"])

        start = (state, jnp.zeros_like(state.reward), jnp.ones_like(state.reward))
        (later, total, factor), (steps, sums) = jax.lax.scan(one, start, jax.random.split(key, settings.horizon))
        total = total + factor * self._value(learner.lagging, learner, flat(later.obs))
        ended = jnp.sum(steps.done * sums) / jnp.sum(steps.done)
        return -jnp.mean(total) / settings.horizon, jax.lax.stop_gradient((later, steps, ended))

    def _value(self, critic: Layers, learner: Learner, obs: Array) -> Array:
        """V (...,) of observations: the network returns a reward per step, which is V (1 - gamma)."""
        return network(critic, learner.policy.normalized(obs))[..., 0] / (1 - self.settings.discount)

    def _trained_critic(self, learner: Learner, steps: Steps, key: Array) -> tuple[Layers, Any, Array]:
        """The critic after its passes over the steps, the state of its optimizer, the mean loss of the last pass."""
        settings = self.settings
        beyond = (1 - steps.failed) * self._value(learner.lagging, learner, steps.after)
        targets = steps.targets(beyond, settings.discount, settings.trace)
        rows = steps.obs.reshape(-1, steps.obs.shape[-1]), targets.reshape(-1)
        # the loss is per step of reward, so that its size does not depend on gamma
        scale = 1 - settings.discount

        def part(carry: tuple[Layers, Any], chosen: Array) -> tuple[tuple[Any, Any], Array]:
            """One step of the optimizer on the minibatch of rows `chosen`."""
            critic, memory = carry
            obs, target = (row[chosen] for row in rows)
            loss, slope = jax.value_and_grad(
                lambda critic: jnp.mean((scale * (self._value(critic, learner, obs) - target)) ** 2)
            )(critic)
            change, memory = self.critic_optimizer.update(slope, memory, critic)
            return (optax.apply_updates(critic, change), memory), loss

        keys = jax.random.split(key, settings.passes)
        order = jax.vmap(lambda key: jax.random.permutation(key, rows[1].size))(keys)
        parts = order.reshape(settings.passes * settings.parts, -1)
        (critic, memory), losses = jax.lax.scan(part, (learner.critic, learner.memory[1]), parts)
        return critic, memory, jnp.mean(losses[-settings.parts :])
