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
    "flexes_sleep": Change(
        "3.9",
        "",
        "flexes stay awake; their equalities are refused with the flag `sleep`",
        "flexes sleep",
    ),
    "hull_vertices": Change(
        "3.10",
        "",
        "hulls with `maxhullvert` are those of 3.8.1",
        "hulls with `maxhullvert` fit their meshes better",
    ),
    "lines_of_obj": Change(
        "3.10",
        "",
        "`flexcomp` of dimension 1 takes no lines of an OBJ file, they are refused",
        "`flexcomp` of dimension 1 takes the lines of an OBJ file",
    ),
    "solver_exits": Change(
        "3.10",
        "",
        "the solvers stop by cost and gradient, scaled by the inertia at `qpos0`",
        "the solvers stop by more criteria, scaled by the present inertia: differences within the tolerance",
    ),
    "nearest_turn": Change(
        "3.11",
        "",
        "servos of ball joints, and between two sites, pull towards the target as it is given",
        "such servos choose the nearest turn of their target",
    ),
    "mocap_groups": Change(
        "3.12",
        "",
        "mocap bodies belong to the weld group of the world",
        "mocap bodies have weld groups of their own",
    ),
    "dcmotor_inputs": Change(
        "3.12",
        "",
        "`input` of `dcmotor` chooses a mode; gains are in volts",
        "`input` of `dcmotor` lists inputs; gains are in torque",
    ),
    "box_box": Change(
        "3.12",
        "collision/narrowphase.py",
        "two boxes touch in points that may be far below their faces (thin boxes with a margin are thrown apart), and "
        "in none where they are sunk into each other by more than their half",
        "two boxes touch in the corners of the overlap of two faces, or in one point of two edges",
    ),
    "plane_mesh": Change(
        "3.13",
        "",
        "the points in which a plane touches a mesh are those of 3.8.1",
        "the points in which a plane touches a mesh support it better",
    ),
    "flex_metric": Change(
        "3.13",
        "",
        "`passive` contacts and the elasticity of flexes work with every solver and integrator",
        "`passive` contacts and the elasticity of flexes need `integrator=discrete`",
    ),
    "weld_torques": Change(
        "3.14",
        "",
        "the sensors `force` and `torque` count the torque of a weld in its own frame, and no spatial tendons",
        "they count the torque of welds as it acts, and the forces of spatial tendons",
    ),
    "internal_contacts": Change(
        "3.15",
        "",
        "flexes with `internal` contacts have them",
        "`internal` contacts are removed",
    ),
    "shortcut_defaults": Change(
        "3.16",
        "",
        "actuators take the gains of any actuator in their default class",
        "actuators take gains only from `general` or the same shortcut in their default class",
    ),
    "polygon_normals": Change(
        "3.17",
        "",
        "normals of the polygons of a mesh come from three of their vertices",
        "normals of the polygons of a mesh come from all of their vertices",
    ),
    "wrapping": Change(
        "4.0",
        "",
        "a side site chooses the side of a wrapping geom by a half plane",
        "a side site chooses the way around a wrapping geom by the path through it",
    ),
    "static_acceleration": Change(
        "4.0",
        "",
        "accelerometers of bodies that cannot move read zero",
        "accelerometers of bodies that cannot move read gravity",
    ),
    "composites": Change(
        "4.0",
        "",
        "`composite`, the equality `flexvert` and `equality=vert` of edges exist",
        "`composite`, the equality `flexvert` and `equality=vert` of edges are removed",
    ),
    "elastic_constants": Change(
        "4.0",
        "",
        "elastic constants from `young` and `poisson` are those of 3.8.1",
        "with poisson 0 a cloth stretches 4 times and bends 4/3 as stiffly, solids stay; with 0.3 by 2.6, 1.9, 0.8",
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
