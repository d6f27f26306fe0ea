"""velocity: velocity tasks of legged robots: CPU seconds until the first step, and steps of the environment a second.

    make measure WHAT="velocity quadruped quadruped:rough"
    make measure WHAT="velocity --folder PATH go2 g1 go2:rough"     # PATH: a folder with MuJoCo Menagerie

A line for each robot, on flat ground or (`:rough`) on generated terrain with a height scan. Worlds are randomized, and
actions are zero. `fell` counts the episodes that ended in half a second.
"""

import argparse
import time

import jax
import jax.numpy as jnp

from diffsim import envs

STEPS = 25


def measured(name: str, rough: bool, folder: str, worlds: int) -> str:
    """The line of a robot."""
    task = envs.Velocity(envs.ROBOTS[name], envs.Terrain() if rough else None)
    clock, spent = time.process_time, []
    began = clock()
    env = task.env(None if name == "quadruped" else folder)
    spent.append(("load", clock() - began))
    began = clock()
    batch = envs.wrap(env, 1000, randomization_fn=task.randomization(worlds))
    spent.append(("randomize", clock() - began))
    began = clock()
    state = jax.block_until_ready(jax.jit(batch.reset)(jax.random.split(jax.random.key(0), worlds)))
    spent.append(("reset", clock() - began))
    action = jnp.zeros((worlds, env.action_size))
    began = clock()
    step = jax.jit(batch.step).lower(state, action).compile()
    spent.append(("step", clock() - began))
    state, fell = jax.block_until_ready(step(state, action)), 0.0
    began = clock()
    for _ in range(STEPS):
        state = step(state, action)
        fell += float(state.done.sum())
    rate = STEPS * worlds / (clock() - began)
    seconds = ", ".join(f"{stage} {value:.1f}" for stage, value in spent)
    return f"{seconds} CPU s; {rate:,.0f} steps/s with {worlds} worlds; fell {fell:.0f}"


def main() -> None:
    """Measures the robots of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("robots", nargs="*", default=["quadruped"])
    parser.add_argument("--folder", default="")
    parser.add_argument("--worlds", type=int, default=256)
    options = parser.parse_args()
    for robot in options.robots:
        name, _, ground = robot.partition(":")
        print(f"{robot}: {measured(name, ground == 'rough', options.folder, options.worlds)}", flush=True)


if __name__ == "__main__":
    main()
