"""cable: `<composite type="cable">` becomes a chain of bodies with ball joints, as in MuJoCo 3.8.1.

Points lie on a curve or are given. Each piece between two consecutive points is a body with its x axis along the piece.
Its frame is the frame of the previous piece, rotated as little as possible (Bergou et al. 2008, "Discrete elastic
rods"). Neighbouring bodies do not collide. Source: mjCComposite::MakeCable, mjuu_updateFrame.

A cable of boxes has a skin of two sheets, one above the other, at the distance of the boxes' thickness. Its columns are
the points of the cable and its rows the edges of the boxes; a subgrid between them is interpolated by cubic splines.
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

# largest number of bodies of one cable
MOST_BODIES = 10_000
# types that the geoms of a cable can have
SHAPES = (GeomType.CYLINDER, GeomType.CAPSULE, GeomType.BOX)
# smaller weights of bones are rounding errors
LEAST_WEIGHT = 1e-12


def cable(source: Composite, excludes: Section, texts: Section, skins: Section, problems: Problems) -> None:
    """Replaces `source` by bodies, in place; exclusions, a custom text and a skin go to their sections."""
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
    """The first body of the cable, which contains all others."""
    e = source.filled()
    points = cable_points(source, e)
    pieces = np.diff(points, axis=0).astype(float)
    lengths = [float(np.linalg.norm(piece)) for piece in pieces]
    last = len(pieces) - 1
    prefix = e.prefix or ""
    check_count(len(pieces), MOST_BODIES, "pieces of a cable")
    offset = np.zeros(3) if e.offset is None else np.array(e.offset)
    names = ["first", *map(str, range(1, last)), *(["last"] if last else [])]
    geom, joint, site = (values_of(source, kind) for kind in (CompositeGeom, CompositeJoint, CompositeSite))
    if geom["type"] not in SHAPES:
        raise AssetError("the geoms of a cable must be capsules, cylinders or boxes")
    frames = piece_frames(pieces)
    place = Body.of({})
    parent: Element = place
    for index, name in enumerate(names):
        # the origin of a body is at the end of the piece before it
        pos = np.array([lengths[index - 1], 0, 0]) if index else offset + points[0]
        quat = multiply(conjugate(frames[index - 1]), frames[index]) if index else frames[0]
        parent = append_child(Body, "body", source, parent, name=f"{prefix}B_{name}", pos=pos, quat=quat)
        shape = geom | piece_shape(geom, lengths[index]) | {"name": f"{prefix}G{index}"}
        append_child(Geom, "geom", source, parent, **shape)
        _add_plugin(source, parent)
        if index or e.initial != "none":
            kind = {"type": JointType.BALL}
            if not index and e.initial == "free":
                kind = {"type": JointType.FREE, "damping": np.zeros(3), "armature": 0.0, "frictionloss": 0.0}
            append_child(Joint, "joint", source, parent, **{**joint, **kind, "name": f"{prefix}J_{name}"})
        if index < last:
            neighbours = {"body1": f"{prefix}B_{name}", "body2": f"{prefix}B_{names[index + 1]}"}
            append_child(Exclude, "exclude", source, excludes, **neighbours)
        if index in (0, last):
            # the two ends of the cable
            end = np.array([lengths[index] if index == last else 0.0, 0, 0])
            append_child(Site, "site", source, parent, **{**site, "name": f"{prefix}S_{name}", "pos": end})
    return place.children


def piece_frames(pieces: Array) -> list[Array]:
    """The orientation (4,) of each of the pieces (n, 3), in the frame of the composite's parent body."""
    frames: list[Array] = []
    normal: Array | None = None
    nothing = np.zeros(3)
    for index, piece in enumerate(pieces):
        before = pieces[index - 1] if index else nothing
        after = pieces[index + 1] if index + 1 < len(pieces) else nothing
        quat, normal = piece_frame(piece, [before, after], normal)
        frames.append(quat)
    return frames


def piece_shape(geom: dict[str, Any], length: float) -> dict[str, Array]:
    """Pose and size of the geom of a piece, along its x axis."""
    if geom["type"] == GeomType.BOX:
        return {"pos": np.array([length / 2, 0, 0]), "size": np.array([length / 2, *geom["size"][1:3]])}
    return {"fromto": np.array([0, 0, 0, length, 0, 0])}


def _add_plugin(source: Composite, body: Element) -> None:
    """Gives a body the plugin of the composite; all bodies of a cable share one instance, which identifies it."""
    plugin = source.first(Plugin)
    if plugin is not None:
        use = append_child(Plugin, "plugin", plugin, body, plugin=plugin.plugin, instance=plugin.instance)
        use.children = plugin.children


def add_skin(source: Composite, skins: Section) -> None:
    """Adds the skin of a cable of boxes to a section; the bodies of the cable are its bones."""
    e = source.filled()
    said = source.first(CompositeSkin)
    look = (said or CompositeSkin()).filled()
    prefix = e.prefix or ""
    columns = len(cable_points(source, e))
    # number of grid lines between two points; with a subgrid, the middle of the boxes is a third row of bones
    between = look.subgrid
    rows = 2 if look.subgrid <= 0 else 3
    if between > 0 and columns < 3:
        raise AssetError("a skin with a subgrid needs at least three points", "omit attribute 'subgrid'")
    length, width, thick = (float(x) for x in values_of(source, CompositeGeom)["size"][:3])
    # weights (nvertex, nbone) of the bones at the vertices
    if between > 0:
        along, across = spline_weights(columns, between), spline_weights(rows, between)
        weights = np.einsum("xi,yj->xyij", along, across).reshape(len(along) * len(across), columns * rows)
        grid = len(along), len(across)
    else:
        weights = np.eye(columns * rows)
        grid = (columns, rows)
    count = grid[0] * grid[1]
    # in MuJoCo, vertices come in the order of the squares between bones in which they lie
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
        # All vertices are at the origin when the skin is bound. So the bind position is minus the place where the bone
        # carries them: an edge of the box, at its beginning or, for the last column, at its end.
        at = np.array([-2 * length if column == columns - 1 else 0.0, width * (2 * row / (rows - 1) - 1), 0.0])
        vertex = order[np.abs(weights[order, bone]) > LEAST_WEIGHT]
        values = {"vertid": np.stack([vertex, vertex + count], axis=1).ravel()}
        values |= {"vertweight": np.repeat(weights[vertex, bone], 2)}
        turn = np.array([1.0, 0, 0, 0])
        append_child(Bone, "bone", source, skin, body=name, bindpos=at, bindquat=turn, **values)


def sheets(columns: int, rows: int) -> Array:
    """(n, 3) triangles of two sheets, one above the other, and of the four sides between them.

    Each sheet is a grid of columns x rows vertices, numbered with the row fastest; the second sheet follows the first.
    Triangles are in MuJoCo's order.
    """
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
    """(m, knots) weights of the knots of a cubic spline, at the knots and at `between` places between two knots.

    Slopes at knots are central differences, one-sided at both ends (Catmull and Rom 1974). Between two knots the spline
    is the Hermite polynomial of the values and slopes at both.
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
    """The attributes of a composite's geoms, joints or sites, with MJCF's defaults; default classes do not apply."""
    said = source.first(kind) or kind()
    filled = said.filled()
    skipped = {"kind", "solreffix", "solimpfix", *kind.omits}
    values = {name: getattr(filled, name) for name in filled.attributes() if name not in skipped}
    # as in MuJoCo, joints and sites are in group 3 by default
    if kind is not CompositeGeom and "group" not in said.given():
        values["group"] = 3
    return {name: value for name, value in values.items() if value is not None}


def cable_points(source: Composite, e: Any) -> Array:
    """(n, 3) the points of the cable; float32, as in MuJoCo."""
    if e.type != "cable":
        raise AssetError(f"MuJoCo removed composites of type '{e.type}'", "use <flexcomp> or <replicate>")
    count = np.append(np.array(e.count if e.count is not None else [1]), [1, 1])[:3]
    if e.vertex is not None:
        if len(e.vertex) % 3 or len(e.vertex) < 6 or count[0] > 1:
            raise AssetError(
                "attribute 'vertex': needs three numbers for each of at least two points, and excludes 'count'"
            )
        return np.array(e.vertex, np.float32).reshape(-1, 3)
    if count[0] < 2 or (count[1:] != 1).any():
        raise AssetError("attribute 'count': a cable needs at least two points, and 1 in the other directions")
    size = np.append(np.array(e.size if e.size is not None else [1.0]), [0.0, 0.0])[:3]
    if not size.any():
        raise AssetError("attribute 'size': must be positive")
    share = np.arange(count[0]) / (count[0] - 1)
    shapes = {
        "s": size[0] * share,
        "cos(s)": size[1] * np.cos(np.pi * share * size[2]),
        "sin(s)": size[1] * np.sin(np.pi * share * size[2]),
        "0": 0 * share,
    }
    words = (e.curve or "").split()
    if len(words) > 3 or not set(words) <= set(shapes):
        raise AssetError(f"attribute 'curve': takes up to three of {', '.join(shapes)}, not {e.curve!r}")
    columns = [shapes[word] for word in [*words, "0", "0", "0"][:3]]
    quat = np.array([1.0, 0, 0, 0]) if e.quat is None else np.array(e.quat)
    return np.array([rotate(quat, point) for point in np.stack(columns, axis=1)]).astype(np.float32)


def piece_frame(edge: Array, around: list[Array], normal: Array | None) -> tuple[Array, Array]:
    """The orientation (4,) and normal (3,) of a piece, given the pieces before and after it and the previous normal.

    The first normal lies in the plane of the first two pieces. Then the rotation that takes the previous tangent to
    this one takes the previous normal to this one (parallel transport).
    """
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
