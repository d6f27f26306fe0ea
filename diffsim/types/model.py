"""Model: the compiled model, as a pytree of the float fields of mjModel.

Every float field is a leaf, so that `jax.grad(loss)(model)` is a Model, and domain randomization is a `replace`.
Everything that decides which program is compiled is static: `model.topology`, and the static fields of `model.opt`.
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
from diffsim.types.energy import energy_masks
from diffsim.types.hooks import Hooks
from diffsim.types.record import Record, child, elsewhere, held_as, leaf, one_of, one_word, record, static, whole_number
from diffsim.types.saved import save
from diffsim.types.topology import Topology
from diffsim.types.views import named, viewed, write_named

R = TypeVar("R", bound=Record)

# lengths of parameter vectors in MuJoCo: mjNREF to mjNFLUID of mjmodel.h
# solref
NREF = 2
# solimp
NIMP = 5
# higher coefficients of the polynomials of stiffness and damping
NPOLY = 2
# eq_data
NEQDATA = 11
# dynprm, gainprm and biasprm of actuators
NDYN = 10
NGAIN = 10
NBIAS = 10
# geom_fluid
NFLUID = 12

SOLVER_GRADIENTS = ("auto", "implicit", "unroll")
# the largest number of iterations that "auto" differentiates: so few may end before the optimum, where the derivative
# of the optimum would be wrong
FEW_ITERATIONS = 8


def _length(value: Any) -> float:
    """Checks a length in metres; raises ValueError unless it is a finite number, zero or more."""
    if isinstance(value, bool) or not isinstance(value, float | int | np.floating) or not 0 <= value < np.inf:
        raise ValueError(f"{value!r} is not a length in metres, zero or more")
    return float(value)


@held_as("model.opt")
@record
class Option(Record):
    """Physics options (mjOption): floats are leaves, and choices and flags are static.

    Some options have no effect, and are kept so that models can be written and compared: `ccd_iterations`,
    `ccd_tolerance` and the flag `nativeccd`, because the convex collision search always takes enough Newton iterations
    to converge to rounding. `jacobian` changes only how `support.efc` lists J.
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
    # the following options are diffsim's
    # "implicit" differentiates the optimum, "unroll" the solver's iterations; "auto" means "unroll" if there are few
    solver_gradient: str = static(one_word(SOLVER_GRADIENTS), default="auto")
    # how often contacts can begin or end within a step; 0: only at its beginning
    # (simulate/integrate/events.py)
    events: int = static(whole_number, default=0)
    # the distance below which contacts influence derivatives, m; 0: only when they touch (constraint/contact.py)
    contact_reach: float = static(_length, default=0.0)
    # the version of MuJoCo whose semantics the model has (base/changes.py)
    mujoco: str = static(changes.version_of, default=changes.DEFAULT)

    def follows(self, change: str) -> bool:
        """Whether the model follows a change that MuJoCo made after 3.8.1, given its name in `base.changes.CHANGES`."""
        return changes.follows(self.mujoco, change)

    @property
    def unrolled(self) -> bool:
        """Whether the solver's iterations are differentiated, and not the optimum.

        "auto" differentiates the iterations if there are few. With PGS or `contact_reach` only the derivative of the
        optimum exists.
        """
        few = self.few_iterations and self.solver != Solver.PGS and not self.contact_reach
        return self.solver_gradient == "unroll" or (self.solver_gradient == "auto" and few)

    @property
    def few_iterations(self) -> bool:
        """Whether the number of iterations is so small that the solver may end before the optimum."""
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


@held_as("model.vis.headlight")
@record
class Headlight(Record):
    """The light at the camera of pictures (mjVisual.headlight); `active` is 1 or 0.

    It has the same colours as a light of the model. Pictures of a model without active lights do not use it.
    """

    ambient: Array = leaf(3, old=0.1)
    diffuse: Array = leaf(3, old=0.4)
    specular: Array = leaf(3, old=0.5)
    active: Array = leaf(old=1)


@held_as("model.vis")
@record
class Visual(Record):
    """The settings of mjVisual that pictures use."""

    headlight: Headlight = child()


@held_as("model")
@viewed
@record
class Model(Record):
    """A compiled model: mjModel's float fields, and `topology` with all other fields, which can be read here too."""

    topology: Topology = static()
    opt: Option = child()
    stat: Statistic = child()
    vis: Visual = child()

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
    # diffsim's: parameters of the distance function of geoms of type sdf (geometry/sdf/functions.py, `Hooks.sdf`)
    geom_sdfparam: Array = leaf("ngeom", "nsdfparam")
    geom_fluid: Array = leaf("ngeom", NFLUID, switch=True)
    # from MuJoCo 3.11: linear and angular velocity of the surface relative to the geom, in the geom's frame
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

    # diffsim's: the mesh of each geom whose mesh differs between worlds, -1 if the geom does not exist in this one
    # (simulate/stack.py); whole numbers, but floats so that jax.grad takes a Model
    variant_mesh: Array = leaf("nvariant", old=0)

    mesh_vert: Array = leaf("nmeshvert", 3)
    mesh_normal: Array = leaf("nmeshnormal", 3)
    mesh_texcoord: Array = leaf("nmeshtexcoord", 2)
    mesh_polynormal: Array = leaf("nmeshpoly", 3)
    # diffsim's: mesh_polynormal minus the normals computed from mesh_vert, which MuJoCo rounds to float32
    # (compiler/assets/hull.py)
    mesh_polyrounding: Array = leaf("nmeshpoly", 3)
    mesh_scale: Array = leaf("nmesh", 3)
    mesh_pos: Array = leaf("nmesh", 3)
    mesh_quat: Array = leaf("nmesh", 4)
    # diffsim's: for rays, the triangles in the leaves of bounding volume trees, and the boxes (geometry/rays/bvh.py)
    mesh_leafvert: Array = leaf("nmeshleaf", 9, 8, derived=True)
    mesh_boxes: Array = leaf("nmeshbox", 6, 8, derived=True)
    # cells of octrees, and the signed distance at their corners (geometry/sdf/octree.py)
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
    # diffsim's: Young's modulus (Pa), Poisson's ratio and thickness (m), from which flex_stiffness and flex_bending
    # are computed
    flex_young: Array = leaf("nflex")
    flex_poisson: Array = leaf("nflex")
    flex_thickness: Array = leaf("nflex")
    # positions of vertices and nodes in the frames of their bodies, m. The fields that end with 0 are the positions at
    # qpos0, in units of the flex's box.
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
    light_attenuation: Array = leaf("nlight", 3, old=(1, 0, 0))
    light_cutoff: Array = leaf("nlight", old=45)
    light_exponent: Array = leaf("nlight", old=10)
    light_ambient: Array = leaf("nlight", 3, old=0)
    light_diffuse: Array = leaf("nlight", 3, old=0.7)
    light_specular: Array = leaf("nlight", 3, old=0.3)

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
    # diffsim's: kp, ki, kd, imax, slewmax of each actuator with the plugin mujoco.pid (actuator/pid.py)
    actuator_pidprm: Array = leaf("npid", 5)
    # diffsim's, for the bodies of cables (flex/cable.py): stiffness, N m^2, against torsion about x and bending about y
    # and z; angles at rest, rad, about these axes; distance from the previous body, m
    cable_stiffness: Array = leaf("ncable", 3)
    cable_curvature: Array = leaf("ncable", 3)
    cable_length: Array = leaf("ncable")
    actuator_lengthrange: Array = leaf("nu", 2)
    # diffsim's: settings of the user's plugins (types/hooks.py)
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

    # diffsim's: the user's functions
    hooks: Hooks = static(default=Hooks())

    def id(self, kind: str, name: str) -> int:
        """Index of a named object: `model.id("body", "torso")`.

        Args:
          kind: the kind of object, a key of `diffsim.types.kinds.KINDS`.
          name: the name of the object.

        Returns:
          Its index.

        Raises:
          KeyError: the kind or the name does not exist; the message suggests similar ones.
        """
        return self.topology.id(kind, name)

    def name(self, kind: str, index: int) -> str:
        """Name of an object: `model.name("body", 1)`; "" if it has none."""
        return self.topology.name(kind, index)

    def save(self, path: str | Path) -> None:
        """Writes the model to a file (npz with arrays and JSON, no code) that `diffsim.load` reads."""
        save(self, path)

    def replace(self, **fields: Any) -> Self:
        """A copy with some fields changed; names, shapes and dtypes are checked.

        Leaves may get a leading batch axis, for `vmap` with `model_axes`.

        Some fields ("switch fields", such as `dof_damping`) have no code in compiled programs while they are zero. When
        such a field is set to other values, or to values that are not known when JAX traces, the topology changes and
        programs are compiled again. `load(keep=...)` keeps the code from the start.

        Raises:
          TypeError: a field does not exist.
          ValueError: a value has a wrong shape.
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
        types = {name: getattr(self.topology, name) for name in ("actuator_gaintype", "actuator_biastype")}
        for name, mask in energy_masks(types | fields).items():
            # what once added energy may do so again, as the values may be those of some worlds
            before = np.asarray(getattr(changed.topology, name))
            if np.any(mask & ~before):
                present[name] = mask | before
        if not present:
            return changed
        topology = dataclasses.replace(changed.topology, present={**changed.topology.present, **present})
        return dataclasses.replace(changed, topology=topology)

    def without_contacts(self) -> Self:
        """The model without contacts: its programs contain no collision detection and compile faster.

        Joint limits, equalities and friction of joints remain. States and inputs of the two models are interchangeable.
        """
        return self.replace(opt=self.opt.replace(disableflags=self.opt.disableflags | DisableBit.CONTACT))

    # methods that return a `View` of one object, by name or index: `model.joint("hip").range`
    body, joint, geom, site, camera, light = map(named, ("body", "joint", "geom", "site", "camera", "light"))
    mesh, hfield, texture, material = map(named, ("mesh", "hfield", "texture", "material"))
    flex, skin = map(named, ("flex", "skin"))
    pair, exclude, equality, tendon = map(named, ("pair", "exclude", "equality", "tendon"))
    actuator, sensor, key = map(named, ("actuator", "sensor", "key"))
    numeric, text, tuple = map(named, ("numeric", "text", "tuple"))

    def set_qpos(self, state: R, values: Mapping[Any, Any]) -> R:
        """A copy of a state with other positions of some joints: `model.set_qpos(state, {"hip": 0.3})`.

        Args:
          state: the State of one world, or of a batch.
          values: positions by joint name or index: m or rad; (7,) for a free joint, a unit quaternion (4,) for a ball.

        Returns:
          The new State.

        Raises:
          KeyError: no joint has this name; the message suggests similar ones.
          ValueError: a value has a wrong shape.
        """
        return write_named(self, "joint", state, "qpos", values)

    def set_qvel(self, state: R, values: Mapping[Any, Any]) -> R:
        """A copy of a state with other velocities of some joints, m/s or rad/s; otherwise as `set_qpos`."""
        return write_named(self, "joint", state, "qvel", values)

    def set_ctrl(self, inputs: R, values: Mapping[Any, Any]) -> R:
        """A copy of the inputs with other controls of some actuators; otherwise as `set_qpos`."""
        return write_named(self, "actuator", inputs, "ctrl", values)

    def __getattr__(self, name: str) -> Any:
        """A field of the topology, such as `model.jnt_qposadr` or `model.nsensor`."""
        topology = self.__dict__.get("topology")
        if name.startswith("_") or not isinstance(topology, Topology):
            raise AttributeError(name)
        if name not in Topology.__dataclass_fields__:
            known = [f.name for cls in (Model, Topology) for f in dataclasses.fields(cls)]
            raise AttributeError(f"the model has no field {name!r}{elsewhere(self, name, known)}", name=name, obj=self)
        return getattr(topology, name)


def switch_fields() -> dict[str, type]:
    """The record of each switch field, by name: fields that have no code in the program while they are zero."""
    return {f.name: cls for cls in (Model, Option) for f in dataclasses.fields(cls) if f.metadata.get("switch")}
