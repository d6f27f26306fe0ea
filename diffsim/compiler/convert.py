"""from_mujoco: converts a compiled `mujoco.MjModel` to a Model.

It only reads attributes, so `mujoco` itself is never imported.

Geoms of type sdf without a plugin use the octree of their mesh. For a plugin, an MjModel keeps the settings, in the
order in which the plugin declares them, but not the name, only a number that is valid in its process. Therefore the
plugin is identified by its surface: among MuJoCo's distance fields with the same number of settings, it is the one that
is zero on the geom's mesh.
"""

import contextlib
from collections.abc import Collection, Mapping
from typing import Any

import jax
import numpy as np

from diffsim.base.enums import GeomType
from diffsim.base.errors import UnsupportedError, expect
from diffsim.compiler.assets.field_plugins import SAMPLED, FieldUse
from diffsim.compiler.assets.hull import rounding_fields
from diffsim.compiler.elements.sleep import first_sleepers
from diffsim.compiler.host.interpret import interpret
from diffsim.compiler.pack import pack
from diffsim.compiler.precision import warn_of_precision
from diffsim.compiler.releases import columns_of, version_of
from diffsim.flex.cable import no_cables
from diffsim.geometry.hull.tables import facet_fields
from diffsim.geometry.rays.bvh import tree_fields
from diffsim.geometry.sdf.functions import FUNCTIONS
from diffsim.mjcf.orientation import matrix
from diffsim.types.kinds import KINDS
from diffsim.types.model import Model


def from_mujoco(
    mjmodel: Any,
    max_contacts: int | None = None,
    max_pairs: int | None = None,
    keep: Collection[str] = (),
) -> Model:
    """Converts a compiled `mujoco.MjModel` of MuJoCo 3.8 to 4.0. The model follows the version that compiled it.

    Args:
      mjmodel: the compiled model.
      max_contacts, max_pairs: contact capacities, as for `diffsim.load`.
      keep: names of switch fields that stay in the program even if they are zero, as for `diffsim.load`.

    Returns:
      The Model.

    Raises:
      ArgumentError: the argument is something else, such as a path or an `MjSpec`; it is also a TypeError.
      UnsupportedError: the model has plugins of actuators, sensors or bodies; or the plugin of a geom of type sdf is
        not one of MuJoCo's; or a version later than 3.8 compiled the model, and it has flexes or a new feature.
    """
    expect(mjmodel, "mjmodel", "mujoco.MjModel; diffsim.load takes XML", "name_bodyadr", "qpos0")
    fields = columns_of(mjmodel, version_of(mjmodel))
    fields |= _flex_fields(mjmodel)
    if max([*mjmodel.actuator_plugin, *mjmodel.sensor_plugin, *mjmodel.body_plugin], default=-1) >= 0:
        message = "from_mujoco does not support plugins of actuators, sensors and bodies"
        hint = "load the XML with diffsim.load"
        raise UnsupportedError.of("", message, hint)
    # diffsim's own fields of plugins, empty, and geom_surfacevel, which only later releases of 3.8 have
    fields |= no_cables()
    fields |= {
        "plugins": (),
        "npid": 0,
        "actuator_pidprm": np.zeros((0, 5)),
        "npluginnumber": 0,
        "plugin_number": np.zeros(0),
        "plugin_numbernum": np.zeros(mjmodel.nplugin, int),
        "plugin_numberadr": np.full(mjmodel.nplugin, -1),
        "variant_mesh": np.zeros(0),
        "geom_surfacevel": getattr(mjmodel, "geom_surfacevel", np.zeros((mjmodel.ngeom, 6))),
    }
    fields |= tree_fields(fields) | facet_fields(fields) | rounding_fields(fields) | field_columns(fields, mjmodel)
    names = {kind: names_of(mjmodel, row.prefix) for kind, row in KINDS.items()}
    texts = tuple(_string(bytes(mjmodel.text_data), start) for start in np.asarray(mjmodel.text_adr))

    def packed(fields: dict[str, Any]) -> Model:
        return pack(fields, names, texts, max_contacts, max_pairs, keep)

    fields = fields | first_sleepers(fields, packed)[0]
    model = packed(fields)
    warn_of_precision(model, fields)
    return model


def _flex_fields(mjmodel: Any) -> dict[str, Any]:
    """Fields of flexes that an MjModel does not have.

    Its material cannot be recovered: Young's modulus and the other fields of it are zero. A cell is empty if its
    stiffness is zero. The parent body of an interpolated flex is the parent of its nodes' bodies, or the body of its
    nodes if all of them are pinned.
    """
    materials = {name: np.zeros(mjmodel.nflex) for name in ("flex_young", "flex_poisson", "flex_thickness")}
    parents = np.full(mjmodel.nflex, -1)
    empty = list[np.ndarray]()
    for flex in range(mjmodel.nflex):
        order = int(mjmodel.flex_interp[flex])
        cells = int(np.prod(mjmodel.flex_cellnum[flex]))
        empty.append(np.zeros(cells, int))
        if order:
            first = mjmodel.flex_nodeadr[flex]
            bodies = mjmodel.flex_nodebodyid[first : first + mjmodel.flex_nodenum[flex]]
            # bodies of nodes that are not pinned have three slides
            slides = mjmodel.body_dofnum[bodies] == 3
            parents[flex] = mjmodel.body_parentid[bodies[slides][0]] if slides.any() else bodies[0]
        if order > 0 and mjmodel.flex_stiffnessadr[flex] >= 0:
            first = mjmodel.flex_stiffnessadr[flex]
            size = (3 * (order + 1) ** 3) ** 2
            empty[-1] = (mjmodel.flex_stiffness[first : first + cells * size : size] == 0).astype(int)
    unknown = np.full(mjmodel.nflex, -1)
    return {
        **materials,
        "flex_elastic2d": unknown,
        "flex_bodyid": parents,
        "flex_cellempty": np.concatenate([np.zeros(0, int), *empty]),
        "flex_elemorder": np.concatenate(
            [np.zeros(0, int), *(elements_searched(mjmodel, f) for f in range(mjmodel.nflex))]
        ),
    }


def names_of(mjmodel: Any, prefix: str) -> tuple[str, ...]:
    """Names of the objects of a kind in an MjModel, given its prefix, such as "jnt"."""
    addresses = getattr(mjmodel, f"name_{prefix}adr")
    return tuple(_string(mjmodel.names, start) for start in np.asarray(addresses))


def _string(buffer: bytes, start: int) -> str:
    """The text at an address in one of mjModel's buffers, in which each text ends with a zero byte."""
    return buffer[start : buffer.index(b"\0", start)].decode()


# number of vertices of a mesh at which the candidate fields are evaluated: enough to tell MuJoCo's fields apart
TESTED_VERTICES = 500
# largest mean |distance| at the vertices, in radii of the mesh, at which the mesh counts as the surface of a field: the
# grid of the mesh is coarse
NEAR = 0.02


def field_columns(fields: Mapping[str, Any], mjmodel: Any) -> dict[str, Any]:
    """geom_sdf, geom_sdfparam, nsdfparam and sdf_names: the distance fields of a model and the field of each geom.

    Raises:
      UnsupportedError: a plugin is not one of MuJoCo's, or the mesh of its geom is not the surface of its field.
    """
    sdf = np.flatnonzero(fields["geom_type"] == GeomType.SDF).tolist()
    uses = {geom: _field_of(fields, mjmodel, geom) for geom in sdf}
    names = sorted({use.name for use in uses.values()})
    most = max((len(use.parameters) for use in uses.values()), default=0)
    number = np.full(len(fields["geom_type"]), -1)
    parameters = np.zeros((len(fields["geom_type"]), most))
    for geom, use in uses.items():
        number[geom] = names.index(use.name)
        parameters[geom, : len(use.parameters)] = use.parameters
    return {"geom_sdf": number, "geom_sdfparam": parameters, "nsdfparam": most, "sdf_names": tuple(names)}


def _field_of(fields: Mapping[str, Any], mjmodel: Any, geom: int) -> FieldUse:
    """The distance field of one geom of type sdf."""
    instance = int(mjmodel.geom_plugin[geom])
    if instance < 0:
        return SAMPLED
    # the settings are one text after another; an empty one has its default
    start = int(mjmodel.plugin_attradr[instance])
    rest = mjmodel.plugin_attradr[instance + 1 :]
    stop = int(rest[0]) if len(rest) else len(mjmodel.plugin_attr)
    settings = bytes(np.asarray(mjmodel.plugin_attr, np.uint8)[start:stop]).decode().split("\0")[:-1]
    uses: list[FieldUse] = []
    for name, function in FUNCTIONS.items():
        pairs = zip(settings, function.defaults, strict=False)
        with contextlib.suppress(ValueError):
            if len(settings) == len(function.names):
                uses.append(FieldUse(name, np.array([float(text) if text else usual for text, usual in pairs])))

    # some vertices of the mesh, in the frame of the field
    mesh = int(fields["geom_dataid"][geom])
    first, count = int(fields["mesh_vertadr"][mesh]), int(fields["mesh_vertnum"][mesh])
    vertex = np.asarray(fields["mesh_vert"][first : first + count], float)
    pos, quat = (np.asarray(fields[name][mesh], float) for name in ("mesh_pos", "mesh_quat"))
    point = vertex[np.linspace(0, count - 1, min(count, TESTED_VERTICES)).astype(int)] @ matrix(quat).T + pos
    radius = float(np.linalg.norm(vertex, axis=1).max())
    with jax.enable_x64(True):
        values = [interpret(use.function.distance, use.parameters, point) for use in uses]
    off = [float(np.mean(np.abs(value))) / radius for value in values]
    if not uses or min(off) > NEAR:
        message = f"from_mujoco cannot identify the distance field of geom {geom}: none of MuJoCo's is zero on its mesh"
        hint = "load the XML with diffsim.load, or give the geom the mesh of its plugin"
        raise UnsupportedError.of("", message, hint)
    return uses[int(np.argmin(off))]


def elements_searched(mjmodel: Any, flex: int) -> np.ndarray:
    """(m,) the elements of a flex in the order in which MuJoCo's search of its bounding volumes meets them.

    The search is depth first and takes second children first. Elements that are not in the tree come last.
    """
    first = int(mjmodel.flex_bvhadr[flex])
    elements = list[int]()
    waiting = [0] if mjmodel.flex_bvhnum[flex] else []
    while waiting:
        node = first + waiting.pop()
        if mjmodel.bvh_nodeid[node] >= 0:
            elements.append(int(mjmodel.bvh_nodeid[node]))
        waiting += [int(child) for child in mjmodel.bvh_child[node] if child >= 0]
    return np.append(elements, np.setdiff1d(np.arange(mjmodel.flex_elemnum[flex]), elements)).astype(int)
