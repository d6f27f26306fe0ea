"""The general actuator, and what its shortcuts (shortcuts.py, dcmotor.py) have in common.

Each shortcut (motor, position, ...) is a set of values of the general actuator; its method `law` computes them.

A default class keeps one general actuator. Every shortcut inside `<default>` writes into it, and the last one
overwrites the fields that they share. Therefore a resolved actuator is always an `Actuator` with all general fields.

Source: MuJoCo XML reference, "actuator"; mjs_setTo* of user_api.cc (3.8.1).
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from diffsim.base.enums import BiasType, DynType, GainType, TrnType
from diffsim.base.errors import Problems
from diffsim.base.motor_layout import MotorInput
from diffsim.mjcf.attributes import (
    AutoFlag,
    Class,
    Flag,
    Integer,
    Keyword,
    Name,
    Polynomial,
    Real,
    Reals,
    Reference,
    Tristate,
    Vector,
    keywords,
)
from diffsim.mjcf.elements.sensor import INTERPOLATIONS
from diffsim.mjcf.schema import Element

DYNAMICS = keywords(DynType)
GAINS = keywords(GainType)
BIASES = keywords(BiasType)
MOTOR_INPUTS = keywords(MotorInput)

# length of dynprm, gainprm and biasprm (mjNDYN, mjNGAIN, mjNBIAS)
PARAMETERS = 10
# MuJoCo's default of dynprm and gainprm
_ONE = (1.0,) + (0.0,) * (PARAMETERS - 1)
# MuJoCo's default of biasprm
_ZERO = (0.0,) * PARAMETERS

# the attribute that names the target, and the transmission that it implies
TARGETS = {
    "joint": TrnType.JOINT,
    "jointinparent": TrnType.JOINTINPARENT,
    "tendon": TrnType.TENDON,
    "cranksite": TrnType.SLIDERCRANK,
    "site": TrnType.SITE,
    "body": TrnType.BODY,
}

# attributes that a default class cannot have, because they belong to one target
TARGET_FIELDS = frozenset({*TARGETS, "slidersite", "refsite", "lengthrange"})
# attributes that only <general> has in XML; shortcuts compute them
LAW_FIELDS = frozenset(
    {
        "actdim",
        "dyntype",
        "gaintype",
        "biastype",
        "dynprm",
        "gainprm",
        "biasprm",
        "actearly",
        "input_",
    }
)
# values of attribute 'input', new in MuJoCo 3.12; with a fixed or affine gain they only name the control
INPUTS = {"pos": 0, "vel": 1, "pressure": 2}
ACTIVATION_LIMITS = frozenset({"actlimited", "actrange"})
# attributes that shortcuts without activation do not have
MOTOR_OMITS = LAW_FIELDS | ACTIVATION_LIMITS | {"body", "inheritrange"}


@dataclass(eq=False)
class Actuator(Element):
    """The general actuator, into which every shortcut is resolved."""

    default_key = "general"
    default_omits = TARGET_FIELDS
    alternatives = (tuple(TARGETS),)
    omits = frozenset({"inheritrange"})
    # the gain of a shortcut, which since MuJoCo 3.16 inherits parameters from laws with this gain; None inherits all
    gain_of_law: ClassVar[GainType | None] = None

    name: str | None = Name("actuator")
    class_: str | None = Class()
    group: int = Integer(0)
    nsample: int = Integer(0)
    interp: int = Keyword(INTERPOLATIONS, "zoh")
    delay: float = Real(0)
    ctrllimited: Tristate = AutoFlag()
    forcelimited: Tristate = AutoFlag()
    actlimited: Tristate = AutoFlag()
    ctrlrange: Vector = Reals(2, (0, 0), infinite=True)
    forcerange: Vector = Reals(2, (0, 0), infinite=True)
    actrange: Vector = Reals(2, (0, 0), infinite=True)
    lengthrange: Vector = Reals(2, (0, 0))
    gear: Vector = Reals(6, (1, 0, 0, 0, 0, 0), fewest=1)
    damping: Vector = Polynomial()
    armature: float = Real(0)
    cranklength: float = Real(0)
    user: Vector | None = Reals(None)
    joint: str | None = Reference("joint")
    jointinparent: str | None = Reference("joint")
    tendon: str | None = Reference("tendon")
    slidersite: str | None = Reference("site")
    cranksite: str | None = Reference("site")
    site: str | None = Reference("site")
    refsite: str | None = Reference("site")
    body: str | None = Reference("body")
    actdim: int = Integer(-1)
    dyntype: DynType = Keyword(DYNAMICS, "none")
    gaintype: GainType = Keyword(GAINS, "fixed")
    biastype: BiasType = Keyword(BIASES, "none")
    dynprm: Vector = Reals(PARAMETERS, _ONE, fewest=1)
    gainprm: Vector = Reals(PARAMETERS, _ONE, fewest=1)
    biasprm: Vector = Reals(PARAMETERS, _ZERO, fewest=1)
    actearly: bool = Flag(False)
    inheritrange: float = Real(0)
    input_: int | None = Keyword(INPUTS)

    @property
    def target(self) -> tuple[TrnType, str | None]:
        """The transmission and the name of its target."""
        targets = ((kind, getattr(self, name)) for name, kind in TARGETS.items() if getattr(self, name) is not None)
        return next(targets, (TrnType.UNDEFINED, None))

    def law(self, base: "Actuator", problems: Problems) -> dict[str, Any]:
        """The general fields that this shortcut computes.

        Args:
          base: the inherited actuator, overwritten by those attributes of this element that <general> has too.
          problems: where errors are noted.
        """
        return {}

    def parameters(self, law: "Actuator") -> dict[str, Any]:
        """Attributes of this shortcut, as the law of a default class has them (since MuJoCo 3.16)."""
        return {}

    def first_law(self, law: "Actuator", plain: "Actuator") -> dict[str, Any]:
        """The general fields from which `law` starts since MuJoCo 3.16: the general actuator's defaults.

        Args:
          law: the actuator from which parameters are inherited.
          plain: the general actuator's defaults.
        """
        return {name: getattr(plain, name) for name in LAW_FIELDS}

    def inherit(self, base: "Actuator", law: "Actuator", plain: "Actuator") -> tuple["Actuator", "Actuator"]:
        """This shortcut with inherited parameters, and the actuator from which it inherits the rest, since MuJoCo 3.16.

        Args:
          base: the actuator of the default class.
          law: the actuator of the nearest class that was written as this shortcut or as `general`.
          plain: the general actuator's defaults.
        """
        given = self.parameters(law) if law.gaintype == self.gain_of_law else {}
        missing = {name: value for name, value in given.items() if getattr(self, name) is None}
        return self.replace(**missing), base.replace(**self.first_law(law, plain))

    def resolved(self, inherited: Element, problems: Problems) -> "Actuator":
        """This actuator as a general actuator, with `tag` as in the file."""
        shared = {name: getattr(self, name) for name in Actuator.attributes()}
        place = {"tag": self.tag, "file": self.file, "line": self.line, "parent": self.parent}
        base = Actuator.of(shared, **place).over(inherited)
        if base.input_ is not None and base.gaintype not in (GainType.FIXED, GainType.AFFINE):
            problems.unsupported(self, "attribute 'input' with this gaintype is new in MuJoCo 3.12, not supported yet")
        return base.replace(**self.law(base, problems))

    def check(self, problems: Problems) -> None:
        if self.parent is not None and self.parent.tag == "default":
            return
        transmission, _ = self.target
        crank = [name for name in ("cranklength", "slidersite") if getattr(self, name) is not None]
        if transmission is TrnType.UNDEFINED:
            names = [name for name in TARGETS if name in self.legal()]
            problems.add(self, "has no transmission target", "give one of " + ", ".join(names))
        elif transmission is TrnType.SLIDERCRANK:
            if self.slidersite is None:
                problems.add(self, "attribute 'cranksite' needs attribute 'slidersite' as well")
        elif crank:
            problems.add(self, f"attribute '{crank[0]}' needs attribute 'cranksite'")
        if self.refsite is not None and transmission not in (TrnType.SITE, TrnType.UNDEFINED):
            problems.add(self, "attribute 'refsite' needs attribute 'site'")


def with_entries(vector: Vector, entries: dict[int, float]) -> Vector:
    """A read-only copy of `vector` with some entries replaced."""
    changed = vector.copy()
    for index, value in entries.items():
        changed[index] = value
    changed.flags.writeable = False
    return changed


def or_inherited(number: float | None, inherited: float) -> float:
    """The number on the element or, if it has none, the inherited number."""
    return float(inherited) if number is None else number


def check_not_negative(element: Element, problems: Problems, *names: str) -> None:
    """Notes each of these attributes that is negative."""
    for name in names:
        value = getattr(element, name)
        if value is not None and value < 0:
            problems.add(element, f"attribute '{name}': cannot be negative")


def check_no_negative_control(element: Actuator, base: Actuator, problems: Problems) -> None:
    """Notes a control range that includes negative values."""
    if (base.ctrlrange < 0).any():
        problems.add(element, "attribute 'ctrlrange': cannot be negative for this actuator")
