"""A pole swings up: a plan by iLQR, which linearizes the simulator along the motion and respects motor bounds.

Prints the final angle from the vertical, draws the plan, and makes a film.
"""

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from common import arguments, result, timed

import diffsim
from diffsim import envs, optimize, viz


def main() -> None:
    """Plans the motion and draws it."""
    options = arguments(__doc__, steps=200, iterations=150)
    model = diffsim.load(envs.MODELS / "cartpole.xml")
    hanging = model.set_qpos(diffsim.make_state(model), {"hinge": jnp.pi})

    def running(state: diffsim.State, data: diffsim.Data, ctrl: jax.Array) -> jax.Array:
        return jnp.concatenate([0.1 * state.qpos[:1], 0.02 * state.qvel, 0.05 * ctrl])

    def final(state: diffsim.State, data: diffsim.Data) -> jax.Array:
        place, angle = state.qpos
        return jnp.concatenate([jnp.stack([10 * jnp.sin(angle / 2), 2 * place]), 2 * state.qvel])

    task = optimize.make_task(model, running, final)
    guess = 0.3 * jnp.sin(jnp.arange(options.steps) * 0.06)[:, None]
    solve = jax.jit(lambda guess: optimize.ilqr(task, hanging, guess, optimize.Ilqr(iterations=options.iterations)))
    path, seconds = timed(solve, guess)

    time = np.arange(options.steps + 1) * float(model.opt.timestep)
    figure, panels = plt.subplots(1, 2, figsize=(10, 4), constrained_layout=True)
    panels[0].plot(time, np.degrees(path.states.qpos[:, 1]), color="#f27326", label="pole (deg)")
    panels[0].plot(time, 100 * path.states.qpos[:, 0], color="#2a75b5", label="cart (cm)")
    panels[0].set(xlabel="time (s)", title="from hanging to standing")
    panels[0].legend()
    panels[1].step(time[:-1], path.ctrl[:, 0], color="#40474f")
    panels[1].set(xlabel="time (s)", title="motor, between -1 and 1", ylim=(-1.1, 1.1))
    figure.savefig(options.out / "swing_up.png", dpi=110)
    viz.video(model, path.states, options.out / "swing_up.gif", "side", fps=15, size=(240, 135))
    angle = float(jnp.abs(jnp.sin(path.states.qpos[-1, 1] / 2))) * 2
    result(angle=angle, cost=float(path.cost), seconds=seconds)


if __name__ == "__main__":
    main()
