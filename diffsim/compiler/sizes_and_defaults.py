"""The last passes before packing: the tree in integers, sizes, and empty arrays for kinds that have no objects.

Source: topology.py for the rules; diffsim/types declares which fields a model has.
"""

import dataclasses

import numpy as np

from diffsim.base.enums import TextureRole
from diffsim.base.joints import is_free, qpos_widths
from diffsim.compiler import topology
from diffsim.compiler.draft import Draft, Node
from diffsim.types.kinds import KINDS
from diffsim.types.model import Model
from diffsim.types.topology import Topology

# integer fields with more than one column, by the number of their columns
COLUMNS = {
    "cam_resolution": 2,
    "mat_texid": len(TextureRole),
    "flex_cellnum": 3,
    "flex_vertedge": 2,
    "flex_edge": 2,
    "flex_edgeflap": 2,
    "flex_evpair": 2,
    "skin_face": 3,
    "mesh_face": 3,
    "mesh_facenormal": 3,
    "mesh_facetexcoord": 3,
    "actuator_trnid": 2,
    "actuator_history": 2,
    "sensor_intprm": 3,
    "sensor_history": 2,
    "tendon_treeid": 2,
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
    # only now: a static body between it and the world may have been fused
    for node in draft.nodes["joint"]:
        if is_free(node.e.type) and node.body is not None and node.body.row["body_parentid"] > 0:
            draft.problems.add(node.source, "a free joint can only be used on a child of the world")
    for name in ("jnt_type", "jnt_bodyid", "geom_bodyid"):
        fields.setdefault(name, np.zeros(0, int))
    fields.update(topology.joint_addresses(fields))
    fields.update(topology.body_ancestry(fields))
    fields.update(topology.dof_ancestry(fields))
    fields.update(nq=int(qpos_widths(fields["jnt_type"]).sum()), nv=len(fields["dof_jntid"]))
    fields["ntree"] = int(fields["dof_treeid"].max(initial=-1)) + 1


# user data by kind, and the setting that bounds how long it is
USER = {
    "body": "nuser_body",
    "joint": "nuser_jnt",
    "geom": "nuser_geom",
    "site": "nuser_site",
    "camera": "nuser_cam",
    "tendon": "nuser_tendon",
    "actuator": "nuser_actuator",
    "sensor": "nuser_sensor",
}


def sizes(draft: Draft) -> None:
    """Counts of all kinds of objects and of their parts, zero where no pass has counted any; length of user data."""
    for kind, setting in USER.items():
        most = getattr(draft.spec.size, setting)
        for node in draft.nodes[kind]:
            user = getattr(node.e, "user", None)
            if user is not None and 0 <= most < len(user):
                draft.problems.add(node.source, f"user has {len(user)} numbers, more than {setting} = {most}")
    for kind, row in KINDS.items():
        draft.fields.setdefault(row.size, len(draft.nodes[kind]))
    for field in dataclasses.fields(Topology):
        if field.type is int and field.name not in draft.fields:
            draft.fields[field.name] = 0
    draft.fields["nuserdata"] = draft.spec.size.nuserdata


def empty_fields(draft: Draft) -> None:
    """Every declared field that no pass has made: no rows, or zeros for what is derived later."""
    fields = draft.fields
    for field in dataclasses.fields(Model):
        if "shape" in field.metadata and field.name not in fields:
            shape = field.metadata["shape"]
            fields[field.name] = np.zeros([n if isinstance(n, int) else int(fields.get(n, 0)) for n in shape])
    for field in dataclasses.fields(Topology):
        if field.type is np.ndarray and field.name not in fields:
            fields[field.name] = np.zeros((0, COLUMNS[field.name]) if field.name in COLUMNS else 0, int)
    fields["stat"] = dict(STATISTIC)


# what a model in float32 can hold
LARGEST = float(np.finfo(np.float32).max)
TOO_LARGE = "some number of the file is too large"


def check_finite(draft: Draft) -> None:
    """Note every object with a field that is no number, or too large for float32. Ranges may be infinite."""
    for name, value in draft.fields["opt"].items():
        if not _fits(np.atleast_1d(value)).all():
            draft.problems.add(draft.spec.option, f"{name} is not a finite number", TOO_LARGE)
    for field in dataclasses.fields(Model):
        name, values = field.name, draft.fields.get(field.name)
        if not isinstance(values, np.ndarray) or values.dtype.kind != "f" or name.endswith("range") or not len(values):
            continue
        for row in np.flatnonzero(~_fits(values.reshape(len(values), -1)).all(axis=1)):
            owner = _owner(draft, field.metadata["shape"][0], int(row))
            draft.problems.add(owner.source if owner else None, f"{name} is not a finite number", TOO_LARGE)


def _owner(draft: Draft, size: str, row: int) -> Node | None:
    """The object that a row of a field belongs to, by the size that counts the field's rows; None if there is none."""
    for kind, described in KINDS.items():
        nodes, blocks = draft.nodes[kind], {block.size: block for block in described.blocks}
        if size == described.size:
            return nodes[row] if row < len(nodes) else None
        if size in blocks:
            first = np.asarray(draft.fields[blocks[size].first])
            return nodes[np.flatnonzero((first >= 0) & (first <= row))[-1]]
    return None


def _fits(values: np.ndarray) -> np.ndarray:
    return np.abs(values) <= LARGEST


def relations(draft: Draft) -> None:
    """What bodies, tendons and actuators mean for each other: coincident frames, simple bodies, reflections."""
    fields = draft.fields
    fields.update(topology.same_frames(fields))
    fields.update(topology.simple_bodies(fields))
    fields.update(topology.simple_under_tendons(fields))
    fields.update(topology.actuator_targets(fields))


def names(draft: Draft) -> dict[str, tuple[str, ...]]:
    """Names by kind, one per object."""
    result = {kind: tuple(node.name for node in draft.nodes[kind]) for kind in KINDS}
    spare = draft.fields["nkey"] - len(result["key"])
    return result | {"key": result["key"] + spare * ("",)}
