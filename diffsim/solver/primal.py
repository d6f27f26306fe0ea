"""The solvers that minimize over accelerations, by directions and exact line search (iteration.py).

Newton's method steps along -H^-1 gradient, with the full Hessian H = M + J^T K J. On a piecewise quadratic cost it ends
after finitely many steps: as soon as no row changes its zone, the step is exact. It stops by MuJoCo's rule, improvement
or gradient below opt.tolerance after scaling by 1 / (meaninertia max(1, nv)).

With hundreds of points of flexes H is neither formed nor factored. Directions are then inexact: conjugate gradients end
when a tenth of the gradient is left (Nocedal and Wright 2006, sec. 7.1). What is held against the tolerance is the most
that the cost can still fall: H is at least M, so that is 1/2 g^T M^-1 g, a bound that holds everywhere.

Nonlinear conjugate gradients (Polak-Ribiere), preconditioned by M: no Hessian, one factor for all iterations.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from diffsim.base.enums import DisableBit
from diffsim.math import safe
from diffsim.math.linalg import PerSize, block_factor, block_solve, solve_blocks
from diffsim.math.stencil_rows import SparseRows
from diffsim.math.vector import inner
from diffsim.solver.hessian import factor_hessian, solve_hessian_inexactly, solve_hessian_once
from diffsim.solver.iteration import Direction, Iterate, Rule, RuleMaker, Settings, iterate
from diffsim.solver.objective import Objective, cost, residuals
from diffsim.types import Model
from diffsim.types.constraints import PerGroup, RowGroup

Array = jax.Array

# what is left of the gradient when an inexact direction is good enough
FORCING = 0.1
# rounding of the residual of a row, in units of the machine epsilon
ROUNDING = 8.0


class Minimum(NamedTuple):
    """How a solver ended: qacc (nv,), the gradient there (nv,), number of iterations, what the last one gained,
    whether it converged, and the row forces where the solver has its own.
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
    """Newton's method from `start` (nv,), or from the acceleration without constraints where warm start is off."""
    factor = block_factor(objective.qM.parts)
    if model.opt.disabled(DisableBit.WARMSTART):
        start = block_solve(objective.qM.blocks, factor, objective.qfrc_smooth)
    if isinstance(objective.constraints.jacobian, SparseRows):
        tolerance = jax.lax.stop_gradient(model.opt.tolerance / cost_scale(model))
        return _descend(model, objective, Method(inexact_newton_rule, True, Inexact(factor, tolerance)), start, unroll)
    return _descend(model, objective, Method(newton_rule, True), start, unroll)


def newton_rule(objective: Objective, _: None) -> Rule:
    """-H^-1 gradient; the first trial of the line search is the full step."""

    def direction(point: Iterate, previous: Direction) -> Direction:
        x = residuals(objective.constraints, point.qacc, point.rows_product)
        step = -solve_hessian_once(objective, x, point.gradient)
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
        # of the energy g^T P^-1 g, twice what the cost can fall, a hundredth of the tolerance is enough
        step = -solve_hessian_inexactly(factored, objective, x, point.gradient, FORCING, 0.02 * aid.tolerance)
        return Direction(step, point.gradient, step)

    def measure(point: Iterate) -> Array:
        possible = 0.5 * inner(point.gradient, block_solve(objective.qM.blocks, aid.factor, point.gradient))
        # what the rounding of J a and aref makes of the cost, over all rows of J
        noise, rows_of_jacobian = jnp.zeros_like(possible), (g for g in objective.constraints.groups if not g.sign)
        for rows in rows_of_jacobian:
            noise += jnp.sum(rows.D * jnp.square(jnp.abs(rows.select(point.rows_product)) + jnp.abs(rows.aref)))
        epsilon = float(jnp.finfo(noise.dtype).eps)
        return jnp.where(possible > 0.5 * (ROUNDING * epsilon) ** 2 * noise, possible, 0)

    return Rule(direction, measure)


def conjugate_gradients(model: Model, objective: Objective, start: Array, unroll: bool) -> Minimum:
    """Conjugate gradients from the acceleration without constraints, or from `start` (nv,) if that is better."""
    factor = block_factor(objective.qM.parts)
    starts = [block_solve(objective.qM.blocks, factor, objective.qfrc_smooth)]
    if not model.opt.disabled(DisableBit.WARMSTART):
        starts.append(start)
    return _descend(model, objective, Method(conjugate_rule, False, factor), lowest(objective, starts), unroll)


def conjugate_rule(objective: Objective, factor: PerSize) -> Rule:
    """-M^-1 g + beta * previous, beta = max(0, g . (M^-1 g - M^-1 g_old) / (g_old . M^-1 g_old)); by a factor of M."""

    def direction(point: Iterate, previous: Direction) -> Direction:
        step = -block_solve(objective.qM.blocks, factor, point.gradient)
        change = inner(point.gradient, previous.step - step)
        beta = safe.maximum(safe.divide(change, -inner(previous.gradient, previous.step)), 0)
        return Direction(step + beta * previous.vector, point.gradient, step)

    return Rule(direction)


class Method(NamedTuple):
    """How directions are chosen, whether they are full steps, and what else the rule needs."""

    rule: RuleMaker
    full_step: bool
    aid: Any = None


def _descend(model: Model, objective: Objective, method: Method, start: Array, unroll: bool) -> Minimum:
    """Iterations from `start`, by the directions that a rule chooses."""
    opt, scale = model.opt, jax.lax.stop_gradient(cost_scale(model))
    settings = Settings(
        tolerance=jax.lax.stop_gradient(opt.tolerance) / scale,
        ls_tolerance=jax.lax.stop_gradient(opt.tolerance * opt.ls_tolerance) / scale,
        iterations=opt.iterations,
        ls_iterations=opt.ls_iterations,
        full_step=method.full_step,
        unroll=unroll,
    )
    groups = tuple(_lean(rows) for rows in objective.constraints.groups)
    lean = objective._replace(constraints=objective.constraints.replace(groups=groups))
    end = iterate(lean, method.rule, settings, start, method.aid)
    converged = end.done & ~end.stuck
    return Minimum(end.point.qacc, end.point.gradient, end.iterations, end.improvement, converged, None)


def _lean(rows: RowGroup) -> RowGroup:
    """The group without the fields that no law reads, so that loops do not carry them."""
    none = jnp.zeros_like(rows.pos[:0])
    return dataclasses.replace(rows, pos=none, margin=none, bends=none, vel=none, anchor=none)


def lowest(objective: Objective, candidates: Sequence[Array]) -> Array:
    """The acceleration (nv,) with the lowest cost; the first of those that are equal, or not numbers."""
    best, *others = candidates
    for other in others:
        low, high = (cost(objective, qacc) for qacc in (other, best))
        best = jnp.where(low < high, other, best)
    return best


def unconstrained(model: Model, objective: Objective, start: Array, unroll: bool) -> Minimum:
    """Without constraints there is nothing to search for: M^-1 qfrc_smooth."""
    qacc = solve_blocks(objective.qM, objective.qfrc_smooth)
    zero = jnp.zeros((), qacc.dtype)
    return Minimum(qacc, jnp.zeros_like(qacc), jnp.zeros((), jnp.int32), zero, jnp.ones((), bool), None)
