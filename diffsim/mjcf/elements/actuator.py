"""Actuators. Each shortcut (motor, position, ...) is a set of values of the general actuator, computed by its `law`.

Default classes keep one general actuator, into which every shortcut inside `<default>` writes: the last one wins over
the fields that they share. A resolved actuator is therefore always an `Actuator` with all of the general fields.

Source: MuJoCo XML reference, "actuator"; mjs_setTo* of user_api.cc (3.8.1).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from diffsim.enums import BiasType, DynType, GainType, TrnType
from diffsim.errors import Problems
from diffsim.mjcf.elements.common import Polynomial
from diffsim.mjcf.elements.sensor import INTERPOLATIONS
from diffsim.mjcf.schema import (
    AutoFlag,
    Class,
    Element,
    Flag,
    Integer,
    Keyword,
    Name,
    Real,
    Reals,
    Reference,
    Text,
    Tristate,
    Vector,
)

DYNAMICS = {kind.name.lower(): kind for kind in DynType}
GAINS = {kind.name.lower(): kind for kind in GainType}
BIASES = {kind.name.lower(): kind for kind in BiasType}
MOTOR_INPUTS = {"voltage": 0, "position": 1, "velocity": 2}

PARAMETERS = 10
_ONE = (1.0,) + (0.0,) * (PARAMETERS - 1)
_ZERO = (0.0,) * PARAMETERS

# the attribute that names the target of each transmission
TARGETS = {
    "joint": TrnType.JOINT,
    "jointinparent": TrnType.JOINTINPARENT,
    "tendon": TrnType.TENDON,
    "cranksite": TrnType.SLIDERCRANK,
    "site": TrnType.SITE,
    "body": TrnType.BODY,
}

_NOT_IN_DEFAULT = frozenset({*TARGETS, "slidersite", "refsite", "lengthrange"})
_LAW = frozenset({"actdim", "dyntype", "gaintype", "biastype", "dynprm", "gainprm", "biasprm", "actearly"})
_ACT = frozenset({"actlimited", "actrange"})
_MOTOR = _LAW | _ACT | {"body", "inheritrange"}


@dataclass(eq=False)
class Actuator(Element):
    """The general actuator, and what every shortcut becomes."""

    default_key = "general"
    default_omits = _NOT_IN_DEFAULT
    alternatives = (tuple(TARGETS),)
    omits = frozenset({"inheritrange"})

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

    @property
    def target(self) -> tuple[TrnType, str | None]:
        """The transmission and the name of its target."""
        found = [(kind, getattr(self, name)) for name, kind in TARGETS.items() if getattr(self, name) is not None]
        return found[0] if found else (TrnType.UNDEFINED, None)

    def law(self, base: "Actuator", problems: Problems) -> dict[str, Any]:
        """The general fields that this shortcut sets.

        base: the inherited actuator with the attributes laid over it that this element shares with the general one.
        """
        return {}

    def resolved(self, inherited: Element, problems: Problems) -> "Actuator":
        """The general actuator that this one is, with `tag` as in the file."""
        shared = {name: getattr(self, name) for name in Actuator.attributes()}
        place = {"tag": self.tag, "file": self.file, "line": self.line, "parent": self.parent}
        base = Actuator(**shared, **place).over(inherited)
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
                problems.add(self, "attribute 'cranksite' is given but 'slidersite' is missing")
        elif crank:
            problems.add(self, f"attribute '{crank[0]}' is only for actuators with a cranksite")
        if self.refsite is not None and transmission not in (TrnType.SITE, TrnType.UNDEFINED):
            problems.add(self, "attribute 'refsite' is only for actuators with a site")


def _with(vector: Vector, entries: dict[int, float]) -> Vector:
    """`vector` with some entries replaced."""
    changed = vector.copy()
    for index, value in entries.items():
        changed[index] = value
    changed.flags.writeable = False
    return changed


def _or(own: float | None, inherited: float) -> float:
    return float(inherited) if own is None else own


def _not_negative(element: Element, problems: Problems, *names: str) -> None:
    for name in names:
        value = getattr(element, name)
        if value is not None and value < 0:
            problems.add(element, f"attribute '{name}': cannot be negative")


def _no_negative_control(element: Actuator, base: Actuator, problems: Problems) -> None:
    if (base.ctrlrange < 0).any():
        problems.add(element, "attribute 'ctrlrange': cannot be negative for this actuator")


@dataclass(eq=False)
class Motor(Actuator):
    """Force = ctrl."""

    omits = _MOTOR

    def law(self, base: Actuator, problems: Problems) -> dict[str, Any]:
        return {
            "dyntype": DynType.NONE,
            "gaintype": GainType.FIXED,
            "biastype": BiasType.NONE,
            "gainprm": _with(base.gainprm, {0: 1.0}),
        }


@dataclass(eq=False)
class Position(Actuator):
    """Force = kp (ctrl - length) - kv velocity; a positive biasprm[2] stands for dampratio until kv is computed."""

    omits = _LAW | _ACT | {"body"}
    alternatives = (*Actuator.alternatives, ("kv", "dampratio"))

    kp: float | None = Real()
    kv: float | None = Real()
    dampratio: float | None = Real()
    timeconst: float | None = Real()

    def law(self, base: Actuator, problems: Problems) -> dict[str, Any]:
        _not_negative(self, problems, "kv", "dampratio", "timeconst")
        if base.inheritrange > 0 and base.ctrlrange.any():
            problems.add(self, "ctrlrange and inheritrange cannot both be given")
        kp = _or(self.kp, base.gainprm[0])
        damping = {} if self.kv is None else {2: -self.kv}
        damping = damping if self.dampratio is None else {2: self.dampratio}
        result = {
            "gaintype": GainType.FIXED,
            "biastype": BiasType.AFFINE,
            "gainprm": _with(base.gainprm, {0: kp}),
            "biasprm": _with(base.biasprm, {1: -kp, **damping}),
        }
        if self.timeconst is not None:
            result["dynprm"] = _with(base.dynprm, {0: self.timeconst})
            result["dyntype"] = DynType.FILTEREXACT if self.timeconst else DynType.NONE
        return result


@dataclass(eq=False)
class IntVelocity(Position):
    """A position servo whose setpoint is the integral of ctrl, clamped to actrange."""

    omits = _LAW | {"actlimited", "body", "timeconst"}

    def law(self, base: Actuator, problems: Problems) -> dict[str, Any]:
        if base.inheritrange > 0 and base.actrange.any():
            problems.add(self, "actrange and inheritrange cannot both be given")
        return super().law(base, problems) | {"dyntype": DynType.INTEGRATOR, "actlimited": Tristate.TRUE}


@dataclass(eq=False)
class Velocity(Actuator):
    """Force = kv (ctrl - velocity)."""

    omits = _MOTOR

    kv: float | None = Real()

    def law(self, base: Actuator, problems: Problems) -> dict[str, Any]:
        kv = _or(self.kv, base.gainprm[0])
        return {
            "dyntype": DynType.NONE,
            "gaintype": GainType.FIXED,
            "biastype": BiasType.AFFINE,
            "gainprm": _with(base.gainprm, {0: kv}),
            "biasprm": _with(0 * base.biasprm, {2: -kv}),
        }


@dataclass(eq=False)
class Damper(Actuator):
    """Force = -kv ctrl velocity, ctrl >= 0."""

    omits = _MOTOR | {"ctrllimited"}

    kv: float | None = Real()

    def law(self, base: Actuator, problems: Problems) -> dict[str, Any]:
        _not_negative(self, problems, "kv")
        _no_negative_control(self, base, problems)
        return {
            "dyntype": DynType.NONE,
            "gaintype": GainType.AFFINE,
            "biastype": BiasType.NONE,
            "gainprm": _with(0 * base.gainprm, {2: -_or(self.kv, 0.0)}),
            "ctrllimited": Tristate.TRUE,
        }


@dataclass(eq=False)
class Cylinder(Actuator):
    """A pneumatic or hydraulic cylinder: filtered pressure times area. MuJoCo uses only the first entry of `bias`."""

    omits = _MOTOR

    timeconst: float | None = Real()
    area: float | None = Real()
    diameter: float | None = Real()
    bias: Vector | None = Reals(3)

    def law(self, base: Actuator, problems: Problems) -> dict[str, Any]:
        area = _or(self.area, base.gainprm[0])
        if self.diameter is not None and self.diameter >= 0:
            area = math.pi / 4 * self.diameter**2
        bias = base.biasprm[0] if self.bias is None else self.bias[0]
        return {
            "dyntype": DynType.FILTER,
            "gaintype": GainType.FIXED,
            "biastype": BiasType.AFFINE,
            "dynprm": _with(base.dynprm, {0: _or(self.timeconst, base.dynprm[0])}),
            "gainprm": _with(base.gainprm, {0: area}),
            "biasprm": _with(base.biasprm, {0: bias}),
        }


# general default value that means "not set", and the muscle's own default: dynprm[0:2], gainprm[0:9]
_MUSCLE_DYNAMICS = ((1.0, 0.01), (0.0, 0.04))
_MUSCLE_GAIN = (
    (1.0, 0.75),  # range[0]
    (0.0, 1.05),  # range[1]
    (0.0, -1.0),  # force
    (0.0, 200.0),  # scale
    (0.0, 0.5),  # lmin
    (0.0, 1.6),  # lmax
    (0.0, 1.5),  # vmax
    (0.0, 1.3),  # fpmax
    (0.0, 1.2),  # fvmax
)


def _muscle_values(inherited: Vector, unset: tuple[tuple[float, float], ...], own: Sequence[float | None]) -> Vector:
    """Inherited values with the muscle's defaults where they are not set, and the element's own where not negative."""
    entries: dict[int, float] = {}
    for index, ((nothing, usual), value) in enumerate(zip(unset, own, strict=True)):
        before = usual if inherited[index] == nothing else float(inherited[index])
        entries[index] = value if value is not None and value >= 0 else before
    return _with(inherited, entries)


@dataclass(eq=False)
class Muscle(Actuator):
    """A muscle with activation dynamics and force-length-velocity curves; negative numbers mean the default."""

    omits = _MOTOR | {"site", "refsite"}
    default_omits = _NOT_IN_DEFAULT | {"tausmooth"}

    timeconst: Vector | None = Reals(2)
    tausmooth: float | None = Real(least=0)
    range: Vector | None = Reals(2)
    force: float | None = Real()
    scale: float | None = Real()
    lmin: float | None = Real()
    lmax: float | None = Real()
    vmax: float | None = Real()
    fpmax: float | None = Real()
    fvmax: float | None = Real()

    def law(self, base: Actuator, problems: Problems) -> dict[str, Any]:
        timeconst = [None, None] if self.timeconst is None else self.timeconst.tolist()
        reach = [None, None] if self.range is None else self.range.tolist()
        own = [*reach, self.force, self.scale, self.lmin, self.lmax, self.vmax, self.fpmax, self.fvmax]
        gain = _muscle_values(base.gainprm, _MUSCLE_GAIN, own)
        dynamics = _muscle_values(base.dynprm, _MUSCLE_DYNAMICS, timeconst)
        return {
            "dyntype": DynType.MUSCLE,
            "gaintype": GainType.MUSCLE,
            "biastype": BiasType.MUSCLE,
            "dynprm": _with(dynamics, {2: _or(self.tausmooth, base.dynprm[2])}),
            "gainprm": gain,
            "biasprm": _with(base.biasprm, dict(enumerate(gain[:9].tolist()))),
        }


@dataclass(eq=False)
class Adhesion(Actuator):
    """Pulls a body onto whatever its geoms touch."""

    omits = (_MOTOR - {"body"}) | (_NOT_IN_DEFAULT - {"body"})
    omits |= {"ctrllimited", "cranklength", "gear", "damping", "armature"}

    gain: float | None = Real()

    def law(self, base: Actuator, problems: Problems) -> dict[str, Any]:
        _not_negative(self, problems, "gain")
        _no_negative_control(self, base, problems)
        return {
            "gaintype": GainType.FIXED,
            "biastype": BiasType.NONE,
            "gainprm": _with(base.gainprm, {0: _or(self.gain, base.gainprm[0])}),
            "ctrllimited": Tristate.TRUE,
        }


@dataclass(eq=False)
class PluginActuator(Actuator):
    """An actuator whose law a plugin computes."""

    unsupported = "plugins are not supported"
    omits = frozenset({"gaintype", "biastype", "gainprm", "biasprm", "inheritrange", "body", "refsite"})

    plugin: str | None = Text()
    instance: str | None = Reference("plugin")
