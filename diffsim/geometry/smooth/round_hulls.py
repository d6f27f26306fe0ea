"""separate_round: the signed distance of an ellipsoid or a cylinder from a hull.

It is the maximum of the gap F over all unit vectors, whether the two are apart or penetrate. The cylinder is treated as
a disc, and its axis is added to the hull, which doubles the hull's corners. The body is at the origin, aligned with its
axes. The unit vector u points from the body to the hull, whose corners are x. The gap is

    F(u) = min over x of u . x - |S u|,        S = diag(half sizes).

Several climbs search for its maximum, without derivatives. A climb remembers up to four corners. Each subset that
contains the newest corner proposes a direction. A corner proposes a Newton step on the sphere, an edge proposes one on
the great circle perpendicular to it, and a triangle proposes its normal. The proposal with the greatest gap to these
corners is tried. The corner of the hull that is nearest along it becomes the newest corner, as in `gjk.py`. At the
maximum, several corners may be equally near. The contact feature is their corner, edge or side that is nearest to the
body's support point. The normal follows in closed form. A side has its own normal; for a corner or an edge, one more
Newton step gives the normal, with the derivative of the implicit function.
Source: Gilbert et al. 1988; Absil et al. 2008 for Newton's method on the sphere.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from diffsim.base.enums import GeomType
from diffsim.geometry.hull.features import HullPair, shares_of
from diffsim.geometry.hull.gjk import KEPT, PAIRS, closest_feature
from diffsim.geometry.hull.polytope import Hull, SharedHull
from diffsim.geometry.shapes import Shape, collider
from diffsim.geometry.smooth.minkowski import (
    ConvexPair,
    Ellipsoid,
    newton,
    onto_circle,
    rounding,
)
from diffsim.geometry.smooth.separate import CUBE
from diffsim.math import safe
from diffsim.math.vector import cross, dot, mul_mat, mul_vec, mul_vec_t, pack, scale, total, transpose, unpack
from diffsim.xla.batched_searches import in_groups
from diffsim.xla.loops import fori_loop
from diffsim.xla.select import first

# steps of a climb, and number of climbs besides the one that starts towards the middle of the hull
STEPS = 24
STARTS = 6


class Likely(NamedTuple):
    """Directions (p, 3) to begin with, zero for padding, and the least height (p,) of the corners along each."""

    normal: Array
    height: Array


class Climb(NamedTuple):
    """The best direction (3,) and its gap; three older corners, of which some are `used`; the newest; the damping."""

    normal: Array
    value: Array
    corners: Array
    used: Array
    newest: Array
    damping: Array


def furthest_direction(points: Array, size: Array, is_disc: bool, likely: Likely) -> Array:
    """The unit vector u (3,) with the greatest gap of a body with half sizes (3,) and corners (n, 3).

    If the axis of a disc has the same gap as another direction, the axis is returned.
    """
    around = jnp.concatenate([safe.normalize(jnp.mean(points, axis=0))[None], jnp.asarray(CUBE, points.dtype)])
    seeds = jnp.concatenate([around, safe.normalize(likely.normal)])
    gaps = jax.vmap(lambda u: _lowest(points, size, u)[0])(around)
    likely_gaps = likely.height - safe.norm(size[None] * likely.normal)
    exists = dot(likely.normal, likely.normal) > 0
    gaps = jnp.concatenate([gaps, jnp.where(exists, likely_gaps, -jnp.inf)])
    # the direction to the middle of the hull is always a start, whatever its gap
    starts = jnp.append(jax.lax.top_k(gaps, STARTS)[1], 0)

    def climb(start: Array) -> Climb:
        """A local maximum of the gap; each step adds one corner."""
        value, nearest = _lowest(points, size, start)
        corner = points[nearest]
        begin = Climb(start, value, jnp.stack([corner] * 3), jnp.zeros((3,), bool), corner, jnp.zeros_like(value))
        return fori_loop(0, STEPS, lambda k, climb: _step(points, size, is_disc, climb, k % 3), begin)

    climbed = jax.vmap(climb)(seeds[starts])
    values, normals = climbed.value, climbed.normal
    if is_disc:
        poles = jnp.asarray([[0, 0, 1], [0, 0, -1]], points.dtype)
        pole_gaps = jax.vmap(lambda u: _lowest(points, size, u)[0])(poles)
        tie = 1e-2 * rounding(points) * (jnp.max(jnp.abs(values)) + size[0])
        values = jnp.append(values, pole_gaps + tie)
        normals = jnp.concatenate([normals, poles])
    return normals[jnp.argmax(values)]


def _lowest(points: Array, size: Array, normal: Array) -> tuple[Array, Array]:
    """(gap along a direction (3,), index of the nearest corner)."""
    heights = dot(points, normal[None])
    least = jnp.min(heights)
    return least - safe.norm(size * normal), first(heights <= least)


@collider
def _step(points: Array, size: Array, is_disc: bool, climb: Climb, turn: Array | int) -> Climb:
    """The climb after one more corner; if the gap has not grown, the damping grows.

    If a step finds a corner that is already known, the corner at index `turn` becomes the newest instead. This matters
    on a side with many corners: its lowest corner stays the same, but the edge that leads on may be between others.
    """
    trials, exists = _trials(size, is_disc, climb)
    corners = jnp.concatenate([climb.newest[None], climb.corners])
    known = jnp.concatenate([jnp.ones((1,), bool), climb.used])
    heights = jnp.min(jnp.where(known[None], dot(trials[:, None], corners[None]), jnp.inf), axis=1)
    best = jnp.argmax(jnp.where(exists, heights - safe.norm(size[None] * trials), -jnp.inf))
    trial = trials[best]
    value, nearest = _lowest(points, size, trial)
    corner = points[nearest]
    # a gain within rounding is no gain: a climb that is already on the best side must not go on
    better = value > climb.value + 4 * jnp.finfo(value.dtype).eps * (jnp.abs(value) + size[0])
    repeated = jnp.any(known & jnp.all(corners == corner[None], axis=1))
    relaxed = jnp.where(climb.damping < 0.02 * size[0], 0, 0.1 * climb.damping)
    growth = jnp.where(repeated, 8.0, 3.0)
    damped = jnp.maximum(growth * climb.damping, 0.01 * growth * size[0])
    # the newest takes a free slot
    kept = jnp.asarray(KEPT)[best]
    here = jnp.arange(3) == jnp.argmin(kept)
    corners = jnp.where(here[:, None], climb.newest[None], climb.corners)
    used = kept | here
    taken = repeated & used & (jnp.arange(3) == turn)
    other = total([jnp.where(taken[k], corners[k], 0) for k in range(3)])
    return Climb(
        jnp.where(better, trial, climb.normal),
        jnp.where(better, value, climb.value),
        jnp.where(taken[:, None], corner[None], corners),
        used,
        jnp.where(jnp.any(taken), other, corner),
        jnp.where(better, relaxed, damped),
    )


@collider
def _trials(size: Array, is_disc: bool, climb: Climb) -> tuple[Array, Array]:
    """(directions (7, 3) that the subsets with the newest corner propose, which of them exist (7,))."""
    sweep = climb.corners - climb.newest[None]
    area = cross(sweep[PAIRS[:, 0]], sweep[PAIRS[:, 1]])
    circles = jnp.concatenate([jnp.zeros((1, 3), sweep.dtype), safe.normalize(sweep)])
    pair = pair_of(climb.newest, size, is_disc)
    steps = jax.vmap(lambda circle: _step_from(pair, climb.normal, circle, climb.damping))(circles)
    facing = jnp.where(dot(area, climb.normal[None]) < 0, -1, 1).astype(area.dtype)
    lengths = dot(sweep, sweep)
    limit = rounding(sweep) ** 2
    edges = climb.used & (lengths > limit * size[0] ** 2)
    both = edges[PAIRS[:, 0]] & edges[PAIRS[:, 1]]
    flat = dot(area, area) > limit * lengths[PAIRS[:, 0]] * lengths[PAIRS[:, 1]]
    exists = jnp.concatenate([jnp.ones((1,), bool), edges, both & flat])
    return jnp.concatenate([steps, safe.normalize(scale(area, facing))]), exists


def pair_of(corner: Array, size: Array, is_disc: bool) -> ConvexPair:
    """The body at the origin and one point."""
    none = jnp.zeros_like(corner)
    body = Ellipsoid(mat=jnp.eye(3, dtype=corner.dtype), size=size, disc=is_disc, owner=0)
    return ConvexPair(center1=none, center2=corner, radius1=none[0], radius2=none[0], ellipsoids=(body,), segments=())


def _step_from(pair: ConvexPair, normal: Array, circle: Array, damping: Array, flattest: float = 1e-3) -> Array:
    """A Newton step on the great circle with axis `circle`, or on the sphere if that axis is zero."""
    start = onto_circle(normal, circle)
    value = dot(pair.center2, start) - safe.norm(pair.ellipsoids[0].size * start)
    return newton(pair, start, circle, value, damping, flattest)[0]


# least width of a triangle whose plane is accurate enough, relative to the size of the body
LEAST_WIDTH = 0.05
ROUND = (GeomType.ELLIPSOID, GeomType.CYLINDER)


class _Nearest(NamedTuple):
    """The direction (3,) with the greatest gap between a body and a hull, and the corners of the hull nearest there.

    Attributes:
      direction: (3,) unit, from the body to the hull.
      pole: () whether it is the pole of a disc.
      places: (3,) vertices of the hull.
      end: (3,) the end of the cylinder's axis by which each vertex was moved, -1 or 1; 0 for an ellipsoid.
      corners: () how many of the three vertices count.
    """

    direction: Array
    pole: Array
    places: Array
    end: Array
    corners: Array


def separate_round(
    kind: GeomType, body: Shape, hull: Hull | SharedHull, frame: Shape, near: Array | bool = True
) -> tuple[Array, Array, Array]:
    """(signed distance m, midpoint (3,), unit normal (3,) from the body to the hull), in the world.

    `frame`: the pose of the hull. If they are not `near` (), there is no search, and results are any finite numbers.
    """
    is_disc = kind == GeomType.CYLINDER
    radius, half, _ = unpack(body.size)
    size = pack([radius, radius, jnp.zeros_like(radius)]) if is_disc else body.size
    pose = mul_mat(transpose(body.mat), frame.mat), mul_vec_t(body.mat, frame.pos - body.pos)

    def search(_: Array, inputs: tuple[Hull | SharedHull, tuple[Array, Array], Array, Array]) -> _Nearest:
        shared, (turn, offset), size, half = inputs
        hull = shared.whole
        local = points = mul_vec(turn[None], hull.vert) + offset[None]
        if is_disc:
            shift = jnp.concatenate([jnp.broadcast_to(way, (len(local),)) for way in (half, -half)])
            points = jnp.concatenate([local, local]) - _upward(shift)
        # along the normal of a side, the nearest corner belongs to this side; for a cylinder, at one of the two ends
        normal = -mul_vec(turn[None], hull.normal)
        ends = points.reshape(-1, *hull.vert.shape)[:, hull.side.entry[hull.side.start[:-1]]]
        likely = Likely(normal, jnp.min(dot(normal[None], ends), axis=0))
        if is_disc:
            likely = jax.tree.map(lambda *both: jnp.concatenate(both), likely, _around_axis(hull, turn, local))
        direction = furthest_direction(points, size, is_disc, likely)
        stretched = size * direction
        pole = safe.norm(stretched) < rounding(direction) * size[0]
        nearest = jnp.where(pole, 0, scale(size * stretched, 1 / jnp.where(pole, 1, safe.norm(stretched))))
        places, count = _touching(points, direction, nearest, size)
        end = jnp.where(places < len(local), 1, -1) if is_disc else jnp.zeros_like(places)
        return _Nearest(direction, pole, places % len(local), end, count)

    nearest = jax.lax.stop_gradient(in_groups(search, near, jax.lax.stop_gradient((hull, pose, size, half))))
    shift = half * nearest.end
    point = mul_vec(pose[0][None], hull.vertices(nearest.places)) + pose[1][None] - _upward(shift)
    dist, point, normal = _contact(nearest, size, point, shift, is_disc)
    return dist, body.pos + mul_vec(body.mat, point), mul_vec(body.mat, normal)


def _upward(length: Array) -> Array:
    """Vectors (n, 3) along z with these lengths (n,)."""
    return pack([jnp.zeros_like(length), jnp.zeros_like(length), length])


def _around_axis(hull: Hull, turn: Array, local: Array) -> Likely:
    """The direction (1, 3) with the greatest gap among the cross products of z and an edge; zero if there is none.

    If the side of a cylinder touches an edge of the hull, the normal is one of these cross products. The edge is the
    nearest part of the hull along a direction if the opposite direction lies between the normals of its two facets.
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


@collider
def _contact(corners: _Nearest, size: Array, point: Array, shift: Array, is_disc: bool) -> tuple[Array, Array, Array]:
    """(distance, midpoint, normal) in the frame of the body, from the result of the search.

    `point` (3, 3), m: the nearest corners, each moved down by its `shift` (3,).
    """
    direction, pole, count = corners.direction, corners.pole, corners.corners
    # a side has a normal; a corner or an edge needs Newton steps. The search compares gaps, so its direction is only
    # accurate to the square root of rounding: a first step improves it, and a second step is differentiated
    area = cross(point[1] - point[0], point[2] - point[0])
    sign = jnp.where(jax.lax.stop_gradient(dot(area, direction)) < 0, -1, 1).astype(area.dtype)
    axis = safe.normalize(jnp.where(count == 2, point[1] - point[0], 1)) * (count == 2)
    pair = pair_of(point[0], size, is_disc)
    none = jnp.zeros_like(size[0])
    nearer = _step_from(*jax.lax.stop_gradient((pair, direction, axis, none)), rounding(direction))
    step = _step_from(pair, nearer, axis, none, rounding(direction))
    normal = jnp.where(count == 3, scale(safe.normalize(area), sign), step)
    normal = jnp.where(pole, direction, normal)
    dist = dot(normal, point[0]) - jnp.where(pole, 0, safe.norm(size * jnp.where(pole, 1, normal)))
    stretched = jnp.where(pole, 1, size * normal)
    nearest = jnp.where(pole, 0, size * scale(stretched, 1 / safe.norm(stretched)))
    shares = shares_of(point - nearest[None], count)
    along = total([shift[k] * shares[k] for k in range(3)])
    against = total([scale(point[k], shares[k]) for k in range(3)])
    middle = jnp.where(pole, against - scale(normal, 0.5 * dist), nearest + scale(normal, 0.5 * dist))
    return dist, middle + pack([jnp.zeros_like(along), jnp.zeros_like(along), along]), normal


def _touching(points: Array, normal: Array, nearest: Array, size: Array) -> tuple[Array, Array]:
    """(indices (3,) of the corners of the contact feature, how many of them count); see the top of the file."""
    heights = dot(points, normal[None])
    lowest = jnp.argmin(heights)
    reach = size[0] + size[1] + size[2]
    level = heights - heights[lowest] < 1e2 * rounding(points) * reach
    aside = points - nearest[None]
    aside = aside + scale(jnp.broadcast_to(normal, aside.shape), reach - dot(aside, normal[None]))
    # corners that are farther away are replaced by the lowest one
    aside = jnp.where(level[:, None], aside, aside[lowest])
    feature = closest_feature(HullPair(jnp.zeros_like(aside[:1]), aside, jnp.eye(3, dtype=aside.dtype), 0 * normal))[0]
    places = jnp.where(level[feature.second], feature.second, lowest)
    # the feature may be a line between two corners of a side, which has the side's normal
    above = safe.norm(feature.normal - normal) < 1e2 * rounding(points)
    # then the corner of this side that is farthest from the line makes it a triangle, if one is far enough
    begin = aside[places[0]]
    sweep = aside[places[1]] - aside[places[0]]
    off = jnp.where(level & above, safe.norm(cross(aside - begin[None], sweep[None])), 0)
    third = jnp.argmax(off)
    wide = (feature.corners == 2) & (off[third] > LEAST_WIDTH * reach * safe.norm(sweep))
    return jnp.where(wide & (jnp.arange(3) == 2), third, places), jnp.where(wide, 3, feature.corners)
