"""Islands: kinematic trees that active constraints tie together, directly or through others.

Constraints of different islands do not feel each other, so an iteration may stop in one and go on in another. Found by
closing the relation "share a row" between trees. Source: MuJoCo documentation, "Computation", constraint islands.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.enums import DisableBit
from diffsim.constraint import laws
from diffsim.math.vector import matmul
from diffsim.types import Model
from diffsim.types.constraints import Constraints, PerGroup, RowGroup
from diffsim.types.topology import Topology, per_topology

Array = jax.Array


class Islands(NamedTuple):
    """Upper bound of the number of islands, and the island (n,) of each constraint of each group."""

    most: int
    label: PerGroup


@per_topology
def _tree_of_dof(topology: Topology) -> np.ndarray:
    """(nv, ntree) 0/1."""
    return topology.dof_treeid[:, None] == np.arange(topology.ntree)


def islands(model: Model, constraints: Constraints) -> Islands:
    """The islands; all constraints are in island 0 where the model has one tree, or the flag is off."""
    if model.topology.ntree == 1 or model.opt.disabled(DisableBit.ISLAND):
        return Islands(1, tuple(jnp.zeros(rows.count, jnp.int32) for rows in constraints.groups))
    count, dtype = model.topology.ntree, constraints.jacobian.dtype
    trees = [_trees(model, constraints, rows) for rows in constraints.groups]
    used = jnp.concatenate(
        [tree & laws.active(rows)[:, None] for tree, rows in zip(trees, constraints.groups, strict=True)]
    ).astype(dtype)
    reach = matmul(used.T, used) + jnp.eye(count, dtype=dtype)
    for _ in range(int(np.ceil(np.log2(count)))):
        reach = jnp.where(reach > 0, 1, 0).astype(dtype)
        reach = matmul(reach, reach)
    # an island is named after its first tree
    name = jnp.argmax(reach > 0, axis=1).astype(jnp.int32)
    return Islands(count, tuple(name[jnp.argmax(tree, axis=1)] for tree in trees))


def _trees(model: Model, constraints: Constraints, rows: RowGroup) -> Array:
    """(n, ntree) the trees that each constraint of a group moves."""
    place = _tree_of_dof(model.topology)
    if rows.sign:
        return jnp.asarray(place)
    moves = jnp.any(rows.select(constraints.J) != 0, axis=0).astype(constraints.jacobian.dtype)
    return matmul(moves, jnp.asarray(place, moves.dtype)) > 0
