"""The convex problem whose minimum is the constrained acceleration: residuals, gradient and Hessian.

minimize 1/2 a^T M a - a^T qfrc_smooth + sum_groups cost(x), x = J a - aref, over accelerations a (nv,). (This
differs by a constant from Gauss' principle, 1/2 (a - a_smooth)^T M (a - a_smooth), and needs no M^-1.)
gradient = M a - qfrc_smooth - J^T f(x), Hessian = M + J^T K(x) J; K has one small block per constraint.

The basis rows of a contact are its rows of J: normal, tangents and so on. Edges of a pyramid are sums of two of them.
Groups on dofs have J = +-1, which is not stored. The others share J, which is dense, by blocks of M, or a list of
segments (math/stencil_rows.py) whose rows hold only the columns of what they touch: points of a flex, or two trees.
Source: MuJoCo documentation, "Computation", primal problem.
"""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.constraint import laws
from diffsim.math.linalg import BlockColumns, BlockDiagonal, gram, per_block
from diffsim.math.stencil_rows import PairRows, Segment, SparseRows
from diffsim.math.vector import inner
from diffsim.types.constraints import Constraints, PerGroup, RowGroup

Array = jax.Array


class Objective(NamedTuple):
    """The function that is minimized: M by blocks, all forces except the constraint forces (nv,), and the rows."""

    qM: BlockDiagonal
    qfrc_smooth: Array
    constraints: Constraints


def project(constraints: Constraints, vector: Array, rows_product: Array) -> PerGroup:
    """J v of each group (dim, n): from v (nv,) for rows on dofs, else from the product J v (nrow,)."""
    return tuple(rows.sign * vector[None] if rows.on_dofs else rows.select(rows_product) for rows in constraints.groups)


def residuals(constraints: Constraints, qacc: Array, rows_product: Array) -> PerGroup:
    """x = J qacc - aref of each group (dim, n), from qacc (nv,) and J qacc (nrow,)."""
    projected = project(constraints, qacc, rows_product)
    return tuple(part - rows.aref for rows, part in zip(constraints.groups, projected, strict=True))


def residuals_at(constraints: Constraints, qacc: Array) -> PerGroup:
    """x = J qacc - aref of each group (dim, n) at an acceleration (nv,)."""
    return residuals(constraints, qacc, constraints.jacobian.mul_vec(qacc))


def generalized_force(constraints: Constraints, x: PerGroup) -> Array:
    """J^T f(x), the force of the constraints on the dofs (nv,), from x (dim, n) of each group."""
    parts = zip(constraints.groups, x, strict=True)
    return basis_forces_on_dofs(constraints, tuple(laws.force(rows, part) for rows, part in parts))


def basis_forces_on_dofs(constraints: Constraints, forces: PerGroup) -> Array:
    """J^T f (nv,), from the force of each basis row, (dim, n) of each group."""
    jacobian = constraints.jacobian
    in_jacobian = [jnp.zeros((0,), jacobian.dtype)]
    total = jnp.zeros((jacobian.blocks.size,), jacobian.dtype)
    for rows, force in zip(constraints.groups, forces, strict=True):
        if rows.on_dofs:
            total = total + rows.sign * force[0]
        else:
            in_jacobian.append(force.reshape(-1))
    return total + jacobian.mul_vec_t(jnp.concatenate(in_jacobian))


def row_forces(constraints: Constraints, qacc: Array) -> PerGroup:
    """Forces (force_count, n) of each group at an acceleration (nv,), for each basis row or edge of a pyramid."""
    x = residuals_at(constraints, qacc)
    return tuple(laws.efc_force(rows, part) for rows, part in zip(constraints.groups, x, strict=True))


def row_forces_on_dofs(constraints: Constraints, forces: PerGroup) -> Array:
    """J^T f (nv,), from forces as `row_forces` gives them."""
    parts = zip(constraints.groups, forces, strict=True)
    return basis_forces_on_dofs(constraints, tuple(laws.basis(rows, part) for rows, part in parts))


def constraint_force(constraints: Constraints, qacc: Array) -> Array:
    """qfrc_constraint = J^T f(x) (nv,) at an acceleration (nv,)."""
    return generalized_force(constraints, residuals_at(constraints, qacc))


def cost(objective: Objective, qacc: Array, inertia_product: Array, rows_product: Array) -> Array:
    """The cost () that is minimized, from qacc (nv,), M qacc (nv,) and J qacc (nrow,)."""
    _, qfrc_smooth, constraints = objective
    x = residuals(constraints, qacc, rows_product)
    costs = [jnp.sum(laws.cost(rows, part)) for rows, part in zip(constraints.groups, x, strict=True)]
    return inner(qacc, 0.5 * inertia_product - qfrc_smooth) + sum(costs)


def gradient(objective: Objective, qacc: Array) -> Array:
    """M a - qfrc_smooth - J^T f (nv,), zero at the solution."""
    qM, qfrc_smooth, constraints = objective
    return qM.mul_vec(qacc) - qfrc_smooth - constraint_force(constraints, qacc)


def may_join(constraints: Constraints) -> Array:
    """Whether a row of J that acts may couple dofs of two blocks of M, ()."""
    jacobian = constraints.jacobian
    flags = [jnp.zeros((), bool)]
    for rows in constraints.groups:
        if not rows.on_dofs:
            acts = jnp.any(rows.D != 0, axis=0)
            pairs = None
            if isinstance(jacobian, SparseRows):
                pairs = jacobian.segment_at(rows.start)[0].stencil
            # if it is not known which blocks a constraint couples, any constraint that acts counts
            flags.append(jnp.any(acts & pairs.joins if isinstance(pairs, PairRows) else acts))
    return jnp.any(jnp.stack(flags))


def acting_contacts(constraints: Constraints, jacobian: BlockColumns, most: int) -> tuple[Constraints, Array]:
    """The constraints without contacts that do not act, which add nothing to the objective.

    Each group of contacts keeps at most `most`. Places left over hold a copy of a contact with D = 0.

    Returns:
      The constraints, and whether all contacts that act have found a place, ().
    """
    groups = list[RowGroup]()
    numbers = list[Array | np.ndarray]()
    start = 0
    fits = jnp.asarray(True)
    for rows in constraints.groups:
        if rows.on_dofs:
            groups.append(rows)
            continue
        # rows of J of the group, one line per basis row
        places = rows.start + np.arange(rows.height).reshape(rows.dim, rows.count)
        if rows.slot is not None and rows.count > most:
            # the first `most` contacts that act: gather their columns in each field of the group, and their rows of J
            acts = jnp.any(rows.D != 0, axis=0)
            count = rows.count
            place = jnp.nonzero(acts, size=most, fill_value=count)[0]
            fits = fits & (jnp.sum(acts) <= most)
            filled = place < count
            place = jnp.minimum(place, count - 1)
            leaves, tree = jax.tree.flatten(rows)
            rows = tree.unflatten([x[..., place] if x.shape[-1] == count else x for x in leaves])
            rows = dataclasses.replace(rows, D=jnp.where(filled, rows.D, 0))
            places = jnp.asarray(places)[:, place]
        groups.append(dataclasses.replace(rows, start=start))
        numbers.append(places.reshape(-1))
        start += rows.height
    number = jnp.concatenate([np.zeros(0, np.int32), *numbers])
    warm = constraints.warm[number] if constraints.warm.size else constraints.warm
    # not constraints.replace, which refuses arrays of another length
    taken = jacobian.take(number)
    return dataclasses.replace(constraints, jacobian=taken, groups=tuple(groups), warm=warm), fits


def dof_curvature(constraints: Constraints, x: PerGroup) -> Array:
    """(nv,) the curvature of rows on dofs, which is added to the diagonal of M."""
    jacobian = constraints.jacobian
    diagonal = jnp.zeros((jacobian.blocks.size,), jacobian.dtype)
    for rows, part in zip(constraints.groups, x, strict=True):
        if rows.on_dofs:
            diagonal = diagonal + laws.hessian_product(rows, part, jnp.ones_like(part))[0]
    return diagonal


def row_weights(constraints: Constraints, x: PerGroup) -> tuple[Array, ...]:
    """K (dim, n, dim) of each group with rows in J, in the order of J: a symmetric matrix for each constraint."""
    weights = []
    for rows, part in zip(constraints.groups, x, strict=True):
        if not rows.on_dofs:
            identity = jnp.eye(rows.dim, dtype=part.dtype)[:, None]
            unit = jnp.broadcast_to(identity, (rows.dim, rows.count, rows.dim))
            weights.append(laws.hessian_product(rows, part, unit))
    return tuple(weights)


class HessianTerms(NamedTuple):
    """The terms of the Hessian, which is their sum: a diagonal (nv,) from rows on dofs, and matrices, M first."""

    diagonal: Array
    matrices: tuple[BlockDiagonal, ...]


def hessian_terms(objective: Objective, x: PerGroup) -> HessianTerms:
    """M, what rows on dofs add to its diagonal, and the blocks of J^T K(x) J of all other rows."""
    constraints = objective.constraints
    jacobian = constraints.jacobian
    pairs = [(rows, part) for rows, part in zip(constraints.groups, x, strict=True) if not rows.on_dofs]
    segments = jacobian.segments if isinstance(jacobian, SparseRows) else (Segment(jacobian),)
    # each segment of J (dense, or by stencils of points and pairs of trees) has a way of its own to form J^T K J
    matrices = [objective.qM]
    start = 0
    for segment in segments:
        stop = start + segment.height
        matrices += grams(segment, [(rows, part) for rows, part in pairs if start <= rows.start < stop])
        start = stop
    return HessianTerms(dof_curvature(constraints, x), tuple(matrices))


def grams(segment: Segment, pairs: list[tuple[RowGroup, Array]]) -> list[BlockDiagonal]:
    """The blocks of J^T K(x) J of the groups of one segment; `pairs` are the groups with their x (dim, n)."""

    def weigh(block: Array) -> Array:
        """K times the columns of J that belong to a block, (height, size)."""
        ends = np.cumsum([0, *(rows.height for rows, _ in pairs)])
        products = [
            laws.hessian_product(rows, part, block[start:stop].reshape(rows.dim, rows.count, -1))
            for (rows, part), start, stop in zip(pairs, ends[:-1], ends[1:], strict=True)
        ]
        return jnp.concatenate([block[:0], *[product.reshape(-1, block.shape[1]) for product in products]])

    products = []
    columns = segment.columns
    stencil = segment.stencil
    if columns is not None and columns.height:
        products.append(
            gram(columns, BlockColumns(columns.blocks, tuple(per_block(weigh, part) for part in columns.parts)))
        )
    if stencil is not None:
        ((rows, part),) = pairs
        products.append(stencil.gram(lambda y: laws.hessian_product(rows, part, y)))
    return products


def hessian(objective: Objective, x: PerGroup) -> BlockDiagonal:
    """The blocks of M + J^T K(x) J; the whole matrix where there is one block."""
    diagonal, (inertia, *others) = hessian_terms(objective, x)
    return functools.reduce(BlockDiagonal.plus, others, inertia.plus_diagonal(diagonal))


def hessian_product(objective: Objective, x: PerGroup, vector: Array) -> Array:
    """H v = M v + J^T (K(x) (J v)) (nv,), from right to left, so that H is never formed."""
    qM, _, constraints = objective
    projected = project(constraints, vector, constraints.jacobian.mul_vec(vector))
    groups = zip(constraints.groups, x, projected, strict=True)
    forces = tuple(laws.hessian_product(rows, part, y) for rows, part, y in groups)
    return qM.mul_vec(vector) + basis_forces_on_dofs(constraints, forces)
