"""The convex problem whose minimum is the constrained acceleration: residuals, gradient and Hessian.

minimize 1/2 a^T M a - a^T qfrc_smooth + sum_families cost(x), x = J a - aref over accelerations a (nv,). (This differs
from Gauss' principle 1/2 (a - a_smooth)^T M (a - a_smooth) by a constant, and needs no M^-1.)
gradient = M a - qfrc_smooth - J^T f(x), Hessian = M + J^T K(x) J; K has one small block per constraint.
Source: MuJoCo documentation, "Computation", primal problem.
"""

import jax
import jax.numpy as jnp

from diffsim.constraint import laws
from diffsim.constraint.laws import Components, Curvature
from diffsim.math.linalg import matmul
from diffsim.types.constraints import Constraints, Rows

Array = jax.Array


def project(constraints: Constraints, vector: Array, rows_product: Array) -> tuple[Components, ...]:
    """J v of each family: from v (nv,) for rows on dofs, from J v (nrow,) for the others."""
    return tuple(_part(family, vector, rows_product) for family in constraints.families)


def _part(family: Rows, vector: Array, rows_product: Array) -> Components:
    if family.sign:
        return (family.sign * vector,)
    begin, count = family.start, family.count
    return tuple(rows_product[begin + i * count : begin + (i + 1) * count] for i in range(family.dim))


def residuals(constraints: Constraints, qacc: Array, rows_product: Array) -> tuple[Components, ...]:
    """x = J qacc - aref of each family, from qacc and J qacc."""
    projected = project(constraints, qacc, rows_product)
    return tuple(
        tuple(part - family.aref[i] for i, part in enumerate(parts))
        for family, parts in zip(constraints.families, projected, strict=True)
    )


def forces(constraints: Constraints, x: tuple[Components, ...]) -> tuple[Components, ...]:
    """Forces of all families."""
    return tuple(laws.force(family, parts) for family, parts in zip(constraints.families, x, strict=True))


def generalized(constraints: Constraints, force: tuple[Components, ...]) -> Array:
    """J^T f (nv,)."""
    dense = [jnp.zeros((0,), constraints.J.dtype)]
    total = jnp.zeros((constraints.J.shape[1],), constraints.J.dtype)
    for family, parts in zip(constraints.families, force, strict=True):
        if family.sign:
            total = total + family.sign * parts[0]
        else:
            dense.extend(parts)
    return total + matmul(jnp.concatenate(dense), constraints.J)


def constraint_force(constraints: Constraints, qacc: Array) -> Array:
    """qfrc_constraint = J^T f at an acceleration."""
    return generalized(
        constraints, forces(constraints, residuals(constraints, qacc, matmul(constraints.J, qacc)))
    )


def gradient(qM: Array, qfrc_smooth: Array, constraints: Constraints, qacc: Array) -> Array:
    """Derivative of the objective; zero at the solution."""
    return matmul(qM, qacc) - qfrc_smooth - constraint_force(constraints, qacc)


def constraint_cost(constraints: Constraints, x: tuple[Components, ...]) -> Array:
    """Sum of the costs of all constraints."""
    costs = [jnp.sum(laws.cost(family, parts)) for family, parts in zip(constraints.families, x, strict=True)]
    return sum(costs, jnp.zeros((), constraints.J.dtype))


def curvatures(constraints: Constraints, x: tuple[Components, ...]) -> tuple[Curvature, ...]:
    """K of all families."""
    return tuple(laws.curvature(family, parts) for family, parts in zip(constraints.families, x, strict=True))


def hessian(qM: Array, constraints: Constraints, x: tuple[Components, ...]) -> Array:
    """M + J^T K J (nv, nv); rows on dofs add to the diagonal only."""
    nv = qM.shape[0]
    diagonal = jnp.zeros((nv,), qM.dtype)
    weighted = [constraints.J[:0]]
    for family, k in zip(constraints.families, curvatures(constraints, x), strict=True):
        if family.sign:
            diagonal = diagonal + k[0, 0]
        else:
            weighted.extend(_weigh(family, k, constraints.J))
    total = qM + jnp.eye(nv, dtype=qM.dtype) * diagonal[None]
    if not constraints.J.shape[0]:
        return total
    return total + matmul(constraints.J.T, jnp.concatenate(weighted))


def _weigh(family: Rows, k: Curvature, jacobian: Array) -> list[Array]:
    """K J of one family, component by component."""
    begin, count = family.start, family.count
    blocks = [jacobian[begin + i * count : begin + (i + 1) * count] for i in range(family.dim)]
    result = []
    for i in range(family.dim):
        terms = [
            k[max(i, j), min(i, j)][:, None] * block
            for j, block in enumerate(blocks)
            if (max(i, j), min(i, j)) in k
        ]
        result.append(sum(terms[1:], terms[0]))
    return result


def along_line(
    constraints: Constraints, x: tuple[Components, ...], v: tuple[Components, ...]
) -> tuple[Array, Array]:
    """First and second derivative of the sum of costs at x, in the direction v of the residuals."""
    dtype = constraints.J.dtype
    slope, bend = [jnp.zeros((0,), dtype)], [jnp.zeros((0,), dtype)]
    for family, here, way in zip(constraints.families, x, v, strict=True):
        force, k = laws.force(family, here), laws.curvature(family, here)
        first = [-f * w for f, w in zip(force, way, strict=True)]
        second = [(1 if i == j else 2) * value * way[i] * way[j] for (i, j), value in k.items()]
        slope.append(sum(first[1:], first[0]))
        bend.append(sum(second[1:], second[0]))
    return jnp.sum(jnp.concatenate(slope)), jnp.sum(jnp.concatenate(bend))
