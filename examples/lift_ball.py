"""Two fingers of two links squeeze a ball and lift it by 15 cm."""

from common import MODELS, arguments, planned

import diffsim
from diffsim import optimize, viz
from diffsim.optimize import costs


def main() -> None:
    """Plans and films."""
    options = arguments(__doc__, steps=100, seconds=60)
    model = diffsim.load(MODELS / "lift_ball.xml")
    ball = model.body("ball")
    task = optimize.make_task(
        model,
        running=lambda state, data, ctrl: costs.effort(ctrl, 30.0),
        final=lambda state, data: costs.join(
            costs.pose(data, ball, pos=(0, 0, 0.23), metres=0.02), costs.slow(state, 2.0)
        ),
    )
    state = diffsim.make_state(model, "start")
    planned(task, state, options, "lift_ball", viz.View((0, 0, 0.25), 1.3, 90, -12))


if __name__ == "__main__":
    main()
