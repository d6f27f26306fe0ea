"""solve: the constrained acceleration and the constraint force, by the solver that the model names.

(M, qfrc_smooth, rows) -> qacc. Newton and CG minimize over accelerations (primal.py), PGS over constraint forces
(projected_gauss_seidel.py); all have one optimum, and the derivative is that of the optimum (adjoint.py).
"""

from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from diffsim.base import errors
from diffsim.base.enums import DisableBit, Solver
from diffsim.dynamics.motion_forces import MotionForces
from diffsim.math.blocks import BlockDiagonal, solve_blocks
from diffsim.math.stencil_rows import SparseRows
from diffsim.solver.adjoint import at_optimum
from diffsim.solver.noslip import without_slip
from diffsim.solver.objective import Objective, gradient, row_forces, row_forces_on_dofs
from diffsim.solver.primal import Minimum, conjugate_gradients, cost_scale, newton, unconstrained
from diffsim.solver.projected_gauss_seidel import solve_dual
from diffsim.types import Model
from diffsim.types.constraints import Constraints
from diffsim.types.data import Smooth, Solution
from diffsim.xla.barriers import SEARCH_RESULT

Array = jax.Array


class Minimizer(Protocol):
    """A solver."""

    def __call__(self, model: Model, objective: Objective, start: Array, unroll: bool) -> Minimum:
        """Minimizes from an acceleration `start` (nv,), by opt.iterations iterations at most.

        Args:
          unroll: whether derivatives go through the iterations, whose number is then fixed.
        """
        ...


class Aids(NamedTuple):
    """In which order (ncon,) noslip sweeps over the contacts, None for that of the slots; and the forces of motion,
    where derivatives of M and qfrc_smooth are better taken of those.
    """

    contact_order: Array | None = None
    motion: MotionForces | None = None


NO_AIDS = Aids()


def smooth_acceleration(qM: BlockDiagonal, qfrc_smooth: Array) -> Smooth:
    """qacc_smooth = M^-1 qfrc_smooth, the acceleration without constraints."""
    return Smooth(qfrc_smooth=qfrc_smooth, qacc_smooth=solve_blocks(qM, qfrc_smooth))


def solve(
    model: Model,
    qM: BlockDiagonal,
    qfrc_smooth: Array,
    qacc_warmstart: Array,
    constraints: Constraints,
    aids: Aids = NO_AIDS,
) -> Solution:
    """The acceleration that minimizes the objective, and the force of the constraints on the dofs.

    Args:
      qM: inertia matrix, by blocks.
      qfrc_smooth: (nv,) all other forces, N or N m.
      qacc_warmstart: (nv,) where to start; has no influence on derivatives, unless they go through the iterations.
      constraints: the rows.
      aids: what else some models can be solved or differentiated with.

    Raises:
      UnsupportedError: a solver that needs all of J, with rows by points.
    """
    opt = model.opt
    if isinstance(constraints.jacobian, SparseRows) and (opt.solver == Solver.PGS or opt.noslip_iterations):
        which = "solver" if opt.solver == Solver.PGS else "noslip_iterations"
        reason = "a model with many vertices of flexes needs the solver Newton or CG, and no noslip iterations"
        raise errors.UnsupportedError([errors.Problem("", 0, f"<option {which}>", reason, unsupported=True)])
    unroll = model.opt.solver_gradient == "unroll" and bool(constraints.groups)
    objective = Objective(qM, qfrc_smooth, constraints)
    # as a while loop the search is a constant for derivatives
    posed = objective if unroll else jax.lax.stop_gradient(objective)
    minimize = SOLVERS[model.opt.solver] if constraints.groups else unconstrained
    start = qacc_warmstart if unroll else jax.lax.stop_gradient(qacc_warmstart)
    minimum = minimize(model, posed, start, unroll)
    qacc, own_forces = checkpoint_name((minimum.qacc, minimum.forces), SEARCH_RESULT)
    qacc = qacc if unroll else at_optimum(qacc, objective, aids.motion)
    forces = row_forces(constraints, qacc)
    if own_forces is not None:
        forces = jax.tree.map(_with_value, forces, own_forces)
    iterations = minimum.iterations
    if model.opt.noslip_iterations and constraints.groups:
        qacc, forces, sweeps = without_slip(model, objective, qacc, forces, aids.contact_order)
        iterations = iterations + sweeps
    stats = jax.lax.stop_gradient((minimum.improvement, jnp.linalg.norm(minimum.gradient)))
    scale = jax.lax.stop_gradient(cost_scale(model))
    return Solution(
        qacc=qacc,
        qfrc_constraint=row_forces_on_dofs(constraints, forces),
        row_force=constraints.concatenate(forces),
        solver_niter=iterations,
        solver_stalled=~minimum.found,
        solver_improvement=stats[0] * scale,
        solver_gradient_norm=stats[1] * scale,
    )


def _with_value(derivative: Array, value: Array) -> Array:
    """`value`, differentiated as `derivative`."""
    return derivative + jax.lax.stop_gradient(value - derivative)


def projected_gauss_seidel(model: Model, objective: Objective, start: Array, unroll: bool) -> Minimum:
    """The solver that minimizes over constraint forces.

    Raises:
      UnsupportedError: derivatives through the iterations.
    """
    if unroll:
        reason = "solver_gradient 'unroll' needs the solver Newton or CG; with PGS use 'implicit'"
        raise errors.UnsupportedError([errors.Problem("", 0, "<option solver>", reason, unsupported=True)])
    opt = model.opt
    qacc = None if opt.disabled(DisableBit.WARMSTART) else start
    end = solve_dual(objective, qacc, opt.tolerance / cost_scale(model), opt.iterations)
    residual = gradient(objective, end.qacc)
    return Minimum(end.qacc, residual, end.iterations, end.improvement, end.done, end.forces)


SOLVERS: dict[Solver, Minimizer] = {
    Solver.NEWTON: newton,
    Solver.CG: conjugate_gradients,
    Solver.PGS: projected_gauss_seidel,
}
