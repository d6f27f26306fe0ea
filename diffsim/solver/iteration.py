"""The iteration that all primal solvers share: direction, exact line search, step, test.

Accelerations, M a and J a are updated together, so that one iteration costs one direction, one product with M and one
with J. With solver_gradient = "implicit" it is a while loop that nobody differentiates; "unroll" is a scan of
opt.iterations iterations, differentiated step by step (line search and stopping excepted).
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from diffsim.math.block_matrix import BlockDiagonal
from diffsim.math.blocks import PerSize
from diffsim.solver.line_search import line_search
from diffsim.solver.objective import along_line, generalized, project, residuals
from diffsim.types.constraints import Constraints

Array = jax.Array

# a force this many machine epsilons of the forces on the same dof is rounding
ROUNDING = 64.0


class Problem(NamedTuple):
    """What is minimized, and when to stop (scaled to the objective's units)."""

    qM: BlockDiagonal
    qfrc_smooth: Array
    constraints: Constraints
    # the Cholesky factors of the blocks of M, for the solvers that precondition with it
    factor: PerSize
    tolerance: Array
    ls_tolerance: Array
    iterations: int
    ls_iterations: int
    # whether steps go to the minimum of the quadratic model: the first trial of the line search is 1
    full_step: bool


class Iterate(NamedTuple):
    """A point, with M a, J a and the gradient there."""

    qacc: Array
    inertia_product: Array
    rows_product: Array
    gradient: Array


class Direction(NamedTuple):
    """A search direction; the gradient and preconditioned step that it was made from."""

    search: Array
    gradient: Array
    step: Array


class Progress(NamedTuple):
    """State of the loop."""

    point: Iterate
    direction: Direction
    iterations: Array
    improvement: Array
    done: Array


Rule = Callable[[Problem, Iterate, Direction], Direction]


def iterate(problem: Problem, rule: Rule, qacc: Array, unroll: bool) -> Progress:
    """Minimizes from `qacc`; a fixed number of iterations if `unroll`."""
    start = _start(problem, qacc)

    def advance(progress: Progress) -> Progress:
        direction = rule(problem, progress.point, progress.direction)
        return _step(problem, progress, direction)

    if unroll:
        return jax.lax.scan(
            lambda progress, _: (_hold(progress, advance(progress)), None), start, length=problem.iterations
        )[0]
    if problem.iterations == 1:
        return advance(start)

    def unfinished(progress: Progress) -> Array:
        return ~progress.done & (progress.iterations < problem.iterations)

    return jax.lax.while_loop(unfinished, advance, start)


def _hold(old: Progress, new: Progress) -> Progress:
    """The old state once it is done."""
    return jax.tree.map(lambda a, b: jnp.where(old.done, a, b), old, new)


def _start(problem: Problem, qacc: Array) -> Progress:
    point = _evaluate(problem, qacc, problem.qM.mul_vec(qacc), problem.constraints.jacobian.mul_vec(qacc))
    none = jnp.zeros_like(qacc)
    zero = jnp.zeros((), qacc.dtype)
    return Progress(point, Direction(none, none, none), jnp.zeros((), jnp.int32), zero, _flat(problem, point))


def _evaluate(problem: Problem, qacc: Array, inertia_product: Array, rows_product: Array) -> Iterate:
    x = residuals(problem.constraints, qacc, rows_product)
    force = generalized(problem.constraints, x)
    return Iterate(qacc, inertia_product, rows_product, inertia_product - problem.qfrc_smooth - force)


def _flat(problem: Problem, point: Iterate) -> Array:
    """Whether the gradient is below tolerance, or rounding."""
    small = ~(jnp.linalg.norm(point.gradient) > problem.tolerance)
    return small | _is_rounding(problem, point, point.gradient)


def _is_rounding(problem: Problem, point: Iterate, force: Array) -> Array:
    """Whether a change of force is, on every dof, rounding of the forces that act there."""
    epsilon = float(jnp.finfo(force.dtype).eps)
    acting = jnp.abs(point.inertia_product) + jnp.abs(problem.qfrc_smooth)
    # where nothing acts, what leaks in from other dofs
    leak = jnp.linalg.norm(acting)
    return jnp.all(jnp.abs(force) <= epsilon * (ROUNDING * acting + 4 * leak))


def _step(problem: Problem, progress: Progress, direction: Direction) -> Progress:
    """Line search along the direction, the new point, and whether it is the last."""
    point, constraints, search = progress.point, problem.constraints, direction.search
    inertia_product, rows_product = problem.qM.mul_vec(search), constraints.jacobian.mul_vec(search)
    x, v = residuals(constraints, point.qacc, point.rows_product), project(constraints, search, rows_product)
    linear = jnp.vdot(search, point.inertia_product - problem.qfrc_smooth)
    quadratic = jnp.vdot(search, inertia_product)

    def derivatives(alpha: Array) -> tuple[Array, Array]:
        here = tuple(a + alpha * b for a, b in zip(x, v, strict=True))
        slope, bend = along_line(constraints, here, v)
        return linear + alpha * quadratic + slope, quadratic + bend

    slope = jnp.vdot(search, point.gradient)
    alpha = jax.lax.stop_gradient(_length(problem, derivatives, search, slope, progress.done))
    moved = _evaluate(
        problem,
        point.qacc + alpha * search,
        point.inertia_product + alpha * inertia_product,
        point.rows_product + alpha * rows_product,
    )
    # exact where no row changes zone: the derivative goes linearly to zero
    improvement = -0.5 * alpha * slope
    done = ~(improvement > problem.tolerance) | _flat(problem, moved)
    if problem.full_step:
        # all that was left is within rounding: the gradient is noise, even if stiff rows make it look large
        done = done | _is_rounding(problem, moved, alpha * inertia_product)
    return Progress(moved, direction, progress.iterations + 1, improvement, done)


def _length(
    problem: Problem, derivatives: Callable[[Array], tuple[Array, Array]], search: Array, slope: Array, done: Array
) -> Array:
    """Step length: zero where the direction does not descend, or where the search is over."""
    first = jnp.full((), 1.0 if problem.full_step else 0.0, slope.dtype)
    tolerance = problem.ls_tolerance * jnp.linalg.norm(search)
    idle = done | ~(slope < 0)
    alpha = line_search(derivatives, first, slope, tolerance, max(problem.ls_iterations, 1), idle)
    return jnp.where(idle, 0, alpha)
