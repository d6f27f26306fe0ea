"""separate: the signed distance of two shapes that are Minkowski sums (minkowski.py).

It is the greatest gap F(n) over all unit vectors n, and every candidate is a lower bound of it, so the largest one
counts, whatever the others converged to. The search is not differentiated. After it, one differentiable Newton step on
the chosen stratum computes the normal, so that it has the derivative of the implicit function theorem. Distance and
position follow from the normal.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.geometry.shapes import collider
from diffsim.geometry.smooth.minkowski import (
    ConvexPair,
    Stratum,
    gap,
    half_at,
    midpoint,
    newton,
    onto_circle,
    rounding,
    sphere_newton,
)
from diffsim.math import safe
from diffsim.math.rotation import frame_from_z
from diffsim.math.vector import cross, dot, mul_vec
from diffsim.xla.batched_searches import in_groups

# the gap of a direction that does not exist, m
NO_GAP = -1e10
# unit directions (26, 3) that a search compares first: to the faces, edges and corners of a cube. The last half has one
# of each opposite pair
CUBE = np.array([d for d in np.ndindex(3, 3, 3) if d != (1, 1, 1)]) - 1.0

CUBE /= np.linalg.norm(CUBE, axis=1, keepdims=True)

# offset of the starts: for bodies with parallel axes the directions above are saddles, which Newton steps do not leave
ASIDE = 0.03 * np.array([0.55, -0.27, 0.79])


def separate(pair: ConvexPair, near: Array | bool = True) -> tuple[Array, Array, Array]:
    """(signed distance, midpoint of the closest points, unit normal from the first body to the second).

    If the bodies are not `near` (), there is no search, and the results are any finite numbers.
    """
    best = in_groups(lambda _, pair: _search(pair), near, jax.lax.stop_gradient(pair))
    normal = _implicit_normal(pair, jax.lax.stop_gradient(best))
    dist = gap(pair, normal)
    return dist, midpoint(pair, best, normal, dist), normal


@collider
def _search(pair: ConvexPair) -> Stratum:
    """The best direction of all strata; in a tie, closed forms come first, then circles."""
    offset = pair.center2 - pair.center1
    normals, exists, strata = _closed_forms(pair)
    starts, circles = _starts(pair, _unit(offset)[0])
    maxima = jax.vmap(sphere_newton, (None, 0, 0))(pair, starts, _circle_axes(pair, circles))
    strata += [(circle, -1, -1) for circle in circles]
    normals = _towards_second(pair, jnp.concatenate([jnp.stack(normals), maxima]) if normals else maxima)
    gaps = jax.vmap(gap, (None, 0))(pair, normals)
    if exists:
        gaps = jnp.where(jnp.concatenate([jnp.stack(exists), jnp.ones(len(circles), bool)]), gaps, NO_GAP)
    # of gaps that are equal within rounding, the stratum of the lowest dimension wins
    preference = np.array([2 if second >= 0 or pole >= 0 else int(first >= 0) for first, second, pole in strata])
    near = 1e-2 * rounding(gaps) * (jnp.max(jnp.abs(jnp.where(gaps > NO_GAP, gaps, 0))) + safe.norm(offset))
    best = jnp.argmax(gaps + near * jnp.asarray(preference, gaps.dtype))
    first, second, pole = (jnp.asarray(column, jnp.int32)[best] for column in zip(*strata, strict=True))
    return Stratum(normals[best], first, second, pole)


def _closed_forms(pair: ConvexPair) -> tuple[list[Array], list[Array], list[tuple[int, int, int]]]:
    """Poles of discs and crossings of circles: directions, whether they exist, and their strata."""
    normals, exists, strata = [], [], []
    for number, ellipsoid in enumerate(pair.ellipsoids):
        if ellipsoid.disc:
            normals.append(ellipsoid.mat[:, 2])
            exists.append(jnp.asarray(True))
            strata.append((-1, -1, number))
    for i, first in enumerate(pair.segments):
        for j, second in enumerate(pair.segments[:i]):
            lengths = dot(first.half, first.half), dot(second.half, second.half)
            normal, crossing = _unit(cross(first.half, second.half), *lengths)
            normals.append(normal)
            exists.append(crossing)
            strata.append((i, j, -1))
    return normals, exists, strata


def _unit(v: Array, *scales: Array) -> tuple[Array, Array]:
    """v / |v|, and whether v is longer than the rounding error of a cross product of vectors with squared lengths
    `scales`.
    """
    limit = jnp.full_like(v[0], 1e-30)
    if scales:
        limit = limit + rounding(v) ** 2 * scales[0] * scales[1]
    exists = dot(v, v) > limit
    return safe.normalize(jnp.where(exists, v, jnp.asarray([1, 0, 0], v.dtype))), exists


def _towards_second(pair: ConvexPair, normals: Array) -> Array:
    """Directions (n, 3), flipped to the side of the second body: F of the opposite direction is never greater."""
    away = mul_vec(normals, pair.center2 - pair.center1) < 0
    return jnp.where(away[:, None], -normals, normals)


def _starts(pair: ConvexPair, toward: Array) -> tuple[Array, list[int]]:
    """Directions (s, 3) to begin with, and for each the circle that it stays on (-1: the whole sphere)."""
    half = jnp.asarray(CUBE[13:], toward.dtype)
    # two boxes have no ellipsoid: the axes of the world will do
    sphere = [mul_vec(ellipsoid.mat[None], half) for ellipsoid in pair.ellipsoids] or [half]
    sphere = jnp.concatenate(sphere)
    angles = jnp.asarray(np.pi / 8 * np.arange(8), toward.dtype)[None, :, None]
    frames = frame_from_z(_circle_axes(pair, list(range(len(pair.segments)))))
    around = jnp.cos(angles) * frames[:, None, 1] + jnp.sin(angles) * frames[:, None, 2]
    seeds = _towards_second(pair, jnp.concatenate([sphere, around.reshape(-1, 3)]))
    gaps = jax.vmap(gap, (None, 0))(pair, seeds)
    best = _greatest(gaps[: len(sphere)], seeds[: len(sphere)], 4) + jnp.asarray(ASIDE, toward.dtype)[None]
    starts = [toward[None], safe.normalize(best)]
    circles = [-1] * 5
    for i in range(len(pair.segments)):
        part = slice(len(sphere) + 8 * i, len(sphere) + 8 * i + 8)
        axis = frames[i, 0]
        starts += [onto_circle(toward, axis)[None], _greatest(gaps[part], seeds[part], 2)]
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


@collider
def _implicit_normal(pair: ConvexPair, best: Stratum) -> Array:
    """The best direction as a differentiable function of the pair, on its stratum."""
    first, second = half_at(pair, best.first), half_at(pair, best.second)
    # closed forms: crossing circles and poles
    crossing = safe.normalize(cross(first, second))
    pole = best.normal
    for number, ellipsoid in enumerate(pair.ellipsoids):
        pole = jnp.where(best.pole == number, ellipsoid.mat[:, 2], pole)
    closed = jnp.where(best.pole >= 0, pole, crossing)
    closed = jnp.where(jax.lax.stop_gradient(dot(closed, best.normal)) < 0, -closed, closed)
    # one Newton step from the nearest point of the circle
    on_circle = best.first >= 0
    axis = safe.normalize(jnp.where(on_circle, first, 1)) * on_circle
    start = onto_circle(best.normal, axis)
    value = gap(pair, start)
    free, _ = newton(pair, start, axis, value, jnp.zeros_like(value), rounding(start))
    return jnp.where((best.pole >= 0) | (best.second >= 0), closed, free)
