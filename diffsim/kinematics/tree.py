"""Sums and products along kinematic trees, without recursion.

Spatial quantities of one tree share one frame (the tree's centre of mass), so every recursion over it is a plain sum
over ancestors or over a subtree: a product with a static 0/1 mask. Masks grow as n^2, so the trees of a forest are
summed by themselves (forest.py), and trees with many nodes use pointer jumping: after round k each node holds the sum
over its 2^k nearest ancestors, and points to the next one. Rotations compose in the same way, as products (frames.py).
(Pointer jumping: Hillis and Steele 1986.)
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.enums import JointType
from diffsim.kinematics.forest import Shape, ancestor_mask, shapes_of, sum_above, sum_below
from diffsim.math.blocks import Blocks, blocks_of
from diffsim.math.linalg import matmul
from diffsim.math.stencil_rows import Fixed, Points
from diffsim.math.vector import scale, total
from diffsim.types.topology import Topology, per_topology
from diffsim.xla.barriers import for_cpu, for_gpu, launched_once
from diffsim.xla.pick import pick_some

Array = jax.Array

# products with the Hessian that blocks are expected to need where the dense factor needs none
PRODUCTS = 8
# above this many nodes a mask costs more than the rounds of pointer jumping
MASK_LIMIT = 160
# columns of a product on a CPU: more than so few are made a multiple of that many
NARROW, COLUMNS = 8, 32
# most shapes of trees that are summed by themselves, and how many times fewer entries their masks have than one of all
MOST_SHAPES, FEWER = 4, 4


def jump_rounds(parent: np.ndarray) -> tuple[np.ndarray, ...]:
    """Pointers of each round of pointer jumping; nodes without an ancestor left point to the sentinel n."""
    count = len(parent)
    pointer = np.append(np.where(parent < 0, count, parent), count)
    rounds = []
    while np.any(pointer < count):
        rounds.append(pointer[:count])
        pointer = pointer[pointer]
    return tuple(rounds)


def worthwhile_forest(parent: np.ndarray) -> tuple[Shape, ...] | None:
    """The trees of nodes with parents (n,) by shape, where sums by shapes take less than by one mask or by rounds."""
    shapes = shapes_of(parent)
    largest = max((shape.nodes.shape[1] for shape in shapes), default=0)
    entries = sum(shape.nodes.size * shape.nodes.shape[1] for shape in shapes)
    few, small = len(shapes) <= MOST_SHAPES, largest <= MASK_LIMIT
    return shapes if few and small and FEWER * entries < len(parent) ** 2 else None


@per_topology
def body_parent(topology: Topology) -> np.ndarray:
    """Parent of each body, -1 for the world."""
    return np.append(-1, topology.body_parentid[1:]).astype(np.int32)


@per_topology
def body_mask(topology: Topology) -> np.ndarray:
    """(nbody, nbody) bool: row i marks body i and its ancestors."""
    return ancestor_mask(body_parent(topology))


@per_topology
def dof_mask(topology: Topology) -> np.ndarray:
    """(nv, nv) bool: row i marks dof i and the dofs before it on its chain."""
    return ancestor_mask(topology.dof_parentid)


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
    kinds = [topology.jnt_type[topology.dof_jntid[a : a + n]] for a, n in zip(first, count, strict=True)]
    slides = np.array([np.all(kind == JointType.SLIDE) for kind in kinds], bool)
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


def worthwhile_blocks(tree: np.ndarray) -> Blocks:
    """The dofs of each of the trees (nv,), or all dofs where it is not worthwhile to take the trees apart."""
    apart = blocks_of(tree)
    return apart if worthwhile(apart) else blocks_of(np.zeros(len(tree), int))


def worthwhile(blocks: Blocks) -> bool:
    """Whether blocks need less than half of the multiplications of one dense Newton step, with nv rows of constraints.

    Dense: J^T K J and a factor. By blocks: the same of each block, then some products with the whole of the Hessian
    (solver/hessian.py).
    """
    nv = blocks.size
    blocked = sum(index.size * index.shape[1] * (index.shape[1] / 3 + nv) for index in blocks.index)
    return 2 * (blocked + PRODUCTS * nv * 3 * nv) < nv * nv * (nv / 3 + nv)


@per_topology
def last_dof(topology: Topology) -> np.ndarray:
    """(nbody,) the last dof that moves each body, -1 for static bodies."""
    last = np.full(topology.nbody, -1, dtype=np.int32)
    for body in range(1, topology.nbody):
        own = topology.body_dofnum[body]
        last[body] = topology.body_dofadr[body] + own - 1 if own else last[topology.body_parentid[body]]
    return last


@per_topology
def body_dof_mask(topology: Topology) -> np.ndarray:
    """(nbody, nv) bool: row i marks the dofs that move body i."""
    last = last_dof(topology)
    padded = np.vstack([dof_mask(topology), np.zeros((1, topology.nv), dtype=bool)])
    return padded[last]


@per_topology
def _last_below(topology: Topology) -> np.ndarray:
    """(nv,) the last dof of the subtree of each dof: dofs are numbered depth first, so that it is a range."""
    return np.array([np.flatnonzero(column)[-1] for column in dof_mask(topology).T], dtype=np.int32)


def chain_mask(topology: Topology, last: Array, dofs: np.ndarray) -> Array:
    """(count, n, k) bool: which of `dofs` (count, k) are on the chain that ends with `last` (n,), none where it is -1.

    For ids that are known at run time only: comparisons, where a table would have to be looked up.
    """
    own, first = last[None, :, None], dofs[:, None].astype(np.int32)
    return (own >= first) & (own <= _last_below(topology)[first])


@per_topology
def _body_forest(topology: Topology) -> tuple[Shape, ...] | None:
    """Of all bodies but the world, counted from 0."""
    return worthwhile_forest(topology.body_parentid[1:] - 1)


@per_topology
def _dof_forest(topology: Topology) -> tuple[Shape, ...] | None:
    return worthwhile_forest(topology.dof_parentid)


@per_topology
def _body_rounds(topology: Topology) -> tuple[np.ndarray, ...]:
    return jump_rounds(body_parent(topology))


@per_topology
def _dof_rounds(topology: Topology) -> tuple[np.ndarray, ...]:
    return jump_rounds(topology.dof_parentid)


def sum_subtree(topology: Topology, values: Array) -> Array:
    """(nbody, k): sum of `values` (nbody, k) over each body and its descendants.

    On a GPU the sums are written out: a product with a mask that is the same for all worlds would be one matrix product
    of all of them, which needs another order of its numbers before and after.
    """
    forest = _body_forest(topology)
    if forest is not None:
        return jnp.concatenate([jnp.sum(values, axis=0, keepdims=True), sum_below(forest, values[1:])])
    if topology.nbody <= MASK_LIMIT:
        mask = body_mask(topology).T
        return _written_out(mask, values) if for_gpu() else _product(mask, values)
    found = values
    for pointer in reversed(_body_rounds(topology)):
        found = found.at[pointer].add(found, mode="drop")
    return found


def _product(mask: np.ndarray, values: Array) -> Array:
    """A mask (m, n), the same for all worlds, times values (n, k).

    From the right: so the worlds stay the first axis, and what is summed is written by components, not by vectors.
    A CPU takes up to twice as long where columns do not fill its vectors, so that columns of zeros are added.
    """
    count = len(mask)
    more = -count % COLUMNS if for_cpu() and count > NARROW else 0
    weights = np.pad(mask.T, ((0, 0), (0, more)))
    return matmul(values.T, jnp.asarray(weights, values.dtype))[:, :count].T


@launched_once
def _written_out(mask: np.ndarray, values: Array) -> Array:
    """A product with a mask (n, n)."""
    return jnp.sum(jnp.asarray(mask, values.dtype)[:, :, None] * values[None], axis=1)


# vectors (nv, k), such as motion axes, and factors (nv,), such as their rates
Scaled = tuple[Array, Array]


def sum_dofs(topology: Topology, last: np.ndarray, *terms: Scaled) -> Array:
    """(n, k): sum of vectors times factors, of all terms, over the chain of dofs that ends with `last` (n,).

    Zero where last is -1. On a GPU the mask takes the factors: a product with a mask that is the same for all worlds
    would be one matrix product of all of them, which needs another order of its numbers before and after.
    """
    forest = _dof_forest(topology)
    if forest is not None:
        return pick_some(sum_above(forest, _scaled(terms)), last)
    if topology.nv <= MASK_LIMIT:
        padded = np.vstack([dof_mask(topology), np.zeros((1, topology.nv), dtype=bool)])
        if for_gpu():
            mask = jnp.asarray(padded[last], terms[0][0].dtype)
            return total([matmul(mask * factor[None], vectors) for vectors, factor in terms])
        return _product(padded[last], _scaled(terms))
    values = _scaled(terms)
    found = jnp.concatenate([values, jnp.zeros_like(values[:1])])
    for pointer in _dof_rounds(topology):
        found = found + found[np.append(pointer, topology.nv)]
    return found[last]


def _scaled(terms: Sequence[Scaled]) -> Array:
    return total([scale(*term) for term in terms])


def sum_chain(topology: Topology, *terms: Scaled) -> Array:
    """(nbody, k): sum of vectors (nv, k) times factors (nv,), of all terms, over the dofs that move each body."""
    return sum_dofs(topology, last_dof(topology), *terms)
