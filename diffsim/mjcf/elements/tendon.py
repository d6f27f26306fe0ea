"""Tendons and their paths.

Source: MuJoCo XML reference, "tendon".
"""

from dataclasses import dataclass

from diffsim.mjcf.attributes import (
    GRAY,
    AutoFlag,
    Class,
    Integer,
    Name,
    Polynomial,
    Real,
    Reals,
    Reference,
    Solimp,
    Solref,
    Tristate,
    Vector,
)
from diffsim.mjcf.schema import Element, allow


@dataclass(eq=False)
class Tendon(Element):
    """Attributes that all tendons have. springlength -1 means the length in the spring reference pose."""

    default_key = "tendon"

    name: str | None = Name("tendon")
    class_: str | None = Class()
    group: int = Integer(0)
    limited: Tristate = AutoFlag()
    # 3.8.1 has false as the default, although its documentation says auto
    actuatorfrclimited: Tristate = AutoFlag(Tristate.FALSE)
    range: Vector = Reals(2, (0, 0), infinite=True)
    actuatorfrcrange: Vector = Reals(2, (0, 0), infinite=True)
    solreflimit: Vector = Solref()
    solimplimit: Vector = Solimp()
    solreffriction: Vector = Solref()
    solimpfriction: Vector = Solimp()
    frictionloss: float = Real(0)
    springlength: Vector = Reals(2, (-1, -1), fewest=1, repeat=True)
    width: float = Real(0.003)
    material: str | None = Reference("material")
    margin: float = Real(0)
    stiffness: Vector = Polynomial()
    damping: Vector = Polynomial()
    armature: float = Real(0)
    rgba: Vector = Reals(4, GRAY)
    user: Vector | None = Reals(None)


@dataclass(eq=False)
class Spatial(Tendon):
    """The shortest path through sites, around geoms, over pulleys."""


@dataclass(eq=False)
class Fixed(Tendon):
    """A weighted sum of joint positions."""

    omits = frozenset({"width", "material", "rgba"})


@dataclass(eq=False)
class WrapSite(Element):
    """A site through which the tendon passes."""

    site: str = Reference("site", required=True)


@dataclass(eq=False)
class WrapGeom(Element):
    """A sphere or cylinder around which the tendon wraps, on the side of `sidesite` if that is given."""

    geom: str = Reference("geom", required=True)
    sidesite: str | None = Reference("site")


@dataclass(eq=False)
class Pulley(Element):
    """A pulley: starts a new branch, whose length is divided by `divisor`."""

    divisor: float = Real(required=True)


@dataclass(eq=False)
class WrapJoint(Element):
    """A joint and its weight in a fixed tendon."""

    joint: str = Reference("joint", required=True)
    coef: float = Real(required=True)


allow(Spatial, {"site": WrapSite, "geom": WrapGeom, "pulley": Pulley})
allow(Fixed, {"joint": WrapJoint})
