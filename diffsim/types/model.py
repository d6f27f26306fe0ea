"""Model: the numbers of a compiled model, under mjModel's names, as a pytree.

Every float field is a leaf, so `jax.grad(loss)(model)` is a Model and domain randomization is a `replace`. What decides
which program runs is static: `model.topology`, and the static fields of `model.opt`.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self, TypeVar

import jax
import jax.core
import numpy as np
from jax import Array

from diffsim.base import changes
from diffsim.base.enums import Cone, DisableBit, EnableBit, Integrator, Jacobian, Solver
from diffsim.types.hooks import Hooks
from diffsim.types.record import (
    Record,
    child,
    elsewhere,
    held_as,
    leaf,
    one_of,
    one_word,
    record,
    save,
    static,
    whole_number,
)
from diffsim.types.topology import Topology
from diffsim.types.views import named, viewed, write_named

R = TypeVar("R", bound=Record)

# how many numbers MuJoCo keeps of each: mjNREF ... mjNFLUID of mjmodel.h
# solref
NREF = 2
# solimp
NIMP = 5
# stiffness and damping polynomials, without the linear term
NPOLY = 2
# data of an equality
NEQDATA = 11
# parameters of actuator dynamics, gain and bias
NDYN = 10
NGAIN = 10
NBIAS = 10
# coefficients of a geom in a fluid
NFLUID = 12

SOLVER_GRADIENTS = ("auto", "implicit", "unroll")
# iterations up to which "auto" differentiates them: fewer often end before the optimum is reached
FEW_ITERATIONS = 8


def _length(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, float | int | np.floating) or not 0 <= value < np.inf:
        raise ValueError(f"{value!r} is not a length in metres, zero or more")
    return float(value)


@held_as("model.opt")
@record
class Option(Record):
    """Physics options (mjOption): numbers are leaves, choices are static.

    Without effect, and kept for writing and comparing: `ccd_iterations`, `ccd_tolerance` and the flag `nativeccd` (the
    one convex search has a fixed number of Newton iterations, enough to converge to rounding), and `jacobian` except
    for what `support.efc` lists (how J is stored follows from the trees).
    """

    timestep: Array = leaf()
    impratio: Array = leaf()
    tolerance: Array = leaf()
    ls_tolerance: Array = leaf()
    noslip_tolerance: Array = leaf()
    ccd_tolerance: Array = leaf()
    sleep_tolerance: Array = leaf()
    gravity: Array = leaf(3)
    wind: Array = leaf(3)
    magnetic: Array = leaf(3)
    density: Array = leaf(switch=True)
    viscosity: Array = leaf(switch=True)
    o_margin: Array = leaf()
    o_solref: Array = leaf(NREF)
    o_solimp: Array = leaf(NIMP)
    o_friction: Array = leaf(5)

    integrator: Integrator = static(one_of(Integrator))
    cone: Cone = static(one_of(Cone))
    jacobian: Jacobian = static(one_of(Jacobian))
    solver: Solver = static(one_of(Solver))
    iterations: int = static(whole_number)
    ls_iterations: int = static(whole_number)
    noslip_iterations: int = static(whole_number)
    ccd_iterations: int = static(whole_number)
    disableflags: int = static(whole_number)
    enableflags: int = static(whole_number)
    disableactuator: int = static(whole_number)
    sdf_initpoints: int = static(whole_number)
    sdf_iterations: int = static(whole_number)
    # ours: "implicit" differentiates the optimum, "unroll" the iterations, "auto" those if there are few of them
    solver_gradient: str = static(one_word(SOLVER_GRADIENTS), default="auto")
    # ours: how many times within a step contacts may begin or end; 0: at its beginning only
    # (simulate/integrate/events.py)
    events: int = static(whole_number, default=0)
    # ours: m, distance from which on contacts act on derivatives; 0: when they touch (constraint/contact.py)
    contact_reach: float = static(_length, default=0.0)
    # ours: the version of MuJoCo whose semantics the model has (base/changes.py)
    mujoco: str = static(changes.version_of, default=changes.DEFAULT)

    def follows(self, change: str) -> bool:
        """Whether the model follows a change that MuJoCo made after 3.8.1, a name of `base.changes.CHANGES`."""
        return changes.follows(self.mujoco, change)

    @property
    def unrolled(self) -> bool:
        """Whether derivatives go through the solver's iterations instead of being those of the optimum.

        "auto" unrolls few iterations, unless the solver is PGS or `contact_reach` is set, which have no derivative but
        that of the optimum.
        """
        few = self.few_iterations and self.solver != Solver.PGS and not self.contact_reach
        return self.solver_gradient == "unroll" or (self.solver_gradient == "auto" and few)

    @property
    def few_iterations(self) -> bool:
        """Whether the solver may end before the optimum."""
        return self.iterations <= FEW_ITERATIONS

    def disabled(self, bit: DisableBit) -> bool:
        """Whether a feature that is on by default has been switched off."""
        return bool(self.disableflags & bit)

    def enabled(self, bit: EnableBit) -> bool:
        """Whether a feature that is off by default has been switched on."""
        return bool(self.enableflags & bit)


@held_as("model.stat")
@record
class Statistic(Record):
    """Model statistics at qpos0 (mjStatistic); `meaninertia` scales the solver's tolerance."""

    meaninertia: Array = leaf(derived=True)
    meanmass: Array = leaf()
    meansize: Array = leaf()
    extent: Array = leaf()
    center: Array = leaf(3)


@held_as("model")
@viewed
@record
class Model(Record):
    """A compiled model: mjModel's float fields as leaves, the rest in `topology`, whose fields can be read here too."""

    topology: Topology = static()
    opt: Option = child()
    stat: Statistic = child()

    qpos0: Array = leaf("nq")
    qpos_spring: Array = leaf("nq")

    body_pos: Array = leaf("nbody", 3)
    body_quat: Array = leaf("nbody", 4)
    body_ipos: Array = leaf("nbody", 3)
    body_iquat: Array = leaf("nbody", 4)
    body_mass: Array = leaf("nbody")
    body_subtreemass: Array = leaf("nbody", derived=True)
    body_inertia: Array = leaf("nbody", 3)
    body_invweight0: Array = leaf("nbody", 2, derived=True)
    body_gravcomp: Array = leaf("nbody", switch=True)
    body_margin: Array = leaf("nbody")

    jnt_solref: Array = leaf("njnt", NREF)
    jnt_solimp: Array = leaf("njnt", NIMP)
    jnt_pos: Array = leaf("njnt", 3)
    jnt_axis: Array = leaf("njnt", 3)
    jnt_stiffness: Array = leaf("njnt", switch=True)
    jnt_stiffnesspoly: Array = leaf("njnt", NPOLY, switch=True)
    jnt_range: Array = leaf("njnt", 2)
    jnt_actfrcrange: Array = leaf("njnt", 2)
    jnt_margin: Array = leaf("njnt")

    dof_solref: Array = leaf("nv", NREF)
    dof_solimp: Array = leaf("nv", NIMP)
    dof_frictionloss: Array = leaf("nv", switch=True)
    dof_armature: Array = leaf("nv")
    dof_damping: Array = leaf("nv", switch=True)
    dof_dampingpoly: Array = leaf("nv", NPOLY, switch=True)
    dof_invweight0: Array = leaf("nv", derived=True)
    dof_M0: Array = leaf("nv", derived=True)
    dof_length: Array = leaf("nv", derived=True)

    geom_solmix: Array = leaf("ngeom")
    geom_solref: Array = leaf("ngeom", NREF)
    geom_solimp: Array = leaf("ngeom", NIMP)
    geom_size: Array = leaf("ngeom", 3)
    geom_aabb: Array = leaf("ngeom", 6)
    geom_rbound: Array = leaf("ngeom")
    geom_pos: Array = leaf("ngeom", 3)
    geom_quat: Array = leaf("ngeom", 4)
    geom_friction: Array = leaf("ngeom", 3)
    geom_margin: Array = leaf("ngeom")
    geom_gap: Array = leaf("ngeom")
    # ours: parameters of the function of a distance field (geometry/sdf/functions.py, `Hooks.sdf`)
    geom_sdfparam: Array = leaf("ngeom", "nsdfparam")
    geom_fluid: Array = leaf("ngeom", NFLUID, switch=True)
    # of MuJoCo 3.11: velocity of the surface by itself, linear and angular, in the frame of the geom
    geom_surfacevel: Array = leaf("ngeom", 6, switch=True)
    geom_rgba: Array = leaf("ngeom", 4)
    mat_rgba: Array = leaf("nmat", 4)
    mat_texrepeat: Array = leaf("nmat", 2)
    mat_emission: Array = leaf("nmat")
    mat_specular: Array = leaf("nmat")
    mat_shininess: Array = leaf("nmat")
    mat_reflectance: Array = leaf("nmat")
    mat_metallic: Array = leaf("nmat")
    mat_roughness: Array = leaf("nmat")

    mesh_vert: Array = leaf("nmeshvert", 3)
    mesh_normal: Array = leaf("nmeshnormal", 3)
    mesh_texcoord: Array = leaf("nmeshtexcoord", 2)
    mesh_polynormal: Array = leaf("nmeshpoly", 3)
    # ours: the same minus the normals of polygons of mesh_vert, which is rounded to float32 (compiler/assets/hull.py)
    mesh_polyrounding: Array = leaf("nmeshpoly", 3)
    mesh_scale: Array = leaf("nmesh", 3)
    mesh_pos: Array = leaf("nmesh", 3)
    mesh_quat: Array = leaf("nmesh", 4)
    # ours: triangles in the leaves of trees, and the boxes around them, for rays (geometry/rays/bvh.py)
    mesh_leafvert: Array = leaf("nmeshleaf", 9, 8, derived=True)
    mesh_boxes: Array = leaf("nmeshbox", 6, 8, derived=True)
    # cells of octrees, and the signed distance at their corners (geometry/sdf/data.py)
    oct_aabb: Array = leaf("noct", 6)
    oct_coeff: Array = leaf("noct", 8)

    flex_solmix: Array = leaf("nflex")
    flex_solref: Array = leaf("nflex", NREF)
    flex_solimp: Array = leaf("nflex", NIMP)
    flex_friction: Array = leaf("nflex", 3)
    flex_margin: Array = leaf("nflex")
    flex_gap: Array = leaf("nflex")
    flex_radius: Array = leaf("nflex")
    flex_size: Array = leaf("nflex", 3, derived=True)
    flex_damping: Array = leaf("nflex")
    flex_edgestiffness: Array = leaf("nflex")
    flex_edgedamping: Array = leaf("nflex")
    flex_rgba: Array = leaf("nflex", 4)
    # ours: Young's modulus (Pa), Poisson's ratio, thickness (m); stiffness and bending follow from them
    flex_young: Array = leaf("nflex")
    flex_poisson: Array = leaf("nflex")
    flex_thickness: Array = leaf("nflex")
    # vertices and nodes in the frames of their bodies, and at qpos0 in the box of their flex
    flex_vert: Array = leaf("nflexvert", 3)
    flex_vert0: Array = leaf("nflexvert", 3, derived=True)
    flex_vertmetric: Array = leaf("nflexvert", 4, derived=True)
    flex_node: Array = leaf("nflexnode", 3)
    flex_node0: Array = leaf("nflexnode", 3, derived=True)
    flexedge_length0: Array = leaf("nflexedge", derived=True)
    flexedge_invweight0: Array = leaf("nflexedge", derived=True)
    flex_stiffness: Array = leaf("nflexstiffness", derived=True)
    flex_bending: Array = leaf("nflexbending", derived=True)
    flex_texcoord: Array = leaf("nflextexcoord", 2)

    skin_rgba: Array = leaf("nskin", 4)
    skin_inflate: Array = leaf("nskin")
    skin_vert: Array = leaf("nskinvert", 3)
    skin_texcoord: Array = leaf("nskintexvert", 2)
    skin_bonebindpos: Array = leaf("nskinbone", 3)
    skin_bonebindquat: Array = leaf("nskinbone", 4)
    skin_bonevertweight: Array = leaf("nskinbonevert")

    hfield_size: Array = leaf("nhfield", 4)
    hfield_data: Array = leaf("nhfielddata")

    site_size: Array = leaf("nsite", 3)
    site_pos: Array = leaf("nsite", 3)
    site_quat: Array = leaf("nsite", 4)
    site_rgba: Array = leaf("nsite", 4)

    cam_pos: Array = leaf("ncam", 3)
    cam_quat: Array = leaf("ncam", 4)
    cam_poscom0: Array = leaf("ncam", 3, derived=True)
    cam_pos0: Array = leaf("ncam", 3, derived=True)
    cam_mat0: Array = leaf("ncam", 9, derived=True)
    cam_fovy: Array = leaf("ncam")
    cam_ipd: Array = leaf("ncam")
    cam_sensorsize: Array = leaf("ncam", 2)
    cam_intrinsic: Array = leaf("ncam", 4)

    light_pos: Array = leaf("nlight", 3)
    light_dir: Array = leaf("nlight", 3)
    light_poscom0: Array = leaf("nlight", 3, derived=True)
    light_pos0: Array = leaf("nlight", 3, derived=True)
    light_dir0: Array = leaf("nlight", 3, derived=True)

    pair_solref: Array = leaf("npair", NREF)
    pair_solreffriction: Array = leaf("npair", NREF)
    pair_solimp: Array = leaf("npair", NIMP)
    pair_margin: Array = leaf("npair")
    pair_gap: Array = leaf("npair")
    pair_friction: Array = leaf("npair", 5)

    eq_solref: Array = leaf("neq", NREF)
    eq_solimp: Array = leaf("neq", NIMP)
    eq_data: Array = leaf("neq", NEQDATA)

    tendon_solref_lim: Array = leaf("ntendon", NREF)
    tendon_solimp_lim: Array = leaf("ntendon", NIMP)
    tendon_solref_fri: Array = leaf("ntendon", NREF)
    tendon_solimp_fri: Array = leaf("ntendon", NIMP)
    tendon_range: Array = leaf("ntendon", 2)
    tendon_actfrcrange: Array = leaf("ntendon", 2)
    tendon_margin: Array = leaf("ntendon")
    tendon_stiffness: Array = leaf("ntendon", switch=True)
    tendon_stiffnesspoly: Array = leaf("ntendon", NPOLY, switch=True)
    tendon_damping: Array = leaf("ntendon", switch=True)
    tendon_dampingpoly: Array = leaf("ntendon", NPOLY, switch=True)
    tendon_armature: Array = leaf("ntendon", switch=True)
    tendon_frictionloss: Array = leaf("ntendon", switch=True)
    tendon_lengthspring: Array = leaf("ntendon", 2)
    tendon_length0: Array = leaf("ntendon", derived=True)
    tendon_invweight0: Array = leaf("ntendon", derived=True)
    tendon_width: Array = leaf("ntendon")
    tendon_rgba: Array = leaf("ntendon", 4)
    wrap_prm: Array = leaf("nwrap")

    actuator_dynprm: Array = leaf("nu", NDYN)
    actuator_gainprm: Array = leaf("nu", NGAIN)
    actuator_biasprm: Array = leaf("nu", NBIAS)
    actuator_ctrlrange: Array = leaf("nu", 2)
    actuator_forcerange: Array = leaf("nu", 2)
    actuator_actrange: Array = leaf("nu", 2)
    actuator_gear: Array = leaf("nu", 6)
    actuator_cranklength: Array = leaf("nu")
    actuator_damping: Array = leaf("nu", switch=True)
    actuator_dampingpoly: Array = leaf("nu", NPOLY, switch=True)
    actuator_armature: Array = leaf("nu", switch=True)
    actuator_delay: Array = leaf("nu")
    actuator_acc0: Array = leaf("nu", derived=True)
    actuator_length0: Array = leaf("nu", derived=True)
    # ours: kp, ki, kd, imax, slewmax of each actuator with the plugin mujoco.pid (actuator/pid.py)
    actuator_pidprm: Array = leaf("npid", 5)
    # ours, of cables (flex/cable.py): stiffness to twist about x and bend about y and z, N m^2; curvature at rest, rad;
    # distance from the body that a body hangs on, m
    cable_stiffness: Array = leaf("ncable", 3)
    cable_curvature: Array = leaf("ncable", 3)
    cable_length: Array = leaf("ncable")
    actuator_lengthrange: Array = leaf("nu", 2)
    # ours: settings of the user's plugins (types/hooks.py)
    plugin_number: Array = leaf("npluginnumber")

    sensor_cutoff: Array = leaf("nsensor")
    sensor_noise: Array = leaf("nsensor")
    sensor_delay: Array = leaf("nsensor")
    sensor_interval: Array = leaf("nsensor", 2)

    numeric_data: Array = leaf("nnumericdata")
    tuple_objprm: Array = leaf("ntupledata")

    key_time: Array = leaf("nkey")
    key_qpos: Array = leaf("nkey", "nq")
    key_qvel: Array = leaf("nkey", "nv")
    key_act: Array = leaf("nkey", "na")
    key_mpos: Array = leaf("nkey", "nmocap", 3)
    key_mquat: Array = leaf("nkey", "nmocap", 4)
    key_ctrl: Array = leaf("nkey", "nu")

    # ours: functions of the user
    hooks: Hooks = static(default=Hooks())

    def id(self, kind: str, name: str) -> int:
        """Index of a named object: `model.id("body", "torso")`.

        Args:
          kind: a key of `diffsim.types.kinds.KINDS`.
          name: of the object.

        Returns:
          Its index.

        Raises:
          KeyError: no such kind or name; the message lists near matches.
        """
        return self.topology.id(kind, name)

    def name(self, kind: str, index: int) -> str:
        """Name of an object, empty if it has none: `model.name("body", 1)`."""
        return self.topology.name(kind, index)

    def save(self, path: str | Path) -> None:
        """Writes the model to a file (npz) that `diffsim.load` reads: arrays and JSON, no code."""
        save(self, path)

    def replace(self, **fields: Any) -> Self:
        """A copy with some fields changed; names, shapes and dtypes are checked.

        Leaves may get a leading batch axis, for `vmap` with `model_axes`. A switch field that was zero when the model
        was compiled has no code in the program (`topology.present`). Set to other values, or to values that are not
        known when tracing, it gets its code: the topology changes, and programs are compiled again. `load(keep=...)`
        keeps the code from the start.

        Raises:
          TypeError: an unknown field. ValueError: a wrong shape.
        """
        changed = super().replace(**fields)
        if changed.opt.enabled(EnableBit.SLEEP) and changed.topology.nsleep != changed.topology.ntree:
            changed = dataclasses.replace(changed, topology=changed.topology.sleeping())
        present = {}
        for name, cls in switch_fields().items():
            opt = fields.get("opt") if cls is Option else None
            value = fields.get(name, getattr(opt, name, None))
            absent = ~changed.topology.present[name]
            if not np.any(absent) or not isinstance(value, Array | np.ndarray | float | int | list):
                continue
            if isinstance(value, jax.core.Tracer) or np.any((np.asarray(value) != 0) & absent):
                present[name] = np.ones_like(changed.topology.present[name])
        if not present:
            return changed
        topology = dataclasses.replace(changed.topology, present={**changed.topology.present, **present})
        return dataclasses.replace(changed, topology=topology)

    def without_contacts(self) -> Self:
        """The model as if nothing could touch anything: its programs hold no collisions and compile faster.

        Joint limits, equalities and friction of joints stay. States, inputs and controls are those of the model.
        """
        return self.replace(opt=self.opt.replace(disableflags=self.opt.disableflags | DisableBit.CONTACT))

    # one object, by name or index, with its fields
    body, joint, geom, site, camera, light = map(named, ("body", "joint", "geom", "site", "camera", "light"))
    mesh, hfield, texture, material = map(named, ("mesh", "hfield", "texture", "material"))
    flex, skin = map(named, ("flex", "skin"))
    pair, exclude, equality, tendon = map(named, ("pair", "exclude", "equality", "tendon"))
    actuator, sensor, key = map(named, ("actuator", "sensor", "key"))
    numeric, text, tuple = map(named, ("numeric", "text", "tuple"))

    def set_qpos(self, state: R, values: Mapping[Any, Any]) -> R:
        """A state with other positions of some joints: `model.set_qpos(state, {"hip": 0.3})`.

        Args:
          state: of one world or of a batch.
          values: by joint name or index: m or rad; (7,) of free joints, unit quaternions (4,) of balls.

        Raises:
          KeyError: no joint of a name; the message lists near matches. ValueError: a value of a wrong shape.
        """
        return write_named(self, "joint", state, "qpos", values)

    def set_qvel(self, state: R, values: Mapping[Any, Any]) -> R:
        """A state with other velocities of some joints, m/s or rad/s; else as `set_qpos`."""
        return write_named(self, "joint", state, "qvel", values)

    def set_ctrl(self, inputs: R, values: Mapping[Any, Any]) -> R:
        """Inputs with other controls of some actuators; else as `set_qpos`."""
        return write_named(self, "actuator", inputs, "ctrl", values)

    def __getattr__(self, name: str) -> Any:
        """mjModel's integers, sizes and flags, which the topology holds: `model.jnt_qposadr`, `model.nsensor`."""
        topology = self.__dict__.get("topology")
        if name.startswith("_") or not isinstance(topology, Topology):
            raise AttributeError(name)
        if name not in Topology.__dataclass_fields__:
            known = [f.name for cls in (Model, Topology) for f in dataclasses.fields(cls)]
            raise AttributeError(f"the model has no field {name!r}{elsewhere(self, name, known)}", name=name, obj=self)
        return getattr(topology, name)


def switch_fields() -> dict[str, type]:
    """Names of the switch fields, whose code can be absent from the program, with the record that each belongs to."""
    return {f.name: cls for cls in (Model, Option) for f in dataclasses.fields(cls) if f.metadata.get("switch")}
