"""The nearest point of a mesh's triangles: on the inside of one, or on a side, or at a corner.

Which triangle and which part of it are discrete choices. Source: Ericson, "Real-time collision detection", 5.1.5.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.math import safe
from diffsim.math.vector import cross, dot, total

Array = jax.Array


class TriangleBoundary(NamedTuple):
    """Of triangles `corner` (f, 3, 3), m, of which there are those that are `real` (f,); a `Boundary`."""

    corner: Array
    real: Array

    def views(self, point: Array, start: Array) -> tuple[Array, Array]:
        """The shares of the nearest triangle's corners follow the point, or stay."""
        fixed, still = jax.lax.stop_gradient((self.corner, point))
        gaps = jax.vmap(_gaps, (0, None))(fixed, still)
        best = jnp.argmin(jnp.where(self.real[:, None], gaps, jnp.inf))
        corner = self.corner[best // gaps.shape[1]]
        share = _shares(corner, point)[best % gaps.shape[1]]
        return _mixed(corner, share), _mixed(corner, jax.lax.stop_gradient(share))


def _gaps(corner: Array, point: Array) -> Array:
    """Squared distances (4,), m^2, of a point from the parts of a triangle; infinite where it is not over one."""
    share = _shares(corner, point)
    off = point[None] - total([share[:, k, None] * corner[None, k] for k in range(3)])
    over = jnp.min(share, axis=1) >= 0
    return jnp.where(over, dot(off, off), jnp.inf)


def _shares(corner: Array, point: Array) -> Array:
    """Shares (4, 3) of the corners in the nearest points of a triangle's sides, and in the foot on its plane."""
    return jnp.stack([*(_on_side(corner, point, k) for k in range(3)), _on_plane(corner, point)])


def _on_side(corner: Array, point: Array, first: int) -> Array:
    """Of the side from a corner to the next one, with its ends."""
    second = (first + 1) % 3
    along = corner[second] - corner[first]
    share = safe.clip(safe.divide(dot(point - corner[first], along), dot(along, along)), 0, 1)
    ends = np.eye(3)
    return (1 - share) * jnp.asarray(ends[first], share.dtype) + share * jnp.asarray(ends[second], share.dtype)


def _on_plane(corner: Array, point: Array) -> Array:
    """Negative for a triangle without area."""
    b, c, off = corner[1] - corner[0], corner[2] - corner[0], point - corner[0]
    normal = cross(b, c)
    second, third = (safe.divide(dot(each, normal), dot(normal, normal), -1) for each in (cross(off, c), cross(b, off)))
    return jnp.stack([1 - second - third, second, third])


def _mixed(corner: Array, share: Array) -> Array:
    return total([share[k] * corner[k] for k in range(3)])
