"""Flexes: vertices, nodes and elements on bodies, contact parameters and material.

This module makes the fields whose values are fixed when a program is compiled: the bodies of vertices and nodes, the
edges and borders (flex_tables.py), and which cells are empty. Fields that follow from the rest shape and the material,
such as rest lengths and stiffness, are derived by the physics (simulate/constants.py); the modes of strain equalities
are derived in compiler/derive.py. Source: mjCFlex::Compile, mjCModel::CopyObjects, makeFlexBandwidth (MuJoCo 3.8.1).
"""

from typing import Any, cast

import numpy as np

from diffsim.base.enums import MINVAL, Elastic2D, EqType, FlexSelf
from diffsim.compiler.draft import Draft, Node, addresses
from diffsim.compiler.elements.flex_tables import borders, flaps, incident_edges, number_edges, search_order
from diffsim.flex.cells import NBENDING as NSHELLBENDING
from diffsim.flex.material import NBENDING, NSTIFFNESS, STRAIN
from diffsim.flex.rest_shape import EDGES, VERTICES
from diffsim.mjcf.elements.constraints import FlexEquality
from diffsim.mjcf.elements.deformable import ORDERS, FlexContact, FlexEdge, FlexElasticity
from diffsim.mjcf.macros.flexcomp_shapes import empty_cells
from diffsim.mjcf.orientation import compose, matrix

Array = np.ndarray
Fields = dict[str, Any]

# flex_edgeequality for each type of equality on a flex
EDGEEQUALITY = {EqType.FLEX: EDGES, EqType.FLEXVERT: VERTICES, EqType.FLEXSTRAIN: STRAIN}
# attributes of <contact> that are fields of a flex
CONTACT = (
    "contype",
    "conaffinity",
    "condim",
    "priority",
    "solmix",
    "solref",
    "solimp",
    "friction",
    "margin",
    "gap",
    "internal",
    "selfcollide",
    "activelayers",
    "passive",
)
# Arrays that hold the rows of one flex after another. A key such as "node" stands in the names of the address and count
# of a flex (flex_nodeadr, flex_nodenum); its value has the name of the total size and a field with that many rows.
BLOCKS = {
    "node": ("nflexnode", "flex_nodebodyid"),
    "vert": ("nflexvert", "flex_vertbodyid"),
    "edge": ("nflexedge", "flex_edge"),
    "elem": ("nflexelem", "flex_elemlayer"),
    "elemdata": ("nflexelemdata", "flex_elem"),
    "elemedge": ("nflexelemedge", "flex_elemedge"),
    "shelldata": ("nflexshelldata", "flex_shell"),
    "evpair": ("nflexevpair", "flex_evpair"),
    "texcoord": ("nflextexcoord", "flex_texcoord"),
    "stiffness": ("nflexstiffness", "flex_stiffness"),
    "bending": ("nflexbending", "flex_bending"),
}
# blocks whose address is -1 if a flex has no rows
OPTIONAL = ("shelldata", "evpair", "texcoord", "stiffness", "bending")
# blocks with a count for each flex
COUNTED = ("node", "vert", "edge", "elem", "evpair")
# axes of a grid count as orthogonal if the cosine of their angle is at most this, which allows for rounded poses
ORTHOGONAL = 1e-8


class FlexError(ValueError):
    """A flex cannot be compiled; the message says why."""


def flex_rows(draft: Draft) -> None:
    """Rows of all flexes, and the arrays that hold their vertices, edges and elements."""
    nodes = draft.nodes["flex"]
    if not nodes:
        return
    fields = draft.fields
    parts = list[Fields]()
    # positions (nbody, 3) and rotations (nbody, 3, 3) of all bodies at qpos0
    poses = [(np.zeros(3), np.array([1.0, 0, 0, 0]))]
    columns_of_poses = (fields[f"body_{name}"][1:] for name in ("parentid", "pos", "quat"))
    for parent, pos, quat in zip(*columns_of_poses, strict=True):
        of_parent, turn_of_parent = poses[parent]
        poses.append(compose(of_parent, turn_of_parent, pos, quat))
    places = np.array([pos for pos, _ in poses]), np.array([matrix(quat) for _, quat in poses])
    # the type of the first equality constraint on each flex, by name
    edgeequality = dict[str, int]()
    for node in draft.nodes["equality"]:
        if isinstance(node.e, FlexEquality):
            edgeequality.setdefault(node.e.flex, EDGEEQUALITY[node.e.type])
    for node in nodes:
        try:
            parts.append(_flex(draft, node, places, edgeequality.get(node.name, 0)))
        except FlexError as error:
            draft.problems.add(node.source, str(error))
    draft.problems.raise_if_any()
    draft.columns("flex")
    fields["nflex"] = len(nodes)
    for what, (size, name) in BLOCKS.items():
        counts = np.array([len(part[name]) for part in parts])
        first = addresses(counts)
        fields[f"flex_{what}adr"] = np.where(counts > 0, first, -1) if what in OPTIONAL else first
        fields[size] = int(counts.sum())
        if what in COUNTED:
            fields[f"flex_{what}num"] = counts
    for name in parts[0]:
        fields[name] = np.concatenate([part[name] for part in parts])
    # mjModel has two numbers for each edge of any flex; those that are not used are zero
    rest = 2 * fields["nflexedge"] - len(fields["flex_vertedge"])
    fields["flex_vertedge"] = np.pad(fields["flex_vertedge"], (0, rest)).reshape(-1, 2)
    # the address of each vertex's edges, for flexes with flexvert equalities
    number = fields["flex_vertedgenum"]
    address = np.zeros(fields["nflexvert"], int)
    start = 0
    for first, count in zip(fields["flex_vertadr"], fields["flex_vertnum"], strict=True):
        of_flex = number[first : first + count]
        if of_flex.any():
            address[first : first + count] = start + addresses(of_flex)
            start += int(of_flex.sum())
    fields["flex_vertedgeadr"] = address
    fields["flex_bandwidth"] = np.full(len(nodes), _bandwidth(fields))


def _flex(draft: Draft, node: Node, places: tuple[Array, Array], edgeequality: int) -> Fields:
    """The arrays of one flex. Fields with one number for each flex are stored in `node.row` instead."""
    e = node.e
    parts = [(e.first(cls) or cls()).filled() for cls in (FlexContact, FlexEdge, FlexElasticity)]
    contact, edges, elasticity = cast(tuple[FlexContact, FlexEdge, FlexElasticity], parts)
    order = ORDERS.get(e.dof, 0)
    element = _elements(e)
    bodies, vertex, nodes = _bodies(draft, node, order)
    nvert = len(bodies) if vertex is None else len(vertex)
    _check(e, contact, edges, elasticity, order, nvert, len(nodes), element)
    rigid = not order and bool((bodies == bodies[0]).all())
    world = _world(places, np.broadcast_to(bodies, nvert) if len(bodies) == 1 else bodies, vertex)
    if e.dim == 3:
        # orient tetrahedra so that their faces (0, 1, 2), (0, 2, 3), (0, 3, 1), (1, 3, 2) point outward
        spokes = world[element[:, 1:]] - world[element[:, :1]]
        inside_out = np.sum(np.cross(spokes[:, 0], spokes[:, 1]) * spokes[:, 2], axis=1) > 0
        element = np.where(inside_out[:, None], element[:, [0, 2, 1, 3]], element)
    parent = -1
    if order:
        parent = int(bodies[0])
        if not (bodies == parent).all():
            raise FlexError("all vertices of an interpolated flex must belong to one body")
    vertbody = np.full(nvert, -1) if order else np.broadcast_to(bodies, nvert)
    known = _tables(draft, e, element, vertbody, rigid, bool(order), edgeequality, nvert)
    if e.dim == 2 and edgeequality == EDGEEQUALITY[EqType.FLEXVERT] and not rigid and not order:
        _check_level(world, known["flex_edge"])
    empty = np.zeros(int(np.prod(e.cellcount)), bool)
    if e.empty is not None:
        empty = np.array(e.empty, bool)
    elif order and len(empty) > 1:
        empty = empty_cells(world, element, e.cellcount, np.stack([world.min(axis=0), world.max(axis=0)])).ravel()
    corner = world[element]
    layer = known["flex_elemlayer"]
    searched = np.flatnonzero((e.dim < 3) | (layer < contact.activelayers))
    known["flex_elemorder"] = search_order(corner.min(axis=1) - e.radius, corner.max(axis=1) + e.radius, searched)
    at_node = np.zeros((len(nodes), 3)) if e.place is None else np.array(e.place).reshape(-1, 3)
    if order:
        _check_grid(_world(places, nodes, at_node), empty.reshape(tuple(e.cellcount)), order)
    known |= {
        "flex_vert": np.zeros((nvert, 3)) if vertex is None or (not order and not vertex.any()) else vertex,
        "flex_node": at_node,
        "flex_nodebodyid": nodes,
        "flex_cellempty": empty,
        "flex_texcoord": np.zeros((0, 2)) if e.texcoord is None else e.texcoord.astype(np.float32).reshape(-1, 2),
        "flex_elemtexcoord": _texture_corners(e, element),
        **_material_arrays(e, elasticity, element, known, order, edgeequality),
    }
    node.row = {
        **{f"flex_{name}": getattr(contact, name) for name in CONTACT},
        "flex_dim": e.dim,
        "flex_matid": draft.optional(node, "material", e.material),
        "flex_group": e.group,
        "flex_interp": -order if elasticity.elastic2d else order,
        "flex_cellnum": np.array(e.cellcount),
        "flex_shellnum": len(known["flex_shell"]) // e.dim,
        "flex_edgeequality": edgeequality,
        "flex_rigid": rigid,
        "flex_centered": not at_node.any() if order else vertex is None or not vertex.any(),
        "flex_flatskin": e.flatskin,
        "flex_elastic2d": int(elasticity.elastic2d),
        "flex_bodyid": parent,
        "flex_radius": e.radius,
        "flex_damping": elasticity.damping,
        "flex_edgestiffness": edges.stiffness,
        "flex_edgedamping": edges.damping,
        "flex_rgba": e.rgba.astype(np.float32),
        "flex_young": elasticity.young,
        "flex_poisson": elasticity.poisson,
        "flex_thickness": elasticity.thickness,
    }
    return known


def _elements(e: Any) -> Array:
    """(m, dim + 1) the vertices of each element. Raises FlexError if attribute 'dim' or 'element' is wrong."""
    if e.dim not in (1, 2, 3):
        raise FlexError(f"attribute 'dim': must be 1, 2 or 3, not {e.dim}")
    if not len(e.element) or len(e.element) % (e.dim + 1):
        raise FlexError(
            f"attribute 'element': needs a multiple of dim + 1 = {e.dim + 1} numbers, {len(e.element)} given"
        )
    return np.array(e.element).reshape(-1, e.dim + 1)


def _texture_corners(e: Any, element: Array) -> Array:
    """(m (dim + 1),) the texture coordinate of each corner of the elements; by default its vertex's."""
    if e.texcoord is None:
        return element.ravel()
    corners = np.array(e.element if e.elemtexcoord is None else e.elemtexcoord)
    if len(corners) != element.size:
        raise FlexError(
            f"attribute 'elemtexcoord': needs {element.size} numbers, one for each corner, {len(corners)} given"
        )
    return corners


def _bodies(draft: Draft, node: Node, order: int) -> tuple[Array, Array | None, Array]:
    """The bodies and places of vertices, and the bodies of nodes.

    Returns:
      The bodies of the vertices, (n,), or (1,) for all of them; the vertices (n, 3) m in the frames of the bodies, None
      if they are at the origins; the bodies of the nodes.
    """
    e = node.e
    known = dict[str, int]()

    def find(names: str | None) -> Array:
        for name in dict.fromkeys((names or "").split()):
            body = draft.find(node.source, "body", name)
            known[name] = body.id if body else 0
        return np.array([known[name] for name in (names or "").split()], int)

    bodies = find(e.body)
    nodes = find(e.node) if order else np.zeros(0, int)
    if not len(bodies):
        raise FlexError("attribute 'body': needs at least one body")
    if e.node and not order:
        raise FlexError("attribute 'node' needs attribute 'dof' with trilinear or quadratic")
    if e.vertex is None:
        return bodies, None, nodes
    if len(e.vertex) % 3:
        raise FlexError(f"attribute 'vertex': needs a multiple of 3 numbers, {len(e.vertex)} given")
    if len(bodies) not in (1, len(e.vertex) // 3):
        raise FlexError(
            f"attribute 'body': needs 1 body or {len(e.vertex) // 3} bodies, one for each vertex, {len(bodies)} given"
        )
    return bodies, np.array(e.vertex).reshape(-1, 3), nodes


def _check(
    e: Any, contact: Any, edges: Any, elasticity: Any, order: int, nvert: int, nnode: int, element: Array
) -> None:
    """Raises FlexError if the attributes of a flex contradict each other."""
    flat = elasticity.elastic2d != Elastic2D.NONE
    bad_poisson = not 0 <= elasticity.poisson < 0.5
    nodes = int(np.prod(e.cellcount * order + 1)) if order else 0
    ranked = np.sort(element, axis=1)
    texture = e.texcoord is not None and e.elemtexcoord is None and len(e.texcoord) != 2 * nvert
    for wrong, message in (
        (
            edges.stiffness > 0 and e.dim > 1,
            "the stiffness of <edge> is only for dim 1; use attribute 'young' of <elasticity>",
        ),
        (
            order and contact.selfcollide != FlexSelf.NONE,
            "an interpolated flex cannot collide with itself: set selfcollide to 'none'",
        ),
        (order and contact.internal, "an interpolated flex has no internal collisions: set internal to 'false'"),
        (flat and elasticity.thickness <= 0, "attribute 'elastic2d' needs a positive thickness"),
        ((flat or elasticity.young > 0) and bad_poisson, "attribute 'poisson': must be at least 0 and less than 0.5"),
        (flat and e.dim != 2 and not order, "attribute 'elastic2d' is only for dim 2"),
        (nvert < e.dim + 1, "attribute 'vertex': there are too few vertices"),
        (order and (e.cellcount < 1).any(), "attribute 'cellcount': must be positive"),
        (order and flat and not (e.cellcount == 1).any(), "attribute 'cellcount': a shell needs an axis with one cell"),
        (order and nnode != nodes, f"attribute 'node': cellcount and dof need {nodes} nodes, {nnode} given"),
        (
            element.min() < 0 or element.max() >= nvert,
            f"attribute 'element': a vertex does not exist, there are {nvert}",
        ),
        (texture, f"attribute 'texcoord': {nvert} vertices need {2 * nvert} numbers"),
        ((ranked[:, 1:] == ranked[:, :-1]).any(), "attribute 'element': an element has a vertex twice"),
    ):
        if wrong:
            raise FlexError(message)


def _check_grid(node: Array, empty: Array, order: int) -> None:
    """Raises FlexError if the sides of the first cell that is not empty are not at right angles."""
    cell = np.array(np.unravel_index(int(np.argmin(empty)), empty.shape)) * order
    size = tuple(np.array(empty.shape) * order + 1)
    index = [
        np.ravel_multi_index(tuple(cell + order * step), size) for step in (np.zeros(3, int), *np.eye(3, dtype=int))
    ]
    side = node[index[1:]] - node[index[0]]
    axes = side / np.maximum(np.linalg.norm(side, axis=1, keepdims=True), MINVAL)
    if np.abs(axes @ axes.T - np.eye(3)).max() > ORTHOGONAL:
        raise FlexError(
            "the nodes of an interpolated flex must form a grid of boxes, but a cell is flat or not at right angles"
        )


def _check_level(world: Array, edge: Array) -> None:
    """Raises FlexError if a surface with a flexvert equality is not level at qpos0, up to rounding."""
    height = world[edge][:, :, 2]
    if np.ptp(height) > 2 * MINVAL and (np.abs(height[:, 1] - height[:, 0]) > MINVAL).any():
        raise FlexError("a flexvert equality needs a surface that is level at qpos0, perpendicular to the z axis")


def _world(places: tuple[Array, Array], bodies: Array, vertex: Array | None) -> Array:
    """(n, 3) m: vertices at qpos0 in the world; `places` are the positions and rotations of all bodies."""
    pos, mat = places
    return pos[bodies] if vertex is None else pos[bodies] + np.einsum("nij,nj->ni", mat[bodies], vertex)


def _tables(
    draft: Draft, e: Any, element: Array, vertbody: Array, rigid: bool, interpolated: bool, equality: int, nvert: int
) -> Fields:
    """Edges, borders, and the edges at each vertex for flexvert equalities."""
    edge, elemedge = number_edges(element)
    border = borders(element)
    elasticity = (e.first(FlexElasticity) or FlexElasticity()).filled()
    bends = e.dim == 2 and Elastic2D.BEND in elasticity.elastic2d
    if bends and not interpolated:
        has_three = draft.fields["body_jntnum"][vertbody] == 3
        if not has_three.all():
            raise FlexError("bending does not support pins: every vertex needs a body with three joints")
    weld = draft.fields["body_weldid"][vertbody[edge]]
    fixed = np.ones(len(edge), bool) if rigid else weld[:, 0] == weld[:, 1]
    around = np.zeros(0, int)
    number = np.zeros(nvert, int)
    if e.dim == 2 and equality == EDGEEQUALITY[EqType.FLEXVERT] and not rigid and not interpolated:
        around, number = incident_edges(edge, nvert)
    return {
        "flex_vertbodyid": vertbody,
        "flex_vertedgenum": number,
        "flex_vertedge": around,
        "flex_edge": edge,
        "flex_edgeflap": flaps(element, elemedge) if bends else np.full((len(edge), 2), -1),
        "flexedge_rigid": np.zeros(len(edge), int) if interpolated else fixed.astype(int),
        "flex_elem": element.ravel(),
        "flex_elemedge": elemedge.ravel(),
        "flex_elemlayer": border.layer,
        "flex_shell": border.shell.ravel(),
        "flex_evpair": border.evpair,
    }


# ------------------------------------------------------------------------------------------------ material of cells


def _material_arrays(e: Any, elasticity: Any, element: Array, known: Fields, order: int, edgeequality: int) -> Fields:
    """Arrays of zeros with the sizes of flex_stiffness and flex_bending; the physics fills them."""
    flat = elasticity.elastic2d != Elastic2D.NONE
    bends = Elastic2D.BEND in elasticity.elastic2d
    cells = np.array(e.cellcount, int)
    faces = 2 * int(cells[1] * cells[2] + cells[0] * cells[2] + cells[0] * cells[1])
    strained = bool(order) and edgeequality == EDGEEQUALITY[EqType.FLEXSTRAIN]
    stiffness = bending = 0
    if order and (elasticity.young > 0 or strained):
        stiffness = (faces * (3 * (order + 1) ** 2) ** 2) if flat else int(cells.prod()) * (3 * (order + 1) ** 3) ** 2
    elif not order and elasticity.young > 0:
        stiffness = NSTIFFNESS * len(element)
    if elasticity.young > 0 and bends and order and elasticity.thickness > 0:
        # each face has four edges, each shared by two faces
        bending = 1 + NSHELLBENDING * 2 * faces
    elif elasticity.young > 0 and bends and e.dim == 2 and not order:
        bending = NBENDING * len(known["flex_edge"])
    return {"flex_stiffness": np.zeros(stiffness), "flex_bending": np.zeros(bending)}


def _bandwidth(fields: Fields) -> int:
    """flex_bandwidth: the largest distance between dofs that are coupled in the implicit equation of the nodes.

    Dofs are coupled if they move nodes of the same cell, or if one is an ancestor of the other in the tree. They are
    numbered in the order in which the nodes of all interpolated flexes first use them. 0 without interpolated flexes.
    """
    dofnum = fields["body_dofnum"]
    dofadr = fields["body_dofadr"]
    parent = fields["dof_parentid"]
    local = dict[int, int]()
    chains = dict[int, list[int]]()

    def chain(body: int) -> list[int]:
        """The dofs that move a body, its own last."""
        if body not in chains:
            weld = int(fields["body_weldid"][body])
            dof = int(dofadr[weld] + dofnum[weld] - 1) if weld else -1
            upward = list[int]()
            while dof >= 0:
                upward.append(dof)
                dof = int(parent[dof])
            chains[body] = upward[::-1]
        return chains[body]

    interpolated = np.flatnonzero(fields["flex_interp"])
    for flex in interpolated:
        first = fields["flex_nodeadr"][flex]
        for body in fields["flex_nodebodyid"][first : first + fields["flex_nodenum"][flex]].tolist():
            dofs = range(dofadr[body], dofadr[body] + dofnum[body]) if dofnum[body] else chain(body)
            for dof in dofs:
                local.setdefault(int(dof), len(local))
    widest = 0
    for dof, here in local.items():
        ancestor = dof
        while ancestor >= 0:
            widest = max(widest, abs(here - local.get(ancestor, here)))
            ancestor = int(parent[ancestor])
    for flex in interpolated:
        order = abs(int(fields["flex_interp"][flex]))
        count = fields["flex_cellnum"][flex]
        first = fields["flex_nodeadr"][flex]
        grid = count * order + 1
        number = np.arange(np.prod(grid)).reshape(grid)
        step = np.arange(order + 1)
        for x, y, z in np.ndindex(*(int(n) for n in count)):
            of_cell = number[np.ix_(x * order + step, y * order + step, z * order + step)].ravel()
            bodies = fields["flex_nodebodyid"][first + of_cell].tolist()
            places = [local[dof] for body in bodies for dof in chain(body) if dof in local]
            widest = max(widest, max(places) - min(places)) if places else widest
    return widest
