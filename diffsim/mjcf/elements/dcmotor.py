"""The DC motor: electrical, thermal and friction parameters packed into the general actuator's parameter vectors.

Layout (MuJoCo 3.8.1):
  gainprm  R, K, alpha, T0, kp, ki, kd, v_max, input
  dynprm   te, (di/dt)_max, RT, C, Ta, sigma0, sigma1, slewmax, Imax
  biasprm  cogging amplitude, periodicity, phase, tau_c, tau_s, omega_s
  act      slew, integral, temperature, bristle, current: those that are there, in this order
Source: MuJoCo XML reference, "dcmotor"; mjs_setToDCMotor of user_api.cc.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from diffsim.enums import BiasType, DynType, GainType
from diffsim.errors import Problems
from diffsim.mjcf.attributes import Keyword, Real, Reals, Tristate, Vector
from diffsim.mjcf.elements.actuator import MOTOR_INPUTS, MOTOR_OMITS, Actuator, with_entries


def _laid_over(own: Vector | None, inherited: list[float]) -> list[float]:
    """The element's own numbers, then the inherited ones that it does not reach."""
    given = [] if own is None else own.tolist()
    return given + inherited[len(given) :]


def _back_emf_constant(nominal: list[float], known: float, resistance: float, viscosity: float) -> float:
    """Ke, from the data sheet (voltage v, stall torque, no-load speed w) if not known: w = v Ke / (Ke^2 + R B)."""
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
    """A brushed DC motor with optional current, slew, integral, thermal and LuGre friction states."""

    omits = MOTOR_OMITS | {"forcelimited", "forcerange"}

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

    def law(self, base: Actuator, problems: Problems) -> dict[str, Any]:
        inherits = base.gaintype is GainType.DCMOTOR
        gain, dynamics, bias = (
            (values.tolist() if inherits else [0.0] * len(values))
            for values in (base.gainprm, base.dynprm, base.biasprm)
        )
        constant, resistance = self._electrical(gain, float(base.damping[0]), problems)
        controller = _laid_over(self.controller, gain[4:7] + dynamics[7:9] + [gain[7]])
        inductance = _laid_over(self.inductance, [0.0, dynamics[0]])
        if min(inductance) < 0:
            problems.add(self, "attribute 'inductance': cannot be negative")
        lag = inductance[0] / resistance if inductance[0] > 0 and resistance > 0 else inductance[1]
        saturation = _laid_over(self.saturation, [0.0, 0.0, dynamics[1]])
        friction = _laid_over(self.lugre, dynamics[5:7] + bias[3:6])
        heat = self._thermal(_laid_over(self.thermal, [*dynamics[2:4], 0.0, *gain[2:4], dynamics[4]]), problems)
        cogging = _laid_over(self.cogging, bias[:3])

        new_gain = {0: resistance, 1: constant, 4: controller[0], 5: controller[1], 6: controller[2]}
        new_gain |= {8: float(gain[8] if self.input is None else self.input)}
        new_gain |= {7: controller[5]} if controller[5] > 0 else {}
        new_dynamics = {0: lag, 7: controller[3], 8: controller[4]}
        new_dynamics |= {1: saturation[2]} if saturation[2] > 0 else {}
        new_bias = dict(enumerate(cogging))
        if heat is not None:
            new_gain |= {2: heat[3], 3: heat[4]}
            new_dynamics |= {2: heat[0], 3: heat[1], 4: heat[5]}
        if friction[0] > 0:
            new_dynamics |= {5: friction[0], 6: friction[1]}
            new_bias |= {3: friction[2], 4: friction[3], 5: friction[4]}
        states = (lag > 0, controller[3] > 0, controller[1] > 0, heat is not None, friction[0] > 0)
        return self._clamp(saturation, constant) | {
            "dyntype": DynType.DCMOTOR,
            "gaintype": GainType.DCMOTOR,
            "biastype": BiasType.DCMOTOR,
            "gainprm": with_entries(base.gainprm, new_gain),
            "dynprm": with_entries(base.dynprm, new_dynamics),
            "biasprm": with_entries(base.biasprm, new_bias),
            "actdim": sum(states),
            "actlimited": Tristate.FALSE,
            "actearly": True,
        }

    def _electrical(self, gain: list[float], viscosity: float, problems: Problems) -> tuple[float, float]:
        """Motor constant K and resistance R, given or derived from the data sheet."""
        torque, emf = _laid_over(self.motorconst, [gain[1], 0.0])
        resistance = gain[0] if self.resistance is None else self.resistance
        nominal = _laid_over(self.nominal, [0.0, 0.0, 0.0])
        emf = _back_emf_constant(nominal, emf, resistance, viscosity)
        constant = math.sqrt(torque * emf) if torque > 0 and emf > 0 else (torque if torque > 0 else emf)
        if resistance == 0 and nominal[0] > 0 and nominal[1] > 0 and constant > 0:
            resistance = constant * nominal[0] / nominal[1]
        if constant <= 0:
            problems.add(self, "the motor constant must be positive", "give motorconst, or nominal")
        if resistance <= 0:
            problems.add(self, "the resistance must be positive", "give resistance, or nominal")
        return constant, resistance

    def _thermal(self, heat: list[float], problems: Problems) -> list[float] | None:
        """Thermal parameters, one of resistance and capacitance filled from the time constant; None without any."""
        if max(heat[:3]) <= 0:
            return None
        resistance, capacitance, lag = heat[:3]
        if lag > 0 and resistance > 0 and capacitance == 0:
            capacitance = lag / resistance
        elif lag > 0 and capacitance > 0 and resistance == 0:
            resistance = lag / capacitance
        if resistance <= 0 or capacitance <= 0:
            hint = "give two of resistance, capacitance, time constant"
            problems.add(self, "attribute 'thermal': resistance and capacitance must be positive", hint)
        return [resistance, capacitance, *heat[2:]]

    def _clamp(self, saturation: list[float], constant: float) -> dict[str, Any]:
        """Force limits from the largest torque, or from the largest current."""
        torque, current, _ = saturation
        if torque <= 0 and current <= 0:
            return {}
        largest = constant * current if torque == 0 else torque
        return {"forcerange": np.array([-largest, largest]), "forcelimited": Tristate.TRUE}
