"""What an optimizer sees of an impact: a ball falls and bounces, and its height after a second is the loss.

Computes the height and its derivative as functions of the initial velocity, with plain steps of 4 ms, with steps that
are split where the ball meets and leaves the floor (`events=2`), and with steps of 0.1 ms, whose finite differences are
the reference. Prints the errors of the derivatives, and draws all of them.
"""

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from common import arguments, result

import diffsim

XML = """<mujoco><option timestep="{h}" integrator="RK4"/><worldbody><geom type="plane" size="2 2 .1"/>
<body pos="0 0 .6"><joint type="slide" axis="0 0 1"/><geom type="sphere" size=".1" mass="1" solref="-2000 -4"/></body>
</worldbody></mujoco>"""
SECONDS = 1.0


def heights(h: float, events: int, velocities: jax.Array) -> tuple[np.ndarray, np.ndarray]:
    """Height after SECONDS, m, and its derivative with respect to the initial velocity, s, for velocities (n,)."""
    model = diffsim.load(XML.format(h=h))
    model = model.replace(opt=model.opt.replace(events=events))
    still = jnp.zeros((round(SECONDS / h), 0))

    def height(velocity: jax.Array) -> jax.Array:
        state = diffsim.make_state(model)
        return diffsim.rollout(model, state.replace(qvel=velocity[None]), still)[0].qpos[0] + 0.6

    found = jax.jit(jax.vmap(lambda v: jax.jvp(height, (v,), (jnp.ones_like(v),))))(velocities)
    return np.asarray(found[0]), np.asarray(found[1])


def main() -> None:
    """Computes the heights and derivatives, and draws them."""
    options = arguments(__doc__, points=161)
    jax.config.update("jax_enable_x64", True)
    velocities = jnp.linspace(-0.8, 0.8, options.points)
    plain, split = (heights(4e-3, events, velocities) for events in (0, 2))
    exact = heights(1e-4, 0, velocities)[0]
    truth = np.gradient(exact, np.asarray(velocities))

    figure, panels = plt.subplots(1, 2, figsize=(11, 4.2), constrained_layout=True)
    rows = [("steps of 4 ms", plain, "#f27326"), ("steps of 4 ms, split", split, "#2a75b5")]
    for name, (height, slope), colour in rows:
        panels[0].plot(velocities, height, color=colour, label=name)
        panels[1].plot(velocities, slope, color=colour, label=f"derivative, {name}")
    panels[0].plot(velocities, exact, color="black", lw=1, ls="--", label="steps of 0.1 ms")
    panels[1].plot(velocities, truth, color="black", lw=1, ls="--", label="slope, steps of 0.1 ms")
    panels[0].set(xlabel="initial velocity (m/s)", ylabel="height after a second (m)")
    panels[1].set(xlabel="initial velocity (m/s)", ylabel="derivative (s)")
    for panel in panels:
        panel.legend(fontsize=8)
    figure.savefig(options.out / "landscapes.png", dpi=110)

    error = {name: float(np.sqrt(np.mean((slope - truth) ** 2))) for name, (_, slope), _ in rows}
    result(plain_error=error["steps of 4 ms"], split_error=error["steps of 4 ms, split"], truth=float(np.std(truth)))


if __name__ == "__main__":
    main()
