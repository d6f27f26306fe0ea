"""Nodes of interpolated flexes: where they are, how they move, and what share each has in a point of the flex.

The nodes of a flex are corners of a grid of cells, or for order 2 also the middles of edges, faces and cells. A point
with coordinates s in the box of the grid, from 0 to 1, is in one cell, and moves as the sum of the cell's nodes times
shape functions of its place there. Vertices are such points, with coordinates `flex_vert0`. Source: mj_flex.
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

# shares below which a node has no part in a contact, as in MuJoCo: of order 2 also those below zero
LEAST = 1e-5


@per_topology
def interpolated(topology: Topology) -> tuple[int, ...]:
    """The interpolated flexes."""
    return tuple(np.flatnonzero(topology.flex_interp).tolist())


def node_positions(model: Model, kinematics: Kinematics) -> Array:
    """(nflexnode, 3) m, in the world."""
    topology = model.topology
    body, at = topology.flex_nodebodyid, pick(kinematics.xpos, topology.flex_nodebodyid)
    if all(topology.flex_centered[flex] for flex in interpolated(topology)):
        return at
    return at + mul_vec(pick(kinematics.xmat, body), model.flex_node)


def node_velocities(model: Model, com: ComFrame, velocities: Velocities, nodes: Array) -> Array:
    """(nflexnode, 3) m/s, of nodes (nflexnode, 3) in the world."""
    topology = model.topology
    motion = pick(velocities.cvel, topology.flex_nodebodyid)
    arm = nodes - pick(com.subtree_com, topology.body_rootid[topology.flex_nodebodyid])
    return motion[:, 3:] + cross(motion[:, :3], arm)


def node_rows(model: Model, com: ComFrame, nodes: Array) -> BlockColumns:
    """The Jacobian (3 nflexnode, nv) of nodes (nflexnode, 3) in the world: x of all, then y, then z."""
    unit = jnp.eye(3, dtype=nodes.dtype)[None, :, None]
    direction = jnp.broadcast_to(unit, (1, 3, len(nodes), 3))
    return articulated_rows(model, com, model.topology.flex_nodebodyid[None], nodes[None], direction)


class Shares(NamedTuple):
    """The nodes (k, n) of points, counted over all flexes, and their shares (k, n)."""

    node: np.ndarray | Array
    share: Array


def node_shares(topology: Topology, flex: int, place: Array) -> Shares:
    """The nodes of points (n, 3), in coordinates of the box of a flex; which cell they are in is not differentiated."""
    order, count = abs(int(topology.flex_interp[flex])), topology.flex_cellnum[flex]
    grid = count * order + 1
    step = np.stack(np.meshgrid(*[np.arange(order + 1)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    stride, first = np.array([grid[1] * grid[2], grid[2], 1]), int(topology.flex_nodeadr[flex])
    scaled = place * jnp.asarray(count, place.dtype)[None]
    last = jnp.asarray(count - 1, place.dtype)[None]
    cell = jax.lax.stop_gradient(jnp.clip(jnp.floor(scaled), 0, last))
    # at the sides of the box, where vertices are, the polynomials go on: a clip would have no derivative there
    local = scaled - cell
    values = [polynomials(local[:, axis], order)[0] for axis in range(3)]
    share = jnp.stack([values[0][i] * values[1][j] * values[2][k] for i, j, k in step.tolist()])
    offset = first + step @ stride
    if np.all(count == 1):
        return Shares(np.broadcast_to(offset[:, None], share.shape), share)
    index = cell.astype(jnp.int32)
    corner = total([order * int(stride[axis]) * index[:, axis] for axis in range(3)])
    return Shares(jnp.asarray(offset, jnp.int32)[:, None] + corner[None], share)


def interpolated_positions(model: Model, flex: int, nodes: Array) -> Array:
    """(n, 3) vertices of a flex in the world, m, of nodes (nflexnode, 3)."""
    topology = model.topology
    shares = node_shares(topology, flex, model.flex_vert0[rows_of(topology, "flex_vert", flex)])
    if isinstance(shares.node, np.ndarray):
        # all vertices share the nodes of one cell
        of_cell = nodes[rows_of(topology, "flex_node", flex)]
        return total([share[:, None] * node[None] for share, node in zip(shares.share, of_cell, strict=True)])
    return jnp.sum(shares.share[..., None] * nodes[shares.node], axis=0)


def contact_shares(model: Model, flex: int, vertex: np.ndarray | Array, weight: Array) -> Shares:
    """The nodes of contacts with a flex, from vertices (k, n) and their weights (k, n)."""
    place = jnp.sum(weight[..., None] * pick(model.flex_vert0, vertex), axis=0)
    node, share = node_shares(model.topology, flex, place)
    return Shares(node, jnp.where(share < LEAST, 0, share))
