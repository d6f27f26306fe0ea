"""Nodes of interpolated flexes: their positions, velocities and Jacobian, and their shape functions at points.

The nodes of a flex are the corners of a grid of cells and, for order 2, also the midpoints of edges, faces and cells. A
point has coordinates s from 0 to 1 in the box of the grid. It lies in one cell, and its position is the sum of the
positions of the cell's nodes times their shape functions at s. Vertices are such points, with s = `flex_vert0`.
Source: mj_flex.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.flex.cells import polynomials
from diffsim.flex.points import articulated_rows
from diffsim.math.linalg import BlockColumns
from diffsim.math.vector import cross, mul_vec, total
from diffsim.types.data import ComFrame, Kinematics, Velocities
from diffsim.types.model import Model
from diffsim.types.topology import Topology, per_topology, rows_of
from diffsim.xla.gather import pick

# As in MuJoCo, a node takes no part in a contact if its shape function there is smaller than this. For order 2 this
# also drops nodes whose shape function is negative.
LEAST_WEIGHT = 1e-5


@per_topology
def interpolated(topology: Topology) -> tuple[int, ...]:
    """The interpolated flexes."""
    return tuple(np.flatnonzero(topology.flex_interp).tolist())


def node_positions(model: Model, kinematics: Kinematics) -> Array:
    """(nflexnode, 3) m: positions of all nodes in the world."""
    topology = model.topology
    body = topology.flex_nodebodyid
    at = pick(kinematics.xpos, topology.flex_nodebodyid)
    if all(topology.flex_centered[flex] for flex in interpolated(topology)):
        return at
    return at + mul_vec(pick(kinematics.xmat, body), model.flex_node)


def node_velocities(model: Model, com: ComFrame, velocities: Velocities, nodes: Array) -> Array:
    """(nflexnode, 3) m/s: velocities of nodes (nflexnode, 3), world frame."""
    topology = model.topology
    motion = pick(velocities.cvel, topology.flex_nodebodyid)
    arm = nodes - pick(com.subtree_com, topology.body_rootid[topology.flex_nodebodyid])
    return motion[:, 3:] + cross(motion[:, :3], arm)


def node_rows(model: Model, com: ComFrame, nodes: Array) -> BlockColumns:
    """The Jacobian (3 nflexnode, nv) of nodes (nflexnode, 3) in the world: x of all, then y, then z."""
    unit = jnp.eye(3, dtype=nodes.dtype)[None, :, None]
    direction = jnp.broadcast_to(unit, (1, 3, len(nodes), 3))
    return articulated_rows(model, com, model.topology.flex_nodebodyid[None], nodes[None], direction)


class NodeWeights(NamedTuple):
    """For each of n points, the k nodes of its cell (k, n) and the values of their shape functions (k, n)."""

    node: np.ndarray | Array
    weight: Array


def node_weights(topology: Topology, flex: int, place: Array) -> NodeWeights:
    """Nodes and shape functions at points (n, 3) in box coordinates; the choice of the cell has no derivative."""
    order = abs(int(topology.flex_interp[flex]))
    count = topology.flex_cellnum[flex]
    grid = count * order + 1
    step = np.stack(np.meshgrid(*[np.arange(order + 1)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    stride = np.array([grid[1] * grid[2], grid[2], 1])
    first = int(topology.flex_nodeadr[flex])
    scaled = place * jnp.asarray(count, place.dtype)[None]
    last = jnp.asarray(count - 1, place.dtype)[None]
    cell = jax.lax.stop_gradient(jnp.clip(jnp.floor(scaled), 0, last))
    # The polynomials continue outside the box. A clip of the coordinates would have no derivative on its sides, where
    # many vertices lie.
    local = scaled - cell
    values = [polynomials(local[:, axis], order)[0] for axis in range(3)]
    weight = jnp.stack([values[0][i] * values[1][j] * values[2][k] for i, j, k in step.tolist()])
    offset = first + step @ stride
    if np.all(count == 1):
        return NodeWeights(np.broadcast_to(offset[:, None], weight.shape), weight)
    index = cell.astype(jnp.int32)
    corner = total([order * int(stride[axis]) * index[:, axis] for axis in range(3)])
    return NodeWeights(jnp.asarray(offset, jnp.int32)[:, None] + corner[None], weight)


def interpolated_positions(model: Model, flex: int, nodes: Array) -> Array:
    """(n, 3) m: vertices of a flex in the world, given all nodes (nflexnode, 3)."""
    topology = model.topology
    node, weight = node_weights(topology, flex, model.flex_vert0[rows_of(topology, "flex_vert", flex)])
    if isinstance(node, np.ndarray):
        # all vertices have the nodes of one cell
        of_cell = nodes[rows_of(topology, "flex_node", flex)]
        return total([w[:, None] * position[None] for w, position in zip(weight, of_cell, strict=True)])
    return jnp.sum(weight[..., None] * nodes[node], axis=0)


def contact_weights(model: Model, flex: int, vertex: np.ndarray | Array, weight: Array) -> NodeWeights:
    """Nodes and shape functions at n contacts with a flex, given their vertices (k, n) and weights (k, n)."""
    place = jnp.sum(weight[..., None] * pick(model.flex_vert0, vertex), axis=0)
    node, value = node_weights(model.topology, flex, place)
    return NodeWeights(node, jnp.where(value < LEAST_WEIGHT, 0, value))
