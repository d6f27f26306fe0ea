"""Bodies: pose, mass and inertial frame, from `<inertial>` or from the geoms.

With one geom the inertial frame is the frame of the geom. The inertias of several geoms are summed by the parallel axis
theorem and diagonalized. Then the compiler's bounds on mass and inertia apply, the principal moments are checked for
A + B >= C, and the frame of a free body can be moved to its inertial frame (`alignfree`).
Source: MuJoCo "Modeling", body and inertial; compiler attributes boundmass, boundinertia, balanceinertia, alignfree.
"""

import numpy as np

from diffsim.base.enums import MINVAL
from diffsim.base.joints import is_free
from diffsim.compiler.draft import Draft, Node
from diffsim.compiler.elements.geoms import orientation
from diffsim.compiler.elements.mass_properties import offset_inertia, rotated_inertia
from diffsim.mjcf.attributes import Tristate
from diffsim.mjcf.elements.body import Inertial, own_elements
from diffsim.mjcf.orientation import TINY, compose, diagonalize, invert, matrix

Array = np.ndarray


def body_poses(draft: Draft) -> None:
    """body_pos and body_quat, including the <frame>s around the body, and other fields that do not depend on geoms."""
    mocap = 0
    for node in draft.nodes["body"]:
        e = node.e
        node.row["own_pos"] = np.array(e.pos, float)
        node.row["own_quat"] = orientation(draft, node)
        pos, quat = compose(*node.frame, node.row["own_pos"], node.row["own_quat"])
        node.row.update(
            body_parentid=node.parent.id if node.parent else 0,
            body_pos=pos,
            body_quat=quat,
            body_gravcomp=e.gravcomp,
            body_mocapid=mocap if e.mocap else -1,
        )
        mocap += bool(e.mocap)
        if e.mocap and (node.parent is None or node.parent.id != 0):
            draft.problems.add(node.source, "attribute 'mocap': a mocap body must be a child of the world")
    draft.fields["nmocap"] = mocap


def body_inertias(draft: Draft) -> None:
    """body_mass, body_inertia, body_ipos, body_iquat, and the union of the contact bits of the geoms."""
    for node in draft.nodes["body"]:
        geoms = [geom.row for geom in node.under.get("geom", [])]
        contype = conaffinity = 0
        for row in geoms:
            contype = contype | row["geom_contype"]
            conaffinity = conaffinity | row["geom_conaffinity"]
        gaps = draft.spec.follows("body_margins")
        margin = max([0.0, *(row["geom_margin"] + gaps * row["geom_gap"] for row in geoms)])
        node.row.update(body_contype=contype, body_conaffinity=conaffinity, body_margin=margin)
        node.row.update(inertial_row(draft, node) if node.id else _massless(node))
    for node in draft.nodes["body"]:
        if node.id and node.under.get("joint") and not _has_inertia(node) and not _has_negative_mass(draft, node):
            draft.problems.add(node.source, "a body that moves needs mass and inertia", "give it a geom or <inertial>")
    draft.problems.raise_if_any()


def _massless(node: Node) -> dict:
    """The inertia of a body without mass. As in MuJoCo, body_ipos and body_iquat are its `pos` and `quat`, not zero."""
    pose = {"body_ipos": node.row["own_pos"], "body_iquat": node.row["own_quat"]}
    return {"body_mass": 0.0, "body_inertia": np.zeros(3), **pose}


def inertial_row(draft: Draft, node: Node) -> dict:
    """Mass (kg), moments of inertia (kg m^2) and inertial frame of a body, as given or from its geoms."""
    settings = draft.settings(node)
    # <inertial> may be inside a <frame>, whose pose does not apply to it
    inertial = next((child for child in own_elements(node.source) if isinstance(child, Inertial)), None)
    row = _massless(node) if inertial is None else _inertial(draft, node, inertial)
    infer = settings.inertiafromgeom
    if infer == Tristate.TRUE or (infer == Tristate.AUTO and inertial is None):
        row.update(_from_geoms(draft, node))
    row["body_mass"] = max(row["body_mass"], settings.boundmass)
    row["body_inertia"] = np.maximum(row["body_inertia"], settings.boundinertia)
    a, b, c = row["body_inertia"]
    if not (a + b >= c and a + c >= b and b + c >= a):
        if settings.balanceinertia:
            row["body_inertia"] = np.full(3, row["body_inertia"].sum() / 3)
        else:
            draft.problems.add(
                node.source,
                "the moments of inertia must satisfy A + B >= C",
                "correct them, or set the compiler setting balanceinertia",
            )
    if row["body_mass"] < 0 or (row["body_inertia"] < 0).any():
        draft.problems.add(node.source, "mass and inertia cannot be negative")
    return row


def _inertial(draft: Draft, node: Node, source: Inertial) -> dict:
    """The inertia in `<inertial>`."""
    e = source.filled()
    inertia = np.zeros(3)
    quat = orientation(draft, node, e)
    if e.diaginertia is not None:
        inertia = np.array(e.diaginertia, float)
    if e.fullinertia is not None:
        if e.diaginertia is not None and np.any(e.diaginertia):
            draft.problems.add(source, "attributes 'fullinertia' and 'diaginertia' cannot both be given")
        xx, yy, zz, xy, xz, yz = e.fullinertia
        inertia, quat = diagonalize(np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]), draft.spec.mujoco)
        if inertia[2] < TINY:
            draft.problems.add(source, "attribute 'fullinertia': must have positive eigenvalues")
            # avoids a second message about the same numbers
            inertia = np.ones(3)
    return {"body_ipos": np.array(e.pos, float), "body_iquat": quat, "body_mass": e.mass, "body_inertia": inertia}


def _from_geoms(draft: Draft, node: Node) -> dict:
    """Mass, center and principal axes of the geoms in the groups that count; empty without such geoms."""
    lowest, highest = draft.settings(node).inertiagrouprange
    rows = [geom.row for geom in node.under.get("geom", []) if lowest <= geom.row["geom_group"] <= highest]
    rows = [row for row in rows if row["mass"] > TINY]
    if len(rows) < 2:
        names = {"body_ipos": "geom_pos", "body_iquat": "geom_quat", "body_mass": "mass", "body_inertia": "inertia"}
        return {name: rows[0][source] for name, source in names.items()} if rows else {}
    mass = sum(row["mass"] for row in rows)
    center = sum(row["mass"] * row["geom_pos"] for row in rows) / mass
    total = np.zeros((3, 3))
    for row in rows:
        total += rotated_inertia(row["inertia"], matrix(row["geom_quat"]))
        total += offset_inertia(row["mass"], row["geom_pos"] - center)
    inertia, quat = diagonalize(total, draft.spec.mujoco)
    if inertia[2] < TINY:
        draft.problems.add(node.source, "the inertia of the geoms must have positive eigenvalues")
    return {"body_ipos": center, "body_iquat": quat, "body_mass": mass, "body_inertia": inertia}


def _has_negative_mass(draft: Draft, node: Node) -> bool:
    """Whether the body's `<inertial>` has a negative mass or moment of inertia, which is noted.

    As in MuJoCo, `boundmass` and `boundinertia` (0 by default) replace negative numbers before they are checked, so a
    body that does not move may have them, and a body that moves is left without mass.
    """
    inertial = next((child for child in own_elements(node.source) if isinstance(child, Inertial)), None)
    if inertial is None:
        return False
    e = inertial.filled()
    negative = {"mass": e.mass, "diaginertia": np.min(e.diaginertia) if e.diaginertia is not None else 0.0}
    for name, value in negative.items():
        if value < 0:
            hint = "give the mass in kg and the moments of inertia in kg m^2, all positive"
            draft.problems.add(inertial, f"attribute '{name}': cannot be negative, {value:g} given", hint)
            return True
    return False


def _has_inertia(node: Node) -> bool:
    """Whether the body, or a descendant that is fixed to it, has mass and inertia."""
    if node.row["body_mass"] >= MINVAL and (node.row["body_inertia"] >= MINVAL).all():
        return True
    return any(not child.under.get("joint") and _has_inertia(child) for child in node.under.get("body", []))


def align_free_bodies(draft: Draft, cameras: bool = True) -> None:
    """alignfree: moves the frames of free bodies without children to their inertial frames.

    The objects on them keep their world poses, cameras and lights only if `cameras`.
    """
    for node in draft.nodes["body"]:
        _align_free(draft, node, cameras)


def _align_free(draft: Draft, node: Node, cameras: bool) -> None:
    """Moves the frame of one body, if it is free and has no children."""
    joints = node.under.get("joint", [])
    if len(joints) != 1 or not is_free(joints[0].e.type) or node.under.get("body"):
        return
    align = getattr(joints[0].source, "align", None)
    if align == Tristate.FALSE or (align != Tristate.TRUE and not draft.settings(node).alignfree):
        return
    row = node.row
    back = invert(row["body_ipos"], row["body_iquat"])
    row["body_pos"], row["body_quat"] = compose(row["body_pos"], row["body_quat"], row["body_ipos"], row["body_iquat"])
    row["body_ipos"] = np.zeros(3)
    row["body_iquat"] = np.array([1.0, 0, 0, 0])
    moved = (("geom", "geom"), ("site", "site"), ("camera", "cam"), ("light", "light"))
    for kind, prefix in moved if cameras else moved[:2]:
        for child in node.under.get(kind, []):
            move(child, prefix, *back)


def move(node: Node, prefix: str, pos: Array, quat: Array) -> None:
    """Applies the transform (pos, quat) to an object: to its pose, or to its position and direction."""
    row = node.row
    turn = row.get(prefix + "_quat", np.array([1.0, 0, 0, 0]))
    row[prefix + "_pos"], turned = compose(pos, quat, row[prefix + "_pos"], turn)
    if prefix + "_quat" in row:
        row[prefix + "_quat"] = turned
    if prefix + "_dir" in row:
        row[prefix + "_dir"] = matrix(quat) @ row[prefix + "_dir"]


def total_mass(draft: Draft) -> None:
    """Scales all masses and inertias to the total mass in the compiler settings."""
    mass = draft.spec.compiler.settotalmass
    if mass <= 0:
        return
    bodies = [node.row for node in draft.nodes["body"]][1:]
    scale = max(MINVAL, mass / max(MINVAL, sum(row["body_mass"] for row in bodies)))
    for row in bodies:
        row["body_mass"] = row["body_mass"] * scale
        row["body_inertia"] = row["body_inertia"] * scale
