"""Stiffness of interpolated flexes: one matrix for each cell of a grid or, for shells, for each of its outer faces.

The nodes of a cell have shape functions phi_i, which are products of polynomials of order 1 or 2 along its axes. The
stiffness couples component k of node i with component l of node j:

    K(ik, jl) = -integral of lambda d_k phi_i d_l phi_j
                           + mu / 2 (delta_kl sum_c d_c phi_i d_c phi_j + d_l phi_i d_k phi_j)

over the cell. As in MuJoCo, the energy contains mu where the textbook has 2 mu, and K is minus the matrix of the
energy. The integrals over the unit cell are constants, computed at Gauss points. For order 1 they are exact. For order
2 MuJoCo 3.8.1 uses sqrt(5/3) instead of sqrt(3/5), which puts two of the three points along each axis outside the cell
and makes the cell several times stiffer; diffsim does the same. A face of a shell is the same in two dimensions, with
the constants of plane stress, times its thickness.
Source: ComputeLinearStiffness, ComputeLinearStiffness2D, ComputeInterpBending of user_mesh.cc (MuJoCo 3.8.1).
"""

import functools
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.math.safe import norm, normalize
from diffsim.math.vector import cross, total
from diffsim.types.topology import Topology, per_topology

AXES = np.arange(3)
# numbers for each edge between two faces of a shell: the 2 faces, the middle of the edge on each of them (2 + 2), the
# stiffness, and the residual at rest (3)
NBENDING = 10
# a face whose normal (the product of its tangents) is shorter than this, m^2, has no direction to bend in
FLAT = 1e-12


@functools.cache
def _shapes(order: int, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Gauss weights (q,) on the unit cell, and gradients (q, n, dim) of the shape functions there."""
    points, weights = np.polynomial.legendre.leggauss(order + 1)
    if order == 2:
        # MuJoCo's points, see the module's docstring
        points = np.sign(points) * np.sqrt(5 / 3)
    place = (points + 1) / 2
    weight = weights / 2
    value = np.array([polynomials(s, order) for s in place])
    rows = np.meshgrid(*[np.arange(order + 1)] * dim, indexing="ij")
    index = np.stack(rows, axis=-1).reshape(-1, dim)
    gradients = np.empty((len(index), len(index), dim))
    for axis in range(dim):
        factors = [value[index[:, other]][:, int(other == axis)][:, index[:, other]] for other in range(dim)]
        gradients[:, :, axis] = np.prod(factors, axis=0)
    return np.prod(weight[index], axis=1), gradients


def polynomials(s: Any, order: int) -> tuple[list[Any], list[Any]]:
    """Lagrange polynomials at s in [0, 1] and their slopes; each is 1 at its own node and 0 at the others."""
    if order == 1:
        return [1 - s, s], [0 * s - 1, 0 * s + 1]
    return [2 * s * s - 3 * s + 1, 4 * (s - s * s), 2 * s * s - s], [4 * s - 3, 4 * (1 - 2 * s), 4 * s - 1]


def cell_stiffness(
    topology: Topology, flex: int, node0: Array, young: Array, poisson: Array, thickness: Array
) -> Array:
    """(cells, 3 n, 3 n) N/m: K of all cells of a flex, or of all faces of a shell; n nodes each.

    Args:
      topology: of the model.
      flex: index of the flex.
      node0: (nflexnode, 3) m, nodes of all flexes at rest, along the axes of their grids.
      young: () Pa, Young's modulus of this flex.
      poisson: () Poisson's ratio.
      thickness: () m, of a shell.
    """
    shell = topology.flex_interp[flex] < 0
    order = abs(int(topology.flex_interp[flex]))
    grid = cell_nodes(topology, flex)
    node = node0[topology.flex_nodeadr[flex] :]
    size = node[grid[:, -1]] - node[grid[:, 0]]
    mu = young / (2 * (1 + poisson))
    if not shell:
        la = young * poisson / ((1 + poisson) * (1 - 2 * poisson))
        volume = size[:, 0] * size[:, 1] * size[:, 2] * ~empty_cells(topology, flex)
        return _elements(size, np.broadcast_to(AXES, (len(grid), 3)), order, la, mu, volume)
    la = young * poisson / (1 - poisson**2)
    parts = []
    for normal in range(3):
        plane = (normal + np.array([1, 2])) % 3
        facing = np.flatnonzero(face_normals(topology, flex) == normal)
        area = size[facing, plane[0]] * size[facing, plane[1]] * thickness
        parts.append(_elements(size[facing], np.broadcast_to(plane, (len(facing), 2)), order, la, mu, area))
    return jnp.concatenate(parts)


def _elements(size: Array, plane: np.ndarray, order: int, la: Array, mu: Array, volume: Array) -> Array:
    """(m, 3 n, 3 n) K of cells with sizes (m, 3).

    The integral is over the axes `plane` (m, dim), which are the same for all cells: three for a cell, two for a face.
    The derivative d phi / dx is d phi / ds divided by the size of the cell along x. So each pair of axes has one
    constant integral, which is multiplied by one factor for each cell.
    """
    dim = plane.shape[1]
    number = (order + 1) ** plane.shape[1]
    weight, gradient = _shapes(order, dim)
    # d_c phi_i d_d phi_j over the unit cell
    integral = np.einsum("q,qic,qjd->cdij", weight, gradient, gradient)
    zero = jnp.zeros((len(size), number, number), size.dtype)
    by_axes: dict[tuple[int, int], Array] = {}
    for c, d in np.ndindex(dim, dim) if len(size) else ():
        first, second = plane[0, [c, d]].tolist()
        factor = volume / (size[:, first] * size[:, second])
        by_axes[first, second] = factor[:, None, None] * integral[None, c, d]
    laplace = sum((by_axes.get((axis, axis), zero) for axis in range(3)), zero)
    rows = []
    for k in range(3):
        row = []
        for j in range(3):
            shear = by_axes.get((j, k), zero) + (laplace if k == j else zero)
            row.append(-(la * by_axes.get((k, j), zero) + mu / 2 * shear))
        rows.append(jnp.stack(row, axis=-1))
    # (m, i, j, l, k) -> (m, i, k, j, l)
    blocks = jnp.transpose(jnp.stack(rows, axis=-1), (0, 1, 4, 2, 3))
    return blocks.reshape(len(size), 3 * number, 3 * number)


def empty_cells(topology: Topology, flex: int) -> np.ndarray:
    """(cells,) bool: cells of a flex's grid that contain no part of the mesh."""
    first = int(np.sum(np.prod(topology.flex_cellnum[:flex], axis=1)))
    return topology.flex_cellempty[first : first + int(np.prod(topology.flex_cellnum[flex]))].astype(bool)


@per_topology
def cell_nodes(topology: Topology, flex: int) -> np.ndarray:
    """(cells, n) the nodes of each cell of a flex's grid or, for a shell, of each face, as indices within the flex."""
    order = abs(int(topology.flex_interp[flex]))
    count = topology.flex_cellnum[flex]
    number = np.arange(np.prod(count * order + 1)).reshape(count * order + 1)
    steps = np.arange(order + 1)
    if topology.flex_interp[flex] > 0:
        cells = np.stack(np.meshgrid(*map(np.arange, count), indexing="ij"), -1).reshape(-1, 3) * order
        return np.array([number[np.ix_(x + steps, y + steps, z + steps)].ravel() for x, y, z in cells])
    faces = []
    for side in range(6):
        normal, last = divmod(side, 2)
        slow = (normal + 1) % 3
        fast = (normal + 2) % 3
        sheet = np.moveaxis(number, (normal, slow, fast), (0, 1, 2))[-1 if last else 0]
        faces += [
            sheet[np.ix_(u * order + steps, v * order + steps)].ravel()
            for u in range(count[slow])
            for v in range(count[fast])
        ]
    return np.array(faces)


@per_topology
def face_normals(topology: Topology, flex: int) -> np.ndarray:
    """(faces,) the axis across each face of a shell."""
    x, y, z = topology.flex_cellnum[flex]
    return np.repeat(AXES, [2 * y * z, 2 * x * z, 2 * x * y])


# -------------------------------------------------------------------------------------------------- bending of shells


def shell_bending(topology: Topology, flex: int, node0: Array, young: Array, poisson: Array, thickness: Array) -> Array:
    """(1 + 10 k,) the number k of edges between faces, then 10 numbers for each edge.

    The 10 numbers are the two faces, the middle of the edge in the coordinates of the first face and of the second (2
    each), the stiffness, and the difference (3,) of the two unit normals at rest. The energy of an edge is stiffness /
    2 |r|^2, where r is the difference of the normals minus the difference at rest. The stiffness is E t^3 / (12 (1 -
    nu^2)) times the length of the edge, divided by the width of the faces across it.
    """
    faces, first, second = shell_edges(topology, flex)
    node = node0[topology.flex_nodeadr[flex] :]
    order = abs(int(topology.flex_interp[flex]))
    normals, spans = [], []
    for column, place in ((0, first), (1, second)):
        corner = node[cell_nodes(topology, flex)[faces[:, column]]]
        slopes = [face_slopes(place, order, axis) for axis in range(2)]
        # tangents (k, 3) of the faces along both of their axes, at the middle of the edge
        along_first, along_second = (
            total([corner[:, i] * slope[:, i, None] for i in range(slope.shape[1])]) for slope in slopes
        )
        normals.append(cross(along_first, along_second))
        # the edge runs along the axis on which its middle has the coordinate 1/2
        runs = (place[:, 0] == 0.5)[:, None]
        spans.append(
            (norm(jnp.where(runs, along_first, along_second)), norm(jnp.where(runs, along_second, along_first)))
        )
    lengths, widths = (jnp.stack(pair) for pair in zip(*spans, strict=True))
    modulus = young * thickness**3 / (12 * (1 - poisson**2))
    stiff = modulus * (lengths[0] + lengths[1]) / jnp.maximum(widths[0] + widths[1], 2 * FLAT)
    apart = normalize(normals[0]) - normalize(normals[1])
    static = jnp.asarray(np.concatenate([faces, first, second], axis=1), node.dtype)
    rows = jnp.concatenate([static, stiff[:, None], apart], axis=1)
    long_enough = (norm(normals[0]) >= FLAT) & (norm(normals[1]) >= FLAT)
    rows = jnp.where(long_enough[:, None], rows, 0.0)
    return jnp.concatenate([jnp.full((1,), len(faces), node.dtype), rows.reshape(-1)])


def face_slopes(place: np.ndarray, order: int, axis: int) -> np.ndarray:
    """(k, n) derivatives of the shape functions of faces with respect to an axis, at places (k, 2) on the faces."""
    value = [np.array([polynomials(s, order)[int(axis == other)] for s in place[:, other]]) for other in range(2)]
    return (value[0][:, :, None] * value[1][:, None, :]).reshape(len(place), -1)


@per_topology
def shell_edges(topology: Topology, flex: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Edges between faces of a shell: the two faces (k, 2), and the middle of the edge on the first (k, 2) and second.

    The faces cover the six sides of a box, side by side. Within a side, the neighbour across an edge is the next face
    along one axis. At the rim of a side, it is a face of the adjacent side, whose axes are axes of the box in
    cyclic order.
    """
    count = topology.flex_cellnum[flex]
    sizes = [(count[(axis + 1) % 3], count[(axis + 2) % 3]) for axis in (0, 0, 1, 1, 2, 2)]
    starts = np.concatenate([[0], np.cumsum([slow * fast for slow, fast in sizes])])
    faces, here, there = [], [], []
    for side, (slow, fast) in enumerate(sizes):
        normal, last = divmod(side, 2)
        for u, v in np.ndindex(int(slow), int(fast)):
            for axis in range(2):
                for step in (-1, 1):
                    end = 1.0 if step > 0 else 0.0
                    mine = (end, 0.5) if axis == 0 else (0.5, end)
                    place = [u, v]
                    place[axis] += step
                    if 0 <= place[axis] < (slow, fast)[axis]:
                        other = side
                        theirs = (1 - end, 0.5) if axis == 0 else (0.5, 1 - end)
                    else:
                        # around an edge of the box: the adjacent side is across the axis of the step
                        other = 2 * ((normal + 1 + axis) % 3) + int(step > 0)
                        rim = count[normal] - 1 if last else 0
                        edge = float(last)
                        place = [v, rim] if axis == 0 else [rim, u]
                        theirs = (0.5, edge) if axis == 0 else (edge, 0.5)
                    # each edge is met from both of its faces: keep it once
                    number = starts[side] + u * fast + v, starts[other] + place[0] * sizes[other][1] + place[1]
                    if number[0] < number[1]:
                        faces.append(number)
                        here.append(mine)
                        there.append(theirs)
    return np.array(faces, int), np.array(here), np.array(there)
