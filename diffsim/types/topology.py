"""Topology: all integers and booleans of a model, on which the compiled program depends.

Models with equal topologies share all compiled programs, whatever their floats are. A digest of the content is computed
once, when a Topology is made, so that JAX hashes and compares topologies at no cost. Field names and meanings are
mjModel's (MuJoCo 3.8.1, mjmodel.h), except where a comment says "diffsim's".
"""

import dataclasses
import functools
import hashlib
import operator
from collections.abc import Callable, Mapping
from typing import Any, Concatenate, ParamSpec, TypeVar

import jax
import numpy as np

from diffsim.base.enums import GainType
from diffsim.base.errors import absent
from diffsim.types.record import near

P = ParamSpec("P")
T = TypeVar("T")
Ints = np.ndarray

# dtypes of the fields that are neither int32 nor bool
DTYPES = {"tex_data": np.uint8, "sensordata_asleep0": np.float64}


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Topology:
    """The static structure of a model: mjModel's sizes and integer fields, names, and sizes of buffers."""

    # sizes
    nq: int
    nv: int
    nu: int
    na: int
    nbody: int
    njnt: int
    ngeom: int
    nsite: int
    ncam: int
    nlight: int
    nmesh: int
    noct: int
    nmeshvert: int
    nmeshnormal: int
    nmeshtexcoord: int
    nmeshface: int
    nmeshgraph: int
    nmeshpoly: int
    nmeshpolyvert: int
    nmeshpolymap: int
    nflex: int
    nflexnode: int
    nflexvert: int
    nflexedge: int
    nflexelem: int
    nflexelemdata: int
    nflexstiffness: int
    nflexbending: int
    nflexelemedge: int
    nflexshelldata: int
    nflexevpair: int
    nflextexcoord: int
    nskin: int
    nskinvert: int
    nskintexvert: int
    nskinface: int
    nskinbone: int
    nskinbonevert: int
    nhfield: int
    nhfielddata: int
    ntex: int
    ntexdata: int
    nmat: int
    nmocap: int
    ntree: int
    npair: int
    nexclude: int
    neq: int
    ntendon: int
    nwrap: int
    nsensor: int
    nsensordata: int
    nnumeric: int
    ntext: int
    ntuple: int
    nkey: int
    nuserdata: int
    nhistory: int
    # diffsim's: the largest number of parameters of a distance field
    nsdfparam: int
    npid: int
    ncable: int
    nplugin: int
    npluginstate: int
    # diffsim's: total number of settings of the user's plugins
    npluginnumber: int
    # diffsim's: sizes of `State.tree_sleep` and `State.frozen`; 0 without the flag `sleep`
    nsleep: int
    nfrozen: int

    # bodies (nbody)
    body_parentid: Ints
    body_rootid: Ints
    body_weldid: Ints
    body_mocapid: Ints
    body_jntnum: Ints
    body_jntadr: Ints
    body_dofnum: Ints
    body_dofadr: Ints
    body_treeid: Ints
    body_geomnum: Ints
    body_geomadr: Ints
    body_simple: Ints
    body_sameframe: Ints
    body_contype: Ints
    body_conaffinity: Ints

    # joints (njnt)
    jnt_type: Ints
    jnt_qposadr: Ints
    jnt_dofadr: Ints
    jnt_bodyid: Ints
    jnt_actuatorid: Ints
    jnt_group: Ints
    jnt_limited: Ints
    jnt_actfrclimited: Ints
    jnt_actgravcomp: Ints

    # degrees of freedom (nv)
    dof_bodyid: Ints
    dof_jntid: Ints
    dof_parentid: Ints
    dof_treeid: Ints

    # kinematic trees (ntree)
    tree_bodyadr: Ints
    tree_bodynum: Ints
    tree_dofadr: Ints
    tree_dofnum: Ints
    tree_sleep_policy: Ints
    # diffsim's: tree_asleep of a new state, and the readings (nsensordata) of sensors on trees that begin asleep
    tree_asleep0: Ints
    sensordata_asleep0: Ints

    # geoms (ngeom)
    geom_type: Ints
    geom_contype: Ints
    geom_conaffinity: Ints
    geom_condim: Ints
    geom_bodyid: Ints
    geom_dataid: Ints
    geom_matid: Ints
    geom_group: Ints
    geom_priority: Ints
    geom_sameframe: Ints
    # diffsim's (ngeom + nflex, nhfield, 3): how much of each height field a geom, or an element of a flex, can cover at
    # most: the numbers of columns and of rows of cells, and of triangles under it
    geom_fieldcells: Ints
    # diffsim's (ngeom): the distance field of each geom, an index into `sdf_names`, the plugins' names; -1 for none
    geom_sdf: Ints
    sdf_names: tuple[str, ...]

    # sites (nsite), cameras (ncam), lights (nlight)
    site_type: Ints
    site_bodyid: Ints
    site_matid: Ints
    site_group: Ints
    site_sameframe: Ints
    cam_mode: Ints
    cam_bodyid: Ints
    cam_targetbodyid: Ints
    cam_projection: Ints
    cam_resolution: Ints
    cam_output: Ints
    light_mode: Ints
    light_bodyid: Ints
    light_targetbodyid: Ints
    light_type: Ints
    light_castshadow: Ints
    light_active: Ints

    # meshes (nmesh): their vertices, faces, convex hulls (graph) and the polygons of these
    mesh_vertadr: Ints
    mesh_vertnum: Ints
    mesh_faceadr: Ints
    mesh_facenum: Ints
    mesh_normaladr: Ints
    mesh_normalnum: Ints
    mesh_texcoordadr: Ints
    mesh_texcoordnum: Ints
    mesh_graphadr: Ints
    mesh_face: Ints
    mesh_facenormal: Ints
    mesh_facetexcoord: Ints
    mesh_graph: Ints
    mesh_polynum: Ints
    mesh_polyadr: Ints
    mesh_polyvertadr: Ints
    mesh_polyvertnum: Ints
    mesh_polyvert: Ints
    mesh_polymapadr: Ints
    mesh_polymapnum: Ints
    mesh_polymap: Ints
    # diffsim's: the triangles in the leaves of the trees that rays search, mesh after mesh (geometry/rays/bvh.py)
    mesh_leafface: Ints
    # diffsim's: for each triangle of each hull, the triangle that represents its flat face (geometry/hull/tables.py)
    mesh_facet: Ints
    # octrees (noct) of meshes of geoms of type sdf: their cells, mesh after mesh
    mesh_octadr: Ints
    mesh_octnum: Ints
    oct_depth: Ints
    oct_child: Ints

    # flexes (nflex): how they collide, and where their parts are in the arrays below
    flex_contype: Ints
    flex_conaffinity: Ints
    flex_condim: Ints
    flex_priority: Ints
    flex_internal: Ints
    flex_selfcollide: Ints
    flex_activelayers: Ints
    flex_passive: Ints
    flex_dim: Ints
    flex_matid: Ints
    flex_group: Ints
    flex_interp: Ints
    flex_bandwidth: Ints
    flex_cellnum: Ints
    flex_nodeadr: Ints
    flex_nodenum: Ints
    flex_vertadr: Ints
    flex_vertnum: Ints
    flex_edgeadr: Ints
    flex_edgenum: Ints
    flex_elemadr: Ints
    flex_elemnum: Ints
    flex_elemdataadr: Ints
    flex_stiffnessadr: Ints
    flex_elemedgeadr: Ints
    flex_bendingadr: Ints
    flex_shellnum: Ints
    flex_shelldataadr: Ints
    flex_evpairadr: Ints
    flex_evpairnum: Ints
    flex_texcoordadr: Ints
    flex_edgeequality: Ints
    flex_rigid: Ints
    flex_centered: Ints
    flex_flatskin: Ints
    # diffsim's: how a flex of dimension 2 is elastic, `base.enums.Elastic2D`; -1 if unknown (models of from_mujoco)
    flex_elastic2d: Ints
    # diffsim's: the body in whose frame the vertices of an interpolated flex are given, -1 for none; and for each cell
    # of each flex's grid, whether it contains no part of the mesh
    flex_bodyid: Ints
    flex_cellempty: Ints
    # their nodes (nflexnode), vertices (nflexvert), edges (nflexedge, 2), elements and shells
    flex_nodebodyid: Ints
    flex_vertbodyid: Ints
    flex_vertedgeadr: Ints
    flex_vertedgenum: Ints
    flex_vertedge: Ints
    flex_edge: Ints
    flex_edgeflap: Ints
    flexedge_rigid: Ints
    flex_elem: Ints
    flex_elemtexcoord: Ints
    flex_elemedge: Ints
    flex_elemlayer: Ints
    # diffsim's: the elements of each flex, in the order in which MuJoCo's search for contacts visits them
    flex_elemorder: Ints
    flex_shell: Ints
    flex_evpair: Ints

    # skins (nskin): surfaces that follow bodies, their bones
    skin_matid: Ints
    skin_group: Ints
    skin_vertadr: Ints
    skin_vertnum: Ints
    skin_texcoordadr: Ints
    skin_faceadr: Ints
    skin_facenum: Ints
    skin_boneadr: Ints
    skin_bonenum: Ints
    skin_face: Ints
    skin_bonevertadr: Ints
    skin_bonevertnum: Ints
    skin_bonebodyid: Ints
    skin_bonevertid: Ints

    # height fields (nhfield)
    hfield_nrow: Ints
    hfield_ncol: Ints
    hfield_adr: Ints

    # textures (ntex), their bytes one after another, and materials (nmat)
    tex_type: Ints
    tex_colorspace: Ints
    tex_height: Ints
    tex_width: Ints
    tex_nchannel: Ints
    tex_adr: Ints
    tex_data: Ints
    mat_texid: Ints
    mat_texuniform: Ints

    # contact pairs and exclusions
    pair_dim: Ints
    pair_geom1: Ints
    pair_geom2: Ints
    pair_signature: Ints
    exclude_signature: Ints

    # equalities (neq)
    eq_type: Ints
    eq_obj1id: Ints
    eq_obj2id: Ints
    eq_objtype: Ints
    eq_active0: Ints

    # tendons (ntendon) and their paths (nwrap)
    tendon_adr: Ints
    tendon_num: Ints
    tendon_actuatorid: Ints
    tendon_group: Ints
    tendon_matid: Ints
    tendon_limited: Ints
    tendon_treenum: Ints
    tendon_treeid: Ints
    tendon_actfrclimited: Ints
    wrap_type: Ints
    wrap_objid: Ints
    # diffsim's: the side site of each geom on a path; -1 for none
    wrap_sideid: Ints

    # actuators (nu)
    actuator_trntype: Ints
    actuator_dyntype: Ints
    actuator_gaintype: Ints
    actuator_biastype: Ints
    actuator_trnid: Ints
    actuator_actadr: Ints
    actuator_actnum: Ints
    actuator_group: Ints
    actuator_history: Ints
    actuator_historyadr: Ints
    actuator_ctrllimited: Ints
    actuator_forcelimited: Ints
    actuator_actlimited: Ints
    actuator_actearly: Ints
    # diffsim's (nu, k): which activation of an actuator holds each state of its law; -1 for none
    actuator_actslots: Ints

    # plugins (nplugin): the plugin of each body, geom, actuator and sensor, -1 for none. diffsim's are `plugins`, JSON
    # texts of name and settings, and `plugin_numberadr`, the first setting of each of the user's plugins, -1 for
    # MuJoCo's own plugins.
    body_plugin: Ints
    geom_plugin: Ints
    actuator_plugin: Ints
    sensor_plugin: Ints
    plugin_stateadr: Ints
    plugin_statenum: Ints
    plugin_numberadr: Ints
    plugin_numbernum: Ints
    # diffsim's (ncable): the bodies of cables that bend and twist relative to the previous one (flex/cable.py)
    cable_bodyid: Ints
    plugins: tuple[str, ...]

    # sensors (nsensor)
    sensor_type: Ints
    sensor_datatype: Ints
    sensor_needstage: Ints
    sensor_objtype: Ints
    sensor_objid: Ints
    sensor_reftype: Ints
    sensor_refid: Ints
    sensor_intprm: Ints
    sensor_dim: Ints
    sensor_adr: Ints
    sensor_history: Ints
    sensor_historyadr: Ints

    # custom data
    numeric_adr: Ints
    numeric_size: Ints
    tuple_adr: Ints
    tuple_size: Ints
    tuple_objtype: Ints
    tuple_objid: Ints

    # diffsim's: names by kind; texts; how many contacts and pairs a step can hold (None for all); and for each switch
    # field a mask of the elements that can be non-zero. If there are none, the program has no code for the field.
    names: Mapping[str, tuple[str, ...]]
    texts: tuple[str, ...]
    max_contacts: int | None
    max_pairs: int | None
    present: Mapping[str, np.ndarray]
    # diffsim's: the geoms whose mesh differs between worlds, and the meshes that each of them can have; -1 among these
    # if the geom does not exist in some worlds (simulate/stack.py). `Model.variant_mesh` says which one it has
    variant_geomid: tuple[int, ...] = ()
    variant_meshid: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, np.ndarray):
                frozen = _frozen(value, DTYPES.get(field.name, bool if value.dtype == bool else np.int32))
                object.__setattr__(self, field.name, frozen)
        object.__setattr__(self, "_digest", self._content_digest())
        object.__setattr__(self, "_plans", {})

    def changed(self, content: Mapping[str, Any]) -> "Topology":
        """The topology with this content: this one itself if nothing differs."""
        same = all(_equal(getattr(self, name), value) for name, value in content.items())
        return self if same else Topology(**content)

    def _content_digest(self) -> bytes:
        """A hash of all fields."""
        digest = hashlib.blake2b(digest_size=16)
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            # a default counts like an absent field, so that files from before the field existed keep their digest
            if field.default is not dataclasses.MISSING and value == field.default:
                continue
            digest.update(field.name.encode())
            if isinstance(value, np.ndarray):
                digest.update(_kind(value))
                digest.update(value.reshape(-1))
            else:
                digest.update(_content(value))
        return digest.digest()

    def __getstate__(self) -> dict[str, Any]:
        """The content for pickle and copy: all except the memo of `per_topology`, which contains functions."""
        return {**vars(self), "_plans": {}}

    @property
    def body_moves(self) -> np.ndarray:
        """Which bodies (nbody,) have a dof or are welded to a body with one: all except static and mocap bodies."""
        return self.body_dofnum[self.body_weldid] > 0

    @property
    def nvariant(self) -> int:
        """Number of geoms whose mesh differs between worlds."""
        return len(self.variant_geomid)

    def meshes_of(self, geom: int) -> tuple[int, ...]:
        """The meshes that a geom can have; for all other geoms than those with several meshes, `geom_dataid`."""
        if geom in self.variant_geomid:
            return tuple(mesh for mesh in self.variant_meshid[self.variant_geomid.index(geom)] if mesh >= 0)
        return (int(self.geom_dataid[geom]),)

    @property
    def digest(self) -> str:
        """A hexadecimal hash of the content."""
        return self._digest.hex()  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return hash(self._digest)  # type: ignore[attr-defined]

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Topology) and self._digest == other._digest)  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name}={getattr(self, name)}" for name in ("nbody", "nq", "nv", "nu", "ngeom"))
        return f"Topology({sizes}, digest={self.digest[:8]})"

    def id(self, kind: str, name: str) -> int:
        """The index of a named object; see `Model.id`."""
        names = self._names(kind)
        if name not in names or not name:
            message, hint = absent(kind, name, names)
            raise KeyError(f"{message}; {hint}" if hint else message)
        return names.index(name)

    def name(self, kind: str, index: int) -> str:
        """The name of an object, "" if it has none; see `Model.name`."""
        return self._names(kind)[index]

    def index(self, kind: str, which: Any) -> Any:
        """The index of an object that is given by name, view or index; an array of indices is returned unchanged.

        Raises:
          KeyError: no object has this name.
          IndexError: no object has this index.
        """
        if isinstance(which, str):
            return self.id(kind, which)
        if isinstance(which, jax.Array | np.ndarray):
            return which
        index = operator.index(which)
        count = len(self._names(kind))
        if not 0 <= index < count:
            raise IndexError(f"{kind} {index} does not exist: the model has {count} of this kind")
        return index

    def sleeping(self) -> "Topology":
        """This topology for the flag `sleep`: its states say which trees sleep."""
        nfrozen = self.nq + 7 * self.nmocap + self.nsensordata if self.ntree else 0
        return dataclasses.replace(self, nsleep=self.ntree, nfrozen=nfrozen)

    def has(self, field: str) -> bool:
        """Whether any element of a switch field can be non-zero, so that the program has code for it."""
        return bool(np.any(self.present[field]))

    @property
    def ill_conditioned(self) -> bool:
        """Whether the inertia matrix at qpos0 is so ill-conditioned that programs in float32 watch its condition."""
        return bool(np.any(self.present.get("ill_conditioned", False)))

    @property
    def one_block(self) -> bool:
        """Whether the model was compiled for the integrator `discrete`, for which tendons couple the dofs of trees."""
        return bool(np.any(self.present.get("one_block", False)))

    @property
    def can_accelerate(self) -> np.ndarray:
        """(nu,) bool: the actuators whose force can grow with the velocity, so that they add energy."""
        # files of earlier versions have no mask
        unknown = np.asarray(self.actuator_gaintype) == GainType.AFFINE
        return np.asarray(self.present.get("can_accelerate", unknown))

    @property
    def negative_damping(self) -> bool:
        """Whether a damper of a dof or of a tendon adds energy."""
        return bool(np.any(self.present.get("negative_damping", False)))

    def _names(self, kind: str) -> tuple[str, ...]:
        """The names of all objects of a kind; raises KeyError if there is no such kind."""
        if kind not in self.names:
            raise KeyError(f"no objects of kind {kind!r}{near(kind, self.names)}; kinds: {', '.join(self.names)}")
        return self.names[kind]


def _frozen(value: np.ndarray, dtype: Any) -> np.ndarray:
    """The array with this dtype, read-only; a copy, unless nothing can write into it."""
    if value.base is None and not value.flags.writeable and value.dtype == dtype:
        return value
    frozen = np.array(value, dtype=dtype)
    frozen.flags.writeable = False
    return frozen


def _equal(old: Any, new: Any) -> bool:
    """Whether a value of a topology's field, as it is stored, equals another one, as it is given."""
    if old is new:
        return True
    if isinstance(old, np.ndarray):
        return np.array_equal(old, new)
    if isinstance(old, Mapping):
        return old.keys() == new.keys() and all(_equal(old[key], new[key]) for key in old)
    return old == new


def _content(value: Any) -> bytes:
    """Bytes that are different for different values."""
    if isinstance(value, np.ndarray):
        return _kind(value) + value.tobytes()
    if isinstance(value, Mapping):
        return b"".join(repr(key).encode() + _content(value[key]) for key in sorted(value))
    return repr(value).encode()


def _kind(value: np.ndarray) -> bytes:
    """Shape and dtype of an array."""
    return repr((value.shape, value.dtype.str)).encode()


def rows_of(topology: Topology, counted: str, index: int | np.integer) -> slice:
    """The rows of one object: `rows_of(topology, "flex_edge", i)` by `flex_edgeadr[i]` and `flex_edgenum[i]`."""
    first = int(getattr(topology, f"{counted}adr")[index])
    count = int(getattr(topology, f"{counted}num")[index])
    return slice(first, first + count)


def per_topology(
    build: Callable[Concatenate[Topology, P], T],
) -> Callable[Concatenate[Topology, P], T]:
    """A decorator: the function of a topology is computed once for each topology, and remembered with it.

    Use it for the indices that a stage needs. The function computes them in numpy, from the topology and hashable
    arguments, when a program is traced for the first time.
    """

    @functools.wraps(build)
    def lookup(topology: Topology, *args: P.args, **kwargs: P.kwargs) -> T:
        plans: dict = topology._plans  # type: ignore[attr-defined]
        key = (build, args, tuple(sorted(kwargs.items())))
        if key not in plans:
            plans[key] = build(topology, *args, **kwargs)
        return plans[key]

    return lookup
