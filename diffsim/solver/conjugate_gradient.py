"""Nonlinear conjugate gradients (Polak-Ribiere), preconditioned by M: no Hessian, one factor for all iterations."""

from diffsim.math import safe
from diffsim.math.blocks import PerSize, block_solve
from diffsim.math.linalg import inner
from diffsim.solver.iteration import Direction, Iterate, Rule
from diffsim.solver.objective import Objective


def conjugate_rule(objective: Objective, factor: PerSize) -> Rule:
    """-M^-1 g + beta * previous, beta = max(0, g . (M^-1 g - M^-1 g_old) / (g_old . M^-1 g_old)); by a factor of M."""

    def direction(point: Iterate, previous: Direction) -> Direction:
        step = -block_solve(objective.qM.blocks, factor, point.gradient)
        change = inner(point.gradient, previous.step - step)
        beta = safe.maximum(safe.divide(change, -inner(previous.gradient, previous.step)), 0)
        return Direction(step + beta * previous.vector, point.gradient, step)

    return Rule(direction)
