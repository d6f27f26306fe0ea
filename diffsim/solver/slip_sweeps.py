"""The noslip sweeps: one constraint after another gets its best friction force, all others held (Gauss-Seidel).

Constraints come in MuJoCo's order, so that also an early end is the same: dry friction of dofs, then of tendons, then
contacts; those that can carry no friction are left out of the sweep. Each island stops for itself. The forces are in
the coordinates of noslip.py: intervals first, then balls. Never differentiated. The multiplier of a ball is found to
rounding; MuJoCo makes at most 20 Newton iterations, and gives no friction to bodies so heavy that the determinant of
the block is below 1e-10, which is not done here.

A sweep carries the acceleration along: a row reads its own velocity change from it and adds its force to it, so that
the matrix A is never formed. Rows are sorted beforehand; all worlds of a batch then work on the same place of their
lists, and as many places are visited as the longest list has.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.math import safe
from diffsim.math.linalg import cho_solve, cholesky, matmul
from diffsim.math.vector import scale
from diffsim.solver.slip_adjoint import Cones, Slip

Array = jax.Array

MINVAL = 1e-15
# Newton iterations for the multiplier of a ball; it converges quadratically and from one side
NEWTON = 12


class Plan(NamedTuple):
    """What the sweeps need besides the rows: place in the order and island of each row, and when to stop.

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
    gain: Array
    running: Array


class _List(NamedTuple):
    """Sorted constraints of k rows each: rows and accelerations per unit force (n, k, nv), aref (n, k), bounds and
    islands (n,), eigenvalues (n, k) and eigenvectors (n, k, k) of the blocks of A; the row (n, k) that each stands for,
    and how many can carry a force.
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


Best = Callable[[Array, Array, Array], Array]


def sweep(plan: Plan, qM: Array, force: Array, slip: Slip, start: Array) -> tuple[Array, Array]:
    """Forces (m,) after sweeps from `start` (m,), until one gains too little; and the number of sweeps."""
    factor = cholesky(qM)
    solved = cho_solve(factor, jnp.concatenate([slip.jacobian, force[None]]).T).T
    response, size = solved[:-1], start.shape[0]
    boxes = size - sum(count * width for count, width in plan.cones)
    tables = [(np.arange(boxes)[:, None], _interval), (ball_rows(plan.cones, size), nearest)]
    lists = [(_sorted(plan, slip, response, table), best) for table, best in tables if len(table)]
    padded = jnp.append(start, 0)

    def advance(state: tuple[_Point, Array]) -> tuple[_Point, Array]:
        point, count = state
        point = point._replace(gain=jnp.where(count == 0, plan.dropped, 0))
        for place, (rows, best) in enumerate(lists):
            point = jax.lax.fori_loop(0, rows.loaded, functools.partial(_update, rows, best, place), point)
        return point._replace(running=point.running & ~(point.gain < plan.tolerance)), count + 1

    def unfinished(state: tuple[_Point, Array]) -> Array:
        return (state[1] < plan.iterations) & jnp.any(state[0].running)

    acceleration = solved[-1] + matmul(start, response)
    running = jnp.ones(plan.dropped.shape, bool)
    first = _Point(tuple(padded[rows.row] for rows, _ in lists), acceleration, plan.dropped, running)
    final, count = jax.lax.while_loop(unfinished, advance, (first, jnp.zeros((), jnp.int32)))
    for (rows, _), y in zip(lists, final.y, strict=True):
        padded = padded.at[rows.row].set(y)
    return padded[:-1], count


def _sorted(plan: Plan, slip: Slip, response: Array, table: np.ndarray) -> _List:
    """The constraints with rows `table` (n, k), those that can carry a force first, in the order of the sweep."""
    first = table[:, 0]
    able = slip.limit[first] > MINVAL
    order = jnp.argsort(jnp.where(able, plan.rank[first], jnp.iinfo(plan.rank.dtype).max))
    row, lead = jnp.asarray(table)[order], jnp.asarray(first)[order]
    # the dummy row of narrow balls
    jacobian, response = (jnp.pad(rows, ((0, 1), (0, 0)))[row] for rows in (slip.jacobian, response))
    block = matmul(jacobian, jnp.swapaxes(response, 1, 2))
    if table.shape[1] == 1:
        value, vector = block[:, 0], jnp.ones_like(block)
    else:
        value, vector = jnp.linalg.eigh(block, symmetrize_input=False)
    # a block without inertia in some direction: as good as none
    value = jnp.maximum(value, MINVAL + float(jnp.finfo(value.dtype).eps) * value[:, -1:])
    return _List(
        jacobian=jacobian,
        response=response,
        aref=jnp.append(slip.aref, 0)[row],
        limit=slip.limit[lead],
        island=plan.island[lead],
        value=value,
        vector=vector,
        row=row,
        loaded=_longest(jnp.sum(able, dtype=jnp.int32)),
    )


@jax.custom_batching.custom_vmap
def _longest(count: Array) -> Array:
    """The count; of a batch the largest, so that the loop over a list has one index for all worlds."""
    return count


@_longest.def_vmap
def _longest_of_batch(size: int, batched: list[bool], count: Array) -> tuple[Array, bool]:
    return _longest(jnp.max(count)), False


def _update(rows: _List, best: Best, place: int, i: Array, point: _Point) -> _Point:
    """Gives constraint i of a list its best force."""
    jacobian, response, aref, limit, island, value, vector, _, _ = (
        leaf if leaf.ndim == 0 else jax.lax.dynamic_index_in_dim(leaf, i, keepdims=False) for leaf in rows
    )
    old = jax.lax.dynamic_index_in_dim(point.y[place], i, keepdims=False)
    # along the axes in which the block of A is diagonal
    before, push = combine(vector, old), combine(vector, matmul(jacobian, point.acceleration) - aref)
    after = best(value, push - value * before, limit)
    goes_on = jnp.any((island == jnp.arange(point.running.shape[0])) & point.running)
    change = jnp.where(goes_on & (limit > MINVAL), after - before, 0)
    gain = -jnp.sum(change * (0.5 * value * change + push))
    turned = combine(vector.T, change)
    y = jax.lax.dynamic_update_index_in_dim(point.y[place], old + turned, i, 0)
    return point._replace(
        y=(*point.y[:place], y, *point.y[place + 1 :]),
        acceleration=point.acceleration + matmul(turned, response),
        gain=point.gain + jnp.where(island == jnp.arange(point.gain.shape[0]), gain, 0),
    )


def _interval(value: Array, linear: Array, limit: Array) -> Array:
    """Minimizes 1/2 value y^2 + linear y over |y| <= limit."""
    return jnp.clip(-linear / value, -limit, limit)


def ball_rows(cones: Cones, size: int) -> np.ndarray:
    """(nball, width) rows of each ball; where it has fewer than the widest one, the dummy row `size`."""
    width = max((own for _, own in cones), default=1)
    start, parts = size - sum(count * own for count, own in cones), []
    for count, own in cones:
        rows = start + np.arange(count * own).reshape(count, own)
        parts.append(np.pad(rows, ((0, 0), (0, width - own)), constant_values=size))
        start += count * own
    return np.concatenate([np.zeros((0, width), int), *parts])


def combine(vectors: Array, weights: Array) -> Array:
    """vectors^T weights: the sum of weights[i] vectors[i]."""
    total = vectors[0] * weights[0]
    for i in range(1, weights.shape[0]):
        total = total + vectors[i] * weights[i]
    return total


def nearest(value: Array, linear: Array, radius: Array) -> Array:
    """Minimizes 1/2 value y^2 + linear y over |y| <= radius: y = -linear / (value + multiplier).

    The multiplier makes |y| = radius; Newton's method on 1 / |y|, nearly linear in it, from zero.
    """

    def advance(_: int, multiplier: Array) -> Array:
        share = linear / (value + multiplier)
        squared = jnp.sum(share * share)
        slope = jnp.sum(share * share / (value + multiplier))
        step = safe.divide(squared * (jnp.sqrt(squared) - radius), slope * radius)
        return jnp.maximum(multiplier + step, 0)

    free = -linear / value
    outside = jnp.sum(free * free) > radius * radius
    multiplier = jax.lax.fori_loop(0, NEWTON, advance, jnp.zeros_like(radius))
    bound = -linear / (value + multiplier)
    bound = scale(bound[None], safe.divide(radius, safe.norm(bound))[None])[0]
    return jnp.where(outside, bound, free)
