"""Whether boxes and triangles have something in common: sides of the box, plane of the triangle, and three projections.

Source: Schwarz and Seidel 2010, "Fast parallel surface and solid voxelization on GPUs". Where a triangle only touches a
box, rounding decides; sums are in the order of MuJoCo's `boxTriangle` (3.8.1).
"""

import numpy as np

from diffsim.compiler.assets.point_triangle import dot
from diffsim.mjcf.files.surface import cross_product

Array = np.ndarray


def boxes_meet_triangles(low: Array, high: Array, corner: Array) -> Array:
    """Truths (k,) for boxes between corners (k, 3) and triangles (k, 3, 3)."""
    meets = ((corner.max(axis=1) >= low) & (corner.min(axis=1) <= high)).all(axis=1)
    near = np.flatnonzero(meets)
    low, size, corner = low[near], (high - low)[near], corner[near]
    edge = np.roll(corner, -1, axis=1) - corner
    normal = cross_product(edge[:, 0], edge[:, 1])
    meets[near] = _plane_meets(low, size, corner[:, 0], normal)
    for axis in range(3):
        meets[near] &= _projections_meet(low, size, corner, edge, normal[:, axis] >= 0, axis)
    return meets


def _plane_meets(low: Array, size: Array, point: Array, normal: Array) -> Array:
    """Whether a plane through a point has corners of the box on both sides."""
    along = dot(normal, low)
    critical = np.where(normal > 0, size, 0.0)
    return (along + dot(normal, critical - point)) * (along + dot(normal, size - critical - point)) <= 0


def _projections_meet(low: Array, size: Array, corner: Array, edge: Array, up: Array, axis: int) -> Array:
    """Whether box and triangle meet when seen along an axis; `up`: whether the normal is along it."""
    b, c = (axis + 1) % 3, (axis + 2) % 3
    sign, meets = np.where(up, 1.0, -1.0), np.ones(len(low), bool)
    for k in range(3):
        across, along = -edge[:, k, c] * sign, edge[:, k, b] * sign
        start = -(across * corner[:, k, b] + along * corner[:, k, c])
        reach = start + np.maximum(0, size[:, b] * across) + np.maximum(0, size[:, c] * along)
        meets &= across * low[:, b] + along * low[:, c] + reach >= 0
    return meets
