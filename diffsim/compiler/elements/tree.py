"""flatten: the tree of elements as lists of objects, in the order of mjModel, every attribute filled.

Bodies come depth first, their joints, geoms, sites, cameras and lights body by body. A `<frame>` dissolves: its pose is
handed down to what stands in it.
"""

from collections.abc import Callable, Sequence

from diffsim.compiler.draft import Draft, Node, Pose, origin
from diffsim.compiler.elements.geoms import orientation
from diffsim.mjcf.elements.body import Body, Frame, FreeJoint, Geom, Joint, Site
from diffsim.mjcf.elements.camera import Camera, Light
from diffsim.mjcf.orientation import compose
from diffsim.mjcf.schema import Element
from diffsim.mjcf.spec import Spec

# what hangs on a body, by class
ON_BODY: dict[type[Element], str] = {
    Joint: "joint",
    FreeJoint: "joint",
    Geom: "geom",
    Site: "site",
    Camera: "camera",
    Light: "light",
}

# what stands in sections of its own
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
    """Fill `draft.nodes`: what stands in the world body, then the sections, in file order."""
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
    e = draft.spec.resolve(source)
    node = draft.add("body", Node(e, source, len(draft.nodes["body"]), frame=frame, parent=parent))
    if parent is not None:
        parent.under.setdefault("body", []).append(node)
    _add_children(draft, node, source, origin())


def _add_children(draft: Draft, body: Node, source: Element, frame: Pose) -> None:
    """What stands in a body, or in a frame of it, in file order."""
    for child in source.children:
        if isinstance(child, Body):
            _add_body(draft, child, body, frame)
        elif isinstance(child, Frame):
            node = Node(child.filled(), child, -1)
            _add_children(draft, body, child, compose(*frame, node.e.pos, orientation(draft, node)))
        elif type(child) in ON_BODY:
            kind, e = ON_BODY[type(child)], draft.spec.resolve(child)
            if isinstance(child, FreeJoint):
                # a joint without default class
                e = Joint(name=child.name, type=child.type, group=child.group).filled()
            node = Node(e, child, -1, body=body, frame=frame)
            body.under.setdefault(kind, []).append(node)
