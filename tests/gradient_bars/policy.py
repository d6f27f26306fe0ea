"""A policy learned by gradients through the simulator, beside PPO's curve over samples.

A sample is one step of one world. PPO's curve is what `python -m tests.gradient_bars.ppo TASK` wrote with Brax's
trainer. Its goal is the return at which all but a twentieth of its gain is made; ours has to come as far within a
tenth of the samples, from five seeds of the learner, in the median and at worst. Both learn in episodes of the same
length that begin anew at random; returns are of 64 episodes of other random beginnings, without noise. The reacher's
training by PPO was stopped after 716,800 samples.

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


SEEDS = 5
TASKS = {
    "reacher": Learned(100, 2_000_000, Settings()),
    "cartpole": Learned(200, 100_000, Settings(worlds=4, updates=32, discount=0.99, lag=0.02)),
}


def ours(name: str, every: int = 4) -> np.ndarray:
    """(SEEDS, k, 3) samples, mean return, seconds for all seeds together, as the learning goes on."""
    chosen, env = TASKS[name], envs.make(name)
    learn = ActorCritic(envs.wrap(env, chosen.steps, redraw=True), chosen.settings)
    judge = jax.jit(jax.vmap(lambda learner, keys: returns(env, learner, keys, chosen.steps).mean(), (0, None)))
    improve = jax.jit(jax.vmap(learn.improve))
    keys, rows, begin = jax.random.split(jax.random.key(1000), 64), [], time.perf_counter()
    learner, state = jax.vmap(learn.begin)(jax.vmap(jax.random.key)(np.arange(SEEDS)))
    for update in range(chosen.settings.updates + 1):
        if update % every == 0:
            samples = np.full(SEEDS, update * chosen.settings.worlds * chosen.settings.horizon)
            seconds = np.full(SEEDS, time.perf_counter() - begin)
            rows.append(np.stack([samples, judge(learner, keys), seconds], axis=-1))
        learner, state = improve(learner, state, jax.random.split(jax.random.key(update + 1), SEEDS))
    return np.stack(rows, axis=1)


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
        shares = [needed(curve, goal) / needed(ppo, goal) for curve in found]
        label = f"{name}: PPO comes to a return of {goal:.1f} in {needed(ppo, goal):,.0f} samples, gradients in a share"
        yield Bar(f"{label}, median of {SEEDS} seeds", float(np.median(shares)), SHARE)
        yield Bar(f"{label}, worst of {SEEDS} seeds", max(shares), SHARE)


def draw(folder: pathlib.Path) -> None:
    """PPO's curve and ours, one a seed, of each task."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, len(TASKS), figsize=(10, 4), constrained_layout=True)
    for panel, name in zip(panels, TASKS, strict=True):
        curves = [("PPO", theirs(name), "#40474f"), *(("gradients", curve, "#f27326") for curve in ours(name))]
        for label, curve, color in curves[:2] + [("", *rest) for _, *rest in curves[2:]]:
            panel.plot(np.maximum(curve[:, 0], 100), curve[:, 1], ".-", color=color, label=label or None)
        panel.set(xlabel="samples", title=f"{name}: return of an episode", xscale="log")
        panel.legend()
    figure.savefig(folder / "policy.png", dpi=110)


if __name__ == "__main__":
    draw(pathlib.Path(sys.argv[1]))
