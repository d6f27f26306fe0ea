"""Points and simplices of flexcomps that are made from counts: lines, sheets and blocks of a grid, boxes; and cells.

A grid counts its points with the last axis fastest; a square is cut into two triangles, a cube into six tetrahedra. A
box has points on its six sides only, bottom and top first, then the sides across y, then those across x; a solid one
has a point in the middle, from which every triangle of a side becomes a tetrahedron. Cylinders, ellipsoids and discs
are boxes and squares whose points are moved along rays from the middle.

An interpolated flex is carried by a grid of (cx, cy, cz) cells, with order + 1 nodes along each edge of a cell, shared
with its neighbours; cells and nodes are counted with the last axis fastest. Cells without part of the mesh have no
stiffness. Of a surface those that it encloses count as filled.
Source: MuJoCo "XML reference", flexcomp; mjCFlexcomp::MakeGrid, MakeSquare, MakeBox and MarkEmptyCells,
mjCFlex::ComputeCellEmpty (3.8.1).
"""

from typing import NamedTuple

import numpy as np

from diffsim.mjcf.resources import AssetError

Array = np.ndarray

# corners of a square are numbered around it, of a cube around the bottom and then around the top
SQUARE = np.array([[0, 0], [1, 0], [1, 1], [0, 1]])
TRIANGLES = np.array([[0, 1, 2], [0, 2, 3]])
OTHER_DIAGONAL = np.array([[0, 1, 3], [1, 2, 3]])
CUBE = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 0, 1], [1, 0, 1], [1, 1, 1], [0, 1, 1]])
TETRAHEDRA = np.array([[0, 3, 1, 7], [0, 1, 4, 7], [1, 3, 2, 7], [1, 2, 6, 7], [1, 5, 4, 7], [1, 6, 5, 7]])

# corners of the triangles of a square on a side of a box: seen from outside, and of solids
OUTWARD = {True: np.array([[0, 1, 2], [0, 2, 3]]), False: np.array([[1, 0, 3], [1, 3, 2]])}
BOTTOM = np.array([[0, 2, 1], [0, 3, 2]])
FROM_MIDDLE = np.array([[0, 1, 2], [0, 3, 2]])

# a coordinate that is this far below zero is negative
TINY = 1e-14


class Shape(NamedTuple):
    """Points (n, 3), m, simplices (m, dim + 1), and where points are on a texture (n, 2), or (0, 2)."""

    point: Array
    element: Array
    texcoord: Array


def grid(kind: str, dim: int, count: Array, spacing: Array) -> Shape:
    """A grid, circle, square or disc of dimension `dim`, around the origin."""
    if any(count[axis] > 1 for axis in range(dim, 3)) and dim == 2:
        raise AssetError(f"a sheet is one point thick, not {count[2]}", "give attribute 'count' with 1 at its end")
    if (count[:dim] < 2).any():
        raise AssetError("no elements were created: each axis needs at least two points")
    if dim == 1:
        if kind == "circle":
            return _circle(count[0], spacing[0])
        point = np.zeros((count[0], 3))
        index = np.arange(count[0] - 1)
        point[:, 0] = spacing[0] * (np.arange(count[0]) - 0.5 * (count[0] - 1))
        return Shape(point, np.stack([index, index + 1], axis=1), np.zeros((0, 2), np.float32))
    used = count[:dim]
    place: Array = np.stack(np.meshgrid(*map(np.arange, used), indexing="ij"), axis=-1).reshape(-1, dim)
    point = np.zeros((len(place), 3))
    point[:, :dim] = spacing[:dim] * (place - 0.5 * (used - 1))
    first = place[(place < used - 1).all(axis=1)]
    around = np.moveaxis(first[:, None] + (SQUARE if dim == 2 else CUBE), -1, 0)
    corner = np.asarray(np.ravel_multi_index(tuple(around), tuple(used)))
    cut = np.broadcast_to(TRIANGLES if dim == 2 else TETRAHEDRA, (len(corner), *(2 * dim * (dim - 1) // 2, dim + 1)))
    if kind == "disc":
        x, y = point[corner[:, 0], :2].T
        across = ((x < -TINY) & (y > -TINY)) | ((x > -TINY) & (y < -TINY))
        cut = np.where(across[:, None, None], OTHER_DIAGONAL, cut)
        point[:, :2] = _round(point[:, :2], 0.5 * spacing[:2] * (count[:2] - 1))
    element = np.take_along_axis(corner, cut.reshape(len(corner), -1), axis=1).reshape(-1, dim + 1)
    return Shape(point, element, (place[:, :2] / (used[:2] - 1)).astype(np.float32))


def _circle(count: int, spacing: float) -> Shape:
    """`count` points around the origin, of which the last is the first again."""
    if count < 3:
        raise AssetError("a circle needs at least three points")
    turn = 2 * np.pi / (count - 1)
    index = np.arange(count - 1)
    radius = spacing / np.sin(turn / 2) / 2
    point = np.stack([radius * np.cos(turn * index), radius * np.sin(turn * index), 0.0 * index], axis=1)
    return Shape(point, np.stack([index, (index + 1) % (count - 1)], axis=1), np.zeros((0, 2), np.float32))


def _round(point: Array, size: Array) -> Array:
    """Points (n, 2) of squares around the origin, moved to the ellipses that these become."""
    largest = np.abs(point).max(axis=1)
    length = np.linalg.norm(point, axis=1)
    return point * (largest / np.where(length > 0, length, 1.0))[:, None] * size


def box(kind: str, dim: int, count: Array, spacing: Array) -> Shape:
    """A box, cylinder or ellipsoid: its surface without the lid (`dim` 2), or filled from its middle (`dim` 3)."""
    if (count < 2).any():
        raise AssetError("count too small: each axis needs at least two points")
    if dim == 1:
        raise AssetError(f"a {kind} has dim 2 or 3")
    middle = int(dim == 3)
    number = np.full(count, -1)
    places = []
    texcoords = [np.zeros((middle, 2))]
    elements = []
    last = count - 1
    total = middle
    for axis in (2, 1, 0):
        u, v = (other for other in range(3) if other != axis)
        for side in (0,) if axis == 2 and dim == 2 else (0, last[axis]):
            place = np.zeros((count[u], count[v], 3), int)
            place[..., u], place[..., v], place[..., axis] = *np.indices((count[u], count[v])), side
            new = place[number[tuple(np.moveaxis(place, -1, 0))] < 0]
            number[tuple(new.T)] = total + np.arange(len(new))
            total += len(new)
            places.append(new)
            texcoords.append(new[:, [u, v]] / last[[u, v]])
    for axis in (2, 1, 0):
        u, v = (other for other in range(3) if other != axis)
        for side in (0,) if axis == 2 and dim == 2 else (0, last[axis]):
            first = np.zeros((count[u] - 1, count[v] - 1, 1, 3), int)
            first[..., 0, u], first[..., 0, v] = np.indices((count[u] - 1, count[v] - 1))
            first[..., axis] = side
            around = np.zeros((4, 3), int)
            around[:, [u, v]] = SQUARE
            corner = number[tuple(np.moveaxis(first + around, -1, 0))].reshape(-1, 4)
            cut = FROM_MIDDLE if dim == 3 else BOTTOM if axis == 2 and not side else OUTWARD[(axis == 1) != bool(side)]
            elements.append(corner[:, cut].reshape(-1, 3))
    point = _projected(kind, np.concatenate(places), count, spacing)
    element = np.concatenate(elements)
    if dim == 3:
        point = np.concatenate([np.zeros((1, 3)), point])
        element = np.concatenate([np.zeros((len(element), 1), int), element], axis=1)
    return Shape(point, element, np.concatenate(texcoords).astype(np.float32))


def _projected(kind: str, place: Array, count: Array, spacing: Array) -> Array:
    """Points of a grid around the origin, moved to the surface of a shape."""
    point = 2.0 * place / (count - 1) - 1
    size = 0.5 * spacing * (count - 1)
    if kind == "cylinder":
        point = np.concatenate([_round(point[:, :2], size[:2]), point[:, 2:] * size[2]], axis=1)
    elif kind == "ellipsoid":
        point = point / np.linalg.norm(point, axis=1, keepdims=True) * size
    else:
        point = point * size
    return point


def empty_cells(point: Array, element: Array, count: Array, box: Array) -> Array:
    """(cx, cy, cz) whether a cell is empty.

    Args:
      point: vertices (n, 3). element: (m, dim + 1) of them. count: cells along each axis.
      box: lower and upper corner of the grid (2, 3).
    """
    lower = box[0]
    extent = box[1] - box[0]
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
    place = node_places(count, order)
    last = count * order
    inner = (place > 0) & (place < last) & (place % order == 0)
    return (np.where(place % order == 0, 1 / 6, 2 / 3) * np.where(inner, 2, 1)).prod(axis=1)
