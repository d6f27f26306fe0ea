"""Nonlinear conjugate gradients (Polak-Ribiere), preconditioned by M: no Hessian, one factor for all iterations."""

import jax
import jax.numpy as jnp

from diffsim.math import safe
from diffsim.math.blocks import block_solve
from diffsim.solver.iteration import Direction, Iterate, Problem

Array = jax.Array


def conjugate_direction(problem: Problem, point: Iterate, previous: Direction) -> Direction:
    """-M^-1 g + beta * previous, beta = max(0, g . (M^-1 g - M^-1 g_old) / (g_old . M^-1 g_old))."""
    step = -block_solve(problem.qM.blocks, problem.factor, point.gradient)
    change = jnp.vdot(point.gradient, previous.step - step)
    beta = jnp.maximum(safe.divide(change, -jnp.vdot(previous.gradient, previous.step)), 0)
    return Direction(step + beta * previous.search, point.gradient, step)
