"""Thousands of worlds at once: one robot with different masses, friction and controls, on all cores or devices.

Every world has a quadruped with random torso mass and floor friction. `randomize` keeps inertia and all constants that
depend on masses consistent, and tells which leaves of the model have a batch axis. Prints the throughput and draws the
final positions of the robots.
"""

import math
import os

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from common import arguments, result, timed

import diffsim
from diffsim import envs, parallel


def main() -> None:
    """Simulates and draws."""
    options = arguments(__doc__, worlds=4096, steps=100)
    # without an accelerator, each core of the CPU steps the same number of worlds
    parallel.use_cores(math.gcd(options.worlds, os.cpu_count() or 1))
    model = diffsim.load(envs.MODELS / "quadruped.xml")
    keys = jax.random.split(jax.random.key(0))
    torso = model.body("torso").id

    # randomize the model: inertia and derived constants follow the mass, and each changed leaf gets a leading axis
    fields = {
        "body_mass": diffsim.Scale(0.5, 2.0, only="torso"),
        "geom_friction": diffsim.Uniform((0.3, 0.005, 1e-4), (1.2, 0.005, 1e-4), only="floor"),
    }
    models, axes = diffsim.randomize(model, keys[0], fields, options.worlds)
    heavier = models.body_mass[:, torso] / model.body_mass[torso]

    # all worlds start standing; each holds a random target pose
    state = diffsim.make_state(model, "stand")
    inputs = diffsim.make_inputs(model, "stand")
    offset = 0.4 * jax.random.normal(keys[1], (options.worlds, model.nu))

    def simulate(models: diffsim.Model, offset: jax.Array) -> tuple[diffsim.State, jax.Array]:
        ctrl = jnp.broadcast_to(inputs.ctrl + offset, (options.steps, model.nu))
        return diffsim.rollout(models, state, ctrl, lambda state, data: data.xpos[torso])

    run = jax.jit(parallel.vmap(simulate, in_axes=(axes, 0)))
    _, first = timed(run, models, offset)
    (final, path), seconds = timed(run, models, offset)
    assert bool(jnp.all(jnp.isfinite(final.qpos)))

    height = np.asarray(path[:, -1, 2])
    figure, panels = plt.subplots(1, 2, figsize=(10, 4.2), constrained_layout=True)
    points = panels[0].scatter(path[:, -1, 0], path[:, -1, 1], c=heavier, s=4, cmap="viridis")
    panels[0].set(
        xlabel="x (m)", ylabel="y (m)", title=f"torsos of {options.worlds} robots after {options.steps} steps"
    )
    panels[0].set_aspect("equal", "datalim")
    figure.colorbar(points, ax=panels[0], label="torso mass factor")
    panels[1].hist(height, bins=60, color="#2a75b5")
    panels[1].set(xlabel="torso height (m)", ylabel="robots", title="height at the end")
    figure.savefig(options.out / "many_worlds.png", dpi=110)

    result(
        worlds=options.worlds,
        steps_per_second=options.worlds * options.steps / seconds,
        compile_seconds=first - seconds,
        standing=float(np.mean(height > 0.2)),
    )


if __name__ == "__main__":
    main()
