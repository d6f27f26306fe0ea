"""The last passes before packing: the tree in integers, sizes, and empty arrays for kinds that have no objects.

Source: topology.py for the rules; diffsim/types declares which fields a model has.
"""

import dataclasses
from typing import Any

import numpy as np

from diffsim.compiler import topology
from diffsim.compiler.draft import Draft
from diffsim.types.model import Model
from diffsim.types.topology import NAMED, Topology

# integer fields with more than one column, by the number of their columns
COLUMNS = {
    "cam_resolution": 2,
    "mesh_face": 3,
    "mesh_facenormal": 3,
    "mesh_facetexcoord": 3,
    "actuator_trnid": 2,
    "actuator_history": 2,
    "sensor_intprm": 3,
    "sensor_history": 2,
}

# mj_defaultStatistic: what stands where there is nothing to average over
STATISTIC = {"meaninertia": 1.0, "meanmass": 1.0, "meansize": 0.2, "extent": 2.0, "center": np.zeros(3)}


def rows(draft: Draft) -> None:
    """Rows of everything in the world body as arrays, now that poses are final."""
    for kind in ("body", "joint", "geom", "site", "camera", "light"):
        draft.columns(kind)


def tree(draft: Draft) -> None:
    """Addresses and ancestry of bodies, joints and dofs."""
    fields = draft.fields
    for name in ("jnt_type", "jnt_bodyid", "geom_bodyid"):
        fields.setdefault(name, np.zeros(0, int))
    fields.update(topology.joint_addresses(fields))
    fields.update(topology.body_ancestry(fields))
    fields.update(topology.dof_ancestry(fields))
    fields.update(nq=int(topology.QPOS_WIDTH[fields["jnt_type"]].sum()), nv=len(fields["dof_jntid"]))
    fields["ntree"] = int(fields["dof_treeid"].max(initial=-1)) + 1


def sizes(draft: Draft) -> None:
    """Counts of all kinds of objects, and of user data."""
    for kind, size in NAMED.items():
        draft.fields.setdefault(size, len(draft.nodes[kind]))
    draft.fields["nuserdata"] = draft.spec.size.nuserdata


def empty_fields(draft: Draft) -> None:
    """Every declared field that no pass has made: no rows, or zeros for what is derived later."""
    fields = draft.fields
    for field in dataclasses.fields(Model):
        if "shape" in field.metadata and field.name not in fields:
            fields[field.name] = np.zeros([_count(fields, size) for size in field.metadata["shape"]])
    for field in dataclasses.fields(Topology):
        if field.type is np.ndarray and field.name not in fields:
            fields[field.name] = np.zeros((0, COLUMNS[field.name]) if field.name in COLUMNS else 0, int)
    fields["stat"] = dict(STATISTIC)


def _count(fields: dict[str, Any], size: str | int) -> int:
    return size if isinstance(size, int) else int(fields.get(size, 0))


def relations(draft: Draft) -> None:
    """What bodies, tendons and actuators mean for each other: coincident frames, simple bodies, reflections."""
    fields = draft.fields
    fields.update(topology.same_frames(fields))
    fields.update(topology.simple_bodies(fields))
    fields.update(topology.simple_under_tendons(fields))
    fields.update(topology.actuator_targets(fields))


def names(draft: Draft) -> dict[str, tuple[str, ...]]:
    """Names by kind, one per object."""
    found = {kind: tuple(node.name for node in draft.nodes[kind]) for kind in NAMED}
    spare = draft.fields["nkey"] - len(found["key"])
    return found | {"key": found["key"] + spare * ("",)}
