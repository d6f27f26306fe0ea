"""The kinematic tree: bodies, frames, joints, geoms, sites, cameras and lights.

Source: MuJoCo XML reference, "body", "inertial", "joint", "freejoint", "geom", "site", "frame",
"replicate", "camera", "light"; defaults of user_init.c.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from diffsim.base.enums import CamLightMode, CamOutBit, GeomType, JointType, LightType, Projection, SleepPolicy
from diffsim.base.errors import Problems
from diffsim.mjcf.attributes import (
    GRAY,
    AutoFlag,
    Class,
    Flag,
    Integer,
    Integers,
    IntVector,
    Keyword,
    Keywords,
    Name,
    Oriented,
    Polynomial,
    Real,
    Reals,
    Reference,
    Solimp,
    Solref,
    Text,
    Tristate,
    Vector,
    keywords,
)
from diffsim.mjcf.schema import Element

SLEEP_POLICIES = keywords((SleepPolicy.AUTO, SleepPolicy.NEVER, SleepPolicy.ALLOWED, SleepPolicy.INIT))
JOINT_TYPES = keywords(JointType)
GEOM_TYPES = keywords(GeomType(kind) for kind in range(GeomType.SDF + 1))


@dataclass(eq=False)
class Body(Oriented):
    """A rigid body, or the world (`tag` is `worldbody`, `name` is `world`)."""

    name: str | None = Name("body")
    childclass: str | None = Reference("default", defaultable=False)
    pos: Vector = Reals(3, (0, 0, 0))
    mocap: bool = Flag(False)
    gravcomp: float = Real(0)
    sleep: SleepPolicy = Keyword(SLEEP_POLICIES, "auto")
    user: Vector | None = Reals(None)

    @property
    def is_world(self) -> bool:
        """Whether this is the world body."""
        return self.tag == "worldbody"

    def check(self, problems: Problems) -> None:
        if self.is_world:
            for child in own_elements(self):
                if isinstance(child, (Inertial, Joint, FreeJoint)):
                    problems.add(child, f"the world body cannot have <{child.tag}>")


def own_elements(body: Element) -> Iterator[Element]:
    """The elements that belong to a body, including those inside frames, but not its child bodies."""
    for child in body.children:
        if isinstance(child, (Frame, Replicate)):
            yield from own_elements(child)
        elif not isinstance(child, Body):
            yield child


@dataclass(eq=False)
class Frame(Oriented):
    """A coordinate transformation that is applied to its children; the compiled model has no frames."""

    name: str | None = Name("frame")
    childclass: str | None = Reference("default", defaultable=False)
    pos: Vector = Reals(3, (0, 0, 0))


@dataclass(eq=False)
class Replicate(Element):
    """`count` copies of its children, each moved from the last by `offset` and `euler`; MuJoCo ignores `prefix`."""

    count: int = Integer(required=True, least=1, most=1_000_000)
    offset: Vector = Reals(3, (0, 0, 0))
    euler: Vector = Reals(3, (0, 0, 0))
    sep: str = Text("")
    prefix: str | None = Text()
    childclass: str | None = Reference("default", defaultable=False)


@dataclass(eq=False)
class Inertial(Oriented):
    """Mass and inertia of a body, used instead of the mass and inertia of its geoms."""

    pos: Vector = Reals(3, required=True)
    mass: float = Real(required=True)
    diaginertia: Vector | None = Reals(3)
    fullinertia: Vector | None = Reals(6)

    def check(self, problems: Problems) -> None:
        turned = [name for name in ("quat", "axisangle", "xyaxes", "zaxis", "euler") if getattr(self, name) is not None]
        if self.fullinertia is not None and turned:
            problems.add(self, f"attributes 'fullinertia' and '{turned[0]}' cannot both be given")


@dataclass(eq=False)
class Joint(Element):
    """A joint between a body and its parent; several joints of one body act in file order."""

    default_key = "joint"

    name: str | None = Name("joint")
    class_: str | None = Class()
    type: JointType = Keyword(JOINT_TYPES, "hinge")
    group: int = Integer(0)
    pos: Vector = Reals(3, (0, 0, 0))
    axis: Vector = Reals(3, (0, 0, 1))
    springdamper: Vector = Reals(2, (0, 0))
    limited: Tristate = AutoFlag()
    actuatorfrclimited: Tristate = AutoFlag()
    solreflimit: Vector = Solref()
    solimplimit: Vector = Solimp()
    solreffriction: Vector = Solref()
    solimpfriction: Vector = Solimp()
    stiffness: Vector = Polynomial()
    range: Vector = Reals(2, (0, 0), infinite=True)
    actuatorfrcrange: Vector = Reals(2, (0, 0), infinite=True)
    actuatorgravcomp: bool = Flag(False)
    margin: float = Real(0)
    ref: float = Real(0)
    springref: float = Real(0)
    armature: float = Real(0)
    damping: Vector = Polynomial()
    frictionloss: float = Real(0)
    user: Vector | None = Reals(None)


@dataclass(eq=False)
class FreeJoint(Element):
    """A free joint; default classes do not apply to it."""

    name: str | None = Name("joint")
    group: int = Integer(0)
    align: Tristate = AutoFlag()

    @property
    def type(self) -> JointType:
        """Which joint it is."""
        return JointType.FREE


@dataclass(eq=False)
class Geom(Oriented):
    """A shape, which collides, has mass and is drawn."""

    default_key = "geom"

    name: str | None = Name("geom")
    class_: str | None = Class()
    type: GeomType = Keyword(GEOM_TYPES, "sphere")
    contype: int = Integer(1)
    conaffinity: int = Integer(1)
    condim: int = Integer(3)
    group: int = Integer(0)
    priority: int = Integer(0)
    size: Vector = Reals(3, (0, 0, 0), fewest=1)
    material: str | None = Reference("material")
    friction: Vector = Reals(3, (1, 0.005, 0.0001), fewest=1)
    mass: float | None = Real()
    density: float = Real(1000)
    shellinertia: bool = Flag(False)
    solmix: float = Real(1)
    solref: Vector = Solref()
    solimp: Vector = Solimp()
    margin: float = Real(0)
    gap: float = Real(0)
    fromto: Vector | None = Reals(6)
    pos: Vector = Reals(3, (0, 0, 0))
    hfield: str | None = Reference("hfield")
    mesh: str | None = Reference("mesh")
    fitscale: float = Real(1)
    rgba: Vector = Reals(4, GRAY)
    fluidshape: bool = Flag(False, ("none", "ellipsoid"))
    fluidcoef: Vector = Reals(5, (0.5, 0.25, 1.5, 1, 1), fewest=1)
    surfacevel: Vector = Reals(6, (0, 0, 0, 0, 0, 0))
    user: Vector | None = Reals(None)


@dataclass(eq=False)
class Site(Oriented):
    """A point of interest on a body, drawn as a shape without mass or collisions."""

    default_key = "site"

    name: str | None = Name("site")
    class_: str | None = Class()
    type: GeomType = Keyword(GEOM_TYPES, "sphere")
    group: int = Integer(0)
    pos: Vector = Reals(3, (0, 0, 0))
    material: str | None = Reference("material")
    size: Vector = Reals(3, (0.005, 0.005, 0.005), fewest=1)
    fromto: Vector | None = Reals(6)
    rgba: Vector = Reals(4, GRAY)
    user: Vector | None = Reals(None)


CAMLIGHT_MODES = keywords(CamLightMode)
PROJECTIONS = keywords(Projection)
CAMERA_OUTPUTS = keywords(CamOutBit, DIST="distance", SEG="segmentation")
LIGHT_TYPES = keywords(LightType)


@dataclass(eq=False)
class Camera(Oriented):
    """A camera; sensors use its pose and projection."""

    default_key = "camera"
    default_omits = frozenset({"target"})
    alternatives = (*Oriented.alternatives, ("fovy", "sensorsize"))

    name: str | None = Name("camera")
    class_: str | None = Class()
    projection: Projection = Keyword(PROJECTIONS, "perspective")
    fovy: float = Real(45)
    ipd: float = Real(0.068)
    resolution: IntVector = Integers(2, (1, 1))
    output: tuple[CamOutBit, ...] = Keywords(CAMERA_OUTPUTS, ("rgb",))
    pos: Vector = Reals(3, (0, 0, 0))
    mode: CamLightMode = Keyword(CAMLIGHT_MODES, "fixed")
    target: str | None = Reference("body")
    focal: Vector | None = Reals(2)
    focalpixel: Vector | None = Reals(2)
    principal: Vector | None = Reals(2)
    principalpixel: Vector | None = Reals(2)
    sensorsize: Vector | None = Reals(2)
    user: Vector | None = Reals(None)


@dataclass(eq=False)
class Light(Element):
    """A light; the physics only computes its pose."""

    default_key = "light"
    default_omits = frozenset({"target", "texture"})
    alternatives = (("directional", "type"),)
    supersede = alternatives

    name: str | None = Name("light")
    class_: str | None = Class()
    directional: bool | None = Flag()
    type: LightType = Keyword(LIGHT_TYPES, "spot")
    castshadow: bool = Flag(True)
    active: bool = Flag(True)
    pos: Vector = Reals(3, (0, 0, 0))
    dir: Vector = Reals(3, (0, 0, -1))
    bulbradius: float = Real(0.02)
    intensity: float = Real(0)
    range: float = Real(10)
    attenuation: Vector = Reals(3, (1, 0, 0))
    cutoff: float = Real(45)
    exponent: float = Real(10)
    ambient: Vector = Reals(3, (0, 0, 0))
    diffuse: Vector = Reals(3, (0.7, 0.7, 0.7))
    specular: Vector = Reals(3, (0.3, 0.3, 0.3))
    mode: CamLightMode = Keyword(CAMLIGHT_MODES, "fixed")
    target: str | None = Reference("body")
    texture: str | None = Reference("texture")

    def resolved(self, inherited: Element, problems: Problems) -> Element:
        filled = self.over(inherited)
        if filled.directional is None:
            return filled
        kind = LightType.DIRECTIONAL if filled.directional else LightType.SPOT
        return filled.replace(type=kind, directional=None)
