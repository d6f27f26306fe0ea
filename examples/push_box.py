"""A finger goes around a box and pushes it to a pose: a plan through contact, found by search, tested under noise."""

from common import MODELS, arguments, planned

import diffsim
from diffsim import optimize, viz
from diffsim.optimize import costs


def main() -> None:
    """Plans the motion and makes a film."""
    options = arguments(__doc__, steps=100, seconds=60)
    model = diffsim.load(MODELS / "push_box.xml")
    box = model.body("box")
    task = optimize.make_task(
        model,
        running=lambda state, data, ctrl: costs.effort(ctrl, 5.0),
        final=lambda state, data: costs.pose(data, box, (0, 0, 0), (1, 0, 0, 0), metres=0.05, radians=0.3),
    )
    state = diffsim.make_state(model, "start")
    planned(task, state, options, "push_box", viz.View((0.1, 0, 0), 1.1, 90, -65))


if __name__ == "__main__":
    main()
