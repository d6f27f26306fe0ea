"""Signed distance of two centrally symmetric convex bodies, by the direction of greatest separation.

Ellipsoids, cylinders, capsules and boxes are Minkowski sums of an ellipsoid (perhaps flat), up to three segments and a
ball about their centre, so their support function is h(n) = |S R^T n| + sum |q . n| + radius. For two bodies whose
centres differ by c, the gap along n is F(n) = c . n - h1(n) - h2(n), and the signed distance is the maximum of F over
unit vectors, apart or penetrating. F is smooth except on the great circles q . n = 0 and at the poles of flat
ellipsoids (discs), so the maximum is one of
  - a smooth maximum on the sphere (Newton in two dimensions) or on a circle (Newton in one),
  - an intersection of two circles, or a pole (closed form).
Every candidate is a lower bound, so the largest is right, whatever the others converged to. The search is not
differentiated; at its end one differentiable Newton step on the chosen stratum gives the normal, and with it distance
and position, the derivative of the implicit function theorem.

Source: separation of convex sets (Boyd and Vandenberghe 2004, 8.2); Newton's method on the sphere (Absil et al. 2008).
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.math import safe
from diffsim.math.rotation import frame_from_z
from diffsim.math.vector import cross, dot, mul_vec, mul_vec_t, scale
from diffsim.types.record import Record, child, leaf, record, static

Array = jax.Array

ITERATIONS = 20
NEVER = -1e10
# a first look around: the faces, edges and corners of a cube, one of each opposite pair
LOOK = np.array([d for d in np.ndindex(3, 3, 3) if d > (1, 1, 1)]) - 1


@record
class Ellipsoid(Record):
    """R diag(size) ball, a `disc` if the last size is zero; `owner` is 0 or 1."""

    mat: Array = leaf(3, 3)
    size: Array = leaf(3)
    disc: bool = static()
    owner: int = static()


@record
class Segment(Record):
    """All points x q with |x| <= 1, q = `half`; `owner` is 0 or 1."""

    half: Array = leaf(3)
    owner: int = static()


@record
class Bodies(Record):
    """Two bodies as Minkowski sums about their centres (m)."""

    center1: Array = leaf(3)
    center2: Array = leaf(3)
    radius1: Array = leaf()
    radius2: Array = leaf()
    ellipsoids: tuple[Ellipsoid, ...] = child()
    segments: tuple[Segment, ...] = child()


class Stratum(NamedTuple):
    """A unit vector and where it lies: on the circles of segments `first` and `second` (-1: none), or at a pole.

    `pole` is the index of a disc, or -1.
    """

    normal: Array
    first: Array
    second: Array
    pole: Array


def separate(bodies: Bodies) -> tuple[Array, Array, Array]:
    """(signed distance, midpoint of the closest points, unit normal from the first body to the second)."""
    best = jax.lax.stop_gradient(_search(jax.lax.stop_gradient(bodies)))
    normal = _implicit_normal(bodies, best)
    dist = gap(bodies, normal)
    return dist, _midpoint(bodies, best, normal, dist), normal


def gap(bodies: Bodies, normal: Array) -> Array:
    """F(n) for a unit vector n (3,)."""
    total = dot(bodies.center2 - bodies.center1, normal) - bodies.radius1 - bodies.radius2
    for ellipsoid in bodies.ellipsoids:
        total = total - safe.norm(mul_vec_t(ellipsoid.mat, normal) * ellipsoid.size)
    for segment in bodies.segments:
        total = total - jnp.abs(dot(segment.half, normal))
    return total


def _slack(x: Array) -> float:
    """Relative rounding of directions and gaps that a search in the dtype of x leaves."""
    return 1e-10 if x.dtype == jnp.float64 else 1e-5


def _search(bodies: Bodies) -> Stratum:
    """The best direction of all strata; closed forms win ties, then circles."""
    offset = bodies.center2 - bodies.center1
    normals, exists, strata = _closed_forms(bodies)
    starts, circles = _starts(bodies, _unit(offset)[0])
    climbed = jax.vmap(_climb, (None, 0, 0))(bodies, starts, _circle_axes(bodies, circles))
    strata += [(circle, -1, -1) for circle in circles]
    normals = _turn(bodies, jnp.concatenate([jnp.stack(normals), climbed]) if normals else climbed)
    gaps = jax.vmap(gap, (None, 0))(bodies, normals)
    if exists:
        gaps = jnp.where(jnp.concatenate([jnp.stack(exists), jnp.ones(len(circles), bool)]), gaps, NEVER)
    # within rounding, the stratum of the lowest dimension
    prior = np.array([2 if second >= 0 or pole >= 0 else int(first >= 0) for first, second, pole in strata])
    rounding = 1e-2 * _slack(gaps) * (jnp.max(jnp.abs(jnp.where(gaps > NEVER, gaps, 0))) + safe.norm(offset))
    best = jnp.argmax(gaps + rounding * jnp.asarray(prior, gaps.dtype))
    first, second, pole = (jnp.asarray(column, jnp.int32)[best] for column in zip(*strata, strict=True))
    return Stratum(normals[best], first, second, pole)


def _closed_forms(bodies: Bodies) -> tuple[list[Array], list[Array], list[tuple[int, int, int]]]:
    """Poles of discs and crossings of circles: directions, whether they exist, and their strata."""
    normals, exists, strata = [], [], []
    for at, ellipsoid in enumerate(bodies.ellipsoids):
        if ellipsoid.disc:
            normals.append(ellipsoid.mat[:, 2])
            exists.append(jnp.asarray(True))
            strata.append((-1, -1, at))
    for i, first in enumerate(bodies.segments):
        for j, second in enumerate(bodies.segments[:i]):
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
        limit = limit + _slack(v) ** 2 * scales[0] * scales[1]
    exists = dot(v, v) > limit
    return safe.normalize(jnp.where(exists, v, jnp.asarray([1, 0, 0], v.dtype))), exists


def _turn(bodies: Bodies, normals: Array) -> Array:
    """Directions (n, 3) to the side of the second body; F of the other side is never greater."""
    away = mul_vec(normals, bodies.center2 - bodies.center1) < 0
    return jnp.where(away[:, None], -normals, normals)


def _starts(bodies: Bodies, toward: Array) -> tuple[Array, list[int]]:
    """Directions (s, 3) to climb from, and the circle that each stays on (-1: the whole sphere)."""
    look = jnp.asarray(LOOK / np.linalg.norm(LOOK, axis=1, keepdims=True), toward.dtype)
    # two boxes have no ellipsoid: any axes do
    sphere = [mul_vec(ellipsoid.mat[None], look) for ellipsoid in bodies.ellipsoids] or [look]
    sphere = jnp.concatenate(sphere)
    angles = jnp.asarray(np.pi / 8 * np.arange(8), toward.dtype)[None, :, None]
    frames = frame_from_z(_circle_axes(bodies, list(range(len(bodies.segments)))))
    around = jnp.cos(angles) * frames[:, None, 1] + jnp.sin(angles) * frames[:, None, 2]
    seeds = _turn(bodies, jnp.concatenate([sphere, around.reshape(-1, 3)]))
    gaps = jax.vmap(gap, (None, 0))(bodies, seeds)
    starts, circles = [toward[None], _greatest(gaps[: len(sphere)], seeds[: len(sphere)], 4)], [-1] * 5
    for i in range(len(bodies.segments)):
        part = slice(len(sphere) + 8 * i, len(sphere) + 8 * i + 8)
        axis = frames[i, 0]
        near = safe.normalize(toward - scale(axis, dot(axis, toward)))
        starts += [near[None], _greatest(gaps[part], seeds[part], 2)]
        circles += [i, i, i]
    return jnp.concatenate(starts), circles


def _greatest(gaps: Array, seeds: Array, count: int) -> Array:
    """The directions (count, 3) with the greatest gaps."""
    return seeds[jax.lax.top_k(gaps, count)[1]]


def _circle_axes(bodies: Bodies, circles: list[int]) -> Array:
    """Unit axes (s, 3) of the circles, zero for the whole sphere."""
    none = jnp.zeros((1, 3), bodies.center1.dtype)
    halves = [segment.half[None] for segment in bodies.segments]
    axes = jnp.concatenate([none, *(safe.normalize(half) for half in halves)])
    return axes[np.array(circles, int) + 1]


def _climb(bodies: Bodies, start: Array, circle: Array) -> Array:
    """Local maximum of F from a start, on the great circle with this axis, or on the sphere if the axis is zero.

    Newton on the sphere with a shift that makes the Hessian negative and grows when a step fails.
    """

    def improve(_: int, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        normal, value, damping = carry
        basis = _tangents(normal, circle)
        gradient, hessian = _derivatives(bodies, normal, basis, value)
        trial = safe.normalize(normal + _combine(basis, _newton(gradient, hessian, damping)))
        trial_value = gap(bodies, trial)
        size = jnp.abs(hessian[0]) + jnp.abs(hessian[2]) + jnp.abs(value)
        relaxed = jnp.where(damping < 0.02 * size, 0, 0.1 * damping)
        # near the maximum rounding decides; the step is still the better direction
        better = trial_value > value - 1e-4 * _slack(value) * size
        return (
            jnp.where(better, trial, normal),
            jnp.where(better, trial_value, value),
            jnp.where(better, relaxed, jnp.maximum(8 * damping, 0.1 * size)),
        )

    carry = (start, gap(bodies, start), jnp.zeros_like(start[0]))
    return jax.lax.fori_loop(0, ITERATIONS, improve, carry)[0]


def _tangents(normal: Array, circle: Array) -> tuple[Array, Array]:
    """Two unit tangents; on a circle the second is zero."""
    _, first, second = frame_from_z(normal)
    on_circle = dot(circle, circle) > 0.5
    along = safe.normalize(cross(circle, normal))
    return jnp.where(on_circle, along, first), jnp.where(on_circle, 0, second)


def _combine(basis: tuple[Array, Array], step: tuple[Array, Array]) -> Array:
    return scale(basis[0], step[0]) + scale(basis[1], step[1])


def _derivatives(
    bodies: Bodies, normal: Array, basis: tuple[Array, Array], value: Array
) -> tuple[tuple[Array, Array], tuple[Array, Array, Array]]:
    """Gradient and Hessian (11, 12, 22) of F on the sphere, in a tangent basis.

    F is homogeneous of degree one, so the curvature of the sphere adds -F on the diagonal. Segments that are normal
    to n, on whose circle we are, contribute nothing.
    """
    offset = bodies.center2 - bodies.center1
    first, second = dot(offset, basis[0]), dot(offset, basis[1])
    # the balls have the curvature of their radius
    curvature = -value - bodies.radius1 - bodies.radius2
    h11, h12, h22 = curvature, jnp.zeros_like(value), curvature
    for segment in bodies.segments:
        component = dot(segment.half, normal)
        limit = _slack(normal) * safe.norm(segment.half)
        sign = jnp.where(jnp.abs(component) > limit, jnp.sign(component), 0)
        first, second = (g - sign * dot(segment.half, e) for g, e in zip((first, second), basis, strict=True))
    for ellipsoid in bodies.ellipsoids:
        v, w1, w2 = (mul_vec_t(ellipsoid.mat, x) * ellipsoid.size for x in (normal, *basis))
        inverse = 1 / jnp.maximum(safe.norm(v), _slack(v) * ellipsoid.size[0])
        v1, v2 = dot(v, w1) * inverse, dot(v, w2) * inverse
        first, second = first - v1, second - v2
        h11 = h11 - (dot(w1, w1) - v1 * v1) * inverse
        h12 = h12 - (dot(w1, w2) - v1 * v2) * inverse
        h22 = h22 - (dot(w2, w2) - v2 * v2) * inverse
    # on a circle there is no second direction; a copy of the first keeps the matrix definite
    return (first, second), (h11, h12, jnp.where(dot(basis[1], basis[1]) > 0.5, h22, h11))


def _newton(
    gradient: tuple[Array, Array], hessian: tuple[Array, ...], damping: Array, flattest: float = 1e-3
) -> tuple[Array, Array]:
    """The step -(H - shift)^-1 g, the shift making H negative; never longer than 0.7 rad."""
    h11, h12, h22 = hessian
    mean, spread = 0.5 * (h11 + h22), jnp.sqrt((0.5 * (h11 - h22)) ** 2 + h12 * h12 + 1e-30)
    floor = flattest * (jnp.abs(mean) + spread)
    # where the Hessian is not negative, its greatest eigenvalue changes sign
    greatest = mean + spread
    shift = jnp.where(greatest > -floor, jnp.abs(greatest) + greatest + floor, 0) + damping
    a, c = h11 - shift, h22 - shift
    determinant = a * c - h12 * h12
    step1 = -safe.divide(c * gradient[0] - h12 * gradient[1], determinant)
    step2 = -safe.divide(a * gradient[1] - h12 * gradient[0], determinant)
    length = jnp.sqrt(step1 * step1 + step2 * step2 + 1e-30)
    shorten = jnp.minimum(1, 0.7 / length)
    return step1 * shorten, step2 * shorten


def _pick(bodies: Bodies, index: Array) -> Array:
    """Half vector of the segment at `index`, zero if it is -1."""
    found = jnp.zeros_like(bodies.center1)
    for i, segment in enumerate(bodies.segments):
        found = jnp.where(index == i, segment.half, found)
    return found


def _implicit_normal(bodies: Bodies, best: Stratum) -> Array:
    """The best direction as a differentiable function of the bodies, on its stratum."""
    first, second = _pick(bodies, best.first), _pick(bodies, best.second)
    # closed forms: crossing circles and poles
    crossing = safe.normalize(cross(first, second))
    pole = best.normal
    for at, ellipsoid in enumerate(bodies.ellipsoids):
        pole = jnp.where(best.pole == at, ellipsoid.mat[:, 2], pole)
    closed = jnp.where(best.pole >= 0, pole, crossing)
    closed = jnp.where(jax.lax.stop_gradient(dot(closed, best.normal)) < 0, -closed, closed)
    # one Newton step with the Hessian frozen, from the nearest point of the circle
    on_circle = best.first >= 0
    axis = safe.normalize(jnp.where(on_circle, first, 1)) * on_circle
    start = safe.normalize(best.normal - scale(axis, dot(axis, best.normal)))
    basis = _tangents(start, axis)
    gradient, hessian = _derivatives(bodies, start, basis, gap(bodies, start))
    step = _newton(gradient, jax.lax.stop_gradient(hessian), jnp.zeros_like(hessian[0]), _slack(start))
    free = safe.normalize(start + _combine(basis, step))
    return jnp.where((best.pole >= 0) | (best.second >= 0), closed, free)


def _midpoint(bodies: Bodies, best: Stratum, normal: Array, dist: Array) -> Array:
    """Halfway between the closest points.

    Segments and discs that are normal to n touch with any of their points: they take up what is missing between
    the two support points, each as near to the middle of the common line or area as it can.
    """
    points = [bodies.center1 + scale(normal, bodies.radius1), bodies.center2 - scale(normal, bodies.radius2)]
    flat_segments, flat_discs = [], []
    for segment in bodies.segments:
        component = dot(segment.half, normal)
        flat = jnp.abs(component) < _slack(normal) * safe.norm(segment.half)
        flat_segments.append(jax.lax.stop_gradient(flat))
        sign = jnp.where(flat, 0, jnp.where(component > 0, 1, -1))
        points[segment.owner] = points[segment.owner] + (1 - 2 * segment.owner) * scale(segment.half, sign)
    for ellipsoid in bodies.ellipsoids:
        v = mul_vec_t(ellipsoid.mat, normal) * ellipsoid.size
        length = safe.norm(v)
        flat = jax.lax.stop_gradient(length < _slack(v) * ellipsoid.size[0])
        flat_discs.append(flat)
        support = mul_vec(ellipsoid.mat, v * ellipsoid.size / jnp.where(flat, 1, length))
        points[ellipsoid.owner] = points[ellipsoid.owner] + (1 - 2 * ellipsoid.owner) * jnp.where(flat, 0, support)
    missing = points[1] - points[0] - scale(normal, dist)
    shared, missing = _fill_crossing(bodies, best, flat_segments, flat_discs, normal, missing)
    reach = [_reach_of_segment(*parts) for parts in zip(bodies.segments, flat_segments, strict=True)]
    reach += [_reach_of_disc(*parts) for parts in zip(bodies.ellipsoids, flat_discs, strict=True)]
    for k, part in enumerate((*bodies.segments, *bodies.ellipsoids)):
        axis = safe.normalize(part.half if isinstance(part, Segment) else missing)
        wanted, own = dot(missing, axis), reach[k](axis)
        # the middle of what this part can take, given how far the later ones reach
        later = sum((other(axis) for other in reach[k + 1 :]), jnp.zeros_like(own))
        middle = 0.5 * (jnp.maximum(-own, wanted - later) + jnp.minimum(own, wanted + later))
        taken = scale(axis, jnp.where(own > 0, middle, 0))
        missing, shared[part.owner] = missing - taken, shared[part.owner] + taken
    return 0.5 * (points[0] + shared[0] + points[1] - shared[1])


def _reach_of_segment(segment: Segment, flat: Array) -> Callable[[Array], Array]:
    """How far a segment extends along an axis, if it is flat."""
    return lambda axis: jnp.where(flat, jnp.abs(dot(segment.half, axis)), 0)


def _reach_of_disc(ellipsoid: Ellipsoid, flat: Array) -> Callable[[Array], Array]:
    """How far a disc extends along an axis in its plane, if it is flat."""
    return lambda axis: jnp.where(flat, ellipsoid.size[0], 0)


def _fill_crossing(
    bodies: Bodies, best: Stratum, flat_segments: list[Array], flat_discs: list[Array], normal: Array, missing: Array
) -> tuple[list[Array], Array]:
    """Two crossing edges meet in a point: what each of them takes up, per owner, and what is then still missing.

    Nothing where another part is flat too, for then the bodies touch along a line or over an area.
    """
    first, second = _pick(bodies, best.first), _pick(bodies, best.second)
    number = sum((flat.astype(jnp.int32) for flat in (*flat_segments, *flat_discs)), jnp.zeros((), jnp.int32))
    cross_only = (best.second >= 0) & (number == 2)
    # coefficients in the basis (first, second), by vectors normal to the other one
    across1, across2 = cross(second, normal), cross(first, normal)
    part1 = safe.clip(safe.divide(dot(missing, across1), dot(first, across1)), -1, 1)
    part2 = safe.clip(safe.divide(dot(missing, across2), dot(second, across2)), -1, 1)
    shared = [jnp.zeros_like(missing), jnp.zeros_like(missing)]
    for i, segment in enumerate(bodies.segments):
        part = jnp.where(best.first == i, part1, jnp.where(best.second == i, part2, 0))
        taken = jnp.where(cross_only, scale(segment.half, part), 0)
        missing, shared[segment.owner] = missing - taken, shared[segment.owner] + taken
    return shared, missing
