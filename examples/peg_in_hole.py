"""A tilted peg in a compliant wrist goes into a hole, whose rim must turn it upright: a plan tested under noise."""

from common import MODELS, arguments, planned

import diffsim
from diffsim import optimize, viz
from diffsim.optimize import costs


def main() -> None:
    """Plans the motion and makes a film."""
    options = arguments(__doc__, steps=100, seconds=60)
    model = diffsim.load(MODELS / "peg_in_hole.xml")
    peg = model.body("peg")
    task = optimize.make_task(
        model,
        running=lambda state, data, ctrl: costs.smooth(data, 100.0),
        final=lambda state, data: costs.pose(data, peg, (0, 0, 0.21), (1, 0, 0, 0), metres=0.02, radians=0.2),
    )
    state = diffsim.make_state(model, "start")
    planned(task, state, options, "peg_in_hole", viz.View((0, 0, 0.18), 0.9, 90, -10))


if __name__ == "__main__":
    main()
