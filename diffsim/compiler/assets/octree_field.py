"""The signed distance of a surface at the corners of its octree: coefficients of a field, trilinear in each cell.

Each corner looks at the triangles that can be nearest to some point of a cell around it; their list becomes shorter
from level to level. The distance is negative where the corner is behind the nearest triangle. Of several that are
equally near, as at edges, the first in MuJoCo's hierarchy of boxes counts.
Source: `mjCOctree::ComputeSdfCoeffs` of user_objects.cc (MuJoCo 3.8.1).
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from diffsim.compiler.assets.octree import DEPTH, Cells, cells_of, chunks
from diffsim.compiler.assets.octree_corners import GRID, completed, corners_of, hanging, places
from diffsim.compiler.assets.point_triangle import dot, nearest, outside
from diffsim.compiler.assets.triangle_order import box_order

Array = np.ndarray


class Octree(NamedTuple):
    """mjModel's fields of the n cells of one mesh.

    `child` (n, 8): -1 for none. `depth` (n,). `aabb` (n, 6): centers and half sides, m. `coeff` (n, 8): signed
    distances at the corners, m.
    """

    child: Array
    depth: Array
    aabb: Array
    coeff: Array


class _Lists(NamedTuple):
    """Triangles, list after list, and where each list starts and how long it is (k,)."""

    face: Array
    start: Array
    length: Array

    def pairs(self, which: Array) -> tuple[Array, Array]:
        """For some lists (k,), one after another: the place of each entry's list in `which`, and its triangle."""
        length = self.length[which]
        owner = np.repeat(np.arange(len(which)), length)
        within = np.arange(len(owner)) - np.repeat(np.cumsum(length) - length, length)
        return owner, self.face[self.start[which][owner] + within]


def octree_of(vertex: Array, face: Array) -> Octree:
    """The octree of a mesh.

    Args:
      vertex: (v, 3), m, not rounded.
      face: (f, 3) triangles.

    Raises:
      AssetError: the mesh is too fine.
    """
    triangle = vertex[face]
    cells = cells_of(triangle)
    hangs, every = hanging(cells), corners_of(cells, np.arange(len(cells.level)))
    values = np.zeros(GRID**3)
    for corner, number in _measured(cells, triangle, hangs.corner, every):
        values[corner] = number
    low, high = cells.low_high(slice(None))
    child = np.where(cells.child[:, None] >= 0, cells.child[:, None] + np.arange(8), -1)
    aabb = np.concatenate([(low + high) / 2, (high - low) / 2], axis=1)
    return Octree(child, cells.level, aabb, completed(values, hangs)[every])


def _measured(cells: Cells, triangle: Array, hanging: Array, every: Array) -> list[tuple[Array, Array]]:
    """Corners (k,) that do not hang, with signed distances (k,), level by level: each by a leaf that has it."""
    order, done, found = box_order(triangle), np.zeros(GRID**3, bool), []
    done[hanging] = True
    lists = _Lists(np.arange(len(triangle)), np.zeros(1, int), np.array([len(triangle)]))
    # the place of a cell's list among those of its level
    place = np.zeros(len(cells.level), int)
    for level in range(DEPTH + 1):
        own = np.flatnonzero(cells.level == level)
        above = place[cells.parent[own]] if level else np.zeros(1, int)
        leaf = cells.child[own] < 0
        corner, first = np.unique(every[own[leaf]].ravel(), return_index=True)
        fresh = ~done[corner]
        corner, near = corner[fresh], np.repeat(above[leaf], 8)[first[fresh]]
        done[corner] = True
        found.append((corner, _distances(_points(cells, corner), triangle, order, lists, near)))
        divided = own[~leaf]
        place[divided] = np.arange(len(divided))
        lists = _shortened(cells, divided, triangle, lists, above[~leaf])
    return found


def _points(cells: Cells, corner: Array) -> Array:
    return cells.axes[np.arange(3), places(corner)]


def _shortened(cells: Cells, which: Array, triangle: Array, lists: _Lists, own: Array) -> _Lists:
    """Lists for some cells (k,), from those that they have, `own` (k,): what can be nearest to a point of a cell.

    The nearest triangle is no further from the middle of a cell than the nearest middle of one, and from another point
    than that by the distance between both points.
    """
    low, high = cells.low_high(which)
    middle, reach = (low + high) / 2, np.sqrt(dot(high - low, high - low)) / 2
    center = triangle.mean(axis=1)
    radius = np.sqrt(((triangle - center[:, None]) ** 2).sum(axis=2).max(axis=1))
    faces, counts = [np.zeros(0, int)], [np.zeros(0, int)]
    for part in _portions(lists.length[own]):
        owner, face = lists.pairs(own[part])
        away = middle[part][owner] - center[face]
        away = np.sqrt(dot(away, away))
        starts = np.flatnonzero(np.diff(owner, prepend=-1))
        least = np.minimum.reduceat(away, starts)
        kept = away - radius[face] <= (least + 2.000001 * reach[part])[owner]
        faces.append(face[kept])
        counts.append(np.bincount(owner[kept], minlength=len(starts)))
    count = np.concatenate(counts)
    return _Lists(np.concatenate(faces), np.cumsum(count) - count, count)


def _distances(point: Array, triangle: Array, order: Array, lists: _Lists, own: Array) -> Array:
    """Signed distances (k,) of points (k, 3) from the nearest triangles of their lists `own` (k,)."""
    found = [np.zeros(0)]
    for part in _portions(lists.length[own]):
        owner, face = lists.pairs(own[part])
        squared = nearest(point[part][owner], triangle[face]).squared
        starts = np.flatnonzero(np.diff(owner, prepend=-1))
        equal = squared == np.minimum.reduceat(squared, starts)[owner]
        first = np.minimum.reduceat(np.where(equal, order[face], len(order)), starts)
        chosen = triangle[np.argsort(order)[first]]
        near = nearest(point[part], chosen)
        sign = np.where(outside(point[part], chosen, near), 1.0, -1.0)
        found.append(sign * np.sqrt(near.squared))
    return np.concatenate(found)


def _portions(counts: Array) -> list[slice]:
    """Parts of some lists, each with so many entries that arrays of them are of a moderate size."""
    if not len(counts):
        return []
    ends = np.cumsum(counts)
    width = next(chunks(0)).stop
    marks = np.searchsorted(ends, np.arange(width, ends[-1] + width, width), "right")
    marks = np.unique(np.concatenate([[0], marks, [len(counts)]]))
    return [slice(start, stop) for start, stop in pairwise(marks)]
