"""The table of changes that MuJoCo made to its results after 3.8.1: models that load in both versions move differently.

A model has the semantics of MuJoCo 3.8.1, unless it names a later version (`diffsim.load(path, mujoco="4.0")`). Then it
follows each change of the table up to this version. Each stage calls `model.opt.follows(name)` where a change concerns
it; the readers of MJCF, which have no model yet, call `changes.follows(version, name)`. To add a change, write a row, a
branch in its stage, and a test in tests/newer/.

diffsim does not follow the changes whose row has no stage, whatever version the model names.
Source: MuJoCo changelog, 3.9 to 4.0; MuJoCo's C source until August 2026 (3.12); runs of MuJoCo 4.0.0.
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
      stage: the file that implements both behaviors; "" if diffsim does not follow the change.
      before: the behavior of 3.8.1, in one sentence.
      now: the behavior since the change, in one sentence.
    """

    since: str
    stage: str
    before: str
    now: str


CHANGES: dict[str, Change] = {
    "margin_gap": Change(
        since="3.9",
        stage="collision/parameters.py",
        before="a contact is listed at distances below `margin` and pushes below `margin - gap`",
        now="a contact is listed at distances below `margin + gap` and pushes below `margin`",
    ),
    "free_bodies": Change(
        since="3.11",
        stage="simulate/integrate/integrators.py",
        before=(
            "with `implicitfast`, free bodies without constraints rotate by the midpoint rule; other free bodies can "
            "gain energy"
        ),
        now="with `implicitfast`, all free bodies rotate as with `implicit` and never gain energy",
    ),
    "sleep_tolerance": Change(
        since="3.11",
        stage="mjcf/assemble.py",
        before="the default of `sleep_tolerance` is 1e-4",
        now="the default of `sleep_tolerance` is 1e-3",
    ),
    "tendon_force_limits": Change(
        since="3.14",
        stage="mjcf/defaults.py",
        before="`actuatorfrcrange` of a tendon has an effect only together with `actuatorfrclimited`",
        now="`actuatorfrcrange` of a tendon is enough, as for a joint",
    ),
    "dampratio": Change(
        since="3.15",
        stage="simulate/constants.py",
        before="`dampratio` of a servo assumes that the servo moves the inertia sum of M_jj / J_j^2",
        now=(
            "`dampratio` of a servo uses the exact inertia 1 / (J M^-1 J^T), which halves the damping of a tendon "
            "over two equal joints"
        ),
    ),
    "replicated_keys": Change(
        since="3.16",
        stage="mjcf/macros/keys.py",
        before="a keyframe has the length of the model with one copy of a `<replicate>`, and is repeated for each copy",
        now="a keyframe has the length of the model with all copies; missing values are the initial ones",
    ),
    "rk4_rotations": Change(
        since="4.0",
        stage="simulate/integrate/runge_kutta.py",
        before="with `RK4`, the error of ball and free joints' rotations is of second order in the timestep",
        now="with `RK4`, the error of these rotations is of fourth order, as for other joints",
    ),
    "saturated_targets": Change(
        since="4.0",
        stage="actuator/actuation.py",
        before=(
            "implicit integrators include the damping of a servo although its joint or tendon is at its "
            "`actuatorfrcrange`"
        ),
        now="implicit integrators leave this damping out, as they do for a servo at its own `forcerange`",
    ),
    "clipped_motors": Change(
        since="4.0",
        stage="actuator/dcmotor.py",
        before="implicit integrators include the damping of a `dcmotor`'s controller at its voltage limit",
        now="implicit integrators leave this damping out",
    ),
    "filtered_turns": Change(
        since="4.0",
        stage="actuator/actuation.py",
        before=(
            "a servo with a filter on a ball joint, or between two sites, moves to the rotation vector that it is given"
        ),
        now="a servo with a filter on a ball joint, or between two sites, takes the shortest way to the given rotation",
    ),
    "tactile_depth": Change(
        since="3.9",
        stage="sensor/tactile.py",
        before="the sensor `tactile` returns an estimate of the pressure, summed over the geoms that it touches",
        now="the sensor `tactile` returns the largest depth in the geoms that it touches",
    ),
    "flexes_sleep": Change(
        since="3.9",
        stage="",
        before="flexes never sleep; equalities of flexes are refused when the flag `sleep` is set",
        now="flexes can sleep",
    ),
    "hull_vertices": Change(
        since="3.10",
        stage="compiler/assets/hull.py",
        before="a hull with `maxhullvert` takes the furthest vertex of one facet after another",
        now="a hull with `maxhullvert` takes the vertex that is furthest from the hull, and fits its mesh better",
    ),
    "infinite_planes": Change(
        since="3.10",
        stage="simulate/constants.py",
        before="an infinite plane counts as 1 m wide in `center` and `extent` of the statistics",
        now="an infinite plane counts as 1 cm wide in `center` and `extent` of the statistics",
    ),
    "lines_of_obj": Change(
        since="3.10",
        stage="",
        before="`flexcomp` with `dim=1` refuses OBJ files that contain lines",
        now="`flexcomp` with `dim=1` reads the lines of an OBJ file",
    ),
    "solver_exits": Change(
        since="3.10",
        stage="",
        before="the solver stops by cost and gradient, scaled by the inertia at `qpos0`",
        now="the solver has more stopping criteria, scaled by the current inertia; results differ within the tolerance",
    ),
    "fused_inertia": Change(
        since="3.11",
        stage="compiler/elements/tree.py",
        before="`fusestatic`, the default in URDF, puts the mass of a body in a wrong place if its frame is turned",
        now="`fusestatic` puts the mass of a fused body where it is",
    ),
    "fused_bodies": Change(
        since="3.16",
        stage="compiler/elements/tree.py",
        before="`fusestatic` misplaces cameras and lights, and free bodies are aligned before it",
        now="`fusestatic` keeps the poses of cameras and lights, and does not fuse bodies with another `gravcomp` or "
        "in a fluid; free bodies are aligned after it",
    ),
    "nearest_turn": Change(
        since="3.11",
        stage="actuator/actuation.py",
        before=(
            "a servo without a filter on a ball joint, or between two sites, moves to the rotation vector that it is "
            "given"
        ),
        now=(
            "a servo without a filter on a ball joint, or between two sites, takes the shortest way to the given "
            "rotation"
        ),
    ),
    "intvelocity_limits": Change(
        since="3.11",
        stage="compiler/elements/actuators.py",
        before="`intvelocity` needs `actrange`",
        now="`intvelocity` without `actrange` has no limits",
    ),
    "body_margins": Change(
        since="3.11",
        stage="compiler/elements/bodies.py",
        before="`body_margin` is the largest `margin` of the body's geoms",
        now="`body_margin` is the largest `margin + gap` of the body's geoms",
    ),
    "mesh_normals": Change(
        since="3.11",
        stage="compiler/assets/compiled_mesh.py",
        before="vertex normals of a mesh are multiplied by `scale`",
        now="vertex normals of a mesh are divided by `scale`, as a stretched surface needs",
    ),
    "mocap_groups": Change(
        since="3.12",
        stage="compiler/sizes_and_defaults.py",
        before="for contact filtering, a mocap body counts as part of the world",
        now="for contact filtering, a mocap body is a body of its own",
    ),
    "dcmotor_inputs": Change(
        since="3.12",
        stage="actuator/dcmotor.py",
        before="the gains of the controller of a `dcmotor` are voltages per error; `input` is `position` or `velocity`",
        now="the gains are torques per error, with the back-EMF compensated; `input` is `pos`, `vel` or `ff`",
    ),
    "box_box": Change(
        since="3.12",
        stage="collision/pair_rows.py",
        before=(
            "contacts of two boxes can lie far below the faces (thin boxes with a margin are thrown apart); boxes "
            "that overlap by more than half of their size have none"
        ),
        now="contacts of two boxes are the corners of the overlap of two faces, or one point between two edges",
    ),
    "plane_mesh": Change(
        since="3.13",
        stage="collision/layout.py",
        before="contacts of a plane and a mesh are the lowest vertex and two of its neighbors, perhaps on one edge",
        now="contacts of a plane and a mesh are up to four corners of the lowest face, which support the mesh",
    ),
    "short_diagonals": Change(
        since="3.13",
        stage="mjcf/files/obj_file.py",
        before="a polygon with four corners in an OBJ file is cut at its first convex corner",
        now="a polygon with four corners in an OBJ file is cut along its shorter diagonal",
    ),
    "tactile_tangents": Change(
        since="3.13",
        stage="sensor/tactile.py",
        before="slips of the sensor `tactile` are measured along axes that do not turn with the geom",
        now="slips of the sensor `tactile` are measured along the tangents of the mesh",
    ),
    "face_depths": Change(
        since="3.12",
        stage="collision/layout.py",
        before="several contacts of two meshes, or of a mesh and a box, need faces that are parallel to 0.1 degrees; "
        "they have one depth",
        now="several contacts of two meshes, or of a mesh and a box, need faces that are parallel to 5 degrees; each "
        "has its own depth",
    ),
    "round_faces": Change(
        since="3.13",
        stage="collision/layout.py",
        before="several contacts of cylinders and capsules with boxes and meshes are found by turning them a little; "
        "they have one depth",
        now="several contacts of cylinders (3.13) and capsules (3.15) with boxes and meshes are found at once; each "
        "has its own depth, since 3.17 also within a margin; diffsim does all of this from 3.13 on",
    ),
    "obj_polygons": Change(
        since="3.13",
        stage="",
        before="polygons with five or more corners in an OBJ file are cut into triangles as in 3.8.1",
        now="polygons with five or more corners in an OBJ file lose triangles where they are not convex",
    ),
    "flex_metric": Change(
        since="3.13",
        stage="",
        before="the elasticity and the `passive` contacts of flexes work with every integrator",
        now="the elasticity and the `passive` contacts of flexes need `integrator=discrete`",
    ),
    "principal_axes": Change(
        since="3.14",
        stage="mjcf/orientation.py",
        before=(
            "principal axes of small bodies and meshes are exact to about 1e-6, and not found for moments below 1e-9"
        ),
        now="principal axes are exact for bodies of every size",
    ),
    "weld_torques": Change(
        since="3.14",
        stage="constraint/equality.py",
        before="the sensor `torque` does not rotate the torque of a weld from the weld's frame",
        now="the sensor `torque` rotates the torque of a weld",
    ),
    "tendon_wrenches": Change(
        since="3.14",
        stage="simulate/tendon_wrenches.py",
        before="the sensors `force` and `torque` leave out the forces of spatial tendons",
        now="the sensors `force` and `torque` include the forces of spatial tendons",
    ),
    "internal_contacts": Change(
        since="3.15",
        stage="",
        before="flexes have the attribute `internal`",
        now="the attribute `internal` of flexes is removed",
    ),
    "shortcut_defaults": Change(
        since="3.16",
        stage="mjcf/defaults.py",
        before="an actuator inherits the gains of every actuator in its default class",
        now="an actuator inherits gains only from `general`, or from its own element, in its default class",
    ),
    "sensor_stages": Change(
        since="3.16",
        stage="compiler/elements/sensors.py",
        before="`mjx.sensor_acc` computes the sensors `contact` and `tactile`",
        now=(
            "`mjx.sensor_pos` and `mjx.sensor_vel` compute the sensors `contact` and `tactile` if these do not need "
            "forces"
        ),
    ),
    "polygon_normals": Change(
        since="3.17",
        stage="compiler/assets/hull.py",
        before="the normal of a mesh's polygon is computed from three of its vertices",
        now="the normal of a mesh's polygon is computed from all of its vertices",
    ),
    "wrapping": Change(
        since="4.0",
        stage="kinematics/tendon.py",
        before="a tendon passes a wrapping geom in the half plane of the side site",
        now="a tendon passes a wrapping geom the way that a path through the side site does",
    ),
    "static_acceleration": Change(
        since="4.0",
        stage="sensor/frame.py",
        before="an accelerometer on a static or mocap body reads zero",
        now="an accelerometer on a static or mocap body reads gravity",
    ),
    "composites": Change(
        since="4.0",
        stage="",
        before="MJCF has `composite`, the equality `flexvert`, and `equality=vert` of a flex's edges",
        now="`composite`, the equality `flexvert`, and `equality=vert` of a flex's edges are removed",
    ),
    "curved_shells": Change(
        since="4.0",
        stage="",
        before="the bending forces of a surface that is curved at rest do not vanish at rest",
        now="the bending forces of a surface that is curved at rest vanish at rest",
    ),
    "contacts_on_elements": Change(
        since="4.0",
        stage="",
        before="a contact with an element of a flex acts on its vertices by the inverse distances from the contact",
        now="a contact with an element of a flex acts on its vertices by the barycentric coordinates of the contact",
    ),
    "edge_damping": Change(
        since="4.0",
        stage="",
        before="implicit integrators include the damping of a flex's edges",
        now="the damping of a flex's edges is explicit in all integrators",
    ),
    "elastic_constants": Change(
        since="4.0",
        stage="flex/material.py",
        before="elastic constants are computed from `young` and `poisson` by the formulas of 3.8.1",
        now=(
            "with `poisson` 0, a cloth is 4 times as stiff in stretching and 4/3 times in bending, solids do not "
            "change; with 0.3 the factors are 2.6, 1.9 and, for solids, 0.8; flexes with `dof` are another row"
        ),
    ),
    "interpolated_stiffness": Change(
        since="4.0",
        stage="",
        before="`flex_stiffness` of a flex whose `dof` is `trilinear` or `quadratic` is computed as in 3.8.1",
        now="the largest `flex_stiffness` of a cube whose `dof` is `trilinear` is 2.0 times as large with `poisson` 0, "
        "1.6 times with 0.3",
    ),
}


def version_of(version: object) -> str:
    """The entry of `VERSIONS` for a version as users write it: "4.0" for "4.0.0", "3.8.1" for "3.8".

    Raises:
      ValueError: diffsim does not support this version.
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
