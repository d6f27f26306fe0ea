"""The blocks of M: the dofs of each tree, and the points of flexes, each a tree of one body."""

from typing import NamedTuple

import numpy as np

from diffsim.base.joints import dofs_angular
from diffsim.math.linalg import Blocks, blocks_of, worthwhile, worthwhile_blocks
from diffsim.math.stencil_rows import Fixed, Points
from diffsim.types.topology import Topology, per_topology


class FreePoints(NamedTuple):
    """Bodies that are points of flexes: the number of each body among `points`, -1 of others (nbody,)."""

    number: np.ndarray
    points: Points


@per_topology
def free_points(topology: Topology) -> FreePoints:
    """Bodies of vertices and nodes that slide on their own, each a tree of one body, where M is not one block.

    Constraints of such bodies are rows by points (math/stencil_rows.py). Those that hang on something that moves, and
    the few of a small flex, are articulated bodies like all others.
    """
    number = np.full(topology.nbody, -1)
    bodies = np.unique(np.concatenate([topology.flex_vertbodyid, topology.flex_nodebodyid]).astype(int))
    bodies = bodies[bodies >= 0]
    first, count = topology.body_dofadr[bodies], topology.body_dofnum[bodies]
    in_tree = np.bincount(topology.dof_treeid, minlength=max(topology.ntree, 1))
    turns = dofs_angular(topology.jnt_type)
    slides = np.array([not np.any(turns[a : a + n]) for a, n in zip(first, count, strict=True)], bool)
    alone = (count > 0) & (in_tree[np.maximum(topology.body_treeid[bodies], 0)] == count) & slides
    if not np.any(alone) or not worthwhile(blocks_of(topology.dof_treeid)):
        return FreePoints(number, Points(topology.nv, Fixed(np.zeros((0, 3), int))))
    # those of as many dofs together
    order = np.argsort(-count[alone], kind="stable")
    bodies, first, count = bodies[alone][order], first[alone][order], count[alone][order]
    number[bodies] = np.arange(len(bodies))
    axis = np.arange(count[0])[None]
    dofs = np.where(axis < count[:, None], first[:, None] + axis, -1)
    return FreePoints(number, Points(topology.nv, Fixed(dofs)))


@per_topology
def dof_blocks(topology: Topology) -> Blocks:
    """The blocks of M; those of points come last."""
    points = free_points(topology).points
    if not points.number:
        return worthwhile_blocks(topology.dof_treeid)
    trees = [index for index in articulated_blocks(topology).index if index.size]
    return Blocks(topology.nv, (*trees, *points.blocks.index))


@per_topology
def articulated_blocks(topology: Topology) -> Blocks:
    """The blocks of M but those of points, which constraints reach in other ways."""
    dofs = free_points(topology).points.dofs.array
    if not len(dofs):
        return dof_blocks(topology)
    rest = np.setdiff1d(np.arange(topology.nv), dofs)
    apart = blocks_of(topology.dof_treeid[rest])
    return Blocks(topology.nv, tuple(rest[index] if len(rest) else index for index in apart.index))
