"""Points and simplices of flexcomps that are made from counts: lines, sheets and blocks of a grid, and boxes.

A grid counts its points with the last axis fastest; a square is cut into two triangles, a cube into six tetrahedra. A
box has points on its six sides only, bottom and top first, then the sides across y, then those across x; a solid one
has a point in the middle, from which every triangle of a side becomes a tetrahedron. Cylinders, ellipsoids and discs
are boxes and squares whose points are moved along rays from the middle.
Source: MuJoCo "XML reference", flexcomp; mjCFlexcomp::MakeGrid, MakeSquare and MakeBox (3.8.1).
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
        return _circle(count[0], spacing[0]) if kind == "circle" else _line(count[0], spacing[0])
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


def _line(count: int, spacing: float) -> Shape:
    point = np.zeros((count, 3))
    point[:, 0] = spacing * (np.arange(count) - 0.5 * (count - 1))
    index = np.arange(count - 1)
    return Shape(point, np.stack([index, index + 1], axis=1), np.zeros((0, 2), np.float32))


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
    largest, length = np.abs(point).max(axis=1), np.linalg.norm(point, axis=1)
    return point * (largest / np.where(length > 0, length, 1.0))[:, None] * size


def box(kind: str, dim: int, count: Array, spacing: Array) -> Shape:
    """A box, cylinder or ellipsoid: its surface without the lid (`dim` 2), or filled from its middle (`dim` 3)."""
    if (count < 2).any():
        raise AssetError("count too small: each axis needs at least two points")
    if dim == 1:
        raise AssetError(f"a {kind} has dim 2 or 3")
    middle = int(dim == 3)
    number, places, texcoords, elements = np.full(count, -1), [], [np.zeros((middle, 2))], []
    last, total = count - 1, middle
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
    point, size = 2.0 * place / (count - 1) - 1, 0.5 * spacing * (count - 1)
    if kind == "cylinder":
        point = np.concatenate([_round(point[:, :2], size[:2]), point[:, 2:] * size[2]], axis=1)
    elif kind == "ellipsoid":
        point = point / np.linalg.norm(point, axis=1, keepdims=True) * size
    else:
        point = point * size
    return point
