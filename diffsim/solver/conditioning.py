"""Solves in float32 with matrices at the limit of float32, for models whose inertia matrix is ill-conditioned.

If light links carry heavy ones, the small masses show only in the smallest pivots of the inertia matrix M, which are
differences of large numbers. If rounding makes such a pivot negative, M has no Cholesky factor. With a diagonal that is
larger by a few epsilons it has one, and iterative refinement then removes most of the error of this change (Golub and
Van Loan 2013, sec. 3.5.3). Models that are not ill-conditioned have none of this in their programs.
"""

import jax
import jax.numpy as jnp

from diffsim.kinematics.tree import dof_limbs
from diffsim.math.block_solves import solve_blocks
from diffsim.math.linalg import BlockDiagonal, PerSize, block_factor, block_solve
from diffsim.solver.hessian import Factored, solve_hessian
from diffsim.solver.iteration import Direction, Iterate, Rule
from diffsim.solver.objective import Objective, hessian, residuals
from diffsim.types import Model

Array = jax.Array

# by how many epsilons per row a diagonal grows: the rounding of a Cholesky factor is a few for each row
GROWTH = 2.0
# steps of refinement after a solve with M
REFINEMENTS = 2
# M_ii (M^-1)_ii from which accelerations in float32 can be off by 1%
BEYOND = 3e4


def watched(model: Model) -> bool:
    """Whether programs of this model watch the condition of M: it is ill-conditioned, and in float32."""
    return model.topology.ill_conditioned and model.qpos0.dtype == jnp.float32


def regular_factor(matrix: BlockDiagonal) -> PerSize:
    """The Cholesky factors of a matrix with a diagonal that is a few epsilons larger."""
    size = max(part.shape[-1] for part in matrix.parts)
    growth = GROWTH * size * float(jnp.finfo(matrix.parts[0].dtype).eps)
    return block_factor(matrix.plus_diagonal(growth * matrix.diagonal).parts)


def solve_inertia(model: Model, matrix: BlockDiagonal, b: Array) -> Array:
    """M^-1 b (nv,): by the factors of M, and if the model is watched by `regular_factor` and refinement."""
    if not watched(model):
        return solve_blocks(matrix, b, dof_limbs(model.topology))
    factor = regular_factor(matrix)
    x = block_solve(matrix.blocks, factor, b)
    for _ in range(REFINEMENTS):
        x = x + block_solve(matrix.blocks, factor, b - matrix.mul_vec(x))
    return x


def regular_newton_rule(objective: Objective, _: None) -> Rule:
    """Roughly -H^-1 gradient, by factors of H with a larger diagonal: always a finite direction of descent."""

    def direction(point: Iterate, previous: Direction) -> Direction:
        x = residuals(objective.constraints, point.qacc, point.rows_product)
        matrix = hessian(objective, x)
        step = -solve_hessian(Factored(matrix, regular_factor(matrix)), objective, x, point.gradient)
        # where H has no factor even so: steepest descent, scaled by the diagonal of H
        step = jnp.where(jnp.all(jnp.isfinite(step)), step, -point.gradient / matrix.diagonal)
        return Direction(step, point.gradient, step)

    return Rule(direction)


def is_beyond(matrix: BlockDiagonal) -> Array:
    """Whether the largest M_ii (M^-1)_ii of an inertia matrix is beyond what float32 can solve to 1%, ()."""
    if not matrix.blocks.size:
        return jnp.zeros((), bool)
    beyond = []
    for factor, part in zip(block_factor(matrix.parts), matrix.parts, strict=True):
        unit = jnp.broadcast_to(jnp.eye(part.shape[-1], dtype=part.dtype), part.shape)
        inverse = jax.scipy.linalg.solve_triangular(factor, unit, lower=True)
        measure = jnp.sum(inverse**2, axis=-2) * jnp.diagonal(part, axis1=-2, axis2=-1)
        # `~(a < b)` is also true for NaN, where there is no factor
        beyond.append(jnp.any(~(measure < BEYOND)))
    return jnp.any(jnp.stack(beyond))
