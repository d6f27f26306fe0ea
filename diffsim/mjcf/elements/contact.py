"""Geom pairs that are always, and body pairs that are never, checked for contact.

Source: MuJoCo XML reference, "contact".
"""

from dataclasses import dataclass

from diffsim.mjcf.attributes import Class, Integer, Name, Real, Reals, Reference, Vector
from diffsim.mjcf.elements.common import Solimp, Solref
from diffsim.mjcf.schema import Element


@dataclass(eq=False)
class Pair(Element):
    """Two geoms that collide whatever their masks say, with parameters of their own."""

    default_key = "pair"

    name: str | None = Name("pair")
    class_: str | None = Class()
    geom1: str = Reference("geom", required=True, defaultable=False)
    geom2: str = Reference("geom", required=True, defaultable=False)
    condim: int = Integer(3)
    friction: Vector = Reals(5, (1, 1, 0.005, 0.0001, 0.0001), fewest=1)
    solref: Vector = Solref()
    solreffriction: Vector = Solref((0, 0))
    solimp: Vector = Solimp()
    gap: float = Real(0)
    margin: float = Real(0)


@dataclass(eq=False)
class Exclude(Element):
    """Two bodies whose geoms do not collide."""

    name: str | None = Name("exclude")
    body1: str = Reference("body", required=True)
    body2: str = Reference("body", required=True)
