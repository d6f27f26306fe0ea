"""`flatten` converts the tree of elements to lists of objects in mjModel's order. Also `fusestatic`, `discardvisual`.

Bodies are in depth-first order. Joints, geoms, sites, cameras and lights are in the order of their bodies. The pose of
a `<frame>` is applied to its children.

With `fusestatic`, a body is merged into its parent if it has no joints and nothing refers to it by name. The parent
gets its objects, its children and its mass (the world gets no mass). With `discardvisual`, a geom is removed if it
cannot collide and nothing refers to it by name; its mass has been added to its body before. Then meshes that no geom
uses are removed.
Source: MuJoCo XML reference, compiler; mjCModel::FuseStatic, IndexAssets (3.8.1).
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from diffsim.base import changes
from diffsim.base.enums import MINVAL, SensorType
from diffsim.compiler.draft import Draft, Node, Pose, origin
from diffsim.compiler.elements.bodies import align_free_bodies, move
from diffsim.compiler.elements.geoms import orientation
from diffsim.compiler.elements.mass_properties import offset_inertia, rotated_inertia
from diffsim.mjcf.elements.body import Body, Camera, Frame, FreeJoint, Geom, Joint, Light, Site
from diffsim.mjcf.orientation import compose, diagonalize, matrix
from diffsim.mjcf.schema import Element, references
from diffsim.mjcf.spec import Spec

# the kind of each class of objects on bodies
ON_BODY: dict[type[Element], str] = {
    Joint: "joint",
    FreeJoint: "joint",
    Geom: "geom",
    Site: "site",
    Camera: "camera",
    Light: "light",
}

# the objects of each kind that is not on bodies, in sections of the file
SECTIONS: dict[str, Callable[[Spec], Sequence[Element]]] = {
    "flex": lambda spec: spec.flexes,
    "mesh": lambda spec: spec.meshes,
    "skin": lambda spec: spec.skins,
    "hfield": lambda spec: spec.hfields,
    "texture": lambda spec: spec.textures,
    "material": lambda spec: spec.materials,
    "pair": lambda spec: spec.pairs,
    "exclude": lambda spec: spec.excludes,
    "equality": lambda spec: spec.equalities,
    "tendon": lambda spec: spec.tendons,
    "actuator": lambda spec: spec.actuators,
    "sensor": lambda spec: spec.sensors,
    "numeric": lambda spec: spec.numerics,
    "text": lambda spec: spec.texts,
    "tuple": lambda spec: spec.tuples,
    "key": lambda spec: spec.keys,
}


def flatten(draft: Draft) -> None:
    """Fills `draft.nodes` with the objects in the world body and then those in other sections, in file order."""
    _add_body(draft, draft.spec.worldbody, None, origin())
    for kind in dict.fromkeys(ON_BODY.values()):
        for body in draft.nodes["body"]:
            for node in body.under.get(kind, []):
                node.id = len(draft.nodes[kind])
                draft.add(kind, node)
    for kind, sources in SECTIONS.items():
        for source in sources(draft.spec):
            draft.add(kind, Node(draft.spec.resolve(source), source, len(draft.nodes[kind])))


def _add_body(draft: Draft, source: Body, parent: Node | None, frame: Pose) -> None:
    """Adds a body and everything in it; `frame` is the pose of the <frame>s around it."""
    e = draft.spec.resolve(source)
    node = draft.add("body", Node(e, source, len(draft.nodes["body"]), frame=frame, parent=parent))
    if parent is not None:
        parent.under.setdefault("body", []).append(node)
    _add_children(draft, node, source, origin())


def _add_children(draft: Draft, body: Node, source: Element, frame: Pose) -> None:
    """Adds the children of a body, or of a frame in it, in file order."""
    for child in source.children:
        if isinstance(child, Body):
            _add_body(draft, child, body, frame)
        elif isinstance(child, Frame):
            node = Node(child.filled(), child, -1)
            _add_children(draft, body, child, compose(*frame, node.e.pos, orientation(draft, node)))
        elif type(child) in ON_BODY:
            kind = ON_BODY[type(child)]
            e = draft.spec.resolve(child)
            if isinstance(child, FreeJoint):
                # default classes do not apply to a freejoint
                e = Joint(name=child.name, type=child.type, group=child.group).filled()
            node = Node(e, child, -1, body=body, frame=frame)
            body.under.setdefault(kind, []).append(node)


# the prefix of the fields of each kind of objects on bodies
PREFIXES = {"joint": "jnt", "geom": "geom", "site": "site", "camera": "cam", "light": "light"}
# kinds of objects that can refer to a body or geom
REFERRING = ("camera", "light", "skin", "pair", "exclude", "equality", "tendon", "actuator", "sensor", "tuple")


def forget_materials(draft: Draft) -> None:
    """discardvisual: drops all materials and textures."""
    if not draft.spec.compiler.discardvisual:
        return
    draft.nodes["material"].clear()
    draft.nodes["texture"].clear()
    for kind in ("geom", "site", "tendon", "flex", "skin"):
        for node in draft.nodes[kind]:
            node.e = node.e.replace(material=None)


def fuse_static(draft: Draft) -> None:
    """fusestatic: merges bodies without joints into their parents. Also alignfree, since 3.16 after fusing.

    In MuJoCo 3.8.1, cameras and lights are compiled again after fusing, which undoes what both do to their poses.
    """
    fuses = draft.spec.compiler.fusestatic
    whole = draft.spec.follows("fused_bodies")
    if not fuses or not whole:
        align_free_bodies(draft, cameras=not fuses)
    if not fuses:
        return
    bodies = draft.nodes["body"]
    before = {body.id: body for body in bodies}
    needed = set(_named(draft, "body"))
    # force and torque sensors measure the load between a body and its parent, so these bodies stay
    sites = {site.name: site for site in draft.nodes["site"]}
    for node in draft.nodes["sensor"]:
        site = sites.get(getattr(node.e, "site", None) or "")
        if node.e.type in (SensorType.FORCE, SensorType.TORQUE) and site is not None and site.body is not None:
            needed.add(site.body.name)
    needed.discard("")
    for body in bodies[1:]:
        fixed = not body.under.get("joint") and not body.e.mocap and body.name not in needed
        if fixed and not (whole and _feels_other_forces(draft, body)):
            _fuse(body, draft.spec.mujoco, cameras=whole)
            bodies.remove(body)
    _renumber(draft, before)
    if whole:
        align_free_bodies(draft)


def _feels_other_forces(draft: Draft, body: Node) -> bool:
    """Whether gravity compensation or a fluid acts on a body differently than if it were part of its parent.

    Bodies that cannot move feel nothing.
    """
    assert body.parent is not None
    if not any(ancestor.under.get("joint") for ancestor in _ancestors(body)):
        return False
    row, options = body.row, draft.spec.option
    other = row["body_gravcomp"] != body.parent.row["body_gravcomp"] or options.density or options.viscosity
    return bool(row["body_mass"] >= MINVAL and other)


def _ancestors(body: Node) -> Iterator[Node]:
    """The bodies above a body, from its parent to the world."""
    while body.parent is not None:
        body = body.parent
        yield body


def discard_visual(draft: Draft) -> None:
    """discardvisual: drops geoms that are only drawn, then meshes without a geom."""
    if not draft.spec.compiler.discardvisual:
        return
    named = set(_named(draft, "geom"))
    for body in draft.nodes["body"]:
        geoms = body.under.get("geom", [])
        kept = [geom for geom in geoms if geom.e.contype or geom.e.conaffinity or geom.name in named]
        body.under["geom"] = kept
    _renumber(draft, {body.id: body for body in draft.nodes["body"]})
    users = [geom for geom in draft.nodes["geom"] if geom.e.mesh]
    used = {geom.e.mesh for geom in users}
    draft.nodes["mesh"] = [mesh for mesh in draft.nodes["mesh"] if mesh.name in used]
    number = {mesh.name: index for index, mesh in enumerate(draft.nodes["mesh"])}
    for mesh in draft.nodes["mesh"]:
        mesh.id = number[mesh.name]
    for geom in users:
        geom.row["geom_dataid"] = number[geom.e.mesh]


def _named(draft: Draft, space: str) -> Iterator[str]:
    """Yields the names of objects of kind `space` to which other objects refer."""
    for kind in REFERRING:
        for node in draft.nodes[kind]:
            for part in node.source.walk():
                yield from (name for _, target, name in references(part) if target == space)


def _fuse(body: Node, mujoco: str, cameras: bool) -> None:
    """Moves everything that belongs to a body to its parent; cameras and lights keep their poses unless `cameras`."""
    parent = body.parent
    assert parent is not None
    pose = body.row["body_pos"], body.row["body_quat"]
    if parent.id and body.row["body_mass"] >= MINVAL:
        _add_mass(parent, body, mujoco)
    for child in body.under.get("body", []):
        child.parent = parent
        place = child.row["body_pos"], child.row["body_quat"]
        child.row["body_pos"], child.row["body_quat"] = compose(*pose, *place)
    siblings = parent.under["body"]
    index = siblings.index(body)
    siblings[index : index + 1] = body.under.get("body", [])
    for kind, prefix in PREFIXES.items():
        for node in body.under.get(kind, []):
            node.body = parent
            if cameras or kind not in ("camera", "light"):
                move(node, prefix, *pose)
            parent.under.setdefault(kind, []).append(node)
    for name, combine in (("contype", np.bitwise_or), ("conaffinity", np.bitwise_or), ("margin", max)):
        parent.row[f"body_{name}"] = combine(parent.row[f"body_{name}"], body.row[f"body_{name}"])


def _add_mass(parent: Node, body: Node, mujoco: str) -> None:
    """Adds the mass and inertia of a body to its parent, about the common center of mass."""
    row, part = parent.row, body.row
    pose = part["body_pos"], part["body_quat"]
    inertial = part["body_ipos"], part["body_iquat"]
    # 3.8.1 applies the pose of the body in the inertial frame
    pos, quat = compose(*pose, *inertial) if changes.follows(mujoco, "fused_inertia") else compose(*inertial, *pose)
    mass = row["body_mass"] + part["body_mass"]
    center = (row["body_mass"] * row["body_ipos"] + part["body_mass"] * pos) / mass
    total = rotated_inertia(row["body_inertia"], matrix(row["body_iquat"]))
    total = total + rotated_inertia(part["body_inertia"], matrix(quat))
    total = total + offset_inertia(row["body_mass"], row["body_ipos"] - center)
    total = total + offset_inertia(part["body_mass"], pos - center)
    inertia, turn = diagonalize(total, mujoco)
    row.update(body_mass=mass, body_ipos=center, body_inertia=inertia, body_iquat=turn)


def _renumber(draft: Draft, before: dict[int, Node]) -> None:
    """Updates lists and indices after objects have been removed; `before` has the bodies by their old indices."""
    bodies = draft.nodes["body"]
    for index, body in enumerate(bodies):
        body.id = index
    for body in bodies:
        body.row["body_parentid"] = body.parent.id if body.parent else 0
    for kind, prefix in PREFIXES.items():
        nodes = draft.nodes[kind] = [node for body in bodies for node in body.under.get(kind, [])]
        for index, node in enumerate(nodes):
            node.id = index
            node.row[f"{prefix}_bodyid"] = node.body.id if node.body else 0
            target = node.row.get(f"{prefix}_targetbodyid", -1)
            if target >= 0:
                node.row[f"{prefix}_targetbodyid"] = before[target].id
