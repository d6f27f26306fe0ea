"""What MJCF has and the physics has not: one table, checked at load. A row is deleted when its feature lands.

Rooms that keep tables of what they know (sensors, integrators, ...) are asked for them, so that nothing is listed twice.
"""

from collections.abc import Callable
from dataclasses import dataclass

from diffsim.compiler.draft import Draft, Node
from diffsim.enums import BiasType, DynType, GainType, GeomType, TrnType
from diffsim.mjcf.elements.tendon import Spatial


@dataclass(frozen=True)
class Gap:
    """Objects of `kind` for which `lacks` holds cannot be simulated, for a reason that the user is told."""

    kind: str
    lacks: Callable[[Node], object]
    reason: str


GAPS: tuple[Gap, ...] = (
    Gap("geom", lambda node: node.e.type == GeomType.MESH, "mesh geoms are not supported yet"),
    Gap("geom", lambda node: node.e.type == GeomType.HFIELD, "height fields are not supported yet"),
    Gap("geom", lambda node: node.e.type == GeomType.SDF, "signed distance fields are not supported yet"),
    Gap("geom", lambda node: node.e.mesh and node.e.type != GeomType.MESH, "fitting a shape to a mesh is not supported yet"),
    Gap("tendon", lambda node: isinstance(node.source, Spatial), "spatial tendons are not supported yet"),
    Gap("actuator", lambda node: node.e.target[0] == TrnType.BODY, "adhesion is not supported yet"),
    Gap("actuator", lambda node: node.e.dyntype == DynType.DCMOTOR, "DC motors are not supported yet"),
    Gap("actuator", lambda node: node.e.dyntype == DynType.USER, "user dynamics have no callback here"),
    Gap("actuator", lambda node: node.e.gaintype == GainType.USER, "user gains have no callback here"),
    Gap("actuator", lambda node: node.e.biastype == BiasType.USER, "user biases have no callback here"),
    Gap("actuator", lambda node: node.e.nsample > 0, "delayed controls are not supported yet"),
    Gap("sensor", lambda node: node.e.nsample > 0, "delayed sensors are not supported yet"),
)

# settings of the compiler that would change the model
SETTINGS = {
    "fusestatic": "fusing static bodies is not supported yet",
    "discardvisual": "discarding visual geoms is not supported yet",
}


def check_support(draft: Draft) -> None:
    """Note everything that the model uses and diffsim lacks."""
    for gap in GAPS:
        for node in draft.nodes[gap.kind]:
            if gap.lacks(node):
                draft.problems.unsupported(node.source, gap.reason)
    for name, reason in SETTINGS.items():
        if getattr(draft.spec.compiler, name):
            draft.problems.unsupported(draft.spec.compiler, reason)
