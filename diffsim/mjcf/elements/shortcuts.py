"""Actuator shortcuts: each is a set of values of the general actuator, computed by its method `law`.

The DC motor is in dcmotor.py.

Source: MuJoCo XML reference, "actuator"; mjs_setTo* of user_api.cc (3.8.1).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from diffsim.base.enums import BiasType, DynType, GainType
from diffsim.base.errors import Problems
from diffsim.mjcf.attributes import Real, Reals, Reference, Text, Tristate, Vector
from diffsim.mjcf.elements.actuator import (
    ACTIVATION_LIMITS,
    LAW_FIELDS,
    MOTOR_OMITS,
    TARGET_FIELDS,
    Actuator,
    check_no_negative_control,
    check_not_negative,
    or_inherited,
    with_entries,
)


@dataclass(eq=False)
class Motor(Actuator):
    """Force = ctrl."""

    omits = MOTOR_OMITS
    gain_of_law = GainType.FIXED

    def law(self, base: Actuator, problems: Problems) -> dict[str, Any]:
        return {
            "dyntype": DynType.NONE,
            "gaintype": GainType.FIXED,
            "biastype": BiasType.NONE,
            "gainprm": with_entries(base.gainprm, {0: 1.0}),
        }


@dataclass(eq=False)
class Position(Actuator):
    """Force = kp (ctrl - length) - kv velocity.

    A positive biasprm[2] is a damping ratio until `simulate.constants` computes kv from it.
    """

    omits = LAW_FIELDS | ACTIVATION_LIMITS | {"body"}
    alternatives = (*Actuator.alternatives, ("kv", "dampratio"))
    gain_of_law = GainType.FIXED

    kp: float | None = Real()
    kv: float | None = Real()
    dampratio: float | None = Real()
    timeconst: float | None = Real()

    def parameters(self, law: Actuator) -> dict[str, Any]:
        damping = float(law.biasprm[2])
        damped = self.kv is not None or self.dampratio is not None
        given = {} if damped else {"dampratio": damping} if damping > 0 else {"kv": -damping}
        filtered = law.dyntype is DynType.FILTEREXACT
        return given | {"kp": float(law.gainprm[0])} | ({"timeconst": float(law.dynprm[0])} if filtered else {})

    def law(self, base: Actuator, problems: Problems) -> dict[str, Any]:
        check_not_negative(self, problems, "kv", "dampratio", "timeconst")
        if base.inheritrange > 0 and base.ctrlrange.any():
            problems.add(self, "attributes 'ctrlrange' and 'inheritrange' cannot both be given")
        kp = or_inherited(self.kp, base.gainprm[0])
        damping = {} if self.kv is None else {2: -self.kv}
        damping = damping if self.dampratio is None else {2: self.dampratio}
        result = {
            "gaintype": GainType.FIXED,
            "biastype": BiasType.AFFINE,
            "gainprm": with_entries(base.gainprm, {0: kp}),
            "biasprm": with_entries(base.biasprm, {1: -kp, **damping}),
        }
        if self.timeconst is not None:
            result["dynprm"] = with_entries(base.dynprm, {0: self.timeconst})
            result["dyntype"] = DynType.FILTEREXACT if self.timeconst else DynType.NONE
        return result


@dataclass(eq=False)
class IntVelocity(Position):
    """A position servo; its setpoint is the integral of ctrl, clamped to actrange."""

    omits = LAW_FIELDS | {"actlimited", "body", "timeconst"}

    def parameters(self, law: Actuator) -> dict[str, Any]:
        given = super().parameters(law)
        return {name: value for name, value in given.items() if name != "timeconst"}

    def law(self, base: Actuator, problems: Problems) -> dict[str, Any]:
        if base.inheritrange > 0 and base.actrange.any():
            problems.add(self, "attributes 'actrange' and 'inheritrange' cannot both be given")
        return super().law(base, problems) | {"dyntype": DynType.INTEGRATOR, "actlimited": Tristate.TRUE}


@dataclass(eq=False)
class Velocity(Actuator):
    """Force = kv (ctrl - velocity)."""

    omits = MOTOR_OMITS
    gain_of_law = GainType.FIXED

    kv: float | None = Real()

    def parameters(self, law: Actuator) -> dict[str, Any]:
        return {"kv": float(law.gainprm[0])}

    def law(self, base: Actuator, problems: Problems) -> dict[str, Any]:
        kv = or_inherited(self.kv, base.gainprm[0])
        return {
            "dyntype": DynType.NONE,
            "gaintype": GainType.FIXED,
            "biastype": BiasType.AFFINE,
            "gainprm": with_entries(base.gainprm, {0: kv}),
            "biasprm": with_entries(0 * base.biasprm, {2: -kv}),
        }


@dataclass(eq=False)
class Damper(Actuator):
    """Force = -kv ctrl velocity, ctrl >= 0."""

    omits = MOTOR_OMITS | {"ctrllimited"}
    gain_of_law = GainType.AFFINE

    kv: float | None = Real()

    def parameters(self, law: Actuator) -> dict[str, Any]:
        return {"kv": -float(law.gainprm[2])}

    def law(self, base: Actuator, problems: Problems) -> dict[str, Any]:
        check_not_negative(self, problems, "kv")
        check_no_negative_control(self, base, problems)
        return {
            "dyntype": DynType.NONE,
            "gaintype": GainType.AFFINE,
            "biastype": BiasType.NONE,
            "gainprm": with_entries(0 * base.gainprm, {2: -or_inherited(self.kv, 0.0)}),
            "ctrllimited": Tristate.TRUE,
        }


@dataclass(eq=False)
class Cylinder(Actuator):
    """A pneumatic or hydraulic cylinder: filtered pressure times area. MuJoCo uses only `bias[0]` until 3.16."""

    omits = MOTOR_OMITS
    gain_of_law = GainType.FIXED

    timeconst: float | None = Real()
    area: float | None = Real()
    diameter: float | None = Real()
    bias: Vector | None = Reals(3)

    def parameters(self, law: Actuator) -> dict[str, Any]:
        # the area that a diameter gives counts
        area = {"area": float(law.gainprm[0])} if self.diameter is None else {}
        return area | {"bias": law.biasprm[:3], "timeconst": float(law.dynprm[0])}

    def first_law(self, law: Actuator, plain: Actuator) -> dict[str, Any]:
        bias = law.biasprm[:3] if law.gaintype is GainType.FIXED else plain.biasprm[:3]
        bias = bias if self.bias is None else self.bias
        return super().first_law(law, plain) | {"biasprm": with_entries(plain.biasprm, dict(enumerate(bias.tolist())))}

    def law(self, base: Actuator, problems: Problems) -> dict[str, Any]:
        area = or_inherited(self.area, base.gainprm[0])
        if self.diameter is not None and self.diameter >= 0:
            area = math.pi / 4 * self.diameter**2
        bias = base.biasprm[0] if self.bias is None else self.bias[0]
        return {
            "dyntype": DynType.FILTER,
            "gaintype": GainType.FIXED,
            "biastype": BiasType.AFFINE,
            "dynprm": with_entries(base.dynprm, {0: or_inherited(self.timeconst, base.dynprm[0])}),
            "gainprm": with_entries(base.gainprm, {0: area}),
            "biasprm": with_entries(base.biasprm, {0: bias}),
        }


@dataclass(eq=False)
class Adhesion(Actuator):
    """Pulls a body onto everything that its geoms touch."""

    omits = (MOTOR_OMITS - {"body"}) | (TARGET_FIELDS - {"body"})
    omits |= {"ctrllimited", "cranklength", "gear", "damping", "armature"}

    gain_of_law = GainType.FIXED

    gain: float | None = Real()

    def parameters(self, law: Actuator) -> dict[str, Any]:
        return {"gain": float(law.gainprm[0])}

    def law(self, base: Actuator, problems: Problems) -> dict[str, Any]:
        check_not_negative(self, problems, "gain")
        check_no_negative_control(self, base, problems)
        return {
            "gaintype": GainType.FIXED,
            "biastype": BiasType.NONE,
            "gainprm": with_entries(base.gainprm, {0: or_inherited(self.gain, base.gainprm[0])}),
            "ctrllimited": Tristate.TRUE,
        }


@dataclass(eq=False)
class PluginActuator(Actuator):
    """An actuator whose law a plugin computes."""

    omits = frozenset({"gaintype", "biastype", "gainprm", "biasprm", "inheritrange", "body", "refsite", "input_"})

    plugin: str | None = Text()
    instance: str | None = Reference("plugin")


# For each parameter of a muscle: the general actuator's default, which counts as "not set", and the muscle's own
# default. dynprm[0:2], time constants in s
_MUSCLE_DYNAMICS = (
    (1.0, 0.01),  # of activation
    (0.0, 0.04),  # of deactivation
)
# gainprm[0:9]
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


def _muscle_values(
    inherited: Vector, defaults: tuple[tuple[float, float], ...], values: Sequence[float | None]
) -> Vector:
    """A parameter vector of a muscle.

    Each entry is the element's value if that is given and not negative, else the inherited value if that is set, else
    the muscle's default.

    Args:
      inherited: the inherited parameter vector.
      defaults: for each entry, the value that counts as "not set" and the muscle's default.
      values: the element's own values, None if not given.
    """
    entries: dict[int, float] = {}
    for index, ((not_set, default), value) in enumerate(zip(defaults, values, strict=True)):
        before = default if inherited[index] == not_set else float(inherited[index])
        entries[index] = value if value is not None and value >= 0 else before
    return with_entries(inherited, entries)


@dataclass(eq=False)
class Muscle(Actuator):
    """A muscle with activation dynamics and force-length-velocity curves; a negative number selects the default."""

    omits = MOTOR_OMITS | {"site", "refsite"}
    default_omits = TARGET_FIELDS | {"tausmooth"}
    gain_of_law = GainType.MUSCLE

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

    def parameters(self, law: Actuator) -> dict[str, Any]:
        names = ("force", "scale", "lmin", "lmax", "vmax", "fpmax", "fvmax")
        given: dict[str, Any] = dict(zip(names, law.gainprm[2:9].tolist(), strict=True))
        return given | {"range": law.gainprm[:2], "timeconst": law.dynprm[:2], "tausmooth": float(law.dynprm[2])}

    def law(self, base: Actuator, problems: Problems) -> dict[str, Any]:
        timeconst = [None, None] if self.timeconst is None else self.timeconst.tolist()
        reach = [None, None] if self.range is None else self.range.tolist()
        settings = [*reach, self.force, self.scale, self.lmin, self.lmax, self.vmax, self.fpmax, self.fvmax]
        gain = _muscle_values(base.gainprm, _MUSCLE_GAIN, settings)
        dynamics = _muscle_values(base.dynprm, _MUSCLE_DYNAMICS, timeconst)
        return {
            "dyntype": DynType.MUSCLE,
            "gaintype": GainType.MUSCLE,
            "biastype": BiasType.MUSCLE,
            "dynprm": with_entries(dynamics, {2: or_inherited(self.tausmooth, base.dynprm[2])}),
            "gainprm": gain,
            "biasprm": with_entries(base.biasprm, dict(enumerate(gain[:9].tolist()))),
        }
