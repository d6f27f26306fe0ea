"""A plate keeps a ball bouncing: it restores the energy of each bounce and steers the ball back to the center."""

import jax.numpy as jnp
from common import MODELS, arguments, planned

import diffsim
from diffsim import optimize, viz
from diffsim.optimize import costs


def main() -> None:
    """Plans the motion and makes a film."""
    options = arguments(__doc__, steps=160, seconds=60)
    model = diffsim.load(MODELS / "juggle.xml")
    ball, height = model.body("ball"), 0.4

    def off(state: diffsim.State, data: diffsim.Data) -> jnp.ndarray:
        place, speed = ball.xpos(data), state.qvel[3:]
        apex = place[2] + speed[2] ** 2 / (2 * 9.81)
        return jnp.stack([place[0] / 0.05, place[1] / 0.05, speed[0] / 0.3, speed[1] / 0.3, (apex - height) / 0.05])

    # no final cost: the motion continues
    task = optimize.make_task(
        model,
        running=lambda state, data, ctrl: costs.join(0.2 * off(state, data), costs.effort(ctrl, 2.0)),
    )
    planned(task, diffsim.make_state(model), options, "juggle", viz.View((0, 0, 0.15), 1.1, 90, -15))


if __name__ == "__main__":
    main()
