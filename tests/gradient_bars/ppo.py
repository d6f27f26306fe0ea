"""What PPO needs: returns over samples of Brax's trainer, written beside this file for `policy.py`.

python -m tests.gradient_bars.ppo TASK    (needs `pip install '.[rl]'`; some minutes)

One row an evaluation: samples (steps of one world), mean return of 64 episodes without noise, seconds.
"""

import functools
import pathlib
import sys
import time
from typing import Any

from diffsim import envs
from tests.gradient_bars.policy import TASKS

HERE = pathlib.Path(__file__).parent


def main(name: str) -> None:
    """Trains and writes."""
    # imported here: an extra
    from brax.training.agents.ppo import networks, train

    chosen, rows, begin = TASKS[name], [], time.perf_counter()

    def progress(step: int, metrics: dict[str, Any]) -> None:
        rows.append((step, float(metrics["eval/episode_reward"]), time.perf_counter() - begin))
        print(*rows[-1], flush=True)

    train.train(
        environment=envs.make(name),
        wrap_env_fn=functools.partial(envs.wrap, redraw=True),
        num_timesteps=chosen.samples,
        num_evals=21,
        episode_length=chosen.steps,
        num_eval_envs=64,
        unroll_length=10,
        num_envs=64,
        batch_size=64,
        num_minibatches=8,
        num_updates_per_batch=8,
        discounting=0.97,
        learning_rate=1e-3,
        entropy_cost=1e-3,
        normalize_observations=True,
        network_factory=functools.partial(networks.make_ppo_networks, policy_hidden_layer_sizes=(64, 64)),
        progress_fn=progress,
    )
    lines = ["samples,return,seconds", *(f"{step},{value:.6g},{seconds:.1f}" for step, value, seconds in rows)]
    (HERE / f"ppo_{name}.csv").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
