"""trainers: the quadruped under the PPO of rsl_rl, Stable-Baselines3 and skrl, by the programs of the page on PyTorch.

    PYTHONPATH=. PYTHON -m tests.measure.trainers                   # PYTHON of an environment with these packages
    PYTHONPATH=. PYTHON -m tests.measure.trainers rsl_rl skrl

The programs are the blocks of docs/recipes/pytorch.md that import a trainer. A line for each: iterations, steps of
the simulator, seconds of the whole program and CPU seconds of compiling the environment's step, and the mean reward of
a step at the beginning and at the end, of the policy that the program leaves.
"""

import contextlib
import os
import pathlib
import re
import sys
import tempfile
import time
from typing import Any

import jax
import numpy as np

from diffsim import envs

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "recipes" / "pytorch.md"
TRAINERS = ("rsl_rl", "stable_baselines3", "skrl")
# worlds and steps of an episode that judges a policy
WORLDS, LENGTH = 32, 200


def programs() -> dict[str, str]:
    """The block of each trainer."""
    blocks = re.findall(r"^```text\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    return {name: block for name in TRAINERS for block in blocks if f"from {name}" in block}


def judged(policy: Any) -> float:
    """Mean reward of a step of the quadruped until it falls, over `LENGTH` steps."""
    env = envs.VmapWrapper(envs.make("joystick"))

    def one(carry: Any, _: None) -> tuple[Any, None]:
        state, alive, total = carry
        later = env.step(state, policy(state.obs))
        return (later, alive * (1 - later.done), total + alive * later.reward), None

    @jax.jit
    def total(keys: jax.Array) -> jax.Array:
        state = env.reset(keys)
        ones = jax.numpy.ones(len(keys))
        return jax.lax.scan(one, (state, ones, 0 * ones), None, LENGTH)[0][2]

    return float(np.mean(total(jax.random.split(jax.random.key(0), WORLDS)))) / LENGTH


def main(names: list[str]) -> None:
    """Runs the programs of these trainers, or of all."""
    for name, program in programs().items():
        if names and name not in names:
            continue
        space: dict[str, Any] = {}
        began, cpu = time.perf_counter(), time.process_time()
        with contextlib.ExitStack() as stack:
            stack.enter_context(contextlib.chdir(stack.enter_context(tempfile.TemporaryDirectory())))
            stack.enter_context(contextlib.redirect_stdout(stack.enter_context(open(os.devnull, "w"))))
            exec(compile(program, name, "exec"), space)
        spent, cpu = time.perf_counter() - began, time.process_time() - cpu
        policy = space["policy"]
        idle = policy.replace(layers=jax.tree.map(jax.numpy.zeros_like, policy.layers))
        print(f"{name}: {spent:.0f} s, {cpu:.0f} CPU s; reward {judged(idle):.3f} -> {judged(policy):.3f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
