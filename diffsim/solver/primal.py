"""The solvers that minimize over accelerations: Newton and conjugate gradients, from the best start at hand."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from diffsim.base.enums import DisableBit
from diffsim.math.block_matrix import solve_blocks
from diffsim.math.blocks import block_factor, block_solve
from diffsim.math.stencil_rows import SparseRows
from diffsim.solver.conjugate_gradient import conjugate_rule
from diffsim.solver.iteration import RuleMaker, Settings, iterate
from diffsim.solver.newton import Inexact, inexact_newton_rule, newton_rule
from diffsim.solver.objective import Objective, cost
from diffsim.types import Model
from diffsim.types.constraints import PerGroup, RowGroup

Array = jax.Array


class Minimum(NamedTuple):
    """How a solver ended: qacc (nv,), the gradient there (nv,), number of iterations, what the last one gained,
    whether it found the minimum, and the row forces where the solver has its own.
    """

    qacc: Array
    gradient: Array
    iterations: Array
    improvement: Array
    found: Array
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


def conjugate_gradients(model: Model, objective: Objective, start: Array, unroll: bool) -> Minimum:
    """Conjugate gradients from the acceleration without constraints, or from `start` (nv,) if that is better."""
    factor = block_factor(objective.qM.parts)
    starts = [block_solve(objective.qM.blocks, factor, objective.qfrc_smooth)]
    if not model.opt.disabled(DisableBit.WARMSTART):
        starts.append(start)
    return _descend(model, objective, Method(conjugate_rule, False, factor), lowest(objective, starts), unroll)


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
    given = objective._replace(constraints=objective.constraints.replace(groups=groups))
    end = iterate(given, method.rule, settings, start, method.aid)
    found = end.done & ~end.stuck
    return Minimum(end.point.qacc, end.point.gradient, end.iterations, end.improvement, found, None)


def _lean(rows: RowGroup) -> RowGroup:
    """What the laws read of a group, and nothing that would be carried along in loops."""
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
