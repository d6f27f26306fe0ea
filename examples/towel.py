"""A towel falls on a robot's arm, which then lifts and turns. Does the towel stay?

The towel is a cloth of 196 vertices whose edges keep their length, in contact with capsules and a sphere. Prints the
final mean height of the towel above the floor, and the fraction of its vertices that do not lie on the floor.
"""

import jax.numpy as jnp
from common import MODELS, arguments, result, timed

import diffsim
from diffsim import viz


def main() -> None:
    """Simulates the towel and makes a film."""
    options = arguments(__doc__, steps=900)
    model = diffsim.load(MODELS / "towel.xml")
    state = diffsim.make_state(model)

    # the towel falls first; then the arm lifts and turns along half a cosine
    time = model.opt.timestep * jnp.arange(options.steps)
    share = 0.5 - 0.5 * jnp.cos(jnp.pi * jnp.clip((time - 0.7) / 0.9, 0, 1))
    ctrl = jnp.stack([0.8 * share, 0.25 * share], axis=1)
    keep = lambda state, data: (state, data.flexvert_xpos)  # noqa: E731
    (_, (states, places)), seconds = timed(diffsim.jit(lambda ctrl: diffsim.rollout(model, state, ctrl, keep)), ctrl)

    height = places[-1, :, 2]
    view = viz.View(lookat=(0, 0.1, 0.5), distance=2.2, azimuth=140, elevation=-15)
    viz.video(model, states, options.out / "towel.gif", view, fps=20, size=(360, 270))
    result(height=float(jnp.mean(height)), hanging=float(jnp.mean(height > 0.05)), seconds=seconds)


if __name__ == "__main__":
    main()
