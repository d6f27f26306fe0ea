"""Inverse weights of bodies, dofs, tendons, equalities and flexes at the reference pose.

They are the diagonal of J M^-1 J^T, which scales soft constraints, and |M^-1 moment| for actuators. With M = L L^T the
diagonal is the squared length of the columns of L^-1 J^T. M couples only the dofs of one tree, so that all of this is
done tree by tree: work and memory grow with the number of trees, not with its square.
Source: MuJoCo set0; "Computation", constraint model (diagApprox).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import MINVAL
from diffsim.base.joints import dofs_block
from diffsim.flex.rest_shape import edge_rows, edge_weights
from diffsim.kinematics.tree import dof_blocks, dof_mask, last_dof
from diffsim.math.linalg import BlockDiagonal, Blocks, assemble, block_factor, columns_of
from diffsim.math.safe import sqrt
from diffsim.math.vector import cross, matmul, unpack
from diffsim.types.data import ComFrame, Inertia, Kinematics, Tendons, Transmission
from diffsim.types.model import Model
from diffsim.types.topology import Topology, per_topology
from diffsim.xla.gather import pick

Fields = dict[str, Array]
# number of (dof, body) pairs whose Jacobians are in memory at a time: about 50 MB in float64
AT_ONCE = 1_000_000


class Factor(NamedTuple):
    """L^-1 of M = L L^T, (count, size, size) for each block size."""

    blocks: Blocks
    inverse: tuple[Array, ...]


def inverse_factor(inertia: BlockDiagonal) -> Factor:
    """L^-1 of the inertia matrix."""

    def of_size(factor: Array) -> Array:
        identity = jnp.broadcast_to(jnp.eye(factor.shape[-1], dtype=factor.dtype), factor.shape)
        return jax.scipy.linalg.solve_triangular(factor, identity, lower=True)

    return Factor(inertia.blocks, tuple(of_size(factor) for factor in block_factor(inertia.parts)))


def inverse_weights(
    model: Model, kinematics: Kinematics, com: ComFrame, tendons: Tendons, inertia: Inertia, transmission: Transmission
) -> Fields:
    """body_invweight0 (nbody, 2), dof_invweight0 (nv,), tendon_invweight0 (ntendon,), actuator_acc0 (nu,), and with
    flexes flexedge_invweight0 (nflexedge,).

    Bodies have one weight of their centre of mass and one of their rotation, means over axes; units 1/kg and
    1/(kg m^2).
    """
    topology = model.topology
    if not topology.nv:
        names = ("body_invweight0", "dof_invweight0", "tendon_invweight0", "actuator_acc0")
        return {name: jnp.zeros_like(getattr(model, name)) for name in names}
    factor = inverse_factor(inertia.M)
    # the diagonal of M^-1 = L^-T L^-1
    inverse_diagonal = assemble(factor.blocks, tuple(jnp.sum(part**2, axis=1) for part in factor.inverse))

    # bodies that only slide (body_simple 2): the inverse weight is 1 / mass, and 0 for rotation
    inverse_mass = 1 / jnp.maximum(model.body_mass, MINVAL)
    slides = topology.body_simple == 2
    translation, rotation = _body_weights(model, kinematics, com, factor)
    translation, rotation = jnp.where(slides, inverse_mass, translation), jnp.where(slides, 0.0, rotation)
    body_weight = jnp.stack([translation, rotation], axis=1)
    # if slides of one body are parallel, M is singular up to rounding
    regular = inverse_diagonal * inertia.M.diagonal < 1 / (64 * jnp.finfo(inverse_diagonal.dtype).eps)
    of_slides = jnp.where(regular, inverse_mass[topology.dof_bodyid], jnp.inf)
    dof_weight = jnp.where(slides[topology.dof_bodyid], of_slides, inverse_diagonal)

    # L^-1 moment of actuators, and M^-1 moment = L^-T (L^-1 moment); L^-1 J^T of tendons
    actuator_parts = solve_lower(factor, transmission.actuator_moment)
    pairs = zip(factor.inverse, actuator_parts, strict=True)
    accelerations = [matmul(jnp.swapaxes(inverse, 1, 2), part) for inverse, part in pairs]
    tendon_parts = solve_lower(factor, tendons.ten_J)
    # means over the translations of a free joint, over its rotations, over the axes of a ball
    block = dofs_block(topology.jnt_type)
    number = np.bincount(block)
    sums = jnp.zeros((len(number),), dof_weight.dtype).at[block].add(dof_weight)
    weights = {
        "body_invweight0": jnp.where(topology.body_moves[:, None], body_weight, 0.0),
        "dof_invweight0": (sums / np.maximum(number, 1))[block],
        "tendon_invweight0": squared_lengths(tendon_parts),
        "actuator_acc0": sqrt(squared_lengths(accelerations)),
    }
    if topology.nflex:
        rows = edge_rows(model, kinematics, com)
        squares = None if rows is None else squared_lengths(solve_lower(factor, rows.jacobian))
        weights["flexedge_invweight0"] = edge_weights(model, rows, squares)
    return weights


def solve_lower(factor: Factor, rows: Array) -> list[Array]:
    """L^-1 J^T of rows J (k, nv), by blocks (count, size, k)."""
    columns = [jnp.swapaxes(part, 1, 2) for part in columns_of(factor.blocks, rows).parts]
    return [matmul(*pair) for pair in zip(factor.inverse, columns, strict=True)]


def squared_lengths(parts: list[Array]) -> Array:
    """(k,) squared lengths of columns that are cut into blocks (count, size, k)."""
    return sum((jnp.sum(part**2, axis=(0, 1)) for part in parts[1:]), jnp.sum(parts[0] ** 2, axis=(0, 1)))


def _body_weights(model: Model, kinematics: Kinematics, com: ComFrame, factor: Factor) -> tuple[Array, Array]:
    """(nbody,) mean over the axes of the diagonal of J M^-1 J^T, of centres of mass and of rotations."""
    topology = model.topology
    weights = jnp.zeros((2, topology.nbody), com.cdof.dtype)
    for dofs, inverse, table in zip(factor.blocks.index, factor.inverse, _bodies(topology), strict=True):
        for bodies in np.array_split(table, max(1, dofs.size * table.shape[1] // AT_ONCE), axis=1):
            # J (2, count, k, size, 3) of bodies (count, k) by the dofs (count, size) of their blocks
            moves = dof_mask(topology)[last_dof(topology)[bodies][:, :, None], dofs[:, None]][..., None]
            axis = pick(com.cdof, dofs)[:, None]
            offset = pick(kinematics.xipos, bodies) - pick(com.subtree_com, topology.body_rootid[bodies])
            parts = (axis[..., :3], axis[..., 3:], offset[:, :, None])
            shape = (*moves.shape[:3], 3)
            angular, linear, offset = (jnp.broadcast_to(part, shape) for part in parts)
            jacobians = jnp.where(moves, jnp.stack([linear + cross(angular, offset), angular]), 0.0)
            columns = jnp.moveaxis(jacobians, 3, 2).reshape(2, *dofs.shape, -1)
            squares = jnp.sum(matmul(inverse, columns) ** 2, axis=2)
            x, y, z = unpack(squares.reshape(2, *bodies.shape, 3))
            weights = weights.at[:, bodies].add((x + y + z) / 3)
    return weights[0], weights[1]


@per_topology
def _bodies(topology: Topology) -> tuple[np.ndarray, ...]:
    """For each block size a table (count, k): the bodies that the dofs of each block move, padded with the world."""
    last = last_dof(topology)
    moving = np.flatnonzero(last >= 0)
    tables = []
    for dofs in dof_blocks(topology).index:
        block = np.full(topology.nv, -1)
        block[dofs] = np.arange(len(dofs))[:, None]
        members = [moving[block[last[moving]] == number] for number in range(len(dofs))]
        table = np.zeros((len(dofs), max(map(len, members), default=0)), int)
        for row, bodies in zip(table, members, strict=True):
            row[: len(bodies)] = bodies
        tables.append(table)
    return tuple(tables)
