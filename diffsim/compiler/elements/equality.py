"""Equality constraints. One row each; what depends on poses in eq_data is completed by reference.py.

eq_data of a connect: [0:3] anchor on the first body, [3:6] on the second. Of a weld, the other way round: [0:3] anchor
on the second body, [3:6] on the first, [6:10] relative orientation (all zero: take it from qpos0), [10] torque scale.
Of a joint or tendon: [0:5] polynomial. Source: MuJoCo "Computation", constraint model; mjModel's eq_data.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from diffsim.compiler.draft import Draft, Node
from diffsim.enums import EqType, ObjType
from diffsim.joints import is_scalar
from diffsim.mjcf.elements.equality import Connect, Equality, JointEquality, TendonEquality, Weld

Array = np.ndarray
Ends = tuple[ObjType, str, str | None, str | None]


def equality_rows(draft: Draft) -> None:
    """Rows of all equality constraints."""
    for node in draft.nodes["equality"]:
        objtype, kind, first, second = TYPES[node.e.type].ends(node.e)
        one, two = draft.find(node.source, kind, first), draft.find(node.source, kind, second)
        # a body constraint without second body holds on to the world
        missing = 0 if objtype == ObjType.BODY else -1
        ids = (one.id if one else -1, two.id if two else missing)
        if ids[0] == ids[1] and one is not None:
            draft.problems.add(node.source, f"{kind} '{first}' is constrained to itself")
        if isinstance(node.e, JointEquality):
            _check_scalar(draft, node, one, two)
        node.row = {
            "eq_type": node.e.type,
            "eq_objtype": objtype,
            "eq_obj1id": ids[0],
            "eq_obj2id": ids[1],
            "eq_active0": node.e.active,
            "eq_solref": node.e.solref,
            "eq_solimp": node.e.solimp,
            "eq_data": _data(node.e),
        }
    draft.columns("equality")


def _held_bodies(e: Connect | Weld) -> Ends:
    """Two bodies, or two sites of bodies."""
    if e.site1 is not None:
        return ObjType.SITE, "site", e.site1, e.site2
    return ObjType.BODY, "body", e.body1, e.body2


def _connect_data(e: Connect, data: Array) -> None:
    if e.anchor is not None:
        data[:3] = e.anchor


def _weld_data(e: Weld, data: Array) -> None:
    if e.body1 is not None:
        data[:3] = e.anchor if e.anchor is not None else 0.0
        data[3:10] = e.relpose if e.relpose is not None else 0.0
    data[10] = e.torquescale


def _polynomial(e: JointEquality | TendonEquality, data: Array) -> None:
    data[:5] = e.polycoef


class EqualityType(NamedTuple):
    """What the constraint holds together (object type, kind, names), and what it writes into eq_data (11,)."""

    ends: Callable[[Any], Ends]
    data: Callable[[Any, Array], None]


TYPES = {
    EqType.CONNECT: EqualityType(_held_bodies, _connect_data),
    EqType.WELD: EqualityType(_held_bodies, _weld_data),
    EqType.JOINT: EqualityType(lambda e: (ObjType.UNKNOWN, "joint", e.joint1, e.joint2), _polynomial),
    EqType.TENDON: EqualityType(lambda e: (ObjType.UNKNOWN, "tendon", e.tendon1, e.tendon2), _polynomial),
}


def _data(e: Equality) -> Array:
    """eq_data [11] as far as the file says it; MuJoCo's defaults are 1 at [1] and [10]."""
    data = np.zeros(11)
    data[1] = data[10] = 1.0
    TYPES[e.type].data(e, data)
    return data


def _check_scalar(draft: Draft, node: Node, *joints: Node | None) -> None:
    for joint in joints:
        if joint is not None and not is_scalar(joint.e.type):
            draft.problems.add(node.source, f"joint '{joint.name}' is not a hinge or slide")
