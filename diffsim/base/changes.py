"""What MuJoCo changed after 3.8.1 in the numbers of models that both versions load: one row a change.

A model follows MuJoCo 3.8.1 unless it names a later version (`diffsim.load(path, mujoco="4.0")`); then it follows every
change that came up to that version. A stage asks in one place, `model.opt.follows("margin_gap")`, and the compiler's
passes ask `draft.follows("dampratio")`. A new change is a row here, a branch in its stage and a test in tests/newer/.

Rows without a stage are changes that diffsim does not follow, whatever the model names.
Source: MuJoCo changelog, 3.9 to 4.0; MuJoCo's C source until August 2026 (3.12); C MuJoCo 4.0.0 as a black box.
"""

from typing import NamedTuple

# whose semantics a model has that names no version
DEFAULT = "3.8.1"
VERSIONS = (DEFAULT, *(f"3.{minor}" for minor in range(9, 18)), "4.0")


class Change(NamedTuple):
    """A change: the version in which it came, the stage that asks, and the two behaviours, a sentence each."""

    since: str
    stage: str
    before: str
    now: str


CHANGES: dict[str, Change] = {
    "margin_gap": Change(
        "3.9",
        "collision/pairs.py",
        "contacts are listed below `margin` and push below `margin - gap`",
        "contacts are listed below `margin + gap` and push below `margin`",
    ),
    "free_bodies": Change(
        "3.11",
        "simulate/integrate/integrators.py",
        "with `implicitfast` free bodies that nothing holds turn by the midpoint rule, others gain energy",
        "with `implicitfast` free bodies, with what is fixed to them, turn as with `implicit`, and never gain energy",
    ),
    "sleep_tolerance": Change(
        "3.11",
        "mjcf/reader.py",
        "`sleep_tolerance` is 1e-4 where the file gives none",
        "`sleep_tolerance` is 1e-3 where the file gives none",
    ),
    "tendon_force_limits": Change(
        "3.14",
        "mjcf/spec.py",
        "`actuatorfrcrange` of a tendon acts where `actuatorfrclimited` is given too",
        "`actuatorfrcrange` of a tendon acts by itself, as the one of a joint",
    ),
    "dampratio": Change(
        "3.15",
        "simulate/constants.py",
        "`dampratio` of a servo takes the sum of M_jj / J_j^2 for the inertia that the servo feels",
        "`dampratio` of a servo takes 1 / (J M^-1 J^T): half the damping for a tendon over two equal joints",
    ),
    "replicated_keys": Change(
        "3.16",
        "mjcf/macros/keys.py",
        "a `<replicate>` makes a keyframe for each copy out of one for a single copy",
        "keyframes are of the model with all copies; shorter ones are completed with the initial values",
    ),
    "rk4_rotations": Change(
        "4.0",
        "simulate/integrate/runge_kutta.py",
        "with `RK4` the rotations of ball and free joints are exact to second order in the timestep",
        "with `RK4` they are exact to fourth order, as all else is",
    ),
    "saturated_targets": Change(
        "4.0",
        "actuator/actuation.py",
        "servos on a joint or tendon whose `actuatorfrcrange` is reached add their damping to implicit integrators",
        "such servos add none, as those whose own `forcerange` is reached",
    ),
    "tactile_depth": Change(
        "3.9",
        "",
        "the sensor `tactile` estimates a pressure",
        "the sensor `tactile` reads the depth",
    ),
}


def version_of(version: object) -> str:
    """The entry of `VERSIONS` that a user means: "4.0.0" is "4.0", "3.8" is "3.8.1".

    Raises:
      ValueError: no version whose semantics diffsim has.
    """
    numbers = str(version).split(".")
    short = DEFAULT if numbers[:2] == ["3", "8"] else ".".join(numbers[:2])
    if short not in VERSIONS or not all(number.isdigit() for number in numbers):
        raise ValueError(f"{version!r} is no version of MuJoCo that diffsim follows: {', '.join(VERSIONS)}")
    return short


def follows(version: str, name: str) -> bool:
    """Whether a model of a version follows a change."""
    return VERSIONS.index(CHANGES[name].since) <= VERSIONS.index(version)


def followed(version: str) -> list[str]:
    """Names of the changes that a model of a version follows."""
    return [name for name, change in CHANGES.items() if change.stage and follows(version, name)]
