"""Equality constraints. A default class keeps only what all of them share.

Source: MuJoCo XML reference, "equality".
"""

from collections.abc import Sequence
from dataclasses import dataclass

from diffsim.enums import EqType
from diffsim.errors import Problems
from diffsim.mjcf.attributes import Class, Flag, Integers, IntVector, Name, Real, Reals, Reference, Vector
from diffsim.mjcf.elements.common import Solimp, Solref
from diffsim.mjcf.schema import Element

POLYNOMIAL = (0.0, 1.0, 0.0, 0.0, 0.0)
NO_FLEX = "flexes are not supported"


@dataclass(eq=False)
class Equality(Element):
    """What every equality constraint has."""

    default_key = "equality"

    name: str | None = Name("equality")
    class_: str | None = Class()
    active: bool = Flag(True)
    solref: Vector = Solref()
    solimp: Vector = Solimp()

    @property
    def type(self) -> EqType:
        """Which constraint it is."""
        return EqType[self.tag.upper()]


def _one_semantics(element: Equality, problems: Problems, body: Sequence[str], needed: Sequence[str]) -> None:
    """Check that the constraint is given either by the `body` attributes, of which some are needed, or by two sites."""
    sites = [name for name in ("site1", "site2") if getattr(element, name) is not None]
    bodies = [name for name in body if getattr(element, name) is not None]
    wanted = f"give {' and '.join(needed)}, or site1 and site2"
    if sites and bodies:
        problems.add(element, f"attributes {sites[0]} and {bodies[0]} cannot both be given", wanted)
    elif len(sites) < 2 and not all(name in bodies for name in needed):
        problems.add(element, "does not say what it connects", wanted)


@dataclass(eq=False)
class Connect(Equality):
    """A point that two bodies share: a ball joint outside the tree. Without body2 the other one is the world."""

    body1: str | None = Reference("body")
    body2: str | None = Reference("body")
    anchor: Vector | None = Reals(3)
    site1: str | None = Reference("site")
    site2: str | None = Reference("site")

    def check(self, problems: Problems) -> None:
        _one_semantics(self, problems, ("body1", "body2", "anchor"), ("body1", "anchor"))


@dataclass(eq=False)
class Weld(Equality):
    """Two bodies that keep their relative pose; without `relpose` the one that they have at qpos0."""

    body1: str | None = Reference("body")
    body2: str | None = Reference("body")
    relpose: Vector | None = Reals(7)
    anchor: Vector | None = Reals(3)
    site1: str | None = Reference("site")
    site2: str | None = Reference("site")
    torquescale: float = Real(1)

    def check(self, problems: Problems) -> None:
        _one_semantics(self, problems, ("body1", "body2", "anchor", "relpose"), ("body1",))


@dataclass(eq=False)
class JointEquality(Equality):
    """The position of one scalar joint as a polynomial of another's."""

    joint1: str = Reference("joint", required=True)
    joint2: str | None = Reference("joint")
    polycoef: Vector = Reals(5, POLYNOMIAL, fewest=1)


@dataclass(eq=False)
class TendonEquality(Equality):
    """The length of one tendon as a polynomial of another's."""

    tendon1: str = Reference("tendon", required=True)
    tendon2: str | None = Reference("tendon")
    polycoef: Vector = Reals(5, POLYNOMIAL, fewest=1)


@dataclass(eq=False)
class FlexEquality(Equality):
    """The edges or vertices of a flex."""

    unsupported = NO_FLEX

    flex: str = Reference("flex", required=True)


@dataclass(eq=False)
class FlexStrain(FlexEquality):
    """The strain of one cell of a flex."""

    unsupported = NO_FLEX

    cell: IntVector | None = Integers(3)
