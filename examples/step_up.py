"""A planar quadruped gets onto a step: a plan through contact, found by search and tested under noise."""

from common import MODELS, arguments, planned

import diffsim
from diffsim import optimize, viz
from diffsim.optimize import costs


def main() -> None:
    """Plans the motion and makes a film."""
    options = arguments(__doc__, steps=160, seconds=90)
    model = diffsim.load(MODELS / "step_up.xml")
    torso = model.body("torso")
    task = optimize.make_task(
        model,
        running=lambda state, data, ctrl: costs.effort(ctrl, 5.0),
        final=lambda state, data: costs.join(
            costs.pose(data, torso, (0.95, 0, 0.45), (1, 0, 0, 0), metres=0.05, radians=0.2),
            state.qpos[3:] / 0.5,
            costs.slow(state, 3.0),
        ),
    )
    planned(task, diffsim.make_state(model), options, "step_up", viz.View((0.5, 0, 0.25), 1.9, 90, -10))


if __name__ == "__main__":
    main()
