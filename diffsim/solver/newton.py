"""Newton's method on accelerations, with exact line search.

Each iteration steps along -H^-1 gradient, with the full Hessian H = M + J^T K J. On a piecewise quadratic cost it
ends after finitely many steps: as soon as no row changes its zone, the step is exact. It stops by MuJoCo's rule,
improvement or gradient below opt.tolerance after scaling by 1 / (meaninertia max(1, nv)).
"""

from diffsim.solver.hessian import solve_hessian_once
from diffsim.solver.iteration import Direction, DirectionRule, Iterate
from diffsim.solver.objective import Objective, residuals


def newton_rule(objective: Objective, _: None) -> DirectionRule:
    """-H^-1 gradient; the first trial of the line search is the full step."""

    def direction(point: Iterate, previous: Direction) -> Direction:
        x = residuals(objective.constraints, point.qacc, point.rows_product)
        step = -solve_hessian_once(objective, x, point.gradient)
        return Direction(step, point.gradient, step)

    return direction
