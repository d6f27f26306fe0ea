"""Two soft fingers lift an egg.

Each finger is a solid of 60 vertices moved by 8 nodes, four of which the hand holds. Prints the final height of the
egg, m, and the largest force of floor and fingers on it, N.
"""

import jax.numpy as jnp
from common import MODELS, arguments, result, timed

import diffsim
from diffsim import viz


def main() -> None:
    """Simulates the gripper and makes a film."""
    options = arguments(__doc__, steps=400)
    model = diffsim.load(MODELS / "soft_gripper.xml")
    state = diffsim.make_state(model)
    time = model.opt.timestep * jnp.arange(options.steps)
    close, lift = 0.03 * jnp.clip(time / 0.4, 0, 1), 0.15 * jnp.clip((time - 0.6) / 0.6, 0, 1)
    ctrl = jnp.stack([lift, close, close], axis=1)
    body = model.body("egg").id

    keep = lambda state, data: (state, data.cfrc_ext[body, 3:], data.xpos[body, 2])  # noqa: E731
    run = diffsim.jit(lambda ctrl: diffsim.rollout(model, state, ctrl, keep))
    (_, (states, force, height)), seconds = timed(run, ctrl)
    view = viz.View(lookat=(0, 0, 0.15), distance=0.9, azimuth=120, elevation=-12)
    viz.video(model, states, options.out / "soft_gripper.gif", view, fps=25, size=(320, 240))
    result(height=float(height[-1]), force=float(jnp.max(jnp.abs(force))), seconds=seconds)


if __name__ == "__main__":
    main()
