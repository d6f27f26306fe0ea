"""Laws: cost, force and curvature of a family of rows as functions of x = J qacc - aref.

The solver minimizes the smooth cost of an acceleration plus sum cost(x) over all families (solver/objective.py);
force = -d cost / dx, and the curvature K = d^2 cost / dx^2 is one small matrix per constraint, never formed:
`hessian_product` applies it. x and force are (dim, n), one line per basis row. A force is the dual variable, so the
basis forces of a contact are its force and torque in the contact frame. Source: MuJoCo documentation, "Computation".
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from diffsim.math import safe
from diffsim.types.constraints import Law, RowGroup
from diffsim.xla.barriers import for_cpu, stored
from diffsim.xla.select import where

Array = jax.Array


def _wide(factor: Array, y: Array) -> Array:
    """A factor per row, for y with trailing axes."""
    return factor.reshape(factor.shape + (1,) * (y.ndim - 2))


def _sum(parts: Array) -> Array:
    """Sum over the leading axis, (k, ...), written out."""
    total = parts[0]
    for i in range(1, parts.shape[0]):
        total = total + parts[i]
    return total


def _quadratic_cost(rows: RowGroup, x: Array) -> Array:
    return 0.5 * rows.D[0] * x[0] * x[0]


def _quadratic_force(rows: RowGroup, x: Array) -> Array:
    return -rows.D * x


def _quadratic_product(rows: RowGroup, x: Array, y: Array) -> Array:
    return _wide(rows.D, y) * y


def _bounded_cost(rows: RowGroup, x: Array) -> Array:
    bound, size = rows.frictionloss, jnp.abs(x[0])
    beyond = rows.D[0] * size > bound
    return where(beyond, bound * (size - 0.5 * safe.divide(bound, rows.D[0])), _quadratic_cost(rows, x))


def _within_bound(rows: RowGroup, x: Array) -> Array:
    """(1, n) whether friction sticks; never for a row of bound 0, not even where x = 0."""
    return rows.D * jnp.abs(x) < rows.frictionloss[None]


def _bounded_force(rows: RowGroup, x: Array) -> Array:
    return where(_within_bound(rows, x), -rows.D * x, -jnp.sign(x) * rows.frictionloss[None])


def _bounded_product(rows: RowGroup, x: Array, y: Array) -> Array:
    return _wide(where(_within_bound(rows, x), rows.D, 0), y) * y


def bound(rows: RowGroup) -> Array:
    """(force_count, n) or (1, 1): x below which one-sided rows and edges push, 0 unless held (active_set.py)."""
    return rows.until if rows.until.size else jnp.zeros((1, 1), rows.D.dtype)


def _one_sided_cost(rows: RowGroup, x: Array) -> Array:
    return where(x[0] < bound(rows)[0], _quadratic_cost(rows, x), 0)


def _one_sided_force(rows: RowGroup, x: Array) -> Array:
    return where(x < bound(rows), -rows.D * x, 0)


def _one_sided_product(rows: RowGroup, x: Array, y: Array) -> Array:
    return _wide(where(x < bound(rows), rows.D, 0), y) * y


class _Edges(NamedTuple):
    """x on the edges n + mu_i t_i and n - mu_i t_i of a pyramid, each (dim - 1, n)."""

    plus: Array
    minus: Array


def edges(rows: RowGroup, x: Array) -> _Edges:
    """Values on the edges of pyramids, from those of the basis rows x (dim, n)."""
    normal, side = x[:1], rows.friction * x[1:]
    return _Edges(normal + side, normal - side)


def edge_bounds(rows: RowGroup) -> _Edges:
    """x below which edges push, each (dim - 1, n) or (1, 1)."""
    return _Edges(rows.until[0::2], rows.until[1::2]) if rows.until.size else _Edges(bound(rows), bound(rows))


def _edge_weights(rows: RowGroup, x: Array) -> _Edges:
    """D of the edges that push, 0 of the others."""
    (plus, minus), until = edges(rows, x), edge_bounds(rows)
    return _Edges(where(plus < until.plus, rows.D, 0), where(minus < until.minus, rows.D, 0))


def _pyramid_cost(rows: RowGroup, x: Array) -> Array:
    pairs = zip(_edge_weights(rows, x), edges(rows, x), strict=True)
    plus, minus = (weight * edge * edge for weight, edge in pairs)
    return 0.5 * _sum(plus + minus)


def _edge_force(rows: RowGroup, x: Array) -> _Edges:
    plus, minus = (-weight * edge for weight, edge in zip(_edge_weights(rows, x), edges(rows, x), strict=True))
    return _Edges(plus, minus)


def _pyramid_force(rows: RowGroup, x: Array) -> Array:
    return _sum_edges(rows, *_edge_force(rows, x))


def _sum_edges(rows: RowGroup, push: Array, pull: Array) -> Array:
    """Basis forces from those of the edges, each (dim - 1, n)."""
    return jnp.concatenate([_sum(push + pull)[None], rows.friction * (push - pull)])


def _pyramid_product(rows: RowGroup, x: Array, y: Array) -> Array:
    push, pull = _edge_weights(rows, x)
    both, skew = push + pull, rows.friction * (push - pull)
    # an arrow: the edges couple the normal with each side, and no side with another
    top, square = _sum(both)[None], rows.friction * rows.friction * both
    if not for_cpu():
        normal = _wide(top, y) * y[:1] + _sum(_wide(skew, y) * y[1:])[None]
        return jnp.concatenate([normal, _wide(skew, y) * y[:1] + _wide(square, y) * y[1:]])
    # joining what is as wide as y takes a CPU thrice as long as zeros below the normal
    diagonal = stored(jnp.concatenate([top, square]))
    beside = stored(jnp.concatenate([jnp.zeros_like(top), skew]))
    normal = _sum(_wide(beside[1:], y) * y[1:])[None]
    above = jnp.pad(normal, [(0, rows.dim - 1)] + [(0, 0)] * (y.ndim - 1))
    return _wide(diagonal, y) * y + _wide(beside, y) * y[:1] + above


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
    tangent = safe.sqrt(_sum(side * side))
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


def _cone_cost(rows: RowGroup, x: Array) -> Array:
    zone = _zones(rows, x)
    inner = where(zone.bottom, 0.5 * _sum(rows.D * x * x), 0)
    return where(zone.middle, 0.5 * zone.weight * zone.gap * zone.gap, inner)


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
    slip = steep * _sum(steep * circular)[None]
    across = swing * (side - unit * _sum(unit * side)[None])
    slip = slip + jnp.concatenate([jnp.zeros_like(circular[:1]), across])
    stick = where(zone.bottom[None], rows.D, 0)
    return _wide(weight[None] * zone.scale, y) * slip + _wide(stick, y) * y


class _Law(NamedTuple):
    cost: Callable[[RowGroup, Array], Array]
    force: Callable[[RowGroup, Array], Array]
    hessian_product: Callable[[RowGroup, Array, Array], Array]


LAWS = {
    Law.QUADRATIC: _Law(_quadratic_cost, _quadratic_force, _quadratic_product),
    Law.BOUNDED: _Law(_bounded_cost, _bounded_force, _bounded_product),
    Law.ONE_SIDED: _Law(_one_sided_cost, _one_sided_force, _one_sided_product),
    Law.PYRAMID: _Law(_pyramid_cost, _pyramid_force, _pyramid_product),
    Law.CONE: _Law(_cone_cost, _cone_force, _cone_product),
}


def cost(rows: RowGroup, x: Array) -> Array:
    """(n,) cost of each constraint at x (dim, n)."""
    return LAWS[rows.law].cost(rows, x)


def force(rows: RowGroup, x: Array) -> Array:
    """(dim, n) force of each basis row."""
    return LAWS[rows.law].force(rows, x)


def dual(rows: RowGroup, x: Array) -> Array:
    """(force_count, n) force of each row as MuJoCo counts rows: the edges of a pyramid (+, -, +, ...), else `force`."""
    if rows.law != Law.PYRAMID:
        return force(rows, x)
    return alternate(*_edge_force(rows, x))


def dual_rows(rows: RowGroup, values: Array) -> Array:
    """(force_count, n, ...) from basis rows (dim, n, ...): the edges of pyramids, to which `dual` forces belong."""
    if rows.law != Law.PYRAMID:
        return values
    side = _wide(rows.friction, values) * values[1:]
    both = jnp.stack([values[:1] + side, values[:1] - side], axis=1)
    return both.reshape(-1, *values.shape[1:])


def alternate(plus: Array, minus: Array) -> Array:
    """(2 k, n) alternating rows from (k, n) each."""
    return jnp.stack([plus, minus], axis=1).reshape(-1, plus.shape[-1])


def basis(rows: RowGroup, forces: Array) -> Array:
    """(dim, n) forces of the basis rows, from `dual` forces."""
    return _sum_edges(rows, forces[0::2], forces[1::2]) if rows.law == Law.PYRAMID else forces


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
    return safe.sqrt(_sum(side * side)) >= forces[0] * (1 - rounding)


def hessian_product(rows: RowGroup, x: Array, y: Array) -> Array:
    """K y: the second derivative of the cost at x, applied to y (dim, n) or (dim, n, k)."""
    return LAWS[rows.law].hessian_product(rows, x, y)
