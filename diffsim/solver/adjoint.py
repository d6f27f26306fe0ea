"""The derivative of the solution by the implicit function theorem.

At the optimum gradient(a; M, qfrc_smooth, rows) = 0, so da = -H^-1 d gradient at fixed a, with H the Hessian there.
One product with the tangents and one solve, whatever the number of iterations; line search, stopping and warm start
are never differentiated. The tangent is linear, so reverse mode is its transpose and memory does not grow with
iterations.
"""

import jax

from diffsim.math.block_matrix import BlockDiagonal
from diffsim.solver.hessian import factor_hessian, solve_hessian
from diffsim.solver.objective import gradient, residuals
from diffsim.types.constraints import Constraints

Array = jax.Array


@jax.custom_jvp
def at_optimum(qacc: Array, qM: BlockDiagonal, qfrc_smooth: Array, constraints: Constraints) -> Array:
    """qacc, as a differentiable function of the problem that it solves; its own tangent is ignored."""
    return qacc


@at_optimum.defjvp
def _at_optimum_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    _, qM, qfrc_smooth, constraints = primals
    qacc = at_optimum(*primals)

    def at_fixed_qacc(qM: BlockDiagonal, qfrc_smooth: Array, constraints: Constraints) -> Array:
        return gradient(qM, qfrc_smooth, constraints, qacc)

    _, change = jax.jvp(at_fixed_qacc, (qM, qfrc_smooth, constraints), tangents[1:])
    x = residuals(constraints, qacc, constraints.jacobian.mul_vec(qacc))
    found = factor_hessian(qM, constraints, x)
    return qacc, -solve_hessian(found, qM, constraints, x, change)
