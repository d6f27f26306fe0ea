"""A leg hops over a gap and stays upright: a plan through contact, found by search and tested under noise."""

from common import MODELS, arguments, planned

import diffsim
from diffsim import optimize, viz
from diffsim.optimize import costs


def main() -> None:
    """Plans the motion and makes a film."""
    options = arguments(__doc__, steps=110, seconds=60)
    model = diffsim.load(MODELS / "hop_gap.xml")
    torso = model.body("torso")
    task = optimize.make_task(
        model,
        running=lambda state, data, ctrl: costs.effort(ctrl, 5.0),
        final=lambda state, data: costs.join(
            costs.pose(data, torso, (0.7, 0, 0.5), (1, 0, 0, 0), metres=0.1, radians=0.3), costs.slow(state, 3.0)
        ),
    )
    planned(task, diffsim.make_state(model), options, "hop_gap", viz.View((0.35, 0, 0.3), 1.7, 90, -10))


if __name__ == "__main__":
    main()
