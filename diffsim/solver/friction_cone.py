"""Elliptic friction: where contacts stand in a list of rows, and points of balls and cones.

In the coordinates y = force / friction an elliptic cone is circular, |y| <= normal, and at fixed normal force a ball.
"""

from typing import NamedTuple

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
