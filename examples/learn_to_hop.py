"""A hopper is trained with Brax's PPO (`pip install brax`), in seven minutes on two cores.

`envs.wrap` is passed to the trainer as `wrap_env_fn`. Prints the mean return of an episode of ten seconds before and
after training, and draws the return during training.
"""

import functools
import time

import matplotlib.pyplot as plt
import numpy as np
from common import arguments, result

from diffsim import envs


def main() -> None:
    """Trains the policy and draws the returns."""
    options = arguments(__doc__, timesteps=1_200_000, worlds=256, steps=500, evaluations=8)
    # imported here, so that `--help` works without Brax
    from brax.training.agents.ppo import networks, train

    from diffsim.envs import brax

    brax.prepare()
    env = envs.make("hopper")
    begin, history = time.perf_counter(), []

    def progress(step: int, metrics: dict[str, float]) -> None:
        seconds, mean = time.perf_counter() - begin, metrics["eval/episode_reward"]
        history.append((step, seconds, mean, metrics["eval/avg_episode_length"]))
        print(f"{step} steps, {seconds:.0f} s: return {mean:.1f}", flush=True)

    train.train(
        environment=env,
        wrap_env_fn=envs.wrap,
        num_timesteps=options.timesteps,
        num_evals=options.evaluations,
        episode_length=options.steps,
        num_envs=options.worlds,
        num_eval_envs=64,
        unroll_length=20,
        batch_size=options.worlds,
        num_minibatches=8,
        num_updates_per_batch=4,
        discounting=0.99,
        learning_rate=3e-4,
        entropy_cost=1e-3,
        normalize_observations=True,
        network_factory=functools.partial(networks.make_ppo_networks, policy_hidden_layer_sizes=(64, 64)),
        progress_fn=progress,
    )
    steps, seconds, returns, lengths = np.array(history).T
    figure, panels = plt.subplots(1, 2, figsize=(10, 4), constrained_layout=True)
    for panel, values, title in zip(panels, (returns, lengths), ("return of an episode", "its steps"), strict=True):
        panel.plot(steps / 1e6, values, ".-", color="#2a75b5")
        panel.set(xlabel="million steps", title=title)
    figure.savefig(options.out / "learn_to_hop.png", dpi=110)
    result(first_return=returns[0], last_return=returns[-1], minutes=seconds[-1] / 60)


if __name__ == "__main__":
    main()
