"""The derivative of the solution by the implicit function theorem.

At the optimum gradient(a; M, qfrc_smooth, rows) = 0, so da = -H^-1 d gradient at fixed a, with H the Hessian there.
One product with the tangents and one solve, whatever the number of iterations; line search, stopping and warm start
are never differentiated. The tangent is linear, so reverse mode is its transpose and memory does not grow with
iterations.

With contact_reach the solution is differentiated as if weak rows of contacts acted that are apart
(constraint/contact.py). Values are those of the rows that act, to the bit. The derivative is that of the optimum with
the further rows, taken at the same acceleration: these rows are weak, so that the two optima are close.
"""

import dataclasses
from typing import Any

import jax

from diffsim.base.errors import Problem, UnsupportedError
from diffsim.dynamics.bias import MotionForces
from diffsim.solver.hessian import solve_hessian_linear
from diffsim.solver.objective import Objective, constraint_force, gradient, residuals_at
from diffsim.types import Model
from diffsim.types.data import Solution

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
    _, change = jax.jvp(lambda problem, forces: _unmet(problem, forces, qacc), (objective, motion), tangents[1:])
    x = residuals_at(objective.constraints, qacc)
    return qacc, -solve_hessian_linear(objective, x, change)


def _unmet(objective: Objective, motion: MotionForces | None, qacc: Array) -> Array:
    """The gradient (nv,), zero at the optimum."""
    if motion is None:
        return gradient(objective, qacc)
    return motion.missing(qacc) - constraint_force(objective.constraints, qacc)


def derivatives_within_reach(model: Model, solution: Solution, objective: Objective) -> Solution:
    """The solution with derivatives of acceleration and constraint force by another objective.

    Args:
      model: the model.
      solution: of the rows that act.
      objective: with further rows.

    Raises:
      UnsupportedError: derivatives are not those of an optimum (noslip, solver_gradient "unroll").
    """
    if model.opt.noslip_iterations or model.opt.solver_gradient == "unroll":
        reason = "contact_reach needs solver_gradient 'implicit' and no noslip iterations"
        raise UnsupportedError([Problem("", 0, "<option contact_reach>", reason, unsupported=True)])
    qacc = at_optimum(jax.lax.stop_gradient(solution.qacc), objective)
    force = constraint_force(objective.constraints, qacc)
    return dataclasses.replace(solution, qacc=qacc, qfrc_constraint=_differentiated_as(solution.qfrc_constraint, force))


@jax.custom_jvp
def _differentiated_as(value: Array, other: Array) -> Array:
    """`value`, with the derivative of `other`."""
    return value


@_differentiated_as.defjvp
def _derivative(primals: tuple[Array, Array], tangents: tuple[Any, Any]) -> tuple[Array, Array]:
    return _differentiated_as(*primals), tangents[1]
