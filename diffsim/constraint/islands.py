"""Islands: kinematic trees that active constraints tie together, directly or through other trees.

Constraints of different islands do not influence each other, so an iteration may stop in one island and go on in
another, and an island comes to rest and falls asleep as a whole. Islands are the connected components of the graph of
trees in which an active constraint is an edge. Source: MuJoCo documentation, "Computation", constraint islands.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import DisableBit
from diffsim.constraint import laws
from diffsim.math.linalg import BlockColumns
from diffsim.math.stencil_rows import PairRows, Segment, StencilRows
from diffsim.math.vector import matmul
from diffsim.types import Model
from diffsim.types.constraints import Constraints, PerGroup, RowGroup


class Islands(NamedTuple):
    """An upper bound of the number of islands, and the island (n,) of each constraint of each group."""

    most: int
    label: PerGroup


class Partition(NamedTuple):
    """Trees by islands.

    Attributes:
      first: (ntree,) the first tree of each tree's island.
      touched: (ntree,) whether an active constraint touches a tree.
      trees: (n, ntree) the trees that each constraint of a group touches.
    """

    first: Array
    touched: Array
    trees: PerGroup

    @property
    def tree_island(self) -> Array:
        """(ntree,) islands counted in the order of their first trees; -1 for a tree without constraints."""
        heads = self.touched & (self.first == jnp.arange(len(self.first)))
        return jnp.where(self.touched, (jnp.cumsum(heads, dtype=jnp.int32) - 1)[self.first], -1)


def islands(model: Model, constraints: Constraints) -> Islands:
    """The islands; all constraints are in island 0 if the model has one tree, or the flag `island` is off."""
    if model.topology.ntree == 1 or model.opt.disabled(DisableBit.ISLAND):
        return Islands(1, tuple(jnp.zeros(rows.count, jnp.int32) for rows in constraints.groups))
    parts = partition(model, constraints)
    return Islands(model.topology.ntree, tuple(parts.first[jnp.argmax(tree, axis=1)] for tree in parts.trees))


def partition(model: Model, constraints: Constraints, members: PerGroup | None = None) -> Partition:
    """The trees by islands, whatever the flag says.

    Args:
      members: (n, ntree) for each group, further trees that a constraint belongs to, though it cannot move them.
    """
    count, dtype = model.topology.ntree, constraints.jacobian.dtype
    trees = tuple(trees_moved(model, constraints, rows) for rows in constraints.groups)
    if members is not None:
        trees = tuple(moved | tied for moved, tied in zip(trees, members, strict=True))
    used = [tree & laws.active(rows)[:, None] for tree, rows in zip(trees, constraints.groups, strict=True)]
    # a row on a single dof belongs to one tree, and ties nothing together
    pairs = [tree for tree, rows in zip(used, constraints.groups, strict=True) if not rows.on_dofs]
    touched = jnp.any(jnp.concatenate([jnp.zeros((1, count), bool), *used]), axis=0)
    joined = jnp.concatenate([jnp.zeros((1, count), bool), *pairs]).astype(dtype)
    if count == 0:
        return Partition(jnp.zeros((0,), jnp.int32), touched, trees)
    # two trees are adjacent if they share a constraint: (constraints by trees)^T (constraints by trees) > 0. Each
    # squaring of the adjacency, with ones on its diagonal, doubles the length of the paths that it knows: after
    # ceil(log2 ntree) squarings it is the transitive closure
    reach = matmul(joined.T, joined) + jnp.eye(count, dtype=dtype)
    for _ in range(int(np.ceil(np.log2(count)))):
        reach = jnp.where(reach > 0, 1, 0).astype(dtype)
        reach = matmul(reach, reach)
    # an island is named after its first tree
    return Partition(jnp.argmax(reach > 0, axis=1).astype(jnp.int32), touched, trees)


def trees_moved(model: Model, constraints: Constraints, rows: RowGroup) -> Array:
    """(n, ntree) the trees that each constraint of a group moves."""
    topology = model.topology
    place = topology.dof_treeid[:, None] == np.arange(topology.ntree)
    if rows.on_dofs:
        return jnp.asarray(place)
    jacobian, start = constraints.jacobian, rows.start
    segment, start = (Segment(jacobian), start) if isinstance(jacobian, BlockColumns) else jacobian.segment_at(start)
    numbers = np.arange(topology.ntree)[None, None]
    moves = jnp.zeros((rows.count, topology.ntree), bool)
    for part in segment.parts:
        if isinstance(part, PairRows):
            # trees of the dofs of each block, and dofs that a row moves
            tree = part.read(jnp.asarray(np.append(topology.dof_treeid, -1)[part.blocks.table]))
            moved = jnp.any(part.entries != 0, axis=2)
            moves |= jnp.any(moved[..., None] & (tree[..., None] == numbers[None]), axis=(0, 1))
            continue
        if isinstance(part, StencilRows):
            # a point is a body of its own
            tree = jnp.asarray(np.append(topology.dof_treeid[part.points.dofs.array[:, 0]], -1))[part.ids]
            moved = jnp.any(part.coefficient != 0, axis=(1, 2))
            moves |= jnp.any(moved[..., None] & (tree[..., None] == numbers), axis=0)
            continue
        for columns, index in zip(part.parts, part.blocks.index, strict=True):
            own = columns[:, start : start + rows.height].reshape(len(index), rows.dim, rows.count, -1)
            moved = jnp.any(own != 0, axis=1).astype(columns.dtype)
            moves |= jnp.any(matmul(moved, jnp.asarray(place[index], moved.dtype)) > 0, axis=0)
    return moves
