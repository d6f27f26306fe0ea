"""The solution as it is, differentiated as if constraints acted that do not: contacts felt from a distance.

Values are those of the rows that act, to the bit. The derivative is that of the optimum with the further rows
(adjoint.py), taken at the same acceleration: these rows are weak, so that the two optima are close.
"""

import dataclasses
from typing import Any

import jax

from diffsim.base.errors import Problem, UnsupportedError
from diffsim.solver.adjoint import at_optimum
from diffsim.solver.objective import Objective, constraint_force
from diffsim.types import Model
from diffsim.types.data import Solution

Array = jax.Array


def felt(model: Model, solution: Solution, objective: Objective) -> Solution:
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
