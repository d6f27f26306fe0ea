"""A policy is trained by an actor-critic that replays derivatives of the simulator (actor_critic.py), with optax.

A cart learns to balance its pole in a few thousand steps of the simulator. Prints the mean return of an episode of four
seconds before and after training and the number of steps, and draws the return during training.
"""

import jax
import matplotlib.pyplot as plt
import numpy as np
from actor_critic import ActorCritic, Settings, returns
from common import arguments, result
from tqdm import trange

from diffsim import envs


def main() -> None:
    """Trains the policy and draws the returns."""
    options = arguments(__doc__, updates=64, worlds=4, horizon=16, steps=200)
    settings = Settings(options.updates, options.worlds, options.horizon, discount=0.99, lag=0.02)
    env = envs.make("cartpole")
    learn = ActorCritic(envs.wrap(env, options.steps, redraw=True), settings)
    judge = jax.jit(lambda learner, keys: returns(env, learner, keys, options.steps).mean())
    keys, history = jax.random.split(jax.random.key(1000), 64), []
    learner, state = learn.begin(jax.random.key(0))
    print("compiling the learner ...", flush=True)
    for k in trange(options.updates):
        history.append((k * options.worlds * options.horizon, float(judge(learner, keys))))
        learner, state = learn.improve(learner, state, jax.random.key(k + 1))
    samples, values = np.array(history).T
    figure, panel = plt.subplots(figsize=(6, 4), constrained_layout=True)
    panel.plot(samples, values, ".-", color="#2a75b5")
    panel.set(xlabel="steps of the simulator", title="return of an episode")
    figure.savefig(options.out / "learn_by_gradient.png", dpi=110)
    result(first_return=float(values[0]), last_return=float(values[-1]), samples=int(samples[-1]))


if __name__ == "__main__":
    main()
