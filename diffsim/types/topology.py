"""Topology: everything integer or boolean in the model, which shapes the compiled program.

Two models with equal topologies share every compilation; their numbers may differ. The digest of the content is
computed once, when a Topology is made, so hashing and comparing cost nothing at dispatch. Field names and
meanings are mjModel's (MuJoCo 3.8.1, mjmodel.h).
"""

import dataclasses
import functools
import hashlib
import operator
from collections.abc import Callable, Mapping
from typing import Any, Concatenate, ParamSpec, TypeVar

import jax
import numpy as np

from diffsim.base.errors import absent
from diffsim.types.record import near

P = ParamSpec("P")
T = TypeVar("T")
Ints = np.ndarray

# of fields that are neither int32 nor bool
DTYPES = {"tex_data": np.uint8, "sensordata_asleep0": np.float64}


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Topology:
    """Static structure of a model; mjModel's integer fields, sizes, names and capacities."""

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
    # ours: numbers of a distance field, at most
    nsdfparam: int
    npid: int
    ncable: int
    nplugin: int
    npluginstate: int
    # ours: numbers that settings of the user's plugins are
    npluginnumber: int
    # ours: numbers that a state has to tell which trees sleep, and how they fell asleep; 0 without the flag `sleep`
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
    # ours: tree_asleep of a new state, and what the sensors of trees that begin asleep read (nsensordata)
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
    # ours (ngeom + nflex, nhfield, 3): columns and rows of cells that a geom, or an element of a flex, can span on each
    # height field, and triangles that it can be over, at most
    geom_fieldcells: Ints
    # ours (ngeom): which of `sdf_names`, the plugins of the model's distance fields, a geom has, -1 for none
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
    # ours: the triangles in the leaves of the trees that rays search, mesh by mesh (geometry/rays/bvh.py)
    mesh_leafface: Ints
    # ours: for each triangle of each hull which one stands for all that it is flat with (geometry/hull/polytope.py)
    mesh_facet: Ints
    # octrees of meshes that geoms of type sdf collide with (noct): their cells, mesh by mesh
    mesh_octadr: Ints
    mesh_octnum: Ints
    oct_depth: Ints
    oct_child: Ints

    # flexes (nflex): how they collide, where their parts stand in the arrays below
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
    # ours: which energies a surface has, `base.enums.Elastic2D`; -1 where the material is not known (from_mujoco)
    flex_elastic2d: Ints
    # ours: the body in whose frame the vertices of an interpolated flex stand, -1 for none; which cells of the grids
    # of all flexes, one after another, have no part of the mesh
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
    # ours: the elements of each flex in the order in which a search for contacts meets them
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
    # ours: the side site of a geom on a path; -1 for none
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
    # ours (nu, k): which activation of an actuator holds each state of its law; -1 for none
    actuator_actslots: Ints

    # plugins (nplugin): which of them a body, geom, actuator or sensor has, -1 for none; and ours: JSON texts of their
    # names and settings, and where the settings of the user's are, -1 for MuJoCo's
    body_plugin: Ints
    geom_plugin: Ints
    actuator_plugin: Ints
    sensor_plugin: Ints
    plugin_stateadr: Ints
    plugin_statenum: Ints
    plugin_numberadr: Ints
    plugin_numbernum: Ints
    # ours (ncable): the bodies that bend and twist against the one that they hang on (flex/cable.py)
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

    # ours: names by kind, texts, capacities, and which switch fields are in the program
    names: Mapping[str, tuple[str, ...]]
    texts: tuple[str, ...]
    max_contacts: int | None
    max_pairs: int | None
    present: Mapping[str, np.ndarray]

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, np.ndarray):
                frozen = np.array(value, dtype=DTYPES.get(field.name, bool if value.dtype == bool else np.int32))
                frozen.flags.writeable = False
                object.__setattr__(self, field.name, frozen)
        object.__setattr__(self, "_digest", self._content_digest())
        object.__setattr__(self, "_plans", {})

    def _content_digest(self) -> bytes:
        digest = hashlib.blake2b(digest_size=16)
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            digest.update(field.name.encode())
            digest.update(_content(value))
        return digest.digest()

    def __getstate__(self) -> dict[str, Any]:
        """What pickle and copy take along: all but the plans, which hold functions and are made again."""
        return {**vars(self), "_plans": {}}

    @property
    def digest(self) -> str:
        """Hexadecimal fingerprint of the content."""
        return self._digest.hex()  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return hash(self._digest)  # type: ignore[attr-defined]

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Topology) and self._digest == other._digest)  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name}={getattr(self, name)}" for name in ("nbody", "nq", "nv", "nu", "ngeom"))
        return f"Topology({sizes}, digest={self.digest[:8]})"

    def id(self, kind: str, name: str) -> int:
        """Index of a named object; see `Model.id`."""
        names = self._names(kind)
        if name not in names or not name:
            message, hint = absent(kind, name, names, listed=20)
            raise KeyError(f"{message}; {hint}" if hint else message)
        return names.index(name)

    def name(self, kind: str, index: int) -> str:
        """Name of an object, empty if it has none; see `Model.name`."""
        return self._names(kind)[index]

    def index(self, kind: str, which: Any) -> Any:
        """Index of an object that is given by name, view or index; an array of indices stays as it is.

        Raises:
          KeyError: no object of this name. IndexError: no object of this index.
        """
        if isinstance(which, str):
            return self.id(kind, which)
        if isinstance(which, jax.Array | np.ndarray):
            return which
        index, count = operator.index(which), len(self._names(kind))
        if not 0 <= index < count:
            raise IndexError(f"{kind} {index} does not exist: the model has {count}")
        return index

    def sleeping(self) -> "Topology":
        """This topology with room in states for what sleeps."""
        nfrozen = self.nq + 7 * self.nmocap + self.nsensordata if self.ntree else 0
        return dataclasses.replace(self, nsleep=self.ntree, nfrozen=nfrozen)

    def has(self, field: str) -> bool:
        """Whether any element of a switch field is in the program."""
        return bool(np.any(self.present[field]))

    def _names(self, kind: str) -> tuple[str, ...]:
        if kind not in self.names:
            raise KeyError(f"no objects of kind {kind!r}{near(kind, self.names)}; kinds: {', '.join(self.names)}")
        return self.names[kind]


def _content(value: Any) -> bytes:
    """Bytes that differ whenever the value differs."""
    if isinstance(value, np.ndarray):
        return repr((value.shape, value.dtype.str)).encode() + value.tobytes()
    if isinstance(value, Mapping):
        return b"".join(repr(key).encode() + _content(value[key]) for key in sorted(value))
    return repr(value).encode()


def rows_of(topology: Topology, counted: str, index: int | np.integer) -> slice:
    """The rows of one object among those of all, by their address and number: of `flex_edge`, flex_edgeadr and -num."""
    first, count = (int(getattr(topology, counted + field)[index]) for field in ("adr", "num"))
    return slice(first, first + count)


def per_topology(
    build: Callable[Concatenate[Topology, P], T],
) -> Callable[Concatenate[Topology, P], T]:
    """Memoises an index computation on the topology it is made from.

    A room writes its grouping once, in numpy, as a function of the topology (and hashable arguments); it runs at the
    first trace and lives as long as the topology does.
    """

    @functools.wraps(build)
    def lookup(topology: Topology, *args: P.args, **kwargs: P.kwargs) -> T:
        plans: dict = topology._plans  # type: ignore[attr-defined]
        key = (build, args, tuple(sorted(kwargs.items())))
        if key not in plans:
            plans[key] = build(topology, *args, **kwargs)
        return plans[key]

    return lookup
