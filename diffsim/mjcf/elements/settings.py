"""Settings of the whole model: compiler, option, size and statistic; custom fields and keyframes.

Repeated sections of settings are merged, and the last value of each attribute counts. Source: MuJoCo XML reference,
"compiler", "option", "size", "statistic", "custom", "keyframe"; mj_defaultOption and mjs_defaultSpec.
"""

import re
from dataclasses import dataclass
from typing import Any, ClassVar

from diffsim.base.enums import Cone, DisableBit, EnableBit, Integrator, Jacobian, LRMode, ObjType, Solver
from diffsim.base.errors import Problems
from diffsim.mjcf.attributes import (
    AutoFlag,
    Flag,
    Integer,
    Integers,
    IntVector,
    Keyword,
    Name,
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
from diffsim.mjcf.schema import Element, allow

LENGTHRANGE_MODES = keywords(LRMode)
INTEGRATORS = keywords(Integrator, EULER="Euler", RK4="RK4")
CONES = keywords(Cone)
JACOBIANS = keywords(Jacobian)
SOLVERS = keywords(Solver, PGS="PGS", CG="CG", NEWTON="Newton")

# groups 0 to 30 fit into the bit mask opt.disableactuator
LARGEST_ACTUATOR_GROUP = 30

# largest number of elements of any array: a larger one is a mistake or an attack
MOST_NUMBERS = 10_000_000


@dataclass(eq=False)
class LengthRange(Element):
    """How the compiler finds length ranges of actuators by simulation."""

    mode: LRMode = Keyword(LENGTHRANGE_MODES, "muscle")
    useexisting: bool = Flag(True)
    uselimit: bool = Flag(False)
    accel: float = Real(20)
    maxforce: float = Real(0)
    timeconst: float = Real(1)
    timestep: float = Real(0.01)
    inttotal: float = Real(10)
    interval: float = Real(2)
    tolrange: float = Real(0.05)


@dataclass(eq=False)
class Compiler(Element):
    """Settings of the compiler; they apply to the whole model wherever they appear."""

    autolimits: bool = Flag(True)
    boundmass: float = Real(0)
    boundinertia: float = Real(0)
    settotalmass: float = Real(-1)
    balanceinertia: bool = Flag(False)
    strippath: bool = Flag(False)
    coordinate: str = Keyword({"local": "local", "global": "global"}, "local")
    angle: str = Keyword({"radian": "radian", "degree": "degree"}, "degree")
    fitaabb: bool = Flag(False)
    eulerseq: str = Text("xyz", length=3, letters="xyzXYZ")
    meshdir: str | None = Text()
    texturedir: str | None = Text()
    assetdir: str | None = Text()
    discardvisual: bool = Flag(False)
    usethread: bool = Flag(True)
    fusestatic: bool = Flag(False)
    inertiafromgeom: Tristate = AutoFlag()
    inertiagrouprange: IntVector = Integers(2, (0, 5))
    saveinertial: bool = Flag(False)
    alignfree: bool = Flag(False)

    @property
    def degree(self) -> bool:
        """Whether angles in the file are degrees."""
        return self.angle == "degree"

    def folder(self, setting: str) -> str:
        """The folder that a setting names, such as `meshdir`; `assetdir` if it is not set."""
        return getattr(self, setting, None) or self.assetdir or ""

    def check(self, problems: Problems) -> None:
        if self.coordinate == "global":
            hint = "load and save the model with MuJoCo 2.3.3 to convert it"
            problems.add(self, "global coordinates were removed from MJCF", hint)


@dataclass(eq=False)
class Flags(Element):
    """Switches of the physics. The flags in DISABLE are on by default, the flags in ENABLE are off by default."""

    DISABLE: ClassVar[dict[str, DisableBit]] = {bit.name.lower(): bit for bit in DisableBit if bit.name}
    ENABLE: ClassVar[dict[str, EnableBit]] = {bit.name.lower(): bit for bit in EnableBit if bit.name}

    constraint: bool = Flag(True, ("disable", "enable"))
    equality: bool = Flag(True, ("disable", "enable"))
    frictionloss: bool = Flag(True, ("disable", "enable"))
    limit: bool = Flag(True, ("disable", "enable"))
    contact: bool = Flag(True, ("disable", "enable"))
    spring: bool = Flag(True, ("disable", "enable"))
    damper: bool = Flag(True, ("disable", "enable"))
    gravity: bool = Flag(True, ("disable", "enable"))
    clampctrl: bool = Flag(True, ("disable", "enable"))
    warmstart: bool = Flag(True, ("disable", "enable"))
    filterparent: bool = Flag(True, ("disable", "enable"))
    actuation: bool = Flag(True, ("disable", "enable"))
    refsafe: bool = Flag(True, ("disable", "enable"))
    sensor: bool = Flag(True, ("disable", "enable"))
    midphase: bool = Flag(True, ("disable", "enable"))
    eulerdamp: bool = Flag(True, ("disable", "enable"))
    autoreset: bool = Flag(True, ("disable", "enable"))
    nativeccd: bool = Flag(True, ("disable", "enable"))
    island: bool = Flag(True, ("disable", "enable"))
    multiccd: bool = Flag(True, ("disable", "enable"))
    override: bool = Flag(False, ("disable", "enable"))
    energy: bool = Flag(False, ("disable", "enable"))
    fwdinv: bool = Flag(False, ("disable", "enable"))
    invdiscrete: bool = Flag(False, ("disable", "enable"))
    sleep: bool = Flag(False, ("disable", "enable"))

    @property
    def disableflags(self) -> DisableBit:
        """opt.disableflags: the bit mask of disabled features."""
        return sum((bit for name, bit in self.DISABLE.items() if getattr(self, name) is False), DisableBit(0))

    @property
    def enableflags(self) -> EnableBit:
        """opt.enableflags: the bit mask of enabled features."""
        return sum((bit for name, bit in self.ENABLE.items() if getattr(self, name)), EnableBit(0))


@dataclass(eq=False)
class Option(Element):
    """Settings of the simulation, MuJoCo's mjOption."""

    timestep: float = Real(0.002, above=0)
    impratio: float = Real(1)
    tolerance: float = Real(1e-8)
    ls_tolerance: float = Real(0.01)
    noslip_tolerance: float = Real(1e-6)
    ccd_tolerance: float = Real(1e-6)
    sleep_tolerance: float = Real(1e-4)
    gravity: Vector = Reals(3, (0, 0, -9.81))
    wind: Vector = Reals(3, (0, 0, 0))
    magnetic: Vector = Reals(3, (0, -0.5, 0))
    density: float = Real(0)
    viscosity: float = Real(0)
    o_margin: float = Real(0)
    o_solref: Vector = Solref()
    o_solimp: Vector = Solimp()
    o_friction: Vector = Reals(5, (1, 1, 0.005, 0.0001, 0.0001), fewest=1)
    integrator: Integrator = Keyword(INTEGRATORS, "Euler")
    cone: Cone = Keyword(CONES, "pyramidal")
    jacobian: Jacobian = Keyword(JACOBIANS, "auto")
    solver: Solver = Keyword(SOLVERS, "Newton")
    iterations: int = Integer(100, least=0)
    ls_iterations: int = Integer(50, least=0)
    noslip_iterations: int = Integer(0, least=0)
    ccd_iterations: int = Integer(35, least=0)
    sdf_iterations: int = Integer(10, least=0)
    sdf_initpoints: int = Integer(40, least=0)
    actuatorgroupdisable: IntVector | None = Integers(None, least=0, most=LARGEST_ACTUATOR_GROUP)

    @property
    def disableactuator(self) -> int:
        """opt.disableactuator: the bit mask of disabled actuator groups."""
        groups = self.actuatorgroupdisable
        return sum({1 << int(group) for group in groups}) if groups is not None else 0


# a number of bytes, with or without a unit; -1 for automatic
_MEMORY = re.compile(r"\s*(-1|\d{1,20}[KMGTPE]?)\s*", re.IGNORECASE)


def _user(default: int = -1) -> Any:
    """An attribute: the number of user values of each object of a kind; -1 for the largest number that one gives."""
    return Integer(default, least=-1)


@dataclass(eq=False)
class Size(Element):
    """Sizes that do not follow from the model. njmax, nconmax and nstack are MuJoCo's older memory limits."""

    alternatives = (("memory", "njmax"), ("memory", "nstack"))

    memory: str = Text("-1")
    njmax: int = Integer(-1, least=-1)
    nconmax: int = Integer(-1, least=-1)
    nstack: int = Integer(-1, least=-1)
    nuserdata: int = Integer(0, least=0, most=MOST_NUMBERS)
    nkey: int = Integer(0, least=0, most=MOST_NUMBERS)
    nuser_body: int = _user()
    nuser_jnt: int = _user()
    nuser_geom: int = _user()
    nuser_site: int = _user()
    nuser_cam: int = _user()
    nuser_tendon: int = _user()
    nuser_actuator: int = _user()
    nuser_sensor: int = _user()

    def check(self, problems: Problems) -> None:
        if self.memory is not None and not _MEMORY.fullmatch(self.memory):
            problems.add(
                self,
                f"attribute 'memory': '{self.memory[:40]}' is not a size",
                "write a number of bytes, or for example 16M",
            )


@dataclass(eq=False)
class Statistic(Element):
    """Statistics that replace the computed ones; meaninertia scales the tolerances of the solver."""

    meaninertia: float | None = Real()
    meanmass: float | None = Real()
    meansize: float | None = Real()
    extent: float | None = Real(above=0)
    center: Vector | None = Reals(3)


allow(Compiler, {"lengthrange": LengthRange}, once=["lengthrange"])
allow(Option, {"flag": Flags}, once=["flag"])


# types of objects that can be named in a file
OBJECTS = {
    kind.name.lower(): kind
    for kind in ObjType
    if kind not in (ObjType.UNKNOWN, ObjType.FRAME, ObjType.DEFAULT, ObjType.MODEL)
}

# largest number of values in one custom numeric (MuJoCo's limit)
MOST_NUMERIC = 500


@dataclass(eq=False)
class Numeric(Element):
    """Numbers for the user; zeros are appended up to `size`."""

    name: str = Name("numeric", required=True)
    size: int | None = Integer(least=1, most=MOST_NUMERIC)
    data: Vector | None = Reals(None)

    def check(self, problems: Problems) -> None:
        count = 0 if self.data is None else len(self.data)
        if self.size is None and not 1 <= count <= MOST_NUMERIC:
            problems.add(self, f"needs 1 to {MOST_NUMERIC} numbers in attribute 'data', or attribute 'size'")
        elif self.size is not None and count > self.size:
            problems.add(self, f"attribute 'data': takes at most size = {self.size} numbers, {count} given")


@dataclass(eq=False)
class CustomText(Element):
    """Text for the user."""

    name: str = Name("text", required=True)
    data: str = Text(required=True)

    def check(self, problems: Problems) -> None:
        if self.data == "":
            problems.add(self, "attribute 'data': cannot be empty")


@dataclass(eq=False)
class Tuple(Element):
    """A list of objects for the user."""

    name: str = Name("tuple", required=True)


@dataclass(eq=False)
class TupleElement(Element):
    """One object of a tuple."""

    objtype: ObjType = Keyword(OBJECTS, required=True)
    objname: str = Reference(by="objtype", required=True)
    prm: float = Real(0)


@dataclass(eq=False)
class Key(Element):
    """A keyframe: a state to start from. Values that it does not give come from the initial state."""

    name: str | None = Name("key")
    time: float = Real(0)
    qpos: Vector | None = Reals(None)
    qvel: Vector | None = Reals(None)
    act: Vector | None = Reals(None)
    mpos: Vector | None = Reals(None)
    mquat: Vector | None = Reals(None)
    ctrl: Vector | None = Reals(None)


allow(Tuple, {"element": TupleElement})
