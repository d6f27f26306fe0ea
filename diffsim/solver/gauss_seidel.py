"""Projected Gauss-Seidel sweeps: one constraint after another gets its best force, all others held.

What the PGS solver and noslip share. The best force y of a constraint minimizes 1/2 (y - old)^T A (y - old) +
slope . (y - old) over its admissible forces; in the axes in which its block of A is diagonal, `value`.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from diffsim.solver.friction_cone import minimum_in_ball

Array = jax.Array
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
