"""learn: a policy by SHAC beside Brax's PPO: return over steps of the simulator and over CPU seconds, seed by seed.

    make measure WHAT="learn shac swingup 0 1 2"     # in any environment
    PYTHONPATH=. PYTHON -m tests.measure.learn ppo swingup 0    # PYTHON of an environment with brax
    make measure WHAT="learn report"                            # and the curves, as docs/pictures/shac.png

Tasks are of `diffsim.envs`; swingup is the cartpole, whose pole hangs at first, with a reward as dm_control has it.
Both learn by the settings that stand here, the same for all tasks. A return is of 32 episodes of other beginnings,
without noise, played by the same program. CPU seconds are of learning, compilation included, without these episodes.
A run is a line of /tmp/diffsim_measure/learn.jsonl. The goal of a task is nineteen twentieths of the way from PPO's
first return to its best, in the median of its seeds.
"""

import json
import pathlib
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

from diffsim import envs
from diffsim.envs.tasks.planar import CARTPOLE
from tests.gradient_bars import ppo

BOOK = pathlib.Path("/tmp/diffsim_measure/learn.jsonl")
WORLDS, SHARE = 32, 0.95
# steps of an episode, of training by SHAC and by PPO
TASKS = {"swingup": (250, 100_000, 800_000), "hopper": (500, 150_000, 1_200_000), "walker": (500, 150_000, 1_200_000)}


def task(name: str) -> envs.Env:
    """An environment."""
    if name != "swingup":
        return envs.make(name)

    def hanging(model: Any, key: Any) -> Any:
        state, inputs = CARTPOLE.start(model, key)
        return state.replace(qpos=state.qpos.at[1].add(jnp.pi)), inputs

    def reward(now: envs.Moment) -> dict[str, Any]:
        (place, angle), spin, push = now.state.qpos, now.state.qvel[1], now.action[0]
        # a tenth at 2 m and at 5 rad/s
        slow, centred = (0.5 + 0.5 * 0.1 ** (x * x) for x in (spin / 5, place / 2))
        return {"upright": 0.5 * (1 + jnp.cos(angle)) * slow * centred * (1 - 0.2 * push * push)}

    env = envs.make("cartpole")
    return env.replace(task=CARTPOLE._replace(start=hanging, reward=reward, failed=lambda now: jnp.zeros((), bool)))


def judged(env: envs.Env, length: int) -> Callable[[Callable[[Any], Any]], float]:
    """Mean return of a policy; `act` is a pytree that is called with observations."""
    batch = envs.VmapWrapper(env)

    @jax.jit
    def returns(act: Any, keys: jax.Array) -> jax.Array:
        def one(carry: tuple, _: None) -> tuple[tuple, None]:
            state, alive, total = carry
            later = batch.step(state, act(state.obs))
            return (later, alive * (1 - later.done), total + alive * later.reward), None

        state = batch.reset(keys)
        ones = jnp.ones(len(keys))
        return jnp.mean(jax.lax.scan(one, (state, ones, 0 * ones), None, length)[0][2])

    keys = jax.random.split(jax.random.key(1000), WORLDS)
    return lambda act: float(returns(act, keys))


def shac(name: str, seed: int, settings: envs.Shac, most: int) -> list[list[float]]:
    """Rows of steps, CPU seconds and return."""
    env, length = task(name), TASKS[name][0]
    judge, rows, aside = judged(env, length), [], 0.0
    began, every, turn = time.process_time(), max(1, most // (settings.worlds * settings.horizon) // 20), 0

    def watch(steps: int, policy: envs.Policy, _: float) -> None:
        nonlocal aside, turn
        turn += 1
        if turn % every:
            return
        jax.block_until_ready(policy)
        now = time.process_time()
        rows.append([steps, now - began - aside, judge(policy)])
        aside += time.process_time() - now
        print(f"{name} shac {seed}: {rows[-1][0]} steps, {rows[-1][1]:.0f} s, return {rows[-1][2]:.1f}", flush=True)

    envs.shac(env, most, episode_length=length, settings=settings, key=seed, watch=watch)
    return rows


def report() -> None:
    """A line a task: steps and CPU seconds that each way needs for the goal, in the median of its seeds; all curves."""
    lines, met = [json.loads(line) for line in BOOK.read_text().splitlines()], 0
    figure, panels = plt.subplots(1, len(TASKS), figsize=(4 * len(TASKS), 3.4), constrained_layout=True)
    for panel, name in zip(panels, TASKS, strict=True):
        runs: dict[str, list[np.ndarray]] = {}
        for way, colour in (("ppo", "#c0562f"), ("shac", "#2a75b5")):
            # of a seed that was run again the last run counts
            by_seed = {line["seed"]: line["rows"] for line in lines if (line["way"], line["task"]) == (way, name)}
            runs[way] = list(map(np.array, by_seed.values()))
            for i, rows in enumerate(runs[way]):
                panel.semilogx(*rows[1:, [0, 2]].T, color=colour, label=None if i else way)
        panel.set(title=name, xlabel="steps of the simulator")
        if not all(runs.values()):
            continue
        panel.legend()
        first, best = (np.median([pick(rows[:, 2]) for rows in runs["ppo"]]) for pick in (lambda x: x[0], np.max))
        goal, needs = first + SHARE * (best - first), {}
        for way, seeds in runs.items():
            there = [np.flatnonzero(rows[:, 2] >= goal) for rows in seeds]
            # never, where a seed does not come there
            spent = [rows[at[0], :2] if len(at) else np.full(2, np.inf) for rows, at in zip(seeds, there, strict=True)]
            needs[way] = np.median(spent, axis=0)
            top = np.median([np.max(rows[:, 2]) for rows in seeds])
            print(
                f"{name:<10}{way:<6}{len(seeds)} seeds, {sum(len(at) > 0 for at in there)} come "
                f"to {goal:.0f}: after {needs[way][0]:.0f} steps, {needs[way][1]:.0f} CPU s; best {top:.0f}"
            )
        share = needs["shac"] / needs["ppo"]
        met += bool(share[0] <= 0.2 and share[1] <= 0.5)
        print(f"{name:<10}shac / ppo: {share[0]:.3f} of the steps, {share[1]:.2f} of the time")
    panels[0].set(ylabel="return of an episode")
    figure.savefig(pathlib.Path(__file__).parents[2] / "docs/pictures/shac.png", dpi=80)
    print(f"learn: SHAC comes to PPO's return in a fifth of the steps and half of the time on {met} tasks")


def main() -> None:
    """Runs what is named."""
    words = sys.argv[1:]
    way, name = words[0], words[1] if len(words) > 1 else ""
    if way == "report":
        return report()
    named = dict(word.split("=") for word in words if "=" in word)
    most = int(named.pop("steps", TASKS[name][1 if way == "shac" else 2]))
    for seed in [int(word) for word in words if word.isdigit()] or [0]:
        if way == "shac":
            settings = envs.Shac().replace(
                **{key: type(getattr(envs.Shac(), key))(float(value)) for key, value in named.items()}
            )
            rows = shac(name, seed, settings, most)
        else:
            rows = ppo.learn(task(name), most, TASKS[name][0], 11, WORLDS, seed=seed, deterministic_eval=True)
        with BOOK.open("a") as file:
            file.write(json.dumps({"way": way, "task": name, "seed": seed, "settings": named, "rows": rows}) + "\n")


if __name__ == "__main__":
    main()
