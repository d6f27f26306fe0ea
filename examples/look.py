"""How to look at a robot: a picture, a film with a camera that follows, and a page with a player for the browser.

A quadruped trots with hand-made controls. Prints how far it walked, in meters, and the size of the page.
"""

import jax
import jax.numpy as jnp
from common import arguments, result

import diffsim
from diffsim import envs, viewer, viz


def main() -> None:
    """Simulates and draws."""
    options = arguments(__doc__, steps=500, width=480)
    model = diffsim.load(envs.MODELS / "quadruped.xml")
    state, inputs = diffsim.make_state(model, "stand"), diffsim.make_inputs(model, "stand")

    # diagonal legs move together: hips swing, knees lift
    time = jnp.arange(options.steps) * model.opt.timestep
    sides = jnp.array([1.0, -1.0, -1.0, 1.0])
    swing = jnp.zeros((options.steps, model.nu))
    swing = swing.at[:, 1::3].set(0.25 * jnp.cos(12 * time)[:, None] * sides)
    swing = swing.at[:, 2::3].set(-0.5 * jnp.maximum(jnp.sin(12 * time)[:, None] * sides, 0))
    final, states = jax.jit(lambda ctrl: diffsim.rollout(model, state, ctrl))(inputs.ctrl + swing)

    view = viz.View(follow="torso", distance=1.6, azimuth=140)
    size = (options.width, options.width * 9 // 16)
    viz.save(options.out / "look.png", viz.render(model, final, view, size))
    frames = viz.video(model, states, options.out / "look.gif", view, fps=15, size=(size[0] // 2, size[1] // 2))
    page = viewer.to_html(model, states, options.out / "look.html", view)
    result(distance=float(final.qpos[0]), frames=frames, page_bytes=page)


if __name__ == "__main__":
    main()
