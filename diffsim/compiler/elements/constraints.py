"""Contact pairs and exclusions, sorted by their signature (body1 << 16) + body2; equality constraints.

Attributes that a pair does not give come from its default class, not from its geoms (3.8.1). The layout of the numbers
of an equality is in `mjcf/elements/constraints.py`.
Source: MuJoCo "Modeling", pair, exclude and equality.
"""

from diffsim.base.enums import ObjType
from diffsim.base.joints import is_scalar
from diffsim.compiler.draft import Draft
from diffsim.mjcf.elements.constraints import JointEquality

# legal dimensions of contacts: frictionless, sliding, torsional, rolling
CONDIMS = (1, 3, 4, 6)


def pair_rows(draft: Draft) -> None:
    """Rows of all pairs; the geom on the body with the smaller index comes first."""
    for node in draft.nodes["pair"]:
        e = node.e
        geoms = [draft.find(node.source, "geom", name) for name in (e.geom1, e.geom2)]
        if e.condim not in CONDIMS:
            draft.problems.add(node.source, f"attribute 'condim': must be 1, 3, 4 or 6, not {e.condim}")
        ends = [(geom.body.id if geom and geom.body else 0, geom) for geom in geoms]
        first, second = sorted(ends, key=lambda end: end[0])
        node.row = {
            "pair_dim": e.condim,
            "pair_geom1": first[1].id if first[1] else -1,
            "pair_geom2": second[1].id if second[1] else -1,
            "pair_signature": (first[0] << 16) + second[0],
            "pair_solref": e.solref,
            "pair_solreffriction": e.solreffriction,
            "pair_solimp": e.solimp,
            "pair_margin": e.margin,
            "pair_gap": e.gap,
            "pair_friction": e.friction,
        }
    _sort(draft, "pair", "pair_signature")


def exclude_rows(draft: Draft) -> None:
    """Rows of all exclusions."""
    for node in draft.nodes["exclude"]:
        bodies = [draft.find(node.source, "body", name) for name in (node.e.body1, node.e.body2)]
        first, second = sorted(body.id if body else 0 for body in bodies)
        node.row = {"exclude_signature": (first << 16) + second}
    _sort(draft, "exclude", "exclude_signature")


def _sort(draft: Draft, kind: str, signature: str) -> None:
    """Sorts the objects by signature and renumbers them."""
    draft.problems.raise_if_any()
    nodes = draft.nodes[kind] = sorted(draft.nodes[kind], key=lambda node: node.row[signature])
    for index, node in enumerate(nodes):
        node.id = index
    draft.columns(kind)


def equality_rows(draft: Draft) -> None:
    """Rows of all equality constraints."""
    for node in draft.nodes["equality"]:
        objtype, kind, first, second = node.e.ends
        object1, object2 = draft.find(node.source, kind, first), draft.find(node.source, kind, second)
        # the second body is the world by default
        missing = 0 if objtype == ObjType.BODY else -1
        ids = (object1.id if object1 else -1, object2.id if object2 else missing)
        if ids[0] == ids[1] and object1 is not None:
            draft.problems.add(node.source, f"{kind} '{first}' is constrained to itself")
        for joint in (object1, object2) if isinstance(node.e, JointEquality) else ():
            if joint is not None and not is_scalar(joint.e.type):
                draft.problems.add(node.source, f"joint '{joint.name}' is not a hinge or slide")
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
