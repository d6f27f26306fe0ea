"""Attributes that several elements share: orientations, parameters of soft constraints, the words for enums.

Source: MuJoCo XML reference, "Frame orientations" and "Solver parameters".
"""

from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

from diffsim.mjcf.attributes import Reals, Vector
from diffsim.mjcf.schema import Element

ORIENTATIONS = ("quat", "axisangle", "xyaxes", "zaxis", "euler")

SOLREF = (0.02, 1.0)
SOLIMP = (0.9, 0.95, 0.001, 0.5, 2.0)
GRAY = (0.5, 0.5, 0.5, 1.0)


E = TypeVar("E", bound=Enum)


def keywords(enum: type[E], **spelled: str) -> dict[str, E]:
    """The words for the members of an enum: their names in lower case, or as `spelled`."""
    return {spelled.get(member.name, member.name.lower()): member for member in enum}


def Solref(default: tuple[float, float] = SOLREF) -> Any:
    """Time constant and damping ratio, or minus stiffness and minus damping, of a soft constraint."""
    return Reals(2, default, fewest=1)


def Solimp() -> Any:
    """Impedance: smallest, largest, width, midpoint, power."""
    return Reals(5, SOLIMP, fewest=1)


def Polynomial() -> Any:
    """Linear, quadratic and cubic coefficient of a spring or damper."""
    return Reals(3, (0.0, 0.0, 0.0), fewest=1)


@dataclass(eq=False)
class Oriented(Element):
    """An element with a frame: `quat`, or one of its alternatives, which wins (angles as the compiler settings say)."""

    alternatives = (ORIENTATIONS,)
    supersede = (ORIENTATIONS[1:],)

    quat: Vector = Reals(4, (1.0, 0.0, 0.0, 0.0), nonzero=True)
    axisangle: Vector | None = Reals(4)
    xyaxes: Vector | None = Reals(6)
    zaxis: Vector | None = Reals(3)
    euler: Vector | None = Reals(3)
