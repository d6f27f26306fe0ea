"""Where two distance fields overlap: points that go down a function of both, each by a number of steps.

The steps go along the gradient as far as a line search says, halving from one, and first down
A + B + |max(A, B)|, then once down max(A, B). The lengths of the steps, chosen among powers of two, are not
differentiated; the path that they make is. Source: `stepGradient` of engine_collision_sdf.c (3.8.1).
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from diffsim.geometry.sdf.primitives import Field
from diffsim.math import safe
from diffsim.math.vector import dot, mul_vec, mul_vec_t, scale

Array = jax.Array

# lengths of a line search: 1, 1/2, .. down to the first below 1e-4
TRIALS = 15
# part of the decrease that a linear function would have
DECREASE = 0.1


class FieldPair(NamedTuple):
    """Two fields with the parameters of each; points are in the frame of the second (the sdf geom).

    `turn` (3, 3) and `shift` (3,), m: from there to the frame of the first.
    """

    fields: tuple[Field, Field]
    first: Array
    second: Array
    turn: Array
    shift: Array

    def values(self, point: Array) -> tuple[Array, Array]:
        """Distances (...), m, of points (..., 3) from the second and from the first."""
        first, second = self.fields
        return second.distance(self.second, point), first.distance(self.first, self.to_first(point))

    def gradients(self, point: Array) -> tuple[Array, Array]:
        """Directions (..., 3) in which the two distances grow."""
        first, second = self.fields
        turned = first.gradient(self.first, self.to_first(point))
        return second.gradient(self.second, point), mul_vec_t(self._turn(point), turned)

    def to_first(self, point: Array) -> Array:
        """Points (..., 3) in the frame of the first."""
        return mul_vec(self._turn(point), point) + jnp.broadcast_to(self.shift, point.shape)

    def _turn(self, point: Array) -> Array:
        return jnp.broadcast_to(self.turn, (*point.shape, 3))

    def fixed(self) -> "FieldPair":
        """The same without derivatives."""
        return FieldPair(self.fields, *jax.lax.stop_gradient(tuple(self[1:])))


class Objective(NamedTuple):
    """What points go down: a function of both distances, and of these and both gradients its gradient."""

    value: Callable[[Array, Array], Array]
    slope: Callable[[Array, Array, Array, Array], Array]


def _collision_slope(a: Array, b: Array, slope1: Array, slope2: Array) -> Array:
    sign = jnp.where(jnp.maximum(a, b) > 0, 1.0, -1.0).astype(a.dtype)
    return slope1 + slope2 + scale(_greater(a, b, slope1, slope2), sign)


def _greater(a: Array, b: Array, slope1: Array, slope2: Array) -> Array:
    """The gradient of max(a, b)."""
    return jnp.where((a > b)[..., None], slope1, slope2)


COLLISION = Objective(lambda a, b: a + b + jnp.abs(safe.maximum(a, b)), _collision_slope)
INTERSECTION = Objective(safe.maximum, _greater)


def descend(pair: FieldPair, start: Array, steps: int) -> Array:
    """The points (n, 3) that `start` (n, 3) leads to, by `steps` steps and the last one."""

    def step(carry: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
        return _step(pair, COLLISION, *carry), None

    going = jnp.ones(start.shape[:-1], bool)
    (point, _), _ = jax.lax.scan(step, (start, going), length=steps)
    return _step(pair, INTERSECTION, point, going)[0]


def _step(pair: FieldPair, objective: Objective, point: Array, going: Array) -> tuple[Array, Array]:
    """Points after a step of those that are going, and which still go: one that gets worse has made its last step."""
    slope = objective.slope(*pair.values(point), *pair.gradients(point))
    length, better = _search(pair.fixed(), objective, *jax.lax.stop_gradient((point, slope)))
    return point - scale(slope, jnp.where(going, length, 0)), going & better


def _search(pair: FieldPair, objective: Objective, point: Array, slope: Array) -> tuple[Array, Array]:
    """The first length (n,) with enough decrease, else the last, and whether the value is no greater after it."""
    lengths = 0.5 ** jnp.arange(TRIALS, dtype=point.dtype)
    before = objective.value(*pair.values(point))[:, None]
    trial = point[:, None] - slope[:, None] * lengths[None, :, None]
    after = objective.value(*pair.values(trial))
    enough = after - before <= -DECREASE * lengths[None] * dot(slope, slope)[:, None]
    chosen = jnp.where(jnp.any(enough, axis=1), jnp.argmax(enough, axis=1), TRIALS - 1)
    reached = jnp.take_along_axis(after, chosen[:, None], 1)
    return lengths[chosen], (reached <= before)[:, 0]
