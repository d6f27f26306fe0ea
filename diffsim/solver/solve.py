"""solve: the constrained acceleration and the constraint force, by the solver that the model names.

(M, qfrc_smooth, rows) -> qacc. Primal solvers only: they minimize over accelerations (objective.py).
"""

import warnings
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from diffsim.enums import DisableBit, Solver
from diffsim.math.blocks import block_factor, block_solve, diagonal_blocks, solve_blocks
from diffsim.physics.tree import dof_trees
from diffsim.solver.adjoint import at_optimum
from diffsim.solver.conjugate_gradient import conjugate_direction
from diffsim.solver.iteration import Problem, Progress, Rule, iterate
from diffsim.solver.newton import newton_direction
from diffsim.solver.objective import constraint_force
from diffsim.types import Model
from diffsim.types.constraints import Constraints
from diffsim.types.data import Smooth, Solution

Array = jax.Array


# name of the solver's result for `jax.checkpoint` policies
OPTIMUM = "solver_optimum"


class Method(NamedTuple):
    """A solver: how it chooses directions, and what it needs."""

    direction: Rule
    needs_factor: bool
    full_step: bool


_NEWTON = Method(newton_direction, needs_factor=False, full_step=True)

SOLVERS = {
    Solver.NEWTON: _NEWTON,
    Solver.CG: Method(conjugate_direction, needs_factor=True, full_step=False),
    # the dual and the primal problem have one solution; `method_of` tells the user
    Solver.PGS: _NEWTON,
}


def smooth_acceleration(model: Model, qM: Array, qfrc_smooth: Array) -> Smooth:
    """qacc_smooth = M^-1 qfrc_smooth, the acceleration without constraints."""
    return Smooth(qfrc_smooth=qfrc_smooth, qacc_smooth=solve_blocks(dof_trees(model.topology), qM, qfrc_smooth))


def solve(model: Model, qM: Array, qfrc_smooth: Array, qacc_warmstart: Array, constraints: Constraints) -> Solution:
    """The acceleration that minimizes the objective, and the force of the constraints on the dofs.

    Args:
      qM: (nv, nv) inertia matrix.
      qfrc_smooth: (nv,) all other forces.
      qacc_warmstart: (nv,) where to start; has no influence on derivatives.
      constraints: the rows.
    """
    method = method_of(model)
    unroll = model.opt.solver_gradient == "unroll"
    given = (qM, qfrc_smooth, constraints)
    # as a while loop the search is a constant for derivatives
    posed = given if unroll else jax.lax.stop_gradient(given)
    progress = _minimize(model, method, *posed, jax.lax.stop_gradient(qacc_warmstart), unroll)
    # named, so that a rematerialized step can keep the optimum and need not search for it again
    found = checkpoint_name(progress.point.qacc, OPTIMUM)
    qacc = found if unroll else at_optimum(dof_trees(model.topology), found, *given)
    stats = jax.lax.stop_gradient((progress.improvement, jnp.linalg.norm(progress.point.gradient)))
    scale = jax.lax.stop_gradient(_scale(model))
    return Solution(
        qacc=qacc,
        qfrc_constraint=constraint_force(constraints, qacc),
        solver_niter=progress.iterations,
        solver_stalled=~progress.done,
        solver_improvement=stats[0] * scale,
        solver_gradient_norm=stats[1] * scale,
    )


def method_of(model: Model) -> Method:
    """The model's solver. A model that asks for PGS gets its solution by Newton's method, and a warning."""
    if model.opt.solver == Solver.PGS:
        text = "solver PGS works on the dual problem; diffsim finds the same solution by Newton's method"
        warnings.warn(text + " (set solver='Newton' to silence this)", stacklevel=2)
    return SOLVERS[model.opt.solver]


def _scale(model: Model) -> Array:
    """MuJoCo's scaling of costs and gradients, 1 / (meaninertia max(1, nv))."""
    return 1 / (model.stat.meaninertia * max(1, model.nv))


def _minimize(
    model: Model,
    method: Method,
    qM: Array,
    qfrc_smooth: Array,
    constraints: Constraints,
    start: Array,
    unroll: bool,
) -> Progress:
    opt = model.opt
    scale = jax.lax.stop_gradient(_scale(model))
    cold = opt.disabled(DisableBit.WARMSTART) or not constraints.families
    trees = dof_trees(model.topology)
    factor = block_factor(diagonal_blocks(trees, qM)) if method.needs_factor or cold else ()
    problem = Problem(
        qM=qM,
        qfrc_smooth=qfrc_smooth,
        constraints=constraints,
        trees=trees,
        factor=factor,
        tolerance=jax.lax.stop_gradient(opt.tolerance) / scale,
        ls_tolerance=jax.lax.stop_gradient(opt.tolerance * opt.ls_tolerance) / scale,
        iterations=opt.iterations,
        ls_iterations=opt.ls_iterations,
        full_step=method.full_step,
    )
    return iterate(problem, method.direction, block_solve(trees, factor, qfrc_smooth) if cold else start, unroll)
