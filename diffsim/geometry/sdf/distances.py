"""Signed distances of distance fields: MuJoCo's contacts where both overlap, the least gap where they are apart.

Overlapping bodies have the rows of their contacts, so that the least of them is what MuJoCo says: about half of the
depth, or for a mesh the depth of its triangles in the field. MuJoCo 3.8.1 knows no distance of fields that are apart,
its sensors then read their cutoff; here the last row is the gap between both surfaces. It is zero where surfaces cross
and no search for contacts has found it.

Halfway between the two nearest points is a point x that is the middle of its nearest points on both surfaces,
x = (p(x) + q(x)) / 2. Searches begin at the nearest of some points of the surfaces and go by Newton's method, or from
point to middle where this brings the surfaces no nearer.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from diffsim.base.enums import GeomType
from diffsim.geometry.sdf.boundaries import Boundary, ExactBoundary, FieldBoundary, rest
from diffsim.geometry.sdf.meshes import mesh_field, seen_from
from diffsim.geometry.sdf.pairs import field_of, field_pair
from diffsim.geometry.sdf.triangle_boundary import TriangleBoundary
from diffsim.geometry.shapes import Candidates, Shape, relative_pose
from diffsim.math import safe
from diffsim.math.vector import dot, mul_mat, mul_vec, mul_vec_t, solve3, transpose

Array = jax.Array

# searches, and steps of each
STARTS, STEPS = 16, 16
# what keeps Newton's steps finite along surfaces that are flat
FLAT = 1e-7


class Ends(NamedTuple):
    """The nearest points of both surfaces to one point x, as `Boundary.views`, and their derivatives by x (3, 3)."""

    one: Array
    other: Array
    held_one: Array
    held_other: Array
    slope_one: Array
    slope_other: Array

    @property
    def gap(self) -> Array:
        """Between both, m."""
        return safe.norm(self.other - self.one)

    def newton(self, off: Array) -> Array:
        """J^-1 off for J, the derivative of x - (p + q) / 2; nothing along directions in which J vanishes."""
        slope = jax.lax.stop_gradient(jnp.eye(3, dtype=off.dtype) - 0.5 * (self.slope_one + self.slope_other))
        squared = mul_mat(transpose(slope), slope) + FLAT**2 * jnp.eye(3, dtype=off.dtype)
        return solve3(squared, mul_vec_t(slope, off))


class Search(NamedTuple):
    """A point, its nearest points, how far these are apart, m, and the point that is looked at next."""

    point: Array
    one: Array
    other: Array
    gap: Array
    trial: Array


def field_distance(kind: GeomType) -> Callable[[Shape, Shape, Array], Candidates]:
    """As a pair function of a shape of a type and an sdf geom: rows of contacts, and one of the gap."""
    contacts = mesh_field if kind == GeomType.MESH else field_pair(kind)

    def rows(first: Shape, second: Shape, margin: Array) -> Candidates:
        touching = contacts(first, second, margin)
        apart = _gap(kind, first, second)._replace(valid=~jnp.any(touching.valid, keepdims=True))
        return Candidates(*(jnp.concatenate(column) for column in zip(touching, apart, strict=True)))

    return rows


def _gap(kind: GeomType, first: Shape, second: Shape) -> Candidates:
    """One row at the least gap, in the frame of the second until the end."""
    fixed = jax.lax.stop_gradient((first, second))
    found = _least(_surfaces(kind, *fixed), *_nearest_samples(kind, *fixed))
    ends = _ends(_surfaces(kind, first, second), found.point, found.one, found.other)
    moved = -ends.newton(rest(found.point - 0.5 * (ends.one + ends.other), found.gap))
    one, other = ends.one + mul_vec(ends.slope_one, moved), ends.other + mul_vec(ends.slope_other, moved)
    normal = mul_vec(second.mat, safe.normalize(other - one))
    pos = second.pos + mul_vec(second.mat, 0.5 * (one + other))
    dist = safe.norm(ends.held_other - ends.held_one)
    return Candidates(dist[None], pos[None], normal[None], jnp.zeros_like(normal)[None], jnp.ones(1, bool))


def _ends(surfaces: tuple[Boundary, Boundary], point: Array, *starts: Array) -> Ends:
    """What both surfaces show to a point, near two points of them."""

    def nearest(x: Array) -> tuple:
        seen = (surface.views(x, start) for surface, start in zip(surfaces, starts, strict=True))
        (one, held_one), (other, held_other) = seen
        return (one, other), (one, other, held_one, held_other)

    slopes, views = jax.jacfwd(nearest, has_aux=True)(point)
    return Ends(*views, *jax.lax.stop_gradient(slopes))


def _surfaces(kind: GeomType, first: Shape, second: Shape) -> tuple[Boundary, Boundary]:
    """Both surfaces in the frame of the second."""
    data, dtype = second.data, second.pos.dtype
    own = FieldBoundary(data.field, data.parameters, jnp.eye(3, dtype=dtype), jnp.zeros(3, dtype))
    if kind == GeomType.MESH:
        return TriangleBoundary(seen_from(first, second), first.data.real), own
    # the field of an ellipsoid is a distance only to first order
    inexact = kind in (GeomType.SDF, GeomType.ELLIPSOID)
    surface = FieldBoundary if inexact else ExactBoundary
    return surface(*field_of(kind, first), *relative_pose(first, second)), own


def _nearest_samples(kind: GeomType, first: Shape, second: Shape) -> tuple[Array, Array]:
    """The nearest points of the first surface to some of the second, and these (n, 3): where both are nearest."""
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
    """The best of searches that begin at pairs of points (n, 3)."""

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
        return jax.lax.scan(step, begin, length=STEPS)[0]

    found = jax.vmap(searched)(one, other)
    best = jnp.argmin(found.gap)
    return jax.lax.stop_gradient(Search(*(column[best] for column in found)))
