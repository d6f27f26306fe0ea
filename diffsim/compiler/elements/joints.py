"""Joints and their dofs: units, limits, axes, qpos0, qpos_spring.

Degrees become radians in the range of limited hinges and balls, and in ref and springref of hinges. Slides are in m.
Source: MuJoCo "Modeling", joint.
"""

from math import pi

import numpy as np

from diffsim.base.joints import JointKind, dof_widths, is_ball, kind_of
from diffsim.compiler.draft import Draft, Node, check_flag, check_limits, is_limited
from diffsim.mjcf.orientation import IDENTITY, compose, rotate, unit

Array = np.ndarray


def joint_rows(draft: Draft) -> None:
    """Rows of all joints; checks which joints can be together on one body."""
    for node in draft.nodes["joint"]:
        node.row = _joint_row(draft, node)
    for body in draft.nodes["body"]:
        _check_stack(draft, body)


def _joint_row(draft: Draft, node: Node) -> dict:
    """The fields of a joint."""
    e = node.e
    kind = kind_of(node.e.type)
    if e.springdamper.any() and (e.springdamper <= 0).any():
        draft.problems.add(node.source, "attribute 'springdamper': needs two positive numbers")
    limited, limits = _limits(draft, node, kind)
    axis, length = unit(rotate(node.frame[1], e.axis))
    if kind.scalar and not length:
        draft.problems.add(node.source, "attribute 'axis': cannot be zero")
    force_limited = kind.scalar and check_limits(draft, node, "actuatorfrc", e.actuatorfrclimited, e.actuatorfrcrange)
    to_radians = pi / 180 if kind.scalar and kind.rotational and draft.settings(node).degree else 1.0
    return {
        "jnt_type": e.type,
        "jnt_bodyid": node.body.id if node.body else 0,
        "jnt_group": e.group,
        "jnt_limited": limited,
        "jnt_range": limits,
        "jnt_actfrclimited": force_limited,
        "jnt_actfrcrange": e.actuatorfrcrange,
        "jnt_actgravcomp": e.actuatorgravcomp,
        "jnt_solref": e.solreflimit,
        "jnt_solimp": e.solimplimit,
        "jnt_pos": np.zeros(3) if kind.free else compose(*node.frame, e.pos, IDENTITY)[0],
        "jnt_axis": axis if kind.scalar else np.array([0.0, 0.0, 1.0]),
        "jnt_stiffness": e.stiffness[0],
        "jnt_stiffnesspoly": e.stiffness[1:],
        "jnt_margin": e.margin,
        "ref": e.ref * to_radians,
        "springref": e.springref * to_radians,
        "dof_solref": e.solreffriction,
        "dof_solimp": e.solimpfriction,
        "dof_frictionloss": e.frictionloss,
        "dof_armature": e.armature,
        "dof_damping": e.damping[0],
        "dof_dampingpoly": e.damping[1:],
    }


def _limits(draft: Draft, node: Node, kind: JointKind) -> tuple[bool, Array]:
    """Whether the joint is limited, and its range in rad or m."""
    limits = np.array(node.e.range)
    if kind.free:
        return False, limits
    if not kind.scalar:
        check_flag(draft, node, "range", "limited", node.e.limited, limits)
        limited = is_limited(node.e.limited, limits)
        if limited and limits[0]:
            draft.problems.add(node.source, f"attribute 'range': must begin with 0 for a ball joint, not {limits[0]:g}")
    else:
        limited = check_limits(draft, node, "", node.e.limited, limits)
    if limited and kind.rotational and draft.settings(node).degree:
        limits = limits * (pi / 180)
    return limited, limits


def _check_stack(draft: Draft, body: Node) -> None:
    """Notes joints that cannot be on one body together.

    A body has at most 6 dofs. After a ball it has no hinge or ball. A free joint is its only joint, and a mocap body
    has no joints.
    """
    joints = body.under.get("joint", [])
    kinds = [kind_of(joint.e.type) for joint in joints]
    if sum(kind.nv for kind in kinds) > 6:
        draft.problems.add(body.source, "a body cannot have more than 6 degrees of freedom")
    ball = next((index for index, joint in enumerate(joints) if is_ball(joint.e.type)), len(kinds))
    for joint, kind in zip(joints[ball + 1 :], kinds[ball + 1 :], strict=True):
        if kind.rotational:
            draft.problems.add(joint.source, "a rotation cannot follow a ball joint on the same body")
    for joint, kind in zip(joints, kinds, strict=True):
        if kind.free and len(kinds) > 1:
            draft.problems.add(joint.source, "a free joint must be the only joint of its body")
    if joints and body.e.mocap:
        draft.problems.add(body.source, "a mocap body cannot have joints")


def configuration(draft: Draft) -> None:
    """qpos0 and qpos_spring; repeats the fields of dofs, which so far have one row for each joint."""
    reference, spring = [], []
    for node in draft.nodes["joint"]:
        kind = kind_of(node.e.type)
        if kind.scalar:
            reference.append([node.row["ref"]])
            spring.append([node.row["springref"]])
            continue
        body = node.body.row if node.body else {}
        pose = np.array([1.0, 0, 0, 0]) if not kind.free else np.append(body["body_pos"], body["body_quat"])
        reference.append(pose)
        spring.append(pose)
    draft.fields["qpos0"] = np.concatenate(reference) if reference else np.zeros(0)
    draft.fields["qpos_spring"] = np.concatenate(spring) if spring else np.zeros(0)
    if draft.nodes["joint"]:
        widths = dof_widths(draft.fields["jnt_type"])
        for name in [name for name in draft.nodes["joint"][0].row if name.startswith("dof_")]:
            draft.fields[name] = np.repeat(draft.fields[name], widths, axis=0)
