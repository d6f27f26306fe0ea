"""cable: `<composite type="cable">` becomes a chain of bodies with ball joints, as MuJoCo 3.8.1 makes it.

Points lie on a curve, or are given; between two that follow each other is a body, whose x axis runs along the piece.
Its frame is that of the piece before it, turned about the vertex between them (the frame of least rotation: Bergou et
al. 2008, "Discrete elastic rods"). Neighbours do not collide. Source: mjCComposite::MakeCable, mjuu_updateFrame.

A cable of boxes has a skin of two sheets, one over the other, as thick as the boxes. Its columns are the points of the
cable, its rows the edges of the boxes; between them a subgrid is a cubic spline through bones.
"""

from typing import Any

import numpy as np

from diffsim.base.enums import GeomType, JointType
from diffsim.base.errors import Problems
from diffsim.mjcf.elements.asset import Bone, Skin
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
from diffsim.mjcf.elements.sections import Section
from diffsim.mjcf.elements.settings import CustomText
from diffsim.mjcf.orientation import conjugate, from_matrix, multiply, rotate, unit
from diffsim.mjcf.resources import AssetError, check_count
from diffsim.mjcf.schema import Element, append_child

Array = np.ndarray

# bodies that one cable may make
MOST_BODIES = 10_000
SECTIONS = (GeomType.CYLINDER, GeomType.CAPSULE, GeomType.BOX)
# the least weight that rounding does not make
LEAST = 1e-12


def cable(source: Composite, sections: tuple[Section, Section, Section], problems: Problems) -> None:
    """Replace `source` by bodies, in place; bodies that do not collide, its text and its skin go to sections."""
    excludes, texts, skins = sections
    try:
        bodies = chain_of_bodies(source, excludes)
        if values_of(source, CompositeGeom)["type"] == GeomType.BOX:
            add_skin(source, skins)
    except AssetError as error:
        problems.add(source, str(error), error.hint)
        return
    prefix = source.prefix or ""
    append_child(CustomText, "text", source, texts, name=f"composite_{prefix}", data=f"rope_{prefix}")
    source.give_way(bodies)


def chain_of_bodies(source: Composite, excludes: Section) -> list[Element]:
    """The first body, with all others in it."""
    e = source.filled()
    points = cable_points(source, e)
    pieces = np.diff(points, axis=0).astype(float)
    number = len(points) - 1
    prefix = e.prefix or ""
    check_count(number, MOST_BODIES, "pieces of a cable")
    offset = np.zeros(3) if e.offset is None else np.array(e.offset)
    names = ["first", *map(str, range(1, number - 1)), *(["last"] if number > 1 else [])]
    geom, joint, site = (values_of(source, kind) for kind in (CompositeGeom, CompositeJoint, CompositeSite))
    if geom["type"] not in SECTIONS:
        raise AssetError("a cable is of capsules, cylinders or boxes")
    plugin = source.first(Plugin)
    place = Body.of({})
    normal = np.zeros(3)
    before = np.array([1.0, 0, 0, 0])
    length = 0.0
    parent: Element = place
    for index, name in enumerate(names):
        around = [pieces[index + k] if 0 <= index + k < number else np.zeros(3) for k in (-1, 1)]
        quat, normal = piece_frame(pieces[index], around, normal if index else None)
        if index:
            where = np.array([length, 0, 0])
            turn = multiply(conjugate(before), quat)
        else:
            where = offset + points[0]
            turn = quat
        before = quat
        length = float(np.linalg.norm(pieces[index]))
        parent = append_child(Body, "body", source, parent, name=f"{prefix}B_{name}", pos=where, quat=turn)
        where = {"fromto": np.array([0, 0, 0, length, 0, 0])}
        if geom["type"] == GeomType.BOX:
            where = {"pos": np.array([length / 2, 0, 0]), "size": np.array([length / 2, *geom["size"][1:3]])}
        append_child(Geom, "geom", source, parent, **{**geom, "name": f"{prefix}G{index}", **where})
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
    return place.children


def add_skin(source: Composite, skins: Section) -> None:
    """The skin of a cable of boxes."""
    e = source.filled()
    said = source.first(CompositeSkin)
    look = (said or CompositeSkin()).filled()
    prefix = e.prefix or ""
    columns = len(cable_points(source, e))
    between = look.subgrid
    rows = 2 if look.subgrid <= 0 else 3
    if between > 0 and columns < 3:
        raise AssetError("a skin with a subgrid needs three points or more", "leave the subgrid out")
    length, width, thick = (float(x) for x in values_of(source, CompositeGeom)["size"][:3])
    # of each vertex the bones and their weights
    if between > 0:
        along, across = spline_weights(columns, between), spline_weights(rows, between)
        weights = np.einsum("xi,yj->xyij", along, across).reshape(len(along) * len(across), columns * rows)
        grid = len(along), len(across)
    else:
        weights = np.eye(columns * rows)
        grid = (columns, rows)
    count = grid[0] * grid[1]
    # MuJoCo's order: by squares between bones
    steps = [
        np.minimum(index // max(between + 1, 1), n - 2)
        for index, n in zip(np.indices(grid), (columns, rows), strict=True)
    ]
    order = np.lexsort((steps[1].ravel(), steps[0].ravel()))
    place = np.stack(np.meshgrid(*(np.arange(n) / np.float32(n - 1) for n in grid), indexing="ij"), axis=-1)
    texcoord = np.tile(place.reshape(-1, 2), (2, 1)).ravel() if look.texcoord else None
    shown = {"name": f"{prefix}Skin", "material": look.material, "group": look.group, "inflate": 2 * thick}
    shown |= {"rgba": np.ones(4) if said is None or "rgba" not in said.given() else look.rgba}
    shown |= {"vertex": np.zeros(6 * count), "texcoord": texcoord, "face": sheets(*grid).ravel()}
    skin = append_child(Skin, "skin", source, skins, **{name: x for name, x in shown.items() if x is not None})
    for bone in range(columns * rows):
        column, row = divmod(bone, rows)
        last = column >= columns - 2
        name = f"{prefix}B_{'first' if not column else 'last' if last else column}"
        at = np.array([-2 * length if column == columns - 1 else 0.0, width * (2 * row / (rows - 1) - 1), 0.0])
        vertex = order[np.abs(weights[order, bone]) > LEAST]
        values = {"vertid": np.stack([vertex, vertex + count], axis=1).ravel()}
        values |= {"vertweight": np.repeat(weights[vertex, bone], 2)}
        turn = np.array([1.0, 0, 0, 0])
        append_child(Bone, "bone", source, skin, body=name, bindpos=at, bindquat=turn, **values)


def sheets(columns: int, rows: int) -> Array:
    """(n, 3) triangles of two sheets of a grid, one over the other, and of the four sides between them."""
    x, y = (index.ravel() for index in np.meshgrid(np.arange(columns - 1), np.arange(rows - 1), indexing="ij"))
    count = columns * rows
    corner = x * rows + y
    faces = []
    for sheet in (0, 1):
        at = sheet * count + corner
        right = (x + 1) * rows + y
        up = x * rows + y + 1
        first = [at, sheet * count + right + sheet, sheet * count + right + 1 - sheet]
        second = [at, sheet * count + up + (1 - sheet) * rows, sheet * count + up + sheet * rows]
        faces.append(np.stack([np.stack(first, axis=1), np.stack(second, axis=1)], axis=1).reshape(-1, 3))
    along, across = np.arange(columns), np.arange(rows)
    sides = (along * rows, True), (along * rows + rows - 1, False), (across, False), (across + count - rows, True)
    for vertex, below in sides:
        here = vertex[:-1]
        there = vertex[1:]
        first = [here, count + there, there]
        second = [here, count + here, count + there]
        if not below:
            first = [here, there, count + there]
            second = [here, count + there, count + here]
        faces.append(np.stack([np.stack(first, axis=1), np.stack(second, axis=1)], axis=1).reshape(-1, 3))
    return np.concatenate(faces)


def spline_weights(knots: int, between: int) -> Array:
    """(m, knots) the weights of a cubic spline at its knots and `between` places from each to the next.

    Slopes at knots are central differences, one-sided at both ends (Catmull and Rom 1974).
    """
    slope = np.zeros((knots, knots))
    for knot in range(knots):
        low = max(knot - 1, 0)
        high = min(knot + 1, knots - 1)
        slope[knot, [low, high]] = np.array([-1.0, 1.0]) / (high - low)
    rows = []
    value = np.eye(knots)
    for place in range((knots - 1) * (between + 1) + 1):
        knot = min(place // (between + 1), knots - 2)
        s = (place - knot * (between + 1)) / (between + 1)
        ends = (2 * s**3 - 3 * s**2 + 1) * value[knot] + (3 * s**2 - 2 * s**3) * value[knot + 1]
        rows.append(ends + (s**3 - 2 * s**2 + s) * slope[knot] + (s**3 - s**2) * slope[knot + 1])
    return np.array(rows)


def values_of(source: Composite, kind: type[Any]) -> dict[str, Any]:
    """What a composite says of its geoms, joints or sites, with MJCF's own defaults: default classes do not count."""
    said = source.first(kind) or kind()
    filled = said.filled()
    skipped = {"kind", "solreffix", "solimpfix", *kind.omits}
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
