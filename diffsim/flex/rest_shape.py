"""The rest shape of flexes, at qpos0: positions of vertices and nodes, lengths of edges, and the box of each flex.

`flex_vert0` has vertices as coordinates from 0 to 1 in the box around the elements. For interpolated flexes this is the
box around the nodes, along the axes of the grid; `flex_node0` has the nodes along the same axes, in metres. A flexvert
equality compares the edges at a vertex with the edges of the flat rest shape; `flex_vertmetric` is the inverse of
sum m dx dx^T over the edges dx from the vertex to its neighbours of mass m. Source: mjCFlex::Compile, makeFlexSparse,
mj_alignFlex (MuJoCo 3.8.1).
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import MINVAL
from diffsim.flex.cells import empty_cells
from diffsim.flex.points import edge_flex, edge_vertices, flex_elements
from diffsim.kinematics.jacobian import motion_axes, moving_dofs, wrench_along, wrench_rows
from diffsim.math.rotation import rotate
from diffsim.math.safe import divide, norm, normalize
from diffsim.math.vector import cross, dot
from diffsim.types.data import ComFrame, Kinematics
from diffsim.types.model import Model
from diffsim.types.topology import Topology, per_topology, rows_of

Fields = dict[str, Array]

# value of flex_edgeequality for a flex equality, which keeps the lengths of edges
EDGES = 1
# value of flex_edgeequality for a flexvert equality, which keeps the strain at vertices
VERTICES = 2


class RestShape(NamedTuple):
    """Vertices (nflexvert, 3) and nodes (nflexnode, 3) at qpos0, m, world frame."""

    vertex: Array
    node: Array


def rest_shape(model: Model, kinematics: Kinematics) -> RestShape:
    """Vertices and nodes at qpos0."""
    topology = model.topology
    # vertices of interpolated flexes have no body; their coordinates are in the frame of the flex's body
    owner = np.repeat(topology.flex_bodyid, topology.flex_vertnum)
    carrier = np.where(topology.flex_vertbodyid >= 0, topology.flex_vertbodyid, owner)
    vertex = kinematics.xpos[carrier] + rotate(kinematics.xquat[carrier], model.flex_vert)
    body = topology.flex_nodebodyid
    node = kinematics.xpos[body] + rotate(kinematics.xquat[body], model.flex_node)
    return RestShape(vertex, node)


def element_reach(fields: Mapping[str, Any]) -> np.ndarray:
    """(nflex,) m: radius of a ball that can contain any element of the flex, even if its edges stretch by half."""
    vertex, ends = (np.asarray(fields[name]).reshape(-1, n) for name, n in (("flex_vert0", 3), ("flex_edge", 2)))
    size = np.asarray(fields["flex_size"], float).reshape(-1, 3)
    reach = []
    for flex, first in enumerate(np.asarray(fields["flex_vertadr"]).tolist()):
        start = int(fields["flex_edgeadr"][flex])
        edge = first + ends[start : start + int(fields["flex_edgenum"][flex])]
        span = 2 * size[flex] * (vertex[edge[:, 1]] - vertex[edge[:, 0]])
        # half the longest edge, times 1.5
        reach.append(0.75 * np.sqrt(np.max(np.sum(span * span, axis=1), initial=0)))
    return np.array(reach)


def shape_fields(model: Model, rest: RestShape) -> Fields:
    """flex_size, flex_vert0, flex_node0, flex_vertmetric, flexedge_length0."""
    topology = model.topology
    ends = edge_vertices(topology).T
    # edges of interpolated flexes have no rest length
    carried = topology.flex_interp[edge_flex(topology)] != 0
    sizes, places, nodes = list[Array](), list[Array](), list[Array]()
    for flex in range(topology.nflex):
        place = rest.vertex[rows_of(topology, "flex_vert", flex)]
        if topology.flex_interp[flex]:
            grid = rest.node[rows_of(topology, "flex_node", flex)]
            turn = grid_axes(topology, flex, grid)
            node = _turned(grid, turn)
            lower, upper = jnp.min(node, axis=0), jnp.max(node, axis=0)
            nodes.append(node)
            place = _turned(place, turn)
        else:
            # the box around the layers of a solid that collide
            elements = flex_elements(topology, flex)
            layer = topology.flex_elemlayer[rows_of(topology, "flex_elem", flex)]
            active = (layer < topology.flex_activelayers[flex]) | (topology.flex_dim[flex] < 3)
            corners = rest.vertex[np.unique(elements[active] if active.any() else elements)]
            lower, upper = jnp.min(corners, axis=0), jnp.max(corners, axis=0)
        extent = upper - lower
        flat = (extent <= 2 * MINVAL)[None]
        place = jnp.where(flat, 0.5, divide(place - lower[None], jnp.broadcast_to(extent, place.shape)))
        if topology.flex_edgeequality[flex] == VERTICES and topology.flex_dim[flex] == 2:
            place = _facing_up(topology, flex, place)
        sizes.append(extent / 2)
        places.append(place)
    return {
        "flex_size": jnp.stack(sizes),
        "flex_vert0": jnp.concatenate(places),
        "flex_node0": jnp.concatenate(nodes) if nodes else model.flex_node0,
        "flex_vertmetric": _metrics(model, rest),
        "flexedge_length0": jnp.where(carried, 0.0, norm(rest.vertex[ends[:, 1]] - rest.vertex[ends[:, 0]])),
    }


def grid_axes(topology: Topology, flex: int, node: Array) -> Array:
    """(3, 3) unit vectors along the axes of an interpolated flex's grid, as rows, from its first filled cell."""
    order = abs(int(topology.flex_interp[flex]))
    count = topology.flex_cellnum[flex]
    cell = np.array(np.unravel_index(int(np.argmin(empty_cells(topology, flex))), tuple(count)))
    corner = [tuple((cell + step) * order) for step in np.concatenate([np.zeros((1, 3), int), np.eye(3, dtype=int)])]
    index = [int(np.ravel_multi_index(place, tuple(count * order + 1))) for place in corner]
    return jnp.stack([normalize(node[index[axis + 1]] - node[index[0]]) for axis in range(3)])


def _turned(point: Array, turn: Array) -> Array:
    """Points (n, 3) in the axes that are the rows of `turn`."""
    return jnp.stack([dot(point, jnp.broadcast_to(turn[axis], point.shape)) for axis in range(3)], axis=-1)


def _facing_up(topology: Topology, flex: int, place: Array) -> Array:
    """Vertices of a level surface, turned about the x axis if its first triangle faces down."""
    first = flex_elements(topology, flex)[0] - topology.flex_vertadr[flex]
    normal = cross(place[first[1]] - place[first[0]], place[first[2]] - place[first[0]])
    sign = jax.lax.stop_gradient(jnp.where(normal[2] < 0, -1.0, 1.0))
    return place * jnp.stack([jnp.ones_like(sign), sign, sign])[None]


def _metrics(model: Model, rest: RestShape) -> Array:
    """flex_vertmetric (nflexvert, 4): the inverse of the 2 x 2 matrix sum m dx dx^T at each vertex, row by row."""
    topology = model.topology
    ends = edge_vertices(model.topology).T
    owner = edge_flex(topology)
    constrained = (topology.flex_edgeequality[owner] == VERTICES) & (topology.flex_dim[owner] == 2)
    constrained &= (topology.flex_rigid[owner] == 0) & (topology.flex_interp[owner] == 0)
    if not constrained.any():
        return jnp.zeros_like(model.flex_vertmetric)
    near_end = ends[constrained].ravel()
    far_end = ends[constrained][:, ::-1].ravel()
    span = rest.vertex[far_end] - rest.vertex[near_end]
    mass = jnp.maximum(model.body_mass[topology.flex_vertbodyid[far_end]], MINVAL)
    xx, xy, yy = (
        jnp.zeros(len(rest.vertex), span.dtype).at[near_end].add(mass * span[:, i] * span[:, j])
        for i, j in ((0, 0), (0, 1), (1, 1))
    )
    determinant = xx * yy - xy * xy
    inverse = jnp.where(jnp.abs(determinant) < MINVAL, 0.0, divide(jnp.ones_like(determinant), determinant))
    return jnp.stack([yy * inverse, -xy * inverse, -xy * inverse, xx * inverse], axis=1)


# ---------------------------------------------------------------------------------------------------- inverse weights


class EdgeRows(NamedTuple):
    """Edges (n,) whose inverse weight needs M^-1, and the Jacobian (n, nv) of their lengths."""

    edge: np.ndarray
    jacobian: Array


def edge_rows(model: Model, kinematics: Kinematics, com: ComFrame) -> EdgeRows | None:
    """Rows of the edges with an end on a body that does more than slide; None if there are no such edges.

    The rows of M of such a body are not diagonal.
    """
    topology = model.topology
    edge = _edges(topology)[1]
    if not len(edge):
        return None
    ends = edge_vertices(topology).T[edge]
    rest = rest_shape(model, kinematics)
    first, second = rest.vertex[ends[:, 0]], rest.vertex[ends[:, 1]]
    direction = normalize(second - first)
    bodies = topology.flex_vertbodyid[ends]
    axes = motion_axes(topology, com)
    # the Jacobian of each end, along the edge
    rows = [
        wrench_rows(axes, wrench_along(axes, place, direction)) * moving_dofs(topology, body, direction.dtype)
        for place, body in ((first, bodies[:, 0]), (second, bodies[:, 1]))
    ]
    return EdgeRows(edge, rows[1] - rows[0])


def edge_weights(model: Model, general: EdgeRows | None, weights: Array | None) -> Array:
    """flexedge_invweight0 (nflexedge,).

    It is the mean of 1 / m of both ends if their bodies only slide, 0 for rigid edges, and J M^-1 J^T otherwise.

    Args:
      model: the model.
      general: the edges that need M^-1, None if there are none.
      weights: (n,) J M^-1 J^T of these edges.
    """
    topology = model.topology
    simple = _edges(topology)[0]
    result = jnp.zeros_like(model.flexedge_invweight0)
    bodies = topology.flex_vertbodyid[edge_vertices(topology).T[simple]]
    by_mass = 1 / model.body_mass[bodies]
    result = result.at[simple].set((by_mass[:, 0] + by_mass[:, 1]) / 2)
    if general is not None and weights is not None:
        owner = edge_flex(topology)[general.edge]
        # as in MuJoCo, edges that no spring, damper or equality uses keep the weight 0
        read = (model.flex_edgestiffness != 0) | (model.flex_edgedamping != 0) | (model.flex_damping != 0)
        read = read | (topology.flex_edgeequality == EDGES)
        result = result.at[general.edge].set(jnp.where(read[owner], weights, 0.0))
    return result


@per_topology
def _edges(topology: Topology) -> tuple[np.ndarray, np.ndarray]:
    """Edges between bodies that only slide along their own axes, and the other edges that are not rigid."""
    owner = edge_flex(topology)
    bodies = topology.flex_vertbodyid[edge_vertices(topology).T]
    free = (topology.flexedge_rigid == 0) & (topology.flex_interp[owner] == 0)
    simple = free & (topology.body_simple[bodies] == 2).all(axis=1)
    return np.flatnonzero(simple), np.flatnonzero(free & ~simple & (topology.flex_rigid[owner] == 0))
