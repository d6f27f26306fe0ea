"""The derivative of the solution by the implicit function theorem.

At the optimum gradient(a; M, qfrc_smooth, rows) = 0, so da = -H^-1 d gradient at fixed a, with H the Hessian there.
One product with the tangents and one solve, whatever the number of iterations; line search, stopping and warm start
are never differentiated. The tangent is linear, so reverse mode is its transpose and memory does not grow with
iterations.
"""

import jax

from diffsim.dynamics.bias import MotionForces
from diffsim.solver.hessian import solve_hessian_linear
from diffsim.solver.objective import Objective, constraint_force, gradient, residuals_at

Array = jax.Array


@jax.custom_jvp
def at_optimum(qacc: Array, objective: Objective, motion: MotionForces | None = None) -> Array:
    """qacc (nv,), as a differentiable function of the objective that it minimizes; its own tangent is ignored.

    Where forces of motion are given, the derivatives of M and qfrc_smooth are taken of those, which are the same.
    """
    return qacc


@at_optimum.defjvp
def _at_optimum_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    _, objective, motion = primals
    qacc = at_optimum(*primals)
    _, change = jax.jvp(lambda given, forces: _unmet(given, forces, qacc), (objective, motion), tangents[1:])
    x = residuals_at(objective.constraints, qacc)
    return qacc, -solve_hessian_linear(objective, x, change)


def _unmet(objective: Objective, motion: MotionForces | None, qacc: Array) -> Array:
    """The gradient (nv,), zero at the optimum."""
    if motion is None:
        return gradient(objective, qacc)
    return motion.missing(qacc) - constraint_force(objective.constraints, qacc)
