"""The noslip sweeps: one constraint after another gets its best friction force, all others held (Gauss-Seidel).

Constraints come in MuJoCo's order, so that also an early end is the same: dry friction of dofs, then of tendons, then
contacts; those that can carry no friction are left out of the sweep. Each island stops for itself. The forces are in
the coordinates of noslip.py: intervals first, then balls. Never differentiated. The multiplier of a ball is found to
rounding; MuJoCo makes at most 20 Newton iterations, and gives no friction to bodies so heavy that the determinant of
the block is below 1e-10, which is not done here.
"""

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
    """Forces (m + 1,), where the last is a dummy; gain of the running sweep and whether it goes on, per island."""

    y: Array
    gain: Array
    running: Array


class _Given(NamedTuple):
    """The problem: A (m + 1, m + 1), b, bounds and islands of the rows."""

    response: Array
    offset: Array
    limit: Array
    island: Array


Update = Callable[[Array, _Point], _Point]


def sweep(plan: Plan, qM: Array, force: Array, slip: Slip, start: Array) -> tuple[Array, Array]:
    """Forces (m,) after sweeps from `start` (m,), until one gains too little; and the number of sweeps."""
    given = _given(plan, qM, force, slip)
    updates = [(count, update) for count, update in (_boxes(plan, given), _balls(plan, given)) if update is not None]

    def advance(state: tuple[_Point, Array]) -> tuple[_Point, Array]:
        (y, _, running), count = state
        point = _Point(y, jnp.where(count == 0, plan.dropped, 0), running)
        for loaded, update in updates:
            point = jax.lax.fori_loop(0, loaded, update, point)
        return point._replace(running=running & ~(point.gain < plan.tolerance)), count + 1

    def unfinished(state: tuple[_Point, Array]) -> Array:
        return (state[1] < plan.iterations) & jnp.any(state[0].running)

    running = jnp.ones(plan.dropped.shape, bool)
    first = _Point(jnp.append(start, 0), plan.dropped, running), jnp.zeros((), jnp.int32)
    final, count = jax.lax.while_loop(unfinished, advance, first)
    return final.y[:-1], count


def _given(plan: Plan, qM: Array, force: Array, slip: Slip) -> _Given:
    factor = cholesky(qM)
    response = matmul(slip.jacobian, cho_solve(factor, slip.jacobian.T))
    offset = matmul(slip.jacobian, cho_solve(factor, force)) - slip.aref
    wide = jnp.pad(response, ((0, 1), (0, 1)))
    return _Given(wide, jnp.append(offset, 0), jnp.append(slip.limit, 0), jnp.append(plan.island, 0))


def _loaded(rank: Array, limit: Array) -> tuple[Array, Array]:
    """Indices in the order of the sweep, those that can carry a force first, and the number of these."""
    able = limit > MINVAL
    order = jnp.argsort(jnp.where(able, rank, jnp.iinfo(rank.dtype).max))
    return order, jnp.sum(able, dtype=jnp.int32)


def _boxes(plan: Plan, given: _Given) -> tuple[Array, Update | None]:
    """The number of loaded intervals, and the update of the i-th: the best y in it."""
    boxes = plan.rank.shape[0] - sum(count * width for count, width in plan.cones)
    if not boxes:
        return jnp.zeros((), jnp.int32), None
    order, loaded = _loaded(plan.rank[:boxes], given.limit[:boxes])

    def update(i: Array, point: _Point) -> _Point:
        index = order[i]
        row, limit, island = given.response[index], given.limit[index], given.island[index]
        slope = jnp.vdot(row, point.y) + given.offset[index]
        bend = jnp.maximum(row[index], MINVAL)
        old = point.y[index]
        new = jnp.where(point.running[island], jnp.clip(old - slope / bend, -limit, limit), old)
        change = new - old
        gain = point.gain.at[island].add(-change * (0.5 * change * bend + slope))
        return point._replace(y=point.y.at[index].set(new), gain=gain)

    return loaded, update


def _balls(plan: Plan, given: _Given) -> tuple[Array, Update | None]:
    """The number of loaded balls, and the update of the i-th: the best y in it."""
    if not plan.cones:
        return jnp.zeros((), jnp.int32), None
    table = ball_rows(plan.cones, plan.rank.shape[0])
    rows = jnp.asarray(table)
    order, loaded = _loaded(plan.rank[table[:, 0]], given.limit[table[:, 0]])
    value, vector = jnp.linalg.eigh(given.response[rows[:, :, None], rows[:, None, :]], symmetrize_input=False)
    # a block without inertia in some direction: as good as none
    value = jnp.maximum(value, 1e-10 + float(jnp.finfo(value.dtype).eps) * value[:, -1:])

    def update(i: Array, point: _Point) -> _Point:
        ball = order[i]
        mine, bend, axes = rows[ball], value[ball], vector[ball]
        island, radius = given.island[mine[0]], given.limit[mine[0]]
        old = point.y[mine]
        slope = matmul(given.response[mine], point.y) + given.offset[mine]
        before, push = combine(axes, old), combine(axes, slope)
        after = nearest(bend, push - bend * before, radius)
        change = jnp.where(point.running[island], after - before, 0)
        gain = point.gain.at[island].add(-jnp.sum(change * (0.5 * bend * change + push)))
        return point._replace(y=point.y.at[mine].set(old + combine(axes.T, change)), gain=gain)

    return loaded, update


def ball_rows(cones: Cones, size: int) -> np.ndarray:
    """(nball, width) rows of each ball; where it has fewer than the widest one, the dummy row `size`."""
    width = max(own for _, own in cones)
    start, parts = size - sum(count * own for count, own in cones), []
    for count, own in cones:
        rows = start + np.arange(count * own).reshape(count, own)
        parts.append(np.pad(rows, ((0, 0), (0, width - own)), constant_values=size))
        start += count * own
    return np.concatenate(parts)


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
