"""What an environment costs beyond its physics: batched steps with episodes and resets, beside physics steps alone.

    python -m tests.measure.env_cost hopper quadruped --worlds 512

Prints one line a task: microseconds a world and step of the environment, and of its physics, and their ratio.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

import diffsim
from diffsim import envs

STEPS, REPEATS = 10, 12


def seconds(*runs: Callable[[], Any]) -> list[float]:
    """The least time of each of some compiled functions, which take turns, so that a busy machine slows all alike."""
    for run in runs:
        jax.block_until_ready(run())
    times = [[] for _ in runs]
    for _ in range(REPEATS):
        for run, own in zip(runs, times, strict=True):
            start = time.perf_counter()
            jax.block_until_ready(run())
            own.append(time.perf_counter() - start)
    return [min(own) for own in times]


def cost(name: str, worlds: int, iterations: int) -> tuple[float, float]:
    """Microseconds a world and step, of the environment and of its physics alone; actions are random."""
    plain = envs.make(name)
    limits = plain.model.opt.replace(iterations=iterations, ls_iterations=4)
    plain = plain.replace(model=plain.model.replace(opt=limits))
    env = envs.wrap(plain, episode_length=1000)
    state = jax.jit(env.reset)(jax.random.split(jax.random.key(0), worlds))
    actions = jax.random.uniform(jax.random.key(1), (STEPS, worlds, env.action_size), minval=-1, maxval=1)

    def episode(state: envs.EnvState, actions: jax.Array) -> envs.EnvState:
        return jax.lax.scan(lambda s, a: (env.step(s, a), s.reward), state, actions)[0]

    def physics(state: diffsim.State, inputs: diffsim.Inputs, ctrl: jax.Array) -> diffsim.State:
        def one(state: diffsim.State, inputs: diffsim.Inputs, ctrl: jax.Array) -> diffsim.State:
            table = jnp.broadcast_to(ctrl, (plain.task.steps, plain.model.nu))
            return diffsim.rollout(plain.model, state, table, lambda s, d: None, inputs)[0]

        return jax.lax.scan(lambda s, c: (jax.vmap(one)(s, inputs, c), None), state, ctrl)[0]

    ctrl = jax.vmap(jax.vmap(lambda action: plain.task.control(plain.model, action)))(actions)
    # from where the environment has come to, so that both meet contacts alike
    state = jax.jit(episode)(state, actions)
    whole, alone = jax.jit(episode), jax.jit(physics)
    pair = seconds(lambda: whole(state, actions), lambda: alone(state.physics, state.inputs, ctrl))
    return tuple(1e6 * each / (worlds * STEPS) for each in pair)


def main() -> None:
    """Prints a line for each task."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", default=list(envs.TASKS))
    parser.add_argument("--worlds", type=int, default=512)
    parser.add_argument("--iterations", type=int, default=100)
    options = parser.parse_args()
    for name in options.tasks:
        whole, alone = cost(name, options.worlds, options.iterations)
        print(f"{name:>10} env {whole:8.1f} us, physics {alone:8.1f} us, ratio {whole / alone:.3f}", flush=True)


if __name__ == "__main__":
    main()
