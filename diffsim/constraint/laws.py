"""Laws: cost, force and curvature of a family of rows as functions of x = J qacc - aref.

The solver minimizes the smooth cost of an acceleration plus sum cost(x) over all families (solver/objective.py);
force = -d cost / dx, and the curvature K = d^2 cost / dx^2 is one small matrix per constraint, never formed:
`hessian_product` applies it. x and force are (dim, n), one line per basis row. A force is the dual variable, so the
basis forces of a contact are its force and torque in the contact frame. Source: MuJoCo documentation, "Computation".

All laws but that of elliptic contacts are springs (`spring`), one for each row or for each edge of a pyramid:

  quadratic   f = -D x
  bounded     f = -D x where D |x| < frictionloss, else -sign(x) frictionloss
  one-sided   f = -D x where x < 0, else 0; also of the edges x_n +- mu_i x_i of a pyramid

Cost, force and curvature here, and slope and curvature along a line (solver/line_search.py), follow from that.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from diffsim.math import safe
from diffsim.math.vector import total
from diffsim.types.constraints import Law, RowGroup
from diffsim.xla.bilinear import arrow_product
from diffsim.xla.select import where

Array = jax.Array
SPRINGS = frozenset({Law.QUADRATIC, Law.BOUNDED, Law.ONE_SIDED, Law.PYRAMID})


class Spring(NamedTuple):
    """Springs (k, n): the force of each, and its stiffness -d force / dx, 0 where it slides or is apart."""

    force: Array
    stiffness: Array


def spring(rows: RowGroup, x: Array, threshold: Array) -> Spring:
    """The springs of a group at x (k, n), of rows or of edges; one-sided ones push below `threshold`."""
    if rows.law == Law.QUADRATIC:
        return Spring(-rows.D * x, jnp.broadcast_to(rows.D, x.shape))
    if rows.law == Law.BOUNDED:
        # never for a row of bound 0, not even where x = 0
        sticks, rest = rows.D * jnp.abs(x) < rows.frictionloss[None], -jnp.sign(x) * rows.frictionloss[None]
    else:
        sticks, rest = x < threshold, 0
    return Spring(where(sticks, -rows.D * x, rest), where(sticks, rows.D, 0))


def stretch(rows: RowGroup, values: Array) -> tuple[Array, ...]:
    """Values on the springs of a group from those of its basis rows (dim, n): the same, or, for pyramids, those of the
    edges n + mu_i t_i and of the edges n - mu_i t_i, (dim - 1, n) each.
    """
    if rows.law != Law.PYRAMID:
        return (values,)
    normal, side = values[:1], rows.friction * values[1:]
    return normal + side, normal - side


def thresholds(rows: RowGroup) -> tuple[Array, ...]:
    """x below which the springs push, as `stretch` lists them: 0 unless an active set says otherwise."""
    parts = 2 if rows.law == Law.PYRAMID else 1
    if not rows.until.size:
        return (jnp.zeros((1, 1), rows.D.dtype),) * parts
    return tuple(rows.until[part::parts] for part in range(parts))


def _forces(rows: RowGroup, x: Array) -> list[Array]:
    """Forces of all springs, as `stretch` lists them."""
    return [spring(rows, *part).force for part in zip(stretch(rows, x), thresholds(rows), strict=True)]


def cost(rows: RowGroup, x: Array) -> Array:
    """(n,) cost of each constraint at x (dim, n)."""
    if rows.law == Law.CONE:
        zone = _zones(rows, x)
        inner = where(zone.bottom, 0.5 * total(list(rows.D * x * x)), 0)
        return where(zone.middle, 0.5 * zone.weight * zone.gap * zone.gap, inner)
    costs = []
    for y, threshold in zip(stretch(rows, x), thresholds(rows), strict=True):
        force = spring(rows, y, threshold).force
        # what it takes to reach y, at a force that grows to its bound and stays there
        costs += list(-force * (y + 0.5 * safe.divide(force, jnp.broadcast_to(rows.D, y.shape))))
    return total(costs)


def force(rows: RowGroup, x: Array) -> Array:
    """(dim, n) force of each basis row."""
    return _cone_force(rows, x) if rows.law == Law.CONE else _basis(rows, *_forces(rows, x))


def dual(rows: RowGroup, x: Array) -> Array:
    """(force_count, n) force of each row as MuJoCo counts rows: the edges of a pyramid (+, -, +, ...), else `force`."""
    return alternate(*_forces(rows, x)) if rows.law == Law.PYRAMID else force(rows, x)


def dual_rows(rows: RowGroup, values: Array) -> Array:
    """(force_count, n, ...) from basis rows (dim, n, ...): the edges of pyramids, to which `dual` forces belong."""
    if rows.law != Law.PYRAMID:
        return values
    side = _wide(rows.friction, values) * values[1:]
    both = jnp.stack([values[:1] + side, values[:1] - side], axis=1)
    return both.reshape(-1, *values.shape[1:])


def hessian_product(rows: RowGroup, x: Array, y: Array) -> Array:
    """K y: the second derivative of the cost at x, applied to y (dim, n) or (dim, n, k)."""
    if rows.law == Law.CONE:
        return _cone_product(rows, x, y)
    push, *pull = (spring(rows, *part).stiffness for part in zip(stretch(rows, x), thresholds(rows), strict=True))
    if rows.law != Law.PYRAMID:
        return _wide(push, y) * y
    # the edges couple the normal with each side, and no side with another
    both, skew = push + pull[0], rows.friction * (push - pull[0])
    square = rows.friction * rows.friction * both
    return arrow_product(_wide(total(list(both))[None], y), _wide(skew, y), _wide(square, y), y)


def _basis(rows: RowGroup, push: Array, pull: Array | None = None) -> Array:
    """Basis forces from those of the springs."""
    if pull is None:
        return push
    return jnp.concatenate([total(list(push + pull))[None], rows.friction * (push - pull)])


def _wide(factor: Array, y: Array) -> Array:
    """A factor per row, for y with trailing axes."""
    return factor.reshape(factor.shape + (1,) * (y.ndim - 2))


class _Zones(NamedTuple):
    """Elliptic contacts in the coordinates where the cone is circular: N = mu x_n, U_i = friction_i x_i, T = |U|.

    In the middle zone cost = weight/2 gap^2 with gap = N - mu T; `steep` = d gap / d(N, U), `unit` = U / T,
    `swing` = -gap mu / T >= 0. `scale` = d(N, U) / dx.
    """

    scale: Array
    weight: Array
    gap: Array
    steep: Array
    unit: Array
    swing: Array
    bottom: Array
    middle: Array


def _zones(rows: RowGroup, x: Array) -> _Zones:
    mu, scale = rows.mu, jnp.concatenate([rows.mu[None], rows.friction])
    circular = scale * x
    normal, side = circular[0], circular[1:]
    tangent = safe.sqrt(total(list(side * side)))
    gap = normal - mu * tangent
    unit = safe.divide(side, jnp.broadcast_to(tangent[None], side.shape))
    top = gap >= 0
    bottom = ~top & (mu * normal + tangent <= 0)
    return _Zones(
        scale=scale,
        weight=safe.divide(rows.D[0], mu * mu * (1 + mu * mu)),
        gap=gap,
        steep=jnp.concatenate([jnp.ones_like(mu)[None], -mu[None] * unit]),
        unit=unit,
        swing=safe.divide(-gap * mu, tangent),
        bottom=bottom,
        middle=~top & ~bottom,
    )


def _cone_force(rows: RowGroup, x: Array) -> Array:
    zone = _zones(rows, x)
    slip = -(zone.weight * zone.gap)[None] * zone.steep * zone.scale
    return where(zone.middle[None], slip, where(zone.bottom[None], -rows.D * x, 0))


def _cone_product(rows: RowGroup, x: Array, y: Array) -> Array:
    zone = _zones(rows, x)
    weight = where(zone.middle, zone.weight, 0)
    steep, unit, swing = _wide(zone.steep, y), _wide(zone.unit, y), _wide(zone.swing[None], y)
    circular = _wide(zone.scale, y) * y
    side = circular[1:]
    # second derivative of gap^2 / 2: steep steep^T + swing (1 - unit unit^T)
    slip = steep * total(list(steep * circular))[None]
    across = swing * (side - unit * total(list(unit * side))[None])
    slip = slip + jnp.concatenate([jnp.zeros_like(circular[:1]), across])
    stick = where(zone.bottom[None], rows.D, 0)
    return _wide(weight[None] * zone.scale, y) * slip + _wide(stick, y) * y


def alternate(plus: Array, minus: Array) -> Array:
    """(2 k, n) alternating rows from (k, n) each."""
    return jnp.stack([plus, minus], axis=1).reshape(-1, plus.shape[-1])


def basis(rows: RowGroup, forces: Array) -> Array:
    """(dim, n) forces of the basis rows, from `dual` forces."""
    return _basis(rows, forces[0::2], forces[1::2]) if rows.law == Law.PYRAMID else forces


def active(rows: RowGroup) -> Array:
    """(n,) which constraints of a family are there."""
    return rows.frictionloss > 0 if rows.law == Law.BOUNDED else rows.D[0] > 0


def slips(rows: RowGroup, x: Array) -> Array:
    """(n,) whether an elliptic contact is in its middle zone, where the force lies on the friction cone."""
    return _zones(rows, x).middle


def at_bound(rows: RowGroup, forces: Array) -> Array:
    """(n,) whether the force of an elliptic contact lies on the friction cone, up to rounding."""
    side = safe.divide(forces[1:], rows.friction)
    rounding = 64 * float(jnp.finfo(forces.dtype).eps)
    return safe.sqrt(total(list(side * side))) >= forces[0] * (1 - rounding)
