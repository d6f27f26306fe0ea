"""The iteration that all primal solvers share: direction, exact line search, step, test.

Accelerations a, M a and J a are updated together, so that an iteration costs one direction, one product with M and one
with J. Values come from a while loop, which is not differentiated. With "unroll", derivatives come from a scan over
opt.iterations iterations.

In that scan the step length alpha is differentiated as the root of phi'(alpha; inputs), where phi is the objective
along the line: d alpha = -d phi' / phi''. Newton's method does not stop in the scan: once converged it goes on with
alpha = 1, where a step has the derivative of the optimum. CG stays where it is.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from diffsim.math import safe
from diffsim.math.vector import inner
from diffsim.solver.line_search import Derivatives, LineRows, line_rows, line_search
from diffsim.solver.objective import Objective, generalized_force, project, residuals
from diffsim.xla.batched_loops import Loop, kernel, quarters, run
from diffsim.xla.loops import scan
from diffsim.xla.reverse_mode import SEARCH_RESULT
from diffsim.xla.select import where_tree

Array = jax.Array

# a force below this many machine epsilons of the forces on the same dof counts as rounding
ROUNDING = 64.0


class Settings(NamedTuple):
    """When iterations and their line searches end.

    Attributes:
      tolerance, ls_tolerance: in the units of the objective.
      iterations, ls_iterations: at most.
      full_step: whether a direction leads to the minimum of the quadratic model, as in Newton's method; the first trial
        of the line search is then 1, else 0.
      unroll: whether derivatives go through the iterations.
    """

    tolerance: Array
    ls_tolerance: Array
    iterations: int
    ls_iterations: int
    full_step: bool
    unroll: bool


class Start(NamedTuple):
    """Where the iterations begin: acceleration (nv,) and M a (nv,); J a, where it is known, is in the constraints."""

    qacc: Array
    inertia_product: Array


class Iterate(NamedTuple):
    """A point: acceleration (nv,), M a (nv,), J a (nrow,) and the gradient there (nv,)."""

    qacc: Array
    inertia_product: Array
    rows_product: Array
    gradient: Array


class Direction(NamedTuple):
    """A search direction `vector` (nv,), and the gradient and preconditioned step (nv,) that it was computed from."""

    vector: Array
    gradient: Array
    step: Array


class DirectionRule(Protocol):
    """How a solver chooses the next search direction."""

    def __call__(self, point: Iterate, previous: Direction) -> Direction:
        """The direction at a point, after the previous one (zero at first)."""
        ...


class Rule(NamedTuple):
    """How a solver chooses directions, and the measure of the gradient that it compares with the tolerance."""

    direction: DirectionRule
    measure: Callable[[Iterate], Array] = lambda point: jnp.linalg.norm(point.gradient)


# (objective, aid) -> rule
RuleMaker = Callable[[Objective, Any], Rule]


class Progress(NamedTuple):
    """State of the loop.

    Attributes:
      point, direction: the last ones.
      iterations: () so far.
      improvement: () by which the last iteration lowered the objective.
      done: () whether the loop ends.
      stuck: () whether it ends before it has converged: the last direction promised to lower the objective by more than
        the tolerance, and did not. In exact arithmetic that does not happen.
    """

    point: Iterate
    direction: Direction
    iterations: Array
    improvement: Array
    done: Array
    stuck: Array


class _Problem(NamedTuple):
    """The arrays of a search: the objective, the `aid` of its rule, and the tolerances of `Settings`."""

    objective: Objective
    aid: Any
    tolerances: tuple[Array, Array]


def iterate(objective: Objective, rule_for: RuleMaker, settings: Settings, start: Start, aid: Any = None) -> Progress:
    """Minimizes from a start; a fixed number of iterations if `settings.unroll`.

    `aid`: arrays that the rule reads in every iteration, such as a factor of M.
    """

    # the functions of a loop may not close over traced arrays (xla/batched_loops.py): these go into `problem`
    tolerances = settings[:2]
    limits = settings[2:]
    limit = settings.iterations

    def advance(problem: _Problem, progress: Progress) -> Progress:
        rule = rule_for(problem.objective, problem.aid)
        return _step(problem.objective, Settings(*problem.tolerances, *limits), progress, rule)

    def unfinished(progress: Progress) -> Array:
        return ~progress.done & (progress.iterations < limit)

    problem = _Problem(objective, aid, tolerances)
    if settings.unroll or settings.iterations == 1:
        problem = _readable(problem)
    first = _first(problem.objective, settings, start, rule_for(problem.objective, problem.aid))
    if settings.iterations == 1:
        return advance(problem, first)
    if settings.unroll:
        return _unrolled(lambda progress: advance(problem, progress), settings, first)
    return run(Loop(unfinished, advance, _readable), problem, first, cpu=quarters, gpu=kernel)


def _readable(problem: _Problem) -> _Problem:
    """The problem with J stored so that products with J^T, one in every iteration, are fast."""
    objective = problem.objective
    jacobian = objective.constraints.jacobian.readable_by_columns()
    return problem._replace(objective=objective._replace(constraints=objective.constraints.replace(jacobian=jacobian)))


def _unrolled(advance: Callable[[Progress], Progress], settings: Settings, start: Progress) -> Progress:
    """A fixed number of iterations, to be differentiated."""

    def one_iteration(progress: Progress, _: None) -> tuple[Progress, None]:
        later = advance(progress)
        done = later._replace(done=progress.done | later.done)
        # Newton's method goes on after convergence: a step with alpha = 1 has the derivative of the optimum, whatever
        # came before. CG has no such step, and its point stays where it is
        stays = where_tree(progress.done, progress, later)
        return done if settings.full_step else stays, None

    return scan(one_iteration, start, length=settings.iterations)[0]


def _first(objective: Objective, settings: Settings, start: Start, rule: Rule) -> Progress:
    """The state before the first iteration."""
    qacc = start.qacc
    warm = objective.constraints.warm
    rows_product = warm if warm.size else objective.constraints.jacobian.mul_vec(qacc)
    point = _evaluate(objective, *start, rows_product)
    # only CG reads the previous direction; for Newton it is empty
    blank = jnp.zeros_like(qacc[:0] if settings.full_step else qacc)
    zero = jnp.zeros((), qacc.dtype)
    done = _converged(objective, settings, point, rule)
    return Progress(point, Direction(blank, blank, blank), jnp.zeros((), jnp.int32), zero, done, jnp.zeros((), bool))


def _evaluate(objective: Objective, qacc: Array, inertia_product: Array, rows_product: Array) -> Iterate:
    """The point with acceleration a = qacc (nv,), given the products M a and J a."""
    force = generalized_force(objective.constraints, residuals(objective.constraints, qacc, rows_product))
    return Iterate(qacc, inertia_product, rows_product, inertia_product - objective.qfrc_smooth - force)


def _converged(objective: Objective, settings: Settings, point: Iterate, rule: Rule) -> Array:
    """Whether the gradient is below tolerance, or rounding."""
    small = ~(rule.measure(point) > settings.tolerance)
    return small | _is_rounding(objective, point, point.gradient)


def _is_rounding(objective: Objective, point: Iterate, force: Array) -> Array:
    """Whether a force (nv,) is within rounding, on every dof, of the forces that act there."""
    return jnp.all(jnp.abs(force) <= _rounding(objective, point))


def _rounding(objective: Objective, point: Iterate) -> Array:
    """(nv,) the rounding of the forces that act on each dof."""
    epsilon = float(jnp.finfo(point.gradient.dtype).eps)
    acting = jnp.abs(point.inertia_product) + jnp.abs(objective.qfrc_smooth)
    # a dof on which nothing acts still gets rounding from other dofs, through the products with M and J
    overall = jnp.linalg.norm(acting)
    return epsilon * (ROUNDING * acting + 4 * overall)


def _step(objective: Objective, settings: Settings, progress: Progress, rule: Rule) -> Progress:
    """One iteration: a direction v, the length alpha of the step, the new point, and whether it is the last.

    Along the line the objective is linear alpha + quadratic alpha^2 / 2 + cost(x + alpha J v), with linear =
    v . (M a - qfrc_smooth) and quadratic = v . M v.
    """
    direction = rule.direction(progress.point, progress.direction)
    point, constraints, vector = progress.point, objective.constraints, direction.vector

    # the objective along the line: M v and J v, after which no trial needs a product
    inertia_product, rows_product = objective.qM.mul_vec(vector), constraints.jacobian.mul_vec(vector)
    x = residuals(constraints, point.qacc, point.rows_product)
    v = project(constraints, vector, rows_product)
    linear = inner(vector, point.inertia_product - objective.qfrc_smooth)
    line = _Line(line_rows(constraints, x, v), linear, inner(vector, inertia_product))
    slope = inner(vector, point.gradient)

    # the step: alpha > 0 with phi'(alpha) = 0, as a constant of derivatives; unrolled, the root is differentiated
    alpha = _length(settings, *jax.lax.stop_gradient((line, vector, slope)), progress.done)
    if settings.unroll:
        alpha = _root(checkpoint_name(alpha, SEARCH_RESULT), line)
        alpha = jnp.where(progress.done, 1, alpha) if settings.full_step else alpha
    moved = _evaluate(
        objective,
        point.qacc + alpha * vector,
        point.inertia_product + alpha * inertia_product,
        point.rows_product + alpha * rows_product,
    )

    # the test. The improvement is exact if no row changes its zone on the way: the slope then goes linearly to zero,
    # and the objective falls by alpha times its mean
    improvement = -0.5 * alpha * slope
    converged = _converged(objective, settings, moved, rule)
    promised = 0.5 * slope
    if settings.full_step:
        # if the force M v of the direction v is within rounding, the gradient is noise, even where stiff rows make it
        # look large. A full step promises half the slope (the minimum of the quadratic model)
        converged = converged | _is_rounding(objective, moved, inertia_product)
        promised = jnp.abs(promised)
    # `~(a > b)` is also true for NaN, which ends the search
    too_small = ~(improvement > settings.tolerance)
    noise = inner(jnp.abs(vector), _rounding(objective, moved))
    stuck = too_small & ~converged & (promised > jnp.maximum(settings.tolerance, noise))
    kept = progress.direction if settings.full_step else direction
    return Progress(moved, kept, progress.iterations + 1, improvement, too_small | converged, stuck)


class _Line(NamedTuple):
    """phi(alpha), the objective along a direction: the costs of its rows, and linear alpha + quadratic alpha^2 / 2."""

    rows: LineRows
    linear: Array
    quadratic: Array

    def __call__(self, alpha: Array) -> tuple[Array, Array]:
        """First and second derivative with respect to the step length alpha."""
        slope, curvature = self.rows(alpha)
        return self.linear + alpha * self.quadratic + slope, self.quadratic + curvature


@jax.custom_jvp
def _root(alpha: Array, line: _Line) -> Array:
    """The step length alpha (), differentiable where it is positive: there it is a root of phi'."""
    return alpha


@_root.defjvp
def _root_jvp(primals: tuple[Array, _Line], tangents: tuple[Any, Any]) -> tuple[Array, Array]:
    # phi'(alpha; line) = 0 for all lines: phi'' d alpha + d phi' = 0
    alpha, line = primals
    (_, curvature), (change, _) = jax.jvp(lambda line: line(alpha), (line,), tangents[1:])
    return alpha, jnp.where(alpha > 0, -safe.divide(change, curvature), 0)


def _length(settings: Settings, derivatives: Derivatives, vector: Array, slope: Array, done: Array) -> Array:
    """The step length: 0 where the direction does not descend, and where the search is done."""
    first = jnp.full((), 1.0 if settings.full_step else 0.0, slope.dtype)
    # as in MuJoCo: |phi'| <= tolerance ls_tolerance |v|
    tolerance = settings.ls_tolerance * jnp.linalg.norm(vector)
    idle = done | ~(slope < 0)
    alpha = line_search(derivatives, first, slope, tolerance, max(settings.ls_iterations, 1), idle)
    return jnp.where(idle, 0, alpha)
