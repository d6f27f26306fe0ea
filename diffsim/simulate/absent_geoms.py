"""Models with fewer geoms than another one get its other geoms, as geoms that do not exist (simulate/stack.py)."""

import dataclasses
from typing import Any

import numpy as np

from diffsim.base.enums import GeomType, ObjType, WrapType
from diffsim.types import Model
from diffsim.types.topology import Topology

# the fields that hold ids of geoms, the fields that say which of the ids are of geoms, and the values that mean geoms
IDS: dict[str, tuple[str, tuple[int, ...]]] = {
    "sensor_objid": ("sensor_objtype", (ObjType.GEOM,)),
    "sensor_refid": ("sensor_reftype", (ObjType.GEOM,)),
    "tuple_objid": ("tuple_objtype", (ObjType.GEOM,)),
    "wrap_objid": ("wrap_type", (WrapType.SPHERE, WrapType.CYLINDER)),
    "pair_geom1": ("", ()),
    "pair_geom2": ("", ()),
}
# what a geom that does not exist has in place of the other model's values: no size, at the origin of its body
NOTHING: dict[str, Any] = {
    "geom_pos": 0.0,
    "geom_quat": np.array([1.0, 0.0, 0.0, 0.0]),
    "geom_rbound": 0.0,
    "geom_aabb": 0.0,
}


def padded(model: Model, fullest: Model) -> Model:
    """The model with all geoms of another one; geoms that it did not have get the mesh -1.

    The geoms of a body are the first ones of this body in the other model, and the others are meshes. A model that is
    not such a part of the other one is returned unchanged.
    """
    topology, full = model.topology, fullest.topology
    fewer = topology.ngeom < full.ngeom and topology.nbody == full.nbody
    if not fewer or np.any(topology.body_geomnum > full.body_geomnum):
        return model
    # the place of each own geom among the geoms of the other model
    first = full.body_geomadr - topology.body_geomadr
    place = np.arange(topology.ngeom) + first[topology.geom_bodyid]
    absent = np.setdiff1d(np.arange(full.ngeom), place)
    if np.any(full.geom_type[absent] != GeomType.MESH):
        return model
    leaves = {}
    for field in dataclasses.fields(Model):
        if field.metadata.get("shape", ("",))[0] == "ngeom":
            values = np.array(getattr(fullest, field.name))
            values[place] = np.asarray(getattr(model, field.name))
            values[absent] = NOTHING.get(field.name, values[absent])
            leaves[field.name] = values
    return dataclasses.replace(model, topology=_padded_topology(topology, full, place, absent), **leaves)


def _padded_topology(topology: Topology, full: Topology, place: np.ndarray, absent: np.ndarray) -> Topology:
    """The topology of `padded`."""
    fields: dict[str, Any] = {"ngeom": full.ngeom, "body_geomnum": full.body_geomnum, "body_geomadr": full.body_geomadr}
    for field in dataclasses.fields(Topology):
        value = getattr(topology, field.name)
        if field.name.startswith("geom_"):
            whole = getattr(full, field.name).copy()
            whole[place] = value[: topology.ngeom]
            # after geoms, `geom_fieldcells` has rows of flexes
            whole[full.ngeom :] = value[topology.ngeom :]
            fields[field.name] = whole
        elif field.name in IDS and len(value):
            kind, of_geoms = IDS[field.name]
            chosen = np.isin(getattr(topology, kind), of_geoms) if kind else np.ones(len(value), bool)
            fields[field.name] = np.where(chosen, place[np.where(chosen, value, 0)], value)
    fields["geom_dataid"][absent] = -1
    names = list(full.names["geom"])
    present = dict(topology.present)
    for geom, name in zip(place.tolist(), topology.names["geom"], strict=True):
        names[geom] = name
    for name in present:
        if name.startswith("geom_"):
            present[name] = np.zeros_like(full.present[name])
            present[name][place] = topology.present[name]
    return dataclasses.replace(topology, **fields, names={**topology.names, "geom": tuple(names)}, present=present)
