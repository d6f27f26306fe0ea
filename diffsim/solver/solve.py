"""solve: the constrained acceleration and the constraint force, by the solver that the model names; its derivative.

(M, qfrc_smooth, rows) -> qacc. Newton and CG minimize over accelerations (primal.py), PGS over constraint forces
(projected_gauss_seidel.py); all have the same optimum.

The optimum is differentiated by the implicit function theorem. At the optimum gradient(a; M, qfrc_smooth, rows) = 0, so
da = -H^-1 d gradient at fixed a, with H the Hessian: one product with the tangents and one solve, whatever the number
of iterations. Line search, stopping and warm start are never differentiated. The tangent is linear, so reverse mode is
its transpose, and memory does not grow with the number of iterations. If iterations are few, and may end before the
optimum, the iterations are differentiated instead.

With opt.contact_reach, contacts that are still apart act weakly on derivatives (constraint/contact.py). Values do not
change, not even by a bit. Derivatives are taken of the optimum with the further rows, at the acceleration without them:
the further rows are weak, so that the two optima are close.
"""

import dataclasses
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from diffsim.base.enums import DisableBit, Solver
from diffsim.base.errors import UnsupportedError
from diffsim.dynamics.bias import MotionForces
from diffsim.math.linalg import BlockDiagonal
from diffsim.math.stencil_rows import SparseRows
from diffsim.solver.conditioning import solve_inertia
from diffsim.solver.hessian import solve_hessian_linear
from diffsim.solver.noslip import without_slip
from diffsim.solver.objective import Objective, constraint_force, gradient, residuals_at, row_forces, row_forces_on_dofs
from diffsim.solver.primal import Minimum, conjugate_gradients, cost_scale, newton, unconstrained
from diffsim.solver.projected_gauss_seidel import solve_dual
from diffsim.types import Model
from diffsim.types.constraints import Constraints
from diffsim.types.data import Smooth, Solution
from diffsim.xla.reverse_mode import SEARCH_RESULT

Array = jax.Array


class Minimizer(Protocol):
    """A solver."""

    def __call__(self, model: Model, objective: Objective, start: Array, unroll: bool) -> Minimum:
        """Minimizes from an acceleration `start` (nv,), by opt.iterations iterations at most.

        Args:
          unroll: whether it is differentiated; the number of iterations is then fixed.
        """
        ...


def smooth_acceleration(model: Model, qM: BlockDiagonal, qfrc_smooth: Array) -> Smooth:
    """qacc_smooth = M^-1 qfrc_smooth, the acceleration without constraints."""
    return Smooth(qfrc_smooth=qfrc_smooth, qacc_smooth=solve_inertia(model, qM, qfrc_smooth))


def solve(
    model: Model,
    qM: BlockDiagonal,
    qfrc_smooth: Array,
    qacc_warmstart: Array,
    constraints: Constraints,
    contact_order: Array | None = None,
    motion: MotionForces | None = None,
) -> Solution:
    """The acceleration that minimizes the objective, and the force of the constraints on the dofs.

    Args:
      qM: inertia matrix, by blocks.
      qfrc_smooth: (nv,) all other forces, N or N m.
      qacc_warmstart: (nv,) where to start. It has no influence on derivatives, unless these are derivatives of the
        iterations.
      constraints: the rows.
      contact_order: (ncon,) the order in which noslip sweeps over the contacts; None for the order of the slots.
      motion: forces whose derivatives stand for the derivatives of M qacc - qfrc_smooth where they are cheaper
        (dynamics/bias.py); None for M qacc - qfrc_smooth itself.

    Raises:
      UnsupportedError: PGS or noslip iterations, with a model whose J is stored by points of flexes.
    """
    opt = model.opt
    jacobian = constraints.jacobian
    # PGS and noslip need A = J M^-1 J^T, or rows of J one by one: neither exists for thousands of vertices
    of_points = isinstance(jacobian, SparseRows) and jacobian.of_points
    if of_points and (opt.solver == Solver.PGS or opt.noslip_iterations):
        which = "solver" if opt.solver == Solver.PGS else "noslip_iterations"
        reason = "a model with many vertices of flexes needs the solver Newton or CG, and no noslip iterations"
        raise UnsupportedError.of(f"<option {which}>", reason)
    objective = Objective(qM, qfrc_smooth, constraints)
    minimize = SOLVERS[model.opt.solver] if constraints.groups else unconstrained
    # a search of more than one iteration is a while loop, which has no reverse mode: its derivative comes after it
    # (jax.lax.while_loop)
    unrolled = opt.unrolled and bool(constraints.groups)
    if unrolled and opt.solver == Solver.PGS:
        reason = "solver_gradient 'unroll' needs the solver Newton or CG; with PGS use 'implicit'"
        raise UnsupportedError.of("<option solver>", reason)
    if unrolled and opt.iterations == 1:
        # one iteration is no loop: it is differentiated directly
        minimum = minimize(model, objective, qacc_warmstart, unroll=True)
        qacc = minimum.qacc
        dual_forces = None
    else:
        # 1. the value, by a search that is not differentiated; `checkpoint_name` keeps it when reverse mode
        #    computes the step again
        minimum = minimize(model, *jax.lax.stop_gradient((objective, qacc_warmstart)), unroll=False)
        qacc, dual_forces = checkpoint_name((minimum.qacc, minimum.forces), SEARCH_RESULT)
        # 2. the derivative, attached to the value
        if unrolled:
            qacc = through_iterations(qacc, model, objective, qacc_warmstart)
        else:
            qacc = at_optimum(qacc, objective, motion)
    forces = row_forces(constraints, qacc)
    if dual_forces is not None:
        # a solver that minimizes over forces knows them more exactly than f(J qacc - aref) does: take its values, and
        # the derivatives of f
        forces = jax.tree.map(lambda slope, value: slope + jax.lax.stop_gradient(value - slope), forces, dual_forces)
    iterations = minimum.iterations
    if model.opt.noslip_iterations and constraints.groups:
        qacc, forces, sweeps = without_slip(model, objective, qacc, forces, contact_order)
        iterations = iterations + sweeps
    # mjData's solver statistics, in MuJoCo's scaling
    improvement, gradient_norm = jax.lax.stop_gradient((minimum.improvement, jnp.linalg.norm(minimum.gradient)))
    scale = jax.lax.stop_gradient(cost_scale(model))
    return Solution(
        qacc=qacc,
        qfrc_constraint=row_forces_on_dofs(constraints, forces),
        row_force=constraints.concatenate(forces),
        solver_niter=iterations,
        solver_stalled=~minimum.converged,
        solver_improvement=improvement * scale,
        solver_gradient_norm=gradient_norm * scale,
    )


@jax.custom_jvp
def at_optimum(qacc: Array, objective: Objective, motion: MotionForces | None = None) -> Array:
    """qacc (nv,), as a differentiable function of the objective that it minimizes; its own tangent is ignored.

    With `motion`, M qacc - qfrc_smooth is differentiated as `motion.unbalanced`, the same force, whose derivative costs
    less.
    """
    return qacc


@at_optimum.defjvp
def _at_optimum_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    _, objective, motion = primals
    qacc = at_optimum(*primals)

    # 0 = g(a, theta) at the optimum, for all parameters theta: H da + (dg / dtheta) dtheta = 0 with H = dg / da.
    # `change` is (dg / dtheta) dtheta: forward mode at fixed qacc
    def unbalanced(objective: Objective, motion: MotionForces | None) -> Array:
        """M qacc - qfrc_smooth - J^T f (nv,), zero at the optimum."""
        if motion is None:
            return gradient(objective, qacc)
        return motion.unbalanced(qacc) - constraint_force(objective.constraints, qacc)

    _, change = jax.jvp(unbalanced, (objective, motion), tangents[1:])
    # H at the zones (active rows, cones) of the optimum; its derivative would be of second order
    x = residuals_at(objective.constraints, qacc)
    return qacc, -solve_hessian_linear(objective, x, change)


def derivatives_within_reach(model: Model, solution: Solution, objective: Objective) -> Solution:
    """The same solution; its acceleration and constraint force have the derivatives of another objective.

    Args:
      model: the model.
      solution: of the objective without the further rows.
      objective: with the further rows.

    Raises:
      UnsupportedError: the solution is not differentiated as an optimum (noslip, solver_gradient "unroll").
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


@jax.custom_jvp
def through_iterations(qacc: Array, model: Model, objective: Objective, start: Array) -> Array:
    """qacc (nv,), differentiated through the solver's iterations with respect to the objective and their start.

    The value comes from a loop that ends when it has converged, and is passed through; the derivative is computed from
    a fixed number of iterations, opt.iterations. The tangent of `qacc` is ignored.
    """
    return qacc


@through_iterations.defjvp
def _through_iterations_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    _, model, *inputs = primals

    def end(objective: Objective, start: Array) -> Array:
        return SOLVERS[model.opt.solver](model, objective, start, unroll=True).qacc

    return through_iterations(*primals), jax.jvp(end, tuple(inputs), tangents[2:])[1]


def projected_gauss_seidel(model: Model, objective: Objective, start: Array, unroll: bool) -> Minimum:
    """The PGS solver, which minimizes over constraint forces; its iterations cannot be differentiated."""
    opt = model.opt
    qacc = None if opt.disabled(DisableBit.WARMSTART) else start
    end = solve_dual(objective, qacc, opt.tolerance / cost_scale(model), opt.iterations)
    return Minimum(
        qacc=end.qacc,
        gradient=gradient(objective, end.qacc),
        iterations=end.iterations,
        improvement=end.improvement,
        converged=end.done,
        forces=end.forces,
    )


SOLVERS: dict[Solver, Minimizer] = {
    Solver.NEWTON: newton,
    Solver.CG: conjugate_gradients,
    Solver.PGS: projected_gauss_seidel,
}
