"""Which distance fields a compiled `mujoco.MjModel` has, for geoms of type sdf.

Without a plugin they have the octrees of their meshes. Of a plugin an MjModel keeps the settings, in the order in which
the plugin declares them, and of its name only a number that it got in its process. So it is told by what it makes: of
MuJoCo's functions that read as many settings it is the one that vanishes on the mesh of the geom.
"""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from diffsim.base.enums import GeomType
from diffsim.base.errors import Problem, UnsupportedError
from diffsim.compiler.assets.field_plugins import SAMPLED, FieldUse
from diffsim.compiler.host.interpret import interpret
from diffsim.geometry.sdf.functions import FUNCTIONS, FieldFunction
from diffsim.mjcf.orientation import matrix

# vertices that are looked at, and how far from zero a field may be there on average, in radii of the mesh
LOOKED_AT, NEAR = 500, 0.02


def field_columns(fields: Mapping[str, Any], mjmodel: Any) -> dict[str, Any]:
    """Names of the fields of a model, and each geom's number and parameters.

    Raises:
      UnsupportedError: a plugin is none of MuJoCo's, or the mesh of its geom is no surface of its field.
    """
    sdf = np.flatnonzero(fields["geom_type"] == GeomType.SDF).tolist()
    uses = {geom: _field_of(fields, mjmodel, geom) for geom in sdf}
    names = sorted({use.name for use in uses.values()})
    most = max((len(use.parameters) for use in uses.values()), default=0)
    number, parameters = np.full(len(fields["geom_type"]), -1), np.zeros((len(fields["geom_type"]), most))
    for geom, use in uses.items():
        number[geom] = names.index(use.name)
        parameters[geom, : len(use.parameters)] = use.parameters
    return {"geom_sdf": number, "geom_sdfparam": parameters, "nsdfparam": most, "sdf_names": tuple(names)}


def _field_of(fields: Mapping[str, Any], mjmodel: Any, geom: int) -> FieldUse:
    """The field of one geom of type sdf."""
    instance = int(mjmodel.geom_plugin[geom])
    if instance < 0:
        return SAMPLED
    settings = _settings(mjmodel, instance)
    uses = [use for name, function in FUNCTIONS.items() if (use := _read(name, function, settings)) is not None]
    off = [_average(use, *_vertices(fields, geom)) for use in uses]
    if not uses or min(off) > NEAR:
        message = f"from_mujoco cannot tell which distance field geom {geom} has: none of MuJoCo's is zero on its mesh"
        hint = "use diffsim.load, or give the geom the mesh of its plugin"
        raise UnsupportedError([Problem("", 0, "", message, hint, unsupported=True)])
    return uses[int(np.argmin(off))]


def _settings(mjmodel: Any, instance: int) -> list[str]:
    """The settings of an instance of a plugin, empty where they are as by default."""
    start, rest = int(mjmodel.plugin_attradr[instance]), mjmodel.plugin_attradr[instance + 1 :]
    stop = int(rest[0]) if len(rest) else len(mjmodel.plugin_attr)
    return bytes(np.asarray(mjmodel.plugin_attr, np.uint8)[start:stop]).decode().split("\0")[:-1]


def _read(name: str, function: FieldFunction, settings: list[str]) -> FieldUse | None:
    """A function with these settings; None if it has others."""
    if len(settings) != len(function.names):
        return None
    given = zip(settings, function.defaults, strict=True)
    try:
        return FieldUse(name, np.array([float(text) if text else usual for text, usual in given]))
    except ValueError:
        return None


def _vertices(fields: Mapping[str, Any], geom: int) -> tuple[np.ndarray, float]:
    """Some vertices (n, 3) of a geom's mesh in the frame in which its field is sampled, and the mesh's radius, m."""
    mesh = int(fields["geom_dataid"][geom])
    first, count = int(fields["mesh_vertadr"][mesh]), int(fields["mesh_vertnum"][mesh])
    own = np.asarray(fields["mesh_vert"][first : first + count], float)
    chosen = own[np.linspace(0, count - 1, min(count, LOOKED_AT)).astype(int)]
    place, turn = (np.asarray(fields[name][mesh], float) for name in ("mesh_pos", "mesh_quat"))
    return chosen @ matrix(turn).T + place, float(np.linalg.norm(own, axis=1).max())


def _average(use: FieldUse, point: np.ndarray, radius: float) -> float:
    """How far a field is from zero on a surface, in radii of this."""
    with jax.enable_x64(True):
        values = interpret(use.function.distance, use.parameters, point)
    return float(np.mean(np.abs(values))) / radius
