"""The noslip sweeps: one constraint after another gets its best friction force, all others fixed (Gauss-Seidel).

Friction rows are the rows of dry friction, and the tangential, torsional and rolling rows of contacts. A pyramid has
one for each pair of opposing edges; an elliptic contact has rows of y = force / friction, in which the cone is
circular. Intervals come first, then balls.

Constraints are swept in MuJoCo's order, so that an early end gives the same forces: dry friction of dofs, then of
tendons, then contacts. Constraints that can carry no friction are left out. Each island stops on its own. Sweeps are
never differentiated. Two differences from MuJoCo: the multiplier of a ball is found to rounding, where MuJoCo makes at
most 20 Newton iterations; and bodies so heavy that the determinant of the block is below 1e-10 get friction too.

A sweep carries along the acceleration of all dofs, to which each row adds the effect of its force, so that the matrix A
is never formed. Rows are sorted beforehand, so that all worlds of a batch work on the same place of their lists. A
sweep is as long as the longest list of the batch.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.enums import MINVAL
from diffsim.constraint import laws
from diffsim.math import safe
from diffsim.math.linalg import cho_solve, cholesky
from diffsim.math.vector import matmul
from diffsim.solver.projected_gauss_seidel import (
    Cones,
    best_in_ball,
    best_in_interval,
    from_axes,
    gain,
    spectrum,
    sweep,
    to_axes,
)
from diffsim.types.constraints import Constraints, Law, RowGroup
from diffsim.types.topology import Topology
from diffsim.xla.gather import pick
from diffsim.xla.loops import while_loop

Array = jax.Array

WITH_FRICTION = (Law.BOUNDED, Law.PYRAMID, Law.CONE)


class FrictionRows(NamedTuple):
    """Friction rows: J (m, nv) and aref (m,) in the coordinates of y; bound of each row, the radius for balls."""

    jacobian: Array
    aref: Array
    limit: Array


class WithForce(NamedTuple):
    """Friction rows of one group, and their forces y (m,)."""

    rows: FrictionRows
    y: Array


def has_friction(rows: RowGroup) -> bool:
    """Whether there are friction rows in a group."""
    return rows.law in WITH_FRICTION


def friction_members(topology: Topology, rows: RowGroup) -> np.ndarray:
    """The rows of a group of dry friction that are swept: dofs that can have friction, or all tendons of the group."""
    return np.flatnonzero(topology.present["dof_frictionloss"]) if rows.on_dofs else np.arange(rows.count)


def friction_count(topology: Topology, rows: RowGroup) -> int:
    """Number of friction rows of a group."""
    if not has_friction(rows):
        return 0
    return len(friction_members(topology, rows)) if rows.law == Law.BOUNDED else rows.count * (rows.dim - 1)


def friction_rows(topology: Topology, constraints: Constraints, rows: RowGroup, forces: Array) -> WithForce:
    """The friction rows of a group that has some, from its row forces (force_count, n)."""
    block = constraints.basis_jacobian(rows)
    if rows.law == Law.BOUNDED:
        members = friction_members(topology, rows)
        jacobian, aref, limit, y = (pick(v, members) for v in (block[0], rows.aref[0], rows.frictionloss, forces[0]))
        return WithForce(FrictionRows(jacobian, aref, limit), y)
    jacobian = jnp.swapaxes(block[1:], 0, 1)
    aref = rows.aref[1:].T
    coefficient = rows.friction.T
    # the edges J_n +- mu_i J_i with forces f+ and f- push sideways by mu_i (f+ - f-), at most mu_i (f+ + f-)
    if rows.law == Law.PYRAMID:
        limit = coefficient * (forces[0::2] + forces[1::2]).T
        y = coefficient * (forces[0::2] - forces[1::2]).T
    else:
        # y_i = f_i / mu_i has rows mu_i J_i, and |y| <= f_n
        jacobian = jacobian * coefficient[:, :, None]
        aref = aref * coefficient
        limit = jnp.broadcast_to(forces[0][:, None], coefficient.shape)
        y = safe.divide(forces[1:].T, coefficient)
    flat = FrictionRows(jacobian.reshape(-1, jacobian.shape[-1]), aref.reshape(-1), limit.reshape(-1))
    return WithForce(flat, y.reshape(-1))


def without_friction(rows: RowGroup, forces: Array) -> Array:
    """Row forces (force_count, n) with the friction taken out."""
    if rows.law == Law.BOUNDED:
        return jnp.zeros_like(forces)
    if rows.law == Law.PYRAMID:
        middle = 0.5 * (forces[0::2] + forces[1::2])
        return laws.alternate(middle, middle)
    if rows.law == Law.CONE:
        return jnp.concatenate([forces[:1], jnp.zeros_like(forces[1:])])
    return forces


def with_friction(topology: Topology, rows: RowGroup, forces: Array, y: Array) -> Array:
    """Row forces with their friction replaced by y (m,); dofs without dry friction keep their forces."""
    if rows.law == Law.BOUNDED:
        return forces.at[0, friction_members(topology, rows)].set(y) if rows.on_dofs else y[None]
    side = y.reshape(rows.count, rows.dim - 1).T
    if rows.law == Law.CONE:
        return jnp.concatenate([forces[:1], rows.friction * side])
    # f+ - f- = y / mu, f+ + f- as it was
    half = 0.5 * safe.divide(side, rows.friction)
    middle = 0.5 * (forces[0::2] + forces[1::2])
    return laws.alternate(middle + half, middle - half)


class Schedule(NamedTuple):
    """How the sweeps go: place in the order and island of each row (m,), when to stop, and which rows form cones.

    `dropped` (nisland,) is the cost of the regularization, which the first sweep gains.
    """

    rank: Array
    island: Array
    dropped: Array
    tolerance: Array
    iterations: int
    cones: Cones


class _Point(NamedTuple):
    """Forces of each list, the acceleration (nv,) there; gain of this sweep and whether it goes on, per island."""

    y: tuple[Array, ...]
    acceleration: Array
    gained: Array
    running: Array


class _Sorted(NamedTuple):
    """Sorted constraints (n,) of k rows each.

    Attributes:
      jacobian, response: (n, k, nv) rows, and accelerations per unit force.
      aref: (n, k).
      limit, island: (n,) bounds of forces, and islands.
      value, vector: (n, k), (n, k, k) eigenvalues and eigenvectors of the blocks of A.
      row: (n, k) the numbers of their rows among all.
      loaded: () how many can carry a force.
    """

    jacobian: Array
    response: Array
    aref: Array
    limit: Array
    island: Array
    value: Array
    vector: Array
    row: Array
    loaded: Array


# (old forces (k,), slope (k,), eigenvalues (k,), bound ()) -> best forces (k,)
_Best = Callable[[Array, Array, Array, Array], Array]


def sweep_until_converged(
    schedule: Schedule, qM: Array, force: Array, rows: FrictionRows, start: Array
) -> tuple[Array, Array]:
    """Forces (m,) after sweeps from `start` (m,), until one gains too little; and the number of sweeps.

    Args:
      qM: inertia matrix (nv, nv).
      force: (nv,) all forces but friction.
    """
    # M^-1 of all rows, and the acceleration without friction, by one factor
    factor = cholesky(qM)
    solved = cho_solve(factor, jnp.concatenate([rows.jacobian, force[None]]).T).T
    response = solved[:-1]
    cones = schedule.cones

    def best_in_bounds(old: Array, slope: Array, value: Array, limit: Array) -> Array:
        return best_in_interval(old, slope, value, -limit, limit)

    tables = [(np.arange(cones.singles)[:, None], best_in_bounds), (cones.table(), best_in_ball)]
    lists = [(_sorted(schedule, rows, response, table), best) for table, best in tables if len(table)]
    updates = [(part.loaded, functools.partial(_update, part, best, i)) for i, (part, best) in enumerate(lists)]
    padded = jnp.append(start, 0)

    def advance(state: tuple[_Point, Array]) -> tuple[_Point, Array]:
        point, count = state
        point = sweep(updates, point._replace(gained=jnp.where(count == 0, schedule.dropped, 0)))
        return point._replace(running=point.running & ~(point.gained < schedule.tolerance)), count + 1

    def unfinished(state: tuple[_Point, Array]) -> Array:
        return (state[1] < schedule.iterations) & jnp.any(state[0].running)

    acceleration = solved[-1] + matmul(start, response)
    running = jnp.ones(schedule.dropped.shape, bool)
    first = _Point(tuple(padded[part.row] for part, _ in lists), acceleration, schedule.dropped, running)
    final, count = while_loop(unfinished, advance, (first, jnp.zeros((), jnp.int32)))
    for (part, _), y in zip(lists, final.y, strict=True):
        padded = padded.at[part.row].set(y)
    return padded[:-1], count


def _sorted(schedule: Schedule, rows: FrictionRows, response: Array, table: np.ndarray) -> _Sorted:
    """The constraints with rows `table` (n, k), those that can carry a force first, in the order of the sweep."""
    first = table[:, 0]
    loaded = rows.limit[first] > MINVAL
    order = jnp.argsort(jnp.where(loaded, schedule.rank[first], jnp.iinfo(schedule.rank.dtype).max))
    row, lead = jnp.asarray(table)[order], jnp.asarray(first)[order]
    # cones with fewer rows than the largest are filled up with rows of zeros
    jacobian, response = (jnp.pad(matrix, ((0, 1), (0, 0)))[row] for matrix in (rows.jacobian, response))
    value, vector = spectrum(matmul(jacobian, jnp.swapaxes(response, 1, 2)))
    return _Sorted(
        jacobian=jacobian,
        response=response,
        aref=jnp.append(rows.aref, 0)[row],
        limit=rows.limit[lead],
        island=schedule.island[lead],
        value=value,
        vector=vector,
        row=row,
        loaded=_longest(jnp.sum(loaded, dtype=jnp.int32)),
    )


@jax.custom_batching.custom_vmap
def _longest(count: Array) -> Array:
    """The count; in a batch the largest count, so that the loop over a list has one index for all worlds."""
    return count


@_longest.def_vmap
def _longest_of_batch(size: int, batched: list[bool], count: Array) -> tuple[Array, bool]:
    return _longest(jnp.max(count)), False


def _update(rows: _Sorted, best: _Best, place: int, i: Array, point: _Point) -> _Point:
    """Gives constraint i of a list its best force."""
    jacobian, response, aref, limit, island, value, vector, _, _ = (
        leaf if leaf.ndim == 0 else jax.lax.dynamic_index_in_dim(leaf, i, keepdims=False) for leaf in rows
    )
    old = jax.lax.dynamic_index_in_dim(point.y[place], i, keepdims=False)
    # along the axes in which the block of A is diagonal
    before = to_axes(vector, old)
    slope = to_axes(vector, matmul(jacobian, point.acceleration) - aref)
    goes_on = jnp.any((island == jnp.arange(point.running.shape[0])) & point.running)
    change = jnp.where(goes_on & (limit > MINVAL), best(before, slope, value, limit) - before, 0)
    gained = jnp.sum(gain(change, slope, value))
    push = from_axes(vector, change)
    y = jax.lax.dynamic_update_index_in_dim(point.y[place], old + push, i, 0)
    return point._replace(
        y=(*point.y[:place], y, *point.y[place + 1 :]),
        acceleration=point.acceleration + matmul(push, response),
        gained=point.gained + jnp.where(island == jnp.arange(point.gained.shape[0]), gained, 0),
    )
