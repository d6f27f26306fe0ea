"""The kinematic tree as integer arrays: parents, addresses, trees, simple bodies. Pure numpy, no Spec.

Everything here follows from a few integer arrays and from poses (two frames count as the same when they are within
1e-6), and is asked again nowhere else. Bodies are in depth-first order, joints in body order, dofs in joint order.
Source: MuJoCo "Computation" (kinematic tree) and mjModel's field comments.
"""

import numpy as np

from diffsim.base.enums import SameFrame, TrnType, WrapType
from diffsim.base.joints import dof_widths, kind_of, qpos_widths

Array = np.ndarray
Fields = dict[str, Array]

FRAME_TINY = 1e-6
AXIS_TINY = 1e-14
WRAPPED = {
    int(WrapType.SITE): "site_bodyid",
    int(WrapType.SPHERE): "geom_bodyid",
    int(WrapType.CYLINDER): "geom_bodyid",
}


def addresses(counts: Array) -> Array:
    """First index of each block of the given lengths."""
    return np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.int32) if len(counts) else np.zeros(0, np.int32)


def or_minus_one(address: Array, count: Array) -> Array:
    """The address, or -1 where the block is empty."""
    return np.where(count > 0, address, -1).astype(np.int32)


def joint_addresses(fields: Fields) -> Fields:
    """jnt_qposadr, jnt_dofadr and the body's counts and addresses of joints, dofs and geoms."""
    nbody, kind, body = len(fields["body_parentid"]), fields["jnt_type"], fields["jnt_bodyid"]
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


def body_ancestry(fields: Fields) -> Fields:
    """body_rootid: the ancestor that is a child of the world; body_weldid: the nearest one that moves by itself."""
    parent, joints = fields["body_parentid"], fields["body_jntnum"]
    root, weld = np.zeros_like(parent), np.zeros_like(parent)
    for body in range(1, len(parent)):
        root[body] = root[parent[body]] if parent[body] else body
        weld[body] = body if joints[body] else weld[parent[body]]
    return {"body_rootid": root, "body_weldid": weld}


def dof_ancestry(fields: Fields) -> Fields:
    """dof_parentid, dof_treeid, body_treeid: the chain of dofs towards the root, and the tree that each is in."""
    parent, number, first = fields["body_parentid"], fields["body_dofnum"], fields["body_dofadr"]
    nv = int(number.sum())
    last = np.full(len(parent), -1, np.int32)
    dof_parent = np.full(nv, -1, np.int32)
    for body in range(len(parent)):
        last[body] = last[parent[body]] if body else -1
        for dof in range(first[body], first[body] + number[body]) if number[body] else ():
            dof_parent[dof], last[body] = last[body], dof
    tree = np.cumsum(dof_parent == -1).astype(np.int32) - 1
    weld = fields["body_weldid"]
    body_tree = np.array([tree[first[w]] if number[w] else -1 for w in weld], np.int32)
    return {"dof_parentid": dof_parent, "dof_treeid": tree, "body_treeid": body_tree}


def same_vector(a: Array, b: Array) -> bool:
    """Elementwise within 1e-6."""
    return bool(np.all(np.abs(a - b) < FRAME_TINY))


def same_rotation(a: Array, b: Array) -> bool:
    """Quaternions within 1e-6 of each other or of each other's negative."""
    return same_vector(a, b) or same_vector(a, -b)


_UNIT = np.array([1.0, 0.0, 0.0, 0.0])


def same_frame(pos: Array, quat: Array, ipos: Array, iquat: Array) -> SameFrame:
    """Which frame of the body (or of its inertia) a pose coincides with, to skip work in kinematics."""
    if same_rotation(quat, _UNIT):
        return SameFrame.BODY if same_vector(pos, np.zeros(3)) else SameFrame.BODYROT
    if same_rotation(quat, iquat):
        return SameFrame.INERTIA if same_vector(pos, ipos) else SameFrame.INERTIAROT
    return SameFrame.NONE


def same_frames(fields: Fields) -> Fields:
    """body_sameframe, geom_sameframe, site_sameframe."""
    ipos, iquat = fields["body_ipos"], fields["body_iquat"]
    result: Fields = {}
    for kind in ("geom", "site"):
        rows = zip(fields[kind + "_pos"], fields[kind + "_quat"], fields[kind + "_bodyid"], strict=True)
        result[kind + "_sameframe"] = np.array([same_frame(p, q, ipos[b], iquat[b]) for p, q, b in rows], np.int32)
    nowhere = np.zeros(4)
    result["body_sameframe"] = np.array(
        [same_frame(p, q, np.zeros(3), nowhere) for p, q in zip(ipos, iquat, strict=True)], np.int32
    )
    return result


def simple_bodies(fields: Fields) -> Fields:
    """body_simple: 1 if the inertia of the body's dofs is diagonal, 2 if besides they are all slides."""
    parent, kind = fields["body_parentid"], fields["jnt_type"]
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
            simple[body] = 1 if any(kind_of(kind[joint]).angular[-1] for joint in joints) else 2
    return {"body_simple": simple}


def _joints_are_simple(fields: Fields, joints: range) -> bool:
    """At most one rotation and that last, joints at the origin, axes along the frame's axes."""
    rotated = False
    for joint in joints:
        kind = kind_of(fields["jnt_type"][joint])
        aligned = np.sum(np.abs(fields["jnt_axis"][joint]) > AXIS_TINY) == 1
        if rotated or not same_vector(fields["jnt_pos"][joint], np.zeros(3)) or (kind.scalar and not aligned):
            return False
        rotated = kind.angular[-1]
    return True


def simple_under_tendons(fields: Fields) -> Fields:
    """body_simple again: a body that a tendon with inertia runs over is not simple."""
    simple = fields["body_simple"].copy()
    for tendon in np.flatnonzero(fields["tendon_armature"]):
        first = fields["tendon_adr"][tendon]
        for wrap in range(first, first + fields["tendon_num"][tendon]):
            source = WRAPPED.get(int(fields["wrap_type"][wrap]))
            if source:
                simple[fields[source][fields["wrap_objid"][wrap]]] = 0
    return {"body_simple": simple}


def actuator_targets(fields: Fields) -> Fields:
    """jnt_actuatorid, tendon_actuatorid: the one actuator that adds damping or inertia there, -1 none, -2 several."""
    joint = np.full(len(fields["jnt_type"]), -1, np.int32)
    tendon = np.full(len(fields["tendon_adr"]), -1, np.int32)
    target = {TrnType.JOINT: joint, TrnType.JOINTINPARENT: joint, TrnType.TENDON: tendon}
    for actuator, kind in enumerate(fields["actuator_trntype"]):
        inert = fields["actuator_armature"][actuator] == 0 and fields["actuator_damping"][actuator] == 0
        if kind not in target or (inert and not fields["actuator_dampingpoly"][actuator].any()):
            continue
        owner, index = target[kind], fields["actuator_trnid"][actuator, 0]
        owner[index] = actuator if owner[index] == -1 else -2
    return {"jnt_actuatorid": joint, "tendon_actuatorid": tendon}
