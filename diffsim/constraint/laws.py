"""Laws: cost, force and curvature of a family of rows as functions of x = J qacc - aref.

The solver minimizes 1/2 (a - a0)^T M (a - a0) + sum cost(J a - aref); force = -d cost / dx, curvature = d^2 cost
/ dx^2.
x and force are tuples of `dim` arrays (n,), one per basis row; curvature is the small symmetric matrix K of each
constraint as {(i, j): (n,)}, i >= j, without its structural zeros. A force is the dual variable, so the basis forces
of a contact are its force and torque in the contact frame. Source: MuJoCo documentation, "Computation".
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from diffsim.math import safe
from diffsim.types.constraints import Law, Rows

Array = jax.Array
Components = tuple[Array, ...]
Curvature = dict[tuple[int, int], Array]


def _quadratic_cost(rows: Rows, x: Components) -> Array:
    return 0.5 * rows.D[0] * x[0] * x[0]


def _quadratic_force(rows: Rows, x: Components) -> Components:
    return (-rows.D[0] * x[0],)


def _quadratic_curvature(rows: Rows, x: Components) -> Curvature:
    return {(0, 0): rows.D[0]}


def _bounded_cost(rows: Rows, x: Components) -> Array:
    bound, size = rows.frictionloss, jnp.abs(x[0])
    beyond = rows.D[0] * size > bound
    return jnp.where(beyond, bound * (size - 0.5 * safe.divide(bound, rows.D[0])), _quadratic_cost(rows, x))


def _bounded_force(rows: Rows, x: Components) -> Components:
    bound = rows.frictionloss
    return (safe.clip(-rows.D[0] * x[0], -bound, bound),)


def _bounded_curvature(rows: Rows, x: Components) -> Curvature:
    inside = rows.D[0] * jnp.abs(x[0]) < rows.frictionloss
    return {(0, 0): jnp.where(inside, rows.D[0], 0)}


def _one_sided_cost(rows: Rows, x: Components) -> Array:
    return jnp.where(x[0] < 0, _quadratic_cost(rows, x), 0)


def _one_sided_force(rows: Rows, x: Components) -> Components:
    return (jnp.where(x[0] < 0, -rows.D[0] * x[0], 0),)


def _one_sided_curvature(rows: Rows, x: Components) -> Curvature:
    return {(0, 0): jnp.where(x[0] < 0, rows.D[0], 0)}


def _edges(rows: Rows, x: Components) -> list[tuple[Array, Array, Array]]:
    """(mu_i, x on edge n + mu_i t_i, x on edge n - mu_i t_i) of each friction dimension."""
    return [
        (rows.friction[i], x[0] + rows.friction[i] * side, x[0] - rows.friction[i] * side)
        for i, side in enumerate(x[1:])
    ]


def _pyramid_cost(rows: Rows, x: Components) -> Array:
    squares = [
        jnp.where(edge < 0, edge * edge, 0) for _, plus, minus in _edges(rows, x) for edge in (plus, minus)
    ]
    return 0.5 * rows.D[0] * sum(squares[1:], squares[0])


def _pyramid_force(rows: Rows, x: Components) -> Components:
    normal, tangents = jnp.zeros_like(x[0]), []
    for mu, plus, minus in _edges(rows, x):
        push, pull = jnp.where(plus < 0, -rows.D[0] * plus, 0), jnp.where(minus < 0, -rows.D[0] * minus, 0)
        normal = normal + (push + pull)
        tangents.append(mu * (push - pull))
    return (normal, *tangents)


def _pyramid_curvature(rows: Rows, x: Components) -> Curvature:
    result: Curvature = {(0, 0): jnp.zeros_like(x[0])}
    for i, (mu, plus, minus) in enumerate(_edges(rows, x), start=1):
        up, down = jnp.where(plus < 0, rows.D[0], 0), jnp.where(minus < 0, rows.D[0], 0)
        result[0, 0] = result[0, 0] + (up + down)
        result[i, 0] = mu * (up - down)
        result[i, i] = mu * mu * (up + down)
    return result


class _Zones(NamedTuple):
    """An elliptic contact in the coordinates where its cone is circular: N = mu x_n, U_i = friction_i x_i, T = |U|."""

    normal: Array
    sides: list[Array]
    tangent: Array
    weight: Array
    bottom: Array
    middle: Array


def _zones(rows: Rows, x: Components) -> _Zones:
    mu = rows.mu
    normal, sides = mu * x[0], [rows.friction[i] * side for i, side in enumerate(x[1:])]
    squares = [side * side for side in sides]
    tangent = safe.sqrt(sum(squares[1:], squares[0]))
    top = normal >= mu * tangent
    bottom = ~top & (mu * normal + tangent <= 0)
    weight = safe.divide(rows.D[0], mu * mu * (1 + mu * mu))
    return _Zones(normal, sides, tangent, weight, bottom, ~top & ~bottom)


def _cone_cost(rows: Rows, x: Components) -> Array:
    zone = _zones(rows, x)
    quadratic = [0.5 * rows.D[i] * side * side for i, side in enumerate(x)]
    gap = zone.normal - rows.mu * zone.tangent
    inner = jnp.where(zone.bottom, sum(quadratic[1:], quadratic[0]), 0)
    return jnp.where(zone.middle, 0.5 * zone.weight * gap * gap, inner)


def _cone_force(rows: Rows, x: Components) -> Components:
    zone = _zones(rows, x)
    push = -zone.weight * (zone.normal - rows.mu * zone.tangent) * rows.mu
    slip = [
        push,
        *[-push * safe.divide(u, zone.tangent) * rows.friction[i] for i, u in enumerate(zone.sides)],
    ]
    stick = [-rows.D[i] * side for i, side in enumerate(x)]
    return tuple(
        jnp.where(zone.middle, moving, jnp.where(zone.bottom, held, 0))
        for moving, held in zip(slip, stick, strict=True)
    )


def _cone_curvature(rows: Rows, x: Components) -> Curvature:
    zone, dim, mu = _zones(rows, x), rows.dim, rows.mu
    unit = [safe.divide(u, zone.tangent) for u in zone.sides]
    ratio = mu * safe.divide(zone.normal, zone.tangent)
    scales = [mu, *[rows.friction[i] for i in range(dim - 1)]]
    result: Curvature = {}
    for i in range(dim):
        for j in range(i + 1):
            # second derivative of 1/2 (N - mu T)^2 in circular coordinates
            if i == 0:
                inner = jnp.ones_like(mu)
            elif j == 0:
                inner = -mu * unit[i - 1]
            else:
                inner = ratio * unit[i - 1] * unit[j - 1] + ((mu * mu - ratio) if i == j else 0)
            slip = zone.weight * inner * scales[i] * scales[j]
            stick = jnp.where(zone.bottom, rows.D[i], 0) if i == j else jnp.zeros_like(mu)
            result[i, j] = jnp.where(zone.middle, slip, stick)
    return result


class _Law(NamedTuple):
    cost: Callable[[Rows, Components], Array]
    force: Callable[[Rows, Components], Components]
    curvature: Callable[[Rows, Components], Curvature]


LAWS = {
    Law.QUADRATIC: _Law(_quadratic_cost, _quadratic_force, _quadratic_curvature),
    Law.BOUNDED: _Law(_bounded_cost, _bounded_force, _bounded_curvature),
    Law.ONE_SIDED: _Law(_one_sided_cost, _one_sided_force, _one_sided_curvature),
    Law.PYRAMID: _Law(_pyramid_cost, _pyramid_force, _pyramid_curvature),
    Law.CONE: _Law(_cone_cost, _cone_force, _cone_curvature),
}


def cost(rows: Rows, x: Components) -> Array:
    """(n,) cost of each constraint."""
    return LAWS[rows.law].cost(rows, x)


def force(rows: Rows, x: Components) -> Components:
    """Force of each basis row."""
    return LAWS[rows.law].force(rows, x)


def curvature(rows: Rows, x: Components) -> Curvature:
    """Lower triangle of the second derivative of the cost."""
    return LAWS[rows.law].curvature(rows, x)
