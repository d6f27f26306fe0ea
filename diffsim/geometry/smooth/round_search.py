"""The direction in which an ellipsoid or disc and a hull are furthest apart: several starts, Newton steps on corners.

The body stands at the origin along its axes; u is a unit vector from it to the hull, whose corners are x. The gap is

    F(u) = min over x of u . x - |S u|,        S = diag(half sizes),

and the signed distance is its maximum, apart or penetrating (`separation.py`). A climb knows up to four corners. Of the
sets of them that hold the newest, a corner, an edge or a side, each proposes a direction: a Newton step on the sphere,
on the great circle across the edge, or the normal of the side. The proposal with the greatest gap of these corners is
tried; the corner that is nearest there becomes the newest. So corners join as in `gjk.py`.
Source: Gilbert et al. 1988; Absil et al. 2008 for Newton's method on the sphere.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.geometry.hull.gjk import KEPT, PAIRS
from diffsim.geometry.smooth.minkowski import ConvexPair, Ellipsoid, rounding
from diffsim.geometry.smooth.sphere_newton import combine, derivatives, newton_step, tangents
from diffsim.math import safe
from diffsim.math.vector import cross, dot, scale, total

Array = jax.Array

STEPS = 24
STARTS = 6
# a first look around: the faces, edges and corners of a cube
LOOK = np.array([d for d in np.ndindex(3, 3, 3) if d != (1, 1, 1)]) - 1


class Likely(NamedTuple):
    """Directions (p, 3) to begin with, zero where there is none, and how low corners are along each of them (p,)."""

    normal: Array
    height: Array


class Climb(NamedTuple):
    """The best direction (3,) and its gap; three corners of which some are `used`, and the newest; the damping."""

    normal: Array
    value: Array
    corners: Array
    used: Array
    newest: Array
    damping: Array


def furthest_direction(points: Array, size: Array, is_disc: bool, likely: Likely) -> Array:
    """The unit vector u (3,) with the greatest gap of a body with half sizes (3,) and corners (n, 3).

    Between equal gaps the axis of a disc is taken.
    """
    look = jnp.asarray(LOOK / np.linalg.norm(LOOK, axis=1, keepdims=True), points.dtype)
    around = jnp.concatenate([safe.normalize(jnp.mean(points, axis=0))[None], look])
    seeds = jnp.concatenate([around, safe.normalize(likely.normal)])
    gaps = jax.vmap(lambda u: _lowest(points, size, u)[0])(around)
    likely_gaps = likely.height - safe.norm(size[None] * likely.normal)
    exists = dot(likely.normal, likely.normal) > 0
    gaps = jnp.concatenate([gaps, jnp.where(exists, likely_gaps, -jnp.inf)])
    # the way to the middle of the hull is a start whatever its gap
    starts = jnp.append(jax.lax.top_k(gaps, STARTS)[1], 0)
    climbed = jax.vmap(lambda start: _climb(points, size, is_disc, start))(seeds[starts])
    values, normals = climbed.value, climbed.normal
    if is_disc:
        poles = jnp.asarray([[0, 0, 1], [0, 0, -1]], points.dtype)
        ends = jax.vmap(lambda u: _lowest(points, size, u)[0])(poles)
        level = 1e-2 * rounding(points) * (jnp.max(jnp.abs(values)) + size[0])
        values, normals = jnp.append(values, ends + level), jnp.concatenate([normals, poles])
    return normals[jnp.argmax(values)]


def _lowest(points: Array, size: Array, normal: Array) -> tuple[Array, Array]:
    """(gap along a direction (3,), place of the corner that is nearest)."""
    heights = dot(points, normal[None])
    return jnp.min(heights) - safe.norm(size * normal), jnp.argmin(heights)


def _climb(points: Array, size: Array, is_disc: bool, start: Array) -> Climb:
    """A local maximum of the gap."""
    value, nearest = _lowest(points, size, start)
    corner = points[nearest]
    begin = Climb(start, value, jnp.stack([corner] * 3), jnp.zeros((3,), bool), corner, jnp.zeros_like(value))
    return jax.lax.fori_loop(0, STEPS, lambda k, climb: _step(points, size, is_disc, climb, k % 3), begin)


def _step(points: Array, size: Array, is_disc: bool, climb: Climb, turn: Array | int) -> Climb:
    """One more corner, or a shorter step.

    Where a step finds a corner that is known, the corner at place `turn` takes its part as the newest: of a side with
    many corners, whose lowest is always the same, the edge that leads on may be between others.
    """
    trials, exists = _trials(size, is_disc, climb)
    corners = jnp.concatenate([climb.newest[None], climb.corners])
    known = jnp.concatenate([jnp.ones((1,), bool), climb.used])
    heights = jnp.min(jnp.where(known[None], dot(trials[:, None], corners[None]), jnp.inf), axis=1)
    best = jnp.argmax(jnp.where(exists, heights - safe.norm(size[None] * trials), -jnp.inf))
    trial = trials[best]
    value, nearest = _lowest(points, size, trial)
    corner = points[nearest]
    # the side on which it stands is no better than itself, whatever its rounding
    better = value > climb.value + 4 * jnp.finfo(value.dtype).eps * (jnp.abs(value) + size[0])
    repeated = jnp.any(known & jnp.all(corners == corner[None], axis=1))
    relaxed = jnp.where(climb.damping < 0.02 * size[0], 0, 0.1 * climb.damping)
    growth = jnp.where(repeated, 8.0, 3.0)
    damped = jnp.maximum(growth * climb.damping, 0.01 * growth * size[0])
    # the newest takes a place that is free
    kept = jnp.asarray(KEPT)[best]
    here = jnp.arange(3) == jnp.argmin(kept)
    corners, used = jnp.where(here[:, None], climb.newest[None], climb.corners), kept | here
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


def _trials(size: Array, is_disc: bool, climb: Climb) -> tuple[Array, Array]:
    """(directions (7, 3) that sets of corners with the newest propose, which of them exist (7,))."""
    sweep = climb.corners - climb.newest[None]
    area = cross(sweep[PAIRS[:, 0]], sweep[PAIRS[:, 1]])
    circles = jnp.concatenate([jnp.zeros((1, 3), sweep.dtype), safe.normalize(sweep)])
    pair = pair_of(climb.newest, size, is_disc)
    steps = jax.vmap(lambda circle: newton(pair, climb.normal, circle, climb.damping))(circles)
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


def newton(pair: ConvexPair, normal: Array, circle: Array, damping: Array, flattest: float = 1e-3) -> Array:
    """A Newton step from the nearest direction of a great circle with this axis, or on the sphere if that is zero."""
    start = safe.normalize(normal - scale(circle, dot(circle, normal)))
    basis = tangents(start, circle)
    value = dot(pair.center2, start) - safe.norm(pair.ellipsoids[0].size * start)
    gradient, hessian = derivatives(pair, start, basis, value)
    frozen = jax.lax.stop_gradient(hessian)
    return safe.normalize(start + combine(basis, newton_step(gradient, frozen, damping, flattest)))
