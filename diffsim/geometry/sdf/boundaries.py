"""The nearest point of a body's surface, where the body is a distance field.

Each surface has two views of that point. The first is differentiable by x and by the body: for a field A it is where
A(q) = 0 and x - q is along the gradient g. With l = (x - q) . g / |g|^2, H the second derivative, n = g / |g| and
T = I - n n^T these conditions say how it moves (implicit function theorem):

  n . dq = -dA / |g|,   T (I + l H) dq = T (dx - l dg)

The second is carried along by its body: which point of it this is stays as it is. The derivative of a least distance
needs no more, also at edges, where g is the normal of one side only.
"""

import functools
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from diffsim.geometry.sdf.primitives import Field
from diffsim.math import safe
from diffsim.math.vector import cross, dot, mul_mat, mul_vec, mul_vec_t, outer, solve3

Array = jax.Array

# steps along a surface towards its nearest point
SLIDES = 8
# part of the way to the surface that a search may be beside its end
SMALL = 1e-7


class Boundary(Protocol):
    """The surface of a body; points are (3,), m, in a frame that both bodies of a pair share."""

    def views(self, point: Array, start: Array) -> tuple[Array, Array]:
        """The point of the surface that is nearest to a point, near `start`; and the same, fixed in the body."""
        ...


class ExactBoundary(NamedTuple):
    """Of a field that outside is the distance to its surface: q = x - A(x) g(x).

    `turn` (3, 3) and `shift` (3,), m: from the shared frame to that of the field.
    """

    field: Field
    parameters: Any
    turn: Array
    shift: Array

    def views(self, point: Array, start: Array) -> tuple[Array, Array]:
        """By the distance and its derivative at the point, which for the second view stay."""
        distance, slope = jax.value_and_grad(self._distance)(point)
        fixed, held = jax.lax.stop_gradient((point, slope))
        return point - distance * slope, fixed - self._distance(fixed) * held

    def _distance(self, point: Array) -> Array:
        return self.field.distance(self.parameters, mul_vec(self.turn, point) + self.shift)


class FieldBoundary(NamedTuple):
    """Of any field: where it vanishes. `turn` and `shift` as for exact ones."""

    field: Field
    parameters: Any
    turn: Array
    shift: Array

    def views(self, point: Array, start: Array) -> tuple[Array, Array]:
        """Found by a search; moved by the conditions above, or against the gradient as the field grows there."""
        place, begin = (mul_vec(self.turn, each) + self.shift for each in (point, start))
        found = jax.lax.stop_gradient(_search(self.field, *jax.lax.stop_gradient((self.parameters, place, begin))))
        distance, slope = _value(self.field, self.parameters, found)
        slope = jax.lax.stop_gradient(slope)
        held = found - slope * safe.divide(_change(distance), dot(slope, slope))
        return self._back(_moved(self.field, self.parameters, place, found)), self._back(held)

    def _back(self, place: Array) -> Array:
        return mul_vec_t(self.turn, place - self.shift)


def _change(value: Array) -> Array:
    """Zero, with the derivative of the value."""
    return value - jax.lax.stop_gradient(value)


def rest(residual: Array, allowed: Array) -> Array:
    """What a search has left: a step of Newton's method mends it, if it is small. Else zero, with its derivative.

    Searches compare lengths, which tell places to the root of rounding only.
    """
    small = jax.lax.stop_gradient(dot(residual, residual)) < (SMALL * allowed) ** 2
    return jnp.where(small, residual, _change(residual))


# these are traced once for each field, however often they are called
traced_once = functools.partial(jax.jit, static_argnums=0)


@traced_once
def _value(field: Field, parameters: Any, place: Array) -> tuple[Array, Array]:
    """Distance and its derivative (3,); what searches for contacts follow may be another direction."""
    return jax.value_and_grad(field.distance, 1)(parameters, place)


@traced_once
def _search(field: Field, parameters: Any, point: Array, begin: Array) -> Array:
    """The nearest point of a surface: onto it against the gradient, then along it while this gets nearer."""

    def onto(place: Array) -> Array:
        distance, slope = _value(field, parameters, place)
        return place - slope * safe.divide(distance, dot(slope, slope))

    def far(place: Array) -> Array:
        return safe.norm(point - place) + 2 * jnp.abs(_value(field, parameters, place)[0])

    def step(carry: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
        place, length = carry
        way, slope = point - place, _value(field, parameters, place)[1]
        along = way - slope * safe.divide(dot(way, slope), dot(slope, slope))
        further = onto(place + length * along)
        nearer = far(further) < far(place)
        return (jnp.where(nearer, further, place), length * jnp.where(nearer, 1.5, 0.5)), None

    start = onto(onto(begin)), jnp.full((), 0.7, point.dtype)
    (place, _), _ = jax.lax.scan(step, start, length=SLIDES)
    return onto(onto(place))


@traced_once
def _moved(field: Field, parameters: Any, point: Array, found: Array) -> Array:
    """The point that was found, with the derivative that the conditions give it."""
    slope = jax.lax.stop_gradient(_value(field, parameters, found)[1])
    squared = dot(slope, slope)
    ratio = safe.divide(dot(jax.lax.stop_gradient(point) - found, slope), squared)
    one, unit = jnp.eye(3, dtype=found.dtype), safe.normalize(slope)
    hessian = jax.jacfwd(lambda place: _value(field, jax.lax.stop_gradient(parameters), place)[1])(found)
    bent, tangent = one + ratio * jnp.asarray(hessian), one - outer(unit, unit)
    block = mul_mat(tangent, mul_mat(bent, tangent)) + outer(unit, unit)
    # where the surface has an edge the conditions are not those of a least distance: it counts as flat
    curved = _positive(block)
    bent, block = jnp.where(curved, bent, one), jnp.where(curved, block, one)
    distance, moving = _value(field, parameters, found)
    along = unit * -safe.divide(_change(distance), safe.sqrt(squared))
    beside = mul_vec(tangent, point - found - ratio * moving)
    beside = rest(beside, jnp.where(curved, safe.norm(jax.lax.stop_gradient(point) - found), 0))
    return found + along + solve3(block, beside - mul_vec(tangent, mul_vec(bent, along)))


def _positive(matrix: Array) -> Array:
    """Whether a symmetric matrix (3, 3) is positive definite with some room."""
    two = matrix[0, 0] * matrix[1, 1] - matrix[0, 1] * matrix[1, 0]
    three = dot(matrix[0], cross(matrix[1], matrix[2]))
    return (matrix[0, 0] > 1e-6) & (two > 1e-6) & (three > 1e-6)
