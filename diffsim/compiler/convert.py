"""from_mujoco: a compiled `mujoco.MjModel` as a Model, for people who already have one.

Reads attributes only, so `mujoco` itself is never imported.
"""

import dataclasses
from collections.abc import Collection
from typing import Any

import numpy as np

from diffsim.base.errors import Problem, UnsupportedError, expect
from diffsim.compiler.assets.hull import rounding_fields
from diffsim.compiler.elements.sleep import first_sleepers
from diffsim.compiler.model_fields import field_columns
from diffsim.compiler.pack import pack
from diffsim.geometry.hull.tables import facet_fields
from diffsim.geometry.rays.bvh import tree_fields
from diffsim.types.kinds import KINDS
from diffsim.types.model import Model, Option, Statistic
from diffsim.types.topology import Topology


def from_mujoco(
    mjmodel: Any,
    max_contacts: int | None = None,
    max_pairs: int | None = None,
    keep: Collection[str] = (),
) -> Model:
    """Converts a compiled `mujoco.MjModel` (3.8).

    Args:
      mjmodel: the compiled model.
      max_contacts, max_pairs: contact capacities, as for `diffsim.load`.
      keep: switch fields that stay in the program although they are zero.

    Raises:
      TypeError: another kind of object, such as a path or an `MjSpec`.
      UnsupportedError: the field of a geom of type sdf is a plugin that is none of MuJoCo's.
    """
    expect(mjmodel, "mjmodel", "mujoco.MjModel; diffsim.load takes XML", "name_bodyadr", "qpos0")
    wanted = [f.name for cls in (Topology, Model) for f in dataclasses.fields(cls)]
    fields: dict[str, Any] = {name: getattr(mjmodel, name) for name in wanted if hasattr(mjmodel, name)}
    for name, cls in (("opt", Option), ("stat", Statistic)):
        source = getattr(mjmodel, name)
        fields[name] = {f.name: getattr(source, f.name) for f in dataclasses.fields(cls) if hasattr(source, f.name)}
    fields |= _flex_fields(mjmodel)
    if max([*mjmodel.actuator_plugin, *mjmodel.sensor_plugin], default=-1) >= 0:
        message, hint = "from_mujoco does not know the plugins of actuators and sensors", "use diffsim.load"
        raise UnsupportedError([Problem("", 0, "", message, hint, unsupported=True)])
    fields |= {"plugins": (), "npid": 0, "actuator_pidprm": np.zeros((0, 5))}
    fields |= tree_fields(fields) | facet_fields(fields) | rounding_fields(fields) | field_columns(fields, mjmodel)
    names = {kind: names_of(mjmodel, row.prefix) for kind, row in KINDS.items()}

    def packed(fields: dict[str, Any]) -> Model:
        return pack(fields, names, _texts(mjmodel), max_contacts, max_pairs, keep)

    return packed(fields | first_sleepers(fields, packed)[0])


def _flex_fields(mjmodel: Any) -> dict[str, Any]:
    """What an MjModel does not keep of its flexes: their material, which stays unknown, and which cells are empty."""
    materials = {name: np.zeros(mjmodel.nflex) for name in ("flex_young", "flex_poisson", "flex_thickness")}
    parents, empty = np.full(mjmodel.nflex, -1), list[np.ndarray]()
    for flex in range(mjmodel.nflex):
        order, cells = int(mjmodel.flex_interp[flex]), int(np.prod(mjmodel.flex_cellnum[flex]))
        empty.append(np.zeros(cells, int))
        if order:
            first = mjmodel.flex_nodeadr[flex]
            bodies = mjmodel.flex_nodebodyid[first : first + mjmodel.flex_nodenum[flex]]
            slides = mjmodel.body_dofnum[bodies] == 3
            parents[flex] = mjmodel.body_parentid[bodies[slides][0]] if slides.any() else bodies[0]
        if order > 0 and mjmodel.flex_stiffnessadr[flex] >= 0:
            first, size = mjmodel.flex_stiffnessadr[flex], (3 * (order + 1) ** 3) ** 2
            empty[-1] = (mjmodel.flex_stiffness[first : first + cells * size : size] == 0).astype(int)
    unknown = np.full(mjmodel.nflex, -1)
    return {
        **materials,
        "flex_elastic2d": unknown,
        "flex_bodyid": parents,
        "flex_cellempty": np.concatenate([np.zeros(0, int), *empty]),
    }


def names_of(mjmodel: Any, prefix: str) -> tuple[str, ...]:
    """Names of the objects of a kind in an MjModel, by its abbreviation: "jnt" of joints."""
    addresses = getattr(mjmodel, f"name_{prefix}adr")
    return tuple(_string(mjmodel.names, start) for start in np.asarray(addresses))


def _texts(mjmodel: Any) -> tuple[str, ...]:
    return tuple(_string(bytes(mjmodel.text_data), start) for start in np.asarray(mjmodel.text_adr))


def _string(buffer: bytes, start: int) -> str:
    return buffer[start : buffer.index(b"\0", start)].decode()
