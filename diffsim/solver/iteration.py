"""The iteration that all primal solvers share: direction, exact line search, step, test.

Accelerations, M a and J a are updated together, so that one iteration costs one direction, one product with M and one
with J. It is a while loop that nobody differentiates; derivatives of the iterations are those of a scan of
opt.iterations iterations, differentiated step by step.

The step length alpha is where the derivative of the objective along the line vanishes, phi'(alpha; inputs) = 0, so it
depends on the inputs to first order: d alpha = -d phi' / phi'', one Newton step of that condition, differentiated. A
solver of full steps does not stop in "unroll": once it has converged it goes on with alpha = 1, where its derivative is
that of the optimum. One without (CG) stays where it is.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from diffsim.math import safe
from diffsim.math.vector import inner
from diffsim.solver.line_search import Derivatives, LineRows, line_rows, line_search
from diffsim.solver.objective import Objective, generalized_force, project, residuals
from diffsim.xla.batched_loops import WhileLoop, run
from diffsim.xla.select import where

Array = jax.Array

# a force this many machine epsilons of the forces on the same dof is rounding
ROUNDING = 64.0


class Settings(NamedTuple):
    """When iterations and their line searches end: tolerances in the units of the objective, and the most of each.

    `full_step` tells that a direction leads to the minimum of the quadratic model: the first trial of the line search
    is then 1, else 0. `unroll` tells that derivatives go through the iterations.
    """

    tolerance: Array
    ls_tolerance: Array
    iterations: int
    ls_iterations: int
    full_step: bool
    unroll: bool


class Iterate(NamedTuple):
    """A point: acceleration (nv,), M a (nv,), J a (nrow,) and the gradient there (nv,)."""

    qacc: Array
    inertia_product: Array
    rows_product: Array
    gradient: Array


class Direction(NamedTuple):
    """A search direction (nv,); the gradient and preconditioned step that it was made from."""

    vector: Array
    gradient: Array
    step: Array


class DirectionRule(Protocol):
    """How a solver chooses the next search direction."""

    def __call__(self, point: Iterate, previous: Direction) -> Direction:
        """The direction at a point, after the previous one (zero at first)."""
        ...


class Rule(NamedTuple):
    """How a solver chooses directions, and what it holds against the tolerance: a measure of the gradient (nv,)."""

    direction: DirectionRule
    measure: Callable[[Iterate], Array] = lambda point: jnp.linalg.norm(point.gradient)


# the rule for an objective, from what else it needs
RuleMaker = Callable[[Objective, Any], Rule]


class Progress(NamedTuple):
    """State of the loop; the improvement is what the last iteration gained by the objective.

    Whether it is done, and whether it is stuck: done because the last direction, which promised more than the
    tolerance, led nowhere. In exact arithmetic that does not happen.
    """

    point: Iterate
    direction: Direction
    iterations: Array
    improvement: Array
    done: Array
    stuck: Array


class _Problem(NamedTuple):
    """What is minimized, what the rule needs besides, and the tolerances of `Settings`."""

    objective: Objective
    aid: Any
    tolerances: tuple[Array, Array]


def iterate(objective: Objective, rule_for: RuleMaker, settings: Settings, qacc: Array, aid: Any = None) -> Progress:
    """Minimizes from `qacc` (nv,); a fixed number of iterations if `settings.unroll`. `aid` is for the rule."""

    # the functions of a search hold nothing that is traced
    tolerances, limits, limit = settings[:2], settings[2:], settings.iterations

    def advance(problem: _Problem, progress: Progress) -> Progress:
        rule = rule_for(problem.objective, problem.aid)
        return _step(problem.objective, Settings(*problem.tolerances, *limits), progress, rule)

    def unfinished(progress: Progress) -> Array:
        return ~progress.done & (progress.iterations < limit)

    problem = _Problem(objective, aid, tolerances)
    if settings.unroll or settings.iterations == 1:
        problem = _readable(problem)
    start = _start(problem.objective, settings, qacc, rule_for(problem.objective, problem.aid))
    if settings.unroll:
        return _unrolled(lambda progress: advance(problem, progress), settings, start)
    if settings.iterations == 1:
        return advance(problem, start)
    return run(WhileLoop(unfinished, advance, _readable), problem, start)


def _readable(problem: _Problem) -> _Problem:
    """The problem with J stored so that products with J^T, one in every iteration, are fast."""
    objective = problem.objective
    jacobian = objective.constraints.jacobian.readable_by_columns()
    return problem._replace(objective=objective._replace(constraints=objective.constraints.replace(jacobian=jacobian)))


def _unrolled(advance: Callable[[Progress], Progress], settings: Settings, start: Progress) -> Progress:
    """All iterations, to be differentiated."""

    def each(progress: Progress, _: None) -> tuple[Progress, None]:
        later = advance(progress)
        done = later._replace(done=progress.done | later.done)
        # what has no full steps stays where it is
        stays = jax.tree.map(lambda a, b: where(progress.done, a, b), progress, later)
        return done if settings.full_step else stays, None

    return jax.lax.scan(each, start, length=settings.iterations)[0]


def _start(objective: Objective, settings: Settings, qacc: Array, rule: Rule) -> Progress:
    warm = objective.constraints.warm
    rows_product = warm if warm.size else objective.constraints.jacobian.mul_vec(qacc)
    point = _evaluate(objective, qacc, objective.qM.mul_vec(qacc), rows_product)
    # full steps do not look back
    none, zero = jnp.zeros_like(qacc[:0] if settings.full_step else qacc), jnp.zeros((), qacc.dtype)
    done = _converged(objective, settings, point, rule)
    return Progress(point, Direction(none, none, none), jnp.zeros((), jnp.int32), zero, done, jnp.zeros((), bool))


def _evaluate(objective: Objective, qacc: Array, inertia_product: Array, rows_product: Array) -> Iterate:
    force = generalized_force(objective.constraints, residuals(objective.constraints, qacc, rows_product))
    return Iterate(qacc, inertia_product, rows_product, inertia_product - objective.qfrc_smooth - force)


def _converged(objective: Objective, settings: Settings, point: Iterate, rule: Rule) -> Array:
    """Whether the gradient is below tolerance, or rounding."""
    small = ~(rule.measure(point) > settings.tolerance)
    return small | _is_rounding(objective, point, point.gradient)


def _is_rounding(objective: Objective, point: Iterate, force: Array) -> Array:
    """Whether a change of force is, on every dof, rounding of the forces that act there."""
    return jnp.all(jnp.abs(force) <= _rounding(objective, point))


def _rounding(objective: Objective, point: Iterate) -> Array:
    """(nv,) the rounding of the forces that act on each dof."""
    epsilon = float(jnp.finfo(point.gradient.dtype).eps)
    acting = jnp.abs(point.inertia_product) + jnp.abs(objective.qfrc_smooth)
    # where nothing acts, what leaks in from other dofs
    leak = jnp.linalg.norm(acting)
    return epsilon * (ROUNDING * acting + 4 * leak)


def _step(objective: Objective, settings: Settings, progress: Progress, rule: Rule) -> Progress:
    """Line search along the next direction, the new point, and whether it is the last."""
    direction = rule.direction(progress.point, progress.direction)
    point, constraints, vector = progress.point, objective.constraints, direction.vector
    inertia_product, rows_product = objective.qM.mul_vec(vector), constraints.jacobian.mul_vec(vector)
    x, v = residuals(constraints, point.qacc, point.rows_product), project(constraints, vector, rows_product)
    linear = inner(vector, point.inertia_product - objective.qfrc_smooth)
    line = _Line(line_rows(constraints, x, v), linear, inner(vector, inertia_product))
    slope = inner(vector, point.gradient)
    alpha = _length(settings, *jax.lax.stop_gradient((line, vector, slope)), progress.done)
    if settings.unroll:
        alpha = _differentiated(line, alpha)
        alpha = where(progress.done, 1, alpha) if settings.full_step else alpha
    moved = _evaluate(
        objective,
        point.qacc + alpha * vector,
        point.inertia_product + alpha * inertia_product,
        point.rows_product + alpha * rows_product,
    )
    # exact where no row changes zone: the derivative goes linearly to zero
    improvement = -0.5 * alpha * slope
    converged, promised = _converged(objective, settings, moved, rule), 0.5 * slope
    if settings.full_step:
        # all that was left is within rounding: the gradient is noise, even if stiff rows make it look large
        converged, promised = converged | _is_rounding(objective, moved, inertia_product), jnp.abs(promised)
    still = ~(improvement > settings.tolerance)
    noise = inner(jnp.abs(vector), _rounding(objective, moved))
    stuck = still & ~converged & (promised > jnp.maximum(settings.tolerance, noise))
    kept = progress.direction if settings.full_step else direction
    return Progress(moved, kept, progress.iterations + 1, improvement, still | converged, stuck)


class _Line(NamedTuple):
    """The objective along a direction, from a point: its rows, and linear alpha + quadratic alpha^2 / 2."""

    rows: LineRows
    linear: Array
    quadratic: Array

    def __call__(self, alpha: Array) -> tuple[Array, Array]:
        """First and second derivative with respect to the step length."""
        slope, curvature = self.rows(alpha)
        return self.linear + alpha * self.quadratic + slope, self.quadratic + curvature


def _differentiated(line: _Line, alpha: Array) -> Array:
    """The step length alpha, a root of the slope along the line or zero, with its derivative by the line."""
    slope, curvature = line(alpha)
    change = safe.divide(slope - jax.lax.stop_gradient(slope), jax.lax.stop_gradient(curvature))
    return where(alpha > 0, alpha - change, 0)


def _length(settings: Settings, derivatives: Derivatives, vector: Array, slope: Array, done: Array) -> Array:
    """Step length: zero where the direction does not descend, or where the search is over."""
    first = jnp.full((), 1.0 if settings.full_step else 0.0, slope.dtype)
    tolerance = settings.ls_tolerance * jnp.linalg.norm(vector)
    idle = done | ~(slope < 0)
    alpha = line_search(derivatives, first, slope, tolerance, max(settings.ls_iterations, 1), idle)
    return where(idle, 0, alpha)
