"""PPO by Brax's trainer, beside which learning by gradients is measured: returns over samples and CPU seconds.

python -m tests.gradient_bars.ppo TASK    (needs `pip install '.[rl]'`; some minutes)

writes the curve beside this file for `policy.py`: samples (steps of one world), mean return of 64 episodes without
noise, seconds.
"""

import functools
import pathlib
import sys
import time
from typing import Any

from diffsim import envs

HERE = pathlib.Path(__file__).parent
# those of examples/learn_to_hop.py
SETTINGS = {
    "num_envs": 256,
    "unroll_length": 20,
    "batch_size": 256,
    "num_minibatches": 8,
    "num_updates_per_batch": 4,
    "discounting": 0.99,
    "learning_rate": 3e-4,
    "entropy_cost": 1e-3,
}
# of the tasks of policy.py, from few samples
EAGER = {
    "num_envs": 64,
    "unroll_length": 10,
    "batch_size": 64,
    "num_updates_per_batch": 8,
    "discounting": 0.97,
    "learning_rate": 1e-3,
}


def learn(
    env: envs.Env, steps: int, length: int, evaluations: int, episodes: int, redraw: bool = False, **settings: Any
) -> list[list[float]]:
    """Trains. A row an evaluation: steps of the simulator, CPU seconds of learning, mean return without noise.

    Args:
      steps, length: of the simulator in all, and of an episode.
      evaluations, episodes: how often it is judged, the beginning included, and by how many episodes.
      redraw: whether episodes begin anew at random.
      settings: of Brax's trainer, beside or instead of SETTINGS.
    """
    # imported here: an extra
    from brax.training.agents.ppo import networks, train

    from diffsim.envs import brax

    brax.prepare()
    rows, began = [], time.process_time()

    def progress(steps: int, metrics: dict[str, Any]) -> None:
        # Brax times training apart from its episodes of evaluation, by a clock that others on the core slow down
        spent = min(metrics.get("training/walltime", 0.0), time.process_time() - began)
        rows.append([steps, float(spent), float(metrics["eval/episode_reward"])])
        print(f"{rows[-1][0]} steps, {rows[-1][1]:.0f} s, return {rows[-1][2]:.1f}", flush=True)

    train.train(
        environment=env,
        wrap_env_fn=functools.partial(envs.wrap, redraw=redraw),
        num_timesteps=steps,
        num_evals=evaluations,
        episode_length=length,
        num_eval_envs=episodes,
        normalize_observations=True,
        network_factory=functools.partial(networks.make_ppo_networks, policy_hidden_layer_sizes=(64, 64)),
        progress_fn=progress,
        **SETTINGS | settings,
    )
    return rows


def main(name: str) -> None:
    """Trains and writes."""
    from tests.gradient_bars.policy import TASKS

    chosen = TASKS[name]
    rows = learn(envs.make(name), chosen.samples, chosen.steps, 21, 64, redraw=True, **EAGER)
    lines = ["samples,return,seconds", *(f"{step},{value:.6g},{seconds:.1f}" for step, seconds, value in rows)]
    (HERE / f"ppo_{name}.csv").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
