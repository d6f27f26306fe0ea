"""Projected Gauss-Seidel, the PGS solver: one constraint after another gets its best force while all others are fixed.

PGS solves the dual problem, minimize 1/2 f^T (A + R) f + f^T (J qacc_smooth - aref) over admissible forces f, with
A = J M^-1 J^T and R = 1 / D. Admissible are: any force for equalities; an interval for dry friction; f >= 0 for limits,
frictionless contacts and the edges of pyramids; a cone for elliptic contacts.

The best force y of a constraint minimizes 1/2 (y - old)^T A (y - old) + slope . (y - old), where `slope` is the
gradient at the old forces. It is found in the axes in which the constraint's block of A is diagonal (`value`). Noslip
does the same (noslip_sweeps.py). An elliptic contact moves in two steps, in coordinates y = force / friction where its
cone is circular, |y| <= normal: along the ray through the origin, which scales normal and friction forces together;
then, at that normal force, within the disc of friction forces, where R is the same in all directions of y.

Sweeps converge linearly to the optimum of the primal solvers, which is differentiated in the same way (solve.py).
Source: MuJoCo documentation, "Computation", PGS solver. The order of the constraints, random in MuJoCo, is fixed here.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.enums import MINVAL
from diffsim.constraint import laws
from diffsim.math import safe
from diffsim.math.linalg import block_factor, block_solve
from diffsim.math.vector import inner, matmul, scale
from diffsim.solver.objective import Objective, row_forces, row_forces_on_dofs
from diffsim.types.constraints import Constraints, Law, PerGroup, RowGroup
from diffsim.xla.loops import fori_loop, while_loop

Array = jax.Array

# Newton iterations for the multiplier of a ball; they converge quadratically and from one side
NEWTON = 12


class Cones(NamedTuple):
    """Elliptic contacts among `size` rows: in `groups` (count, width), after all single rows."""

    size: int
    groups: tuple[tuple[int, int], ...]

    @property
    def number(self) -> int:
        """Number of contacts."""
        return sum(count for count, _ in self.groups)

    @property
    def singles(self) -> int:
        """Number of rows of constraints other than elliptic contacts."""
        return self.size - sum(count * width for count, width in self.groups)

    def table(self) -> np.ndarray:
        """(number, widest) the rows of each contact, padded with the dummy row `size`."""
        widest = max((width for _, width in self.groups), default=1)
        start = self.singles
        parts = list[np.ndarray]([np.zeros((0, widest), int)])
        for count, width in self.groups:
            rows = start + np.arange(count * width).reshape(count, width)
            parts.append(np.pad(rows, ((0, 0), (0, widest - width)), constant_values=self.size))
            start += count * width
        return np.concatenate(parts)

    def label(self) -> np.ndarray:
        """(size,) number of the single row or contact that each row belongs to."""
        parts = [np.arange(self.singles)]
        start = self.singles
        for count, width in self.groups:
            parts.append(start + np.repeat(np.arange(count), width))
            start += count
        return np.concatenate(parts)

    def split(self, values: Array) -> list[Array]:
        """(size, ...) as blocks (n, k, ...): the single rows with k = 1, then the contacts of each width."""
        parts = []
        start = 0
        for count, width in ((self.singles, 1), *self.groups):
            stop = start + count * width
            parts.append(values[start:stop].reshape(count, width, *values.shape[1:]))
            start = stop
        return parts


def concatenate(blocks: list[Array]) -> Array:
    """(size, ...) from blocks (n, k, ...): the inverse of `Cones.split`."""
    return jnp.concatenate([block.reshape(-1, *block.shape[2:]) for block in blocks])


def minimum_in_ball(value: Array, linear: Array, radius: Array) -> Array:
    """y (k,) that minimizes 1/2 value y^2 + linear y over |y| <= radius: y = -linear / (value + multiplier).

    The multiplier is 0, or makes |y| = radius. Newton's method from 0 finds it as the root of 1 / radius - 1 / |y|,
    which is nearly linear in the multiplier (secular equation of trust regions: Nocedal and Wright 2006, sec. 4.3).
    """

    def advance(_: int, multiplier: Array) -> Array:
        # d |y|^2 / d multiplier = -2 sum y^2 / (value + multiplier)
        y = linear / (value + multiplier)
        squared = jnp.sum(y * y)
        slope = jnp.sum(y * y / (value + multiplier))
        step = safe.divide(squared * (jnp.sqrt(squared) - radius), slope * radius)
        return safe.maximum(multiplier + step, 0)

    free = -linear / value
    outside = jnp.sum(free * free) > radius * radius
    multiplier = fori_loop(0, NEWTON, advance, jnp.zeros_like(radius))
    bound = -linear / (value + multiplier)
    bound = scale(bound[None], safe.divide(radius, safe.norm(bound))[None])[0]
    return jnp.where(outside, bound, free)


def nearest_in_cone(force: Array) -> Array:
    """The point of the cone |y| <= normal that is nearest to a force (normal, y), (k,)."""
    # itself inside the cone, the tip inside the polar cone |y| <= -normal, else its projection on the surface:
    # (normal + |y|) / 2 along (1, y / |y|)
    normal = force[0]
    size = safe.norm(force[1:])
    share = safe.clip(0.5 * (1 + safe.divide(normal, size)), 0, 1)
    onto = share * jnp.concatenate([size[None], force[1:]])
    return jnp.where(size <= normal, force, jnp.where(size <= -normal, 0, onto))


Point = TypeVar("Point")


def sweep(updates: Sequence[tuple[Array | int, Callable[[Array, Point], Point]]], point: Point) -> Point:
    """One sweep over lists of constraints, each given by its length and the update of its constraint i."""
    for count, update in updates:
        point = fori_loop(0, count, update, point)
    return point


class Spectrum(NamedTuple):
    """Eigenvalues (n, k) and eigenvectors (n, k, k), in columns, of symmetric blocks."""

    value: Array
    vector: Array


def spectrum(block: Array) -> Spectrum:
    """The spectrum of blocks (n, k, k) of A, with eigenvalues raised to a tiny positive number."""
    if block.shape[-1] == 1:
        value = block[:, 0]
        vector = jnp.ones_like(block)
    else:
        value, vector = jnp.linalg.eigh(block, symmetrize_input=False)
    # a contact between bodies that nothing moves has a block of zeros, by which the best force would be divided
    return Spectrum(jnp.maximum(value, MINVAL + float(jnp.finfo(value.dtype).eps) * value[:, -1:]), vector)


def to_axes(vector: Array, y: Array) -> Array:
    """vector^T y: coordinates (k,) of y (k,) along eigenvectors (k, k)."""
    total = vector[0] * y[0]
    for i in range(1, y.shape[0]):
        total = total + vector[i] * y[i]
    return total


def from_axes(vector: Array, y: Array) -> Array:
    """vector y (k,): the inverse of `to_axes`."""
    return to_axes(vector.T, y)


def best_in_interval(old: Array, slope: Array, value: Array, lower: Array, upper: Array) -> Array:
    """() the best y in [lower, upper]."""
    return jnp.clip(old - slope / value, lower, upper)


def best_in_ball(old: Array, slope: Array, value: Array, radius: Array) -> Array:
    """The best y (k,) of |y| <= radius."""
    return minimum_in_ball(value, slope - value * old, radius)


def gain(change: Array, slope: Array, value: Array) -> Array:
    """(k,) how much the objective falls along each axis when the force changes by `change` (k,)."""
    return -change * (0.5 * change * value + slope)


class DualSolution(NamedTuple):
    """How the sweeps ended.

    Attributes:
      forces: (force_count, n) row forces of each group.
      qacc: (nv,) the acceleration that they cause.
      iterations: () number of sweeps.
      improvement: () by how much the last sweep lowered the dual objective.
      done: () whether that was less than the tolerance.
    """

    forces: PerGroup
    qacc: Array
    iterations: Array
    improvement: Array
    done: Array


class _DualRows(NamedTuple):
    """Rows in the coordinates of the search: J (n, nv), aref, R, forces and bounds (n,).

    For elliptic contacts the upper bound only says which contacts act: infinity, else 0.
    """

    jacobian: Array
    aref: Array
    regularization: Array
    force: Array
    lower: Array
    upper: Array


class _Quadratic(NamedTuple):
    """The dual problem: response A + R (n, n), offset J qacc_smooth - aref (n,), bounds (n,)."""

    response: Array
    offset: Array
    lower: Array
    upper: Array


class _State(NamedTuple):
    """Forces (n,); by how much the last sweep lowered the objective, number of sweeps, and if it was the last, ()."""

    force: Array
    improvement: Array
    sweeps: Array
    done: Array


# forces (n,), and by how much the sweep has lowered the objective so far ()
_Point = tuple[Array, Array]
_Update = Callable[[Array, _Point], _Point]


def solve_dual(objective: Objective, qacc: Array | None, tolerance: Array, iterations: int) -> DualSolution:
    """Forces and acceleration after sweeps, which start from the forces at `qacc` or from zero, whichever is better.

    Args:
      objective: with rows, at least one.
      qacc: (nv,) where to start, or None.
      tolerance: the sweeps end after one that improves the dual objective by less.
      iterations: the largest number of sweeps.
    """
    qM, qfrc_smooth, constraints = objective
    groups = constraints.groups
    forces = list(row_forces(constraints, jnp.zeros_like(qfrc_smooth) if qacc is None else qacc))
    # single rows first, then elliptic contacts one after another: two lists, each with one kind of update
    order = sorted(range(len(groups)), key=lambda i: groups[i].law == Law.CONE)
    parts = [_dual_rows(constraints, groups[i], forces[i]) for i in order]
    rows = _DualRows(*(jnp.concatenate(column) for column in zip(*parts, strict=True)))
    cones = Cones(
        rows.aref.shape[0], tuple((groups[i].count, groups[i].dim) for i in order if groups[i].law == Law.CONE)
    )
    factor = block_factor(qM.parts)

    def apply(force: Array) -> Array:
        return block_solve(qM.blocks, factor, force)

    # M^-1 J^T and qacc_smooth = M^-1 qfrc_smooth by one solve; A + R and J qacc_smooth - aref
    solved = jax.vmap(apply)(jnp.concatenate([rows.jacobian, qfrc_smooth[None]]))
    response = matmul(rows.jacobian, solved[:-1].T) + jnp.diag(rows.regularization)
    quadratic = _Quadratic(response, matmul(rows.jacobian, solved[-1]) - rows.aref, rows.lower, rows.upper)
    start = jnp.zeros_like(rows.force) if qacc is None else rows.force
    state = _iterate(quadratic, cones, start, tolerance, iterations)
    begin = 0
    for i, part in zip(order, parts, strict=True):
        end = begin + part.force.shape[0]
        forces[i] = _row_forces(groups[i], state.force[begin:end])
        begin = end
    qacc = apply(qfrc_smooth + row_forces_on_dofs(constraints, tuple(forces)))
    return DualSolution(tuple(forces), qacc, state.sweeps, state.improvement, state.done)


def _dual_rows(constraints: Constraints, rows: RowGroup, force: Array) -> _DualRows:
    """The rows of a group; of elliptic contacts, contact by contact, in the coordinates of a circular cone."""
    basis, active = constraints.basis_jacobian(rows), laws.active(rows)
    inverse = jnp.broadcast_to(safe.divide(jnp.ones_like(rows.D), rows.D), force.shape)
    if rows.law == Law.CONE:
        side = jnp.concatenate([jnp.ones_like(rows.friction[:1]), rows.friction])
        parts = (side[:, :, None] * basis, side * rows.aref, side * side * inverse, safe.divide(force, side))
        upper = jnp.broadcast_to(jnp.where(active, jnp.inf, 0)[None], force.shape)
        return _DualRows(
            *(jnp.swapaxes(part, 0, 1).reshape(-1, *part.shape[2:]) for part in (*parts, 0 * upper, upper))
        )
    bound = {Law.QUADRATIC: jnp.full_like(rows.pos, jnp.inf), Law.BOUNDED: rows.frictionloss}.get(rows.law)
    upper = jnp.where(active, jnp.inf if bound is None else bound, 0)
    lower = jnp.zeros_like(upper) if bound is None else -upper
    columns = (laws.efc_rows(rows, basis), laws.efc_rows(rows, rows.aref), inverse, force)
    bounds = (jnp.broadcast_to(bound[None], force.shape) for bound in (lower, upper))
    return _DualRows(*(column.reshape(-1, *column.shape[2:]) for column in (*columns, *bounds)))


def _row_forces(rows: RowGroup, force: Array) -> Array:
    """(force_count, n) of a group, from its part of the vector of the search."""
    if rows.law != Law.CONE:
        return force.reshape(rows.force_count, rows.count)
    scaled = force.reshape(rows.count, rows.dim).T
    return jnp.concatenate([scaled[:1], rows.friction * scaled[1:]])


def _iterate(quadratic: _Quadratic, cones: Cones, start: Array, tolerance: Array, iterations: int) -> _State:
    """Sweeps until one lowers the objective by no more than the tolerance."""
    # zero forces have the value 0: start from them if the warm start is worse
    value = 0.5 * inner(start, matmul(quadratic.response, start)) + inner(start, quadratic.offset)
    start = jnp.where(value < 0, start, 0)
    updates = [(cones.singles, _interval_update(quadratic))] if cones.singles else []
    updates += [(cones.number, _cone_update(quadratic, cones))] if cones.number else []

    def advance(state: _State) -> _State:
        force, gained = sweep(updates, (state.force, jnp.zeros_like(state.improvement)))
        return _State(force, gained, state.sweeps + 1, ~(gained > tolerance))

    def unfinished(state: _State) -> Array:
        return ~state.done & (state.sweeps < iterations)

    first = _State(start, jnp.zeros((), start.dtype), jnp.zeros((), jnp.int32), jnp.zeros((), bool))
    return while_loop(unfinished, advance, first)


def _interval_update(quadratic: _Quadratic) -> _Update:
    """Row i gets the best force within its bounds."""

    def update(i: Array, point: _Point) -> _Point:
        # f_i <- clip(f_i - ((A + R) f + offset)_i / (A + R)_ii): the minimum along axis i
        force, gained = point
        row = quadratic.response[i]
        slope = inner(row, force) + quadratic.offset[i]
        value = jnp.maximum(row[i], MINVAL)
        new = best_in_interval(force[i], slope, value, quadratic.lower[i], quadratic.upper[i])
        return force.at[i].set(new), gained + gain(new - force[i], slope, value)

    return update


def _cone_update(quadratic: _Quadratic, cones: Cones) -> _Update:
    """Elliptic contact i moves along its ray, and then within the disc of friction forces at this normal force.

    Two convex problems with a closed form or one multiplier each, in place of one on the cone. Source: MuJoCo 3.8.1,
    mj_solPGS.
    """
    # a row of zeros stands for the rows that smaller contacts do not have
    response = jnp.pad(quadratic.response, ((0, 1), (0, 1)))
    offset = jnp.append(quadratic.offset, 0)
    table = cones.table()
    rows = jnp.asarray(table)
    acts = jnp.append(quadratic.upper, 0)[table[:, 0]] > 0
    blocks = response[rows[:, :, None], rows[:, None, :]]
    values, vectors = spectrum(blocks[:, 1:, 1:])

    def update(i: Array, point: _Point) -> _Point:
        forces, gained = point
        row, block, value, vector = rows[i], blocks[i], values[i], vectors[i]
        padded = jnp.append(forces, 0)
        old = padded[row]
        slope = matmul(response[row], padded) + offset[row]
        on_ray = _along_ray(block, old, slope)
        # the gradient by friction forces there, and the best ones, in the axes of their block
        slope_on_ray = to_axes(vector, (slope + matmul(block, on_ray - old))[1:])
        friction = best_in_ball(to_axes(vector, on_ray[1:]), slope_on_ray, value, on_ray[0])
        new = jnp.concatenate([on_ray[:1], jnp.where(on_ray[0] > MINVAL, from_axes(vector, friction), 0)])
        change = jnp.where(acts[i], new, 0) - old
        gained = gained - (0.5 * inner(change, matmul(block, change)) + inner(change, slope))
        return padded.at[row].add(change)[: cones.size], gained

    return update


def _along_ray(block: Array, force: Array, slope: Array) -> Array:
    """The best force (k,) on the ray through a force; if it is zero, on the steepest descent within the cone."""
    # f = (1 + step) ray or step ray, step = -ray . slope / (ray . A ray), and never behind the tip of the cone
    pressed = force[0] > MINVAL
    ray = jnp.where(pressed, force, nearest_in_cone(-slope))
    step = safe.divide(-inner(ray, slope), inner(ray, matmul(block, ray)))
    return jnp.maximum(jnp.where(pressed, 1, 0) + step, 0) * ray
