"""The signed distance of a surface at the corners of its octree: coefficients of a field, trilinear in each cell.

Each corner looks at the triangles that can be nearest to some point of a cell around it; their list becomes shorter
from level to level, by balls around them. The distance is negative where the corner is behind the nearest triangle. Of
several that are equally near, as at edges, the first in MuJoCo's hierarchy of boxes counts.
Source: `mjCOctree::ComputeSdfCoeffs` of user_objects.cc (MuJoCo 3.8.1).
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from diffsim.compiler.assets.octree import DEPTH, Cells, cells_of, check_pairs, chunks
from diffsim.compiler.assets.octree_corners import GRID, completed, corners_of, hanging, places
from diffsim.compiler.assets.point_triangle import nearest, outside
from diffsim.compiler.assets.triangle_order import box_order
from diffsim.mjcf.files.surface import squares

Array = np.ndarray

# part of a length by which a triangle is kept although another seems nearer
SLACK = 1e-9


class Octree(NamedTuple):
    """mjModel's fields of the n cells of one mesh.

    `child` (n, 8): -1 for none. `depth` (n,). `aabb` (n, 6): centers and half sides, m. `coeff` (n, 8): signed
    distances at the corners, m.
    """

    child: Array
    depth: Array
    aabb: Array
    coeff: Array


class _Surface(NamedTuple):
    """Triangles (f, 3, 3), m, and the centers (f, 3) and radii (f,) of balls that hold them."""

    triangle: Array
    center: Array
    radius: Array


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
    cells, order = cells_of(triangle), np.argsort(box_order(triangle))
    hangs, every = hanging(cells), corners_of(cells, np.arange(len(cells.level)))
    values = np.zeros(GRID**3)
    # in MuJoCo's order, so that of equally near ones the first counts
    for corner, number in _measured(cells, _surface(triangle[order]), hangs.corner, every):
        values[corner] = number
    low, high = cells.low_high(slice(None))
    child = np.where(cells.child[:, None] >= 0, cells.child[:, None] + np.arange(8), -1)
    aabb = np.concatenate([(low + high) / 2, (high - low) / 2], axis=1)
    return Octree(child, cells.level, aabb, completed(values, hangs)[every])


def _surface(triangle: Array) -> _Surface:
    center = triangle.mean(axis=1)
    return _Surface(triangle, center, np.sqrt(squares(triangle - center[:, None]).max(axis=1)))


def _measured(cells: Cells, surface: _Surface, hanging: Array, every: Array) -> list[tuple[Array, Array]]:
    """Corners (k,) that do not hang, with signed distances (k,), level by level: each by a leaf that has it."""
    done, found, count = np.zeros(GRID**3, bool), [], len(surface.triangle)
    done[hanging] = True
    lists = _Lists(np.arange(count), np.zeros(1, int), np.array([count]))
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
        found.append((corner, _distances(surface, cells.axes[np.arange(3), places(corner)], lists, near)))
        divided = own[~leaf]
        place[divided] = np.arange(len(divided))
        lists = _shortened(surface, cells, divided, lists, above[~leaf])
    return found


def _shortened(surface: _Surface, cells: Cells, which: Array, lists: _Lists, own: Array) -> _Lists:
    """Lists for some cells (k,), from those that they have, `own` (k,): what can be nearest to a point of a cell."""
    low, high = cells.low_high(which)
    reach = np.sqrt(squares(high - low)) / 2
    faces, counts = [np.zeros(0, int)], [np.zeros(0, int)]
    for part, owner, face in _nearby(surface, (low + high) / 2, reach, lists, own):
        faces.append(face)
        counts.append(np.bincount(owner, minlength=part.stop - part.start))
    length = np.concatenate(counts)
    return _Lists(np.concatenate(faces), np.cumsum(length) - length, length)


def _distances(surface: _Surface, point: Array, lists: _Lists, own: Array) -> Array:
    """Signed distances (k,) of points (k, 3) from the nearest triangles of their lists `own` (k,)."""
    found = [np.zeros(0)]
    for part, owner, face in _nearby(surface, point, np.zeros(len(point)), lists, own):
        here = point[part]
        squared = nearest(here[owner], surface.triangle[face]).squared
        starts = np.flatnonzero(np.diff(owner, prepend=-1))
        equal = squared == np.minimum.reduceat(squared, starts)[owner]
        chosen = surface.triangle[np.minimum.reduceat(np.where(equal, face, len(surface.triangle)), starts)]
        near = nearest(here, chosen)
        found.append(np.where(outside(here, chosen, near), 1.0, -1.0) * np.sqrt(near.squared))
    return np.concatenate(found)


def _nearby(
    surface: _Surface, point: Array, reach: Array, lists: _Lists, own: Array
) -> Iterator[tuple[slice, Array, Array]]:
    """Of the lists `own` (k,) what can be nearest to some place within `reach` (k,) of points (k, 3), part by part.

    Nothing nearest is further from the point than the triangle whose ball has the nearest center, and from other places
    than that by twice the reach. Yields the part, places in it of the points to which triangles belong, and these.
    """
    check_pairs(int(lists.length[own].sum()))
    for part in _portions(lists.length[own]):
        owner, face = lists.pairs(own[part])
        here = point[part]
        away = np.sqrt(squares(here[owner] - surface.center[face]))
        starts = np.flatnonzero(np.diff(owner, prepend=-1))
        least = away == np.minimum.reduceat(away, starts)[owner]
        first = face[np.minimum.reduceat(np.where(least, np.arange(len(face)), len(face)), starts)]
        bound = np.sqrt(nearest(here, surface.triangle[first]).squared) + 2 * reach[part]
        kept = away - surface.radius[face] <= bound[owner] + SLACK * away
        yield part, owner[kept], face[kept]


def _portions(counts: Array) -> list[slice]:
    """Parts of some lists, each with so many entries that arrays of them are of a moderate size."""
    if not len(counts):
        return []
    ends = np.cumsum(counts)
    width = next(chunks(0)).stop
    marks = np.searchsorted(ends, np.arange(width, ends[-1] + width, width), "right")
    marks = np.unique(np.concatenate([[0], marks, [len(counts)]]))
    return [slice(start, stop) for start, stop in pairwise(marks)]
