"""What MJCF has and the physics has not, said at load with file, line, element and reason.

Rooms keep tables of what they can do (pairs of geoms, sensors, transmissions); those are asked, so that a feature is
known here as soon as it has its row there. `GAPS` and `OPTIONS` hold what no table says; a row is deleted when its
feature lands. Elements and attributes that are refused as they are read say so in their own classes (`unsupported`).
"""

from collections.abc import Callable
from dataclasses import dataclass

from diffsim.actuator.laws import torn_apart
from diffsim.actuator.transmission import TRANSMISSIONS
from diffsim.collision import unsupported_pairs
from diffsim.compiler.draft import Draft, Node
from diffsim.sensor import unsupported_sensors
from diffsim.simulate.sleep import SLEEPLESS, sleepless_equalities
from diffsim.types.model import Model


@dataclass(frozen=True)
class Gap:
    """Objects of `kind` for which `lacks` holds cannot be simulated, for a reason that the user is told."""

    kind: str
    lacks: Callable[[Node], object]
    reason: str


GAPS: tuple[Gap, ...] = (
    Gap("actuator", lambda node: node.e.target[0] not in TRANSMISSIONS, "this transmission is not supported yet"),
    Gap(
        "actuator",
        lambda node: torn_apart(node.e.dyntype, node.e.gaintype, node.e.biastype),
        "its dynamics, gain and bias only work together: give all three the same type",
    ),
)


def check_elements(draft: Draft) -> None:
    """Note every element that diffsim cannot compile or simulate."""
    for gap in GAPS:
        for node in draft.nodes[gap.kind]:
            if gap.lacks(node):
                draft.problems.unsupported(node.source, gap.reason)


def check_model(draft: Draft, model: Model) -> None:
    """Note what only shows in the compiled model: what cannot sleep, sensors, pairs of geoms that may touch."""
    for equality, reason in sleepless_equalities(model):
        draft.problems.unsupported(draft.nodes["equality"][equality].source, reason, SLEEPLESS)
    for sensor, reason in unsupported_sensors(model.topology):
        draft.problems.unsupported(draft.nodes["sensor"][sensor].source, reason)
    # one finding for each two types of geoms that may touch and that diffsim cannot collide
    for pair in unsupported_pairs(model.topology, model.opt.disableflags):
        first, second = (draft.nodes["geom"][geom].source for geom in (pair.geom1, pair.geom2))
        message = f"contact with {second.label} at line {second.line}: {pair.reason}"
        draft.problems.unsupported(first, message, pair.hint)
