"""Signed distances of distance fields: MuJoCo's contact distances if the bodies overlap, otherwise the smallest gap.

The result has one row for each contact, and then one more. If the bodies overlap, the smallest distance of the contacts
is MuJoCo's: about half of the depth, or for a mesh the depth of its triangles in the field. MuJoCo 3.8.1 has no
distance of fields that are apart; its sensors then read their cutoff. Here the last row has the
gap between the surfaces. The gap is zero if the surfaces cross but the search for contacts found no contact.

Let p(x) and q(x) be the points of the two surfaces that are nearest to a point x. If x is halfway between the points at
which the surfaces are nearest to each other, then x = (p(x) + q(x)) / 2. Searches for x begin between nearby points of
the surfaces, and make Newton steps. If a Newton step does not reduce |p - q|, x moves to (p + q) / 2 instead.

A `Boundary` returns the nearest point q of a surface twice, with different derivatives. The first can be differentiated
with respect to x and to the pose and shape of the body. For a field A with gradient g, the conditions on q are A(q) = 0
and x - q parallel to g. With l = (x - q) . g / |g|^2, H the second derivative, n = g / |g| and T = I - n n^T, they say
how q moves (implicit function theorem):

  n . dq = -dA / |g|,   T (I + l H) dq = T (dx - l dg)

Here dA and dg are the changes at a fixed point due to changes of pose and shape.

The second is a fixed point of the body: it moves only with the body, not with x. This is enough for the derivative of
the smallest distance, even at edges, where g is the normal of only one of the sides. On a mesh, the nearest point is
inside a triangle, on a side, or at a corner; which of these is a discrete choice (Ericson 2005, ch. 5.1.5).
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import Array

from diffsim.base.enums import GeomType
from diffsim.geometry.sdf.functions import Field
from diffsim.geometry.sdf.pairs import field_of, field_pair, mesh_field, seen_from
from diffsim.geometry.shapes import Candidates, Shape, relative_pose
from diffsim.math import safe
from diffsim.math.vector import cross, dot, mul_mat, mul_vec, mul_vec_t, outer, solve3, total, transpose
from diffsim.xla.loops import scan

# steps along a surface towards its nearest point
SLIDES = 8
# a Newton step corrects the result of a search if its residual is below this fraction of the distance from the surface
SMALL = 1e-7


class Boundary(Protocol):
    """The surface of a body; points are (3,), m, in a frame that both bodies of a pair share."""

    def views(self, point: Array, start: Array) -> tuple[Array, Array]:
        """The surface point nearest to `point`, searched near `start`; and the same point, fixed in the body."""
        ...


class ExactBoundary(NamedTuple):
    """The surface of a field that is a true distance outside of it: q = x - A(x) g(x).

    `turn` (3, 3) and `shift` (3,), m: from the shared frame to that of the field.
    """

    field: Field
    parameters: Any
    turn: Array
    shift: Array

    def views(self, point: Array, start: Array) -> tuple[Array, Array]:
        """q from the distance and its gradient at `point`; the second holds `point` and the gradient fixed."""
        distance, slope = jax.value_and_grad(self._distance)(point)
        fixed, held = jax.lax.stop_gradient((point, slope))
        return point - distance * slope, fixed - self._distance(fixed) * held

    def _distance(self, point: Array) -> Array:
        return self.field.distance(self.parameters, mul_vec(self.turn, point) + self.shift)


class FieldBoundary(NamedTuple):
    """The surface of any field, on which the field is zero; `turn` and `shift` as in `ExactBoundary`."""

    field: Field
    parameters: Any
    turn: Array
    shift: Array

    def views(self, point: Array, start: Array) -> tuple[Array, Array]:
        """q from a search. The first view moves by the conditions above; the second moves only as A changes."""
        place, begin = (mul_vec(self.turn, end) + self.shift for end in (point, start))
        nearest = jax.lax.stop_gradient(_search(self.field, *jax.lax.stop_gradient((self.parameters, place, begin))))
        distance, slope = _value(self.field, self.parameters, nearest)
        slope = jax.lax.stop_gradient(slope)
        held = nearest - slope * safe.divide(_change(distance), dot(slope, slope))
        return self._back(_moved(self.field, self.parameters, place, nearest)), self._back(held)

    def _back(self, place: Array) -> Array:
        return mul_vec_t(self.turn, place - self.shift)


def _change(value: Array) -> Array:
    """Zero, with the derivative of the value."""
    return value - jax.lax.stop_gradient(value)


def small_or_zero(residual: Array, allowed: Array) -> Array:
    """The residual that a Newton step corrects after a search.

    If it is large, the search has failed: its value then counts as zero, and its derivative is kept.
    The step is needed because a search compares lengths, which locates a minimum only to the square root of rounding.
    """
    small = jax.lax.stop_gradient(dot(residual, residual)) < (SMALL * allowed) ** 2
    return jnp.where(small, residual, _change(residual))


# these are traced once for each field, however often they are called
traced_once = functools.partial(jax.jit, static_argnums=0)


@traced_once
def _value(field: Field, parameters: Any, place: Array) -> tuple[Array, Array]:
    """Distance and its derivative (3,), which may differ from `field.gradient`, which the contact search uses."""
    return jax.value_and_grad(field.distance, 1)(parameters, place)


@traced_once
def _search(field: Field, parameters: Any, point: Array, begin: Array) -> Array:
    """The nearest point of a surface: steps against the gradient onto it, then steps along it that get nearer."""

    def onto(place: Array) -> Array:
        distance, slope = _value(field, parameters, place)
        return place - slope * safe.divide(distance, dot(slope, slope))

    def cost(place: Array) -> Array:
        return safe.norm(point - place) + 2 * jnp.abs(_value(field, parameters, place)[0])

    def step(carry: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
        place, length = carry
        way = point - place
        slope = _value(field, parameters, place)[1]
        along = way - slope * safe.divide(dot(way, slope), dot(slope, slope))
        further = onto(place + length * along)
        nearer = cost(further) < cost(place)
        return (jnp.where(nearer, further, place), length * jnp.where(nearer, 1.5, 0.5)), None

    start = onto(onto(begin)), jnp.full((), 0.7, point.dtype)
    (place, _), _ = scan(step, start, length=SLIDES)
    return onto(onto(place))


@traced_once
def _moved(field: Field, parameters: Any, point: Array, nearest: Array) -> Array:
    """The point that was found, with the derivative that follows from the conditions above."""
    slope = jax.lax.stop_gradient(_value(field, parameters, nearest)[1])
    squared = dot(slope, slope)
    ratio = safe.divide(dot(jax.lax.stop_gradient(point) - nearest, slope), squared)
    one = jnp.eye(3, dtype=nearest.dtype)
    unit = safe.normalize(slope)
    hessian = jax.jacfwd(lambda place: _value(field, jax.lax.stop_gradient(parameters), place)[1])(nearest)
    bent = one + ratio * jnp.asarray(hessian)
    tangent = one - outer(unit, unit)
    block = mul_mat(tangent, mul_mat(bent, tangent)) + outer(unit, unit)
    # the conditions describe a minimum if the matrix is positive definite, which its leading minors tell; where they do
    # not, at an edge of the surface, the surface counts as flat
    two = block[0, 0] * block[1, 1] - block[0, 1] * block[1, 0]
    three = dot(block[0], cross(block[1], block[2]))
    curved = (block[0, 0] > 1e-6) & (two > 1e-6) & (three > 1e-6)
    bent, block = jnp.where(curved, bent, one), jnp.where(curved, block, one)
    distance, moving = _value(field, parameters, nearest)
    along = unit * -safe.divide(_change(distance), safe.sqrt(squared))
    beside = mul_vec(tangent, point - nearest - ratio * moving)
    beside = small_or_zero(beside, jnp.where(curved, safe.norm(jax.lax.stop_gradient(point) - nearest), 0))
    return nearest + along + solve3(block, beside - mul_vec(tangent, mul_vec(bent, along)))


class TriangleBoundary(NamedTuple):
    """A surface of triangles `corner` (f, 3, 3), m; triangles that are not `real` (f,) are padding."""

    corner: Array
    real: Array

    def views(self, point: Array, start: Array) -> tuple[Array, Array]:
        """The nearest point by barycentric coordinates in a triangle; the second view holds these fixed."""
        fixed, still = jax.lax.stop_gradient((self.corner, point))

        def squared_gaps(corner: Array) -> Array:
            """(4,) m^2, from the point to three sides and to the plane of a triangle; inf if its foot is outside."""
            share = _shares(corner, still)
            off = still[None] - total([share[:, k, None] * corner[None, k] for k in range(3)])
            return jnp.where(jnp.min(share, axis=1) >= 0, dot(off, off), jnp.inf)

        gaps = jax.vmap(squared_gaps)(fixed)
        best = jnp.argmin(jnp.where(self.real[:, None], gaps, jnp.inf))
        corner = self.corner[best // gaps.shape[1]]
        share = _shares(corner, point)[best % gaps.shape[1]]
        return _mixed(corner, share), _mixed(corner, jax.lax.stop_gradient(share))


def _shares(corner: Array, point: Array) -> Array:
    """Shares (4, 3) of the corners: the nearest points on the three sides, and the foot on the plane."""
    ends = jnp.eye(3, dtype=point.dtype)
    shares = []
    for first in range(3):
        second = (first + 1) % 3
        along = corner[second] - corner[first]
        share = safe.clip(safe.divide(dot(point - corner[first], along), dot(along, along)), 0, 1)
        shares.append((1 - share) * ends[first] + share * ends[second])
    # in the plane; negative for a triangle without area
    b = corner[1] - corner[0]
    c = corner[2] - corner[0]
    off = point - corner[0]
    normal = cross(b, c)
    second, third = (safe.divide(dot(v, normal), dot(normal, normal), -1) for v in (cross(off, c), cross(b, off)))
    return jnp.stack([*shares, jnp.stack([1 - second - third, second, third])])


def _mixed(corner: Array, share: Array) -> Array:
    return total([share[k] * corner[k] for k in range(3)])


# pairs of sample points at which searches for the least gap begin: the nearest pairs
STARTS = 16
# steps of each search: Newton steps converge quadratically; if they fail, steps to the middle halve the error
STEPS = 16
# damping of Newton's steps, relative to a derivative of 1: keeps them finite where both surfaces are flat
FLAT = 1e-7


class Ends(NamedTuple):
    """`Boundary.views` of two surfaces at a point x; `slope_*` (3, 3): derivatives of the first views by x."""

    one: Array
    other: Array
    held_one: Array
    held_other: Array
    slope_one: Array
    slope_other: Array

    @property
    def gap(self) -> Array:
        """The distance between the two nearest points, m."""
        return safe.norm(self.other - self.one)

    def newton(self, off: Array) -> Array:
        """J^-1 off, where J is the derivative of x - (p + q) / 2; zero along directions in which J vanishes."""
        slope = jax.lax.stop_gradient(jnp.eye(3, dtype=off.dtype) - 0.5 * (self.slope_one + self.slope_other))
        squared = mul_mat(transpose(slope), slope) + FLAT**2 * jnp.eye(3, dtype=off.dtype)
        return solve3(squared, mul_vec_t(slope, off))


class Search(NamedTuple):
    """A point, its nearest points on both surfaces, the gap between these, m, and the point to try next."""

    point: Array
    one: Array
    other: Array
    gap: Array
    trial: Array


def field_distance(kind: GeomType) -> Callable[[Shape, Shape, Array], Candidates]:
    """Pair function of a shape of one type and an sdf geom: the rows of contacts, and one row at the least gap."""
    contacts = mesh_field if kind == GeomType.MESH else field_pair(kind)

    def rows(first: Shape, second: Shape, margin: Array) -> Candidates:
        touching = contacts(first, second, margin)
        apart = _gap(kind, first, second)._replace(valid=~jnp.any(touching.valid, keepdims=True))
        return Candidates(*(jnp.concatenate(column) for column in zip(touching, apart, strict=True)))

    return rows


def _gap(kind: GeomType, first: Shape, second: Shape) -> Candidates:
    """One row at the least gap between both surfaces. The search runs in the frame of the second."""
    fixed = jax.lax.stop_gradient((first, second))
    nearest = _least(_surfaces(kind, *fixed), *_nearest_samples(kind, *fixed))
    ends = _ends(_surfaces(kind, first, second), nearest.point, nearest.one, nearest.other)
    moved = -ends.newton(small_or_zero(nearest.point - 0.5 * (ends.one + ends.other), nearest.gap))
    one = ends.one + mul_vec(ends.slope_one, moved)
    other = ends.other + mul_vec(ends.slope_other, moved)
    normal = mul_vec(second.mat, safe.normalize(other - one))
    pos = second.pos + mul_vec(second.mat, 0.5 * (one + other))
    dist = safe.norm(ends.held_other - ends.held_one)
    return Candidates(dist[None], pos[None], normal[None], jnp.zeros_like(normal)[None], jnp.ones(1, bool))


def _ends(surfaces: tuple[Boundary, Boundary], point: Array, *starts: Array) -> Ends:
    """The points of both surfaces that are nearest to `point`; each search begins near one of `starts`."""

    def nearest(x: Array) -> tuple:
        seen = (surface.views(x, start) for surface, start in zip(surfaces, starts, strict=True))
        (one, held_one), (other, held_other) = seen
        return (one, other), (one, other, held_one, held_other)

    slopes, views = jax.jacfwd(nearest, has_aux=True)(point)
    return Ends(*views, *jax.lax.stop_gradient(slopes))


def _surfaces(kind: GeomType, first: Shape, second: Shape) -> tuple[Boundary, Boundary]:
    """Both surfaces in the frame of the second."""
    data = second.data
    dtype = second.pos.dtype
    boundary = FieldBoundary(data.field, data.parameters, jnp.eye(3, dtype=dtype), jnp.zeros(3, dtype))
    if kind == GeomType.MESH:
        return TriangleBoundary(seen_from(first, second), first.data.real), boundary
    # the field of an ellipsoid is a distance only to first order
    inexact = kind in (GeomType.SDF, GeomType.ELLIPSOID)
    surface = FieldBoundary if inexact else ExactBoundary
    return surface(*field_of(kind, first), *relative_pose(first, second)), boundary


def _nearest_samples(kind: GeomType, first: Shape, second: Shape) -> tuple[Array, Array]:
    """The STARTS nearest pairs: a sample point of the second surface, and the point of the first nearest to it."""
    other = second.data.surface
    surface = _surfaces(kind, first, second)[0]
    if kind == GeomType.SDF:
        turn, shift = relative_pose(first, second)
        samples = first.data.surface - shift[None]
        samples = mul_vec_t(jnp.broadcast_to(turn, (*samples.shape, 3)), samples)
        apart = samples[None] - other[:, None]
        one = samples[jnp.argmin(dot(apart, apart), axis=1)]
    else:
        one = jax.vmap(lambda point: surface.views(point, point)[0])(other)
    best = jax.lax.top_k(-safe.norm(one - other), STARTS)[1]
    return one[best], other[best]


def _least(surfaces: tuple[Boundary, Boundary], one: Array, other: Array) -> Search:
    """The best result of the searches that begin at pairs of points (n, 3)."""

    def step(search: Search, _: None) -> tuple[Search, None]:
        ends = _ends(surfaces, search.trial, search.one, search.other)
        middle = 0.5 * (ends.one + ends.other)
        trial = search.trial - ends.newton(search.trial - middle)
        after = Search(search.trial, ends.one, ends.other, ends.gap, trial)
        before = search._replace(trial=0.5 * (search.one + search.other))
        return Search(*(jnp.where(ends.gap < search.gap, *both) for both in zip(after, before, strict=True))), None

    def searched(one: Array, other: Array) -> Search:
        middle = 0.5 * (one + other)
        begin = Search(middle, one, other, jnp.full((), jnp.inf, one.dtype), middle)
        return scan(step, begin, length=STEPS)[0]

    points = jax.vmap(searched)(one, other)
    best = jnp.argmin(points.gap)
    return jax.lax.stop_gradient(Search(*(column[best] for column in points)))
