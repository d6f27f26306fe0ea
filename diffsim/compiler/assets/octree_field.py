"""The signed distance of a surface at the corners of its octree: a field that is trilinear in each cell.

Each cell has a list of the triangles that can be nearest to some point in it. The list of a child is a part of its
parent's list, found with bounding balls of the triangles. The distance of a corner is negative if it is behind the
nearest triangle. If several triangles are equally near, as at edges, the first one in MuJoCo's bounding volume
hierarchy counts.

The nearest part of a triangle (corner, edge or interior) follows from the signs of dot products. Sums are in MuJoCo's
order, because rounding decides which of several triangles is nearest when they are equally near.
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

# relative tolerance of the bounds: rounding must not drop a triangle that is nearest
SLACK = 1e-9


class Octree(NamedTuple):
    """mjModel's fields of the n cells of one mesh.

    Attributes:
      child: (n, 8) -1 for leaves.
      depth: (n,) 0 for the root.
      aabb: (n, 6) m, centers and half sides.
      coeff: (n, 8) m, signed distances at the corners.
    """

    child: Array
    depth: Array
    aabb: Array
    coeff: Array


class _Surface(NamedTuple):
    """Triangles (f, 3, 3) m, with the centers (f, 3) and radii (f,) of their bounding balls."""

    triangle: Array
    center: Array
    radius: Array


class _Lists(NamedTuple):
    """k lists of triangles, concatenated in `face`, with the start and length of each."""

    face: Array
    start: Array
    length: Array

    def pairs(self, which: Array) -> tuple[Array, Array]:
        """The entries of some lists (k,), one list after the other: the index into `which`, and the triangle."""
        length = self.length[which]
        owner = np.repeat(np.arange(len(which)), length)
        within = np.arange(len(owner)) - np.repeat(np.cumsum(length) - length, length)
        return owner, self.face[self.start[which][owner] + within]


def octree_of(vertex: Array, face: Array) -> Octree:
    """The octree of a mesh.

    Args:
      vertex: (v, 3) m, float64, not rounded to float32.
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
    # in MuJoCo's order, so that the first of equally near triangles counts
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
    """Corners (k,) that are not hanging, with their signed distances (k,), level by level.

    Args:
      cells, surface: the octree without distances, and the triangles.
      hanging: (h,) hanging corners.
      every: (ncell, 8) the corners of every cell.
    """
    done = np.zeros(GRID**3, bool)
    result = []
    count = len(surface.triangle)
    done[hanging] = True
    lists = _Lists(np.arange(count), np.zeros(1, int), np.array([count]))
    # the position of each cell's list among the lists of its level
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
    """The triangles that can be nearest to a point in each of some cells (k,), picked from the lists `number` (k,)."""
    low, high = cells.low_high(which)
    reach = np.sqrt(squares(high - low)) / 2
    faces, counts = [np.zeros(0, int)], [np.zeros(0, int)]
    for part, owner, face in _nearby(surface, (low + high) / 2, reach, lists, number):
        faces.append(face)
        counts.append(np.bincount(owner, minlength=part.stop - part.start))
    length = np.concatenate(counts)
    return _Lists(np.concatenate(faces), np.cumsum(length) - length, length)


def _distances(surface: _Surface, point: Array, lists: _Lists, number: Array) -> Array:
    """(k,) signed distances of points (k, 3) from the nearest triangle of their lists `number` (k,)."""
    result = [np.zeros(0)]
    for part, owner, face in _nearby(surface, point, np.zeros(len(point)), lists, number):
        here = point[part]
        # of equally near triangles, the one with the smallest index: the first in MuJoCo's order
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
    """The triangles that can be nearest to some place within `reach` (k,) of points (k, 3), part by part.

    Each point p has a list of candidates, `number` (k,). The distance d to the triangle whose ball has the nearest
    center is an upper bound of the distance to the surface. A place within the reach r is at most d + r from that
    triangle and at least |p - c| - R - r from a triangle with ball (c, R), so triangles with |p - c| - R > d + 2 r are
    dropped.

    Yields:
      A slice of the points; for each remaining triangle the point that it belongs to, within the slice; the triangle.
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
    """Consecutive slices of lists, each with about a chunk of entries in total, to limit the size of arrays."""
    if not len(counts):
        return []
    ends = np.cumsum(counts)
    width = next(chunks(0)).stop
    marks = np.searchsorted(ends, np.arange(width, ends[-1] + width, width), "right")
    marks = np.unique(np.concatenate([[0], marks, [len(counts)]]))
    return [slice(start, stop) for start, stop in pairwise(marks)]


# a point is outside if the line to its nearest point rises above the triangle's plane by an angle with at least this
# sine
OUTSIDE = 1e-12

# the parts of a triangle, in the order in which they are tested
A, B, AB, C, AC, BC, INSIDE = range(7)


class Nearest(NamedTuple):
    """The nearest points of k triangles.

    Attributes:
      squared: (k,) m^2, squared distance. As in MuJoCo it is infinite if two corners coincide and the nearest point
        would be inside the side between them and the third corner.
      second, third: (k,) barycentric coordinates of the nearest point for the second and third corner.
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
    # as in MuJoCo, measured from the corner at which the part starts, so that rounding agrees
    on_bc, at_b, at_c = (part == place for place in (BC, B, C))
    off[on_bc] = point[on_bc] - (b[on_bc] + third[on_bc, None] * (c - b)[on_bc])
    off[at_b] = point[at_b] - b[at_b]
    off[at_c] = point[at_c] - c[at_c]
    squared = dot(off, off)
    return Nearest(np.where(np.isnan(squared), np.inf, squared), second, third)


def _parts(d1: Array, d2: Array, d3: Array, d4: Array, d5: Array, d6: Array) -> tuple[Array, Array, Array]:
    """The nearest part (k,), and the barycentric coordinates of the second and third corner.

    Each part has a region of points p that are nearest to it; Ericson, 5.1.5, derives the conditions.

    Args:
      d1, d2: (k,) ab . (p - a), ac . (p - a), with the point p and the corners a, b, c.
      d3, d4: (k,) ab . (p - b), ac . (p - b).
      d5, d6: (k,) ab . (p - c), ac . (p - c).
    """
    # barycentric coordinates of the projection of p, times twice the area squared
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
    """(k,) bool: whether points (k, 3) are in front of their triangles (k, 3, 3), given the nearest points."""
    a = triangle[:, 0]
    ab = triangle[:, 1] - a
    ac = triangle[:, 2] - a
    normal = cross_product(ab, ac)
    off = point - (a + near.second[:, None] * ab + near.third[:, None] * ac)
    return dot(off, normal) > OUTSIDE * np.sqrt(dot(normal, normal)) * np.sqrt(near.squared)


# sides and centers that differ by less, m, count as equal (mjEPS)
MARGIN = 1e-14


def box_order(triangle: Array) -> Array:
    """(f,) the position of each triangle (f, 3, 3) in MuJoCo's hierarchy of bounding boxes.

    Boxes are split along their longest side at the median of the triangles' circumcenters; among equal centers,
    triangles with a lower index come first. All boxes of one level are split at once.
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
        # ranks that increase from box to box and, within a box, along the axis; nearly equal centers have the same rank
        along = center[order, axis[box]]
        steps = np.zeros(len(order), int)
        rank = np.lexsort((along, box))
        steps[rank[1:]] = np.cumsum((np.diff(along[rank]) > MARGIN) | (np.diff(box[rank]) > 0))
        order = order[np.lexsort((order, steps))]
        halves = np.stack([count // 2, count - count // 2], axis=1).ravel()
        count = halves[halves > 0]
    return np.argsort(order)


def circumcenters(triangle: Array) -> Array:
    """(f, 3) circumcenters of triangles (f, 3, 3); far away or NaN for degenerate triangles."""
    last = triangle[:, 2]
    a = triangle[:, 0] - last
    b = triangle[:, 1] - last
    normal = cross_product(a, b)
    across = cross_product(dot(a, a)[:, None] * b - dot(b, b)[:, None] * a, normal)
    with np.errstate(divide="ignore", invalid="ignore"):
        return across / (2 * dot(normal, normal))[:, None] + last
