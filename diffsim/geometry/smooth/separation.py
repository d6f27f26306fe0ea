"""Signed distance of two centrally symmetric convex pair, by the direction of greatest separation.

The signed distance is the maximum of the gap F (`minkowski.py`) over unit vectors, apart or penetrating. F is smooth
except on the great circles q . n = 0 of segments q and at the poles of discs, so the maximum is one of
  - a smooth maximum on the sphere (Newton in two dimensions) or on a circle (Newton in one),
  - an intersection of two circles, or a pole (closed form).
Every candidate is a lower bound, so the largest is right, whatever the others converged to. The search is not
differentiated; at its end one differentiable Newton step on the chosen stratum gives the normal, and with it distance
and position, the derivative of the implicit function theorem.

Source: separation of convex sets (Boyd and Vandenberghe 2004, 8.2); Newton's method on the sphere (Absil et al. 2008).
"""

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.geometry.smooth.midpoint import midpoint
from diffsim.geometry.smooth.minkowski import ConvexPair, Stratum, gap, half_at, rounding
from diffsim.geometry.smooth.sphere_newton import climb, combine, derivatives, newton_step, tangents
from diffsim.math import safe
from diffsim.math.rotation import frame_from_z
from diffsim.math.vector import cross, dot, mul_vec, scale

Array = jax.Array

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
