"""Contact pairs and exclusions; equality constraints.

A default class keeps only the attributes that all equality constraints share. To add a constraint, write a class and
add its tag to `TAGS`. The property `data` gives eq_data (11,):

    connect         [0:3] anchor on the first body, [3:6] anchor on the second body
    weld            [0:3] anchor on the second body, [3:6] anchor on the first body,
                    [6:10] relative orientation (all zero: as in qpos0), [10] torque scale
    joint, tendon   [0:5] coefficients of the polynomial

`simulate.constants` completes the numbers that depend on poses.
Source: MuJoCo XML reference, "contact" and "equality"; mjModel's eq_data.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from diffsim.base.enums import EqType, ObjType
from diffsim.base.errors import Problems
from diffsim.mjcf.attributes import (
    Class,
    Flag,
    Integer,
    Integers,
    IntVector,
    Name,
    Real,
    Reals,
    Reference,
    Solimp,
    Solref,
    Vector,
)
from diffsim.mjcf.schema import Element


@dataclass(eq=False)
class Pair(Element):
    """Two geoms that collide regardless of contype and conaffinity, with contact parameters of their own."""

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


# the two objects of a constraint: their type, their kind, and both names
Ends = tuple[ObjType, str, str | None, str | None]

# default coefficients: y = x
POLYNOMIAL = (0.0, 1.0, 0.0, 0.0, 0.0)


@dataclass(eq=False)
class Equality(Element):
    """Attributes that all equality constraints have."""

    default_key = "equality"

    name: str | None = Name("equality")
    class_: str | None = Class()
    active: bool = Flag(True)
    solref: Vector = Solref()
    solimp: Vector = Solimp()

    @property
    def type(self) -> EqType:
        """The type of the constraint."""
        return EqType[self.tag.upper()]

    @property
    def ends(self) -> Ends:
        """The two objects of the constraint."""
        raise NotImplementedError

    @property
    def data(self) -> np.ndarray:
        """eq_data (11,) as the file gives it; MuJoCo's defaults are 1 at [1] and [10], and 0 elsewhere."""
        data = np.zeros(11)
        data[1] = data[10] = 1.0
        return data


@dataclass(eq=False)
class BodyEquality(Equality):
    """A constraint between two bodies or two sites; body2 is the world by default."""

    body1: str | None = Reference("body")
    body2: str | None = Reference("body")
    site1: str | None = Reference("site")
    site2: str | None = Reference("site")

    @property
    def ends(self) -> Ends:
        """Sites if they are given, else bodies."""
        if self.site1 is not None:
            return ObjType.SITE, "site", self.site1, self.site2
        return ObjType.BODY, "body", self.body1, self.body2


def _check_ends(element: Equality, problems: Problems, body: Sequence[str], needed: Sequence[str]) -> None:
    """Notes an error unless the constraint is given by two sites, or by bodies, but not by both.

    body: attributes that only a constraint given by bodies has; `needed`: the attributes among them that it must have.
    """
    sites = [name for name in ("site1", "site2") if getattr(element, name) is not None]
    bodies = [name for name in body if getattr(element, name) is not None]
    hint = f"give {' and '.join(needed)}, or site1 and site2"
    if sites and bodies:
        problems.add(element, f"attributes '{sites[0]}' and '{bodies[0]}' cannot both be given", hint)
    elif len(sites) < 2 and not all(name in bodies for name in needed):
        problems.add(element, "does not say what it constrains", hint)


@dataclass(eq=False)
class Connect(BodyEquality):
    """Two bodies that share a point: a ball joint outside the kinematic tree."""

    anchor: Vector | None = Reals(3)

    def check(self, problems: Problems) -> None:
        _check_ends(self, problems, ("body1", "body2", "anchor"), ("body1", "anchor"))

    @property
    def data(self) -> np.ndarray:
        """The anchor on the first body."""
        data = super().data
        if self.anchor is not None:
            data[:3] = self.anchor
        return data


@dataclass(eq=False)
class Weld(BodyEquality):
    """Two bodies that keep their relative pose: `relpose`, by default the pose at qpos0."""

    relpose: Vector | None = Reals(7)
    anchor: Vector | None = Reals(3)
    torquescale: float = Real(1)

    def check(self, problems: Problems) -> None:
        _check_ends(self, problems, ("body1", "body2", "anchor", "relpose"), ("body1",))

    @property
    def data(self) -> np.ndarray:
        """Anchor, relative pose and torque scale."""
        data = super().data
        if self.body1 is not None:
            data[:3] = self.anchor if self.anchor is not None else 0.0
            data[3:10] = self.relpose if self.relpose is not None else 0.0
        data[10] = self.torquescale
        return data


@dataclass(eq=False)
class PolynomialEquality(Equality):
    """One length or angle as a polynomial of another."""

    polycoef: Vector = Reals(5, POLYNOMIAL, fewest=1)

    @property
    def data(self) -> np.ndarray:
        """The polynomial."""
        data = super().data
        data[:5] = self.polycoef
        return data


@dataclass(eq=False)
class JointEquality(PolynomialEquality):
    """The position of one scalar joint as a polynomial of another's."""

    joint1: str = Reference("joint", required=True)
    joint2: str | None = Reference("joint")

    @property
    def ends(self) -> Ends:
        """Two joints."""
        return ObjType.UNKNOWN, "joint", self.joint1, self.joint2


@dataclass(eq=False)
class TendonEquality(PolynomialEquality):
    """The length of one tendon as a polynomial of another's."""

    tendon1: str = Reference("tendon", required=True)
    tendon2: str | None = Reference("tendon")

    @property
    def ends(self) -> Ends:
        """Two tendons."""
        return ObjType.UNKNOWN, "tendon", self.tendon1, self.tendon2


@dataclass(eq=False)
class FlexEquality(Equality):
    """A constraint on the edges or vertices of a flex."""

    flex: str = Reference("flex", required=True)

    @property
    def ends(self) -> Ends:
        """One flex."""
        return ObjType.UNKNOWN, "flex", self.flex, None


@dataclass(eq=False)
class FlexStrain(FlexEquality):
    """A constraint on the strain of one cell of a flex; for a shell, `cell` is (number of a face, -1, -1)."""

    cell: IntVector | None = Integers(3)

    @property
    def data(self) -> np.ndarray:
        """The cell."""
        data = super().data
        if self.cell is not None:
            data[:3] = self.cell
        return data


TAGS: dict[str, type[Element]] = {
    "connect": Connect,
    "weld": Weld,
    "joint": JointEquality,
    "tendon": TendonEquality,
    "flex": FlexEquality,
    "flexvert": FlexEquality,
    "flexstrain": FlexStrain,
}
