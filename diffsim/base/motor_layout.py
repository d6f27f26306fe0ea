"""Where a DC motor keeps its parameters and its states: the one place where this is written (MuJoCo 3.8.1).

The reader of MJCF writes by these names, the compiler counts the states by them, and the physics reads by them.
Torques are forces, and radians metres, where a motor drives a sliding joint or a tendon.
"""

from enum import IntEnum


class MotorGain(IntEnum):
    """Places in gainprm: the circuit and the controller. Gains are those of a controller of position, of velocity."""

    RESISTANCE = 0  # ohm, at the reference temperature
    CONSTANT = 1  # N m / A = V s / rad
    TEMPERATURE_COEFFICIENT = 2  # of the resistance, 1 / K
    REFERENCE_TEMPERATURE = 3  # degrees Celsius
    PROPORTIONAL = 4  # V / rad, V s / rad
    INTEGRAL = 5  # V / (rad s), V / rad
    DERIVATIVE = 6  # V s / rad, of position alone
    MAX_VOLTAGE = 7  # V; 0 for no limit
    INPUT = 8  # a MotorInput


class MotorDynamics(IntEnum):
    """Places in dynprm: time constants and limits of the states."""

    LAG = 0  # of the current, s
    MAX_CURRENT_RATE = 1  # A / s; 0 for no limit
    THERMAL_RESISTANCE = 2  # K / W
    HEAT_CAPACITY = 3  # J / K
    AMBIENT_TEMPERATURE = 4  # degrees Celsius
    BRISTLE_STIFFNESS = 5  # N m / rad
    BRISTLE_DAMPING = 6  # N m s / rad
    MAX_SLEW = 7  # units of the control per second
    MAX_INTEGRAL = 8  # units of the state; 0 for no limit


class MotorBias(IntEnum):
    """Places in biasprm: cogging and friction."""

    COGGING = 0  # N m
    PERIODICITY = 1  # periods per turn
    PHASE = 2  # rad
    COULOMB_FRICTION = 3  # N m
    STATIC_FRICTION = 4  # N m
    STRIBECK_VELOCITY = 5  # rad / s


class MotorInput(IntEnum):
    """What the control of a DC motor stands for: a voltage, or what the motor's controller follows."""

    VOLTAGE = 0
    POSITION = 1
    VELOCITY = 2


class MotorState(IntEnum):
    """The states that a motor may have, in the order of their activations."""

    SLEW = 0  # the last control, in its units
    INTEGRAL = 1  # of the error, rad s; of the control, rad
    TEMPERATURE = 2  # above ambient, K
    BRISTLE = 3  # deflection, rad
    CURRENT = 4  # A


# in the order of MotorState: a motor has the state if this parameter is positive
SWITCHES: tuple[tuple[str, int], ...] = (
    ("dynprm", MotorDynamics.MAX_SLEW),
    ("gainprm", MotorGain.INTEGRAL),
    ("dynprm", MotorDynamics.THERMAL_RESISTANCE),
    ("dynprm", MotorDynamics.BRISTLE_STIFFNESS),
    ("dynprm", MotorDynamics.LAG),
)
