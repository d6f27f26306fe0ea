"""Two soft fingers lift an egg, and how hard they squeeze it.

Each finger is a solid of 60 vertices that 8 nodes move, four of them held by the hand. Prints how high the egg is at
the end, m, and the largest force between it and the fingers, N; with its derivative by Young's modulus of the fingers,
a gradient says how soft they ought to be.
"""

import jax
import jax.numpy as jnp
from common import MODELS, arguments, result

import diffsim
from diffsim import viz


def main() -> None:
    """Simulates, differentiates and films."""
    options = arguments(__doc__, steps=400)
    model = diffsim.load(MODELS / "soft_gripper.xml")
    state = diffsim.make_state(model)
    time = model.opt.timestep * jnp.arange(options.steps)
    close, lift = 0.03 * jnp.clip(time / 0.4, 0, 1), 0.15 * jnp.clip((time - 0.6) / 0.6, 0, 1)
    ctrl = jnp.stack([lift, close, close], axis=1)
    body = model.body("egg").id

    def squeeze(softness: jax.Array) -> tuple[jax.Array, tuple[diffsim.State, jax.Array]]:
        """The largest force on the egg, with fingers as many times as stiff; states, and where the egg ends."""
        changed = diffsim.set_const(model.replace(flex_young=model.flex_young * softness))
        keep = lambda state, data: (state, data.cfrc_ext[body, 3:], data.xpos[body, 2])  # noqa: E731
        states, force, height = diffsim.rollout(changed, state, ctrl, keep)[1]
        return jnp.max(jnp.abs(force)), (states, height[-1])

    (force, (states, height)), slope = diffsim.jit(jax.value_and_grad(squeeze, has_aux=True))(jnp.ones(()))
    view = viz.View(lookat=(0, 0, 0.15), distance=0.9, azimuth=120, elevation=-12)
    viz.video(model, states, options.out / "soft_gripper.gif", view, fps=25, size=(320, 240))
    result(height=float(height), force=float(force), by_stiffness=float(slope))


if __name__ == "__main__":
    main()
