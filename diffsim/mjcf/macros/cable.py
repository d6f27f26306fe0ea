"""cable: `<composite type="cable">` becomes a chain of bodies with ball joints, as MuJoCo 3.8.1 makes it.

Points lie on a curve, or are given; between two that follow each other is a body, whose x axis runs along the piece.
Its frame is that of the piece before it, turned about the vertex between them (the frame of least rotation: Bergou et
al. 2008, "Discrete elastic rods"). Neighbours do not collide. Source: mjCComposite::MakeCable, mjuu_updateFrame.
"""

from typing import Any

import numpy as np

from diffsim.base.enums import GeomType, JointType
from diffsim.base.errors import Problems
from diffsim.mjcf.elements.body import Body, Geom, Joint, Site
from diffsim.mjcf.elements.constraints import Exclude
from diffsim.mjcf.elements.deformable import (
    Composite,
    CompositeGeom,
    CompositeJoint,
    CompositeSite,
    CompositeSkin,
    Plugin,
)
from diffsim.mjcf.elements.sections import ContactSection, CustomSection
from diffsim.mjcf.elements.settings import CustomText
from diffsim.mjcf.orientation import conjugate, from_matrix, multiply, rotate, unit
from diffsim.mjcf.resources import AssetError, check_count
from diffsim.mjcf.schema import Element, append_child

Array = np.ndarray

# bodies that one cable may make
MOST_BODIES = 10_000
ROUND = (GeomType.CYLINDER, GeomType.CAPSULE)


def cable(source: Composite, excludes: ContactSection, texts: CustomSection, problems: Problems) -> None:
    """Replace `source` by bodies, in place; bodies that do not collide and its text go to sections."""
    try:
        bodies = chain_of_bodies(source, excludes)
    except AssetError as error:
        problems.add(source, str(error), error.hint)
        return
    prefix = source.prefix or ""
    append_child(CustomText, "text", source, texts, name=f"composite_{prefix}", data=f"rope_{prefix}")
    siblings = source.parent.children if source.parent is not None else []
    place = next(index for index, sibling in enumerate(siblings) if sibling is source)
    siblings[place : place + 1] = bodies


def chain_of_bodies(source: Composite, excludes: ContactSection) -> list[Element]:
    """The first body, with all others in it."""
    e = source.filled()
    points = cable_points(source, e)
    pieces, number, prefix = np.diff(points, axis=0).astype(float), len(points) - 1, e.prefix or ""
    check_count(number, MOST_BODIES, "pieces of a cable")
    offset = np.zeros(3) if e.offset is None else np.array(e.offset)
    names = ["first", *map(str, range(1, number - 1)), *(["last"] if number > 1 else [])]
    geom, joint, site = (values_of(source, kind) for kind in (CompositeGeom, CompositeJoint, CompositeSite))
    if geom["type"] not in ROUND:
        raise AssetError("a cable of boxes has a skin, which is not made yet", "use type='capsule' or 'cylinder'")
    if source.first(CompositeSkin) is not None:
        raise AssetError("the skin of a cable is only for boxes", "leave it out")
    plugin = source.first(Plugin)
    place, normal, before, length = Body.of({}), np.zeros(3), np.array([1.0, 0, 0, 0]), 0.0
    parent: Element = place
    for index, name in enumerate(names):
        around = [pieces[index + k] if 0 <= index + k < number else np.zeros(3) for k in (-1, 1)]
        quat, normal = piece_frame(pieces[index], around, normal if index else None)
        if index:
            where, turn = np.array([length, 0, 0]), multiply(conjugate(before), quat)
        else:
            where, turn = offset + points[0], quat
        before, length = quat, float(np.linalg.norm(pieces[index]))
        parent = append_child(Body, "body", source, parent, name=f"{prefix}B_{name}", pos=where, quat=turn)
        ends = np.array([0, 0, 0, length, 0, 0])
        append_child(Geom, "geom", source, parent, **{**geom, "name": f"{prefix}G{index}", "fromto": ends})
        if plugin is not None:
            use = append_child(Plugin, "plugin", plugin, parent, plugin=plugin.plugin, instance=plugin.instance)
            use.children = plugin.children
        if index or e.initial != "none":
            # what is free is not damped
            free = not index and e.initial == "free"
            rest = {"damping": np.zeros(3), "armature": 0.0, "frictionloss": 0.0} if free else {}
            rest |= {"type": JointType.FREE if free else JointType.BALL, "name": f"{prefix}J_{name}"}
            append_child(Joint, "joint", source, parent, **{**joint, **rest})
        if index < number - 1:
            values = {"body1": f"{prefix}B_{name}", "body2": f"{prefix}B_{names[index + 1]}"}
            append_child(Exclude, "exclude", source, excludes, **values)
        if index in (0, number - 1):
            at = np.array([0.0 if index < number - 1 else length, 0, 0])
            append_child(Site, "site", source, parent, **{**site, "name": f"{prefix}S_{name}", "pos": at})
    for body in place.children:
        body.parent = source.parent
    return place.children


def values_of(source: Composite, kind: type[Any]) -> dict[str, Any]:
    """What a composite says of its geoms, joints or sites, with MJCF's own defaults: default classes do not count."""
    said = source.first(kind) or kind()
    filled, skipped = said.filled(), {"kind", "solreffix", "solimpfix", *kind.omits}
    values = {name: getattr(filled, name) for name in filled.attributes() if name not in skipped}
    if kind is not CompositeGeom and "group" not in said.given():
        values["group"] = 3
    return {name: value for name, value in values.items() if value is not None}


def cable_points(source: Composite, e: Any) -> Array:
    """(n, 3) float32, as MuJoCo keeps them."""
    if e.type != "cable":
        raise AssetError(f"composites of type '{e.type}' are gone from MuJoCo", "use flexcomp, or replicate")
    count = np.append(np.array(e.count if e.count is not None else [1]), [1, 1])[:3]
    if e.vertex is not None:
        if len(e.vertex) % 3 or len(e.vertex) < 6 or count[0] > 1:
            raise AssetError("vertex has three numbers for each of two points or more, and excludes count")
        return np.array(e.vertex, np.float32).reshape(-1, 3)
    if count[0] < 2 or (count[1:] != 1).any():
        raise AssetError("a cable has a count of two or more, and 1 in other directions")
    size = np.append(np.array(e.size if e.size is not None else [1.0]), [0.0, 0.0])[:3]
    if not size.any():
        raise AssetError("size must be positive")
    share = np.arange(count[0]) / (count[0] - 1)
    shapes = {
        "s": size[0] * share,
        "cos(s)": size[1] * np.cos(np.pi * share * size[2]),
        "sin(s)": size[1] * np.sin(np.pi * share * size[2]),
        "0": 0 * share,
    }
    words = (e.curve or "").split()
    if len(words) > 3 or not set(words) <= set(shapes):
        raise AssetError(f"curve is up to three of {', '.join(shapes)}, not {e.curve!r}")
    columns = [shapes[word] for word in [*words, "0", "0", "0"][:3]]
    quat = np.array([1.0, 0, 0, 0]) if e.quat is None else np.array(e.quat)
    return np.array([rotate(quat, point) for point in np.stack(columns, axis=1)]).astype(np.float32)


def piece_frame(edge: Array, around: list[Array], normal: Array | None) -> tuple[Array, Array]:
    """The orientation (4,) of a piece and its normal (3,), from the pieces around it and the normal before."""
    tangent, before, after = (unit(vector)[0] for vector in (edge, *around))
    if normal is None:
        binormal = unit(np.cross(tangent, after))[0]
        normal = unit(np.cross(binormal, tangent))[0]
    else:
        axis, sine = unit(np.cross(before, tangent))
        angle = np.arctan2(sine, before @ tangent)
        normal = unit(rotate(np.append(np.cos(angle / 2), axis * np.sin(angle / 2)), normal))[0]
        binormal = unit(np.cross(tangent, normal))[0]
    return from_matrix(np.stack([tangent, normal, binormal], axis=1)), normal
