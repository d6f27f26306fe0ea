"""Two fingers squeeze a ball and lift it: a plan through contact, found by search and tested under noise."""

from common import MODELS, arguments, planned

import diffsim
from diffsim import optimize, viz
from diffsim.optimize import costs


def main() -> None:
    """Plans the motion and makes a film."""
    options = arguments(__doc__, steps=80, seconds=120)
    model = diffsim.load(MODELS / "lift_ball.xml")
    ball = model.body("ball")
    task = optimize.make_task(
        model,
        running=lambda state, data, ctrl: costs.smooth(data, 100.0),
        final=lambda state, data: costs.join(costs.pose(data, ball, (0, 0, 0.3), metres=0.02), costs.slow(state, 0.3)),
    )
    planned(task, diffsim.make_state(model), options, "lift_ball", viz.View((0, 0, 0.2), 1.1, 90, -10))


if __name__ == "__main__":
    main()
