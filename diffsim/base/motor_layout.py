"""Where MuJoCo 3.8.1 puts the parameters of a DC motor in gainprm, dynprm and biasprm, and its states in act.

The MJCF reader, the compiler and the physics all use these names. Units are given for a motor on a hinge; on a slide
joint or tendon, torques (N m) become forces (N) and angles (rad) become lengths (m).
"""

from enum import IntEnum


class MotorGain(IntEnum):
    """Indices in gainprm: the circuit and the controller.

    Where a controller's gain has two units, the first is for position control and the second for velocity control.
    """

    RESISTANCE = 0  # ohm, at the reference temperature
    CONSTANT = 1  # N m / A = V s / rad
    TEMPERATURE_COEFFICIENT = 2  # 1 / K, of the resistance
    REFERENCE_TEMPERATURE = 3  # degrees Celsius
    PROPORTIONAL = 4  # V / rad, V s / rad; since MuJoCo 3.12 N m / rad
    INTEGRAL = 5  # V / (rad s), V / rad; since MuJoCo 3.12 N m / (rad s)
    DERIVATIVE = 6  # V s / rad, only of a position controller; since MuJoCo 3.12 N m s / rad
    MAX_VOLTAGE = 7  # V; 0 for no limit
    INPUT = 8  # a MotorInput


class MotorDynamics(IntEnum):
    """Indices in dynprm: time constants and limits of the motor's states."""

    LAG = 0  # s, of the current
    MAX_CURRENT_RATE = 1  # A / s; 0 for no limit
    THERMAL_RESISTANCE = 2  # K / W
    HEAT_CAPACITY = 3  # J / K
    AMBIENT_TEMPERATURE = 4  # degrees Celsius
    BRISTLE_STIFFNESS = 5  # N m / rad
    BRISTLE_DAMPING = 6  # N m s / rad
    MAX_SLEW = 7  # units of the control per second
    MAX_INTEGRAL = 8  # units of the state; 0 for no limit


class MotorBias(IntEnum):
    """Indices in biasprm: cogging and friction."""

    COGGING = 0  # N m
    PERIODICITY = 1  # periods per turn
    PHASE = 2  # rad
    COULOMB_FRICTION = 3  # N m
    STATIC_FRICTION = 4  # N m
    STRIBECK_VELOCITY = 5  # rad / s


class MotorInput(IntEnum):
    """What the control of a DC motor is: a voltage, or the setpoint of its controller.

    The last three are the inputs since MuJoCo 3.12, with a controller that asks for torques. MuJoCo keeps them in
    `actuator_ctrlspec`.
    """

    VOLTAGE = 0
    POSITION = 1
    VELOCITY = 2
    POS = 3
    VEL = 4
    FF = 5


class MotorState(IntEnum):
    """The states that a DC motor can have, in the order of its activations."""

    SLEW = 0  # the previous control, in the units of the control
    INTEGRAL = 1  # of the error (rad s) or of the control (rad)
    TEMPERATURE = 2  # K above the ambient temperature
    BRISTLE = 3  # rad, deflection of the bristles (LuGre friction)
    CURRENT = 4  # A


# a MotorState exists if a parameter is positive: for each, the vector of this parameter and its index
SWITCHES: tuple[tuple[str, int], ...] = (
    ("dynprm", MotorDynamics.MAX_SLEW),
    ("gainprm", MotorGain.INTEGRAL),
    ("dynprm", MotorDynamics.THERMAL_RESISTANCE),
    ("dynprm", MotorDynamics.BRISTLE_STIFFNESS),
    ("dynprm", MotorDynamics.LAG),
)
