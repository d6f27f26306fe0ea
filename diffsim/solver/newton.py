"""Newton's method on accelerations, with exact line search.

Each iteration steps along -H^-1 gradient, with the full Hessian H = M + J^T K J. On a piecewise quadratic cost it
ends after finitely many steps: as soon as no row changes its zone, the step is exact. It stops by MuJoCo's rule,
improvement or gradient below opt.tolerance after scaling by 1 / (meaninertia max(1, nv)).

With thousands of points of flexes H is neither formed nor factored. Directions are then inexact: conjugate gradients end
when they have taken nine tenths of what there is to take (Nocedal and Wright 2006, sec. 7.1). It stops by the most that
the cost can still fall: H is at least M, so that is 1/2 g^T M^-1 g, a bound that holds wherever it is.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from diffsim.math.blocks import PerSize, block_solve
from diffsim.math.linalg import inner
from diffsim.solver.hessian import factor_hessian, solve_hessian_inexactly, solve_hessian_once
from diffsim.solver.iteration import Direction, Iterate, Rule
from diffsim.solver.objective import Objective, residuals

Array = jax.Array

# what is left of the gradient when an inexact direction is good enough
FORCING = 0.1
# rounding of the residual of a row, in units of the machine epsilon
ROUNDING = 8.0


def newton_rule(objective: Objective, _: None) -> Rule:
    """-H^-1 gradient; the first trial of the line search is the full step."""

    def direction(point: Iterate, previous: Direction) -> Direction:
        x = residuals(objective.constraints, point.qacc, point.rows_product)
        step = -solve_hessian_once(objective, x, point.gradient)
        return Direction(step, point.gradient, step)

    return Rule(direction)


class Inexact(NamedTuple):
    """A factor of M, and the tolerance, in the units of the objective."""

    factor: PerSize
    tolerance: Array


def inexact_newton_rule(objective: Objective, aid: Inexact) -> Rule:
    """Roughly -H^-1 gradient; the gradient is measured by M^-1."""

    def direction(point: Iterate, previous: Direction) -> Direction:
        x = residuals(objective.constraints, point.qacc, point.rows_product)
        factored = factor_hessian(objective, x)
        step = -solve_hessian_inexactly(factored, objective, x, point.gradient, FORCING, 0.02 * aid.tolerance)
        return Direction(step, point.gradient, step)

    def measure(point: Iterate) -> Array:
        possible = 0.5 * inner(point.gradient, block_solve(objective.qM.blocks, aid.factor, point.gradient))
        return jnp.where(possible > _rounding(objective, point), possible, 0)

    return Rule(direction, measure)


def _rounding(objective: Objective, point: Iterate) -> Array:
    """What cost the rounding of J a and aref makes, of all rows of J."""
    epsilon, costs = float(jnp.finfo(point.qacc.dtype).eps), []
    for rows in objective.constraints.groups:
        if not rows.sign:
            size = jnp.abs(rows.select(point.rows_product)) + jnp.abs(rows.aref)
            costs.append(jnp.sum(rows.D * size * size))
    return 0.5 * (ROUNDING * epsilon) ** 2 * sum(costs, jnp.zeros((), point.qacc.dtype))
