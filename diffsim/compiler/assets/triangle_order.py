"""The order in which MuJoCo's hierarchy of bounding boxes lists the triangles of a mesh.

A box is halved along its longest side at the median of the triangles' circumcenters; of equal ones the first counts.
Source: `mjCBoundingVolumeHierarchy::MakeBVH` of user_objects.cc, `mjCMesh::MakeCenter` of user_mesh.cc (3.8.1).
"""

import numpy as np

from diffsim.compiler.assets.point_triangle import dot
from diffsim.mjcf.files.surface import cross_product

Array = np.ndarray

# m, by which a side is longer or a center further along
MARGIN = 1e-14


def box_order(triangle: Array) -> Array:
    """The place (f,) of each of some triangles (f, 3, 3)."""
    low, high, center = triangle.min(axis=1), triangle.max(axis=1), circumcenters(triangle)
    own, count = np.arange(len(triangle)), np.array([len(triangle)])
    while count.max(initial=0) > 1:
        start, box = np.cumsum(count) - count, np.repeat(np.arange(len(count)), count)
        side = np.maximum.reduceat(high[own], start) - np.minimum.reduceat(low[own], start)
        axis = (side[:, 1] >= side[:, 0] + MARGIN).astype(int)
        axis[side[:, 2] >= side[np.arange(len(side)), axis] + MARGIN] = 2
        own = own[np.lexsort((own, _steps(center[own, axis[box]], box)))]
        halves = np.stack([count // 2, count - count // 2], axis=1).ravel()
        count = halves[halves > 0]
    return np.argsort(own)


def _steps(along: Array, box: Array) -> Array:
    """Numbers that grow from box to box, and within one with a coordinate; equal for those that are nearly equal."""
    order = np.lexsort((along, box))
    grows = (np.diff(along[order]) > MARGIN) | (np.diff(box[order]) > 0)
    steps = np.zeros(len(order), int)
    steps[order[1:]] = np.cumsum(grows)
    return steps


def circumcenters(triangle: Array) -> Array:
    """Centers (f, 3) of circles around triangles (f, 3, 3); far away or no number for flat ones."""
    last = triangle[:, 2]
    a, b = triangle[:, 0] - last, triangle[:, 1] - last
    normal = cross_product(a, b)
    across = cross_product(dot(a, a)[:, None] * b - dot(b, b)[:, None] * a, normal)
    with np.errstate(divide="ignore", invalid="ignore"):
        return across / (2 * dot(normal, normal))[:, None] + last
