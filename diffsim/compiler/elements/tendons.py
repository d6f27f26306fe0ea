"""Tendons and their paths: one row for each tendon and one for each wrap object.

wrap_prm is the coefficient of a joint, the divisor of a pulley, or the index of the side site of a geom (-1 without).
Source: MuJoCo "Modeling", tendon.
"""

import itertools

import numpy as np

from diffsim.base.enums import GeomType, WrapType
from diffsim.compiler.draft import Draft, Fields, Node, addresses, check_limits, columns
from diffsim.mjcf.elements.tendon import Fixed, Pulley, WrapGeom, WrapJoint, WrapSite
from diffsim.mjcf.schema import Element

# types of geoms around which tendons can wrap
WRAPPED_SHAPES = {GeomType.SPHERE: WrapType.SPHERE, GeomType.CYLINDER: WrapType.CYLINDER}


def tendon_rows(draft: Draft) -> None:
    """Rows of all tendons and of their paths."""
    paths = [[_wrap(draft, wrap) for wrap in node.source.children] for node in draft.nodes["tendon"]]
    for node, path in zip(draft.nodes["tendon"], paths, strict=True):
        _check_path(draft, node, [row["wrap_type"] for row in path])
        node.row = _tendon_row(draft, node)
    draft.columns("tendon")
    counts = np.array([len(path) for path in paths], int)
    draft.fields.update(columns(row for path in paths for row in path))
    draft.fields.update(tendon_num=counts, tendon_adr=addresses(counts), nwrap=int(counts.sum()))


def _tendon_row(draft: Draft, node: Node) -> Fields:
    """The fields of a tendon, except for its path; notes errors."""
    e = node.e
    force_limited = check_limits(draft, node, "actuatorfrc", e.actuatorfrclimited, e.actuatorfrcrange)
    lower, upper = e.actuatorfrcrange
    if force_limited and (lower > 0 or upper < 0):
        draft.problems.add(node.source, "attribute 'actuatorfrcrange': must contain 0 for a tendon")
    if e.springlength[0] > e.springlength[1]:
        draft.problems.add(node.source, "attribute 'springlength': must not be decreasing")
    return {
        "tendon_group": e.group,
        "tendon_matid": draft.optional(node, "material", e.material),
        "tendon_rgba": e.rgba,
        "tendon_width": e.width,
        "tendon_limited": check_limits(draft, node, "", e.limited, e.range),
        "tendon_actfrclimited": force_limited,
        "tendon_range": e.range,
        "tendon_actfrcrange": e.actuatorfrcrange,
        "tendon_margin": e.margin,
        "tendon_solref_lim": e.solreflimit,
        "tendon_solimp_lim": e.solimplimit,
        "tendon_solref_fri": e.solreffriction,
        "tendon_solimp_fri": e.solimpfriction,
        "tendon_stiffness": e.stiffness[0],
        "tendon_stiffnesspoly": e.stiffness[1:],
        "tendon_damping": e.damping[0],
        "tendon_dampingpoly": e.damping[1:],
        "tendon_armature": e.armature,
        "tendon_frictionloss": e.frictionloss,
        "tendon_lengthspring": e.springlength,
    }


def _wrap(draft: Draft, source: Element) -> Fields:
    """The row of one object on a path; notes errors."""
    if isinstance(source, WrapJoint):
        return _row(WrapType.JOINT, draft.find(source, "joint", source.joint), source.coef)
    if isinstance(source, WrapSite):
        return _row(WrapType.SITE, draft.find(source, "site", source.site), 0.0)
    if isinstance(source, Pulley):
        if source.divisor < 0:
            draft.problems.add(source, "attribute 'divisor': cannot be negative")
        return _row(WrapType.PULLEY, None, source.divisor)
    assert isinstance(source, WrapGeom)
    geom = draft.find(source, "geom", source.geom)
    kind = GeomType(geom.e.type) if geom else GeomType.SPHERE
    if kind not in WRAPPED_SHAPES:
        draft.problems.add(source, f"geom '{source.geom}' is not a sphere or cylinder")
    side = draft.find(source, "site", source.sidesite) if source.sidesite else None
    return _row(WRAPPED_SHAPES.get(kind, WrapType.SPHERE), geom, float(side.id) if side else -1.0)


def _row(kind: WrapType, target: Node | None, parameter: float) -> Fields:
    return {"wrap_type": kind, "wrap_objid": target.id if target else -1, "wrap_prm": parameter}


def _check_path(draft: Draft, node: Node, path: list[WrapType]) -> None:
    """Notes errors in a path and in the order of its objects."""
    place = node.source
    if not path:
        draft.problems.add(place, "the path of a tendon cannot be empty")
    if isinstance(place, Fixed) or not path:
        return
    if len(path) < 2:
        draft.problems.add(place, "the path of a spatial tendon needs at least two objects")
    if node.e.width <= 0:
        draft.problems.add(place, "attribute 'width': must be positive")
    if node.e.armature < 0:
        draft.problems.add(place, "attribute 'armature': cannot be negative")
    # the ends of the path count as pulleys
    around = [WrapType.PULLEY, *path, WrapType.PULLEY]
    for before, kind, after in zip(around, path, around[2:], strict=False):
        _check_wrap(draft, node, before, kind, after)
    for first, second in itertools.pairwise(place.children):
        if isinstance(first, WrapSite) and isinstance(second, WrapSite) and first.site == second.site:
            draft.problems.add(second, f"site '{second.site}' follows itself on the path")
    if path[-1] == WrapType.PULLEY:
        draft.problems.add(place, "the path ends with a pulley")


def _check_wrap(draft: Draft, node: Node, before: WrapType, kind: WrapType, after: WrapType) -> None:
    """Notes errors of one object on a spatial path, given the types of its neighbours."""
    place = node.source
    if kind == WrapType.PULLEY and after == WrapType.PULLEY:
        draft.problems.add(place, "a pulley cannot follow a pulley or end the path")
    if kind == WrapType.SITE and before == after == WrapType.PULLEY:
        draft.problems.add(place, "a site on the path needs a neighbour that is not a pulley")
    if kind in (WrapType.SPHERE, WrapType.CYLINDER):
        if before != WrapType.SITE or after != WrapType.SITE:
            draft.problems.add(place, "a geom on the path must be between two sites")
        if node.e.armature:
            draft.problems.add(place, "attribute 'armature' is not supported with geoms on the path")
