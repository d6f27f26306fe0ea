"""The derivative of the solution by the implicit function theorem.

At the optimum gradient(a; M, qfrc_smooth, rows) = 0, so da = -H^-1 d gradient at fixed a, with H the Hessian there.
One product with the tangents and one solve, whatever the number of iterations; line search, stopping and warm start
are never differentiated. The tangent is linear, so reverse mode is its transpose and memory does not grow with
iterations.

With opt.contact_reach, contacts that are still apart act weakly on derivatives (constraint/contact.py). Values are
those without these further rows, to the bit. Derivatives are those of the optimum with them, taken at the acceleration
without them: the further rows are weak, so that the two optima are close.
"""

import dataclasses
from typing import Any

import jax

from diffsim.base.errors import UnsupportedError
from diffsim.dynamics.bias import MotionForces
from diffsim.solver.hessian import solve_hessian_linear
from diffsim.solver.objective import Objective, constraint_force, gradient, residuals_at
from diffsim.types import Model
from diffsim.types.data import Solution

Array = jax.Array


@jax.custom_jvp
def at_optimum(qacc: Array, objective: Objective, motion: MotionForces | None = None) -> Array:
    """qacc (nv,), as a differentiable function of the objective that it minimizes; its own tangent is ignored.

    With `motion`, the derivative of M qacc - qfrc_smooth is taken of `motion.unbalanced`, which is the same force and
    costs less to differentiate.
    """
    return qacc


@at_optimum.defjvp
def _at_optimum_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    _, objective, motion = primals
    qacc = at_optimum(*primals)

    # d gradient at fixed qacc
    def unbalanced(objective: Objective, motion: MotionForces | None) -> Array:
        """M qacc - qfrc_smooth - J^T f (nv,), zero at the optimum."""
        if motion is None:
            return gradient(objective, qacc)
        return motion.unbalanced(qacc) - constraint_force(objective.constraints, qacc)

    _, change = jax.jvp(unbalanced, (objective, motion), tangents[1:])
    x = residuals_at(objective.constraints, qacc)
    return qacc, -solve_hessian_linear(objective, x, change)


def derivatives_within_reach(model: Model, solution: Solution, objective: Objective) -> Solution:
    """The same solution, with the derivatives of acceleration and constraint force that another objective has.

    Args:
      model: the model.
      solution: without the further rows.
      objective: with the further rows.

    Raises:
      UnsupportedError: derivatives are not those of an optimum (noslip, solver_gradient "unroll").
    """
    if model.opt.noslip_iterations or model.opt.solver_gradient == "unroll":
        reason = "contact_reach needs solver_gradient 'implicit' and no noslip iterations"
        raise UnsupportedError.of("<option contact_reach>", reason)
    qacc = at_optimum(jax.lax.stop_gradient(solution.qacc), objective)
    force = constraint_force(objective.constraints, qacc)
    force = _with_derivative(solution.qfrc_constraint, force)
    return dataclasses.replace(solution, qacc=qacc, qfrc_constraint=force)


@jax.custom_jvp
def _with_derivative(value: Array, other: Array) -> Array:
    """`value`, with the derivative of `other`."""
    return value


@_with_derivative.defjvp
def _with_derivative_jvp(primals: tuple[Array, Array], tangents: tuple[Any, Any]) -> tuple[Array, Array]:
    return _with_derivative(*primals), tangents[1]
