"""The signed distance of a surface at the corners of its octree: coefficients of a field, trilinear in each cell.

Each corner looks at the triangles that can be nearest to some point of a cell around it; their list becomes shorter
from level to level, by balls around them. The distance is negative where the corner is behind the nearest triangle. Of
several that are equally near, as at edges, the first in MuJoCo's hierarchy of boxes counts.

The part of a triangle (corner, edge or inside) that is nearest follows from the signs of dot products. Where parts of
several triangles are equally near, rounding decides between them: sums are in MuJoCo's order.
Source: `mjCOctree::ComputeSdfCoeffs`, `pointTriDistSqWithUV`, `mjCBoundingVolumeHierarchy::MakeBVH` of user_objects.cc
and `mjCMesh::MakeCenter` of user_mesh.cc (MuJoCo 3.8.1). Ericson, "Real-time collision detection", 5.1.5.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from diffsim.compiler.assets.octree import (
    DEPTH,
    GRID,
    Cells,
    cells_of,
    check_pairs,
    chunks,
    completed,
    corners_of,
    hanging,
    places,
)
from diffsim.mjcf.files.surface import cross_product, dot, squares

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
    cells = cells_of(triangle)
    order = np.argsort(box_order(triangle))
    hangs = hanging(cells)
    every = corners_of(cells, np.arange(len(cells.level)))
    values = np.zeros(GRID**3)
    # in MuJoCo's order, so that of equally near ones the first counts
    triangle = triangle[order]
    center = triangle.mean(axis=1)
    surface = _Surface(triangle, center, np.sqrt(squares(triangle - center[:, None]).max(axis=1)))
    for corner, distance in _corner_distances(cells, surface, hangs.corner, every):
        values[corner] = distance
    low, high = cells.low_high(slice(None))
    child = np.where(cells.child[:, None] >= 0, cells.child[:, None] + np.arange(8), -1)
    aabb = np.concatenate([(low + high) / 2, (high - low) / 2], axis=1)
    return Octree(child, cells.level, aabb, completed(values, hangs)[every])


def _corner_distances(cells: Cells, surface: _Surface, hanging: Array, every: Array) -> list[tuple[Array, Array]]:
    """Corners (k,) that do not hang, with signed distances (k,), level by level: each by a leaf that has it.

    Args:
      cells, surface: the octree without distances, and the triangles.
      hanging: (h,) corners that hang in the middle of an edge or face of a larger cell.
      every: (ncell, 8) the corners of every cell.
    """
    done = np.zeros(GRID**3, bool)
    result = []
    count = len(surface.triangle)
    done[hanging] = True
    lists = _Lists(np.arange(count), np.zeros(1, int), np.array([count]))
    # the place of a cell's list among those of its level
    place = np.zeros(len(cells.level), int)
    for level in range(DEPTH + 1):
        cell = np.flatnonzero(cells.level == level)
        above = place[cells.parent[cell]] if level else np.zeros(1, int)
        leaf = cells.child[cell] < 0
        corner, first = np.unique(every[cell[leaf]].ravel(), return_index=True)
        fresh = ~done[corner]
        corner = corner[fresh]
        near = np.repeat(above[leaf], 8)[first[fresh]]
        done[corner] = True
        result.append((corner, _distances(surface, cells.axes[np.arange(3), places(corner)], lists, near)))
        divided = cell[~leaf]
        place[divided] = np.arange(len(divided))
        lists = _shortened(surface, cells, divided, lists, above[~leaf])
    return result


def _shortened(surface: _Surface, cells: Cells, which: Array, lists: _Lists, number: Array) -> _Lists:
    """Lists for some cells (k,), from those with a `number` (k,): what can be nearest to a point of a cell."""
    low, high = cells.low_high(which)
    reach = np.sqrt(squares(high - low)) / 2
    faces, counts = [np.zeros(0, int)], [np.zeros(0, int)]
    for part, owner, face in _nearby(surface, (low + high) / 2, reach, lists, number):
        faces.append(face)
        counts.append(np.bincount(owner, minlength=part.stop - part.start))
    length = np.concatenate(counts)
    return _Lists(np.concatenate(faces), np.cumsum(length) - length, length)


def _distances(surface: _Surface, point: Array, lists: _Lists, number: Array) -> Array:
    """Signed distances (k,) of points (k, 3) from the nearest triangles of their lists, by `number` (k,)."""
    result = [np.zeros(0)]
    for part, owner, face in _nearby(surface, point, np.zeros(len(point)), lists, number):
        here = point[part]
        squared = nearest(here[owner], surface.triangle[face]).squared
        starts = np.flatnonzero(np.diff(owner, prepend=-1))
        equal = squared == np.minimum.reduceat(squared, starts)[owner]
        chosen = surface.triangle[np.minimum.reduceat(np.where(equal, face, len(surface.triangle)), starts)]
        near = nearest(here, chosen)
        result.append(np.where(outside(here, chosen, near), 1.0, -1.0) * np.sqrt(near.squared))
    return np.concatenate(result)


def _nearby(
    surface: _Surface, point: Array, reach: Array, lists: _Lists, number: Array
) -> Iterator[tuple[slice, Array, Array]]:
    """The triangles that can be nearest to some place within `reach` (k,) of points (k, 3), part by part of the points.

    Each point has a list of candidates, `number` (k,). What is nearest to the point is no further away than the
    triangle whose ball has the nearest center; for places within the reach that bound grows by twice the reach.

    Yields:
      The part; for each triangle that remains, which point of the part it belongs to; and the triangle.
    """
    check_pairs(int(lists.length[number].sum()))
    for part in _portions(lists.length[number]):
        owner, face = lists.pairs(number[part])
        here = point[part]
        away = np.sqrt(squares(here[owner] - surface.center[face]))
        starts = np.flatnonzero(np.diff(owner, prepend=-1))
        least = away == np.minimum.reduceat(away, starts)[owner]
        first = face[np.minimum.reduceat(np.where(least, np.arange(len(face)), len(face)), starts)]
        bound = np.sqrt(nearest(here, surface.triangle[first]).squared) + 2 * reach[part]
        close = away - surface.radius[face] <= bound[owner] + SLACK * away
        yield part, owner[close], face[close]


def _portions(counts: Array) -> list[slice]:
    """Parts of some lists, each with so many entries that arrays of them are of a moderate size."""
    if not len(counts):
        return []
    ends = np.cumsum(counts)
    width = next(chunks(0)).stop
    marks = np.searchsorted(ends, np.arange(width, ends[-1] + width, width), "right")
    marks = np.unique(np.concatenate([[0], marks, [len(counts)]]))
    return [slice(start, stop) for start, stop in pairwise(marks)]


# part of the greatest height that it could have, below which a point is not outside
OUTSIDE = 1e-12

# the parts of a triangle, in the order in which they are asked for
A, B, AB, C, AC, BC, INSIDE = range(7)


class Nearest(NamedTuple):
    """Squared distances (k,), m^2, and shares (k,) of the second and third corner in the nearest points.

    Infinitely far where two corners are one and the point lies beside the side that is left, as in MuJoCo.
    """

    squared: Array
    second: Array
    third: Array


def nearest(point: Array, triangle: Array) -> Nearest:
    """The point of a triangle (k, 3, 3) that is nearest to each point (k, 3)."""
    a, b, c = (triangle[:, k] for k in range(3))
    ab = b - a
    ac = c - a
    part, second, third = _parts(*(dot(side, point - corner) for corner in (a, b, c) for side in (ab, ac)))
    off = point - (a + second[:, None] * ab + third[:, None] * ac)
    # from the corner from which the part starts
    on_bc, at_b, at_c = (part == place for place in (BC, B, C))
    off[on_bc] = point[on_bc] - (b[on_bc] + third[on_bc, None] * (c - b)[on_bc])
    off[at_b] = point[at_b] - b[at_b]
    off[at_c] = point[at_c] - c[at_c]
    squared = dot(off, off)
    return Nearest(np.where(np.isnan(squared), np.inf, squared), second, third)


def _parts(d1: Array, d2: Array, d3: Array, d4: Array, d5: Array, d6: Array) -> tuple[Array, Array, Array]:
    """Number (k,) of the nearest part, and shares of the second and third corner.

    d1 to d6 (k,): products of the sides ab and ac with the way to the point from a (d1, d2), from b (d3, d4) and from
    c (d5, d6).
    """
    va = d3 * d6 - d5 * d4
    vb = d5 * d2 - d1 * d6
    vc = d1 * d4 - d3 * d2
    parts = {
        A: (d1 <= 0) & (d2 <= 0),
        B: (d3 >= 0) & (d4 <= d3),
        AB: (vc <= 0) & (d1 >= 0) & (d3 <= 0),
        C: (d6 >= 0) & (d5 <= d6),
        AC: (vb <= 0) & (d2 >= 0) & (d6 <= 0),
        BC: (va <= 0) & (d4 - d3 >= 0) & (d5 - d6 >= 0),
    }
    part = np.select(list(parts.values()), list(parts), INSIDE)
    zero, one = np.zeros(len(part)), np.ones(len(part))
    with np.errstate(divide="ignore", invalid="ignore"):
        whole = 1.0 / (va + vb + vc)
        on_bc = (d4 - d3) / ((d4 - d3) + (d5 - d6))
        second = zero, one, d1 / (d1 - d3), zero, zero, 1 - on_bc, vb * whole
        third = zero, zero, zero, one, d2 / (d2 - d6), on_bc, vc * whole
    return part, np.choose(part, second), np.choose(part, third)


def outside(point: Array, triangle: Array, near: Nearest) -> Array:
    """Whether points (k, 3) are before their triangles (k, 3, 3), whose nearest points are given."""
    a = triangle[:, 0]
    ab = triangle[:, 1] - a
    ac = triangle[:, 2] - a
    normal = cross_product(ab, ac)
    off = point - (a + near.second[:, None] * ab + near.third[:, None] * ac)
    return dot(off, normal) > OUTSIDE * np.sqrt(dot(normal, normal)) * np.sqrt(near.squared)


# m, by which a side is longer or a center further along
MARGIN = 1e-14


def box_order(triangle: Array) -> Array:
    """The place (f,) of each of some triangles (f, 3, 3) in MuJoCo's hierarchy of bounding boxes.

    A box is halved along its longest side at the median of the triangles' circumcenters; of equal ones the first
    counts.
    """
    low = triangle.min(axis=1)
    high = triangle.max(axis=1)
    center = circumcenters(triangle)
    order = np.arange(len(triangle))
    count = np.array([len(triangle)])
    while count.max(initial=0) > 1:
        start = np.cumsum(count) - count
        box = np.repeat(np.arange(len(count)), count)
        side = np.maximum.reduceat(high[order], start) - np.minimum.reduceat(low[order], start)
        axis = (side[:, 1] >= side[:, 0] + MARGIN).astype(int)
        axis[side[:, 2] >= side[np.arange(len(side)), axis] + MARGIN] = 2
        # numbers that grow from box to box, and within one with a coordinate; equal for those that are nearly equal
        along = center[order, axis[box]]
        steps = np.zeros(len(order), int)
        rank = np.lexsort((along, box))
        steps[rank[1:]] = np.cumsum((np.diff(along[rank]) > MARGIN) | (np.diff(box[rank]) > 0))
        order = order[np.lexsort((order, steps))]
        halves = np.stack([count // 2, count - count // 2], axis=1).ravel()
        count = halves[halves > 0]
    return np.argsort(order)


def circumcenters(triangle: Array) -> Array:
    """Centers (f, 3) of circles around triangles (f, 3, 3); far away or no number for flat ones."""
    last = triangle[:, 2]
    a = triangle[:, 0] - last
    b = triangle[:, 1] - last
    normal = cross_product(a, b)
    across = cross_product(dot(a, a)[:, None] * b - dot(b, b)[:, None] * a, normal)
    with np.errstate(divide="ignore", invalid="ignore"):
        return across / (2 * dot(normal, normal))[:, None] + last
