"""Surface: vertices and triangles of a mesh; its volume, center, inertia and normals.

The volume is the sum over pyramids with the triangles as bases and the area-weighted center of all triangles as apex.
All functions run in numpy float64 and are vectorized over triangles.
Source: MuJoCo "Modeling" (mesh, inertia), user_mesh.cc (3.8.1) for what counts as too small.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

Array = np.ndarray

# a triangle is degenerate if twice its area is less than this, m^2 (mjMINVAL)
SMALLEST = 1e-15
# a vector whose squared length is below this is not normalized (mjEPS)
TINY = 1e-14
# a triangle does not contribute to the normal of a vertex if the cosine of its angle to the mean normal is below this
# (MuJoCo's choice)
SMOOTH = 0.8
# vectors cancel if their sum is shorter than this fraction of the sum of their lengths
CANCELLING = 0.1

# triangles whose moments are computed together, so that the arrays fit into the cache
BLOCK = 4096
# indices of the six entries of a symmetric matrix
MOMENTS = ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))


def _no_corners() -> Array:
    """An array of triangles without rows."""
    return np.zeros((0, 3), np.int32)


@dataclass(frozen=True)
class Surface:
    """A triangulated surface as in its file; arrays that the file does not give have no rows.

    Attributes:
      vertex: (nvert, 3) m, float32.
      face: (nface, 3) vertices of the triangles, counterclockwise seen from outside.
      normal: (nnormal, 3) float32.
      texcoord: (ntexcoord, 2) float32.
      facenormal: (nface, 3) normals at the corners of the triangles.
      facetexcoord: (nface, 3) texture coordinates at the corners of the triangles.
    """

    vertex: Array
    face: Array = field(default_factory=_no_corners)
    normal: Array = field(default_factory=lambda: np.zeros((0, 3), np.float32))
    texcoord: Array = field(default_factory=lambda: np.zeros((0, 2), np.float32))
    facenormal: Array = field(default_factory=_no_corners)
    facetexcoord: Array = field(default_factory=_no_corners)


@dataclass(frozen=True)
class Triangles:
    """Unit normals (3, n), zero for degenerate triangles; areas (n,); centers (3, n).

    Rows are coordinates, because numpy is fast along the last axis.
    """

    normal: Array
    area: Array
    center: Array

    @property
    def centroid(self) -> Array:
        """(3,) the area-weighted center of all triangles."""
        *weighted, area = _totals([*(self.area * self.center), self.area])
        return np.array(weighted) / (area if area >= SMALLEST else 1.0)


def first_seen(values: Array, axis: int | None = None) -> tuple[Array, Array]:
    """The distinct values of an array, or its distinct rows with axis 0, in order of appearance.

    Returns:
      The index at which each distinct value first appears, and for each value the number of its distinct value.
    """
    _, first, index = np.unique(values, axis=axis, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return first[order], np.argsort(order)[index.ravel()]


def triangles(vertex: Array, face: Array) -> Triangles:
    """Normals, areas and centers of triangles."""
    first, second, third = _corners(vertex, face)
    cross = np.array(_cross_of_rows(second - first, third - first))
    length = np.sqrt(_squares_of_rows(cross))
    length[length < SMALLEST] = 0.0
    normal = np.divide(cross, length, out=np.zeros_like(cross), where=length > 0)
    return Triangles(normal, length / 2, (first + second + third) / 3)


def volume_and_center(parts: Triangles, apex: Array, absolute: bool) -> tuple[float, Array]:
    """Volume and center of mass (3,) of the pyramids with triangles as bases and one apex (3,).

    absolute: whether the volume of each pyramid counts as positive, as with inertia="legacy".
    """
    spoke = parts.center - apex[:, None]
    volume = _dot_of_rows(spoke, parts.normal) * parts.area / 3
    volume = np.abs(volume) if absolute else volume
    middle = parts.center * 0.75 + apex[:, None] * 0.25
    *center, total = _totals([*(volume * middle), volume])
    return total, np.array(center) / (total if total >= SMALLEST else 1.0)


def inertia(vertex: Array, face: Array, shell: bool, absolute: bool) -> tuple[float, Array]:
    """Volume (or area of a shell) and inertia matrix (3, 3) at unit density, about the origin.

    The second moment of a tetrahedron with corners 0, a, b, c and volume V, the integral of r r^T, is V/20 times the
    sum of x y^T + y x^T over all unordered pairs x, y of a, b, c, including x = y. For a triangle a, b, c with area A
    it is the same with A/12. The inertia matrix is trace(second moment) times the identity minus the second moment.
    """
    totals = [0.0] * (1 + len(MOMENTS))
    for start in range(0, len(face), BLOCK):
        totals = _totals(_moments(vertex, face[start : start + BLOCK], shell, absolute), totals)
    volume, xx, yy, zz, xy, xz, yz = totals
    return volume, np.array([[yy + zz, -xy, -xz], [-xy, xx + zz, -yz], [-xz, -yz, xx + yy]])


def _moments(vertex: Array, face: Array, shell: bool, absolute: bool) -> list[Array]:
    """For each triangle (n,) its volume or area, and the entries `MOMENTS` of its second moment."""
    parts = triangles(vertex, face)
    weight = parts.area if shell else _dot_of_rows(parts.center, parts.normal) * parts.area / 3
    weight = np.abs(weight) if absolute else weight
    scaled = weight / (12 if shell else 20)
    a, b, c = _corners(vertex, face)
    columns = [weight]
    for j, k in MOMENTS:
        moment = 2 * (a[j] * a[k] + b[j] * b[k] + c[j] * c[k])
        for x, y in ((a, b), (a, c), (b, c)):
            one = x[j] * y[k]
            moment += one
            moment += one if j == k else x[k] * y[j]
        columns.append(scaled * moment)
    return columns


def vertex_normals(vertex: Array, face: Array, smooth: bool) -> Array:
    """Unit normals (nvert, 3): area-weighted means over the triangles around each vertex; (0, 0, 1) if nothing remains.

    Unless `smooth`, triangles at a large angle to the mean do not count. MuJoCo sums in float32. Where triangles
    cancel, as on walls without thickness, its result is a rounding error; only there is the sum in float32 here too.
    """
    first, second, third = _corners(vertex, face)
    weighted = np.array(_cross_of_rows(second - first, third - first))
    weighted[:, _squares_of_rows(weighted) < TINY] = 0.0
    area = np.sqrt(_squares_of_rows(weighted))
    index = face.ravel()
    mean, rest = _corner_sums(weighted, np.arange(len(index)), index, len(vertex), smooth, single=False)
    size = np.bincount(index, area.repeat(3), minlength=len(vertex))
    delicate = np.minimum(_squares_of_rows(mean), _squares_of_rows(rest)) < (CANCELLING * size) ** 2
    if delicate.any():
        corner = np.flatnonzero(delicate[index])
        rest[:, delicate] = _corner_sums(weighted, corner, index, len(vertex), smooth, single=True)[1][:, delicate]
    return unit_or_up(np.ascontiguousarray(rest.T), SMALLEST**2)


def _corner_sums(
    weighted: Array, corner: Array, index: Array, count: int, smooth: bool, single: bool
) -> tuple[Array, Array]:
    """Sums (3, count) of triangle normals at each vertex, with all triangles and without those at a large angle.

    Args:
      weighted: (3, nface) normals times twice the area.
      corner: (k,) the corners to sum over, indices of the 3 nface corners.
      index: (3 nface,) the vertex of each corner.
      count: number of vertices.
      smooth: whether triangles at a large angle count.
      single: whether to add in float32, in order.
    """
    place = index[corner]
    owner = corner // 3

    def gather(place: Array, owner: Array) -> Array:
        values = np.take(weighted, owner, axis=1)
        if not single:
            return np.array([np.bincount(place, row, minlength=count) for row in values])
        total = np.zeros((3, count), np.float32)
        for row, sums in zip(values, total, strict=True):
            np.add.at(sums, place, row)
        return total

    mean = gather(place, owner)
    if smooth:
        return mean, mean
    direction = np.take(_unit_of_rows(mean.astype(float)), place, axis=1)
    aligned = _dot_of_rows(direction, np.take(_unit_of_rows(weighted), owner, axis=1))
    steep = aligned < SMOOTH
    return mean, mean - gather(place[steep], owner[steep])


def unit_or_up(vectors: Array, least: float = SMALLEST) -> Array:
    """Unit vectors; (0, 0, 1) for vectors whose squared length is at most `least`."""
    square = squares(vectors)[:, None]
    return np.where(square > least, vectors / np.sqrt(np.where(square > least, square, 1.0)), [0.0, 0.0, 1.0])


def directed_edges(face: Array) -> Array:
    """(3 nface, 2) the directed edges of all triangles, three for each triangle in turn."""
    return np.stack([face, np.roll(face, -1, axis=1)], axis=2).reshape(-1, 2)


def repeated_edge(vertex: Array, face: Array) -> tuple[int, int] | None:
    """The vertices of an edge that two triangles have in the same direction; None if there is no such edge.

    Then one of the triangles is inside out. Triangles that are nearly degenerate are ignored.
    """
    sound = triangles(vertex, face).area > np.sqrt(SMALLEST)
    edges = directed_edges(face[sound]).astype(np.int64)
    keys = np.sort(edges[:, 0] * len(vertex) + edges[:, 1])
    repeated = keys[1:][keys[1:] == keys[:-1]]
    return (int(repeated[0] // len(vertex)), int(repeated[0] % len(vertex))) if len(repeated) else None


def dot(a: Array, b: Array) -> Array:
    """a . b over the last axis, summed in the order of components so that rounding agrees with MuJoCo."""
    return a[..., 0] * b[..., 0] + a[..., 1] * b[..., 1] + a[..., 2] * b[..., 2]


def cross_product(a: Array, b: Array) -> Array:
    """a x b over the last axis."""
    x = a[..., 1] * b[..., 2] - a[..., 2] * b[..., 1]
    y = a[..., 2] * b[..., 0] - a[..., 0] * b[..., 2]
    z = a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]
    return np.stack([x, y, z], axis=-1)


def squares(vectors: Array) -> Array:
    """Squared lengths over the last axis."""
    return vectors[..., 0] ** 2 + vectors[..., 1] ** 2 + vectors[..., 2] ** 2


def _corners(vertex: Array, face: Array) -> list[Array]:
    """The first, second and third corners (3, n) of triangles."""
    rows = np.ascontiguousarray(vertex.T)
    return [np.take(rows, corner, axis=1) for corner in np.ascontiguousarray(face.T)]


def _cross_of_rows(a: Array, b: Array) -> list[Array]:
    """a x b of vectors (3, n), whose rows are coordinates."""
    return [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]


def _dot_of_rows(a: Array, b: Array) -> Array:
    """a . b of vectors (3, n), whose rows are coordinates; summed in order."""
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def _squares_of_rows(vectors: Array) -> Array:
    """Squared lengths of vectors (3, n), whose rows are coordinates."""
    return _dot_of_rows(vectors, vectors)


def _totals(columns: Sequence[Array], start: Sequence[float] | None = None) -> list[float]:
    """The sum of each column (n,), in order, from `start` on.

    A symmetric mesh has many equivalent principal axes, and rounding decides which ones are found; in this order of
    summation they are the same as in MuJoCo.
    """
    if not len(columns[0]):
        return [0.0] * len(columns) if start is None else list(start)
    if start is not None:
        for column, value in zip(columns, start, strict=True):
            column[0] += value
    # a running sum, because numpy adds in another order otherwise
    return [float(np.add.accumulate(column)[-1]) for column in columns]


def _unit_of_rows(vectors: Array) -> Array:
    """Unit vectors (3, n); vectors that are too short stay unchanged."""
    square = _squares_of_rows(vectors)
    return vectors / np.sqrt(np.where(square < TINY, 1.0, square))
