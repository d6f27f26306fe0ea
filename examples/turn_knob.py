"""A finger of two links turns a round knob by half a turn, by friction alone: it strokes, lifts off, strokes again."""

import jax.numpy as jnp
from common import MODELS, arguments, planned

import diffsim
from diffsim import optimize, viz
from diffsim.optimize import costs


def main() -> None:
    """Plans and films."""
    options = arguments(__doc__, steps=250, seconds=60)
    model = diffsim.load(MODELS / "turn_knob.xml")
    task = optimize.make_task(
        model,
        running=lambda state, data, ctrl: costs.effort(ctrl, 20.0),
        final=lambda state, data: jnp.stack([(state.qpos[2] - jnp.pi) / 0.2, state.qvel[2] / 2.0]),
    )
    state = diffsim.make_state(model, "start")
    planned(task, state, options, "turn_knob", viz.View((-0.05, -0.05, 0), 0.9, 90, -65))


if __name__ == "__main__":
    main()
