"""Builtin meshes: sphere, hemisphere, cone, supersphere, supertorus, wedge, plate.

Vertices and triangles have MuJoCo's order, which is visible in the readings of tactile sensors. Shapes without
triangles (cone, wedge) get the triangles of their convex hull. Source: MuJoCo "XML reference", mesh, builtin and
params.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import pi, sqrt

import numpy as np

from diffsim.mjcf.files.surface import Surface, cross_product, directed_edges
from diffsim.mjcf.resources import MOST_VERTICES, AssetError, check_count

Array = np.ndarray

# the golden ratio, in which the corners of an icosahedron lie
_GOLDEN = (1 + sqrt(5)) / 2
_ICOSAHEDRON = [
    *[(x, y, 0) for y in (_GOLDEN, -_GOLDEN) for x in (-1, 1)],
    *[(0, y, z) for z in (_GOLDEN, -_GOLDEN) for y in (-1, 1)],
    *[(x, 0, z) for x in (_GOLDEN, -_GOLDEN) for z in (-1, 1)],
]
_ICOSAHEDRON_FACES = np.array(
    [
        (0, 11, 5), (0, 5, 1), (0, 1, 7), (0, 7, 10), (0, 10, 11),
        (1, 5, 9), (5, 11, 4), (11, 10, 2), (10, 7, 6), (7, 1, 8),
        (3, 9, 4), (3, 4, 2), (3, 2, 6), (3, 6, 8), (3, 8, 9),
        (4, 9, 5), (2, 4, 11), (6, 2, 10), (8, 6, 7), (9, 8, 1),
    ],
    np.int32,
)  # fmt: skip


# vertices of a wedge: Qhull takes about 3 s for this many points on a sphere
MOST_IN_HULL = 100_000
# edges of a cone: Qhull takes about 3 s for two flat polygons with this many corners
MOST_IN_RING = 5_000


def sphere(params: Array) -> Surface:
    """A unit sphere: an icosahedron whose triangles are repeatedly split into four."""
    splits = _whole(params[0], 0, 4, "subdivision")
    vertex = np.array(_ICOSAHEDRON, np.float32)
    vertex = (vertex / np.sqrt(1 + np.float32(_GOLDEN) ** 2)).astype(np.float32)
    face = _ICOSAHEDRON_FACES
    for _ in range(splits):
        vertex, face = _split(vertex, face)
    return Surface(vertex, face)


def _split(vertex: Array, face: Array) -> tuple[Array, Array]:
    """Splits each triangle into four; midpoints of edges, in order of appearance, are projected to the sphere."""
    edges = np.sort(directed_edges(face), axis=1)
    _, first, index = np.unique(edges[:, 0] * len(vertex) + edges[:, 1], return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.argsort(order)
    ends = vertex[edges[first[order]]]
    middle = (ends[:, 0] + ends[:, 1]) / np.float32(2)
    middle = middle / np.sqrt((middle * middle).sum(axis=1, dtype=np.float32))[:, None]
    ab, bc, ca = (len(vertex) + rank[index.ravel()]).reshape(-1, 3).T
    a, b, c = face.T
    parts = [(a, ab, ca), (b, bc, ab), (c, ca, bc), (ab, bc, ca)]
    split = np.stack([np.stack(part, axis=1) for part in parts], axis=1)
    return np.concatenate([vertex, middle]), split.reshape(-1, 3).astype(np.int32)


def hemisphere(params: Array) -> Surface:
    """The upper half of the unit sphere, in rings of 4, 8, 12, ... vertices, closed by a disc."""
    rings = 1 + _whole(params[0], 0, 10, "resolution")

    def ring(row: int) -> Array:
        """The vertices of one ring: points of an octahedron, side by side, projected to the sphere."""
        factor = row / rings
        up = np.array([0.0, 0, 1])
        corners = np.array([(1, 0, 0), (0, 1, 0), (-1, 0, 0), (0, -1, 0)], float)
        start = up + factor * (corners - up)
        step = (np.roll(start, -1, axis=0) - start) / row
        points = (start[:, None] + np.arange(row)[:, None] * step[:, None]).reshape(-1, 3)
        return points / np.sqrt((points * points).sum(axis=1))[:, None]

    points = [np.array([[0.0, 0.0, 1.0]]), *map(ring, range(1, rings + 1)), np.zeros((1, 3))]
    first = [1 + 2 * row * (row - 1) for row in range(1, rings + 1)]
    face = [(0, 1 + side, 1 + (side + 1) % 4) for side in range(4)]
    for row in range(1, rings):
        face += _band(row, first[row - 1], first[row])
    rim = first[-1]
    center = sum(map(len, points)) - 1
    face += [(rim + k, center, rim + (k + 1) % (4 * rings)) for k in range(4 * rings)]
    return Surface(np.concatenate(points).astype(np.float32), np.array(face, np.int32))


def _band(row: int, here: int, below: int) -> list[tuple[int, int, int]]:
    """Triangles between a ring of 4 * row vertices and the next ring."""
    face = []
    for side in range(4):
        for k in range(row + 1):
            at = k + row * side
            under = k + (row + 1) * side
            a = here + at % (4 * row)
            b = here + (at + 1) % (4 * row)
            c, d = (below + (under + step) % (4 * row + 4) for step in range(2))
            face += [(a, c, d), (a, d, b)] if k < row else [(a, c, d)]
    return face


def supersphere(params: Array) -> Surface:
    """A superellipsoid with exponents e (around) and n (upward), with `resolution` points around.

    A point is (cos^n v cos^e u, cos^n v sin^e u, sin^n v), with powers that keep the sign.
    """
    count = _whole(params[0], 3, MOST_VERTICES, "resolution")
    check_count((count - 1) * count + 2, MOST_VERTICES, "vertices")
    around, upward = params[1:]
    if around < 0 or upward < 0:
        raise AssetError("attribute 'params': the exponents of a supersphere cannot be negative")
    v = (-pi / 2 + np.arange(1, count) * pi / count)[:, None]
    u = (-pi + np.arange(count) * 2 * pi / count)[None]
    rings = [
        _power(np.cos(v), upward) * _power(np.cos(u), around),
        _power(np.cos(v), upward) * _power(np.sin(u), around),
        np.broadcast_to(_power(np.sin(v), upward), (count - 1, count)),
    ]
    south = np.array([[0.0, 0, -1]])
    north = np.array([[0.0, 0, 1]])
    vertex = np.concatenate([south, np.stack(rings, axis=-1).reshape(-1, 3), north])
    grid = 1 + np.arange((count - 1) * count).reshape(count - 1, count)
    turned = np.roll(grid, -1, axis=1)
    low = np.stack([np.zeros(count, int), turned[0], grid[0]], axis=1)
    high = np.stack([grid[-1], turned[-1], np.full(count, len(vertex) - 1)], axis=1)
    face = np.concatenate([low, _quads(grid[:-1], turned[:-1], turned[1:], grid[1:]), high])
    return Surface(vertex.astype(np.float32), face.astype(np.int32))


def supertorus(params: Array) -> Surface:
    """A torus of radius 1 with a tube of `radius`, and exponents s (of the tube) and t (around)."""
    count = _whole(params[0], 3, MOST_VERTICES, "resolution")
    check_count(count * count, MOST_VERTICES, "vertices")
    radius, tube, around = params[1:]
    if not 0 < radius <= 1 or tube <= 0 or around <= 0:
        raise AssetError("attribute 'params': a supertorus needs a radius in (0, 1] and positive exponents")
    u = (2 * pi * np.arange(count) / count)[:, None]
    v = (2 * pi * np.arange(count) / count)[None]
    reach = 1 + radius * _power(np.cos(v), tube)
    height = np.broadcast_to(radius * _power(np.sin(v), tube), (count, count))
    vertex = np.stack([reach * _power(np.cos(u), around), reach * _power(np.sin(u), around), height], axis=-1)
    grid = np.arange(count * count).reshape(count, count)
    after = np.roll(grid, -1, axis=0)
    face = _quads(grid, after, np.roll(after, -1, axis=1), np.roll(grid, -1, axis=1))
    return Surface(vertex.reshape(-1, 3).astype(np.float32), face.astype(np.int32))


def wedge(params: Array) -> Surface:
    """Points with frames on a part of the unit sphere, seen from its center; denser in the middle for gamma > 0.

    params: the numbers of points around and upward, half angles of view around and upward (degrees), gamma.
    """
    count = _grid(params)
    gamma = params[4]
    check_count(count[0] * count[1], MOST_IN_HULL, "vertices of a wedge")
    fov = params[2:4]
    if not (0 < fov[0] <= 180 and 0 < fov[1] <= 90):
        raise AssetError("attribute 'params': the field of view of a wedge is at most 180 by 90 degrees")
    if not 0 <= gamma <= 1:
        raise AssetError("attribute 'params': gamma of a wedge must be in [0, 1]")
    edges = [np.linspace(-1, 1, n + 1) for n in count]
    angles = [(gamma * x**5 + (1 - gamma) * x) * limit * pi / 180 for x, limit in zip(edges, fov, strict=True)]
    a, e = np.meshgrid(*((x[1:] + x[:-1]) / 2 for x in angles), indexing="ij")
    vertex = np.stack([np.cos(e) * np.sin(a), np.sin(e), -np.cos(e) * np.cos(a)], axis=-1)
    # the frame at each point: outward, right, up
    right = np.stack([np.cos(a), np.zeros_like(a), np.sin(a)], axis=-1)
    up = np.stack([-np.sin(e) * np.sin(a), np.cos(e), np.sin(e) * np.cos(a)], axis=-1)
    frames = np.stack([cross_product(up, right), right, up], axis=2)
    return Surface(vertex.reshape(-1, 3).astype(np.float32), normal=frames.reshape(-1, 3).astype(np.float32))


def plate(params: Array) -> Surface:
    """A square grid of points with frames, in the plane z = -1."""
    rows, columns = _grid(params)
    x, y = (-1 + (np.arange(n) + 0.5) * 2 / n for n in (rows, columns))
    vertex = np.stack([*np.meshgrid(x, y, indexing="ij"), np.full((rows, columns), -1.0)], axis=-1)
    grid = np.arange(rows * columns).reshape(rows, columns)
    a = grid[:-1, :-1]
    b = grid[1:, :-1]
    c = grid[:-1, 1:]
    d = grid[1:, 1:]
    face = np.stack([a, b, c, d, c, b], axis=-1).reshape(-1, 3)
    frames = np.tile(np.eye(3), (rows * columns, 1))
    return Surface(vertex.reshape(-1, 3).astype(np.float32), face.astype(np.int32), frames.astype(np.float32))


def cone(params: Array) -> Surface:
    """A regular polygon at z = -1, and a smaller one (or a point if `radius` is 0) at z = 1."""
    count = _whole(params[0], 0, MOST_IN_RING, "number of edges")
    radius = params[1]
    angle = 2 * pi * np.arange(count) / count if count else np.zeros(0)
    ring = np.stack([np.cos(angle), np.sin(angle), np.full(count, -1.0)], axis=1)
    top = ring * [radius, radius, -1] if radius > 0 else np.array([[0.0, 0, 1]])
    return Surface(np.concatenate([ring, top]).astype(np.float32))


def _power(values: Array, exponent: float) -> Array:
    """|x|^exponent with the sign of x."""
    return np.copysign(np.abs(values) ** exponent, values)


def _quads(a: Array, b: Array, c: Array, d: Array) -> Array:
    """Two triangles for each quadrilateral: a b d and b c d."""
    return np.stack([a, b, d, b, c, d], axis=-1).reshape(-1, 3)


def _whole(value: float, least: int, most: int, what: str) -> int:
    """A parameter as an integer, rounded towards zero."""
    if not least <= int(value) <= most:
        raise AssetError(f"attribute 'params': the {what} must be from {least} to {most}, not {value:g}")
    return int(value)


def _grid(params: Array) -> tuple[int, int]:
    """The numbers of points along both sides of a grid."""
    count = (_whole(params[0], 1, MOST_VERTICES, "resolution"), _whole(params[1], 1, MOST_VERTICES, "resolution"))
    check_count(count[0] * count[1], MOST_VERTICES, "vertices")
    return count


@dataclass(frozen=True)
class Builtin:
    """The function that makes a shape, and its number of parameters."""

    make: Callable[[Array], Surface]
    params: int


BUILTINS: dict[str, Builtin] = {
    "sphere": Builtin(sphere, 1),
    "hemisphere": Builtin(hemisphere, 1),
    "cone": Builtin(cone, 2),
    "supersphere": Builtin(supersphere, 3),
    "supertorus": Builtin(supertorus, 4),
    "wedge": Builtin(wedge, 5),
    "plate": Builtin(plate, 2),
}


def builtin_surface(name: str, params: Array) -> Surface:
    """The builtin mesh with a name. Raises AssetError if the parameters are wrong."""
    shape = BUILTINS[name]
    if len(params) != shape.params:
        raise AssetError(f"attribute 'params': a builtin {name} takes {shape.params} numbers, {len(params)} given")
    return shape.make(params)
