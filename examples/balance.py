"""Which falls can a regulator stop? A cart-pole is linearized upright, and its LQR regulator is tried on a grid.

Every pixel is a world with its own initial angle and speed of the pole. The color shows whether the pole stands after
three seconds. The motor is bounded, so the regulator cannot stop every fall; the result is the fraction that it stops.
"""

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from common import arguments, result, timed

import diffsim
from diffsim import envs, optimize


def main() -> None:
    """Computes the regulator, simulates the grid, and draws it."""
    options = arguments(__doc__, pixels=64, steps=300)
    model = diffsim.load(envs.MODELS / "cartpole.xml")
    upright = diffsim.make_state(model)
    system = jax.jit(optimize.linearize)(model, upright)
    regulator = optimize.lqr(system, Q=np.array([1.0, 10.0, 1.0, 1.0]), R=np.array([0.1]))
    gains = jnp.asarray(regulator.K, upright.qpos.dtype)

    def act(state: diffsim.State, data: diffsim.Data, key: None) -> jax.Array:
        return jnp.clip(-gains @ optimize.difference(model, state, upright), -1, 1)

    def stands(angle: jax.Array, speed: jax.Array) -> jax.Array:
        start = model.set_qvel(model.set_qpos(upright, {"hinge": angle}), {"hinge": speed})
        final, _ = diffsim.rollout(model, start, diffsim.Policy(act, options.steps), lambda state, data: None)
        return jnp.cos(final.qpos[1])

    angles, speeds = np.linspace(-0.9, 0.9, options.pixels), np.linspace(-4, 4, options.pixels)
    grid = jax.jit(jax.vmap(jax.vmap(stands, in_axes=(0, None)), in_axes=(None, 0)))
    height, seconds = timed(grid, jnp.asarray(angles), jnp.asarray(speeds))

    figure, panel = plt.subplots(figsize=(6.5, 5), constrained_layout=True)
    shown = panel.pcolormesh(np.degrees(angles), speeds, np.asarray(height), cmap="RdYlBu", vmin=-1, vmax=1)
    panel.set(xlabel="initial angle (deg)", ylabel="initial speed (rad/s)", title="height of the pole after 3 s")
    figure.colorbar(shown)
    figure.savefig(options.out / "balance.png", dpi=110)
    slowest = float(np.abs(regulator.poles).max())
    result(saved=float(np.mean(height > 0.99)), worlds=options.pixels**2, slowest_mode=slowest, seconds=seconds)


if __name__ == "__main__":
    main()
