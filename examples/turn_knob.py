"""A finger turns the bar of a knob once around: a plan through contact, tested under noise."""

import jax.numpy as jnp
from common import MODELS, arguments, planned

import diffsim
from diffsim import optimize, viz
from diffsim.optimize import costs


def main() -> None:
    """Plans the motion and makes a film."""
    options = arguments(__doc__, steps=120, seconds=60)
    model = diffsim.load(MODELS / "turn_knob.xml")
    task = optimize.make_task(
        model,
        running=lambda state, data, ctrl: costs.effort(ctrl, 5.0),
        final=lambda state, data: costs.join((state.qpos[2:] - 2 * jnp.pi) / 0.3, costs.slow(state, 2.0)),
    )
    planned(task, diffsim.make_state(model), options, "turn_knob", viz.View((0, 0, 0), 0.6, 90, -65))


if __name__ == "__main__":
    main()
