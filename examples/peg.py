"""A peg into a hole with 2 mm of room on either side: down to the bottom, upright, past the rim that it catches on."""

from common import MODELS, arguments, planned

import diffsim
from diffsim import optimize, viz
from diffsim.optimize import costs


def main() -> None:
    """Plans and films."""
    options = arguments(__doc__, steps=100, seconds=60)
    model = diffsim.load(MODELS / "peg.xml")
    peg = model.body("peg")
    task = optimize.make_task(
        model,
        running=lambda state, data, ctrl: costs.effort(ctrl, 5.0),
        final=lambda state, data: costs.pose(data, peg, (0, 0, 0.1), (1, 0, 0, 0), metres=0.02, radians=0.2),
    )
    state = diffsim.make_state(model, "start")
    planned(task, state, options, "peg", viz.View((-0.05, 0, 0.2), 1.1, 90, -12))


if __name__ == "__main__":
    main()
