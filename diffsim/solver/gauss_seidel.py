"""Projected Gauss-Seidel sweeps: one constraint after another gets its best force, all others fixed.

What the PGS solver and noslip share. The best force y of a constraint minimizes 1/2 (y - old)^T A (y - old) +
slope . (y - old) over its admissible forces, in the axes in which its block of A is diagonal, `value`. In the
coordinates y = force / friction an elliptic cone is circular, |y| <= normal, and at fixed normal force a ball.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.math import safe
from diffsim.math.vector import scale

Array = jax.Array

# Newton iterations for the multiplier of a ball; it converges quadratically and from one side
NEWTON = 12


class Cones(NamedTuple):
    """Elliptic contacts among `size` rows: (number, rows of each) for each width; all single rows come before them."""

    size: int
    groups: tuple[tuple[int, int], ...]

    @property
    def number(self) -> int:
        """Number of contacts."""
        return sum(count for count, _ in self.groups)

    @property
    def singles(self) -> int:
        """Number of single rows."""
        return self.size - sum(count * width for count, width in self.groups)

    def table(self) -> np.ndarray:
        """(count, widest) rows of each contact; where it has fewer, the dummy row `size`."""
        widest = max((width for _, width in self.groups), default=1)
        start, parts = self.singles, list[np.ndarray]([np.zeros((0, widest), int)])
        for count, width in self.groups:
            rows = start + np.arange(count * width).reshape(count, width)
            parts.append(np.pad(rows, ((0, 0), (0, widest - width)), constant_values=self.size))
            start += count * width
        return np.concatenate(parts)

    def label(self) -> np.ndarray:
        """(size,) number of the single row or contact that each row belongs to."""
        parts, start = [np.arange(self.singles)], self.singles
        for count, width in self.groups:
            parts.append(start + np.repeat(np.arange(count), width))
            start += count
        return np.concatenate(parts)

    def split(self, values: Array) -> list[Array]:
        """(size, ...) as blocks (n, k, ...): the single rows with k = 1, then the contacts of each width."""
        parts, start = [], 0
        for count, width in ((self.singles, 1), *self.groups):
            stop = start + count * width
            parts.append(values[start:stop].reshape(count, width, *values.shape[1:]))
            start = stop
        return parts


def concatenate(blocks: list[Array]) -> Array:
    """(size, ...) from blocks (n, k, ...): the inverse of `Cones.split`."""
    return jnp.concatenate([block.reshape(-1, *block.shape[2:]) for block in blocks])


def minimum_in_ball(value: Array, linear: Array, radius: Array) -> Array:
    """y (k,) that minimizes 1/2 value y^2 + linear y over |y| <= radius: y = -linear / (value + multiplier).

    The multiplier makes |y| = radius; Newton's method on 1 / |y|, nearly linear in it, from zero.
    """

    def advance(_: int, multiplier: Array) -> Array:
        share = linear / (value + multiplier)
        squared = jnp.sum(share * share)
        slope = jnp.sum(share * share / (value + multiplier))
        step = safe.divide(squared * (jnp.sqrt(squared) - radius), slope * radius)
        return safe.maximum(multiplier + step, 0)

    free = -linear / value
    outside = jnp.sum(free * free) > radius * radius
    multiplier = jax.lax.fori_loop(0, NEWTON, advance, jnp.zeros_like(radius))
    bound = -linear / (value + multiplier)
    bound = scale(bound[None], safe.divide(radius, safe.norm(bound))[None])[0]
    return jnp.where(outside, bound, free)


def nearest_in_cone(force: Array) -> Array:
    """The point of the cone |y| <= normal that is nearest to a force (normal, y), (k,)."""
    normal, size = force[0], safe.norm(force[1:])
    share = safe.clip(0.5 * (1 + safe.divide(normal, size)), 0, 1)
    onto = share * jnp.concatenate([size[None], force[1:]])
    return jnp.where(size <= normal, force, jnp.where(size <= -normal, 0, onto))


Point = TypeVar("Point")

# the least inertia that a force can have to move
MINVAL = 1e-15


def sweep(updates: Sequence[tuple[Array | int, Callable[[Array, Point], Point]]], point: Point) -> Point:
    """One sweep over lists of constraints: (how many, the update of number i) of each list."""
    for count, update in updates:
        point = jax.lax.fori_loop(0, count, update, point)
    return point


class Spectrum(NamedTuple):
    """Eigenvalues (n, k) and eigenvectors (n, k, k), in columns, of symmetric blocks."""

    value: Array
    vector: Array


def spectrum(block: Array) -> Spectrum:
    """Of blocks (n, k, k) of A; one without inertia in some direction has as good as none there."""
    if block.shape[-1] == 1:
        value, vector = block[:, 0], jnp.ones_like(block)
    else:
        value, vector = jnp.linalg.eigh(block, symmetrize_input=False)
    return Spectrum(jnp.maximum(value, MINVAL + float(jnp.finfo(value.dtype).eps) * value[:, -1:]), vector)


def to_axes(vector: Array, y: Array) -> Array:
    """vector^T y: coordinates (k,) of y (k,) along eigenvectors (k, k)."""
    total = vector[0] * y[0]
    for i in range(1, y.shape[0]):
        total = total + vector[i] * y[i]
    return total


def from_axes(vector: Array, y: Array) -> Array:
    """vector y: the inverse of `to_axes`."""
    return to_axes(vector.T, y)


def best_in_interval(old: Array, slope: Array, value: Array, lower: Array, upper: Array) -> Array:
    """The best y between bounds."""
    return jnp.clip(old - slope / value, lower, upper)


def best_in_ball(old: Array, slope: Array, value: Array, radius: Array) -> Array:
    """The best y (k,) of |y| <= radius."""
    return minimum_in_ball(value, slope - value * old, radius)


def gain(change: Array, slope: Array, value: Array) -> Array:
    """What the objective gains by a change of force (k,), by axis."""
    return -change * (0.5 * change * value + slope)
