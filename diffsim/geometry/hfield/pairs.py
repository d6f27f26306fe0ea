"""One prism of a height field against a convex body: the contact of MuJoCo 3.8.1, which treats margins in its own way.

The surface has risen by the margin (`prisms.py`), and the body is rounded by half of it: contacts are made where these
overlap, and their distance says by how much. Without a margin it is the signed distance.

A ball needs only the nearest point of the prism, in closed form. The prism stands on a level base; its walls are
upright, its top slopes. What is nearest to a point outside follows from the point q that is nearest in plan. Where the
point is lower than the top at q, the nearest part of the prism is at q: of a wall, of an upright edge, or of the base.
Else it is the top, or a side of the top. Inside, the facet with the greatest gap (the least depth) is the one to leave
by. That part is written on components, each an array over all prisms; what several of them read is stored, so that XLA
does not compute it again in each.
Source: `mjc_ConvexHField` of `engine_collision_convex.c`.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from diffsim.base.enums import GeomType
from diffsim.geometry.hfield.prisms import Prism
from diffsim.geometry.hull.pairs import closest, contact_row, searched
from diffsim.geometry.hull.polytope import PRISM, Feature, HullPair, core, difference, with_polygons
from diffsim.geometry.hull.sat import deepest_side
from diffsim.geometry.hull.tables import Hull
from diffsim.geometry.shapes import Candidates, Shape, candidate, stack
from diffsim.geometry.smooth.round_hull import ROUND, separate_round
from diffsim.math import safe
from diffsim.math.vector import (
    cross_components,
    dot_components,
    minus_components,
    mul_vec,
    mul_vec_t,
    pack,
    scale,
    unpack,
)
from diffsim.xla.barriers import decided, stored
from diffsim.xla.select import where

Array = jax.Array
# components (x, y, z)
Vector = list[Array]


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
    """A side of a triangle, from `begin` along `sweep`; the way `away` from its nearest point to a point, m; and
    whether that is `between` its ends ().
    """

    begin: Vector
    sweep: Vector
    away: Vector
    between: Array


def nearest_of_prism(vert: Array, point: Array) -> Nearest:
    """The nearest point of a prism (6, 3), base first, counterclockwise from above, to a point (3,), m."""
    p, corners = unpack(point), list(zip(*(unpack(column) for column in unpack(vert)), strict=True))
    # from the first corner of the top, of which each has its own
    origin, none = corners[3], jnp.zeros_like(corners[3][0])
    top = [[none] * 3, *stored([minus_components(corner, origin) for corner in corners[4:]])]
    height = stored(p[2] - corners[0][2] + none)
    away, dist = _nearest_of_top(top, height, stored(minus_components(p, origin)))
    return Nearest(dist, pack(away), pack([x - dist * n for x, n in zip(p, away, strict=True)]))


def _nearest_of_top(top: list[Vector], height: Array, p: Vector) -> tuple[Vector, Array]:
    """(normal, signed distance), given the top's corners, a point, and how high that is over the base."""
    roof, flat, edge = _roof(top, p), _nearest_side([corner[:2] for corner in top], p[:2]), _nearest_side(top, p)
    # inside, the wall with the greatest gap is that of the side which is nearest in plan
    facet = _greatest([roof, _ground(height), _wall(flat, p)])
    none = jnp.zeros_like(height)
    in_plan, over_roof = stored((_over([none, none, none + 1], top, p), _over(roof.normal, top, p)))
    flat_away, under = [where(in_plan, 0, each) for each in flat.away], jnp.minimum(height, 0)
    # lower than the top where the prism is nearest in plan
    below = decided(roof.gap < dot_components(roof.normal[:2], flat_away))
    away = stored([where(below, one, other) for one, other in zip([*flat_away, under], edge.away, strict=True)])
    length = stored(safe.sqrt(dot_components(away, away)))
    on_side = where(below, in_plan | (flat.between & (under >= 0)), over_roof)
    on_facet = decided(on_side | (length <= 0))
    dist = stored(where(on_facet, facet.gap, length))
    return stored([where(on_facet, n, safe.divide(x, length)) for n, x in zip(facet.normal, away, strict=True)]), dist


def _roof(top: list[Vector], p: Vector) -> _Facet:
    """The top, between three corners."""
    area = cross_components(minus_components(top[1], top[0]), minus_components(top[2], top[0]))
    length = stored(safe.sqrt(dot_components(area, area)))
    normal = stored([safe.divide(each, length) for each in area])
    return _Facet(normal, dot_components(normal, minus_components(p, top[0])))


def _ground(height: Array) -> _Facet:
    """The base."""
    none = jnp.zeros_like(height)
    return _Facet([none, none, none - 1], -height)


def _wall(side: _Side, p: Vector) -> _Facet:
    """Below a side of the top."""
    x, y = side.sweep
    length = stored(safe.sqrt(x * x + y * y))
    normal = [safe.divide(y, length), safe.divide(-x, length)]
    return _Facet([*normal, jnp.zeros_like(x)], dot_components(normal, minus_components(p[:2], side.begin)))


def _greatest(facets: list[_Facet]) -> _Facet:
    """The facet with the greatest gap, the first of equal ones."""
    best = facets[0]
    for other in facets[1:]:
        more = stored(other.gap > best.gap)
        best = jax.tree.map(lambda a, b, more=more: where(more, b, a), best, other)
    return best


def _nearest_side(top: list[Vector], p: Vector) -> _Side:
    """The side of a triangle, in space or in plan, that is nearest to a point."""
    squares = stored([_squared(begin, end, p) for begin, end in _sides(top)])
    second, third = decided(squares[1] < squares[0]), decided(squares[2] < jnp.minimum(*squares[:2]))
    begin, end = (
        [where(third, c, where(second, b, a)) for a, b, c in zip(*corners, strict=True)]
        for corners in zip(*_sides(top), strict=True)
    )
    sweep = minus_components(end, begin)
    share = stored(_share(begin, sweep, p))
    within = safe.clip(share, 0, 1)
    away = stored([x - y - within * z for x, y, z in zip(p, begin, sweep, strict=True)])
    return _Side(begin, sweep, away, (share > 0) & (share < 1))


def _sides(top: list[Vector]) -> list[tuple[Vector, Vector]]:
    """Begin and end of each."""
    return [(begin, top[(k + 1) % 3]) for k, begin in enumerate(top)]


def _share(begin: Vector, sweep: Vector, p: Vector) -> Array:
    """Of the end in the nearest point of a line."""
    return safe.divide(dot_components(minus_components(p, begin), sweep), dot_components(sweep, sweep))


def _squared(begin: Vector, end: Vector, p: Vector) -> Array:
    """Of the distance from a segment, not differentiated."""
    begin, end, p = jax.lax.stop_gradient((begin, end, p))
    sweep, away = minus_components(end, begin), minus_components(p, begin)
    share = jnp.clip(_share(begin, sweep, p), 0, 1)
    off = [x - share * y for x, y in zip(away, sweep, strict=True)]
    return dot_components(off, off)


def _over(normal: Vector, top: list[Vector], p: Vector) -> Array:
    """Whether a point is between the planes through the sides and along a normal."""
    inside = jnp.asarray(True)
    for begin, end in _sides(top):
        outward = cross_components(minus_components(end, begin), normal)
        inside = inside & (dot_components(outward, minus_components(p, begin)) <= 0)
    return inside


def prism_pair(kind: GeomType) -> Callable[[Shape, Shape, Array], Candidates]:
    """Pair function of a prism and a body of a type, with one row."""
    return functools.partial(_prism_row, kind)


def _prism_row(kind: GeomType, field: Shape, body: Shape, margin: Array) -> Candidates:
    prism: Prism = field.data
    rows = ROWS.get(kind, functools.partial(_hull_row, kind))(field, body)
    dist = rows.dist - 0.5 * margin
    pos = rows.pos - scale(rows.normal, 0.25 * jnp.broadcast_to(margin, dist.shape))
    touches = (margin <= 0) | (jax.lax.stop_gradient(dist) < 0)
    return Candidates(dist, pos, rows.normal, rows.tangent, rows.valid & prism.exists & touches)


def _hull_row(kind: GeomType, field: Shape, body: Shape) -> Candidates:
    """A prism and a rounded hull."""
    hull, radius = core(kind, body)
    prism = with_polygons(field.data.vert, PRISM)
    pair = difference(prism, hull, field, body)
    contact = closest(pair, functools.partial(_feature, *jax.lax.stop_gradient((prism, hull))))
    return stack([contact_row(field, contact, jnp.zeros_like(radius), radius)])


def _feature(prism: Hull, hull: Hull, pair: HullPair) -> Feature:
    """What is closest to the origin: searched, of all sides where they overlap."""
    return searched(pair, lambda fixed, _: deepest_side(fixed, prism, hull))


def _ball_row(field: Shape, ball: Shape) -> Candidates:
    """A prism and a ball."""
    center, radius = mul_vec_t(field.mat, ball.pos - field.pos), ball.size[0]
    near = nearest_of_prism(field.data.vert, center)
    dist = near.dist - radius
    local = near.point + scale(near.normal, 0.5 * dist)
    return stack([candidate(dist, field.pos + mul_vec(field.mat, local), mul_vec(field.mat, near.normal))])


def _round_row(kind: GeomType, field: Shape, body: Shape) -> Candidates:
    """A prism and an ellipsoid or a cylinder."""
    dist, pos, normal = separate_round(kind, body, with_polygons(field.data.vert, PRISM), field)
    return stack([candidate(dist, pos, -normal)])


ROWS: dict[GeomType, Callable[[Shape, Shape], Candidates]] = {
    GeomType.SPHERE: _ball_row,
    **{kind: functools.partial(_round_row, kind) for kind in ROUND},
}
