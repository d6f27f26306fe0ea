"""Actor-critic with replayed derivatives: one step of the simulator also predicts the effect of nearby actions.

A step from observation o with action a gives the next observation o', the reward r, and, by forward mode, how both
change with the action. Later it can predict the value of another action b in the same state:

    Q(b) = r + dr/da (b - a) + gamma V(o' + do'/da (b - a))

Policy and critic therefore learn from each stored step many times, without new steps of the simulator:

    policy:  maximize mean Q(pi(o))        critics:  V(o) -> Q(pi(o)),  with lagging copies of V on the right

There are two critics, and the lower value counts, because a policy exploits states where a critic is too high. The
method suits tasks whose next state is nearly linear in one action, which is true if an action lasts a few hundredths of
a second. Sources: Heess et al. 2015, "Learning continuous control policies by stochastic value gradients"; Lillicrap et
al. 2016, "Continuous control with deep reinforcement learning"; Fujimoto et al. 2018, "Addressing function
approximation error in actor-critic methods".
"""

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from diffsim import envs

Array = jax.Array
Weights = list[tuple[Array, Array]]


class Settings(NamedTuple):
    """Settings of the learner.

    An update samples `horizon` steps of all `worlds`, and makes `lessons` gradient steps on batches of `batch` stored
    steps. `noise` is added to each action; half of it is new at each step, and half is constant over a horizon. `rate`
    falls to a tenth over all `updates`. `lag` is the weight of the critics in the update of the lagging critics.
    """

    updates: int = 80
    worlds: int = 16
    horizon: int = 16
    discount: float = 0.9
    noise: float = 0.7
    lessons: int = 192
    batch: int = 128
    rate: float = 3e-3
    lag: float = 0.05
    hidden: tuple[int, ...] = (128, 128)


class Step(NamedTuple):
    """Steps (n, ...): observation, action, reward, next observation, derivatives with respect to the action.

    `goes_on` is 0 after a failure, otherwise 1, also if an episode ended because its time was over.
    """

    obs: Array
    action: Array
    reward: Array
    reward_slope: Array
    after: Array
    after_slope: Array
    goes_on: Array


class Learner(NamedTuple):
    """Weights of policy and critics, optimizer states, stored steps and their number, scales of observations."""

    policy: Weights
    critics: Weights
    lagging: Weights
    memory: tuple[Any, Any]
    replay: Step
    count: Array
    scales: tuple[Array, Array]


def network(weights: Weights, x: Array) -> Array:
    """Output of linear layers with elu between them."""
    for matrix, bias in weights[:-1]:
        x = jax.nn.elu(x @ matrix + bias)
    matrix, bias = weights[-1]
    return x @ matrix + bias


def make_weights(key: Array, sizes: tuple[int, ...]) -> Weights:
    """Random weights; the last layer is small."""
    keys, last = jax.random.split(key, len(sizes)), len(sizes) - 2
    return [
        (jax.random.normal(keys[i], (rows, columns)) * (0.01 if i == last else 1.0) / rows**0.5, jnp.zeros(columns))
        for i, (rows, columns) in enumerate(itertools.pairwise(sizes))
    ]


def scaled(obs: Array, scales: tuple[Array, Array]) -> Array:
    """Observations normalized to mean 0 and deviation 1 over the stored steps."""
    mean, deviation = scales
    # jnp.clip may lose its derivative: it compares with its result, which compilers round differently
    return jax.lax.clamp(-10.0, (obs - mean) / deviation, 10.0)


def action_of(learner: Learner, obs: Array) -> Array:
    """Action of the policy, in [-1, 1], without noise."""
    return jnp.tanh(network(learner.policy, scaled(obs, learner.scales)))


class ActorCritic:
    """Learns a task. `env` is a batch of `settings.worlds` worlds with episodes, made by `envs.wrap`."""

    def __init__(self, env: envs.Wrapper, settings: Settings) -> None:
        self.env, self.settings = env, settings
        rate = optax.linear_schedule(settings.rate, 0.1 * settings.rate, settings.updates * settings.lessons)
        self.optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(rate))
        self.improve = jax.jit(self._improve)

    def begin(self, key: Array) -> tuple[Learner, envs.EnvState]:
        """Returns a learner with random weights and no steps, and worlds at the beginning of an episode."""
        one, two, three = jax.random.split(key, 3)
        settings, actions = self.settings, self.env.action_size
        state = jax.jit(self.env.reset)(jax.random.split(three, settings.worlds))
        size = state.obs.shape[-1]
        policy = make_weights(one, (size, *settings.hidden, actions))
        critics = jax.vmap(lambda key: make_weights(key, (size, *settings.hidden, 1)))(jax.random.split(two))
        shapes = Step((size,), (actions,), (), (actions,), (size,), (actions, size), ())
        room = settings.updates * settings.horizon * settings.worlds
        replay = Step(*(jnp.zeros((room, *shape)) for shape in shapes))
        memory = (self.optimizer.init(policy), self.optimizer.init(critics))
        scales = (jnp.zeros(size), jnp.ones(size))
        return Learner(policy, critics, critics, memory, replay, jnp.zeros((), int), scales), state

    def _improve(self, learner: Learner, state: envs.EnvState, key: Array) -> tuple[Learner, envs.EnvState]:
        """One update: new steps of all worlds, then lessons from all steps. A full store drops its oldest steps."""
        sampling, learning = jax.random.split(key)
        state, steps = self._sampled(learner, state, sampling)
        learner = _remembered(learner, steps)
        lessons = jax.random.split(learning, self.settings.lessons)
        return jax.lax.scan(lambda now, key: (self._learned(now, key), None), learner, lessons)[0], state

    def _sampled(self, learner: Learner, state: envs.EnvState, key: Array) -> tuple[envs.EnvState, Step]:
        """Simulates one horizon of all worlds; returns the final states and the steps (T, worlds, ...)."""
        settings, shape = self.settings, (self.settings.worlds, self.env.action_size)
        anew, once = jax.random.split(key)
        held = jax.random.normal(once, shape)

        def one(state: envs.EnvState, key: Array) -> tuple[envs.EnvState, Step]:
            noise = settings.noise * (held + jax.random.normal(key, shape)) / 2**0.5
            return self._tried(state, jnp.clip(action_of(learner, state.obs) + noise, -1, 1))

        return jax.lax.scan(one, state, jax.random.split(anew, settings.horizon))

    def _tried(self, state: envs.EnvState, action: Array) -> tuple[envs.EnvState, Step]:
        """One step of all worlds, with its derivatives with respect to the action."""

        def result(action: Array) -> tuple[tuple[Array, Array], envs.EnvState]:
            later = self.env.step(state, action)
            return (later.reward, later.info["final_obs"]), later

        def along(direction: Array) -> tuple[tuple[Array, Array], tuple[Array, Array], envs.EnvState]:
            return jax.jvp(result, (action,), (jnp.broadcast_to(direction, action.shape),), has_aux=True)

        # worlds are independent, so one direction serves all of them at once
        (reward, after), slopes, later = jax.vmap(along, out_axes=(None, 1, None))(jnp.eye(action.shape[-1]))
        failed = later.done * (1 - later.info["truncation"])
        return later, Step(state.obs, action, reward, slopes[0], after, slopes[1], 1 - failed)

    def _learned(self, learner: Learner, key: Array) -> Learner:
        """One gradient step of critics and policy on a random batch of stored steps."""
        chosen = jax.random.randint(key, (self.settings.batch,), 0, learner.count)
        steps = jax.tree.map(lambda leaf: leaf[chosen], learner.replay)
        goal = self._ahead(learner, learner.lagging, steps)

        def error(critics: Weights) -> Array:
            return jnp.sum(jnp.mean((_values(critics, scaled(steps.obs, learner.scales)) - goal) ** 2, axis=1))

        critics, judge = self._stepped(error, learner.critics, learner.memory[1])
        lagging = optax.incremental_update(critics, learner.lagging, self.settings.lag)

        def loss(policy: Weights) -> Array:
            return -jnp.mean(self._ahead(learner._replace(policy=policy), critics, steps))

        policy, actor = self._stepped(loss, learner.policy, learner.memory[0])
        return learner._replace(policy=policy, critics=critics, lagging=lagging, memory=(actor, judge))

    def _stepped(self, loss: Callable[[Weights], Array], weights: Weights, memory: Any) -> tuple[Weights, Any]:
        updates, memory = self.optimizer.update(jax.grad(loss)(weights), memory, weights)
        return optax.apply_updates(weights, updates), memory

    def _ahead(self, learner: Learner, critics: Weights, steps: Step) -> Array:
        """(n,) Q of the policy's current action: reward plus the lower value of the next observation."""
        change = action_of(learner, steps.obs) - steps.action
        reward = steps.reward + jnp.einsum("nu,nu->n", change, steps.reward_slope)
        after = steps.after + jnp.einsum("nu,nuo->no", change, steps.after_slope)
        value = jnp.min(_values(critics, scaled(after, learner.scales)), axis=0)
        return reward + self.settings.discount * steps.goes_on * value


def _values(critics: Weights, x: Array) -> Array:
    """(2, n) values of both critics."""
    return jax.vmap(network, in_axes=(0, None))(critics, x)[..., 0]


def _remembered(learner: Learner, steps: Step) -> Learner:
    """The learner with new steps added to the store, and scales of all stored steps."""
    rows = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), steps)
    room, new = len(learner.replay.reward), len(rows.reward)
    full = learner.count >= room
    # the size of the store is a multiple of the number of steps per update
    old = jax.tree.map(lambda leaf: jnp.where(full, jnp.roll(leaf, -new, axis=0), leaf), learner.replay)
    begin = jnp.where(full, room - new, learner.count)
    replay = jax.tree.map(lambda leaf, own: jax.lax.dynamic_update_slice_in_dim(leaf, own, begin, 0), old, rows)
    count = begin + new
    seen = (jnp.arange(room) < count)[:, None]
    mean = jnp.mean(replay.obs, axis=0, where=seen)
    deviation = jnp.sqrt(jnp.var(replay.obs, axis=0, where=seen) + 1e-4)
    return learner._replace(replay=replay, count=count, scales=(mean, deviation))


def returns(env: envs.Env, learner: Learner, keys: Array, steps: int) -> Array:
    """(worlds,) undiscounted returns of one episode each, without noise; rewards after a failure do not count."""
    batch = envs.VmapWrapper(env)

    def one(carry: tuple[envs.EnvState, Array, Array], _: None) -> tuple[tuple, None]:
        state, alive, total = carry
        later = batch.step(state, action_of(learner, state.obs))
        return (later, alive * (1 - later.done), total + alive * later.reward), None

    state, ones = batch.reset(keys), jnp.ones(len(keys))
    return jax.lax.scan(one, (state, ones, 0 * ones), None, steps)[0][2]
