"""The last passes before packing: integer fields of the tree, sizes, and empty arrays for kinds without objects.

The structure of the tree (parents, addresses, trees, simple bodies) follows from a few integer arrays and from poses;
frames that differ by less than 1e-6 count as equal. Bodies are in depth-first order, joints in the order of bodies,
dofs in the order of joints. diffsim/types declares the fields of a model.
Source: MuJoCo "Computation" (kinematic tree) and mjModel's field comments.
"""

import dataclasses

import numpy as np

from diffsim.base.enums import SameFrame, TextureRole, TrnType, WrapType
from diffsim.base.joints import dof_widths, is_free, kind_of, qpos_widths
from diffsim.compiler.draft import Draft, Node, addresses, or_minus_one
from diffsim.types.kinds import KINDS
from diffsim.types.model import Model
from diffsim.types.topology import Topology

Array = np.ndarray
Integers = dict[str, Array]

# numbers in positions (m) and quaternions that differ by less are equal, as in MuJoCo
FRAME_TINY = 1e-6
# an element of a unit axis below this is zero (mjEPS)
AXIS_TINY = 1e-14
# the field with the body of each type of wrap object
WRAPPED = {
    int(WrapType.SITE): "site_bodyid",
    int(WrapType.SPHERE): "geom_bodyid",
    int(WrapType.CYLINDER): "geom_bodyid",
}


def joint_addresses(fields: Integers) -> Integers:
    """jnt_qposadr, jnt_dofadr, and for each body the counts and addresses of its joints, dofs and geoms."""
    nbody = len(fields["body_parentid"])
    kind = fields["jnt_type"]
    body = fields["jnt_bodyid"]
    widths = dof_widths(kind)
    dofs = np.bincount(body, widths, minlength=nbody).astype(np.int32)
    joints = np.bincount(body, minlength=nbody).astype(np.int32)
    geoms = np.bincount(fields["geom_bodyid"], minlength=nbody).astype(np.int32)
    return {
        "jnt_qposadr": addresses(qpos_widths(kind)),
        "jnt_dofadr": addresses(widths),
        "body_jntnum": joints,
        "body_jntadr": or_minus_one(addresses(joints), joints),
        "body_dofnum": dofs,
        "body_dofadr": or_minus_one(addresses(dofs), dofs),
        "body_geomnum": geoms,
        "body_geomadr": or_minus_one(addresses(geoms), geoms),
        "dof_jntid": np.repeat(np.arange(len(kind)), widths).astype(np.int32),
        "dof_bodyid": np.repeat(body, widths).astype(np.int32),
    }


def body_ancestry(fields: Integers, apart: np.ndarray) -> Integers:
    """body_rootid: the ancestor that is a child of the world; body_weldid: the nearest ancestor with a joint.

    Bodies in `apart` (nbody,) are not welded to their parents, although they have no joint.
    """
    parent, joints = fields["body_parentid"], fields["body_jntnum"]
    root, weld = np.zeros_like(parent), np.zeros_like(parent)
    for body in range(1, len(parent)):
        root[body] = root[parent[body]] if parent[body] else body
        weld[body] = body if joints[body] or apart[body] else weld[parent[body]]
    return {"body_rootid": root, "body_weldid": weld}


def dof_ancestry(fields: Integers) -> Integers:
    """dof_parentid, dof_treeid, body_treeid: the chain of dofs towards the root, and the tree of each dof and body."""
    parent, number, first = fields["body_parentid"], fields["body_dofnum"], fields["body_dofadr"]
    nv = int(number.sum())
    last = np.full(len(parent), -1, np.int32)
    dof_parent = np.full(nv, -1, np.int32)
    for body in range(len(parent)):
        last[body] = last[parent[body]] if body else -1
        for dof in range(first[body], first[body] + number[body]) if number[body] else ():
            dof_parent[dof] = last[body]
            last[body] = dof
    tree = np.cumsum(dof_parent == -1).astype(np.int32) - 1
    weld = fields["body_weldid"]
    body_tree = np.array([tree[first[w]] if number[w] else -1 for w in weld], np.int32)
    return {"dof_parentid": dof_parent, "dof_treeid": tree, "body_treeid": body_tree}


def same_vector(a: Array, b: Array) -> bool:
    """Whether two vectors are equal within FRAME_TINY."""
    return bool(np.all(np.abs(a - b) < FRAME_TINY))


def same_rotation(a: Array, b: Array) -> bool:
    """Whether two quaternions are equal, or opposite, within FRAME_TINY."""
    return same_vector(a, b) or same_vector(a, -b)


# the quaternion of no rotation
_UNIT = np.array([1.0, 0.0, 0.0, 0.0])


def same_frame(pos: Array, quat: Array, ipos: Array, iquat: Array) -> SameFrame:
    """Which frame a pose in a body coincides with: the body's or its inertia's, fully or in rotation; or none.

    Kinematics copies frames that coincide instead of composing poses.
    """
    if same_rotation(quat, _UNIT):
        return SameFrame.BODY if same_vector(pos, np.zeros(3)) else SameFrame.BODYROT
    if same_rotation(quat, iquat):
        return SameFrame.INERTIA if same_vector(pos, ipos) else SameFrame.INERTIAROT
    return SameFrame.NONE


def same_frames(fields: Integers) -> Integers:
    """body_sameframe, geom_sameframe, site_sameframe."""
    ipos, iquat = fields["body_ipos"], fields["body_iquat"]
    result: Integers = {}
    for kind in ("geom", "site"):
        rows = zip(fields[kind + "_pos"], fields[kind + "_quat"], fields[kind + "_bodyid"], strict=True)
        result[kind + "_sameframe"] = np.array([same_frame(p, q, ipos[b], iquat[b]) for p, q, b in rows], np.int32)
    # the inertial frame is only compared with the body's frame: no pose has a zero quaternion
    nowhere = np.zeros(4)
    result["body_sameframe"] = np.array(
        [same_frame(p, q, np.zeros(3), nowhere) for p, q in zip(ipos, iquat, strict=True)], np.int32
    )
    return result


def simple_bodies(fields: Integers) -> Integers:
    """body_simple: 1 if the inertia matrix of the body's dofs is diagonal, 2 if its dofs are also all slides.

    This holds for a body without children, on the world or on a static child of it, whose frame is its inertial frame
    and whose joints are along its axes.
    """
    parent = fields["body_parentid"]
    kind = fields["jnt_type"]
    nbody = len(parent)
    fixed = (parent[parent] == 0) & (fields["body_dofnum"][parent] == 0)
    own_root = fields["body_rootid"] == np.arange(nbody)
    simple = ((fields["body_sameframe"] == SameFrame.BODY) & (own_root | fixed)).astype(np.int32)
    for body in range(nbody):
        if parent[body] > 0:
            simple[parent[body]] = 0
        joints = range(fields["body_jntadr"][body], fields["body_jntadr"][body] + fields["body_jntnum"][body])
        if not _joints_are_simple(fields, joints):
            simple[body] = 0
        if simple[body] and fields["body_dofnum"][body]:
            simple[body] = 1 if any(any(kind_of(kind[joint]).angular) for joint in joints) else 2
    return {"body_simple": simple}


def _joints_are_simple(fields: Integers, joints: range) -> bool:
    """Whether joints are at the origin with axes along the frame's axes, and at most the last one is a rotation."""
    rotated = False
    for joint in joints:
        kind = kind_of(fields["jnt_type"][joint])
        aligned = np.sum(np.abs(fields["jnt_axis"][joint]) > AXIS_TINY) == 1
        if rotated or not same_vector(fields["jnt_pos"][joint], np.zeros(3)) or (kind.scalar and not aligned):
            return False
        rotated = any(kind.angular)
    return True


def simple_under_tendons(fields: Integers) -> Integers:
    """body_simple with 0 for bodies on the path of a tendon with armature, which couples their dofs."""
    simple = fields["body_simple"].copy()
    for tendon in np.flatnonzero(fields["tendon_armature"]):
        first = fields["tendon_adr"][tendon]
        for wrap in range(first, first + fields["tendon_num"][tendon]):
            source = WRAPPED.get(int(fields["wrap_type"][wrap]))
            if source:
                simple[fields[source][fields["wrap_objid"][wrap]]] = 0
    return {"body_simple": simple}


def actuator_targets(fields: Integers) -> Integers:
    """jnt_actuatorid, tendon_actuatorid: the actuator that adds damping or armature; -1 for none, -2 for several."""
    joint = np.full(len(fields["jnt_type"]), -1, np.int32)
    tendon = np.full(len(fields["tendon_adr"]), -1, np.int32)
    target = {TrnType.JOINT: joint, TrnType.JOINTINPARENT: joint, TrnType.TENDON: tendon}
    for actuator, kind in enumerate(fields["actuator_trntype"]):
        inert = fields["actuator_armature"][actuator] == 0 and fields["actuator_damping"][actuator] == 0
        if kind not in target or (inert and not fields["actuator_dampingpoly"][actuator].any()):
            continue
        owner = target[kind]
        index = fields["actuator_trnid"][actuator, 0]
        owner[index] = actuator if owner[index] == -1 else -2
    return {"jnt_actuatorid": joint, "tendon_actuatorid": tendon}


# integer fields with more than one column, and their number of columns
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

# statistics of a model with nothing to average over (mj_defaultStatistic)
STATISTIC = {
    "meaninertia": 1.0,  # kg m^2
    "meanmass": 1.0,  # kg
    "meansize": 0.2,  # m
    "extent": 2.0,  # m
    "center": np.zeros(3),  # m
}


def rows(draft: Draft) -> None:
    """Arrays of all objects in the world body; their poses are final now."""
    for kind in ("body", "joint", "geom", "site", "camera", "light"):
        draft.columns(kind)


def tree(draft: Draft) -> None:
    """Addresses and ancestry of bodies, joints and dofs."""
    fields = draft.fields
    # checked only now, because a static body between the joint and the world may have been fused
    for node in draft.nodes["joint"]:
        if is_free(node.e.type) and node.body is not None and node.body.row["body_parentid"] > 0:
            draft.problems.add(node.source, "a free joint is only allowed on a child of the world")
    for name in ("jnt_type", "jnt_bodyid", "geom_bodyid"):
        fields.setdefault(name, np.zeros(0, int))
    fields.update(joint_addresses(fields))
    apart = (fields["body_mocapid"] >= 0) & draft.spec.follows("mocap_groups")
    fields.update(body_ancestry(fields, apart))
    fields.update(dof_ancestry(fields))
    fields.update(nq=int(qpos_widths(fields["jnt_type"]).sum()), nv=len(fields["dof_jntid"]))
    fields["ntree"] = int(fields["dof_treeid"].max(initial=-1)) + 1


# kinds with user data, and the setting for its length
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
    """Sizes of all kinds of objects and their parts, zero if no pass has set them; checks the length of user data."""
    for kind, setting in USER.items():
        most = getattr(draft.spec.size, setting)
        for node in draft.nodes[kind]:
            user = getattr(node.e, "user", None)
            if user is not None and 0 <= most < len(user):
                draft.problems.add(
                    node.source, f"attribute 'user': takes at most {setting} = {most} numbers, {len(user)} given"
                )
    for kind, row in KINDS.items():
        draft.fields.setdefault(row.size, len(draft.nodes[kind]))
    for field in dataclasses.fields(Topology):
        if field.type is int and field.name not in draft.fields:
            draft.fields[field.name] = 0
    draft.fields["nuserdata"] = draft.spec.size.nuserdata


def empty_fields(draft: Draft) -> None:
    """Adds all declared fields that no pass has made: without rows, or zeros for fields that are derived later."""
    fields = draft.fields
    for field in dataclasses.fields(Model):
        if "shape" in field.metadata and field.name not in fields:
            shape = field.metadata["shape"]
            fields[field.name] = np.zeros([n if isinstance(n, int) else int(fields.get(n, 0)) for n in shape])
    for field in dataclasses.fields(Topology):
        if field.type is np.ndarray and field.name not in fields:
            fields[field.name] = np.zeros((0, COLUMNS[field.name]) if field.name in COLUMNS else 0, int)
    fields["stat"] = dict(STATISTIC)


# the largest number that a model can have, since it may be stored in float32
LARGEST = float(np.finfo(np.float32).max)
# the hint for a number that is not finite
TOO_LARGE = "some number in the file is too large"


def check_finite(draft: Draft) -> None:
    """Notes every object with a field that is NaN or too large for float32; ranges may be infinite."""
    for name, value in draft.fields["opt"].items():
        if not _fit(np.atleast_1d(value)):
            draft.problems.add(draft.spec.option, f"{name} is not a finite number", TOO_LARGE)
    for field in dataclasses.fields(Model):
        name = field.name
        values = draft.fields.get(field.name)
        if not isinstance(values, np.ndarray) or values.dtype.kind != "f" or name.endswith("range") or not len(values):
            continue
        if _fit(values):
            continue
        for row in (row for row, numbers in enumerate(values) if not _fit(numbers)):
            owner = _owner(draft, field.metadata["shape"][0], row)
            draft.problems.add(owner.source if owner else None, f"{name} is not a finite number", TOO_LARGE)


def _owner(draft: Draft, size: str, row: int) -> Node | None:
    """The object to which a row of a field with length `size` belongs; None if there is none."""
    for kind, described in KINDS.items():
        nodes = draft.nodes[kind]
        blocks = {block.size: block for block in described.blocks}
        if size == described.size:
            return nodes[row] if row < len(nodes) else None
        if size in blocks:
            first = np.asarray(draft.fields[blocks[size].first])
            return nodes[np.flatnonzero((first >= 0) & (first <= row))[-1]]
    return None


def _fit(values: np.ndarray) -> bool:
    """Whether all numbers fit float32; a NaN makes the minimum and maximum NaN, and both comparisons false."""
    return not values.size or bool(values.min() >= -LARGEST and values.max() <= LARGEST)


def relations(draft: Draft) -> None:
    """Fields that relate bodies, tendons and actuators: coincident frames, simple bodies, actuators with armature."""
    fields = draft.fields
    fields.update(same_frames(fields))
    fields.update(simple_bodies(fields))
    fields.update(simple_under_tendons(fields))
    fields.update(actuator_targets(fields))


def names(draft: Draft) -> dict[str, tuple[str, ...]]:
    """Names by kind, one for each object."""
    result = {kind: tuple(node.name for node in draft.nodes[kind]) for kind in KINDS}
    spare = draft.fields["nkey"] - len(result["key"])
    return result | {"key": result["key"] + spare * ("",)}
