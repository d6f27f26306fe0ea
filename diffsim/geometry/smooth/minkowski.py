"""Ellipsoids, cylinders, capsules, boxes and spheres as Minkowski sums, and the gap between two of them.

About its centre, each of these shapes is the sum of an ellipsoid (perhaps flat), up to three segments and a ball. So
its support function is h(n) = |S R^T n| + sum |q . n| + radius. For two bodies whose centres differ by c, the gap along
n is F(n) = c . n - h1(n) - h2(n); its maximum over unit vectors is the signed distance. F is homogeneous of degree one
and smooth except on the great circles q . n = 0 of segments q and at the poles of discs, so the maximum is one of
  - a smooth maximum on the sphere (Newton in two dimensions) or on a circle (Newton in one),
  - an intersection of two circles, or a pole (closed form).
`separate` searches for it.

The support points of both bodies along the normal are their closest points, unless a segment or a disc is perpendicular
to the normal. Then a whole line or area is equally near, and the midpoint of the part that both bodies share is taken.
Source: separation of convex sets (Boyd and Vandenberghe 2004, 8.2); Newton's method on manifolds (Absil et al. 2008).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from diffsim.base.enums import GeomType
from diffsim.geometry.shapes import Shape, collider
from diffsim.math import safe
from diffsim.math.rotation import frame_from_z
from diffsim.math.vector import cross, dot, mul_vec, mul_vec_t, scale
from diffsim.types.record import Record, child, leaf, record, static
from diffsim.xla.loops import fori_loop

Kinds = tuple[GeomType, GeomType]


@record
class Ellipsoid(Record):
    """The unit ball under R diag(size), a `disc` if the last size is zero; `owner` (0 or 1): its body."""

    mat: Array = leaf(3, 3)
    size: Array = leaf(3)
    disc: bool = static()
    owner: int = static()


@record
class Segment(Record):
    """All points x q with |x| <= 1 and q = `half`; `owner` (0 or 1): its body."""

    half: Array = leaf(3)
    owner: int = static()


@record
class ConvexPair(Record):
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


def minkowski_sums(kinds: Kinds, shape1: Shape, shape2: Shape) -> ConvexPair:
    """Two shapes as sums of ellipsoids, segments and balls."""
    radii, ellipsoids, segments = [], [], []
    for owner, (kind, shape) in enumerate(zip(kinds, (shape1, shape2), strict=True)):
        is_round = kind in (GeomType.SPHERE, GeomType.CAPSULE)
        radii.append(shape.size[0] if is_round else jnp.zeros_like(shape.size[0]))
        if kind in (GeomType.CAPSULE, GeomType.CYLINDER):
            segments.append(Segment(half=scale(shape.axis, shape.size[1]), owner=owner))
        if kind == GeomType.BOX:
            segments += [Segment(half=scale(shape.mat[:, k], shape.size[k]), owner=owner) for k in range(3)]
        if kind == GeomType.CYLINDER:
            disc = jnp.stack([shape.size[0], shape.size[0], jnp.zeros_like(shape.size[0])])
            ellipsoids.append(Ellipsoid(mat=shape.mat, size=disc, disc=True, owner=owner))
        if kind == GeomType.ELLIPSOID:
            ellipsoids.append(Ellipsoid(mat=shape.mat, size=shape.size, disc=False, owner=owner))
    return ConvexPair(
        center1=shape1.pos,
        center2=shape2.pos,
        radius1=radii[0],
        radius2=radii[1],
        ellipsoids=tuple(ellipsoids),
        segments=tuple(segments),
    )


def gap(pair: ConvexPair, normal: Array) -> Array:
    """F(n) for a unit vector n (3,)."""
    total = dot(pair.center2 - pair.center1, normal) - pair.radius1 - pair.radius2
    for ellipsoid in pair.ellipsoids:
        total = total - safe.norm(mul_vec_t(ellipsoid.mat, normal) * ellipsoid.size)
    for segment in pair.segments:
        total = total - jnp.abs(dot(segment.half, normal))
    return total


def rounding(x: Array) -> float:
    """Relative error of directions and gaps after a search in the dtype of x."""
    return 1e-10 if x.dtype == jnp.float64 else 1e-5


def half_at(pair: ConvexPair, index: Array) -> Array:
    """Half vector of the segment at `index`, zero if it is -1."""
    half = jnp.zeros_like(pair.center1)
    for i, segment in enumerate(pair.segments):
        half = jnp.where(index == i, segment.half, half)
    return half


# Newton steps of each search
ITERATIONS = 20


def sphere_newton(pair: ConvexPair, start: Array, circle: Array) -> Array:
    """Local maximum of F from a start, on the great circle with axis `circle`, or on the sphere if that is zero.

    Newton's method. A shift makes the Hessian negative definite; its damping grows if a step fails.
    """

    def improve(_: int, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        normal, value, damping = carry
        trial, hessian = newton(pair, normal, circle, value, damping)
        trial_value = gap(pair, trial)
        size = jnp.abs(hessian[0]) + jnp.abs(hessian[2]) + jnp.abs(value)
        relaxed = jnp.where(damping < 0.02 * size, 0, 0.1 * damping)
        # near the maximum, rounding hides the gain, but the step still improves the direction
        better = trial_value > value - 1e-4 * rounding(value) * size
        return (
            jnp.where(better, trial, normal),
            jnp.where(better, trial_value, value),
            jnp.where(better, relaxed, safe.maximum(8 * damping, 0.1 * size)),
        )

    carry = (start, gap(pair, start), jnp.zeros_like(start[0]))
    return fori_loop(0, ITERATIONS, improve, carry)[0]


@collider
def newton(
    pair: ConvexPair, normal: Array, circle: Array, value: Array, damping: Array, flattest: float = 1e-3
) -> tuple[Array, tuple[Array, ...]]:
    """(the direction after a Newton step from `normal`, whose gap is `value`; the Hessian at `normal`).

    The step stays on the great circle with the axis `circle` or, if that is zero, on the sphere. The Hessian is not
    differentiated, so that a step from a maximum has the derivative of the implicit function.
    """
    basis = tangents(normal, circle)
    gradient, hessian = derivatives(pair, normal, basis, value)
    hessian = jax.lax.stop_gradient(hessian)
    step1, step2 = newton_step(gradient, hessian, damping, flattest)
    return safe.normalize(normal + (scale(basis[0], step1) + scale(basis[1], step2))), hessian


def onto_circle(normal: Array, circle: Array) -> Array:
    """The nearest direction on the great circle with this axis; the same one if the axis is zero."""
    return safe.normalize(normal - scale(circle, dot(circle, normal)))


def tangents(normal: Array, circle: Array) -> tuple[Array, Array]:
    """Two unit tangents; on a circle the second is zero."""
    frame = frame_from_z(normal)
    on_circle = dot(circle, circle) > 0.5
    along = safe.normalize(cross(circle, normal))
    return jnp.where(on_circle, along, frame[1]), jnp.where(on_circle, 0, frame[2])


def derivatives(
    pair: ConvexPair, normal: Array, basis: tuple[Array, Array], value: Array
) -> tuple[tuple[Array, Array], tuple[Array, Array, Array]]:
    """Gradient and Hessian (11, 12, 22) of F on the sphere, in a tangent basis.

    F is homogeneous of degree one, so the curvature of the sphere adds -F on the diagonal. A segment that is
    perpendicular to n (n is on its circle) contributes nothing.
    """
    offset = pair.center2 - pair.center1
    first, second = dot(offset, basis[0]), dot(offset, basis[1])
    # a ball adds its radius to the curvature
    curvature = -value - pair.radius1 - pair.radius2
    h11 = curvature
    h12 = jnp.zeros_like(value)
    h22 = curvature
    for segment in pair.segments:
        component = dot(segment.half, normal)
        limit = rounding(normal) * safe.norm(segment.half)
        sign = jnp.where(jnp.abs(component) > limit, jnp.sign(component), 0)
        first, second = (g - sign * dot(segment.half, e) for g, e in zip((first, second), basis, strict=True))
    for ellipsoid in pair.ellipsoids:
        v, w1, w2 = (mul_vec_t(ellipsoid.mat, x) * ellipsoid.size for x in (normal, *basis))
        inverse = 1 / safe.maximum(safe.norm(v), rounding(v) * ellipsoid.size[0])
        v1 = dot(v, w1) * inverse
        v2 = dot(v, w2) * inverse
        first = first - v1
        second = second - v2
        h11 = h11 - (dot(w1, w1) - v1 * v1) * inverse
        h12 = h12 - (dot(w1, w2) - v1 * v2) * inverse
        h22 = h22 - (dot(w2, w2) - v2 * v2) * inverse
    # on a circle there is no second direction; a copy of the first keeps the matrix definite
    return (first, second), (h11, h12, jnp.where(dot(basis[1], basis[1]) > 0.5, h22, h11))


def newton_step(
    gradient: tuple[Array, Array], hessian: tuple[Array, ...], damping: Array, flattest: float = 1e-3
) -> tuple[Array, Array]:
    """The step -(H - shift)^-1 g, at most 0.7 rad long; the shift makes H negative definite."""
    h11, h12, h22 = hessian
    mean = 0.5 * (h11 + h22)
    spread = jnp.sqrt((0.5 * (h11 - h22)) ** 2 + h12 * h12 + 1e-30)
    floor = flattest * (jnp.abs(mean) + spread)
    # if the Hessian is not negative definite, the shift flips the sign of its greatest eigenvalue
    greatest = mean + spread
    shift = jnp.where(greatest > -floor, jnp.abs(greatest) + greatest + floor, 0) + damping
    a = h11 - shift
    c = h22 - shift
    determinant = a * c - h12 * h12
    step1 = -safe.divide(c * gradient[0] - h12 * gradient[1], determinant)
    step2 = -safe.divide(a * gradient[1] - h12 * gradient[0], determinant)
    length = jnp.sqrt(step1 * step1 + step2 * step2 + 1e-30)
    shorten = safe.minimum(1, 0.7 / length)
    return step1 * shorten, step2 * shorten


@collider
def midpoint(pair: ConvexPair, best: Stratum, normal: Array, dist: Array) -> Array:
    """Halfway between the closest points.

    If a segment or disc is perpendicular to n, any of its points may be the closest point. These parts close the gap
    between the two support points across n; each takes the middle of its possible range, so that the result is near
    the middle of the common line or area.
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
    parts = (*pair.segments, *pair.ellipsoids)
    levels = (*level_segments, *level_discs)

    def reach(k: int, axis: Array) -> Array:
        """How far a part perpendicular to n extends: a segment along the axis, a disc along any axis in its plane."""
        part = parts[k]
        extent = jnp.abs(dot(part.half, axis)) if isinstance(part, Segment) else part.size[0]
        return jnp.where(levels[k], extent, 0)

    for k, part in enumerate(parts):
        axis = safe.normalize(part.half if isinstance(part, Segment) else missing)
        wanted, reach_here = dot(missing, axis), reach(k, axis)
        # the middle of the range that this part can take, given how far the later parts reach
        later = sum((reach(other, axis) for other in range(k + 1, len(parts))), jnp.zeros_like(reach_here))
        middle = 0.5 * (safe.maximum(-reach_here, wanted - later) + safe.minimum(reach_here, wanted + later))
        taken = scale(axis, jnp.where(reach_here > 0, middle, 0))
        missing = missing - taken
        shared[part.owner] = shared[part.owner] + taken
    return 0.5 * (points[0] + shared[0] + points[1] - shared[1])


def _fill_crossing(
    pair: ConvexPair,
    best: Stratum,
    level_segments: list[Array],
    level_discs: list[Array],
    normal: Array,
    missing: Array,
) -> tuple[list[Array], Array]:
    """The point where two crossing edges meet: the offsets along them (of both bodies), and the remaining gap.

    The offsets are zero if a third part is perpendicular to n: then the bodies touch along a line or over an area.
    """
    first, second = half_at(pair, best.first), half_at(pair, best.second)
    number = sum((level.astype(jnp.int32) for level in (*level_segments, *level_discs)), jnp.zeros((), jnp.int32))
    cross_only = (best.second >= 0) & (number == 2)
    # coefficients in the basis (first, second), from vectors perpendicular to the other one
    across1, across2 = cross(second, normal), cross(first, normal)
    part1 = safe.clip(safe.divide(dot(missing, across1), dot(first, across1)), -1, 1)
    part2 = safe.clip(safe.divide(dot(missing, across2), dot(second, across2)), -1, 1)
    shared = [jnp.zeros_like(missing), jnp.zeros_like(missing)]
    for i, segment in enumerate(pair.segments):
        part = jnp.where(best.first == i, part1, jnp.where(best.second == i, part2, 0))
        taken = jnp.where(cross_only, scale(segment.half, part), 0)
        missing = missing - taken
        shared[segment.owner] = shared[segment.owner] + taken
    return shared, missing
