"""Equality constraints. One row each; their numbers stand in `mjcf/elements/equality.py`."""

from diffsim.base.enums import ObjType
from diffsim.base.joints import is_scalar
from diffsim.compiler.draft import Draft, Node
from diffsim.mjcf.elements.equality import JointEquality


def equality_rows(draft: Draft) -> None:
    """Rows of all equality constraints."""
    for node in draft.nodes["equality"]:
        objtype, kind, first, second = node.e.ends
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
            "eq_data": node.e.data,
        }
    draft.columns("equality")


def _check_scalar(draft: Draft, node: Node, *joints: Node | None) -> None:
    for joint in joints:
        if joint is not None and not is_scalar(joint.e.type):
            draft.problems.add(node.source, f"joint '{joint.name}' is not a hinge or slide")
