"""Two fingers with two joints each turn a ball in a planar hand by a quarter, in place: a plan tested under noise."""

from common import MODELS, arguments, planned

import diffsim
from diffsim import optimize, viz
from diffsim.optimize import costs


def main() -> None:
    """Plans the motion and makes a film."""
    options = arguments(__doc__, steps=100, seconds=60)
    model = diffsim.load(MODELS / "turn_in_hand.xml")
    ball, quarter = model.body("ball"), (2**-0.5, 0, 2**-0.5, 0)
    task = optimize.make_task(
        model,
        running=lambda state, data, ctrl: costs.effort(ctrl, 10.0),
        final=lambda state, data: costs.join(
            costs.pose(data, ball, (0, 0, 0.06), quarter, metres=0.02, radians=0.2), costs.slow(state, 5.0)
        ),
    )
    planned(task, diffsim.make_state(model), options, "turn_in_hand", viz.View((0, 0, 0.09), 0.6, 90, -15))


if __name__ == "__main__":
    main()
