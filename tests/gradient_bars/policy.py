"""A policy learned by gradients through the simulator, beside PPO's curve over samples.

A sample is one step of one world. PPO's curve is what `python -m tests.gradient_bars.ppo TASK` wrote with Brax's
trainer. Its goal is the return at which all but a twentieth of its gain is made; ours has to come as far within a
tenth of the samples. Both learn in episodes of the same length that begin anew at random; returns are of 64 episodes of
other random beginnings, without noise. The reacher's training was stopped after 716,800 samples.

python -m tests.gradient_bars.policy FOLDER    draws the curves
"""

import csv
import pathlib
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

import jax
import numpy as np

from diffsim import envs
from tests.gradient_bars.bar import Bar

sys.path.append(str(pathlib.Path(__file__).parents[2] / "examples"))
from actor_critic import ActorCritic, Settings, returns

SHARE = 0.1


class Learned(NamedTuple):
    """A task: steps of an episode, samples of PPO's training, and our settings."""

    steps: int
    samples: int
    settings: Settings


QUICK = Settings(worlds=4, horizon=16, rate=2e-2, critic_rate=1e-2, noise=0.1)
TASKS = {
    "reacher": Learned(100, 2_000_000, QUICK._replace(worlds=16, updates=280, discount=0.95)),
    "cartpole": Learned(200, 100_000, QUICK._replace(updates=48)),
}


def ours(name: str, every: int = 4) -> np.ndarray:
    """(k, 3) samples, mean return, seconds, as the learning goes on."""
    chosen, env = TASKS[name], envs.make(name)
    learn = ActorCritic(envs.wrap(env, chosen.steps, redraw=True), chosen.settings)
    judge = jax.jit(lambda learner, keys: returns(env, learner, keys, chosen.steps).mean())
    keys, rows, begin = jax.random.split(jax.random.key(1000), 64), [], time.perf_counter()
    learner, state = learn.begin(jax.random.key(0))
    for update in range(chosen.settings.updates + 1):
        if update % every == 0:
            samples = update * chosen.settings.worlds * chosen.settings.horizon
            rows.append((samples, float(judge(learner, keys)), time.perf_counter() - begin))
        learner, state = learn.improve(learner, state, jax.random.key(update + 1))
    return np.array(rows)


def theirs(name: str) -> np.ndarray:
    """The same of PPO."""
    with open(pathlib.Path(__file__).parent / f"ppo_{name}.csv") as file:
        return np.array(list(csv.reader(file))[1:], float)


def needed(curve: np.ndarray, goal: float) -> float:
    """Samples until a return is reached; infinite if it never is."""
    there = np.flatnonzero(curve[:, 1] >= goal)
    return float(curve[there[0], 0]) if there.size else np.inf


def policy() -> Iterator[Bar]:
    """Samples of ours over those of PPO, for each task."""
    for name in TASKS:
        # float32, as in PPO's training
        with jax.enable_x64(False):
            ppo, found = theirs(name), ours(name)
        goal = ppo[0, 1] + 0.95 * (ppo[:, 1].max() - ppo[0, 1])
        label = f"{name}: PPO comes to a return of {goal:.1f} in {needed(ppo, goal):,.0f} samples, gradients in a share"
        yield Bar(label, needed(found, goal) / needed(ppo, goal), SHARE)


def draw(folder: pathlib.Path) -> None:
    """Both curves of each task."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, len(TASKS), figsize=(10, 4), constrained_layout=True)
    for panel, name in zip(panels, TASKS, strict=True):
        for label, curve, color in (("PPO", theirs(name), "#40474f"), ("gradients", ours(name), "#f27326")):
            panel.plot(np.maximum(curve[:, 0], 100), curve[:, 1], ".-", color=color, label=label)
        panel.set(xlabel="samples", title=f"{name}: return of an episode", xscale="log")
        panel.legend()
    figure.savefig(folder / "policy.png", dpi=110)


if __name__ == "__main__":
    draw(pathlib.Path(sys.argv[1]))
