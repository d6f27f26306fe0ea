"""Pairs of ellipsoids, cylinders, capsules, boxes and spheres without a closed form, and of the first two with meshes.

The signed distance is the maximum of the gap F (`minkowski.py`) over unit vectors, apart or penetrating. F is smooth
except on the great circles q . n = 0 of segments q and at the poles of discs, so the maximum is one of
  - a smooth maximum on the sphere (Newton in two dimensions) or on a circle (Newton in one),
  - an intersection of two circles, or a pole (closed form).
Every candidate is a lower bound, so the largest is right, whatever the others converged to. The search is not
differentiated; at its end one differentiable Newton step on the chosen stratum gives the normal, and with it distance
and position, the derivative of the implicit function theorem.

The support points of both bodies along the normal are closest points, except where segments or discs are normal to it:
there a line or an area is as near, and the middle of what both bodies share is taken. Closest points of meshes come
from round_hull.py. Where both shapes have flat directions (cylinders, capsules, boxes, meshes), MuJoCo runs four more
times with the shapes tilted against each other and keeps the points that are new (`multiccd`); the same is done here,
with the four runs side by side.
Source: separation of convex sets (Boyd and Vandenberghe 2004, 8.2); Newton's method on the sphere (Absil et al. 2008).
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.enums import GeomType
from diffsim.geometry.shapes import Candidates, Shape, candidate, stack
from diffsim.geometry.smooth.minkowski import (
    ConvexPair,
    Ellipsoid,
    Kinds,
    Segment,
    Stratum,
    climb,
    combine,
    derivatives,
    gap,
    half_at,
    minkowski_sums,
    newton_step,
    rounding,
    tangents,
)
from diffsim.geometry.smooth.round_hull import separate_round
from diffsim.math import safe
from diffsim.math.rotation import axis_angle_to_quat, frame_from_z, quat_to_mat
from diffsim.math.vector import cross, dot, mul_mat, mul_vec, mul_vec_t, scale, transpose

Array = jax.Array


def midpoint(pair: ConvexPair, best: Stratum, normal: Array, dist: Array) -> Array:
    """Halfway between the closest points.

    Segments and discs that are normal to n touch with any of their points: they take up what is missing between
    the two support points, each as near to the middle of the common line or area as it can.
    """
    points = [pair.center1 + scale(normal, pair.radius1), pair.center2 - scale(normal, pair.radius2)]
    level_segments, level_discs = [], []
    for segment in pair.segments:
        component = dot(segment.half, normal)
        level = jnp.abs(component) < rounding(normal) * safe.norm(segment.half)
        level_segments.append(jax.lax.stop_gradient(level))
        sign = jnp.where(level, 0, jnp.where(component > 0, 1, -1))
        points[segment.owner] = points[segment.owner] + (1 - 2 * segment.owner) * scale(segment.half, sign)
    for ellipsoid in pair.ellipsoids:
        v = mul_vec_t(ellipsoid.mat, normal) * ellipsoid.size
        length = safe.norm(v)
        level = jax.lax.stop_gradient(length < rounding(v) * ellipsoid.size[0])
        level_discs.append(level)
        support = mul_vec(ellipsoid.mat, v * ellipsoid.size / jnp.where(level, 1, length))
        points[ellipsoid.owner] = points[ellipsoid.owner] + (1 - 2 * ellipsoid.owner) * jnp.where(level, 0, support)
    missing = points[1] - points[0] - scale(normal, dist)
    shared, missing = _fill_crossing(pair, best, level_segments, level_discs, normal, missing)
    reach = [_reach_of_segment(*parts) for parts in zip(pair.segments, level_segments, strict=True)]
    reach += [_reach_of_disc(*parts) for parts in zip(pair.ellipsoids, level_discs, strict=True)]
    for k, part in enumerate((*pair.segments, *pair.ellipsoids)):
        axis = safe.normalize(part.half if isinstance(part, Segment) else missing)
        wanted, own = dot(missing, axis), reach[k](axis)
        # the middle of what this part can take, given how far the later ones reach
        later = sum((other(axis) for other in reach[k + 1 :]), jnp.zeros_like(own))
        middle = 0.5 * (safe.maximum(-own, wanted - later) + safe.minimum(own, wanted + later))
        taken = scale(axis, jnp.where(own > 0, middle, 0))
        missing, shared[part.owner] = missing - taken, shared[part.owner] + taken
    return 0.5 * (points[0] + shared[0] + points[1] - shared[1])


def _reach_of_segment(segment: Segment, level: Array) -> Callable[[Array], Array]:
    """How far a segment extends along an axis, if it is normal to n."""
    return lambda axis: jnp.where(level, jnp.abs(dot(segment.half, axis)), 0)


def _reach_of_disc(ellipsoid: Ellipsoid, level: Array) -> Callable[[Array], Array]:
    """How far a disc extends along an axis in its plane, if it is normal to n."""
    return lambda axis: jnp.where(level, ellipsoid.size[0], 0)


def _fill_crossing(
    pair: ConvexPair,
    best: Stratum,
    level_segments: list[Array],
    level_discs: list[Array],
    normal: Array,
    missing: Array,
) -> tuple[list[Array], Array]:
    """Two crossing edges meet in a point: what each of them takes up, per owner, and what is then still missing.

    Nothing where another part is normal to n too, for then the bodies touch along a line or over an area.
    """
    first, second = half_at(pair, best.first), half_at(pair, best.second)
    number = sum((level.astype(jnp.int32) for level in (*level_segments, *level_discs)), jnp.zeros((), jnp.int32))
    cross_only = (best.second >= 0) & (number == 2)
    # coefficients in the basis (first, second), by vectors normal to the other one
    across1, across2 = cross(second, normal), cross(first, normal)
    part1 = safe.clip(safe.divide(dot(missing, across1), dot(first, across1)), -1, 1)
    part2 = safe.clip(safe.divide(dot(missing, across2), dot(second, across2)), -1, 1)
    shared = [jnp.zeros_like(missing), jnp.zeros_like(missing)]
    for i, segment in enumerate(pair.segments):
        part = jnp.where(best.first == i, part1, jnp.where(best.second == i, part2, 0))
        taken = jnp.where(cross_only, scale(segment.half, part), 0)
        missing, shared[segment.owner] = missing - taken, shared[segment.owner] + taken
    return shared, missing


# the gap of a direction that does not exist, m
NO_GAP = -1e10
# a first look around: the faces, edges and corners of a cube, one of each opposite pair
LOOK = np.array([d for d in np.ndindex(3, 3, 3) if d > (1, 1, 1)]) - 1
# climbs begin a little aside: of bodies with parallel axes these directions are saddles, which Newton does not leave
ASIDE = 0.03 * np.array([0.55, -0.27, 0.79])


def separate(pair: ConvexPair) -> tuple[Array, Array, Array]:
    """(signed distance, midpoint of the closest points, unit normal from the first body to the second)."""
    best = jax.lax.stop_gradient(_search(jax.lax.stop_gradient(pair)))
    normal = _implicit_normal(pair, best)
    dist = gap(pair, normal)
    return dist, midpoint(pair, best, normal, dist), normal


def _search(pair: ConvexPair) -> Stratum:
    """The best direction of all strata; closed forms win ties, then circles."""
    offset = pair.center2 - pair.center1
    normals, exists, strata = _closed_forms(pair)
    starts, circles = _starts(pair, _unit(offset)[0])
    climbed = jax.vmap(climb, (None, 0, 0))(pair, starts, _circle_axes(pair, circles))
    strata += [(circle, -1, -1) for circle in circles]
    normals = _towards_second(pair, jnp.concatenate([jnp.stack(normals), climbed]) if normals else climbed)
    gaps = jax.vmap(gap, (None, 0))(pair, normals)
    if exists:
        gaps = jnp.where(jnp.concatenate([jnp.stack(exists), jnp.ones(len(circles), bool)]), gaps, NO_GAP)
    # within rounding, the stratum of the lowest dimension
    prior = np.array([2 if second >= 0 or pole >= 0 else int(first >= 0) for first, second, pole in strata])
    near = 1e-2 * rounding(gaps) * (jnp.max(jnp.abs(jnp.where(gaps > NO_GAP, gaps, 0))) + safe.norm(offset))
    best = jnp.argmax(gaps + near * jnp.asarray(prior, gaps.dtype))
    first, second, pole = (jnp.asarray(column, jnp.int32)[best] for column in zip(*strata, strict=True))
    return Stratum(normals[best], first, second, pole)


def _closed_forms(pair: ConvexPair) -> tuple[list[Array], list[Array], list[tuple[int, int, int]]]:
    """Poles of discs and crossings of circles: directions, whether they exist, and their strata."""
    normals, exists, strata = [], [], []
    for at, ellipsoid in enumerate(pair.ellipsoids):
        if ellipsoid.disc:
            normals.append(ellipsoid.mat[:, 2])
            exists.append(jnp.asarray(True))
            strata.append((-1, -1, at))
    for i, first in enumerate(pair.segments):
        for j, second in enumerate(pair.segments[:i]):
            lengths = dot(first.half, first.half), dot(second.half, second.half)
            normal, crossing = _unit(cross(first.half, second.half), *lengths)
            normals.append(normal)
            exists.append(crossing)
            strata.append((i, j, -1))
    return normals, exists, strata


def _unit(v: Array, *scales: Array) -> tuple[Array, Array]:
    """v / |v|, and whether v is more than rounding in a product of vectors with the given squared lengths."""
    limit = jnp.full_like(v[0], 1e-30)
    if scales:
        limit = limit + rounding(v) ** 2 * scales[0] * scales[1]
    exists = dot(v, v) > limit
    return safe.normalize(jnp.where(exists, v, jnp.asarray([1, 0, 0], v.dtype))), exists


def _towards_second(pair: ConvexPair, normals: Array) -> Array:
    """Directions (n, 3) to the side of the second body; F of the other side is never greater."""
    away = mul_vec(normals, pair.center2 - pair.center1) < 0
    return jnp.where(away[:, None], -normals, normals)


def _starts(pair: ConvexPair, toward: Array) -> tuple[Array, list[int]]:
    """Directions (s, 3) to climb from, and the circle that each stays on (-1: the whole sphere)."""
    look = jnp.asarray(LOOK / np.linalg.norm(LOOK, axis=1, keepdims=True), toward.dtype)
    # two boxes have no ellipsoid: any axes do
    sphere = [mul_vec(ellipsoid.mat[None], look) for ellipsoid in pair.ellipsoids] or [look]
    sphere = jnp.concatenate(sphere)
    angles = jnp.asarray(np.pi / 8 * np.arange(8), toward.dtype)[None, :, None]
    frames = frame_from_z(_circle_axes(pair, list(range(len(pair.segments)))))
    around = jnp.cos(angles) * frames[:, None, 1] + jnp.sin(angles) * frames[:, None, 2]
    seeds = _towards_second(pair, jnp.concatenate([sphere, around.reshape(-1, 3)]))
    gaps = jax.vmap(gap, (None, 0))(pair, seeds)
    best = _greatest(gaps[: len(sphere)], seeds[: len(sphere)], 4) + jnp.asarray(ASIDE, toward.dtype)[None]
    starts, circles = [toward[None], safe.normalize(best)], [-1] * 5
    for i in range(len(pair.segments)):
        part = slice(len(sphere) + 8 * i, len(sphere) + 8 * i + 8)
        axis = frames[i, 0]
        near = safe.normalize(toward - scale(axis, dot(axis, toward)))
        starts += [near[None], _greatest(gaps[part], seeds[part], 2)]
        circles += [i, i, i]
    return jnp.concatenate(starts), circles


def _greatest(gaps: Array, seeds: Array, count: int) -> Array:
    """The directions (count, 3) with the greatest gaps."""
    return seeds[jax.lax.top_k(gaps, count)[1]]


def _circle_axes(pair: ConvexPair, circles: list[int]) -> Array:
    """Unit axes (s, 3) of the circles, zero for the whole sphere."""
    none = jnp.zeros((1, 3), pair.center1.dtype)
    halves = [segment.half[None] for segment in pair.segments]
    axes = jnp.concatenate([none, *(safe.normalize(half) for half in halves)])
    return axes[np.array(circles, int) + 1]


def _implicit_normal(pair: ConvexPair, best: Stratum) -> Array:
    """The best direction as a differentiable function of the pair, on its stratum."""
    first, second = half_at(pair, best.first), half_at(pair, best.second)
    # closed forms: crossing circles and poles
    crossing = safe.normalize(cross(first, second))
    pole = best.normal
    for at, ellipsoid in enumerate(pair.ellipsoids):
        pole = jnp.where(best.pole == at, ellipsoid.mat[:, 2], pole)
    closed = jnp.where(best.pole >= 0, pole, crossing)
    closed = jnp.where(jax.lax.stop_gradient(dot(closed, best.normal)) < 0, -closed, closed)
    # one Newton step with the Hessian frozen, from the nearest point of the circle
    on_circle = best.first >= 0
    axis = safe.normalize(jnp.where(on_circle, first, 1)) * on_circle
    start = safe.normalize(best.normal - scale(axis, dot(axis, best.normal)))
    basis = tangents(start, axis)
    gradient, hessian = derivatives(pair, start, basis, gap(pair, start))
    step = newton_step(gradient, jax.lax.stop_gradient(hessian), jnp.zeros_like(hessian[0]), rounding(start))
    free = safe.normalize(start + combine(basis, step))
    return jnp.where((best.pole >= 0) | (best.second >= 0), closed, free)


TILT = 1e-3  # rad
DISTINCT = 1e-3  # of the smaller bounding radius


def convex_pair(kind1: GeomType, kind2: GeomType, rows: int) -> Callable[[Shape, Shape, Array], Candidates]:
    """Pair function with one row, or with five: the closest points and those of four tilted runs."""
    return functools.partial(_closest if rows == 1 else _closest_and_tilted, (kind1, kind2))


def _closest(kinds: Kinds, shape1: Shape, shape2: Shape, margin: Array) -> Candidates:
    return stack([candidate(*_separation(kinds, shape1, shape2))])


def _separation(kinds: Kinds, shape1: Shape, shape2: Shape) -> tuple[Array, Array, Array]:
    """(signed distance, midpoint of the closest points, unit normal from the first body to the second)."""
    if kinds[1] == GeomType.MESH:
        return separate_round(kinds[0], shape1, shape2.data, shape2)
    return separate(minkowski_sums(kinds, shape1, shape2))


def _closest_and_tilted(kinds: Kinds, shape1: Shape, shape2: Shape, margin: Array) -> Candidates:
    # the same program runs upright, then tilted about what it found
    def run(pivot: tuple[Array, Array], angles: Array) -> tuple[tuple[Array, Array], tuple[Array, Array, Array]]:
        point, normal = pivot
        axes = frame_from_z(normal)[np.array([1, 1, 2, 2])]
        turns = quat_to_mat(axis_angle_to_quat(axes, angles))
        closest = jax.vmap(functools.partial(_tilted, kinds, shape1, shape2, point))(turns)
        return (closest[1][0], closest[2][0]), closest

    angles = TILT * np.array([[0, 0, 0, 0], [-1, 1, -1, 1]])
    start = (shape1.pos, shape1.axis)
    _, (dists, points, normals) = jax.lax.scan(run, start, jnp.asarray(angles, margin.dtype))
    dist = dists[0, 0]
    radius = safe.minimum(_bound(kinds[0], shape1), _bound(kinds[1], shape2))
    rows = [candidate(dist, points[0, 0], normals[0, 0])]
    for k in range(4):
        # a point counts if it touches and is away from those before it
        distinct = jax.lax.stop_gradient(dists[1, k]) < jax.lax.stop_gradient(margin)
        for row in rows:
            apart = jax.lax.stop_gradient(safe.norm(row.pos - points[1, k])) > DISTINCT * radius
            distinct = distinct & (apart | ~row.valid)
        rows.append(candidate(dist, points[1, k], normals[1, k], valid=distinct))
    return stack(rows)


def _tilted(kinds: Kinds, shape1: Shape, shape2: Shape, pivot: Array, turn: Array) -> tuple[Array, Array, Array]:
    """The closest points after turning the shapes against each other about a point."""
    turned = [
        Shape(pivot + mul_vec(rotation, shape.pos - pivot), mul_mat(rotation, shape.mat), shape.size, shape.data)
        for shape, rotation in ((shape1, turn), (shape2, transpose(turn)))
    ]
    return _separation(kinds, *turned)


def _bound(kind: GeomType, shape: Shape) -> Array:
    """Radius of the bounding ball."""
    size = jax.lax.stop_gradient(shape.size)
    bounds = {
        GeomType.CAPSULE: lambda: size[0] + size[1],
        GeomType.CYLINDER: lambda: jnp.sqrt(size[0] ** 2 + size[1] ** 2),
        GeomType.BOX: lambda: jnp.sqrt(dot(size, size)),
        GeomType.MESH: lambda: jax.lax.stop_gradient(shape.data.bound),
    }
    return bounds[kind]()
