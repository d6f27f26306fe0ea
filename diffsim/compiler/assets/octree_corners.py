"""Corners of an octree's cells: which there are, and which hang, so that a field is continuous across their faces.

A corner of a leaf hangs where it is no corner of a larger neighbour: there the field is the mean of its values at the
ends of the neighbour's edge, or at the four corners of its face. Corners are numbered by their place in the grid of
finest cells. Source: `mjCOctree::MarkHangingNodes` of user_objects.cc (MuJoCo 3.8.1).
"""

from typing import NamedTuple

import numpy as np

from diffsim.compiler.assets.octree import DEPTH, FINEST, SLOTS, Cells, neighbours

Array = np.ndarray

GRID = FINEST + 1


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
    leaf, larger = leaves[row], beside[row, side]
    corner = corners_of(cells, leaf)[np.arange(len(leaf))[:, None], _SIDES[side]].ravel()
    among = _ends(cells, np.repeat(larger, 4), corner)
    hangs = among[:, 0] >= 0
    number, first = np.unique(corner[hangs], return_index=True)
    return Hanging(number, among[hangs][first])


def completed(values: Array, hangs: Hanging) -> Array:
    """Values (GRID^3,) at all corners, with those of the hanging ones; coarse ones first, on which others depend."""
    values, bits = values.copy(), np.bitwise_or.reduce(places(hangs.corner), axis=-1)
    for level in range(1, DEPTH + 1):
        own = bits & -bits == FINEST >> level
        among = hangs.among[own]
        total = values[among[:, 0]] + values[among[:, 1]]
        four = among[:, 2] >= 0
        total[four] += values[among[four, 2]]
        total[four] += values[among[four, 3]]
        values[hangs.corner[own]] = total / np.where(four, 4, 2)
    return values


def _sides() -> Array:
    """(6, 4) the corners of each side of a cell: lower and upper along x, y, z."""
    table = []
    for axis in range(3):
        one, other = 1 << (axis + 1) % 3, 1 << (axis + 2) % 3
        table += [[(side << axis) + i * one + j * other for j in (0, 1) for i in (0, 1)] for side in (0, 1)]
    return np.array(table)


_SIDES = _sides()


def _ends(cells: Cells, larger: Array, corner: Array) -> Array:
    """(k, 4) corners of larger cells (k,) between which a corner (k,) lies; -1 for none, and where there are two."""
    place = places(corner)
    low, size = cells.corner[larger], cells.size[larger][:, None]
    lower, upper = place == low, place == low + size
    free, among = ~(lower | upper), np.full((len(corner), 4), -1)
    on_edge, on_face = free.sum(axis=1) == 1, free.sum(axis=1) == 2
    # along the free axis of an edge, the two of a face: all combinations of lower and upper
    for end in (0, 1):
        bits = np.where(free, end, upper)
        among[on_edge, end] = _numbers(low + size * bits)[on_edge]
    held = np.argmin(free, axis=1)
    for end in range(4):
        bits = upper.astype(int)
        for step, bit in ((1, end & 1), (2, end >> 1)):
            bits[np.arange(len(bits)), (held + step) % 3] = bit
        among[on_face, end] = _numbers(low + size * bits)[on_face]
    return among


def _numbers(place: Array) -> Array:
    return (place[..., 0] * GRID + place[..., 1]) * GRID + place[..., 2]
