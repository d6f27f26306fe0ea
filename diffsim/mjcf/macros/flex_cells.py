"""The grid of cells that carries an interpolated flex: which cells hold part of its mesh, and their nodes.

A grid of (cx, cy, cz) cells has order + 1 nodes along each edge of a cell, shared with its neighbours; cells and nodes
are counted with the last axis fastest. Cells without part of the mesh have no stiffness. Of a surface those that it
encloses count as filled.
Source: mjCFlex::ComputeCellEmpty, mjCFlexcomp::MarkEmptyCells (MuJoCo 3.8.1).
"""

import numpy as np

Array = np.ndarray


def empty_cells(point: Array, element: Array, count: Array, box: Array) -> Array:
    """(cx, cy, cz) whether a cell is empty.

    Args:
      point: vertices (n, 3). element: (m, dim + 1) of them. count: cells along each axis.
      box: lower and upper corner of the grid (2, 3).
    """
    lower, extent = box[0], box[1] - box[0]
    scale = np.where(extent > 0, extent, 1.0)

    def cell(place: Array) -> Array:
        return np.clip(((place - lower) / scale * count).astype(int), 0, count - 1) * (extent > 0)

    corners = point[element]
    first, last = cell(corners.min(axis=1)), cell(corners.max(axis=1))
    filled = np.zeros(count, bool)
    for (x0, y0, z0), (x1, y1, z1) in zip(first, last, strict=True):
        filled[x0 : x1 + 1, y0 : y1 + 1, z0 : z1 + 1] = True
    return _outside(filled) if element.shape[1] == 3 else ~filled


def _outside(filled: Array) -> Array:
    """Cells that are reached from the border of the grid without passing through a filled one."""
    border = np.ones_like(filled)
    border[1:-1, 1:-1, 1:-1] = False
    outside = border & ~filled
    for _ in range(filled.size):
        padded = np.pad(outside, 1)
        near = outside.copy()
        for axis in range(3):
            for shift in (-1, 1):
                near |= np.roll(padded, shift, axis)[1:-1, 1:-1, 1:-1]
        near &= ~filled
        if (near == outside).all():
            break
        outside = near
    return outside


def nodes_of_empty_cells(empty: Array, order: int) -> Array:
    """(nnode,) whether all cells around a node are empty."""
    touched = np.zeros(np.array(empty.shape) * order + 1, bool)
    for x, y, z in np.argwhere(~empty) * order:
        touched[x : x + order + 1, y : y + order + 1, z : z + order + 1] = True
    return ~touched.ravel()


def node_places(count: Array, order: int) -> Array:
    """(nnode, 3) places of the nodes along the axes, integers."""
    return np.stack(np.meshgrid(*(np.arange(number * order + 1) for number in count), indexing="ij"), -1).reshape(-1, 3)


def node_weights(count: Array, order: int) -> Array:
    """(nnode,) shares of the mass, not normalized: equal ones, or those of Simpson's rule."""
    if order == 1:
        return np.ones(int(np.prod(count + 1)))
    place, last = node_places(count, order), count * order
    inner = (place > 0) & (place < last) & (place % order == 0)
    return (np.where(place % order == 0, 1 / 6, 2 / 3) * np.where(inner, 2, 1)).prod(axis=1)
