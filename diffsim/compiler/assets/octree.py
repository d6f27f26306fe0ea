"""Octree of a mesh: cells that are halved along all three sides where the surface runs through them.

The root is the mesh's bounding box, 1.1 times as large. A cell that meets a triangle has eight children, down to a
depth; then others are divided until cells with a common face differ by one level at most. Places are whole numbers of
the finest cells, so that the corners that cells share are known without comparing coordinates. Cells are numbered as
they are made, eight children in a row, the one that is further along x, y, z at place 1, 2, 4.

Corners of cells are numbered by their place in the grid of finest cells. A corner of a leaf hangs where it is no corner
of a larger neighbour: there a field is the mean of its values at the ends of the neighbour's edge, or at the four
corners of its face, so that it is continuous across faces.

Source: `mjCOctree` and `boxTriangle` of user_objects.cc (MuJoCo 3.8.1), whose sums are in this order: where a triangle
only touches a box, rounding decides. Schwarz and Seidel 2010, "Fast parallel surface and solid voxelization on GPUs".
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from diffsim.mjcf.files.surface import cross_product, dot
from diffsim.mjcf.resources import AssetError

Array = np.ndarray

# levels below the root, as in MuJoCo
DEPTH = 6
# finest cells along a side of the root
FINEST = 1 << DEPTH
# grid points along a side of the root
GRID = FINEST + 1
# the root is the bounding box of the mesh times this, as in MuJoCo: the surface stays inside
ROOM = 1.1
# (8, 3) bool: which children of a cell are the upper ones along x, y, z
SLOTS = np.array([[slot & 1, slot >> 1 & 1, slot >> 2] for slot in range(8)])
# (6, 4) the corners of each side of a cell: lower and upper along x, y, z
SIDE_CORNERS = np.array(
    [
        [(side << axis) + (i << (axis + 1) % 3) + (j << (axis + 2) % 3) for j in (0, 1) for i in (0, 1)]
        for axis in range(3)
        for side in (0, 1)
    ]
)
# pairs of a cell and a triangle that are tested at once: arrays of this length fit the cache
CHUNK = 1 << 17
# pairs on one level: more would take minutes and gigabytes
MOST_PAIRS = 1 << 26


class Cells(NamedTuple):
    """The cells of an octree.

    `level` (n,): 0 of the root. `corner` (n, 3): the lower corner, in finest cells. `child` (n,): the first of eight
    children, -1 for none. `parent` (n,): -1 of the root. `axes` (3, FINEST + 1): coordinates of the planes between
    finest cells, m.
    """

    level: Array
    corner: Array
    child: Array
    parent: Array
    axes: Array

    @property
    def size(self) -> Array:
        """Sides (n,) of the cells, in finest cells."""
        return FINEST >> self.level

    @property
    def leaves(self) -> Array:
        """The cells without children."""
        return np.flatnonzero(self.child < 0)

    def low_high(self, which: Array | slice) -> tuple[Array, Array]:
        """Lower and upper corners (k, 3) of some cells, m."""
        low = self.corner[which]
        size = self.size[which][:, None]
        return tuple(self.axes[np.arange(3), place] for place in (low, low + size))  # type: ignore[return-value]

    def divided(self, which: Array) -> "Cells":
        """The octree with eight children more for each of some cells (k,), in their order."""
        child = self.child.copy()
        child[which] = len(child) + 8 * np.arange(len(which))
        half = (self.size[which] // 2)[:, None, None]
        corner = (self.corner[which][:, None] + half * SLOTS).reshape(-1, 3)
        level = np.repeat(self.level[which] + 1, 8)
        none = np.full(8 * len(which), -1)
        parent = np.concatenate([self.parent, np.repeat(which, 8)])
        columns = (self.level, level), (self.corner, corner), (child, none)
        level, corner, child = map(np.concatenate, columns)
        return Cells(level, corner, child, parent, self.axes)


def cells_of(triangle: Array) -> Cells:
    """The octree of a surface of triangles (f, 3, 3), m."""
    low, high = triangle.min(axis=(0, 1)), triangle.max(axis=(0, 1))
    middle = (low + high) / 2
    half = (high - low) / 2
    # the planes between finest cells halve the root again and again
    axes = np.zeros((3, FINEST + 1))
    axes[:, 0] = middle - ROOM * half
    axes[:, -1] = middle + ROOM * half
    step = FINEST
    while step > 1:
        axes[:, step // 2 :: step] = (axes[:, :-1:step] + axes[:, step::step]) / 2
        step //= 2
    cells = Cells(np.zeros(1, int), np.zeros((1, 3), int), np.full(1, -1), np.full(1, -1), axes)
    cell = np.zeros(len(triangle), int)
    face = np.arange(len(triangle))
    for _ in range(DEPTH):
        check_pairs(len(cell))
        parts = chunks(len(cell))
        meets = [boxes_meet_triangles(*cells.low_high(cell[part]), triangle[face[part]]) for part in parts]
        hit = np.concatenate(meets)
        cell, face = cell[hit], face[hit]
        if not len(cell):
            break
        cells = cells.divided(np.unique(cell))
        cell = (cells.child[cell][:, None] + np.arange(8)).ravel()
        face = np.repeat(face, 8)
    return _balanced(cells)


def check_pairs(count: int) -> None:
    """Raises AssetError where cells and triangles make more pairs than can be looked at."""
    if count > MOST_PAIRS:
        hint = "a distance field has no more detail than 64 cells along a side: use a coarser mesh"
        raise AssetError("the triangles of the mesh are too many for the cells of a distance field", hint)


def chunks(count: int) -> Iterator[slice]:
    """Slices of CHUNK rows, one after another, that make up `count` rows."""
    for start in range(0, max(count, 1), CHUNK):
        yield slice(start, start + CHUNK)


def _balanced(cells: Cells) -> Cells:
    """The octree with cells divided until neighbours differ by one level at most."""
    while True:
        leaves = cells.leaves
        beside = neighbours(cells, leaves)
        level = cells.level[leaves][:, None]
        other = cells.level[beside]
        coarse = (beside >= 0) & (other > level + 1), (beside >= 0) & (level > other + 1)
        large = np.stack([np.where(coarse[0], leaves[:, None], -1), np.where(coarse[1], beside, -1)], axis=2).ravel()
        large = large[large >= 0]
        if not len(large):
            return cells
        _, first = np.unique(large, return_index=True)
        cells = cells.divided(large[np.sort(first)])


def neighbours(cells: Cells, leaves: Array) -> Array:
    """The leaf beside each of some leaves (k,) at its lower and upper face along x, y, z: (k, 6), -1 for none.

    Where there are several, the one below the middle of the face.
    """
    # the leaf in which each finest cell is
    owner = np.full((FINEST,) * 3, -1)
    for level in np.unique(cells.level[cells.leaves]).tolist():
        cell = cells.leaves[cells.level[cells.leaves] == level]
        side = np.arange(FINEST >> level)
        x, y, z = (cells.corner[cell, axis][:, None] + side for axis in range(3))
        owner[x[:, :, None, None], y[:, None, :, None], z[:, None, None, :]] = cell[:, None, None, None]
    corner, size = cells.corner[leaves], cells.size[leaves]
    middle = corner + ((size - 1) // 2)[:, None]
    beside = np.full((len(leaves), 6), -1)
    for axis in range(3):
        for side, there in enumerate((corner[:, axis] - 1, corner[:, axis] + size)):
            place = middle.copy()
            place[:, axis] = there
            inside = (there >= 0) & (there < FINEST)
            beside[inside, 2 * axis + side] = owner[tuple(place[inside].T)]
    return beside


def boxes_meet_triangles(low: Array, high: Array, corner: Array) -> Array:
    """Whether boxes between corners (k, 3) and triangles (k, 3, 3) have something in common (k,).

    They do unless the sides of the box, the plane of the triangle or one of three projections part them.
    """
    result = ((corner.max(axis=1) >= low) & (corner.min(axis=1) <= high)).all(axis=1)
    near = np.flatnonzero(result)
    low, size, corner = low[near], (high - low)[near], corner[near]
    edge = np.roll(corner, -1, axis=1) - corner
    normal = cross_product(edge[:, 0], edge[:, 1])
    # corners of the box on both sides of the plane
    along = dot(normal, low)
    critical = np.where(normal > 0, size, 0.0)
    point = corner[:, 0]
    meets = (along + dot(normal, critical - point)) * (along + dot(normal, size - critical - point)) <= 0
    # seen along an axis, no edge of the triangle has the box outside
    for axis in range(3):
        b = (axis + 1) % 3
        c = (axis + 2) % 3
        sign = np.where(normal[:, axis] >= 0, 1.0, -1.0)
        for k in range(3):
            across = -edge[:, k, c] * sign
            along = edge[:, k, b] * sign
            start = -(across * corner[:, k, b] + along * corner[:, k, c])
            reach = start + np.maximum(0, size[:, b] * across) + np.maximum(0, size[:, c] * along)
            meets &= across * low[:, b] + along * low[:, c] + reach >= 0
    result[near] = meets
    return result


class Hanging(NamedTuple):
    """Corners (h,) that hang, with the corners (h, 4) of whose values they are the mean; -1 where there are two."""

    corner: Array
    among: Array


def places(number: Array) -> Array:
    """Places (..., 3) of corners (...,) in finest cells."""
    return np.stack(np.unravel_index(number, (GRID,) * 3), axis=-1)


def corners_of(cells: Cells, which: Array) -> Array:
    """Numbers (k, 8) of the corners of some cells (k,)."""
    return _numbers(cells.corner[which][:, None] + SLOTS * cells.size[which][:, None, None])


def hanging(cells: Cells) -> Hanging:
    """All corners that hang; what the first larger neighbour says counts."""
    leaves = cells.leaves
    beside = neighbours(cells, leaves)
    # a row for each leaf, side of it, and corner of this side
    row, side = np.nonzero((beside >= 0) & (cells.level[beside] < cells.level[leaves][:, None]))
    leaf = leaves[row]
    larger = beside[row, side]
    corner = corners_of(cells, leaf)[np.arange(len(leaf))[:, None], SIDE_CORNERS[side]].ravel()
    among = _ends(cells, np.repeat(larger, 4), corner)
    hangs = among[:, 0] >= 0
    number, first = np.unique(corner[hangs], return_index=True)
    return Hanging(number, among[hangs][first])


def completed(values: Array, hangs: Hanging) -> Array:
    """Values (GRID^3,) at all corners, with those of the hanging ones; coarse ones first, on which others depend."""
    values = values.copy()
    bits = np.bitwise_or.reduce(places(hangs.corner), axis=-1)
    for level in range(1, DEPTH + 1):
        now = bits & -bits == FINEST >> level
        among = hangs.among[now]
        total = values[among[:, 0]] + values[among[:, 1]]
        four = among[:, 2] >= 0
        total[four] += values[among[four, 2]]
        total[four] += values[among[four, 3]]
        values[hangs.corner[now]] = total / np.where(four, 4, 2)
    return values


def _ends(cells: Cells, larger: Array, corner: Array) -> Array:
    """(k, 4) corners of larger cells (k,) between which a corner (k,) lies; -1 for none, and where there are two."""
    place = places(corner)
    low = cells.corner[larger]
    size = cells.size[larger][:, None]
    lower = place == low
    upper = place == low + size
    free = ~(lower | upper)
    among = np.full((len(corner), 4), -1)
    on_edge, on_face = free.sum(axis=1) == 1, free.sum(axis=1) == 2
    # along the free axis of an edge, the two of a face: all combinations of lower and upper
    for end in (0, 1):
        bits = np.where(free, end, upper)
        among[on_edge, end] = _numbers(low + size * bits)[on_edge]
    fixed = np.argmin(free, axis=1)
    for end in range(4):
        bits = upper.astype(int)
        for step, bit in ((1, end & 1), (2, end >> 1)):
            bits[np.arange(len(bits)), (fixed + step) % 3] = bit
        among[on_face, end] = _numbers(low + size * bits)[on_face]
    return among


def _numbers(place: Array) -> Array:
    return (place[..., 0] * GRID + place[..., 1]) * GRID + place[..., 2]
