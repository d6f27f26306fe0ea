"""A finger slides a free box over a table to a position; only gravity, friction and contacts hold the box."""

from common import MODELS, arguments, planned

import diffsim
from diffsim import optimize, viz
from diffsim.optimize import costs


def main() -> None:
    """Plans the motion and makes a film."""
    options = arguments(__doc__, steps=120, seconds=60)
    model = diffsim.load(MODELS / "slide_box.xml")
    box = model.body("box")
    task = optimize.make_task(
        model,
        running=lambda state, data, ctrl: costs.effort(ctrl, 10.0),
        final=lambda state, data: costs.pose(data, box, (-0.15, 0.1, 0.05), (1, 0, 0, 0), metres=0.03, radians=0.3),
    )
    # the state is the finger's x and y, then x, y, z and a quaternion of the box
    planned(task, diffsim.make_state(model), options, "slide_box", viz.View((0, 0, 0), 1.1, 90, -50))


if __name__ == "__main__":
    main()
