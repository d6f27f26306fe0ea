"""Elastic forces of interpolated flexes: from the cells of their grids or, for shells, from the faces of their grids.

Elements are corotational (Mueller and Gross 2004). R is the rotation in the deformation gradient at the centre of a
cell (`polar_rotation`). In the frame that turns with R the force is linear in the displacements of the nodes, so
f = R K (R^T x - x0), and the damping force is `flex_damping` R K R^T v. K is minus the stiffness matrix of the cell.

Two faces A and B of a shell with a common edge resist bending. The residual is r = (n_A - n_B) - R (n_A - n_B at rest),
with the normals n at the middle of the edge and the mean rotation R of the two faces. The force treats R as constant.
As in MuJoCo, bending has no damping.

The implicit integrators treat these forces implicitly. When the acceleration of all dofs is known, they solve again for
the acceleration a of the node dofs alone:

    (M - h D - (h^2 + h c) J^T K J) a = f + h J^T K J v - (M - h D) (acceleration of the other dofs).

J is the Jacobian of the nodes, K is the turned stiffness of all cells, h is the timestep and c the damping of the flex.
As in MuJoCo, the other dofs keep their acceleration. With several flexes, MuJoCo scales the term h J^T K J v of each
flex by (h^2 + h c) / (h^2 + h c1), where c1 is the damping of the first flex.
Source: mj_flexPassiveInterp, mj_flexPassiveBendInterp; flexInterp_factor, flexInterp_solve.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.flex.cells import FLAT, NBENDING, cell_nodes, face_normals, face_slopes, polynomials, shell_edges
from diffsim.flex.material import STRAIN
from diffsim.flex.nodes import interpolated, node_positions, node_rows, node_velocities
from diffsim.flex.points import point_forces
from diffsim.kinematics.tree import body_dof_mask, dofs_of, sliding_bodies
from diffsim.math import safe
from diffsim.math.block_solves import solve_blocks
from diffsim.math.linalg import BlockColumns, BlockDiagonal, gram
from diffsim.math.polar import polar_rotation
from diffsim.math.vector import cross, dot, matmul, mul_mat, mul_vec, mul_vec_t, scale, total, transpose
from diffsim.types.data import ComFrame, Data, Velocities
from diffsim.types.model import Model
from diffsim.types.topology import Topology, per_topology, rows_of
from diffsim.xla.gather import pick, sum_gathered


class Cells(NamedTuple):
    """The m cells or faces of one flex, with n nodes each.

    Attributes:
      flex: index of the flex.
      node: (m, n) indices into the nodes of all flexes.
      slots: the entries of flex_stiffness with their matrices.
    """

    flex: int
    node: np.ndarray
    slots: slice

    def stiffness(self, model: Model) -> Array:
        """(m, 3 n, 3 n) N/m: K of each cell."""
        count, size = self.node.shape
        return model.flex_stiffness[self.slots].reshape(count, 3 * size, 3 * size)


@per_topology
def cells_of(topology: Topology, strained: bool = False) -> tuple[Cells, ...]:
    """The cells of each flex with elastic cells or, if `strained`, with cells that strain equalities constrain."""
    listed = []
    for flex in interpolated(topology):
        first = int(topology.flex_stiffnessadr[flex])
        if first >= 0 and not topology.flex_rigid[flex] and (topology.flex_edgeequality[flex] == STRAIN) == strained:
            node = cell_nodes(topology, flex) + topology.flex_nodeadr[flex]
            entries = len(node) * (3 * node.shape[1]) ** 2
            listed.append(Cells(flex, node, slice(first, first + entries)))
    return tuple(listed)


def cell_rotations(topology: Topology, flex: int, corner: Array) -> Array:
    """(m, 3, 3): the rotation R of each cell or face, given its nodes (m, n, 3)."""
    order = abs(int(topology.flex_interp[flex]))
    dim = 2 if topology.flex_interp[flex] < 0 else 3
    value, slope = polynomials(0.5, order)
    step = np.stack(np.meshgrid(*[np.arange(order + 1)] * dim, indexing="ij"), axis=-1).reshape(-1, dim)
    # Column a of the deformation gradient at the centre is sum_k x_k d phi_k / d s_a. The shape function phi_k is a
    # product of one polynomial for each axis; for column a, the polynomial of axis a is differentiated.
    factors = [[np.array(slope if a == b else value)[step[:, b]] for b in range(dim)] for a in range(dim)]
    along = [total([corner[:, k] * float(w) for k, w in enumerate(np.prod(part, axis=0))]) for part in factors]
    if dim == 3:
        return polar_rotation(jnp.stack(along, axis=-1))
    # a face has no third column: its normal takes the place of the axis across it, and the two tangents follow
    columns = jnp.stack([cross(*along), *along], axis=1)
    turned = (np.arange(3)[None] - face_normals(topology, flex)[:, None]) % 3
    return polar_rotation(jnp.swapaxes(columns[np.arange(len(turned))[:, None], turned], 1, 2))


def cell_forces(model: Model, com: ComFrame, velocities: Velocities, nodes: Array) -> tuple[Array, Array]:
    """(nv,) N or N m each: forces of the springs and of the dampers, given nodes (nflexnode, 3) in the world."""
    topology = model.topology
    count = len(nodes)
    spring = damper = jnp.zeros_like(nodes)
    speed = node_velocities(model, com, velocities, nodes)
    # as in MuJoCo, flexes of dim 1 have no force from their cells, although the implicit integrators use the stiffness
    for cells in (cells for cells in cells_of(topology) if topology.flex_dim[cells.flex] > 1):
        corner = pick(nodes, cells.node)
        ids = tuple(cells.node.ravel().tolist())
        turn = cell_rotations(topology, cells.flex, corner)
        stiffness = cells.stiffness(model)

        def force(local: Array, turn: Array = turn, stiffness: Array = stiffness) -> Array:
            """R K applied to displacements or velocities (m, n, 3) in the frames of the cells."""
            product = jax.vmap(matmul)(stiffness, local.reshape(len(local), -1))
            return mul_vec(turn[:, None], product.reshape(local.shape)).reshape(-1, 3)

        displacement = mul_vec_t(turn[:, None], corner) - pick(model.flex_node0, cells.node)
        spring = spring + sum_gathered(force(displacement), ids, count, 0)
        drag = force(mul_vec_t(turn[:, None], pick(speed, cells.node))) * model.flex_damping[cells.flex]
        damper = damper + sum_gathered(drag, ids, count, 0)
    for flex in interpolated(topology):
        if topology.flex_interp[flex] < 0 and topology.flex_bendingadr[flex] >= 0:
            spring = spring + shell_bending_force(model, flex, nodes)
    body = topology.flex_nodebodyid
    dofs = np.where(own_slides(topology)[:, None], dofs_of(topology, body, 3), -1)
    force_of_springs, force_of_dampers = (
        point_forces(model, com, nodes, push, body, dofs) for push in (spring, damper)
    )
    return force_of_springs, force_of_dampers


def shell_bending_force(model: Model, flex: int, nodes: Array) -> Array:
    """(nflexnode, 3) N: bending forces between neighbouring faces of a shell.

    The energy of an edge is stiffness / 2 |r|^2 with the residual r of the module's docstring. The unit normal is
    n = N / |N| with N = t_0 x t_1, so dn = (I - n n^T) dN / |N|. A node moves the tangents t_0 and t_1 by the slopes of
    its shape function.
    """
    topology = model.topology
    faces, first, second = shell_edges(topology, flex)
    order = abs(int(topology.flex_interp[flex]))
    grid = cell_nodes(topology, flex) + topology.flex_nodeadr[flex]
    start = int(topology.flex_bendingadr[flex]) + 1
    rows = model.flex_bending[start : start + NBENDING * len(faces)].reshape(-1, NBENDING)
    turns = cell_rotations(topology, flex, pick(nodes, grid))
    # the rotation halfway between two rotations is the rotation in the polar decomposition of their sum
    turn = polar_rotation(pick(turns, faces[:, 0]) + pick(turns, faces[:, 1]))
    # for both faces of each edge: nodes, slopes of the shape functions, tangents and normal at the middle of the edge
    sides = []
    for column, place in ((0, first), (1, second)):
        weights = [face_slopes(place, order, axis) for axis in range(2)]
        corner = pick(nodes, grid[faces[:, column]])
        tangents = [total([corner[:, k] * w[:, k, None] for k in range(w.shape[1])]) for w in weights]
        sides.append((grid[faces[:, column]], weights, tangents, cross(*tangents)))
    lengths = [safe.norm(side[3]) for side in sides]
    exists = (lengths[0] >= FLAT) & (lengths[1] >= FLAT)
    unit = [safe.normalize(side[3]) for side in sides]
    residual = unit[0] - unit[1] - mul_vec(turn, rows[:, 7:])
    result = jnp.zeros_like(nodes)
    # r is n_A - n_B, so the second face has the opposite sign
    for sign, length, normal, (ids, weights, tangents, _) in zip((1, -1), lengths, unit, sides, strict=True):
        # (I - n n^T) r / |N|
        across = scale(residual - scale(normal, dot(normal, residual)), safe.divide(jnp.ones_like(length), length))
        stiff = jnp.where(exists, sign * rows[:, 6], 0)
        lever = [scale(cross(across, tangents[axis]), stiff) for axis in (1, 0)]
        push = weights[0][..., None] * lever[0][:, None] - weights[1][..., None] * lever[1][:, None]
        result = result + sum_gathered(push.reshape(-1, 3), tuple(ids.ravel().tolist()), len(nodes), 0)
    return result


@per_topology
def own_slides(topology: Topology) -> np.ndarray:
    """(nflexnode,) bool: nodes that have their own body, which only slides; pinned nodes share the parent body."""
    body, count = np.unique(topology.flex_nodebodyid, return_counts=True)
    alone = body[(count == 1) & (topology.body_dofnum[body] == 3)]
    return np.isin(topology.flex_nodebodyid, alone) & sliding_bodies(topology)[topology.flex_nodebodyid]


def with_cells(model: Model, qvel: Array, data: Data, matrix: BlockDiagonal, force: Array, qacc: Array) -> Array:
    """(nv,) the acceleration after the node dofs have been solved for again, implicitly (see the module's docstring).

    Args:
      model: the model.
      qvel: (nv,) v.
      data: poses of the current state.
      matrix: M - h D.
      force: (nv,) f.
      qacc: (nv,) the solution of `matrix` qacc = f, which all other dofs keep.
    """
    topology = model.topology
    h = model.opt.timestep
    if not cells_of(topology):
        return qacc
    nodes = node_positions(model, data)
    jacobian = node_rows(model, data, nodes)
    moved = node_dofs(topology)
    stiff = implicit_stiffness(model, nodes, jacobian)
    # rows and columns of all other dofs become rows and columns of the identity: their acceleration is known
    parts = []
    for part, index in zip(matrix.plus(stiff).parts, matrix.blocks.index, strict=True):
        lower = jnp.tril(part)
        symmetric = lower + transpose(jnp.tril(part, -1))
        inside = moved[index][:, :, None] & moved[index][:, None, :]
        parts.append(jnp.where(inside, symmetric, jnp.eye(index.shape[1], dtype=part.dtype)[None]))
    # h J^T K J v with MuJoCo's factor (h^2 + h c) / (h^2 + h c1): `stiff` contains the numerator of each flex
    first = h * h + h * model.flex_damping[0]
    drag = stiff.mul_vec(qvel) * safe.divide(h, first)
    # (M - h D) (acceleration of the other dofs)
    carried = matrix.mul_vec(jnp.where(moved, 0, qacc))
    wanted = jnp.where(moved, force - drag - carried, qacc)
    return solve_blocks(dataclasses.replace(matrix, parts=tuple(parts)), wanted)


def implicit_stiffness(model: Model, nodes: Array, jacobian: BlockColumns) -> BlockDiagonal:
    """-(h^2 + h c) J^T K J, summed over all flexes."""
    topology = model.topology
    h = model.opt.timestep
    count = len(nodes)
    stiff = jax.tree.map(jnp.zeros_like, gram(jacobian, jacobian))
    for cells in cells_of(topology):
        ids = np.arange(count)[rows_of(topology, "flex_node", cells.flex)]
        rows = (np.arange(3)[:, None] * count + ids[None]).ravel()
        turned = turned_stiffness(model, cells, nodes, ids) * -(h * h + h * model.flex_damping[cells.flex])
        rows_of_flex = BlockColumns(jacobian.blocks, tuple(part[:, rows] for part in jacobian.parts))
        product = (jax.vmap(matmul, (None, 0))(turned, part) for part in rows_of_flex.parts)
        stiff = stiff.plus(gram(rows_of_flex, BlockColumns(jacobian.blocks, tuple(product))))
    return stiff


def turned_stiffness(model: Model, cells: Cells, nodes: Array, ids: np.ndarray) -> Array:
    """(3 n, 3 n) the sum of R K R^T over all cells of a flex with nodes `ids` (n,).

    Rows and columns: x of all nodes, then y, then z.
    """
    corner = pick(nodes, cells.node)
    size = len(ids)
    count = len(cells.node)
    turn = cell_rotations(model.topology, cells.flex, corner)[:, None, None]
    blocks = cells.stiffness(model).reshape(count, corner.shape[1], 3, corner.shape[1], 3)
    turned = mul_mat(mul_mat(turn, jnp.swapaxes(blocks, 2, 3)), transpose(turn))
    node = cells.node - ids[0]
    row = node[:, :, None, None, None]
    column = node[:, None, :, None, None]
    axis = np.arange(3)
    index = (np.broadcast_to(part, turned.shape) for part in (axis[:, None] * size + row, axis[None] * size + column))
    return jnp.zeros((3 * size, 3 * size), turned.dtype).at[tuple(index)].add(turned)


@per_topology
def node_dofs(topology: Topology) -> np.ndarray:
    """(nv,) bool: which dofs move a node: its own slides or, if it is pinned, all dofs that move its body."""
    moved = np.zeros(topology.nv, bool)
    for cells in cells_of(topology):
        for body in topology.flex_nodebodyid[rows_of(topology, "flex_node", cells.flex)]:
            dofs = rows_of(topology, "body_dof", body)
            if dofs.start < dofs.stop:
                moved[dofs] = True
            else:
                moved |= body_dof_mask(topology)[body]
    return moved
