"""The octree of a mesh: cells are divided into eight where the surface passes through them.

The root is the bounding box of the mesh, enlarged by a factor of 1.1. A cell that meets a triangle has eight children,
down to a maximum depth. Then further cells are divided until cells with a common face differ by at most one level.
Positions are integers in units of the finest cell, so shared corners are found without comparing floats. Cells are
numbered in the order in which they are made. The three bits of a child's index, 0 to 7, say whether it is the upper
child along x (bit 1), y (bit 2) and z (bit 4).

Corners are numbered by their position in the grid of finest cells. A corner of a leaf is a hanging corner if it lies on
an edge or face of a larger neighbour without being a corner of it. There the field is the mean of its values at the two
ends of that edge or at the four corners of that face, which makes it continuous across faces.

Source: `mjCOctree` and `boxTriangle` of user_objects.cc (MuJoCo 3.8.1). Sums are in MuJoCo's order, because rounding
decides whether a triangle that only touches a box meets it. Schwarz and Seidel 2010, "Fast parallel surface and solid
voxelization on GPUs".
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
# factor by which the root is larger than the bounding box of the mesh, so that the surface stays inside (MuJoCo's)
ROOM = 1.1
# (8, 3) 0 or 1: whether each child of a cell is the upper one along x, y, z
SLOTS = np.array([[slot & 1, slot >> 1 & 1, slot >> 2] for slot in range(8)])
# (6, 4) the corners of each side of a cell: lower and upper along x, y, z
SIDE_CORNERS = np.array(
    [
        [(side << axis) + (i << (axis + 1) % 3) + (j << (axis + 2) % 3) for j in (0, 1) for i in (0, 1)]
        for axis in range(3)
        for side in (0, 1)
    ]
)
# pairs of a cell and a triangle that are tested at once: arrays of this length fit into the processor's cache
CHUNK = 1 << 17
# most such pairs on one level: more would take minutes and gigabytes
MOST_PAIRS = 1 << 26


class Cells(NamedTuple):
    """The n cells of an octree.

    Attributes:
      level: (n,) 0 for the root.
      corner: (n, 3) the lower corner, in finest cells.
      child: (n,) the first of eight children, -1 for a leaf.
      parent: (n,) -1 for the root.
      axes: (3, FINEST + 1) m, coordinates of the planes between finest cells.
    """

    level: Array
    corner: Array
    child: Array
    parent: Array
    axes: Array

    @property
    def size(self) -> Array:
        """(n,) the sides of the cells, in finest cells."""
        return FINEST >> self.level

    @property
    def leaves(self) -> Array:
        """The cells without children."""
        return np.flatnonzero(self.child < 0)

    def low_high(self, which: Array | slice) -> tuple[Array, Array]:
        """(k, 3) m: the lower and upper corners of some cells."""
        low = self.corner[which]
        size = self.size[which][:, None]
        return tuple(self.axes[np.arange(3), place] for place in (low, low + size))  # type: ignore[return-value]

    def divided(self, which: Array) -> "Cells":
        """The octree in which some leaves (k,), in this order, have eight children each."""
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
    """The octree of a surface of triangles (f, 3, 3) m."""
    low, high = triangle.min(axis=(0, 1)), triangle.max(axis=(0, 1))
    middle = (low + high) / 2
    half = (high - low) / 2
    # repeated halving, as MuJoCo computes the planes, so that rounding agrees
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
    """Raises AssetError if there are too many pairs of a cell and a triangle to test."""
    if count > MOST_PAIRS:
        hint = "use a coarser mesh: the field of a mesh has at most 64 cells along a side"
        raise AssetError("the mesh has too many triangles for a distance field", hint)


def chunks(count: int) -> Iterator[slice]:
    """Consecutive slices of CHUNK rows that cover `count` rows."""
    for start in range(0, max(count, 1), CHUNK):
        yield slice(start, start + CHUNK)


def _balanced(cells: Cells) -> Cells:
    """The octree whose leaves have been divided until neighbours differ by at most one level."""
    while True:
        leaves = cells.leaves
        beside = neighbours(cells, leaves)
        level = cells.level[leaves][:, None]
        other = cells.level[beside]
        # leaves that are more than one level coarser than a neighbour, or whose neighbour is that much coarser
        leaf_too_large = (beside >= 0) & (other > level + 1)
        neighbour_too_large = (beside >= 0) & (level > other + 1)
        large = np.stack(
            [np.where(leaf_too_large, leaves[:, None], -1), np.where(neighbour_too_large, beside, -1)], axis=2
        )
        large = large[large >= 0]
        if not len(large):
            return cells
        # each once, in the order in which they were found
        _, first = np.unique(large, return_index=True)
        cells = cells.divided(large[np.sort(first)])


def neighbours(cells: Cells, leaves: Array) -> Array:
    """(k, 6) the neighbours of some leaves (k,) across their lower and upper face along x, y and z; -1 at the border.

    If several leaves touch a face, the neighbour is the one just below the middle of the face.
    """
    # the leaf that contains each finest cell
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
    """(k,) bool: whether boxes with corners `low` and `high` (k, 3) intersect triangles (k, 3, 3).

    They do unless they are separated along an axis of the box, by the plane of the triangle, or, in the projection
    along one of the three axes, by an edge of the triangle.
    """
    result = ((corner.max(axis=1) >= low) & (corner.min(axis=1) <= high)).all(axis=1)
    near = np.flatnonzero(result)
    low, size, corner = low[near], (high - low)[near], corner[near]
    edge = np.roll(corner, -1, axis=1) - corner
    normal = cross_product(edge[:, 0], edge[:, 1])
    # the plane of the triangle passes between the two corners of the box that are extreme along the normal
    along = dot(normal, low)
    critical = np.where(normal > 0, size, 0.0)
    point = corner[:, 0]
    meets = (along + dot(normal, critical - point)) * (along + dot(normal, size - critical - point)) <= 0
    # In the projection along each axis, the box must not be entirely outside any edge of the triangle. `across` and
    # `along` are the inward normal of the edge, and `reach` is its distance plus the support of the box along it.
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
    """Hanging corners (h,), and the corners (h, 4) whose mean is their value: four, or two followed by -1, -1."""

    corner: Array
    among: Array


def places(number: Array) -> Array:
    """(..., 3) positions of corners (...,), in finest cells."""
    return np.stack(np.unravel_index(number, (GRID,) * 3), axis=-1)


def corners_of(cells: Cells, which: Array) -> Array:
    """(k, 8) the corners of some cells (k,)."""
    return _numbers(cells.corner[which][:, None] + SLOTS * cells.size[which][:, None, None])


def hanging(cells: Cells) -> Hanging:
    """All hanging corners; a corner with several larger neighbours hangs on the first of them."""
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
    """(GRID^3,) the values at all corners. Those at hanging corners are filled in, coarse levels first."""
    values = values.copy()
    # The lowest set bit of its coordinates tells on which level a corner first exists. Its value only depends on
    # corners of coarser levels.
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
    """(k, 4) the corners of larger cells (k,) between which corners (k,) lie: the ends of an edge or corners of a face.

    A row is filled with -1: after two entries for an edge, and entirely if the corner is one of the cell's own corners.
    """
    place = places(corner)
    low = cells.corner[larger]
    size = cells.size[larger][:, None]
    lower = place == low
    upper = place == low + size
    free = ~(lower | upper)
    among = np.full((len(corner), 4), -1)
    on_edge, on_face = free.sum(axis=1) == 1, free.sum(axis=1) == 2
    # the ends of an edge differ along its one free axis, the corners of a face along its two free axes
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
    """(...,) the numbers of corners at positions (..., 3), in finest cells; the inverse of `places`."""
    return (place[..., 0] * GRID + place[..., 1]) * GRID + place[..., 2]
