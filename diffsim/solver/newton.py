"""Newton's method on accelerations, with exact line search.

Each iteration steps along -H^-1 gradient, with the full Hessian H = M + J^T K J. On a piecewise quadratic cost it
ends after finitely many steps: as soon as no row changes its zone, the step is exact. It stops by MuJoCo's rule,
improvement or gradient below opt.tolerance after scaling by 1 / (meaninertia max(1, nv)).
"""

import jax

from diffsim.solver.hessian import factor_hessian, solve_hessian
from diffsim.solver.iteration import Direction, Iterate, Problem
from diffsim.solver.objective import residuals

Array = jax.Array


def newton_direction(problem: Problem, point: Iterate, previous: Direction) -> Direction:
    """-H^-1 gradient; the first trial of the line search is the full step."""
    x = residuals(problem.constraints, point.qacc, point.rows_product)
    found = factor_hessian(problem.qM, problem.constraints, x)
    search = -solve_hessian(found, problem.qM, problem.constraints, x, point.gradient)
    return Direction(search, point.gradient, search)
