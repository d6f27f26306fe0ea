"""Ellipsoids, cylinders, capsules, boxes and spheres as Minkowski sums; the gap between two, and Newton's method on it.

Each of these shapes is the sum of an ellipsoid (perhaps flat), up to three segments and a ball about its centre, so
its support function is h(n) = |S R^T n| + sum |q . n| + radius. For two bodies whose centres differ by c, the gap along
n is F(n) = c . n - h1(n) - h2(n). It is homogeneous of degree one and smooth except on the great circles q . n = 0 of
segments q and at the poles of discs. A climb from a direction to the next local maximum stays on one great circle, or
roams the sphere. Source: separation of convex sets (Boyd and Vandenberghe 2004, 8.2); Absil et al. 2008, Newton's
method on manifolds.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from diffsim.base.enums import GeomType
from diffsim.geometry.shapes import Shape
from diffsim.math import safe
from diffsim.math.rotation import frame_from_z
from diffsim.math.vector import cross, dot, mul_vec_t, scale
from diffsim.types.record import Record, child, leaf, record, static

Array = jax.Array
Kinds = tuple[GeomType, GeomType]


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
    """Relative rounding of directions and gaps that a search in the dtype of x leaves."""
    return 1e-10 if x.dtype == jnp.float64 else 1e-5


def half_at(pair: ConvexPair, index: Array) -> Array:
    """Half vector of the segment at `index`, zero if it is -1."""
    half = jnp.zeros_like(pair.center1)
    for i, segment in enumerate(pair.segments):
        half = jnp.where(index == i, segment.half, half)
    return half


ITERATIONS = 20


def climb(pair: ConvexPair, start: Array, circle: Array) -> Array:
    """Local maximum of F from a start, on the great circle with this axis, or on the sphere if the axis is zero.

    Newton on the sphere with a shift that makes the Hessian negative and grows when a step fails.
    """

    def improve(_: int, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        normal, value, damping = carry
        basis = tangents(normal, circle)
        gradient, hessian = derivatives(pair, normal, basis, value)
        trial = safe.normalize(normal + combine(basis, newton_step(gradient, hessian, damping)))
        trial_value = gap(pair, trial)
        size = jnp.abs(hessian[0]) + jnp.abs(hessian[2]) + jnp.abs(value)
        relaxed = jnp.where(damping < 0.02 * size, 0, 0.1 * damping)
        # near the maximum rounding decides; the step is still the better direction
        better = trial_value > value - 1e-4 * rounding(value) * size
        return (
            jnp.where(better, trial, normal),
            jnp.where(better, trial_value, value),
            jnp.where(better, relaxed, safe.maximum(8 * damping, 0.1 * size)),
        )

    carry = (start, gap(pair, start), jnp.zeros_like(start[0]))
    return jax.lax.fori_loop(0, ITERATIONS, improve, carry)[0]


def tangents(normal: Array, circle: Array) -> tuple[Array, Array]:
    """Two unit tangents; on a circle the second is zero."""
    frame = frame_from_z(normal)
    on_circle = dot(circle, circle) > 0.5
    along = safe.normalize(cross(circle, normal))
    return jnp.where(on_circle, along, frame[1]), jnp.where(on_circle, 0, frame[2])


def combine(basis: tuple[Array, Array], step: tuple[Array, Array]) -> Array:
    """The tangent vector with two coordinates."""
    return scale(basis[0], step[0]) + scale(basis[1], step[1])


def derivatives(
    pair: ConvexPair, normal: Array, basis: tuple[Array, Array], value: Array
) -> tuple[tuple[Array, Array], tuple[Array, Array, Array]]:
    """Gradient and Hessian (11, 12, 22) of F on the sphere, in a tangent basis.

    F is homogeneous of degree one, so the curvature of the sphere adds -F on the diagonal. Segments that are normal
    to n, on whose circle we are, contribute nothing.
    """
    offset = pair.center2 - pair.center1
    first, second = dot(offset, basis[0]), dot(offset, basis[1])
    # the balls have the curvature of their radius
    curvature = -value - pair.radius1 - pair.radius2
    h11, h12, h22 = curvature, jnp.zeros_like(value), curvature
    for segment in pair.segments:
        component = dot(segment.half, normal)
        limit = rounding(normal) * safe.norm(segment.half)
        sign = jnp.where(jnp.abs(component) > limit, jnp.sign(component), 0)
        first, second = (g - sign * dot(segment.half, e) for g, e in zip((first, second), basis, strict=True))
    for ellipsoid in pair.ellipsoids:
        v, w1, w2 = (mul_vec_t(ellipsoid.mat, x) * ellipsoid.size for x in (normal, *basis))
        inverse = 1 / safe.maximum(safe.norm(v), rounding(v) * ellipsoid.size[0])
        v1, v2 = dot(v, w1) * inverse, dot(v, w2) * inverse
        first, second = first - v1, second - v2
        h11 = h11 - (dot(w1, w1) - v1 * v1) * inverse
        h12 = h12 - (dot(w1, w2) - v1 * v2) * inverse
        h22 = h22 - (dot(w2, w2) - v2 * v2) * inverse
    # on a circle there is no second direction; a copy of the first keeps the matrix definite
    return (first, second), (h11, h12, jnp.where(dot(basis[1], basis[1]) > 0.5, h22, h11))


def newton_step(
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
    shorten = safe.minimum(1, 0.7 / length)
    return step1 * shorten, step2 * shorten
