"""Newton's method and conjugate gradients: minimize the cost over accelerations, with exact line search (iteration.py).

Newton's method steps along -H^-1 gradient, with the full Hessian H = M + J^T K J. On a piecewise quadratic cost it ends
after finitely many steps: as soon as no row changes its zone, the step is exact. It stops by MuJoCo's rule, improvement
or gradient below opt.tolerance after scaling by 1 / (meaninertia max(1, nv)).

For flexes with hundreds of points H is neither formed nor factored. The linear system of the step is then solved
inexactly, by conjugate gradients that stop when the residual is 3 % of the gradient (Nocedal and Wright 2006,
sec. 7.1). The tolerance is then compared with 1/2 g^T M^-1 g: since H - M is positive semidefinite, the cost cannot
fall by more than this.

Nonlinear conjugate gradients (Polak-Ribiere), preconditioned by M: no Hessian, one factor for all iterations.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from diffsim.base.enums import DisableBit
from diffsim.math import safe
from diffsim.math.block_solves import solved
from diffsim.math.linalg import PerSize, block_factor, block_solve
from diffsim.math.stencil_rows import SparseRows
from diffsim.math.vector import inner
from diffsim.solver.conditioning import regular_factor, regular_newton_rule, solve_inertia, watched
from diffsim.solver.hessian import factor_hessian, newton_step, solve_hessian_inexactly
from diffsim.solver.iteration import Direction, Iterate, Rule, RuleMaker, Settings, Start, iterate
from diffsim.solver.objective import Objective, acting_contacts, cost, residuals
from diffsim.types import Model
from diffsim.types.constraints import Constraints, PerGroup
from diffsim.xla.reverse_mode import SEARCH_RESULT
from diffsim.xla.select import if_everywhere

Array = jax.Array

# share of the gradient that an inexact Newton direction may leave (forcing term: Nocedal and Wright 2006, sec. 7.1)
FORCING = 0.03
# from this many slots for contacts of one dimension on, most slots are empty in most states
MANY = 64
# if at most one in SHARE of these slots acts, in all worlds of a batch, the search works on them alone
SHARE = 4
# rounding error of J a, in units of its machine epsilon
ROUNDING = 16.0


class Minimum(NamedTuple):
    """How a solver ended.

    Attributes:
      qacc, gradient: (nv,) where it ended, and the gradient of the objective there.
      iterations: () int.
      improvement: () by which the last iteration lowered the objective.
      converged: () bool.
      forces: row forces of each group, of solvers that minimize over forces; else None.
    """

    qacc: Array
    gradient: Array
    iterations: Array
    improvement: Array
    converged: Array
    forces: PerGroup | None


def cost_scale(model: Model) -> Array:
    """MuJoCo's scaling of costs and gradients, 1 / (meaninertia max(1, nv))."""
    return 1 / (model.stat.meaninertia * max(1, model.nv))


def newton(model: Model, objective: Objective, start: Array, unroll: bool) -> Minimum:
    """Newton's method from `start` (nv,), or from the acceleration without constraints if warm start is off.

    If iterations are few, and may end before the optimum, it starts from the better of both, as MuJoCo does.
    """
    method = Method(newton_rule, True)
    jacobian = objective.constraints.jacobian
    # with thousands of vertices H is never factored as a whole: directions come from linear conjugate gradients
    if isinstance(jacobian, SparseRows) and jacobian.of_points:
        tolerance = jax.lax.stop_gradient(model.opt.tolerance / cost_scale(model))
        method = Method(inexact_newton_rule, True, Inexact(block_factor(objective.qM.parts), tolerance))
    elif watched(model) and not unroll:
        method = Method(regular_newton_rule, True)
    if model.opt.few_iterations or model.opt.disabled(DisableBit.WARMSTART):
        objective, first = better_start(model, objective, start, None if method.aid is None else method.aid.factor)
    else:
        first = Start(start, objective.qM.mul_vec(start))
    return _descend(model, objective, method, first, unroll)


def newton_rule(objective: Objective, _: None) -> Rule:
    """-H^-1 gradient; the first trial of the line search is the full step."""

    def direction(point: Iterate, previous: Direction) -> Direction:
        x = residuals(objective.constraints, point.qacc, point.rows_product)
        step = newton_step(objective, x, point.gradient)
        return Direction(step, point.gradient, step)

    return Rule(direction)


class Inexact(NamedTuple):
    """A factor of M, and the tolerance, in the units of the objective."""

    factor: PerSize
    tolerance: Array


def inexact_newton_rule(objective: Objective, aid: Inexact) -> Rule:
    """Roughly -H^-1 gradient; the gradient is measured by M^-1."""

    def direction(point: Iterate, previous: Direction) -> Direction:
        x = residuals(objective.constraints, point.qacc, point.rows_product)
        factored = factor_hessian(objective, x)
        # down to `FORCING` of the gradient, or to a hundredth of the tolerance: the energy r^T P^-1 r of the residual
        # is twice what the cost can still fall
        step = -solve_hessian_inexactly(factored, objective, x, point.gradient, FORCING, 0.02 * aid.tolerance)
        return Direction(step, point.gradient, step)

    def measure(point: Iterate) -> Array:
        # 1/2 g^T M^-1 g bounds from above what the cost can fall, because H >= M
        bound = 0.5 * inner(point.gradient, block_solve(objective.qM.blocks, aid.factor, point.gradient))
        # rounding of J a adds 1/2 eps^2 sum D (J a)^2 to the cost. Rows that no dof moves add nothing, although their D
        # may be 1e14
        square = jnp.zeros_like(bound)
        rows_of_jacobian = (g for g in objective.constraints.groups if not g.on_dofs)
        for rows in rows_of_jacobian:
            square += jnp.sum(rows.D * jnp.square(rows.select(point.rows_product)))
        epsilon = float(jnp.finfo(square.dtype).eps)
        return jnp.where(bound > 0.5 * (ROUNDING * epsilon) ** 2 * square, bound, 0)

    return Rule(direction, measure)


def conjugate_gradients(model: Model, objective: Objective, start: Array, unroll: bool) -> Minimum:
    """Conjugate gradients from the acceleration without constraints, or from `start` (nv,) if that is better."""
    factor = regular_factor(objective.qM) if watched(model) else block_factor(objective.qM.parts)
    objective, first = better_start(model, objective, start, factor)
    return _descend(model, objective, Method(conjugate_rule, False, factor), first, unroll)


def conjugate_rule(objective: Objective, factor: PerSize) -> Rule:
    """-M^-1 g + beta * previous, beta = max(0, g . (M^-1 g - M^-1 g_old) / (g_old . M^-1 g_old)); by a factor of M."""

    def direction(point: Iterate, previous: Direction) -> Direction:
        # Polak-Ribiere, preconditioned by M and restarted where beta < 0 (Nocedal and Wright 2006, sec. 5.2); beta is 0
        # at first, where the previous gradient is zero
        step = -block_solve(objective.qM.blocks, factor, point.gradient)
        change = inner(point.gradient, previous.step - step)
        beta = safe.maximum(safe.divide(change, -inner(previous.gradient, previous.step)), 0)
        return Direction(step + beta * previous.vector, point.gradient, step)

    return Rule(direction)


class Method(NamedTuple):
    """How a solver descends.

    Attributes:
      rule: makes the rule that chooses directions.
      full_step: whether a step of length 1 leads to the minimum of the quadratic model.
      aid: what the rule needs besides the objective, such as a factor of M.
    """

    rule: RuleMaker
    full_step: bool
    aid: Any = None


def _descend(model: Model, objective: Objective, method: Method, start: Start, unroll: bool) -> Minimum:
    """Iterations from `start`, by the directions that a rule chooses."""
    opt = model.opt
    scale = jax.lax.stop_gradient(cost_scale(model))
    settings = Settings(
        tolerance=jax.lax.stop_gradient(opt.tolerance) / scale,
        ls_tolerance=jax.lax.stop_gradient(opt.tolerance * opt.ls_tolerance) / scale,
        iterations=opt.iterations,
        ls_iterations=opt.ls_iterations,
        full_step=method.full_step,
        unroll=unroll,
    )
    # a loop carries all arrays of the objective: empty the fields that no law reads
    groups = []
    for rows in objective.constraints.groups:
        empty = jnp.zeros_like(rows.pos[:0])
        groups.append(dataclasses.replace(rows, pos=empty, margin=empty, kinks=empty, vel=empty, anchor=empty))
    lean = objective.constraints.replace(groups=tuple(groups))

    def search(constraints: Constraints) -> Minimum:
        end = iterate(objective._replace(constraints=constraints), method.rule, settings, start, method.aid)
        converged = end.done & ~end.stuck
        return Minimum(end.point.qacc, end.point.gradient, end.iterations, end.improvement, converged, None)

    # in large buffers most contacts do not act, and rows with D = 0 cost as much as others: where few act in all worlds
    # of a batch, search without the rest
    slots = max((rows.count for rows in lean.groups if rows.slot is not None), default=0)
    if unroll or slots < MANY or isinstance(lean.jacobian, SparseRows):
        return search(lean)
    few, fits = acting_contacts(lean, lean.jacobian, slots // SHARE)
    return if_everywhere(fits, lambda: search(few), lambda: search(lean))


def better_start(model: Model, objective: Objective, warm: Array, factor: PerSize | None) -> tuple[Objective, Start]:
    """The objective with J times the start, and the start: M^-1 qfrc_smooth, or `warm` (nv,) if its cost is lower.

    Args:
      warm: (nv,) the warm start.
      factor: a factor of M, if there is one already.
    """
    qM, force, constraints = objective
    if factor is None or watched(model):
        smooth = solve_inertia(model, qM, force)
    else:
        smooth = solved(block_solve, qM, factor, force)
    if model.opt.disabled(DisableBit.WARMSTART):
        return objective, Start(smooth, force)
    # M a and J a of both candidates, for their costs and for the first iteration: M a = qfrc_smooth at M^-1
    # qfrc_smooth. The choice is stored for reverse mode, which must not decide again
    project = constraints.jacobian.mul_vec
    starts = [(warm, qM.mul_vec(warm), project(warm)), (smooth, force, project(smooth))]
    is_warm = checkpoint_name(cost(objective, *starts[0]) < cost(objective, *starts[1]), SEARCH_RESULT)
    start, inertia_product, product = (jnp.where(is_warm, *pair) for pair in zip(*starts, strict=True))
    objective = objective._replace(constraints=dataclasses.replace(constraints, warm=product))
    return objective, Start(start, inertia_product)


def unconstrained(model: Model, objective: Objective, start: Array, unroll: bool) -> Minimum:
    """Without constraints there is nothing to search for: M^-1 qfrc_smooth."""
    qacc = solve_inertia(model, objective.qM, objective.qfrc_smooth)
    zero = jnp.zeros((), qacc.dtype)
    return Minimum(qacc, jnp.zeros_like(qacc), jnp.zeros((), jnp.int32), zero, jnp.ones((), bool), None)
