"""cut_polygons: the triangles of the polygons in an OBJ file.

An ear is a triangle of three neighboring corners that contains no other corner. Ears are cut off a polygon, beginning
with its first three corners, until a triangle is left. Source: tinyobjloader, which MuJoCo uses.
"""

import numpy as np

from diffsim.mjcf.files.surface import cross_product
from diffsim.mjcf.resources import check_count

Array = np.ndarray

# the polygons of a file are cut in at most this many tests of corners, which take about a second
MOST_WORK = 50_000_000
# a round of cutting counts as at least this many tests, for the fixed time of its numpy calls
LEAST_WORK = 3000


def cut_polygons(vertex: Array, corner: Array, count: Array, short_diagonals: bool) -> Array:
    """Triangles (m, 3) of all polygons in turn, as indices into the list of corners.

    Args:
      vertex: (nvert, 3) m.
      corner: (n,) vertices of the corners of all polygons, one polygon after another.
      count: (npolygon,) number of corners of each polygon.
      short_diagonals: whether a polygon with four corners is cut along its shorter diagonal, even if not convex.
    """
    start = np.cumsum(count) - count
    parts = count - 2
    result = np.zeros((int(parts.sum()), 3), int)
    place = np.cumsum(parts) - parts
    three = np.flatnonzero(count == 3)
    result[place[three]] = start[three][:, None] + np.arange(3)
    rest = np.flatnonzero(count > 3)
    if short_diagonals:
        four = np.flatnonzero(count == 4)
        rest = np.flatnonzero(count > 4)
        points = vertex[corner[start[four][:, None] + np.arange(4)]]
        first, second = ((points[:, k + 2] - points[:, k]) ** 2 for k in range(2))
        shorter = first.sum(axis=1, dtype=np.float32) < second.sum(axis=1, dtype=np.float32)
        for row, pair in enumerate((((0, 1, 2), (0, 1, 3)), ((0, 2, 3), (1, 2, 3)))):
            result[place[four] + row] = start[four][:, None] + np.where(shorter[:, None], *np.array(pair))
    # whether each row stays unused because its polygon could not be cut to the end
    uncut = np.zeros(len(result), bool)
    spent = 0
    # polygons with 4 corners together, then with 5 to 8, with 9 to 16, and so on: padding at most doubles the work
    power = np.ceil(np.log2(count[rest]))
    for polygon in (rest[power == number] for number in np.unique(power)):
        size = count[polygon]
        column = np.minimum(np.arange(size.max()), size[:, None] - 1)
        triangle, number, spent = _ears(vertex[corner[start[polygon][:, None] + column]], size, spent)
        there = np.arange(triangle.shape[1]) < (size - 2)[:, None]
        rows = (place[polygon][:, None] + np.arange(triangle.shape[1]))[there]
        result[rows] = (start[polygon][:, None, None] + triangle)[there]
        uncut[rows] = (np.arange(triangle.shape[1]) >= number[:, None])[there]
    return result[~uncut]


def _ears(points: Array, size: Array, spent: int) -> tuple[Array, Array, int]:
    """Triangulates polygons by cutting off ears, in tinyobjloader's order.

    Each polygon is projected to the two axes along which it is largest. All polygons try their next corner at once: if
    it is convex and its triangle contains no other corner, the triangle is cut off. Arithmetic is in float32 as in
    tinyobjloader, because three corners in line are frequent and rounding decides about them.

    Args:
      points: (m, k, 3) corners.
      size: (m,) how many corners of each polygon count.
      spent: the work done so far for this file.

    Returns:
      Triangles (m, k - 2, 3), how many of them each polygon has (m,), and the work done so far.
    """
    count, corners = points.shape[:2]
    column = np.arange(corners)
    polygon = np.arange(count)[:, None]
    after = np.where(column + 1 < size[:, None], column + 1, 0)
    # the two axes along which the triangle at the first corner that is not straight has its largest projection
    edge = points[polygon, after] - points
    turn = np.abs(cross_product(edge, edge[polygon, after]))
    real = (turn > np.finfo(np.float32).eps).any(axis=2) & (column < size[:, None])
    x, y, z = turn[np.arange(count), np.argmax(real, axis=1)].T
    along_x = ((x > y) & (x > z)) | ~real.any(axis=1)
    along_z = (z > x) & (z > y)
    axes = np.where(along_x[:, None], [1, 2], np.where(along_z[:, None], [0, 1], [0, 2]))
    flat = points[polygon[:, :, None], column[:, None], axes[:, None]]
    x, y = flat[:, :, 0], flat[:, :, 1]
    # the signed area, summed in order: rounding decides the orientation of thin polygons
    terms = (x * y[polygon, after] - y * x[polygon, after]) * np.float32(0.5)
    area = np.cumsum(np.where(column < size[:, None], terms, 0), axis=1, dtype=np.float32)[:, -1]
    # for each polygon: the remaining corners (their number is `size`), the corner to try next, and the tries left
    left = np.tile(column, (count, 1))
    size = size.copy()
    at = np.zeros(count, int)
    tries = size.copy()
    triangle = np.zeros((count, corners - 2, 3), int)
    number = np.zeros(count, int)
    while len(row := np.flatnonzero((size > 3) & (tries > 0))):
        spent += max(len(row) * corners, LEAST_WORK)
        check_count(spent, MOST_WORK, "corners to try before its polygons are cut: write it as triangles")
        at[row] %= size[row]
        turned = left[row[:, None], (at[row, None] + column) % size[row, None]]
        ear = _is_ear(flat[row[:, None], turned], size[row], area[row])
        cut = row[ear]
        kept = row[~ear]
        triangle[cut, number[cut]] = turned[ear, :3]
        # corners after the one that is cut off move up
        gap = (at[cut] + 1) % size[cut]
        left[cut] = left[cut[:, None], np.minimum(column + (column >= gap[:, None]), corners - 1)]
        size[cut] -= 1
        # as in tinyobjloader: if the first ear is found only at the last try, the rest of the polygon stays uncut
        tries[cut] = np.where((number[cut] == 0) & (tries[cut] == 1), 0, size[cut])
        number[cut] += 1
        at[kept] += 1
        tries[kept] -= 1
    last = np.flatnonzero(size == 3)
    triangle[last, number[last]] = left[last, :3]
    number[last] += 1
    return triangle, number, spent


def _is_ear(points: Array, size: Array, area: Array) -> Array:
    """(m,) bool: the second corner of polygons (m, k, 2) is convex, and its triangle contains no other corner."""
    x, y = points[:, :, 0], points[:, :, 1]
    turn = (x[:, 1] - x[:, 0]) * (y[:, 2] - y[:, 1]) - (y[:, 1] - y[:, 0]) * (x[:, 2] - x[:, 1])
    inside = np.zeros((len(points), points.shape[1] - 3), bool)
    # a ray along x crosses the border of the triangle an odd number of times if it starts inside
    for first, second in ((0, 2), (1, 0), (2, 1)):
        ax = x[:, first, None]
        ay = y[:, first, None]
        bx = x[:, second, None]
        by = y[:, second, None]
        crossed = (ay > y[:, 3:]) != (by > y[:, 3:])
        height = np.where(by != ay, by - ay, 1)
        inside ^= crossed & (x[:, 3:] < (bx - ax) * (y[:, 3:] - ay) / height + ax)
    inside &= np.arange(3, points.shape[1]) < size[:, None]
    return ~(turn * area < 0) & ~inside.any(axis=1)
