"""nearest_of_prism: the point of a height field's prism that is nearest to a given point, in closed form.

The base of a prism is level, its walls are vertical, and its top slopes. Let q be the point of the prism that is
nearest to an outside point p in plan. If p is lower than the top at q, the nearest point is at q: on a wall, on an
upright edge, or on the base. Otherwise it is on the top or on a side of the top. A point inside leaves through the
facet with the greatest gap, that is, with the least depth.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from diffsim.geometry.shapes import Vector
from diffsim.math import safe
from diffsim.math.vector import cross_components, dot_components, minus_components, pack, unpack
from diffsim.xla.barriers import decided
from diffsim.xla.select import where_tree


class Nearest(NamedTuple):
    """Signed distance () of a point, m, unit normal (3,) out of the prism, and the point (3,) of its surface."""

    dist: Array
    normal: Array
    point: Array


class _Facet(NamedTuple):
    """Unit outward `normal`, and the `gap` () between the facet's plane and a point, m."""

    normal: Vector
    gap: Array


class _Side(NamedTuple):
    """A side of a triangle, and its point nearest to another point; m.

    Attributes:
      begin, sweep: one end, and the vector to the other end.
      away: the vector from the nearest point to the other point.
      between: () whether the nearest point is between the ends.
    """

    begin: Vector
    sweep: Vector
    away: Vector
    between: Array


def nearest_of_prism(vert: Array, point: Array) -> Nearest:
    """The nearest point of a prism (6, 3), base first, counterclockwise from above, to a point (3,), m."""
    p = unpack(point)
    corners = list(zip(*(unpack(column) for column in unpack(vert)), strict=True))
    # relative to the first corner of the top, whose own coordinates are then zero
    origin = corners[3]
    zero = jnp.zeros_like(corners[3][0])
    top = [[zero] * 3, *(minus_components(corner, origin) for corner in corners[4:])]
    height = p[2] - corners[0][2] + zero
    away, dist = _nearest_of_top(top, height, minus_components(p, origin))
    return Nearest(dist, pack(away), pack([x - dist * n for x, n in zip(p, away, strict=True)]))


def _nearest_of_top(top: list[Vector], height: Array, p: Vector) -> tuple[Vector, Array]:
    """(normal, signed distance), given the corners of the top, a point, and the height of this point over the base."""
    roof = _roof(top, p)
    flat = _nearest_side([corner[:2] for corner in top], p[:2])
    edge = _nearest_side(top, p)
    # the wall with the greatest gap belongs to the side that is nearest in plan
    zero = jnp.zeros_like(height)
    ground = _Facet([zero, zero, zero - 1], -height)
    facet = roof
    for other in (ground, _wall(flat, p)):
        facet = where_tree(other.gap > facet.gap, other, facet)
    in_plan = _is_over([zero, zero, zero + 1], top, p)
    over_roof = _is_over(roof.normal, top, p)
    flat_away = [jnp.where(in_plan, 0, component) for component in flat.away]
    under = jnp.minimum(height, 0)
    # whether p is lower than the top at q, the point of the prism nearest in plan
    below = decided(roof.gap < dot_components(roof.normal[:2], flat_away))
    away = [jnp.where(below, one, other) for one, other in zip([*flat_away, under], edge.away, strict=True)]
    length = safe.sqrt(dot_components(away, away))
    # if the nearest point is inside a facet, the facet's normal is used: the vector to the point may be zero
    on_side = jnp.where(below, in_plan | (flat.between & (under >= 0)), over_roof)
    on_facet = decided(on_side | (length <= 0))
    normal = [jnp.where(on_facet, n, safe.divide(x, length)) for n, x in zip(facet.normal, away, strict=True)]
    return normal, jnp.where(on_facet, facet.gap, length)


def _roof(top: list[Vector], p: Vector) -> _Facet:
    """The sloping top of the prism, the plane through three corners."""
    area = cross_components(minus_components(top[1], top[0]), minus_components(top[2], top[0]))
    length = safe.sqrt(dot_components(area, area))
    normal = [safe.divide(component, length) for component in area]
    return _Facet(normal, dot_components(normal, minus_components(p, top[0])))


def _wall(side: _Side, p: Vector) -> _Facet:
    """The wall of the prism below a side of its top."""
    x, y = side.sweep
    length = safe.sqrt(x * x + y * y)
    normal = [safe.divide(y, length), safe.divide(-x, length)]
    return _Facet([*normal, jnp.zeros_like(x)], dot_components(normal, minus_components(p[:2], side.begin)))


def _nearest_side(top: list[Vector], p: Vector) -> _Side:
    """The side of a triangle, in space or in plan, that is nearest to a point."""

    def squared(begin: Vector, end: Vector, p: Vector) -> Array:
        """The squared distance of p from a segment."""
        sweep, away = minus_components(end, begin), minus_components(p, begin)
        t = jnp.clip(_foot(begin, sweep, p), 0, 1)
        across = [x - t * y for x, y in zip(away, sweep, strict=True)]
        return dot_components(across, across)

    # which side is nearest is a choice, and has no derivatives
    squares = [squared(*jax.lax.stop_gradient((begin, end, p))) for begin, end in _sides(top)]
    second = decided(squares[1] < squares[0])
    third = decided(squares[2] < jnp.minimum(*squares[:2]))
    begin, end = (
        [jnp.where(third, c, jnp.where(second, b, a)) for a, b, c in zip(*corners, strict=True)]
        for corners in zip(*_sides(top), strict=True)
    )
    sweep = minus_components(end, begin)
    t = _foot(begin, sweep, p)
    clipped = safe.clip(t, 0, 1)
    away = [x - y - clipped * z for x, y, z in zip(p, begin, sweep, strict=True)]
    return _Side(begin, sweep, away, (t > 0) & (t < 1))


def _sides(top: list[Vector]) -> list[tuple[Vector, Vector]]:
    """Begin and end of each side of a triangle."""
    return [(begin, top[(k + 1) % 3]) for k, begin in enumerate(top)]


def _foot(begin: Vector, sweep: Vector, p: Vector) -> Array:
    """The t for which the point begin + t sweep of a line is nearest to p."""
    return safe.divide(dot_components(minus_components(p, begin), sweep), dot_components(sweep, sweep))


def _is_over(normal: Vector, top: list[Vector], p: Vector) -> Array:
    """Whether a point is inside the planes that are parallel to `normal` and contain the sides of a triangle."""
    inside = jnp.asarray(True)
    for begin, end in _sides(top):
        outward = cross_components(minus_components(end, begin), normal)
        inside = inside & (dot_components(outward, minus_components(p, begin)) <= 0)
    return inside
