"""solve: the constrained acceleration and the constraint force, by the solver that the model names.

(M, qfrc_smooth, rows) -> qacc. Newton and CG minimize over accelerations (primal.py), PGS over constraint forces
(projected_gauss_seidel.py); all have one optimum. The derivative is that of the optimum (adjoint.py), or where the
iterations are few, and may end before it, that of the iterations.
"""

from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from diffsim.base import errors
from diffsim.base.enums import DisableBit, Solver
from diffsim.dynamics.bias import MotionForces
from diffsim.kinematics.tree import dof_limbs
from diffsim.math.linalg import BlockDiagonal, solve_blocks
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
          unroll: whether it is differentiated; the number of iterations is then fixed.
        """
        ...


class Aids(NamedTuple):
    """Inputs of the solver beside M, forces and rows; each may be None.

    Attributes:
      contact_order: (ncon,) in which order noslip sweeps over the contacts; None for that of the slots.
      motion: the forces whose derivatives stand for those of M qacc - qfrc_smooth, where these are cheaper
        (dynamics/bias.py).
    """

    contact_order: Array | None = None
    motion: MotionForces | None = None


NO_AIDS = Aids()


def smooth_acceleration(model: Model, qM: BlockDiagonal, qfrc_smooth: Array) -> Smooth:
    """qacc_smooth = M^-1 qfrc_smooth, the acceleration without constraints."""
    return Smooth(qfrc_smooth=qfrc_smooth, qacc_smooth=solve_blocks(qM, qfrc_smooth, dof_limbs(model.topology)))


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
      qacc_warmstart: (nv,) where to start; has no influence on derivatives, unless those are of the iterations.
      constraints: the rows.
      aids: what only some models need.

    Raises:
      UnsupportedError: PGS or noslip iterations, with a model whose J is stored by points of flexes.
    """
    opt = model.opt
    if isinstance(constraints.jacobian, SparseRows) and (opt.solver == Solver.PGS or opt.noslip_iterations):
        which = "solver" if opt.solver == Solver.PGS else "noslip_iterations"
        reason = "a model with many vertices of flexes needs the solver Newton or CG, and no noslip iterations"
        raise errors.UnsupportedError.of(f"<option {which}>", reason)
    objective = Objective(qM, qfrc_smooth, constraints)
    minimize = SOLVERS[model.opt.solver] if constraints.groups else unconstrained
    # a search of more than one iteration is a while loop, which has no reverse mode: its derivative comes after it
    unrolled = opt.unrolled and bool(constraints.groups)
    if unrolled and opt.solver == Solver.PGS:
        reason = "solver_gradient 'unroll' needs the solver Newton or CG; with PGS use 'implicit'"
        raise errors.UnsupportedError.of("<option solver>", reason)
    if unrolled and opt.iterations == 1:
        minimum = minimize(model, objective, qacc_warmstart, unroll=True)
        qacc, dual_forces = minimum.qacc, None
    else:
        minimum = minimize(model, *jax.lax.stop_gradient((objective, qacc_warmstart)), unroll=False)
        qacc, dual_forces = checkpoint_name((minimum.qacc, minimum.forces), SEARCH_RESULT)
        if unrolled:
            qacc = through_iterations(qacc, model, objective, qacc_warmstart)
        else:
            qacc = at_optimum(qacc, objective, aids.motion)
    forces = row_forces(constraints, qacc)
    if dual_forces is not None:
        # a solver that minimizes over forces has them already, more exactly than by qacc
        forces = jax.tree.map(lambda slope, value: slope + jax.lax.stop_gradient(value - slope), forces, dual_forces)
    iterations = minimum.iterations
    if model.opt.noslip_iterations and constraints.groups:
        qacc, forces, sweeps = without_slip(model, objective, qacc, forces, aids.contact_order)
        iterations = iterations + sweeps
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
def through_iterations(qacc: Array, model: Model, objective: Objective, start: Array) -> Array:
    """qacc (nv,), differentiated through the solver's iterations, by the objective and by where they start.

    Values come from a loop that ends where it has converged, and are passed through; derivatives are those of a fixed
    number of iterations, opt.iterations. The tangent of `qacc` is ignored.
    """
    return qacc


@through_iterations.defjvp
def _through_iterations_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    _, model, *inputs = primals

    def end(objective: Objective, start: Array) -> Array:
        return SOLVERS[model.opt.solver](model, objective, start, unroll=True).qacc

    return through_iterations(*primals), jax.jvp(end, tuple(inputs), tangents[2:])[1]


def projected_gauss_seidel(model: Model, objective: Objective, start: Array, unroll: bool) -> Minimum:
    """The solver that minimizes over constraint forces; it has no derivative through its iterations."""
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
