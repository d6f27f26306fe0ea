"""A policy learns to reach targets: the return is differentiated through the environment.

A small network drives the two motors of `envs.make("reacher")` to targets anywhere on the table. Each update
differentiates one second of 256 worlds. Prints the mean final distance to the target, in meters, before and after
training.
"""

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax
from common import arguments, result
from tqdm import trange

from diffsim import envs

Weights = list[tuple[jax.Array, jax.Array]]


def network(weights: Weights, obs: jax.Array) -> jax.Array:
    """Returns actions in [-1, 1]."""
    for matrix, bias in weights:
        obs = jnp.tanh(obs @ matrix + bias)
    return obs


def main() -> None:
    """Trains the policy and draws the returns."""
    options = arguments(__doc__, updates=120, worlds=256, steps=50)
    env = envs.make("reacher")
    keys = jax.random.split(jax.random.key(0), 3)
    sizes = (env.observation_size, 32, 32, env.action_size)
    weights = [
        (jax.random.normal(key, (rows, columns)) / rows**0.5, jnp.zeros(columns))
        for key, rows, columns in zip(keys, sizes, sizes[1:], strict=False)
    ]

    def episode(weights: Weights, key: jax.Array) -> tuple[jax.Array, envs.EnvState]:
        def one(state: envs.EnvState, _: None) -> tuple[envs.EnvState, jax.Array]:
            later = env.step(state, network(weights, state.obs))
            return later, later.reward

        final, rewards = jax.lax.scan(one, env.reset(key), None, options.steps)
        return jnp.mean(rewards), final

    def loss(weights: Weights, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        worlds = jax.random.split(key, options.worlds)
        rewards, final = jax.vmap(lambda key: episode(weights, key))(worlds)
        return -jnp.mean(rewards), jnp.mean(-final.metrics["distance"])

    rate = optax.cosine_decay_schedule(3e-3, options.updates)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(rate))
    memory = optimizer.init(weights)

    @jax.jit
    def improve(weights: Weights, memory: optax.OptState, key: jax.Array) -> tuple:
        (value, miss), slope = jax.value_and_grad(loss, has_aux=True)(weights, key)
        updates, memory = optimizer.update(slope, memory)
        return optax.apply_updates(weights, updates), memory, -value, miss

    history = []
    print("compiling the gradient of an episode ...", flush=True)
    for k in trange(options.updates):
        weights, memory, value, miss = improve(weights, memory, jax.random.key(k + 1))
        history.append((float(value), float(miss)))
    returns, misses = np.array(history).T
    figure, panels = plt.subplots(1, 2, figsize=(10, 4), constrained_layout=True)
    panels[0].plot(returns, color="#2a75b5")
    panels[0].set(xlabel="update", title="mean reward of a step")
    panels[1].semilogy(100 * misses, color="#f27326")
    panels[1].set(xlabel="update", title="final distance to the target (cm)")
    figure.savefig(options.out / "learn_to_reach.png", dpi=110)
    result(first_miss=float(misses[0]), last_miss=float(misses[-1]), last_reward=float(returns[-1]))


if __name__ == "__main__":
    main()
