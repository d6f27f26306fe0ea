"""Cells of interpolated flexes in the implicit integrators: their nodes move as if the next force acted already.

After the acceleration a of all dofs is known, those of nodes alone are solved for again,

    (M - h D - (h^2 + h c) J^T K J) a = f + h J^T K J v - (what parents' accelerations exert through M - h D),

with J the Jacobian of the nodes, K of all cells turned as they are, h the timestep and c the damping of the flex. As in
MuJoCo parents keep their accelerations, and of several flexes the force has (h^2 + h c) / (h^2 + h c of the first) for
a factor. Source: flexInterp_factor, flexInterp_solve.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.flex.cell_forces import Cells, cell_rotations, cells_of
from diffsim.flex.nodes import node_positions, node_rows, nodes_of
from diffsim.kinematics.jacobian import body_dof_mask
from diffsim.math import safe
from diffsim.math.linalg import BlockColumns, BlockDiagonal, gram, solve_blocks
from diffsim.math.vector import matmul, mul_mat, transpose
from diffsim.types.data import Data
from diffsim.types.model import Model
from diffsim.types.topology import Topology, per_topology
from diffsim.xla.gather import pick

Array = jax.Array


def with_cells(model: Model, qvel: Array, data: Data, matrix: BlockDiagonal, force: Array, qacc: Array) -> Array:
    """The acceleration (nv,) with that of nodes from their implicit equation.

    Args:
      matrix: M - h D. force: (nv,) f. qacc: (nv,) what solves matrix a = f.
    """
    topology, h = model.topology, model.opt.timestep
    if not cells_of(topology):
        return qacc
    nodes = node_positions(model, data)
    jacobian = node_rows(model, data, nodes)
    moved = node_dofs(topology)
    stiff = implicit_stiffness(model, nodes, jacobian)
    parts = []
    for part, index in zip(matrix.plus(stiff).parts, matrix.blocks.index, strict=True):
        lower = jnp.tril(part)
        symmetric = lower + transpose(jnp.tril(part, -1))
        inside = moved[index][:, :, None] & moved[index][:, None, :]
        parts.append(jnp.where(inside, symmetric, jnp.eye(index.shape[1], dtype=part.dtype)[None]))
    first = h * h + h * model.flex_damping[0]
    drag = stiff.mul_vec(qvel) * safe.divide(h, first)
    carried = matrix.mul_vec(jnp.where(moved, 0, qacc))
    wanted = jnp.where(moved, force - drag - carried, qacc)
    return solve_blocks(dataclasses.replace(matrix, parts=tuple(parts)), wanted)


def implicit_stiffness(model: Model, nodes: Array, jacobian: BlockColumns) -> BlockDiagonal:
    """-(h^2 + h c) J^T K J."""
    topology, h, count = model.topology, model.opt.timestep, len(nodes)
    total = jax.tree.map(jnp.zeros_like, gram(jacobian, jacobian))
    for cells in cells_of(topology):
        ids = np.arange(count)[nodes_of(topology, cells.flex)]
        rows = (np.arange(3)[:, None] * count + ids[None]).ravel()
        whole = turned_stiffness(model, cells, nodes, ids) * -(h * h + h * model.flex_damping[cells.flex])
        some = BlockColumns(jacobian.blocks, tuple(part[:, rows] for part in jacobian.parts))
        product = (jax.vmap(matmul, (None, 0))(whole, part) for part in some.parts)
        total = total.plus(gram(some, BlockColumns(jacobian.blocks, tuple(product))))
    return total


def turned_stiffness(model: Model, cells: Cells, nodes: Array, ids: np.ndarray) -> Array:
    """(3 n, 3 n) R K R^T of all cells, of the nodes (n,) of a flex: x of all, then y, then z."""
    corner, size, count = pick(nodes, cells.node), len(ids), len(cells.node)
    turn = cell_rotations(model.topology, cells.flex, corner)[:, None, None]
    blocks = cells.stiffness(model).reshape(count, corner.shape[1], 3, corner.shape[1], 3)
    turned = mul_mat(mul_mat(turn, jnp.swapaxes(blocks, 2, 3)), transpose(turn))
    node = cells.node - ids[0]
    row, column, axis = node[:, :, None, None, None], node[:, None, :, None, None], np.arange(3)
    index = (axis[:, None] * size + row, axis[None, :] * size + column)
    shape = turned.shape
    return (
        jnp.zeros((3 * size, 3 * size), turned.dtype)
        .at[np.broadcast_arrays(*index, np.zeros(shape, int))[:2]]
        .add(turned)
    )


@per_topology
def node_dofs(topology: Topology) -> np.ndarray:
    """(nv,) bool: the dofs of nodes, and of what carries those that have none."""
    moved = np.zeros(topology.nv, bool)
    for cells in cells_of(topology):
        for body in topology.flex_nodebodyid[nodes_of(topology, cells.flex)]:
            first, number = topology.body_dofadr[body], topology.body_dofnum[body]
            if number:
                moved[first : first + number] = True
            else:
                moved |= body_dof_mask(topology)[body]
    return moved
