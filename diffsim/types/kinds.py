"""The kinds of objects in a model, such as joints and geoms: a table with one row each, for compiler, names and views.

A row says which size counts the objects (`njnt`), with which prefixes the names of their fields begin (`jnt_`), and
which rows belong to an object in arrays that have several rows per object: qpos of joints, readings of sensors,
vertices of meshes.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from diffsim.base.enums import ObjType
from diffsim.base.joints import dof_widths, qpos_widths


class Block(NamedTuple):
    """Arrays that have several rows for each object.

    Attributes:
      size: the size that counts their rows, which is the first size in their declared shape.
      first: the integer field with an object's first row; -1 for an object without rows.
      number: the integer field with an object's number of rows, or a function of the topology that returns it for all
        objects; None if an object has at most one row.
      integers: the integer fields that are such arrays. They are listed, because integer fields declare no shape.
    """

    size: str
    first: str
    number: str | Callable[[Any], np.ndarray] | None
    integers: tuple[str, ...] = ()

    def counts(self, topology: Any) -> np.ndarray:
        """The number of rows of each object, for a block with a `number`."""
        assert self.number is not None
        return self.number(topology) if callable(self.number) else getattr(topology, self.number)


class Kind(NamedTuple):
    """A kind of object.

    Attributes:
      size: the size that counts the objects.
      prefixes: the beginnings of the names of their fields, which short names leave out; the first is mjModel's.
      blocks: arrays with several rows per object.
    """

    size: str
    prefixes: tuple[str, ...]
    blocks: tuple[Block, ...] = ()

    @property
    def prefix(self) -> str:
        """mjModel's abbreviation, such as "jnt" for joints."""
        return self.prefixes[0].removesuffix("_")


# integer fields with several rows per object, for the table below
_DOFS = ("dof_bodyid", "dof_jntid", "dof_parentid", "dof_treeid")
_FACES = ("mesh_face", "mesh_facenormal", "mesh_facetexcoord")
_VERTICES = ("flex_vertbodyid", "flex_vertedgeadr", "flex_vertedgenum")
_EDGES = ("flex_vertedge", "flex_edge", "flex_edgeflap", "flexedge_rigid")
_BONES = ("skin_bonevertadr", "skin_bonevertnum", "skin_bonebodyid")


def _until_next(first: str, size: str) -> Callable[[Any], np.ndarray]:
    """A function that returns the number of rows of each object, where MuJoCo stores only the first row of each.

    The rows of an object end where the rows of the next one begin; objects without rows begin at -1.
    """

    def counts(topology: Any) -> np.ndarray:
        begins = getattr(topology, first)
        end = getattr(topology, size)
        number = np.zeros(len(begins), int)
        # from the last object to the first, so that `end` is where the next one begins
        for index in np.flatnonzero(begins >= 0)[::-1]:
            number[index] = end - begins[index]
            end = begins[index]
        return number

    return counts


def _flex_block(what: str, size: str, *integers: str) -> Block:
    """The arrays of a flex for which MuJoCo stores only the first row of each flex, `flex_<what>adr`."""
    first = f"flex_{what}adr"
    return Block(size=size, first=first, number=_until_next(first, size), integers=integers)


# in MuJoCo's order; the keys are the words that users write, and in capitals they are the names of `ObjType`
KINDS: dict[str, Kind] = {
    "body": Kind("nbody", ("body_",), (Block("nmocap", "body_mocapid", None),)),
    "joint": Kind(
        "njnt",
        ("jnt_", "dof_"),
        (
            Block("nq", "jnt_qposadr", lambda topology: qpos_widths(topology.jnt_type)),
            Block("nv", "jnt_dofadr", lambda topology: dof_widths(topology.jnt_type), _DOFS),
        ),
    ),
    "geom": Kind("ngeom", ("geom_",)),
    "site": Kind("nsite", ("site_",)),
    "camera": Kind("ncam", ("cam_",)),
    "light": Kind("nlight", ("light_",)),
    "flex": Kind(
        "nflex",
        ("flex_", "flexvert_", "flexedge_", "flexelem_"),
        (
            Block("nflexnode", "flex_nodeadr", "flex_nodenum", ("flex_nodebodyid",)),
            Block("nflexvert", "flex_vertadr", "flex_vertnum", _VERTICES),
            Block("nflexedge", "flex_edgeadr", "flex_edgenum", _EDGES),
            Block("nflexelem", "flex_elemadr", "flex_elemnum", ("flex_elemlayer", "flex_elemorder")),
            Block("nflexevpair", "flex_evpairadr", "flex_evpairnum", ("flex_evpair",)),
            _flex_block("elemdata", "nflexelemdata", "flex_elem", "flex_elemtexcoord"),
            _flex_block("elemedge", "nflexelemedge", "flex_elemedge"),
            _flex_block("shelldata", "nflexshelldata", "flex_shell"),
            _flex_block("stiffness", "nflexstiffness"),
            _flex_block("bending", "nflexbending"),
            _flex_block("texcoord", "nflextexcoord"),
        ),
    ),
    "mesh": Kind(
        "nmesh",
        ("mesh_", "oct_"),
        (
            Block("nmeshvert", "mesh_vertadr", "mesh_vertnum", ("mesh_polymapadr", "mesh_polymapnum")),
            Block("nmeshnormal", "mesh_normaladr", "mesh_normalnum"),
            Block("nmeshtexcoord", "mesh_texcoordadr", "mesh_texcoordnum"),
            Block("nmeshface", "mesh_faceadr", "mesh_facenum", _FACES),
            Block("nmeshpoly", "mesh_polyadr", "mesh_polynum", ("mesh_polyvertadr", "mesh_polyvertnum")),
            Block("noct", "mesh_octadr", "mesh_octnum", ("oct_depth", "oct_child")),
        ),
    ),
    "skin": Kind(
        "nskin",
        ("skin_",),
        (
            Block("nskinvert", "skin_vertadr", "skin_vertnum"),
            Block("nskintexvert", "skin_texcoordadr", _until_next("skin_texcoordadr", "nskintexvert")),
            Block("nskinface", "skin_faceadr", "skin_facenum", ("skin_face",)),
            Block("nskinbone", "skin_boneadr", "skin_bonenum", _BONES),
        ),
    ),
    "hfield": Kind(
        "nhfield",
        ("hfield_",),
        (Block("nhfielddata", "hfield_adr", lambda topology: topology.hfield_nrow * topology.hfield_ncol),),
    ),
    "texture": Kind(
        "ntex",
        ("tex_",),
        (Block("ntexdata", "tex_adr", lambda t: t.tex_height * t.tex_width * t.tex_nchannel, ("tex_data",)),),
    ),
    "material": Kind("nmat", ("mat_",)),
    "pair": Kind("npair", ("pair_",)),
    "exclude": Kind("nexclude", ("exclude_",)),
    "equality": Kind("neq", ("eq_",)),
    "tendon": Kind(
        "ntendon",
        ("tendon_", "ten_"),
        (Block("nwrap", "tendon_adr", "tendon_num", ("wrap_type", "wrap_objid", "wrap_sideid")),),
    ),
    "actuator": Kind("nu", ("actuator_",), (Block("na", "actuator_actadr", "actuator_actnum"),)),
    "sensor": Kind("nsensor", ("sensor_",), (Block("nsensordata", "sensor_adr", "sensor_dim"),)),
    "numeric": Kind("nnumeric", ("numeric_",), (Block("nnumericdata", "numeric_adr", "numeric_size"),)),
    "text": Kind("ntext", ("text_",)),
    "tuple": Kind(
        "ntuple", ("tuple_",), (Block("ntupledata", "tuple_adr", "tuple_size", ("tuple_objtype", "tuple_objid")),)
    ),
    "key": Kind("nkey", ("key_",)),
    "plugin": Kind(
        "nplugin",
        ("plugin_",),
        (
            Block("npluginstate", "plugin_stateadr", "plugin_statenum"),
            Block("npluginnumber", "plugin_numberadr", "plugin_numbernum"),
        ),
    ),
}

# the kind for each object type (mjtObj) that sensors and tuples can refer to
OBJECT_KIND = {ObjType[kind.upper()]: kind for kind in KINDS} | {ObjType.XBODY: "body"}

# arrays whose rows are addressed by other arrays, so that they belong to no single object
SHARED = ("mesh_graph", "mesh_facet", "mesh_polyvert", "mesh_polymap", "skin_bonevertid", "flex_cellempty")
