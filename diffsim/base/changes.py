"""The table of changes that MuJoCo made to its results after 3.8.1: models that load in both versions move differently.

A model has the semantics of MuJoCo 3.8.1, unless it names a later version (`diffsim.load(path, mujoco="4.0")`). Then it
follows each change of the table up to this version. The stage that a change concerns asks `model.opt.follows(name)`,
and the readers of MJCF, which have no model yet, ask `changes.follows(version, name)`. To add a change, write a row, a
branch in its stage, and a test in tests/newer/.

diffsim does not follow the changes whose row has no stage, whatever version the model names.
Source: MuJoCo changelog, 3.9 to 4.0; MuJoCo's C source until August 2026 (3.12); C MuJoCo 4.0.0 as a black box.
"""

from typing import NamedTuple

# the version whose semantics a model has by default
DEFAULT = "3.8.1"
# the versions that a model can name: MuJoCo went from 3.17 to 4.0
VERSIONS = (DEFAULT, *(f"3.{minor}" for minor in range(9, 18)), "4.0")


class Change(NamedTuple):
    """One change of MuJoCo.

    Attributes:
      since: the version that made the change.
      stage: the file that asks whether the model follows it; "" if diffsim does not follow it.
      before: the behavior of 3.8.1, in one sentence.
      now: the behavior since the change, in one sentence.
    """

    since: str
    stage: str
    before: str
    now: str


CHANGES: dict[str, Change] = {
    "margin_gap": Change(
        "3.9",
        "collision/pairs.py",
        "a contact is listed at distances below `margin` and pushes below `margin - gap`",
        "a contact is listed at distances below `margin + gap` and pushes below `margin`",
    ),
    "free_bodies": Change(
        "3.11",
        "simulate/integrate/integrators.py",
        "with `implicitfast`, free bodies without constraints rotate by the midpoint rule; other free bodies can gain "
        "energy",
        "with `implicitfast`, all free bodies rotate as with `implicit` and never gain energy",
    ),
    "sleep_tolerance": Change(
        "3.11",
        "mjcf/reader.py",
        "the default of `sleep_tolerance` is 1e-4",
        "the default of `sleep_tolerance` is 1e-3",
    ),
    "tendon_force_limits": Change(
        "3.14",
        "mjcf/spec.py",
        "`actuatorfrcrange` of a tendon has an effect only together with `actuatorfrclimited`",
        "`actuatorfrcrange` of a tendon is enough, as for a joint",
    ),
    "dampratio": Change(
        "3.15",
        "simulate/constants.py",
        "`dampratio` of a servo assumes that the servo moves the inertia sum of M_jj / J_j^2",
        "`dampratio` of a servo uses the exact inertia 1 / (J M^-1 J^T), which halves the damping of a tendon over two "
        "equal joints",
    ),
    "replicated_keys": Change(
        "3.16",
        "mjcf/macros/keys.py",
        "a keyframe has the length of the model with one copy of a `<replicate>`, and is repeated for each copy",
        "a keyframe has the length of the model with all copies; missing values are the initial ones",
    ),
    "rk4_rotations": Change(
        "4.0",
        "simulate/integrate/runge_kutta.py",
        "with `RK4`, the error of ball and free joints' rotations is of second order in the timestep",
        "with `RK4`, the error of these rotations is of fourth order, as for other joints",
    ),
    "saturated_targets": Change(
        "4.0",
        "actuator/actuation.py",
        "implicit integrators include the damping of a servo although its joint or tendon is at its `actuatorfrcrange`",
        "implicit integrators leave this damping out, as they do for a servo at its own `forcerange`",
    ),
    "filtered_turns": Change(
        "4.0",
        "actuator/actuation.py",
        "a servo with a filter on a ball joint, or between two sites, moves to the rotation vector that it is given",
        "a servo with a filter on a ball joint, or between two sites, takes the shortest way to the given rotation",
    ),
    "tactile_depth": Change(
        "3.9",
        "",
        "the sensor `tactile` returns an estimate of the pressure",
        "the sensor `tactile` returns the depth",
    ),
    "flexes_sleep": Change(
        "3.9",
        "",
        "flexes never sleep; equalities of flexes are refused when the flag `sleep` is set",
        "flexes can sleep",
    ),
    "hull_vertices": Change(
        "3.10",
        "",
        "a hull with `maxhullvert` has the vertices that 3.8.1 chooses",
        "a hull with `maxhullvert` fits its mesh better",
    ),
    "lines_of_obj": Change(
        "3.10",
        "",
        "`flexcomp` with `dim=1` refuses OBJ files that contain lines",
        "`flexcomp` with `dim=1` reads the lines of an OBJ file",
    ),
    "solver_exits": Change(
        "3.10",
        "",
        "the solver stops by cost and gradient, scaled by the inertia at `qpos0`",
        "the solver has more stopping criteria, scaled by the current inertia; results differ within the tolerance",
    ),
    "nearest_turn": Change(
        "3.11",
        "actuator/actuation.py",
        "a servo without a filter on a ball joint, or between two sites, moves to the rotation vector that it is given",
        "a servo without a filter on a ball joint, or between two sites, takes the shortest way to the given rotation",
    ),
    "mocap_groups": Change(
        "3.12",
        "compiler/sizes_and_defaults.py",
        "for contact filtering, a mocap body counts as part of the world",
        "for contact filtering, a mocap body is a body of its own",
    ),
    "dcmotor_inputs": Change(
        "3.12",
        "",
        "`input` of `dcmotor` names one mode; its gains are voltages per error",
        "`input` of `dcmotor` lists several inputs; its gains are torques per error",
    ),
    "box_box": Change(
        "3.12",
        "collision/narrowphase.py",
        "contacts of two boxes can lie far below the faces (thin boxes with a margin are thrown apart); boxes that "
        "overlap by more than half of their size have none",
        "contacts of two boxes are the corners of the overlap of two faces, or one point between two edges",
    ),
    "plane_mesh": Change(
        "3.13",
        "",
        "contacts of a plane and a mesh are the vertices that 3.8.1 chooses",
        "contacts of a plane and a mesh are spread wider, so that they support the mesh better",
    ),
    "flex_metric": Change(
        "3.13",
        "",
        "the elasticity and the `passive` contacts of flexes work with every integrator",
        "the elasticity and the `passive` contacts of flexes need `integrator=discrete`",
    ),
    "weld_torques": Change(
        "3.14",
        "constraint/equality.py",
        "the sensor `torque` does not rotate the torque of a weld from the weld's frame",
        "the sensor `torque` rotates the torque of a weld",
    ),
    "tendon_wrenches": Change(
        "3.14",
        "simulate/tendon_wrenches.py",
        "the sensors `force` and `torque` leave out the forces of spatial tendons",
        "the sensors `force` and `torque` include the forces of spatial tendons",
    ),
    "internal_contacts": Change(
        "3.15",
        "",
        "flexes have the attribute `internal`",
        "the attribute `internal` of flexes is removed",
    ),
    "shortcut_defaults": Change(
        "3.16",
        "",
        "an actuator inherits the gains of every actuator in its default class",
        "an actuator inherits gains only from `general`, or from its own element, in its default class",
    ),
    "polygon_normals": Change(
        "3.17",
        "",
        "the normal of a mesh's polygon is computed from three of its vertices",
        "the normal of a mesh's polygon is computed from all of its vertices",
    ),
    "wrapping": Change(
        "4.0",
        "kinematics/tendon.py",
        "a tendon passes a wrapping geom in the half plane of the side site",
        "a tendon passes a wrapping geom the way that a path through the side site does",
    ),
    "static_acceleration": Change(
        "4.0",
        "sensor/frame.py",
        "an accelerometer on a static or mocap body reads zero",
        "an accelerometer on a static or mocap body reads gravity",
    ),
    "composites": Change(
        "4.0",
        "",
        "MJCF has `composite`, the equality `flexvert`, and `equality=vert` of a flex's edges",
        "`composite`, the equality `flexvert`, and `equality=vert` of a flex's edges are removed",
    ),
    "elastic_constants": Change(
        "4.0",
        "",
        "elastic constants are computed from `young` and `poisson` by the formulas of 3.8.1",
        "with `poisson` 0, a cloth is 4 times as stiff in stretching and 4/3 times in bending, solids do not change; "
        "with 0.3 the factors are 2.6, 1.9 and, for solids, 0.8",
    ),
}


def version_of(version: object) -> str:
    """The entry of `VERSIONS` for a version as users write it: "4.0" for "4.0.0", "3.8.1" for "3.8".

    Raises:
      ValueError: diffsim does not know the semantics of this version.
    """
    numbers = str(version).split(".")
    short = DEFAULT if numbers[:2] == ["3", "8"] else ".".join(numbers[:2])
    if short not in VERSIONS or not all(number.isdigit() for number in numbers):
        known = ", ".join(VERSIONS)
        raise ValueError(f"{version!r} is not a version of MuJoCo that diffsim can follow; choose one of {known}")
    return short


def follows(version: str, name: str) -> bool:
    """Whether a model with the semantics of `version` follows the change `name` of `CHANGES`."""
    return VERSIONS.index(CHANGES[name].since) <= VERSIONS.index(version)


def followed(version: str) -> list[str]:
    """The names of all changes that a model with the semantics of `version` follows."""
    return [name for name, change in CHANGES.items() if change.stage and follows(version, name)]
