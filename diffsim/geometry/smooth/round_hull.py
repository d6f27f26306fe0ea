"""Ellipsoids and cylinders against hulls: signed distance, middle of the closest points, normal, with derivatives.

A cylinder is a disc; its axis joins the hull, each of whose corners becomes two. The direction is searched without
derivatives (`round_search.py`). What the hull touches with, a corner, an edge or a side, is then that part of its
nearest corners which is nearest to the body's own point, and closed forms follow: of a side its normal, of a corner or
an edge one more Newton step, which has the derivative of the implicit function.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from diffsim.base.enums import GeomType
from diffsim.geometry.assets import Hull
from diffsim.geometry.hull.gjk import closest_feature
from diffsim.geometry.hull.polytope import HullPair
from diffsim.geometry.hull.witness import shares_of
from diffsim.geometry.shapes import Shape
from diffsim.geometry.smooth.minkowski import rounding
from diffsim.geometry.smooth.round_search import Likely, furthest_direction, newton, pair_of
from diffsim.math import safe
from diffsim.math.vector import cross, dot, mul_mat, mul_vec, mul_vec_t, pack, scale, total, transpose, unpack

Array = jax.Array

# how wide a triangle is whose plane is known well, by the size of the body
LEAST_WIDTH = 0.05
ROUND = (GeomType.ELLIPSOID, GeomType.CYLINDER)


class _Corners(NamedTuple):
    """Corners (n, 3) in the frame of the round body, m, and how far each was moved along the body's axis (n,)."""

    point: Array
    shift: Array


def separate_round(kind: GeomType, body: Shape, hull: Hull, frame: Shape) -> tuple[Array, Array, Array]:
    """(signed distance m, midpoint (3,), unit normal (3,) from the body to the hull) of a hull in a frame; world."""
    turn = mul_mat(transpose(body.mat), frame.mat)
    local = mul_vec(turn[None], hull.vert) + mul_vec_t(body.mat, frame.pos - body.pos)[None]
    size, corners = _split(kind, body.size, local)
    is_disc, likely = kind == GeomType.CYLINDER, _against_sides(hull, turn, corners.point)
    if is_disc:
        likely = jax.tree.map(lambda *both: jnp.concatenate(both), likely, _around_axis(hull, turn, local))
    found = furthest_direction(*jax.lax.stop_gradient((corners.point, size)), is_disc, jax.lax.stop_gradient(likely))
    found = jax.lax.stop_gradient(found)
    dist, point, normal = _contact(found, size, corners, is_disc)
    return dist, body.pos + mul_vec(body.mat, point), mul_vec(body.mat, normal)


def _split(kind: GeomType, size: Array, local: Array) -> tuple[Array, _Corners]:
    """(half sizes of the ellipsoid or disc, corners of the hull with the axis of a cylinder added)."""
    if kind == GeomType.ELLIPSOID:
        return size, _Corners(local, jnp.zeros_like(local[:, 0]))
    radius, half, _ = unpack(size)
    none = jnp.zeros_like(radius)
    shift = jnp.concatenate([jnp.broadcast_to(end, (len(local),)) for end in (half, -half)])
    moved = jnp.concatenate([local, local]) - pack([none, none, shift])
    return pack([radius, radius, none]), _Corners(moved, shift)


def _against_sides(hull: Hull, turn: Array, points: Array) -> Likely:
    """Against the normals of the hull's sides, along which corners of their own are the nearest.

    Of points (v, 3), or (2v, 3) where a cylinder's axis was added, those of the same corner at its other end too.
    """
    normal = -mul_vec(turn[None], hull.normal)
    ends = points.reshape(-1, *hull.vert.shape)
    return Likely(normal, jnp.min(dot(normal[None], ends[:, hull.side[:, 0]]), axis=0))


def _around_axis(hull: Hull, turn: Array, local: Array) -> Likely:
    """The direction (1, 3) square to the axis z and to an edge that has the greatest gap; zero where there is none.

    Where side of cylinder and edge of hull meet, the deepest direction is one of these. An edge is what is nearest
    along it if it points against a normal that lies between those of the facets on both sides.
    """
    ends = local[hull.edge]
    right, up, _ = unpack(ends[:, 1] - ends[:, 0])
    across = safe.normalize(pack([up, -right, jnp.zeros_like(up)]))
    one, other = (mul_vec(turn[None], hull.outward[hull.flank[:, k]]) for k in (0, 1))
    bend = cross(one, other)
    after, before = dot(cross(one, across), bend), dot(cross(across, other), bend)
    against = jnp.where((after > 0) & (before > 0), -1, jnp.where((after < 0) & (before < 0), 1, 0))
    against = jnp.where(hull.edge[:, 0] >= 0, against, 0)
    normal = scale(across, against.astype(across.dtype))
    height = jnp.where(against != 0, dot(normal, ends[:, 0]), -jnp.inf)
    best = jnp.argmax(height)[None]
    return Likely(normal[best], height[best])


def _contact(found: Array, size: Array, corners: _Corners, is_disc: bool) -> tuple[Array, Array, Array]:
    """The same three in the frame of the body, given the direction to within rounding."""
    stretched = size * found
    pole = safe.norm(jax.lax.stop_gradient(stretched)) < rounding(found) * size[0]
    own = scale(size * stretched, 1 / jnp.where(pole, 1, safe.norm(stretched)))
    places, count = _touching(*jax.lax.stop_gradient((corners.point, found, jnp.where(pole, 0, own), size)))
    point, shift = corners.point[places], corners.shift[places]
    normal = jnp.where(pole, found, _normal(point, count, found, size, is_disc))
    dist = dot(normal, point[0]) - jnp.where(pole, 0, safe.norm(size * jnp.where(pole, 1, normal)))
    stretched = jnp.where(pole, 1, size * normal)
    own = jnp.where(pole, 0, size * scale(stretched, 1 / safe.norm(stretched)))
    shares = shares_of(point - own[None], count)
    along = total([shift[k] * shares[k] for k in range(3)])
    against = total([scale(point[k], shares[k]) for k in range(3)])
    middle = jnp.where(pole, against - scale(normal, 0.5 * dist), own + scale(normal, 0.5 * dist))
    return dist, middle + pack([jnp.zeros_like(along), jnp.zeros_like(along), along]), normal


def _touching(points: Array, normal: Array, own: Array, size: Array) -> tuple[Array, Array]:
    """(places (3,) of the corners of the nearest side, edge or corner that are nearest to a point; how many)."""
    heights = dot(points, normal[None])
    lowest = jnp.argmin(heights)
    reach = size[0] + size[1] + size[2]
    level = heights - heights[lowest] < 1e2 * rounding(points) * reach
    aside = points - own[None]
    aside = aside + scale(jnp.broadcast_to(normal, aside.shape), reach - dot(aside, normal[None]))
    # the others stand where the lowest does
    aside = jnp.where(level[:, None], aside, aside[lowest])
    feature = closest_feature(HullPair(jnp.zeros_like(aside[:1]), aside, jnp.eye(3, dtype=aside.dtype), 0 * normal))[0]
    places = jnp.where(level[feature.second], feature.second, lowest)
    # over a line between two corners of a side the normal stays, as on the side
    above = safe.norm(feature.normal - normal) < 1e2 * rounding(points)
    return _widened(places, feature.corners, aside, level & above, reach)


def _widened(places: Array, count: Array, points: Array, level: Array, reach: Array) -> tuple[Array, Array]:
    """An edge (2 of places (3,)) with the corner of those `level` that is furthest from its line, if one is far."""
    begin, sweep = points[places[0]], points[places[1]] - points[places[0]]
    off = jnp.where(level, safe.norm(cross(points - begin[None], sweep[None])), 0)
    third = jnp.argmax(off)
    wide = (count == 2) & (off[third] > LEAST_WIDTH * reach * safe.norm(sweep))
    return jnp.where(wide & (jnp.arange(3) == 2), third, places), jnp.where(wide, 3, count)


def _normal(point: Array, count: Array, found: Array, size: Array, is_disc: bool) -> Array:
    """The direction as a function of the corners (3, 3) of a corner, an edge or a side."""
    area = cross(point[1] - point[0], point[2] - point[0])
    sign = jnp.where(jax.lax.stop_gradient(dot(area, found)) < 0, -1, 1).astype(area.dtype)
    axis = safe.normalize(jnp.where(count == 2, point[1] - point[0], 1)) * (count == 2)
    pair, none = pair_of(point[0], size, is_disc), jnp.zeros_like(size[0])
    # the search compares gaps, which rounding hides within its root: the step that is differentiated begins nearer
    nearer = newton(*jax.lax.stop_gradient((pair, found, axis, none)), rounding(found))
    step = newton(pair, nearer, axis, none, rounding(found))
    return jnp.where(count == 3, scale(safe.normalize(area), sign), step)
