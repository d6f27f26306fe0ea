"""Points and simplices of flexcomps made from counts: lines, sheets, blocks and boxes; cells and nodes of grids.

Points of a grid are numbered with the last axis fastest; a square is cut into two triangles, a cube into six
tetrahedra. A box has points on its six sides only: bottom and top first, then the sides across y, then the sides across
x. A solid box also has a point in the middle, which forms a tetrahedron with each triangle of a side. Cylinders,
ellipsoids and discs are boxes and squares whose points are moved along rays from the middle.

An interpolated flex moves with a grid of (cx, cy, cz) cells. Each edge of a cell has order + 1 nodes, which
neighbouring cells share. Cells and nodes are numbered with the last axis fastest. Empty cells, which contain no part of
the mesh, have no stiffness; cells that a surface encloses are not empty.
Source: MuJoCo "XML reference", flexcomp; mjCFlexcomp::MakeGrid, MakeSquare, MakeBox and MarkEmptyCells,
mjCFlex::ComputeCellEmpty (3.8.1).
"""

from typing import NamedTuple

import numpy as np

from diffsim.mjcf.resources import AssetError

Array = np.ndarray

# corners of a square, numbered around it
SQUARE = np.array([[0, 0], [1, 0], [1, 1], [0, 1]])
# the two triangles of a square, as its corners
TRIANGLES = np.array([[0, 1, 2], [0, 2, 3]])
# the two triangles of a square that is cut along the other diagonal
OTHER_DIAGONAL = np.array([[0, 1, 3], [1, 2, 3]])
# corners of a cube, numbered around the bottom, then around the top
CUBE = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 0, 1], [1, 0, 1], [1, 1, 1], [0, 1, 1]])
# the six tetrahedra of a cube, as its corners
TETRAHEDRA = np.array([[0, 3, 1, 7], [0, 1, 4, 7], [1, 3, 2, 7], [1, 2, 6, 7], [1, 5, 4, 7], [1, 6, 5, 7]])

# the two triangles of a square on an upright side of a box, as its corners, by whether the normal of the square (with
# corners in the order of SQUARE) points out of the box
OUTWARD = {
    True: np.array([[0, 1, 2], [0, 2, 3]]),
    False: np.array([[1, 0, 3], [1, 3, 2]]),
}
# the two triangles of a square on the bottom of a box without interior points
BOTTOM = np.array([[0, 2, 1], [0, 3, 2]])
# the two triangles of a square on any side of a solid box; the compiler orients the tetrahedra that they form
FROM_MIDDLE = np.array([[0, 1, 2], [0, 3, 2]])

# coordinates of a smaller size, m, count as zero (mjEPS)
TINY = 1e-14


class Shape(NamedTuple):
    """Points (n, 3) m, simplices (m, dim + 1), and texture coordinates of the points (n, 2), or (0, 2)."""

    point: Array
    element: Array
    texcoord: Array


def grid(kind: str, dim: int, count: Array, spacing: Array) -> Shape:
    """A grid, circle, square or disc of dimension `dim`, around the origin."""
    if any(count[axis] > 1 for axis in range(dim, 3)) and dim == 2:
        raise AssetError(f"a flexcomp of dim 2 is one point thick, not {count[2]}", "let attribute 'count' end with 1")
    if (count[:dim] < 2).any():
        raise AssetError("attribute 'count': each axis needs at least two points")
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
    simplices = TRIANGLES if dim == 2 else TETRAHEDRA
    cut = np.broadcast_to(simplices, (len(corner), *simplices.shape))
    # the squares of a disc are cut along the diagonals that run around it
    if kind == "disc":
        x, y = point[corner[:, 0], :2].T
        across = ((x < -TINY) & (y > -TINY)) | ((x > -TINY) & (y < -TINY))
        cut = np.where(across[:, None, None], OTHER_DIAGONAL, cut)
        point[:, :2] = _round(point[:, :2], 0.5 * spacing[:2] * (count[:2] - 1))
    element = np.take_along_axis(corner, cut.reshape(len(corner), -1), axis=1).reshape(-1, dim + 1)
    return Shape(point, element, (place[:, :2] / (used[:2] - 1)).astype(np.float32))


def _circle(count: int, spacing: float) -> Shape:
    """`count` points on a circle around the origin, the last at the place of the first."""
    if count < 3:
        raise AssetError("attribute 'count': a circle needs at least three points")
    turn = 2 * np.pi / (count - 1)
    index = np.arange(count - 1)
    radius = spacing / np.sin(turn / 2) / 2
    point = np.stack([radius * np.cos(turn * index), radius * np.sin(turn * index), 0.0 * index], axis=1)
    return Shape(point, np.stack([index, (index + 1) % (count - 1)], axis=1), np.zeros((0, 2), np.float32))


def _round(point: Array, size: Array) -> Array:
    """Points (n, 2) of concentric squares around the origin, moved along rays to concentric ellipses."""
    largest = np.abs(point).max(axis=1)
    length = np.linalg.norm(point, axis=1)
    return point * (largest / np.where(length > 0, length, 1.0))[:, None] * size


def box(kind: str, dim: int, count: Array, spacing: Array) -> Shape:
    """A box, cylinder or ellipsoid: its surface without the top (`dim` 2), or solid (`dim` 3)."""
    if (count < 2).any():
        raise AssetError("attribute 'count': each axis needs at least two points")
    if dim == 1:
        raise AssetError(f"attribute 'dim': a {kind} needs dim 2 or 3")
    # Points: side by side, those that no side before has numbered. `number` has the number of each point of the grid;
    # in a solid, 0 is the point in the middle.
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
    # triangles: two for each square of each side
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
    """Points of a grid around the origin, moved to the surface of the shape."""
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
    """(cx, cy, cz) bool: cells that contain no part of the mesh and are not enclosed by it.

    As in MuJoCo, an element fills all cells that its bounding box meets.

    Args:
      point: (n, 3) vertices.
      element: (m, dim + 1) vertices of each element.
      count: (3,) cells along each axis.
      box: (2, 3) lower and upper corner of the grid.
    """
    lower = box[0]
    extent = box[1] - box[0]
    scale = np.where(extent > 0, extent, 1.0)

    def cell(place: Array) -> Array:
        """The cells that contain points (n, 3); 0 along an axis in which the grid is flat."""
        return np.clip(((place - lower) / scale * count).astype(int), 0, count - 1) * (extent > 0)

    corners = point[element]
    first, last = cell(corners.min(axis=1)), cell(corners.max(axis=1))
    filled = np.zeros(count, bool)
    for (x0, y0, z0), (x1, y1, z1) in zip(first, last, strict=True):
        filled[x0 : x1 + 1, y0 : y1 + 1, z0 : z1 + 1] = True
    return _outside(filled) if element.shape[1] == 3 else ~filled


def _outside(filled: Array) -> Array:
    """Cells that can be reached from the border of the grid without passing through a filled cell."""
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
    """(nnode,) bool: nodes whose cells are all empty."""
    touched = np.zeros(np.array(empty.shape) * order + 1, bool)
    for x, y, z in np.argwhere(~empty) * order:
        touched[x : x + order + 1, y : y + order + 1, z : z + order + 1] = True
    return ~touched.ravel()


def node_places(count: Array, order: int) -> Array:
    """(nnode, 3) indices of the nodes along the axes."""
    return np.stack(np.meshgrid(*(np.arange(number * order + 1) for number in count), indexing="ij"), -1).reshape(-1, 3)


def node_weights(count: Array, order: int) -> Array:
    """(nnode,) weights of the mass, not normalized: equal for order 1, Simpson's rule for order 2."""
    if order == 1:
        return np.ones(int(np.prod(count + 1)))
    place = node_places(count, order)
    last = count * order
    inner = (place > 0) & (place < last) & (place % order == 0)
    return (np.where(place % order == 0, 1 / 6, 2 / 3) * np.where(inner, 2, 1)).prod(axis=1)
