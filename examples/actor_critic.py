"""Short-horizon actor-critic: a policy improved by gradients through the simulator, with a critic for what comes later.

    maximize  mean over worlds of  sum_{t < H} gamma^t r_t + gamma^H V(s_H),    r and s differentiated by the actions

H is short, so that gradients stay tame; the critic V is fitted to what was seen (lambda returns), with no gradient of
the simulator. Worlds go on from where they were, and episodes that end begin anew. Source: Xu et al. 2022,
"Accelerated policy learning with parallel differentiable simulation".
"""

import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from diffsim import envs

Array = jax.Array
Weights = list[tuple[Array, Array]]


class Settings(NamedTuple):
    """Of the learner; `rate` and `critic_rate` are first learning rates, `updates` how many there are in all."""

    updates: int = 100
    worlds: int = 32
    horizon: int = 16
    discount: float = 0.99
    trace: float = 0.95
    rate: float = 3e-3
    critic_rate: float = 3e-3
    critic_steps: int = 16
    noise: float = 0.3
    hidden: tuple[int, ...] = (64, 64)


class Learner(NamedTuple):
    """What is learned: weights of policy and critic, the critic that bootstraps, scales of observations, optimizers."""

    policy: Weights
    critic: Weights
    target: Weights
    seen: tuple[Array, Array, Array]
    memory: tuple[Any, Any]


class Seen(NamedTuple):
    """Steps of all worlds (T, worlds): observations before, reward, value after (0 after a failure), end of episode."""

    obs: Array
    reward: Array
    after: Array
    done: Array


def network(weights: Weights, x: Array) -> Array:
    """Layers with elu between."""
    for matrix, bias in weights[:-1]:
        x = jax.nn.elu(x @ matrix + bias)
    matrix, bias = weights[-1]
    return x @ matrix + bias


def make_weights(key: Array, sizes: tuple[int, ...]) -> Weights:
    """Random, the last layer small."""
    keys, last = jax.random.split(key, len(sizes)), len(sizes) - 2
    return [
        (jax.random.normal(keys[i], (rows, columns)) * (0.01 if i == last else 1.0) / rows**0.5, jnp.zeros(columns))
        for i, (rows, columns) in enumerate(itertools.pairwise(sizes))
    ]


def scaled(obs: Array, seen: tuple[Array, Array, Array]) -> Array:
    """Observations with mean 0 and variance 1, as far as seen."""
    _, mean, variance = seen
    # the derivative of jnp.clip may get lost: it compares with its result, which compilers round in another way
    return jax.lax.clamp(-10.0, (obs - mean) / jnp.sqrt(variance + 1e-4), 10.0)


def action_of(learner: Learner, obs: Array) -> Array:
    """What the policy does, in [-1, 1], without noise."""
    return jnp.tanh(network(learner.policy, scaled(obs, learner.seen)))


class ActorCritic:
    """Learns a task. `env` is a batch of `settings.worlds` worlds with episodes, as `envs.wrap` makes it."""

    def __init__(self, env: envs.Wrapper, settings: Settings) -> None:
        self.env, self.settings = env, settings
        rate = optax.linear_schedule(settings.rate, 0.1 * settings.rate, settings.updates)
        self.actor = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(rate, b1=0.7, b2=0.95))
        self.judge = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(settings.critic_rate))
        self.improve = jax.jit(self._improve)

    def begin(self, key: Array) -> tuple[Learner, envs.EnvState]:
        """Random weights, and worlds at the beginning of an episode."""
        one, two, three = jax.random.split(key, 3)
        state = jax.jit(self.env.reset)(jax.random.split(three, self.settings.worlds))
        size = state.obs.shape[-1]
        policy = make_weights(one, (size, *self.settings.hidden, self.env.action_size))
        critic = make_weights(two, (size, *self.settings.hidden, 1))
        seen = (jnp.zeros(()), jnp.zeros(size), jnp.ones(size))
        return Learner(policy, critic, critic, seen, (self.actor.init(policy), self.judge.init(critic))), state

    def _improve(self, learner: Learner, state: envs.EnvState, key: Array) -> tuple[Learner, envs.EnvState]:
        """One update of policy and critic: `horizon` steps of all worlds."""
        slope, (state, seen) = jax.grad(self._loss, has_aux=True)(learner.policy, learner, state, key)
        slope = jax.tree.map(lambda g: jnp.where(jnp.isfinite(g), g, 0), slope)
        updates, actor = self.actor.update(slope, learner.memory[0], learner.policy)
        learner = learner._replace(policy=optax.apply_updates(learner.policy, updates))
        critic, judge = self._judged(learner, seen)
        target = jax.tree.map(lambda old, new: 0.5 * (old + new), learner.target, critic)
        scales = _merged(learner.seen, seen.obs)
        return Learner(learner.policy, critic, target, scales, (actor, judge)), state

    def _loss(self, policy: Weights, learner: Learner, state: envs.EnvState, key: Array) -> tuple[Array, Any]:
        """Minus the mean return a step over the horizon, the critic's value of its end included."""
        settings, learner = self.settings, learner._replace(policy=policy)

        def one(carry: tuple[envs.EnvState, Array, Array], key: Array) -> tuple[tuple, Seen]:
            state, weight, total = carry
            noise = settings.noise * jax.random.normal(key, (settings.worlds, self.env.action_size))
            raw = network(policy, scaled(state.obs, learner.seen)) + noise
            later = self.env.step(state, jnp.tanh(raw))
            failed = later.done * (1 - later.info["truncation"])
            after = (1 - failed) * self._value(learner.target, learner, later.info["final_obs"])
            ends = weight * settings.discount * after * later.done
            total = total + weight * later.reward + ends
            weight = jnp.where(later.done > 0, 1.0, weight * settings.discount)
            seen = Seen(state.obs, later.reward, after, later.done)
            return (later, weight, total), jax.lax.stop_gradient(seen)

        ones = jnp.ones(settings.worlds)
        (later, weight, total), seen = jax.lax.scan(
            jax.checkpoint(one), (state, ones, 0 * ones), jax.random.split(key, settings.horizon)
        )
        rest = jnp.where(later.done > 0, 0, weight * self._value(learner.target, learner, later.obs))
        return -jnp.mean(total + rest) / settings.horizon, (jax.lax.stop_gradient(later), seen)

    def _value(self, critic: Weights, learner: Learner, obs: Array) -> Array:
        return network(critic, scaled(obs, learner.seen))[..., 0]

    def _judged(self, learner: Learner, seen: Seen) -> tuple[Weights, Any]:
        """The critic, nearer to the lambda returns of what was seen."""
        settings = self.settings

        def back(ahead: Array, row: Seen) -> tuple[Array, Array]:
            mixed = jnp.where(row.done > 0, row.after, (1 - settings.trace) * row.after + settings.trace * ahead)
            value = row.reward + settings.discount * mixed
            return value, value

        goals = jax.lax.scan(back, seen.after[-1], seen, reverse=True)[1]

        def step(carry: tuple[Weights, Any], _: None) -> tuple[tuple[Weights, Any], None]:
            critic, memory = carry
            slope = jax.grad(lambda critic: jnp.mean((self._value(critic, learner, seen.obs) - goals) ** 2))(critic)
            updates, memory = self.judge.update(slope, memory, critic)
            return (optax.apply_updates(critic, updates), memory), None

        return jax.lax.scan(step, (learner.critic, learner.memory[1]), None, settings.critic_steps)[0]


def _merged(seen: tuple[Array, Array, Array], obs: Array) -> tuple[Array, Array, Array]:
    """Count, mean and variance, with more observations."""
    count, mean, variance = seen
    obs = obs.reshape(-1, obs.shape[-1])
    total = count + len(obs)
    shift = jnp.mean(obs, axis=0) - mean
    spread = (count * variance + len(obs) * jnp.var(obs, axis=0)) / total + shift**2 * count * len(obs) / total**2
    return total, mean + shift * len(obs) / total, spread


def returns(env: envs.Env, learner: Learner, keys: Array, steps: int) -> Array:
    """(worlds,) undiscounted returns of one episode each, without noise; what comes after a failure does not count."""
    batch = envs.VmapWrapper(env)

    def one(carry: tuple[envs.EnvState, Array, Array], _: None) -> tuple[tuple, None]:
        state, alive, total = carry
        later = batch.step(state, action_of(learner, state.obs))
        return (later, alive * (1 - later.done), total + alive * later.reward), None

    state, ones = batch.reset(keys), jnp.ones(len(keys))
    return jax.lax.scan(one, (state, ones, 0 * ones), None, steps)[0][2]
