"""Vertices of flexes as points on bodies, and the Jacobian rows of such points.

A vertex is fixed to a body, usually to a body of its own with three slide joints. Forces on vertices, edges, elements
and contacts all use rows of the form sum_k n_k . v_k, where n_k is a direction at the k-th vertex and v_k its velocity
in the world. For points with slide joints of their own a row stores one coefficient for each slide; for points on
articulated bodies it stores the columns of a matrix (math/stencil_rows.py).
Source: MuJoCo documentation, "Computation", "Deformable objects"; mj_flex.
"""

import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.kinematics.jacobian import forces_on_dofs, motion_axes, wrench_about, wrench_along, wrench_columns
from diffsim.kinematics.tree import articulated_blocks, chain_mask, free_points, last_dof
from diffsim.math.linalg import BlockColumns
from diffsim.math.stencil_rows import Fixed, Segment, StencilRows
from diffsim.math.vector import dot, mul_vec, total
from diffsim.types.data import ComFrame, Kinematics
from diffsim.types.model import Model
from diffsim.types.topology import Topology, per_topology
from diffsim.xla.gather import pick, pick_some, sum_gathered


@per_topology
def flex_elements(topology: Topology, flex: int) -> np.ndarray:
    """(m, dim + 1) the vertices of the elements of a flex, as indices into the vertices of all flexes."""
    columns = topology.flex_dim, topology.flex_elemdataadr, topology.flex_elemnum
    dim, start, count = (int(column[flex]) for column in columns)
    data = topology.flex_elem.ravel()[start : start + count * (dim + 1)]
    return data.reshape(count, dim + 1) + topology.flex_vertadr[flex]


@per_topology
def edge_flex(topology: Topology) -> np.ndarray:
    """(nflexedge,) the flex of each edge."""
    return np.repeat(np.arange(topology.nflex), topology.flex_edgenum)


@per_topology
def edge_vertices(topology: Topology) -> np.ndarray:
    """(2, nflexedge) both ends of each edge, as indices into the vertices of all flexes."""
    return (topology.flex_edge.reshape(-1, 2) + topology.flex_vertadr[edge_flex(topology)][:, None]).T


def vertex_positions(model: Model, kinematics: Kinematics) -> Array:
    """(nflexvert, 3) m: vertices in the world, as points on their bodies."""
    topology = model.topology
    body = topology.flex_vertbodyid
    centred = np.repeat(topology.flex_centered, topology.flex_vertnum) != 0
    at = pick(kinematics.xpos, body)
    if np.all(centred):
        return at
    offset = mul_vec(pick(kinematics.xmat, body), model.flex_vert)
    return at + jnp.where(centred[:, None], 0, offset)


def sum_on_dofs(model: Model, force: Array, dofs: np.ndarray) -> Array:
    """(nv,) the sum of forces (..., 3) over the dofs (..., 3) on which they act; -1 drops a force."""
    return sum_gathered(force.reshape(-1), tuple(dofs.ravel().tolist()), model.nv, 0)


def point_forces(model: Model, com: ComFrame, point: Array, force: Array, body: np.ndarray, dofs: np.ndarray) -> Array:
    """(nv,) N or N m: the generalized force of world forces (n, 3) at points (n, 3) on bodies (n,).

    As in MuJoCo, each component acts on one of the three `dofs` (n, 3) of the point. If these are -1 but the body can
    move, the force acts on the body at the point.
    """
    result = sum_on_dofs(model, force, dofs)
    others = np.flatnonzero((dofs < 0).all(axis=1) & (body >= 0) & (last_dof(model.topology)[body] >= 0))
    if len(others):
        push, at = pick(force, others), pick(point, others)
        result = result + forces_on_dofs(model, com, at, body[others], push, jnp.zeros_like(push))
    return result


def point_rows(model: Model, com: ComFrame, body: np.ndarray, pos: Array, direction: Array) -> Segment:
    """Jacobian rows of sum_k direction_k . (velocity of the k-th point), several for each of n constraints.

    Args:
      model: the model.
      com: frames at the centres of mass.
      body: (k, n) the bodies of the points.
      pos: (k, n, 3) m, positions of the points.
      direction: (k, rows, n, 3).
    """
    number, points = free_points(model.topology)
    columns_of_rows = None
    if not points.number or np.any((last_dof(model.topology)[body] >= 0) & (number[body] < 0)):
        columns_of_rows = articulated_rows(model, com, body, pos, direction)
    if not points.number:
        return Segment(columns_of_rows)
    return Segment(columns_of_rows, _stencil(model, com, body, direction, direction.shape[1]))


def carried_rows(
    model: Model,
    com: ComFrame,
    carriers: tuple[np.ndarray | Array, Array],
    pos: Array,
    frame: Array,
    turning: Array | None = None,
    among: np.ndarray | None = None,
) -> Segment:
    """Jacobian rows of n points, each of which moves with the weighted mean of several bodies.

    The rows are the components of the point's velocity along the directions `frame`, then the components of its angular
    velocity along the directions `turning`.

    Args:
      model: the model.
      com: frames at the centres of mass.
      carriers: the bodies (k, n), static or traced, and their weights (k, n). Unused places have the world or weight 0.
      pos: (n, 3) m, positions of the points.
      frame: (rows, n, 3) directions of linear velocities.
      turning: (more rows, n, 3) directions of angular velocities; None for no such rows.
      among: the bodies that traced carriers can be; None for any.
    """
    topology = model.topology
    body, weight = carriers
    number, points = free_points(topology)
    moved = last_dof(topology)
    among = body if isinstance(body, np.ndarray) else among
    columns_of_rows = None
    if not points.number or among is None or np.any((moved[among] >= 0) & (number[among] < 0)):
        axes = motion_axes(topology, com)
        blocks = articulated_blocks(topology)
        wrench = wrench_along(axes, jnp.broadcast_to(pos, frame.shape), frame)
        more = [] if turning is None else [wrench_about(turning)]
        rows = wrench_columns(blocks, axes, jnp.concatenate([wrench, *more]).reshape(-1, 6))
        last = jnp.asarray(moved)[body].reshape(-1)

        def shared(part: Array, index: np.ndarray) -> Array:
            """Columns of dofs, each times the total weight of the carriers that the dof moves."""
            moves = chain_mask(topology, last, index).reshape(len(index), *weight.shape, -1)
            share = jnp.sum(jnp.where(moves, weight[None, ..., None], 0), axis=1)
            return part * jnp.tile(share, (1, part.shape[1] // share.shape[1], 1))

        parts = (shared(part, index) for part, index in zip(rows.parts, blocks.index, strict=True))
        columns_of_rows = BlockColumns(blocks, tuple(parts))
    if not points.number:
        return Segment(columns_of_rows)
    height = len(frame) + (0 if turning is None else len(turning))
    return Segment(columns_of_rows, _stencil(model, com, body, weight[:, None, :, None] * frame[None], height))


def _stencil(model: Model, com: ComFrame, body: np.ndarray | Array, direction: Array, height: int) -> StencilRows:
    """The coefficients of free points in rows along directions (k, rows, n, 3), padded with zeros to `height` rows."""
    number, points = free_points(model.topology)
    which = number[body] if isinstance(body, np.ndarray) else jnp.asarray(number)[body]
    axis = [pick_some(com.cdof[:, 3:], dofs) for dofs in points.dofs.array.T]
    # bodies that are not free points get an arbitrary index; `touched` masks their rows
    at = np.maximum(which, 0) if isinstance(which, np.ndarray) else jnp.maximum(which, 0)
    parts = [pick(part, at) for part in axis]
    coefficient = jnp.stack([dot(direction, part[:, None]) for part in parts], axis=1)
    coefficient = jnp.pad(coefficient, [(0, 0), (0, 0), (0, height - direction.shape[1]), (0, 0)])
    if isinstance(which, np.ndarray):
        return StencilRows(points, coefficient, touched=Fixed(which))
    return StencilRows(points, coefficient, index=which)


def articulated_rows(model: Model, com: ComFrame, body: np.ndarray, pos: Array, direction: Array) -> BlockColumns:
    """The part of `point_rows` that belongs to articulated bodies, as columns of a matrix."""
    topology = model.topology
    axes = motion_axes(model.topology, com)
    blocks = articulated_blocks(topology)
    last = jnp.asarray(last_dof(topology))[body]

    def of_point(k: int) -> BlockColumns:
        wrench = wrench_along(axes, jnp.broadcast_to(pos[k], direction[k].shape), direction[k])
        return wrench_columns(blocks, axes, wrench.reshape(-1, 6))

    def masked(rows: Array, index: np.ndarray, k: int) -> Array:
        moves = chain_mask(topology, last[k], index)
        return rows * jnp.tile(moves, (1, rows.shape[1] // moves.shape[1], 1))

    by_point = [of_point(k) for k in range(len(direction))]
    parts = [
        total([masked(rows.parts[size], index, k) for k, rows in enumerate(by_point)])
        for size, index in enumerate(blocks.index)
    ]
    return BlockColumns(blocks, tuple(parts))
