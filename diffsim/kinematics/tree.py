"""The kinematic tree: ancestors of bodies and dofs, sums over chains and subtrees, and the blocks of M.

The chain of a body or dof consists of the dofs from the root to it. All spatial quantities of a tree are expressed at
the tree's centre of mass, so that every recursion over the tree is a plain sum over a chain or over a subtree
(xla/tree_sums.py). M is block-diagonal: each tree is a block, and so is each flex vertex that is a tree of one body.
"""

from typing import NamedTuple

import numpy as np
from jax import Array

from diffsim.base.enums import TrnType
from diffsim.base.joints import dofs_angular
from diffsim.math.linalg import Blocks, blocks_of, worthwhile, worthwhile_blocks
from diffsim.math.stencil_rows import Fixed, Points
from diffsim.types.topology import Topology, per_topology, rows_of
from diffsim.xla.solves.cpu_cholesky import Limbs, limbs_of
from diffsim.xla.tree_sums import Scaled, Trees


@per_topology
def bodies(topology: Topology) -> Trees:
    """The tree of bodies, with the world as its root."""
    return Trees(np.append(-1, topology.body_parentid[1:]).astype(np.int32), rooted=True)


@per_topology
def dofs(topology: Topology) -> Trees:
    """The forest of dofs, in which the parent of a dof is the one before it on its chain."""
    return Trees(topology.dof_parentid)


def body_mask(topology: Topology) -> np.ndarray:
    """(nbody, nbody) bool: row i marks body i and its ancestors."""
    return bodies(topology).mask


def dof_mask(topology: Topology) -> np.ndarray:
    """(nv, nv) bool: row i marks dof i and the dofs before it on its chain."""
    return dofs(topology).mask


@per_topology
def last_dof(topology: Topology) -> np.ndarray:
    """(nbody,) the last dof on the chain of each body, -1 for static bodies."""
    last = np.full(topology.nbody, -1, dtype=np.int32)
    for body in range(1, topology.nbody):
        count = topology.body_dofnum[body]
        last[body] = topology.body_dofadr[body] + count - 1 if count else last[topology.body_parentid[body]]
    return last


@per_topology
def body_dof_mask(topology: Topology) -> np.ndarray:
    """(nbody, nv) bool: row i marks the dofs on the chain of body i, which move it."""
    padded = np.vstack([dof_mask(topology), np.zeros((1, topology.nv), dtype=bool)])
    return padded[last_dof(topology)]


def chain_mask(topology: Topology, last: Array, dofs: np.ndarray) -> Array:
    """(count, n, k) bool: whether each of `dofs` (count, k) is on the chain that ends with dof `last` (n,).

    `last` is known only at run time; -1 is an empty chain. Comparisons are faster than looking up `dof_mask`.
    """
    begin, end = (x[dofs][:, None] for x in chain_spans(topology))
    return (last[None, :, None] >= begin) & (last[None, :, None] <= end)


@per_topology
def chain_spans(topology: Topology) -> tuple[np.ndarray, np.ndarray]:
    """First and last descendant (nv,) of each dof, which counts as its own first one.

    Dofs are numbered depth first, so all dofs between the two are its descendants, and it is on their chains.
    """
    last = [np.flatnonzero(column)[-1] for column in dof_mask(topology).T]
    return np.arange(topology.nv, dtype=np.int32), np.array(last, dtype=np.int32)


def sum_subtree(topology: Topology, values: Array) -> Array:
    """(nbody, k) for each body, the sum of `values` (nbody, k) over itself and its descendants."""
    return bodies(topology).below(values)


def sum_dofs(topology: Topology, last: np.ndarray, *terms: Scaled) -> Array:
    """(n, k) sums over the chains of dofs that end with `last` (n,); zero where it is -1.

    Each of the `terms` is a pair of vectors (nv, k) and factors (nv,), whose products are summed.
    """
    return dofs(topology).above_at(last, *terms)


def sum_chain(topology: Topology, *terms: Scaled) -> Array:
    """(nbody, k) for each body, the sum over its chain; terms as for `sum_dofs`."""
    return sum_dofs(topology, last_dof(topology), *terms)


class FreePoints(NamedTuple):
    """Flex vertices that are trees of one body.

    Attributes:
      number: (nbody,) the index of each body in `points`, -1 for other bodies.
      points: the vertices, with their dofs.
    """

    number: np.ndarray
    points: Points


def dofs_of(topology: Topology, bodies: np.ndarray, width: int) -> np.ndarray:
    """(n, width) the dofs of bodies (n,), padded with -1; body -1 has none."""
    number = np.arange(width)[None]
    count = np.where(bodies < 0, 0, topology.body_dofnum[bodies])
    return np.where(number < count[:, None], topology.body_dofadr[bodies][:, None] + number, -1)


@per_topology
def sliding_bodies(topology: Topology) -> np.ndarray:
    """(nbody,) bool: whether a body has dofs, and all of them are translations."""
    turning = topology.dof_bodyid[dofs_angular(topology.jnt_type)]
    return (topology.body_dofnum > 0) & ~np.isin(np.arange(topology.nbody), turning)


@per_topology
def free_points(topology: Topology) -> FreePoints:
    """The flex vertices that are trees of one body with slide joints; none if splitting M into blocks does not pay.

    Their constraint rows have a sparse form of their own (math/stencil_rows.py). Vertices that are attached to a moving
    body, and vertices of a small flex, are treated like all other bodies.
    """
    number = np.full(topology.nbody, -1)
    bodies = np.unique(topology.flex_vertbodyid.astype(int))
    bodies = bodies[bodies >= 0]
    count = topology.body_dofnum[bodies]
    in_tree = np.bincount(topology.dof_treeid, minlength=max(topology.ntree, 1))
    alone = sliding_bodies(topology)[bodies] & (in_tree[np.maximum(topology.body_treeid[bodies], 0)] == count)
    if not np.any(alone) or not worthwhile(blocks_of(coupled_dofs(topology))):
        return FreePoints(number, Points(topology.nv, Fixed(np.zeros((0, 3), int))))
    # sorted by their number of dofs
    order = np.argsort(-count[alone], kind="stable")
    bodies = bodies[alone][order]
    number[bodies] = np.arange(len(bodies))
    dofs = dofs_of(topology, bodies, int(topology.body_dofnum[bodies[0]]))
    return FreePoints(number, Points(topology.nv, Fixed(dofs)))


@per_topology
def coupled_dofs(topology: Topology) -> np.ndarray:
    """(nv,) the label of the block of M to which each dof belongs.

    Each tree is a block, except that the trees of all nodes of an interpolated flex are one block, because contacts and
    elastic forces couple all its nodes.
    """
    label = np.arange(max(topology.ntree, 1))
    for flex in np.flatnonzero(topology.flex_interp):
        trees = topology.body_treeid[topology.flex_nodebodyid[rows_of(topology, "flex_node", flex)]]
        tied = np.unique(label[trees[trees >= 0]])
        label[np.isin(label, tied)] = np.min(tied, initial=topology.ntree)
    return label[topology.dof_treeid]


@per_topology
def can_couple(topology: Topology) -> bool:
    """Whether tendons or actuators can couple dofs of two trees, as the integrator `discrete` takes into account."""
    on_joints = np.isin(topology.actuator_trntype, (TrnType.JOINT, TrnType.JOINTINPARENT))
    return bool(topology.ntree > 1 and (topology.ntendon or not on_joints.all()))


@per_topology
def dof_limbs(topology: Topology) -> Limbs | None:
    """The sparsity of M by limbs, such as arms and legs: entries of dofs on two different limbs are zero."""
    return limbs_of(dof_mask(topology) | dof_mask(topology).T)


@per_topology
def dof_blocks(topology: Topology) -> Blocks:
    """The blocks of M; blocks of single flex vertices come last."""
    points = free_points(topology).points
    if topology.one_block and can_couple(topology):
        return blocks_of(np.zeros(topology.nv, int))
    if not points.number:
        return worthwhile_blocks(coupled_dofs(topology))
    trees = [index for index in articulated_blocks(topology).index if index.size]
    return Blocks(topology.nv, (*trees, *points.blocks.index))


@per_topology
def articulated_blocks(topology: Topology) -> Blocks:
    """The blocks of M without the blocks of single flex vertices (`free_points`)."""
    dofs = free_points(topology).points.dofs.array
    if not len(dofs):
        return dof_blocks(topology)
    rest = np.setdiff1d(np.arange(topology.nv), dofs)
    apart = blocks_of(coupled_dofs(topology)[rest])
    return Blocks(topology.nv, tuple(rest[index] if len(rest) else index for index in apart.index))
