"""noslip: friction without regularization, found after the main solver; all other forces stay as they are.

The soft friction of the main problem lets a loaded contact creep. This pass minimizes 1/2 z^T A z + z^T b over the
friction forces z alone, A = J M^-1 J^T without R, within the bounds that the fixed normal forces give: an interval for
dry friction and for each pair of opposing pyramid edges, an ellipsoid for the sides of an elliptic contact. In the
coordinates y = z / friction the ellipsoid is a ball. Sweeps over the constraints solve one at a time exactly
(projected Gauss-Seidel), so an early end still respects all bounds. The derivative is that of the fixed point
(slip_adjoint.py). Source: MuJoCo documentation, "Computation", noslip solver.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.constraint import laws
from diffsim.math import safe
from diffsim.math.linalg import cho_solve, cholesky, matmul
from diffsim.math.vector import scale
from diffsim.solver.objective import PerFamily, dual_on_dofs
from diffsim.solver.slip_adjoint import Cones, Slip, at_rest
from diffsim.types import Model
from diffsim.types.constraints import Constraints, Law, Rows

Array = jax.Array

MINVAL = 1e-15
# Newton iterations for the multiplier of a ball; it converges quadratically and from one side
NEWTON = 12


class Part(NamedTuple):
    """The friction rows of one family: scaled rows (k, nv) of J and aref (k,), forces (k,), bounds (k,)."""

    jacobian: Array
    aref: Array
    force: Array
    limit: Array


def without_slip(
    model: Model, qM: Array, qfrc_smooth: Array, constraints: Constraints, qacc: Array, forces: PerFamily
) -> tuple[Array, PerFamily, Array]:
    """qacc (nv,), row forces and the number of sweeps, after friction is made rigid.

    Args:
      qM: (nv, nv) inertia matrix.
      qfrc_smooth: (nv,) all forces but those of the constraints.
      constraints: the rows.
      qacc: (nv,) solution of the soft problem, which stays where there is no friction.
      forces: (forces, n) row forces of each family at that solution.
    """
    families = constraints.families
    parts = [_part(model, constraints, *pair) for pair in zip(families, forces, strict=True)]
    found = [part for part in parts if part is not None]
    if not found:
        return qacc, forces, jnp.zeros((), jnp.int32)
    jacobian, aref, start, limit = (jnp.concatenate(arrays) for arrays in zip(*found, strict=True))
    slip = Slip(jacobian, aref, limit)
    normal = tuple(_without_friction(*pair) for pair in zip(families, forces, strict=True))
    force = qfrc_smooth + dual_on_dofs(constraints, normal)
    cones = _cones(families)
    fixed = jax.lax.stop_gradient((model, qM, force, slip, start, _regularization_cost(constraints, forces)))
    y, sweeps = _iterate(*fixed, cones)
    y = at_rest(cones, y, qM, force, slip)
    final, begin = [], 0
    for family, part, own, old in zip(families, parts, normal, forces, strict=True):
        count = 0 if part is None else part.aref.shape[0]
        final.append(own if part is None else _with_friction(model, family, own, old, y[begin : begin + count]))
        begin += count
    qacc = cho_solve(cholesky(qM), force + matmul(y, jacobian))
    return qacc, tuple(final), sweeps


def _part(model: Model, constraints: Constraints, rows: Rows, forces: Array) -> Part | None:
    """Friction rows of a family, contact by contact; None if it has none."""
    if rows.law == Law.BOUNDED:
        if rows.sign:
            dof = _dofs(model)
            unit = jnp.asarray(np.eye(model.nv)[dof], forces.dtype)
            return Part(unit, rows.aref[0, dof], forces[0, dof], rows.frictionloss[dof])
        block = constraints.J[rows.start : rows.start + rows.height]
        return Part(block, rows.aref[0], forces[0], rows.frictionloss)
    if rows.law not in (Law.PYRAMID, Law.CONE):
        return None
    block = constraints.J[rows.start : rows.start + rows.height].reshape(rows.dim, rows.count, -1)[1:]
    jacobian, aref, friction = jnp.swapaxes(block, 0, 1), rows.aref[1:].T, rows.friction.T
    if rows.law == Law.PYRAMID:
        limit = friction * (forces[0::2] + forces[1::2]).T
        force = friction * (forces[0::2] - forces[1::2]).T
    else:
        jacobian, aref = jacobian * friction[:, :, None], aref * friction
        limit = jnp.broadcast_to(forces[0][:, None], friction.shape)
        force = safe.divide(forces[1:].T, friction)
    return Part(jacobian.reshape(-1, model.nv), *(leaf.reshape(-1) for leaf in (aref, force, limit)))


def _dofs(model: Model) -> np.ndarray:
    """Dofs with dry friction."""
    return np.flatnonzero(model.topology.present["dof_frictionloss"])


def _cones(families: tuple[Rows, ...]) -> Cones:
    """Elliptic contacts; their rows come after all others."""
    return tuple((rows.count, rows.dim - 1) for rows in families if rows.law == Law.CONE)


def _without_friction(rows: Rows, forces: Array) -> Array:
    """Row forces with the friction taken out."""
    if rows.law == Law.BOUNDED:
        return jnp.zeros_like(forces)
    if rows.law == Law.PYRAMID:
        middle = 0.5 * (forces[0::2] + forces[1::2])
        return laws.join_edges(middle, middle)
    if rows.law == Law.CONE:
        return jnp.concatenate([forces[:1], jnp.zeros_like(forces[1:])])
    return forces


def _with_friction(model: Model, rows: Rows, normal: Array, old: Array, y: Array) -> Array:
    """Row forces from those without friction and the found y; dofs without dry friction keep the `old` ones."""
    if rows.law == Law.BOUNDED:
        return old.at[0, _dofs(model)].set(y) if rows.sign else y[None]
    side = y.reshape(rows.count, rows.dim - 1).T
    if rows.law == Law.CONE:
        return jnp.concatenate([normal[:1], rows.friction * side])
    half, middle = 0.5 * safe.divide(side, rows.friction), normal[0::2]
    return laws.join_edges(middle + half, middle - half)


def _regularization_cost(constraints: Constraints, forces: PerFamily) -> Array:
    """Sum of f^2 R / 2 over all rows: what dropping R gains, part of the first sweep's improvement."""
    total = jnp.zeros((), constraints.J.dtype)
    for family, part in zip(constraints.families, forces, strict=True):
        weight = jnp.broadcast_to(family.D, part.shape)
        total = total + 0.5 * jnp.sum(safe.divide(part * part, weight))
    return total


class _Sweeps(NamedTuple):
    y: Array
    gain: Array
    count: Array


class _Ball(NamedTuple):
    """Eigenvalues (n, k) and eigenvectors (n, k, k) of the diagonal blocks of A; their rows begin at `start`."""

    start: int
    value: Array
    vector: Array


def _iterate(
    model: Model, qM: Array, force: Array, slip: Slip, start: Array, dropped: Array, cones: Cones
) -> tuple[Array, Array]:
    """Sweeps until one improves the cost by less than noslip_tolerance, in MuJoCo's units; y and their number."""
    factor = cholesky(qM)
    response = matmul(slip.jacobian, cho_solve(factor, slip.jacobian.T))
    offset = matmul(slip.jacobian, cho_solve(factor, force)) - slip.aref
    boxes = slip.limit.shape[0] - sum(count * width for count, width in cones)
    balls, begin = [], boxes
    for count, width in cones:
        index = begin + np.arange(count * width).reshape(count, width)
        value, vector = jnp.linalg.eigh(response[index[:, :, None], index[:, None, :]], symmetrize_input=False)
        # a block without inertia in some direction: as good as none
        floor = 1e-10 + float(jnp.finfo(value.dtype).eps) * value[:, -1:]
        balls.append(_Ball(begin, jnp.maximum(value, floor), vector))
        begin += count * width
    tolerance = model.opt.noslip_tolerance * model.stat.meaninertia * max(1, model.nv)

    def advance(sweeps: _Sweeps) -> _Sweeps:
        point = (sweeps.y, jnp.where(sweeps.count == 0, dropped, 0))
        if boxes:
            point = jax.lax.fori_loop(0, boxes, lambda i, p: _box(response, offset, slip.limit, i, p), point)
        for ball in balls:
            update = _ball_update(response, offset, slip.limit, ball)
            point = jax.lax.fori_loop(0, ball.value.shape[0], update, point)
        return _Sweeps(*point, sweeps.count + 1)

    def unfinished(sweeps: _Sweeps) -> Array:
        return (sweeps.count < model.opt.noslip_iterations) & ~(sweeps.gain < tolerance)

    first = _Sweeps(start, jnp.full_like(tolerance, jnp.inf), jnp.zeros((), jnp.int32))
    final = jax.lax.while_loop(unfinished, advance, first)
    return final.y, final.count


Point = tuple[Array, Array]
Update = Callable[[Array, Point], Point]


def _box(response: Array, offset: Array, limit: Array, i: Array, point: Point) -> Point:
    """The best y[i] in its interval."""
    y, gain = point
    row = response[i]
    slope = jnp.vdot(row, y) + offset[i]
    bend = jnp.maximum(row[i], MINVAL)
    new = jnp.clip(y[i] - slope / bend, -limit[i], limit[i])
    change = new - y[i]
    return y.at[i].set(new), gain - change * (0.5 * change * bend + slope)


def _ball_update(response: Array, offset: Array, limit: Array, ball: _Ball) -> Update:
    """The update of contact k of a group: the best point of its ball."""
    width, size = ball.value.shape[1], response.shape[0]

    def update(k: Array, point: Point) -> Point:
        y, gain = point
        start = ball.start + k * width
        rows = jax.lax.dynamic_slice(response, (start, jnp.zeros_like(start)), (width, size))
        old = jax.lax.dynamic_slice(y, (start,), (width,))
        slope = matmul(rows, y) + jax.lax.dynamic_slice(offset, (start,), (width,))
        value, vector = ball.value[k], ball.vector[k]
        before = _combine(vector, old)
        push = _combine(vector, slope)
        after = _nearest(value, push - value * before, limit[start])
        change = after - before
        gain = gain - jnp.sum(change * (0.5 * value * change + push))
        return jax.lax.dynamic_update_slice(y, _combine(vector.T, after), (start,)), gain

    return update


def _combine(vectors: Array, weights: Array) -> Array:
    """Sum of weights[i] vectors[i]."""
    total = vectors[0] * weights[0]
    for i in range(1, weights.shape[0]):
        total = total + vectors[i] * weights[i]
    return total


def _nearest(value: Array, linear: Array, radius: Array) -> Array:
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
    loaded = radius > MINVAL
    multiplier = jax.lax.fori_loop(0, NEWTON, advance, jnp.zeros_like(radius))
    bound = -linear / (value + multiplier)
    bound = scale(bound[None], safe.divide(radius, safe.norm(bound))[None])[0]
    return jnp.where(loaded, jnp.where(outside, bound, free), 0)
