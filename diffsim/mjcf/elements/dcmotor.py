"""The DC motor: electrical, thermal and friction parameters, stored in the general actuator's parameter vectors.

`base/motor_layout.py` has the index of each parameter.
Source: MuJoCo XML reference, "dcmotor"; mjs_setToDCMotor of user_api.cc.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from diffsim.base.enums import BiasType, DynType, GainType
from diffsim.base.errors import Problems
from diffsim.base.motor_layout import SWITCHES
from diffsim.base.motor_layout import MotorBias as Bias
from diffsim.base.motor_layout import MotorDynamics as Dynamics
from diffsim.base.motor_layout import MotorGain as Gain
from diffsim.mjcf.attributes import Keyword, Real, Reals, Tristate, Vector
from diffsim.mjcf.elements.actuator import MOTOR_INPUTS, MOTOR_OMITS, Actuator, with_entries

# new values of gainprm, dynprm and biasprm, by index
Entries = dict[str, dict[int, float]]


def _laid_over(vector: Vector | None, inherited: list[float]) -> list[float]:
    """The numbers on the element, completed by the inherited ones."""
    values = [] if vector is None else vector.tolist()
    return values + inherited[len(values) :]


def _back_emf_constant(nominal: list[float], known: float, resistance: float, viscosity: float) -> float:
    """The back-EMF constant Ke, V s / rad: the known one or, if that is 0, from the data sheet.

    `nominal` has the voltage V, the stall torque and the no-load speed w. Without load the motor only overcomes the
    viscous friction B, so w = V Ke / (Ke^2 + R B). Ke is the larger root of w Ke^2 - V Ke + w R B = 0. If R is not
    known, the stall torque K V / R gives R = Ke V / stall, and so Ke = V / w - V B / stall.
    """
    voltage, stall, speed = nominal
    if known > 0 or voltage <= 0 or speed <= 0:
        return known
    without_losses = voltage / speed
    if viscosity > 0 and resistance > 0:
        discriminant = voltage**2 - 4 * resistance * viscosity * speed**2
        return (voltage + math.sqrt(discriminant)) / (2 * speed) if discriminant > 0 else without_losses
    if viscosity > 0 and stall > 0:
        corrected = without_losses - voltage * viscosity / stall
        return corrected if corrected > 0 else without_losses
    return without_losses


@dataclass(eq=False)
class DCMotor(Actuator):
    """A brushed DC motor with optional states for current, slew rate, integral, temperature and LuGre friction."""

    omits = MOTOR_OMITS | {"forcelimited", "forcerange"}
    gain_of_law = GainType.DCMOTOR

    motorconst: Vector | None = Reals(2, fewest=1)
    resistance: float | None = Real()
    nominal: Vector | None = Reals(3, fewest=1)
    saturation: Vector | None = Reals(3, fewest=1)
    inductance: Vector | None = Reals(2, fewest=1)
    cogging: Vector | None = Reals(3, fewest=1)
    controller: Vector | None = Reals(6, fewest=1)
    input: int | None = Keyword(MOTOR_INPUTS)
    thermal: Vector | None = Reals(6, fewest=1)
    lugre: Vector | None = Reals(5, fewest=1)

    def first_law(self, law: Actuator, plain: Actuator) -> dict[str, Any]:
        return super().first_law(law, law if law.gaintype is GainType.DCMOTOR else plain)

    def law(self, base: Actuator, problems: Problems) -> dict[str, Any]:
        inherits = base.gaintype is GainType.DCMOTOR
        gain, dynamics, bias = (
            (values.tolist() if inherits else [0.0] * len(values))
            for values in (base.gainprm, base.dynprm, base.biasprm)
        )
        constant, resistance = self._electrical(gain, float(base.damping[0]), problems)
        saturation = _laid_over(self.saturation, [0.0, 0.0, dynamics[Dynamics.MAX_CURRENT_RATE]])
        new: Entries = {
            "gainprm": {Gain.RESISTANCE: resistance, Gain.CONSTANT: constant},
            "dynprm": {Dynamics.LAG: self._lag(resistance, dynamics[Dynamics.LAG], problems)},
            "biasprm": dict(enumerate(_laid_over(self.cogging, bias[: Bias.PHASE + 1]))),
        }
        if saturation[2] > 0:
            new["dynprm"][Dynamics.MAX_CURRENT_RATE] = saturation[2]
        self._control(new, gain, dynamics)
        self._heat(new, gain, dynamics, problems)
        self._friction(new, dynamics, bias)
        return self._clamp(saturation, constant) | {
            "dyntype": DynType.DCMOTOR,
            "gaintype": GainType.DCMOTOR,
            "biastype": BiasType.DCMOTOR,
            "gainprm": with_entries(base.gainprm, new["gainprm"]),
            "dynprm": with_entries(base.dynprm, new["dynprm"]),
            "biasprm": with_entries(base.biasprm, new["biasprm"]),
            "actdim": sum(new[vector].get(place, 0.0) > 0 for vector, place in SWITCHES),
            "actlimited": Tristate.FALSE,
            "actearly": True,
        }

    def _electrical(self, gain: list[float], viscosity: float, problems: Problems) -> tuple[float, float]:
        """The motor constant K and the resistance R, as given or from the data sheet."""
        torque, emf = _laid_over(self.motorconst, [gain[Gain.CONSTANT], 0.0])
        resistance = gain[Gain.RESISTANCE] if self.resistance is None else self.resistance
        nominal = _laid_over(self.nominal, [0.0, 0.0, 0.0])
        emf = _back_emf_constant(nominal, emf, resistance, viscosity)
        constant = math.sqrt(torque * emf) if torque > 0 and emf > 0 else (torque if torque > 0 else emf)
        if resistance == 0 and nominal[0] > 0 and nominal[1] > 0 and constant > 0:
            resistance = constant * nominal[0] / nominal[1]
        if constant <= 0:
            problems.add(self, "the motor constant must be positive", "give attribute 'motorconst' or 'nominal'")
        if resistance <= 0:
            problems.add(self, "the resistance must be positive", "give attribute 'resistance' or 'nominal'")
        return constant, resistance

    def _lag(self, resistance: float, inherited: float, problems: Problems) -> float:
        """Time constant of the current (s), as given or L / R."""
        inductance, lag = _laid_over(self.inductance, [0.0, inherited])
        if min(inductance, lag) < 0:
            problems.add(self, "attribute 'inductance': cannot be negative")
        return inductance / resistance if inductance > 0 and resistance > 0 else lag

    def _control(self, new: Entries, gain: list[float], dynamics: list[float]) -> None:
        """Meaning of the control, and gains and limits of the controller."""
        inherited = [gain[k] for k in (Gain.PROPORTIONAL, Gain.INTEGRAL, Gain.DERIVATIVE)]
        inherited += [dynamics[Dynamics.MAX_SLEW], dynamics[Dynamics.MAX_INTEGRAL], gain[Gain.MAX_VOLTAGE]]
        kp, ki, kd, slew, integral, voltage = _laid_over(self.controller, inherited)
        new["gainprm"] |= {Gain.PROPORTIONAL: kp, Gain.INTEGRAL: ki, Gain.DERIVATIVE: kd}
        new["gainprm"] |= {Gain.INPUT: float(gain[Gain.INPUT] if self.input is None else self.input)}
        new["gainprm"] |= {Gain.MAX_VOLTAGE: voltage} if voltage > 0 else {}
        new["dynprm"] |= {Dynamics.MAX_SLEW: slew, Dynamics.MAX_INTEGRAL: integral}

    def _heat(self, new: Entries, gain: list[float], dynamics: list[float], problems: Problems) -> None:
        """Thermal parameters, if any are given."""
        inherited = [dynamics[Dynamics.THERMAL_RESISTANCE], dynamics[Dynamics.HEAT_CAPACITY], 0.0]
        inherited += [gain[Gain.TEMPERATURE_COEFFICIENT], gain[Gain.REFERENCE_TEMPERATURE]]
        inherited += [dynamics[Dynamics.AMBIENT_TEMPERATURE]]
        heat = self._thermal(_laid_over(self.thermal, inherited), problems)
        if heat is None:
            return
        resistance, capacity, _, coefficient, reference, ambient = heat
        new["gainprm"] |= {Gain.TEMPERATURE_COEFFICIENT: coefficient, Gain.REFERENCE_TEMPERATURE: reference}
        new["dynprm"] |= {Dynamics.THERMAL_RESISTANCE: resistance, Dynamics.HEAT_CAPACITY: capacity}
        new["dynprm"] |= {Dynamics.AMBIENT_TEMPERATURE: ambient}

    def _friction(self, new: Entries, dynamics: list[float], bias: list[float]) -> None:
        """Parameters of LuGre friction, if any are given."""
        bristles = (Dynamics.BRISTLE_STIFFNESS, Dynamics.BRISTLE_DAMPING)
        curve = (Bias.COULOMB_FRICTION, Bias.STATIC_FRICTION, Bias.STRIBECK_VELOCITY)
        friction = _laid_over(self.lugre, [*(dynamics[k] for k in bristles), *(bias[k] for k in curve)])
        if friction[0] > 0:
            new["dynprm"] |= dict(zip(bristles, friction[:2], strict=True))
            new["biasprm"] |= dict(zip(curve, friction[2:], strict=True))

    def _thermal(self, heat: list[float], problems: Problems) -> list[float] | None:
        """Thermal parameters; the time constant R C gives a missing one of R and C. None if none are given."""
        if max(heat[:3]) <= 0:
            return None
        resistance, capacitance, lag = heat[:3]
        if lag > 0 and resistance > 0 and capacitance == 0:
            capacitance = lag / resistance
        elif lag > 0 and capacitance > 0 and resistance == 0:
            resistance = lag / capacitance
        if resistance <= 0 or capacitance <= 0:
            hint = "give two of resistance, capacitance and time constant"
            problems.add(self, "attribute 'thermal': resistance and capacitance must be positive", hint)
        return [resistance, capacitance, *heat[2:]]

    def _clamp(self, saturation: list[float], constant: float) -> dict[str, Any]:
        """Force limits from the largest torque, or from the largest current times K."""
        torque, current, _ = saturation
        if torque <= 0 and current <= 0:
            return {}
        largest = constant * current if torque == 0 else torque
        return {"forcerange": np.array([-largest, largest]), "forcelimited": Tristate.TRUE}
