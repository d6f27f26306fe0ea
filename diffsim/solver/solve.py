"""solve: the constrained acceleration and the constraint force, by the solver that the model names.

(M, qfrc_smooth, rows) -> qacc. Newton and CG minimize over accelerations (objective.py), PGS over constraint forces
(projected_gauss_seidel.py); both have one optimum, and the derivative is that of the optimum (adjoint.py).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from diffsim import errors
from diffsim.enums import DisableBit, Solver
from diffsim.math.block_matrix import BlockDiagonal, solve_blocks
from diffsim.math.blocks import block_factor, block_solve
from diffsim.math.xla import SEARCH_RESULT
from diffsim.solver.adjoint import at_optimum
from diffsim.solver.conjugate_gradient import conjugate_direction
from diffsim.solver.iteration import Problem, Rule, iterate
from diffsim.solver.newton import newton_direction
from diffsim.solver.noslip import without_slip
from diffsim.solver.objective import PerFamily, dual_on_dofs, flat, gradient, objective, row_forces
from diffsim.solver.projected_gauss_seidel import solve_dual
from diffsim.types import Model
from diffsim.types.constraints import Constraints
from diffsim.types.data import Smooth, Solution

Array = jax.Array


class Found(NamedTuple):
    """How a search ended: qacc (nv,), the gradient there (nv,), and the row forces where the solver has its own."""

    qacc: Array
    gradient: Array
    iterations: Array
    improvement: Array
    done: Array
    forces: PerFamily | None


Search = Callable[[Model, BlockDiagonal, Array, Constraints, Array, bool], Found]


def smooth_acceleration(qM: BlockDiagonal, qfrc_smooth: Array) -> Smooth:
    """qacc_smooth = M^-1 qfrc_smooth, the acceleration without constraints."""
    return Smooth(qfrc_smooth=qfrc_smooth, qacc_smooth=solve_blocks(qM, qfrc_smooth))


def solve(
    model: Model,
    qM: BlockDiagonal,
    qfrc_smooth: Array,
    qacc_warmstart: Array,
    constraints: Constraints,
    contact_rank: Array | None = None,
) -> Solution:
    """The acceleration that minimizes the objective, and the force of the constraints on the dofs.

    Args:
      qM: inertia matrix, by blocks.
      qfrc_smooth: (nv,) all other forces.
      qacc_warmstart: (nv,) where to start; has no influence on derivatives.
      constraints: the rows.
      contact_rank: (ncon,) in which order noslip sweeps over the contacts; None for that of the slots.
    """
    unroll = model.opt.solver_gradient == "unroll" and bool(constraints.families)
    given = (qM, qfrc_smooth, constraints)
    # as a while loop the search is a constant for derivatives
    posed = given if unroll else jax.lax.stop_gradient(given)
    search = SOLVERS[model.opt.solver] if constraints.families else unconstrained
    found = search(model, *posed, jax.lax.stop_gradient(qacc_warmstart), unroll)
    qacc, own_forces = checkpoint_name((found.qacc, found.forces), SEARCH_RESULT)
    qacc = qacc if unroll else at_optimum(qacc, *given)
    forces = row_forces(constraints, qacc)
    if own_forces is not None:
        forces = jax.tree.map(_with_value, forces, own_forces)
    iterations = found.iterations
    if model.opt.noslip_iterations and constraints.families:
        qacc, forces, sweeps = without_slip(model, *given, qacc, forces, contact_rank)
        iterations = iterations + sweeps
    stats = jax.lax.stop_gradient((found.improvement, jnp.linalg.norm(found.gradient)))
    scale = jax.lax.stop_gradient(_scale(model))
    return Solution(
        qacc=qacc,
        qfrc_constraint=dual_on_dofs(constraints, forces),
        row_force=flat(constraints, forces),
        solver_niter=iterations,
        solver_stalled=~found.done,
        solver_improvement=stats[0] * scale,
        solver_gradient_norm=stats[1] * scale,
    )


def _with_value(derivative: Array, value: Array) -> Array:
    """`value`, differentiated as `derivative`."""
    return derivative + jax.lax.stop_gradient(value - derivative)


def _scale(model: Model) -> Array:
    """MuJoCo's scaling of costs and gradients, 1 / (meaninertia max(1, nv))."""
    return 1 / (model.stat.meaninertia * max(1, model.nv))


def primal(rule: Rule, needs_factor: bool, full_step: bool) -> Search:
    """A solver that minimizes over accelerations, by the directions that `rule` chooses."""

    def search(
        model: Model, qM: BlockDiagonal, qfrc_smooth: Array, constraints: Constraints, start: Array, unroll: bool
    ) -> Found:
        opt = model.opt
        scale = jax.lax.stop_gradient(_scale(model))
        starts = () if opt.disabled(DisableBit.WARMSTART) else (start,)
        factor = None
        if needs_factor or not starts:
            factor = block_factor(qM.parts)
            starts = (block_solve(qM.blocks, factor, qfrc_smooth), *starts)
        begin = lowest(qM, qfrc_smooth, constraints, starts)
        # products with J^T in every iteration
        constraints = constraints.replace(jacobian=constraints.jacobian.with_transpose())
        problem = Problem(
            qM=qM,
            qfrc_smooth=qfrc_smooth,
            constraints=constraints,
            factor=factor or (),
            tolerance=jax.lax.stop_gradient(opt.tolerance) / scale,
            ls_tolerance=jax.lax.stop_gradient(opt.tolerance * opt.ls_tolerance) / scale,
            iterations=opt.iterations,
            ls_iterations=opt.ls_iterations,
            full_step=full_step,
        )
        point, _, iterations, improvement, done = iterate(problem, rule, begin, unroll)
        return Found(point.qacc, point.gradient, iterations, improvement, done, None)

    return search


def lowest(qM: BlockDiagonal, qfrc_smooth: Array, constraints: Constraints, candidates: Sequence[Array]) -> Array:
    """The acceleration (nv,) with the lowest objective; the first of those that are equal, or not numbers."""
    best, *others = candidates
    for other in others:
        low, high = (objective(qM, qfrc_smooth, constraints, qacc) for qacc in (other, best))
        best = jnp.where(low < high, other, best)
    return best


def unconstrained(
    model: Model, qM: BlockDiagonal, qfrc_smooth: Array, constraints: Constraints, start: Array, unroll: bool
) -> Found:
    """Without constraints there is nothing to search: M^-1 qfrc_smooth."""
    qacc = solve_blocks(qM, qfrc_smooth)
    zero = jnp.zeros((), qacc.dtype)
    return Found(qacc, jnp.zeros_like(qacc), jnp.zeros((), jnp.int32), zero, jnp.ones((), bool), None)


def dual(
    model: Model, qM: BlockDiagonal, qfrc_smooth: Array, constraints: Constraints, start: Array, unroll: bool
) -> Found:
    """The solver that minimizes over constraint forces."""
    if unroll:
        reason = "solver_gradient 'unroll' needs the solver Newton or CG; with PGS use 'implicit'"
        raise errors.UnsupportedError([errors.Problem("", 0, "<option solver>", reason, unsupported=True)])
    opt = model.opt
    qacc = None if opt.disabled(DisableBit.WARMSTART) else start
    tolerance = opt.tolerance / _scale(model)
    found = solve_dual(qM, qfrc_smooth, constraints, qacc, tolerance, opt.iterations)
    residual = gradient(qM, qfrc_smooth, constraints, found.qacc)
    return Found(found.qacc, residual, found.iterations, found.improvement, found.done, found.forces)


SOLVERS: dict[Solver, Search] = {
    Solver.NEWTON: primal(newton_direction, needs_factor=False, full_step=True),
    Solver.CG: primal(conjugate_direction, needs_factor=True, full_step=False),
    Solver.PGS: dual,
}
