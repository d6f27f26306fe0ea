"""Projected Gauss-Seidel: the dual problem, one constraint after another gets its best force, all others held.

minimize 1/2 f^T (A + R) f + f^T (J qacc_smooth - aref) over admissible forces f, with A = J M^-1 J^T and R = 1 / D: any
force for equalities, an interval for dry friction, f >= 0 for limits, frictionless contacts and the edges of pyramids,
a cone for elliptic contacts. A contact of the last kind moves along its ray through the origin, which scales normal and
friction, and then within the disc that its normal force allows. In the coordinates y = f / friction of the sides the
disc is a ball, and R is the same in all directions. Sweeps converge linearly, to the optimum of the primal solvers; the
derivative is theirs (adjoint.py). Source: MuJoCo documentation, "Computation", PGS solver; its random order of the
constraints is replaced by a fixed one.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from diffsim.constraint import laws
from diffsim.constraint.views import basis_jacobian
from diffsim.math import safe
from diffsim.math.block_matrix import BlockDiagonal
from diffsim.math.blocks import block_factor, block_solve
from diffsim.math.linalg import matmul
from diffsim.solver.objective import PerFamily, dual_on_dofs, row_forces
from diffsim.solver.slip_adjoint import Cones
from diffsim.solver.slip_sweeps import ball_rows, combine, nearest
from diffsim.types.constraints import Constraints, Law, Rows

Array = jax.Array

MINVAL = 1e-15


class DualSolution(NamedTuple):
    """Row forces of each family, the acceleration that they cause, and how the search ended."""

    forces: PerFamily
    qacc: Array
    iterations: Array
    improvement: Array
    done: Array


class _Part(NamedTuple):
    """Rows of a family: J (n, nv), aref, R and forces (n,), and bounds (n,), which cones do not use."""

    jacobian: Array
    aref: Array
    regularization: Array
    force: Array
    lower: Array
    upper: Array


class _Given(NamedTuple):
    """The problem: A + R (n, n), offset J qacc_smooth - aref (n,), bounds (n,)."""

    response: Array
    offset: Array
    lower: Array
    upper: Array


class _State(NamedTuple):
    """Forces, what the last sweep gained, number of sweeps, whether it was the last."""

    force: Array
    improvement: Array
    sweeps: Array
    done: Array


_Point = tuple[Array, Array]
_Update = Callable[[Array, _Point], _Point]


def solve_dual(
    qM: BlockDiagonal,
    qfrc_smooth: Array,
    constraints: Constraints,
    qacc: Array | None,
    tolerance: Array,
    iterations: int,
) -> DualSolution:
    """Forces and acceleration after sweeps, from the forces at `qacc` or from none, whichever is better.

    Args:
      qM: inertia matrix, by blocks.
      qfrc_smooth: (nv,) all other forces.
      constraints: the rows; there are some.
      qacc: (nv,) where to start, or None.
      tolerance: the sweeps end with one that improves the objective by less.
      iterations: the most sweeps.
    """
    families = constraints.families
    found = row_forces(constraints, jnp.zeros_like(qfrc_smooth) if qacc is None else qacc)
    # simple rows first, then cones, contact by contact
    order = sorted(range(len(families)), key=lambda i: families[i].law == Law.CONE)
    parts = [_part(constraints, families[i], found[i]) for i in order]
    rows = _Part(*(jnp.concatenate(column) for column in zip(*parts, strict=True)))
    cones = tuple((families[i].count, families[i].dim) for i in order if families[i].law == Law.CONE)
    factor = block_factor(qM.parts)

    def apply(force: Array) -> Array:
        return block_solve(qM.blocks, factor, force)

    solved = jax.vmap(apply)(jnp.concatenate([rows.jacobian, qfrc_smooth[None]]))
    given = _Given(
        matmul(rows.jacobian, solved[:-1].T) + jnp.diag(rows.regularization),
        matmul(rows.jacobian, solved[-1]) - rows.aref,
        rows.lower,
        rows.upper,
    )
    start = jnp.zeros_like(rows.force) if qacc is None else rows.force
    state = _iterate(given, cones, start, tolerance, iterations)
    forces, begin = list(found), 0
    for i, part in zip(order, parts, strict=True):
        end = begin + part.force.shape[0]
        forces[i], begin = _row_forces(families[i], state.force[begin:end]), end
    qacc = apply(qfrc_smooth + dual_on_dofs(constraints, tuple(forces)))
    return DualSolution(tuple(forces), qacc, state.sweeps, state.improvement, state.done)


def _part(constraints: Constraints, rows: Rows, force: Array) -> _Part:
    basis, there = basis_jacobian(constraints, rows), laws.active(rows)
    inverse = jnp.broadcast_to(safe.divide(jnp.ones_like(rows.D), rows.D), force.shape)
    if rows.law == Law.CONE:
        side = jnp.concatenate([jnp.ones_like(rows.friction[:1]), rows.friction])
        parts = (side[:, :, None] * basis, side * rows.aref, side * side * inverse, safe.divide(force, side))
        upper = jnp.broadcast_to(jnp.where(there, jnp.inf, 0)[None], force.shape)
        return _Part(*(jnp.swapaxes(part, 0, 1).reshape(-1, *part.shape[2:]) for part in (*parts, 0 * upper, upper)))
    bound = {Law.QUADRATIC: jnp.full_like(rows.pos, jnp.inf), Law.BOUNDED: rows.frictionloss}.get(rows.law)
    upper = jnp.where(there, jnp.inf if bound is None else bound, 0)
    lower = jnp.zeros_like(upper) if bound is None else -upper
    columns = (laws.dual_rows(rows, basis), laws.dual_rows(rows, rows.aref), inverse, force)
    bounds = (jnp.broadcast_to(bound[None], force.shape) for bound in (lower, upper))
    return _Part(*(column.reshape(-1, *column.shape[2:]) for column in (*columns, *bounds)))


def _row_forces(rows: Rows, force: Array) -> Array:
    """(forces, n) of a family, from the vector that was searched for."""
    if rows.law != Law.CONE:
        return force.reshape(rows.forces, rows.count)
    scaled = force.reshape(rows.count, rows.dim).T
    return jnp.concatenate([scaled[:1], rows.friction * scaled[1:]])


def _iterate(given: _Given, cones: Cones, start: Array, tolerance: Array, iterations: int) -> _State:
    """Sweeps until one gains too little."""
    value = 0.5 * jnp.vdot(start, matmul(given.response, start)) + jnp.vdot(start, given.offset)
    start = jnp.where(value < 0, start, 0)
    simple = start.shape[0] - sum(count * dim for count, dim in cones)
    updates = [(simple, _interval(given))] if simple else []
    updates += [(sum(count for count, _ in cones), _cone(given, cones))] if cones else []

    def advance(state: _State) -> _State:
        point = (state.force, jnp.zeros_like(state.improvement))
        for count, update in updates:
            point = jax.lax.fori_loop(0, count, update, point)
        force, gain = point
        return _State(force, gain, state.sweeps + 1, ~(gain > tolerance))

    def unfinished(state: _State) -> Array:
        return ~state.done & (state.sweeps < iterations)

    first = _State(start, jnp.zeros((), start.dtype), jnp.zeros((), jnp.int32), jnp.zeros((), bool))
    return jax.lax.while_loop(unfinished, advance, first)


def _interval(given: _Given) -> _Update:
    """Row i gets the best force within its bounds."""

    def update(i: Array, point: _Point) -> _Point:
        force, gain = point
        row = given.response[i]
        slope, bend = jnp.vdot(row, force) + given.offset[i], jnp.maximum(row[i], MINVAL)
        new = jnp.clip(force[i] - slope / bend, given.lower[i], given.upper[i])
        change = new - force[i]
        return force.at[i].set(new), gain - change * (0.5 * change * bend + slope)

    return update


def _cone(given: _Given, cones: Cones) -> _Update:
    """Elliptic contact i: along its ray, then its friction at fixed normal force."""
    size = given.offset.shape[0]
    # a row of zeros stands for the rows that smaller contacts do not have
    response, offset = jnp.pad(given.response, ((0, 1), (0, 1))), jnp.append(given.offset, 0)
    table = ball_rows(cones, size)
    rows, there = jnp.asarray(table), jnp.append(given.upper, 0)[table[:, 0]] > 0
    blocks = response[rows[:, :, None], rows[:, None, :]]
    value, vector = jnp.linalg.eigh(blocks[:, 1:, 1:], symmetrize_input=False)
    value = jnp.maximum(value, MINVAL + float(jnp.finfo(value.dtype).eps) * value[:, -1:])

    def update(i: Array, point: _Point) -> _Point:
        padded, gain = point
        mine, block, bend, axes = rows[i], blocks[i], value[i], vector[i]
        force = jnp.append(padded, 0)
        old, slope = force[mine], matmul(response[mine], force) + offset[mine]
        ray = _along_ray(block, old, slope)
        push = combine(axes, (slope + matmul(block, ray - old))[1:])
        side = nearest(bend, push - bend * combine(axes, ray[1:]), ray[0])
        new = jnp.concatenate([ray[:1], jnp.where(ray[0] > MINVAL, combine(axes.T, side), 0)])
        change = jnp.where(there[i], new, 0) - old
        gain = gain - (0.5 * jnp.vdot(change, matmul(block, change)) + jnp.vdot(change, slope))
        return force.at[mine].add(change)[:size], gain

    return update


def _along_ray(block: Array, force: Array, slope: Array) -> Array:
    """The best force along the ray of a force; without one, along the steepest descent within the cone."""
    loaded = force[0] > MINVAL
    ray = jnp.where(loaded, force, _project(-slope))
    best = safe.divide(-jnp.vdot(ray, slope), jnp.vdot(ray, matmul(block, ray)))
    return jnp.maximum(jnp.where(loaded, 1, 0) + best, 0) * ray


def _project(force: Array) -> Array:
    """The nearest point of the cone |y| <= normal."""
    normal, size = force[0], safe.norm(force[1:])
    share = jnp.clip(0.5 * (1 + safe.divide(normal, size)), 0, 1)
    onto = share * jnp.concatenate([size[None], force[1:]])
    return jnp.where(size <= normal, force, jnp.where(size <= -normal, 0, onto))
