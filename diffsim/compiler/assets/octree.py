"""Octree of a mesh: cells that are halved along all three sides where the surface runs through them.

The root is the mesh's bounding box, 1.1 times as large. A cell that meets a triangle has eight children, down to a
depth; then others are divided until cells with a common face differ by one level at most. Places are whole numbers of
the finest cells, so that the corners that cells share are known without comparing coordinates. Cells are numbered as
they are made, eight children in a row, the one that is further along x, y, z at place 1, 2, 4.
Source: `mjCOctree` of user_objects.cc (MuJoCo 3.8.1).
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from diffsim.compiler.assets.box_triangle import boxes_meet_triangles
from diffsim.mjcf.files.limits import AssetError

Array = np.ndarray

# levels below the root
DEPTH = 6
FINEST = 1 << DEPTH
ROOM = 1.1
# which children lie further along x, y, z
SLOTS = np.array([[slot & 1, slot >> 1 & 1, slot >> 2] for slot in range(8)])
# pairs of cells and triangles that are looked at together, and at most on one level
CHUNK, MOST_PAIRS = 1 << 17, 1 << 26


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
        low, size = self.corner[which], self.size[which][:, None]
        return tuple(self.axes[np.arange(3), place] for place in (low, low + size))  # type: ignore[return-value]

    def divided(self, which: Array) -> "Cells":
        """With children of some cells (k,) more, in their order."""
        child = self.child.copy()
        child[which] = len(child) + 8 * np.arange(len(which))
        half = (self.size[which] // 2)[:, None, None]
        corner = (self.corner[which][:, None] + half * SLOTS).reshape(-1, 3)
        level, none = np.repeat(self.level[which] + 1, 8), np.full(8 * len(which), -1)
        parent = np.concatenate([self.parent, np.repeat(which, 8)])
        columns = (self.level, level), (self.corner, corner), (child, none)
        level, corner, child = map(np.concatenate, columns)
        return Cells(level, corner, child, parent, self.axes)


def cells_of(triangle: Array) -> Cells:
    """The octree of a surface of triangles (f, 3, 3), m."""
    low, high = triangle.min(axis=(0, 1)), triangle.max(axis=(0, 1))
    middle, half = (low + high) / 2, (high - low) / 2
    cells = _root(middle - ROOM * half, middle + ROOM * half)
    cell, face = np.zeros(len(triangle), int), np.arange(len(triangle))
    for _ in range(DEPTH):
        hit = _meeting(cells, triangle, cell, face)
        cell, face = cell[hit], face[hit]
        if not len(cell):
            break
        cells = cells.divided(np.unique(cell))
        cell, face = (cells.child[cell][:, None] + np.arange(8)).ravel(), np.repeat(face, 8)
    return _balanced(cells)


def _root(low: Array, high: Array) -> Cells:
    """One cell, and the planes that halve it again and again."""
    axes = np.zeros((3, FINEST + 1))
    axes[:, 0], axes[:, -1] = low, high
    step = FINEST
    while step > 1:
        axes[:, step // 2 :: step] = (axes[:, :-1:step] + axes[:, step::step]) / 2
        step //= 2
    return Cells(np.zeros(1, int), np.zeros((1, 3), int), np.full(1, -1), np.full(1, -1), axes)


def _meeting(cells: Cells, triangle: Array, cell: Array, face: Array) -> Array:
    """Which pairs of cells and triangles (k,) meet."""
    check_pairs(len(cell))
    hit = [boxes_meet_triangles(*cells.low_high(cell[part]), triangle[face[part]]) for part in chunks(len(cell))]
    return np.concatenate(hit)


def check_pairs(count: int) -> None:
    """Raises AssetError where cells and triangles make more pairs than can be looked at."""
    if count > MOST_PAIRS:
        hint = "a distance field has no more detail than 64 cells along a side: use a coarser mesh"
        raise AssetError("the triangles of the mesh are too many for the cells of a distance field", hint)


def chunks(count: int) -> Iterator[slice]:
    """Parts of a number of rows."""
    for start in range(0, max(count, 1), CHUNK):
        yield slice(start, start + CHUNK)


def _balanced(cells: Cells) -> Cells:
    """With more cells, until neighbours differ by one level at most."""
    while True:
        leaves = cells.leaves
        beside = neighbours(cells, leaves)
        own, other = cells.level[leaves][:, None], cells.level[beside]
        coarse = (beside >= 0) & (other > own + 1), (beside >= 0) & (own > other + 1)
        found = np.stack([np.where(coarse[0], leaves[:, None], -1), np.where(coarse[1], beside, -1)], axis=2).ravel()
        found = found[found >= 0]
        if not len(found):
            return cells
        _, first = np.unique(found, return_index=True)
        cells = cells.divided(found[np.sort(first)])


def neighbours(cells: Cells, leaves: Array) -> Array:
    """The leaf beside each of some leaves (k,) at its lower and upper face along x, y, z: (k, 6), -1 for none.

    Where there are several, the one below the middle of the face.
    """
    owner, corner, size = _owners(cells), cells.corner[leaves], cells.size[leaves]
    middle = corner + ((size - 1) // 2)[:, None]
    found = np.full((len(leaves), 6), -1)
    for axis in range(3):
        for side, there in enumerate((corner[:, axis] - 1, corner[:, axis] + size)):
            place = middle.copy()
            place[:, axis] = there
            inside = (there >= 0) & (there < FINEST)
            found[inside, 2 * axis + side] = owner[tuple(place[inside].T)]
    return found


def _owners(cells: Cells) -> Array:
    """The leaf in which each finest cell is (FINEST, FINEST, FINEST)."""
    owner = np.full((FINEST,) * 3, -1)
    leaves = cells.leaves
    for level in np.unique(cells.level[leaves]).tolist():
        own, side = leaves[cells.level[leaves] == level], np.arange(FINEST >> level)
        x, y, z = (cells.corner[own, axis][:, None] + side for axis in range(3))
        owner[x[:, :, None, None], y[:, None, :, None], z[:, None, None, :]] = own[:, None, None, None]
    return owner
