"""The convex problem whose minimum is the constrained acceleration: residuals, gradient and Hessian.

minimize 1/2 a^T M a - a^T qfrc_smooth + sum_families cost(x), x = J a - aref, over accelerations a (nv,). (This
differs from Gauss' principle 1/2 (a - a_smooth)^T M (a - a_smooth) by a constant, and needs no M^-1.)
gradient = M a - qfrc_smooth - J^T f(x), Hessian = M + J^T K(x) J; K has one small block per constraint.
Source: MuJoCo documentation, "Computation", primal problem.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from diffsim.constraint import laws
from diffsim.math.block_matrix import BlockColumns, BlockDiagonal, gram
from diffsim.math.blocks import each
from diffsim.types.constraints import Constraints, Rows

Array = jax.Array
# one array (dim, n) per family
PerFamily = tuple[Array, ...]


def project(constraints: Constraints, vector: Array, rows_product: Array) -> PerFamily:
    """J v of each family: from v (nv,) for rows on dofs, from J v (nrow,) for the others."""
    return tuple(
        family.sign * vector[None] if family.sign else rows_of(family, rows_product) for family in constraints.families
    )


def rows_of(family: Rows, rows: Array) -> Array:
    """The part (dim, n, ...) of an array over the rows of J that belongs to a family."""
    block = rows[family.start : family.start + family.height]
    return block.reshape(family.dim, family.count, *rows.shape[1:])


def residuals(constraints: Constraints, qacc: Array, rows_product: Array) -> PerFamily:
    """x = J qacc - aref of each family, from qacc and J qacc."""
    projected = project(constraints, qacc, rows_product)
    return tuple(part - family.aref for family, part in zip(constraints.families, projected, strict=True))


def generalized(constraints: Constraints, x: PerFamily) -> Array:
    """J^T f(x), the force of the constraints on the dofs (nv,)."""
    forces = tuple(laws.force(family, part) for family, part in zip(constraints.families, x, strict=True))
    return on_dofs(constraints, forces)


def on_dofs(constraints: Constraints, forces: PerFamily) -> Array:
    """J^T f of basis forces."""
    jacobian = constraints.jacobian
    dense = [jnp.zeros((0,), jacobian.dtype)]
    total = jnp.zeros((jacobian.blocks.size,), jacobian.dtype)
    for family, force in zip(constraints.families, forces, strict=True):
        if family.sign:
            total = total + family.sign * force[0]
        else:
            dense.append(force.reshape(-1))
    return total + jacobian.mul_vec_t(jnp.concatenate(dense))


def row_forces(constraints: Constraints, qacc: Array) -> PerFamily:
    """(forces, n) of each family at an acceleration; of the edges for pyramids."""
    x = residuals(constraints, qacc, constraints.jacobian.mul_vec(qacc))
    return tuple(laws.dual(family, part) for family, part in zip(constraints.families, x, strict=True))


def flat(constraints: Constraints, forces: PerFamily) -> Array:
    """All row forces in one vector, as `Constraints.split` reads them."""
    return jnp.concatenate([jnp.zeros((0,), constraints.jacobian.dtype), *[part.reshape(-1) for part in forces]])


def dual_on_dofs(constraints: Constraints, forces: PerFamily) -> Array:
    """J^T f of row forces."""
    parts = zip(constraints.families, forces, strict=True)
    return on_dofs(constraints, tuple(laws.basis(family, part) for family, part in parts))


def constraint_force(constraints: Constraints, qacc: Array) -> Array:
    """qfrc_constraint = J^T f at an acceleration."""
    return generalized(constraints, residuals(constraints, qacc, constraints.jacobian.mul_vec(qacc)))


def objective(qM: BlockDiagonal, qfrc_smooth: Array, constraints: Constraints, qacc: Array) -> Array:
    """What is minimized, ()."""
    x = residuals(constraints, qacc, constraints.jacobian.mul_vec(qacc))
    costs = [jnp.sum(laws.cost(rows, part)) for rows, part in zip(constraints.families, x, strict=True)]
    return jnp.vdot(qacc, 0.5 * qM.mul_vec(qacc) - qfrc_smooth) + sum(costs)


def gradient(qM: BlockDiagonal, qfrc_smooth: Array, constraints: Constraints, qacc: Array) -> Array:
    """Derivative of the objective; zero at the solution."""
    return qM.mul_vec(qacc) - qfrc_smooth - constraint_force(constraints, qacc)


class Curvature(NamedTuple):
    """What constraints add to M: a diagonal (nv,), from rows on dofs, and J^T weighted, with K J (nrow, nv)."""

    diagonal: Array
    weighted: BlockColumns


def curvature(constraints: Constraints, x: PerFamily) -> Curvature:
    """K of all rows, applied to J."""
    jacobian = constraints.jacobian
    diagonal = jnp.zeros((jacobian.blocks.size,), jacobian.dtype)
    for family, part in zip(constraints.families, x, strict=True):
        if family.sign:
            diagonal = diagonal + laws.bend(family, part, jnp.ones_like(part))[0]

    def weigh(block: Array) -> Array:
        pairs = zip(constraints.families, x, strict=True)
        rows = [laws.bend(family, part, rows_of(family, block)) for family, part in pairs if not family.sign]
        return jnp.concatenate([block[:0], *[part.reshape(-1, block.shape[1]) for part in rows]])

    return Curvature(diagonal, BlockColumns(jacobian.blocks, tuple(each(weigh, part) for part in jacobian.parts)))


def hessian(qM: BlockDiagonal, constraints: Constraints, x: PerFamily) -> BlockDiagonal:
    """The blocks of M + J^T K(x) J; rows on dofs add to the diagonal only. All of it where there is one block."""
    diagonal, weighted = curvature(constraints, x)
    inertia = qM.plus_diagonal(diagonal)
    if not weighted.height:
        return inertia
    added = gram(constraints.jacobian, weighted)
    return BlockDiagonal(qM.blocks, tuple(a + b for a, b in zip(inertia.parts, added.parts, strict=True)))


def hessian_product(qM: BlockDiagonal, constraints: Constraints, x: PerFamily, vector: Array) -> Array:
    """H v = M v + J^T K J v, without H."""
    v = project(constraints, vector, constraints.jacobian.mul_vec(vector))
    families = zip(constraints.families, x, v, strict=True)
    return qM.mul_vec(vector) + on_dofs(constraints, tuple(laws.bend(f, here, way) for f, here, way in families))


def along_line(constraints: Constraints, x: PerFamily, v: PerFamily) -> tuple[Array, Array]:
    """First and second derivative of the sum of costs at x, in the direction v of the residuals."""
    none = jnp.zeros((0,), constraints.jacobian.dtype)
    slope, bend = [none], [none]
    for family, here, way in zip(constraints.families, x, v, strict=True):
        slope.append((-laws.force(family, here) * way).reshape(-1))
        bend.append((laws.bend(family, here, way) * way).reshape(-1))
    return jnp.sum(jnp.concatenate(slope)), jnp.sum(jnp.concatenate(bend))
