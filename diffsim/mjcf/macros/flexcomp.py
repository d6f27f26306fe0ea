"""flexcomp: `<flexcomp>` becomes a flex, the bodies of its vertices or nodes, and its equality constraints.

Points and elements come from counts (flexcomp_shapes.py), a mesh, a Gmsh file, or numbers in the XML. In the last three
cases the points are scaled, and points without an element are removed; pins are numbered before that. Each point that
is not pinned gets a body `name_i` with slide joints: three (`full`), two (`2d`), or one along the line from the origin
(`radial`). An interpolated flex (`trilinear`, `quadratic`) moves with a grid of nodes instead, with bodies
`name_i_j_k`. The flexes and constraints that flexcomps make come after those that the file lists in its sections.
Source: MuJoCo "XML reference", flexcomp; mjCFlexcomp::Make, mjXReader::OneFlexcomp (3.8.1).
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from diffsim.base.enums import MINVAL, Elastic2D, JointType
from diffsim.base.errors import Problems
from diffsim.mjcf.elements.body import Body, Frame, Inertial, Joint, Replicate
from diffsim.mjcf.elements.constraints import FlexEquality, FlexStrain
from diffsim.mjcf.elements.deformable import (
    ORDERS,
    Flex,
    FlexComp,
    FlexCompEdge,
    FlexContact,
    FlexEdge,
    FlexElasticity,
    FlexPin,
)
from diffsim.mjcf.elements.sections import Section
from diffsim.mjcf.files.gmsh_file import read_gmsh
from diffsim.mjcf.files.mesh_files import read_mesh, without_repeats
from diffsim.mjcf.macros.flexcomp_shapes import box, empty_cells, grid, node_places, node_weights, nodes_of_empty_cells
from diffsim.mjcf.orientation import matrix, orientation_of
from diffsim.mjcf.resources import AssetError, ResourceError, check_count
from diffsim.mjcf.schema import Element, append_child
from diffsim.mjcf.spec import Spec

Array = np.ndarray

# slide joints of a point, by the flexcomp's `dof`
SLIDES = {"full": 3, "2d": 2, "radial": 1}
# types whose points come from a file or from numbers in the XML, and not from counts
FROM_OUTSIDE = ("mesh", "gmsh", "direct")
# types made by `box`; `grid` makes the others
BOXES = ("box", "cylinder", "ellipsoid")
# types that always have dim 2
SHEETS = ("square", "disc")
# largest number of bodies of one flexcomp
MOST_BODIES = 20_000
# largest number of its points; points that are pinned or interpolated have no body
MOST_POINTS = 50 * MOST_BODIES


@dataclass
class Sections:
    """Sections that flexcomps fill, outside the tree of bodies."""

    flexes: Section = field(default_factory=lambda: Section(tag="deformable"))
    equalities: Section = field(default_factory=lambda: Section(tag="equality"))


@dataclass
class _Cloud:
    """The geometry of a flexcomp.

    Attributes:
      point: (n, 3) m, in the frame of the parent body.
      element: (m, dim + 1) points of each element.
      texcoord: (k, 2) texture coordinates, or no rows.
      elemtexcoord: (m, dim + 1) texture coordinates of the elements' corners, or no rows if they equal the texture
        coordinates of the points.
    """

    point: Array
    element: Array
    texcoord: Array = field(default_factory=lambda: np.zeros((0, 2), np.float32))
    elemtexcoord: Array = field(default_factory=lambda: np.zeros((0, 1), int))

    @property
    def dim(self) -> int:
        """The dimension of the elements."""
        return self.element.shape[1] - 1


def flexcomp(spec: Spec, source: FlexComp, sections: Sections, problems: Problems) -> None:
    """Replaces `source` by bodies, in place; its flex and constraints go to `sections`, and errors to `problems`."""
    try:
        bodies = _expand(spec, source, sections)
    except ResourceError as error:
        problems.add(source, str(error), error.hint)
    except AssetError as error:
        file = f"file '{source.file_}': " if source.file_ else ""
        problems.add(source, file + str(error), error.hint)
    else:
        source.give_way(bodies)


def _expand(spec: Spec, source: FlexComp, sections: Sections) -> list[Element]:
    """The bodies of a flexcomp; its flex and constraints go to `sections`."""
    e = source.filled()
    _check(e)
    cloud = _cloud(spec, source, e)
    lower, upper = cloud.point.min(axis=0), cloud.point.max(axis=0)
    order = ORDERS.get(e.dof, 0)
    cells = e.cellcount if e.type in FROM_OUTSIDE and source.cellcount is not None else np.ones(3, int)
    nnode = int(np.prod(cells * order + 1)) if order else 0
    pinned = _pins(e, cloud, max(len(cloud.point), nnode))
    rigid = e.rigid or bool(pinned[: len(cloud.point)].all())
    centered = not e.rigid and not pinned[: len(cloud.point)].any()
    if e.type in FROM_OUTSIDE:
        pinned = _without_unused(cloud, pinned, nnode)
    flex = _flex(e, cloud, sections)
    parent = e.parent
    assert isinstance(parent, Body)
    # values of the flex are set directly, since they need none of the checks for values of users
    if rigid:
        flex.__dict__.update(body=parent.name, vertex=cloud.point.ravel())
        bodies = list[Element]()
        shell = False
    elif order:
        bodies = _nodes(e, flex, cloud, np.stack([lower, upper]), order, pinned, centered)
        shell = _elasticity(e).elastic2d != Elastic2D.NONE
    else:
        bodies = _vertices(e, flex, cloud, pinned, centered)
        shell = False
    _equalities(e, flex, sections, shell and not rigid)
    return bodies


def _check(e: Any) -> None:
    """Raises AssetError if the attributes of a flexcomp contradict each other."""
    parent = e.parent
    contact = (e.first(FlexContact) or FlexContact()).filled()
    around = parent
    while around is not None and not isinstance(around, Replicate):
        around = around.parent
    if around is not None:
        raise AssetError("a flexcomp cannot be replicated", "write one flexcomp for each copy")
    if isinstance(parent, Frame):
        raise AssetError(
            "a flexcomp inside a frame is not supported, because MuJoCo ignores the frame",
            "give pos and quat to the flexcomp itself",
        )
    if not parent.name:
        raise AssetError("the parent body of a flexcomp needs attribute 'name'")
    if e.dim not in (1, 2, 3):
        raise AssetError(f"attribute 'dim': must be 1, 2 or 3, not {e.dim}")
    if (e.count < (2 if e.dof == "radial" and e.dim == 3 else 1)).any() or (e.cellcount < 1).any():
        raise AssetError("attributes 'count' and 'cellcount': a number is too small")
    if e.type not in FROM_OUTSIDE and (e.spacing < 2 * e.radius + contact.margin).any():
        raise AssetError("attribute 'spacing': must be at least 2 * radius + margin")
    if (e.scale < MINVAL).any() or e.mass < MINVAL or e.inertiabox < MINVAL:
        raise AssetError("attributes 'scale', 'mass' and 'inertiabox': must be positive")
    edge = (e.first(FlexCompEdge) or FlexCompEdge()).filled()
    elasticity = _elasticity(e)
    if edge.equality != "false" and elasticity.young > 0 and elasticity.elastic2d != Elastic2D.BEND:
        raise AssetError("an edge equality and attribute 'young' cannot both be given, unless elastic2d is 'bend'")
    if edge.equality == "strain" and e.dof not in ORDERS:
        raise AssetError("equality='strain' needs dof='trilinear' or 'quadratic'", "use equality='true' or 'vert'")


def _elasticity(e: Element) -> FlexElasticity:
    """The material of a flexcomp, with all attributes filled."""
    return (e.first(FlexElasticity) or FlexElasticity()).filled()


# -------------------------------------------------------------------------------------------------- points and pins


def _cloud(spec: Spec, source: FlexComp, e: Any) -> _Cloud:
    """Points, scaled and in the frame of the parent body, and elements."""
    if e.type in FROM_OUTSIDE:
        cloud = _read(spec, source, e)
    else:
        # points come from counts; texture coordinates are only made if there is a material
        check_count(int(np.prod(e.count[: e.dim].astype(float))), MOST_POINTS, "points")
        dim = 2 if e.type in SHEETS else e.dim
        # attribute 'element' is not used here, but as in MuJoCo its length is checked
        _rows(e.element if e.element is not None else np.zeros(0, int), dim + 1, "element")
        point, element, texcoord = (box if e.type in BOXES else grid)(e.type, dim, e.count, e.spacing)
        cloud = _Cloud(point, element, texcoord if e.material else texcoord[:0])
    if not len(cloud.point) or not len(cloud.element):
        raise AssetError("a flexcomp needs points and elements")
    if cloud.element.min() < 0 or cloud.element.max() >= len(cloud.point):
        wrong = cloud.element.ravel()[np.argmax((cloud.element < 0) | (cloud.element >= len(cloud.point)))]
        raise AssetError(f"an element uses point {wrong}, but there are {len(cloud.point)} points")
    if not np.isfinite(cloud.point).all():
        raise AssetError("a point is not finite")
    check_count(len(cloud.point), MOST_POINTS, "points")
    scaled = cloud.point * e.scale if e.type in FROM_OUTSIDE else cloud.point
    try:
        turn = matrix(orientation_of(e, spec.compiler_of(source)))
    except ValueError as error:
        raise AssetError(str(error)) from None
    cloud.point = scaled @ turn.T + e.pos
    if source.texcoord is not None and not len(cloud.elemtexcoord):
        cloud.texcoord = _rows(source.texcoord, 2, "texcoord")
        cloud.elemtexcoord = np.zeros((0, 1), int)
    return cloud


def _read(spec: Spec, source: FlexComp, e: Any) -> _Cloud:
    """The geometry of a flexcomp from numbers or from a file."""
    if e.type == "direct":
        point = _rows(e.point if e.point is not None else np.zeros(0), 3, "point")
        element = _rows(e.element if e.element is not None else np.zeros(0, int), e.dim + 1, "element")
        return _Cloud(point, element)
    if not e.file_:
        raise AssetError(f"a flexcomp of type {e.type} needs attribute 'file'")
    data = spec.read_file(source)
    if e.type == "gmsh":
        mesh = read_gmsh(data)
        return _Cloud(mesh.point, mesh.element)
    if e.dim < 2 or (e.dim == 3 and e.origin is None):
        raise AssetError("attribute 'dim': a mesh needs dim 2, or 3 with attribute 'origin'")
    surface = without_repeats(read_mesh(e.file_, data))
    point, face = surface.vertex.astype(float), surface.face.astype(int)
    if e.dim == 2:
        return _Cloud(point, face, surface.texcoord, surface.facetexcoord if len(surface.texcoord) else face[:0])
    # A solid: each triangle forms a tetrahedron with the origin. Tetrahedra without volume or inside out are dropped.
    spokes = point[face] - e.origin
    face = face[np.linalg.det(spokes) >= MINVAL] + 1
    element = np.concatenate([np.zeros((len(face), 1), int), face], axis=1)
    return _Cloud(np.concatenate([e.origin[None], point]), element)


def _rows(values: Array, width: int, name: str) -> Array:
    """The values of an attribute as rows (n, width). Raises AssetError if the last row is not complete."""
    if len(values) % width:
        raise AssetError(f"attribute '{name}': the number of values must be a multiple of {width}, {len(values)} given")
    return np.array(values).reshape(-1, width)


def _pins(e: Any, cloud: _Cloud, size: int) -> Array:
    """(size,) bool: which points, or nodes if the flex is interpolated, are fixed to the parent body."""
    pinned = np.full(size, bool(e.rigid))
    dim = cloud.dim
    interpolated = e.dof in ORDERS
    # all values of each attribute, over all <pin> elements
    names = "id", "range", "grid", "gridrange"
    pins = {name: [v for pin in e.each(FlexPin) if (v := getattr(pin, name)) is not None] for name in names}
    ids, ranges, places, blocks = (np.concatenate([np.zeros(0, int), *pins[name]]) for name in names)
    for name, values, width in (("range", ranges, 2), ("grid", places, dim), ("gridrange", blocks, 2 * dim)):
        if len(values) % width:
            raise AssetError(
                f"pins: the number of values of '{name}' must be a multiple of {width}, {len(values)} given"
            )
    if len(places) + len(blocks) and (dim == 1 or (e.type != "grid" and not interpolated)):
        raise AssetError("pins by 'grid' and 'gridrange' need a grid of dim 2 or 3, or an interpolated flex")
    if e.rigid:
        return pinned
    _within(np.concatenate([ids, ranges]), len(cloud.point))
    pinned[ids] = True
    for first, last in ranges.reshape(-1, 2):
        pinned[first : last + 1] = True
    # Points are numbered with the last axis fastest. A quirk of MuJoCo: for an interpolated flex that is not a grid,
    # the indices of `grid` must be indices of nodes of one cell, although the strides come from `count`.
    one_cell = e.type != "grid" and interpolated
    limits = np.full(dim, ORDERS[e.dof] + 1) if one_cell else e.count[:dim]
    strides = np.array([e.count[1], 1]) if dim == 2 else np.array([e.count[1] * e.count[2], e.count[2], 1])
    _within(places.reshape(-1, dim), limits)
    for index in places.reshape(-1, dim) @ strides[:dim] if len(places) else ():
        pinned[_within(index, size)] = True
    _within(blocks.reshape(-1, dim), e.count[:dim])
    for lower, upper in blocks.reshape(-1, 2, dim):
        inside = np.stack(np.meshgrid(*map(np.arange, lower, upper + 1), indexing="ij"), -1).reshape(-1, dim)
        pinned[_within(inside @ strides[:dim], size)] = True
    if e.dof == "radial":
        pinned[0] = True
    return pinned


def _within(values: Array, most: Any) -> Array:
    """Indices of pins, unchanged. Raises AssetError unless each is at least 0 and less than `most`."""
    if ((values < 0) | (values >= most)).any():
        raise AssetError("pins: an index is out of range")
    return values


def _without_unused(cloud: _Cloud, pinned: Array, nnode: int) -> Array:
    """Removes points that no element uses; returns the pins of the remaining points."""
    used = np.zeros(len(cloud.point), bool)
    used[cloud.element] = True
    if used.all():
        return pinned
    cloud.element = (np.cumsum(used) - 1)[cloud.element]
    if len(cloud.texcoord) == len(used) and not len(cloud.elemtexcoord):
        cloud.texcoord = cloud.texcoord[used]
    cloud.point = cloud.point[used]
    kept = pinned[: len(used)][used]
    size = max(len(kept), nnode)
    return np.concatenate([kept, pinned[len(kept) : size]])


# ------------------------------------------------------------------------------------------ the flex and its bodies


def _flex(e: Any, cloud: _Cloud, sections: Sections) -> Flex:
    """The flex without its bodies, with elements for contacts, edges and elasticity."""
    solid = e.type in ("box", "cylinder") or (e.type == "grid" and cloud.dim == 3)
    values = {
        "name": e.name,
        "dim": cloud.dim,
        "element": cloud.element.ravel(),
        "texcoord": cloud.texcoord.ravel() if len(cloud.texcoord) else None,
        "elemtexcoord": cloud.elemtexcoord.ravel() if len(cloud.elemtexcoord) else None,
        "flatskin": e.flatskin or solid,
        "cellcount": np.ones(3, int),
        **{name: getattr(e, name) for name in ("group", "radius", "material", "rgba")},
    }
    flex = append_child(Flex, "flex", e, sections.flexes, **values)
    edge = (e.first(FlexCompEdge) or FlexCompEdge()).filled()
    contact = (e.first(FlexContact) or FlexContact()).filled()
    append_child(FlexEdge, "edge", e, flex, stiffness=edge.stiffness, damping=edge.damping)
    append_child(FlexContact, "contact", e, flex, **contact.given())
    append_child(FlexElasticity, "elasticity", e, flex, **_elasticity(e).given())
    return flex


def _vertices(e: Any, flex: Flex, cloud: _Cloud, pinned: Array, centered: bool) -> list[Element]:
    """A body for each vertex that is not pinned."""
    number = len(cloud.point)
    check_count(int((~pinned[:number]).sum()), MOST_BODIES, "moving points")
    mass = e.mass / number
    slides = SLIDES[e.dof]
    holder = Body.of({})
    names = list[str]()
    for index, (point, fixed) in enumerate(zip(cloud.point, pinned[:number], strict=True)):
        if fixed:
            names.append(e.parent.name)
            continue
        names.append(f"{e.name}_{index}")
        axes = (point / max(np.linalg.norm(point), MINVAL))[None] if e.dof == "radial" else np.eye(3)[:slides]
        _body(e, holder, names[-1], point, mass, axes)
    vertex = np.where(pinned[:number, None], cloud.point, 0.0)
    flex.__dict__.update(body=" ".join(names), vertex=None if centered else vertex.ravel())
    return holder.children


def _body(e: Any, holder: Element, name: str, point: Array, mass: float, axes: Array) -> Inertial:
    """Adds a body with one slide joint along each axis; for its inertia it is a small cube."""
    body = append_child(Body, "body", e, holder, name=name, pos=point)
    # a cube with half sides inertiabox has the moment of inertia m (a^2 + a^2) / 3
    inertia = np.full(3, mass * (2.0 * e.inertiabox**2) / 3.0)
    inertial = append_child(Inertial, "inertial", e, body, pos=np.zeros(3), mass=mass, diaginertia=inertia)
    for axis in axes:
        append_child(Joint, "joint", e, body, type=JointType.SLIDE, pos=np.zeros(3), axis=axis)
    return inertial


def _nodes(
    e: Any, flex: Flex, cloud: _Cloud, corners: Array, order: int, pinned: Array, centered: bool
) -> list[Element]:
    """A body for each node of the grid around the points, except for pinned nodes and nodes of empty cells."""
    count = np.array(e.cellcount)
    empty = empty_cells(cloud.point, cloud.element, count, corners)
    places, weights = node_places(count, order), node_weights(count, order)
    check_count(len(places), MOST_BODIES, "nodes")
    fixed = np.zeros(len(places), bool)
    fixed[: min(len(pinned), len(places))] = pinned[: len(places)]
    fixed |= nodes_of_empty_cells(empty, order)
    point = corners[0] + places / (count * order) * (corners[1] - corners[0])
    mass = e.mass * weights / weights[~fixed].sum() if not fixed.all() else weights
    holder = Body.of({})
    names = list[str]()
    for node, where, share, stays in zip(places, point, mass, fixed, strict=True):
        names.append(e.parent.name if stays else f"{e.name}_" + "_".join(map(str, node)))
        if not stays:
            _body(e, holder, names[-1], where, float(share), np.eye(3))
    values = {
        "body": " ".join([e.parent.name] * len(cloud.point)),
        "node": " ".join(names),
        "vertex": cloud.point.ravel(),
        "place": None if centered and not fixed.any() else np.where(fixed[:, None], point, 0.0).ravel(),
        "empty": empty.ravel().astype(int),
        "cellcount": count,
        "dof": e.dof,
    }
    flex.__dict__.update(values)
    return holder.children


def _equalities(e: Any, flex: Flex, sections: Sections, shell: bool) -> None:
    """The equality constraints on the edges, vertices or cells of the flex."""
    edge = (e.first(FlexCompEdge) or FlexCompEdge()).filled()
    common = {"flex": e.name, "active": True, "solref": edge.solref, "solimp": edge.solimp}
    if edge.equality in ("true", "vert"):
        append_child(FlexEquality, "flex" if edge.equality == "true" else "flexvert", e, sections.equalities, **common)
    elif edge.equality == "strain" and flex.empty is not None:
        cx, cy, cz = (int(number) for number in flex.cellcount)
        cells = np.argwhere(~flex.empty.astype(bool).reshape(cx, cy, cz))
        if shell:
            cells = np.array([[face, -1, -1] for face in range(2 * (cy * cz + cx * cz + cx * cy))])
        for cell in cells:
            append_child(FlexStrain, "flexstrain", e, sections.equalities, cell=cell, **common)
