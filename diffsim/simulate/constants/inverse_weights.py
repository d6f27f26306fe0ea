"""Inverse weights at qpos0: the diagonal of J M^-1 J^T, which scales soft constraints, and |M^-1 moment| of actuators.

With M = L L^T it is the squared length of the columns of L^-1 J^T. M couples only the dofs of one tree, so that all of
this is done tree by tree: work and memory grow with the number of trees, not with its square. Source: MuJoCo set0;
"Computation", constraint model (diagApprox).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.joints import dofs_block
from diffsim.kinematics.tree import dof_blocks, dof_mask, last_dof
from diffsim.math.blocks import BlockDiagonal, Blocks, assemble, block_factor, columns_of
from diffsim.math.linalg import matmul
from diffsim.math.safe import sqrt
from diffsim.math.vector import cross, unpack
from diffsim.types.data import ComFrame, Inertia, Kinematics, Tendons, Transmission
from diffsim.types.model import Model
from diffsim.types.topology import Topology, per_topology
from diffsim.xla.pick import pick

Array = jax.Array
Fields = dict[str, Array]

MINIMUM = 1e-15
# bodies times dofs whose Jacobians are made at a time
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
    """body_invweight0 (nbody, 2), dof_invweight0 (nv,), tendon_invweight0 (ntendon,) and actuator_acc0 (nu,).

    Bodies have one weight of their centre of mass and one of their rotation, means over axes; units 1/kg and
    1/(kg m^2).
    """
    topology = model.topology
    if not topology.nv:
        names = ("body_invweight0", "dof_invweight0", "tendon_invweight0", "actuator_acc0")
        return {name: jnp.zeros_like(getattr(model, name)) for name in names}
    factor = inverse_factor(inertia.M)
    own = assemble(factor.blocks, tuple(jnp.sum(part**2, axis=1) for part in factor.inverse))
    by_mass = 1 / jnp.maximum(model.body_mass, MINIMUM)
    slides = topology.body_simple == 2
    point, turn = _body_weights(model, kinematics, com, factor)
    weight = jnp.stack([jnp.where(slides, by_mass, point), jnp.where(slides, 0.0, turn)], axis=1)
    # slides that are parallel, to rounding, have no weight of their own
    apart = own * inertia.M.diagonal < 1 / (64 * jnp.finfo(own.dtype).eps)
    of_slides = jnp.where(apart, by_mass[topology.dof_bodyid], jnp.inf)
    dof = jnp.where(slides[topology.dof_bodyid], of_slides, own)
    pulls = [matmul(*pair) for pair in zip(factor.inverse, _columns(factor, transmission.actuator_moment), strict=True)]
    moved = [matmul(jnp.swapaxes(part, 1, 2), pull) for part, pull in zip(factor.inverse, pulls, strict=True)]
    lines = [matmul(*pair) for pair in zip(factor.inverse, _columns(factor, tendons.ten_J), strict=True)]
    return {
        "body_invweight0": jnp.where((topology.body_weldid > 0)[:, None], weight, 0.0),
        "dof_invweight0": _joint_means(topology, dof),
        "tendon_invweight0": _squares(lines),
        "actuator_acc0": sqrt(_squares(moved)),
    }


def _columns(factor: Factor, rows: Array) -> list[Array]:
    """(count, size, k) transposed rows (k, nv), by blocks."""
    return [jnp.swapaxes(part, 1, 2) for part in columns_of(factor.blocks, rows).parts]


def _squares(parts: list[Array]) -> Array:
    """(k,) squared lengths of columns that are cut into blocks (count, size, k)."""
    return sum((jnp.sum(part**2, axis=(0, 1)) for part in parts[1:]), jnp.sum(parts[0] ** 2, axis=(0, 1)))


def _body_weights(model: Model, kinematics: Kinematics, com: ComFrame, factor: Factor) -> tuple[Array, Array]:
    """(nbody,) mean over the axes of the diagonal of J M^-1 J^T, of centres of mass and of rotations."""
    topology = model.topology
    weights = jnp.zeros((2, topology.nbody), com.cdof.dtype)
    for dofs, inverse, table in zip(factor.blocks.index, factor.inverse, _bodies(topology), strict=True):
        for bodies in np.array_split(table, max(1, dofs.size * table.shape[1] // AT_ONCE), axis=1):
            jacobians = _jacobians(topology, kinematics, com, dofs, bodies)
            columns = jnp.moveaxis(jacobians, 3, 2).reshape(2, *dofs.shape, -1)
            squares = jnp.sum(matmul(inverse, columns) ** 2, axis=2)
            x, y, z = unpack(squares.reshape(2, *bodies.shape, 3))
            weights = weights.at[:, bodies].add((x + y + z) / 3)
    return weights[0], weights[1]


def _jacobians(
    topology: Topology, kinematics: Kinematics, com: ComFrame, dofs: np.ndarray, bodies: np.ndarray
) -> Array:
    """(2, count, k, size, 3) Jacobians of the centres of mass and of the rotations of bodies (count, k) by dofs."""
    moved = dof_mask(topology)[last_dof(topology)[bodies][:, :, None], dofs[:, None]][..., None]
    axis = pick(com.cdof, dofs)[:, None]
    offset = pick(kinematics.xipos, bodies) - pick(com.subtree_com, topology.body_rootid[bodies])
    shape = (*moved.shape[:3], 3)
    turn, slide, arm = (jnp.broadcast_to(each, shape) for each in (axis[..., :3], axis[..., 3:], offset[:, :, None]))
    return jnp.where(moved, jnp.stack([slide + cross(turn, arm), turn]), 0.0)


@per_topology
def _bodies(topology: Topology) -> tuple[np.ndarray, ...]:
    """For each block size (count, k): the bodies that the dofs of each block move, filled up with the world."""
    last = last_dof(topology)
    moved = np.flatnonzero(last >= 0)
    tables = []
    for dofs in dof_blocks(topology).index:
        block = np.full(topology.nv, -1)
        block[dofs] = np.arange(len(dofs))[:, None]
        own = [moved[block[last[moved]] == number] for number in range(len(dofs))]
        table = np.zeros((len(dofs), max(map(len, own), default=0)), int)
        for row, bodies in zip(table, own, strict=True):
            row[: len(bodies)] = bodies
        tables.append(table)
    return tuple(tables)


def _joint_means(topology: Topology, values: Array) -> Array:
    """(nv,) means over the translations of a free joint, over its rotations, over the axes of a ball."""
    block = dofs_block(topology.jnt_type)
    number = np.bincount(block)
    sums = jnp.zeros((len(number),), values.dtype).at[block].add(values)
    return (sums / np.maximum(number, 1))[block]
