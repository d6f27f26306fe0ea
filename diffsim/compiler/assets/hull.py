"""Convex hulls: triangles (by Qhull, which MuJoCo uses too), the graph of edges, and polygons.

Collisions search the graph for the vertex furthest along a direction, and clip polygons against each other. All of it
runs on the host when a model is compiled.
Source: user_mesh.cc (3.8.1) for the layout of mesh_graph and for what counts as one polygon; Qhull 2020.2 (poly_r.c,
poly2_r.c) for the order of its lists.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from diffsim.base import changes
from diffsim.geometry.hull.tables import first_places, linked_parts
from diffsim.mjcf.files.surface import SMALLEST, cross_product, directed_edges, first_seen, squares
from diffsim.mjcf.resources import AssetError

Array = np.ndarray

# rad: neighbouring triangles whose normals have the same azimuth and polar angle, rounded to multiples of this, belong
# to one polygon (MuJoCo's choice)
ANGLE = 0.01
# number of triangles of the tetrahedron with which Qhull starts
TETRAHEDRON = 4


@dataclass(frozen=True)
class Hull:
    """A convex hull in the order in which Qhull built it, with corners as vertices of the mesh.

    Attributes:
      face: (n, 3) triangles, counterclockwise from outside.
      newest: (n, 3) the same triangles with their corners as Qhull lists them: the vertex that it added last first.
      cut: (n,) whether Qhull cut the triangle out of a larger flat side, after all vertices had been added.
    """

    face: Array
    newest: Array
    cut: Array

    @property
    def vertex(self) -> Array:
        """The vertices of the mesh that are corners of the hull, in the order of Qhull's list.

        Qhull adds one vertex after another, each as the apex of a cone of new triangles. It moves the vertices of the
        new triangles to the end of its list: first the apex, then the others as it meets them. Finally it cuts larger
        flat sides into triangles, which moves their vertices once more. So vertices are sorted by the last cone in
        which they occur. A hull that is a tetrahedron has no cone: its k-th triangle leaves out the k-th vertex.
        """
        if len(self.newest) == TETRAHEDRON:
            return np.unique(self.newest).sum() - self.newest.sum(axis=1)
        # consecutive triangles with the same apex are one cone; all triangles that were cut are the last one (-1)
        apex = np.where(self.cut, -1, self.newest[:, 0])
        cone = np.repeat(np.cumsum(np.diff(apex, prepend=apex[0]) != 0), 3)
        corner = self.newest.ravel()
        tip = np.repeat(apex, 3)
        last = np.zeros(corner.max() + 1, int)
        np.maximum.at(last, corner, cone)
        # corners within their last cone, sorted by cone, the apex first; each vertex counts where it is met first
        met = np.flatnonzero(cone == last[corner])
        met = met[np.lexsort((met, corner[met] != tip[met], cone[met]))]
        return corner[met][np.sort(np.unique(corner[met], return_index=True)[1])]


@dataclass(frozen=True)
class Polygons:
    """Flat sides of a hull: the vertices of one polygon after another, and the number of vertices of each."""

    vertex: Array
    count: Array

    @property
    def start(self) -> Array:
        """Where each polygon begins."""
        return np.cumsum(self.count) - self.count


def convex_hull(vertex: Array, most: int = -1, mujoco: str = changes.DEFAULT) -> Hull:
    """The convex hull of points (n, 3) m, with at most `most` vertices (-1: no limit).

    Args:
      vertex: the points.
      most: the largest number of vertices.
      mujoco: the version of MuJoCo to follow.

    Raises:
      AssetError: the points are in one place, on one line or in one plane.
    """
    # imported here: only models with meshes pay for it
    from scipy.spatial import ConvexHull, QhullError

    _check_spread(vertex)
    # "Q9": Qhull adds the point that is furthest from the hull, not the furthest one of the next facet
    furthest = "Q9 " if changes.follows(mujoco, "hull_vertices") else ""
    options = "Qt" if most < 0 else f"Qt {furthest}TA{most - 4}"
    try:
        qhull = ConvexHull(vertex, qhull_options=options)
    except QhullError as error:
        raise AssetError(f"has no convex hull: {str(error).splitlines()[0]}") from None
    newest = qhull.simplices
    plane = qhull.equations[:, :3]
    corner = vertex[newest]
    outward = cross_product(corner[:, 1] - corner[:, 0], corner[:, 2] - corner[:, 0])
    turned = (outward * plane).sum(axis=1) < 0
    face = np.where(turned[:, None], newest[:, [1, 0, 2]], newest)
    # triangles that were cut out of one side have its plane, to the last bit
    _, side, triangles = np.unique(qhull.equations, axis=0, return_inverse=True, return_counts=True)
    return Hull(face.astype(np.int32), newest.astype(np.int32), triangles[side.ravel()] > 1)


def _check_spread(vertex: Array) -> None:
    """Raises AssetError if all points (n, 3) are in one place, on one line or in one plane."""
    offset = vertex - vertex[0]
    length = np.sqrt(squares(offset))
    apart = np.flatnonzero(length > SMALLEST)
    if not len(apart):
        raise AssetError("all vertices are in one place, there is no convex hull", "use a small sphere")
    edge, size = offset[apart[0]], length[apart[0]]
    normal = cross_product(edge, offset)
    across = np.sqrt(squares(normal))
    off_line = np.flatnonzero((across > SMALLEST * size * length) & (length >= SMALLEST))
    if not len(off_line):
        raise AssetError("the vertices are on one line, there is no convex hull", "use a thin capsule")
    normal = normal[off_line[0]] / across[off_line[0]]
    if not (np.abs(offset @ normal) > SMALLEST * size).any():
        raise AssetError("the vertices are in one plane, there is no convex hull", "use a plane or a thin box")


def graph(hull: Hull) -> Array:
    """mesh_graph of a mesh: the edges of its hull as lists of neighbours.

    It has, one after the other: the numbers of vertices and faces of the hull; where the neighbours of each vertex
    begin; the vertices; the neighbours of each vertex, ended by -1; the faces. Vertices and corners of faces are
    indices of the mesh, neighbours are positions in the list of vertices.

    The order of neighbours matters: where a plane touches a hull, MuJoCo takes the first neighbours of the lowest
    vertex that are low enough. Here the triangles of a vertex come in the order in which Qhull made them, and its
    neighbours in the order in which these triangles list them. Where Qhull merges triangles into a flat side with more
    than four corners, it shuffles the triangles of the vertex further; the neighbours may then be in another order than
    MuJoCo's.
    """
    vertex = hull.vertex
    place = np.zeros(vertex.max() + 1, int)
    place[vertex] = np.arange(len(vertex))
    # the directed edges from each corner of each triangle to the other two; of equal edges only the first is kept
    edges = place[hull.newest][:, [[0, 1], [0, 2], [1, 0], [1, 2], [2, 0], [2, 1]]].reshape(-1, 2)
    edges = edges[np.sort(np.unique(edges @ [len(vertex), 1], return_index=True)[1])]
    edges = edges[np.argsort(edges[:, 0], kind="stable")]
    degree = np.bincount(edges[:, 0], minlength=len(vertex))
    start = np.cumsum(degree + 1) - (degree + 1)
    neighbours = np.full(len(edges) + len(vertex), -1)
    neighbours[np.arange(len(edges)) + edges[:, 0]] = edges[:, 1]
    counts = [len(vertex), len(hull.face)]
    return np.concatenate([counts, start, vertex, neighbours, hull.face.ravel()]).astype(np.int32)


def polygons(vertex: Array, hull: Hull) -> Polygons:
    """The polygons of a hull: connected triangles whose normals agree; each begins at its first edge."""
    key = _direction_keys(vertex, hull.face)
    edges = directed_edges(hull.face)
    # Two triangles share an edge if one of them has it reversed. Its key contains the direction of the normal, so only
    # triangles whose normals agree are joined.
    partner = first_places(*_edge_keys(edges, np.repeat(np.unique(key, return_inverse=True)[1], 3), len(vertex)))
    shared = np.flatnonzero(partner >= 0)
    joined = linked_parts(np.stack([shared, partner[shared]], axis=1) // 3, len(hull.face))
    # polygons are numbered in the order of their first triangles
    owner = np.repeat(first_seen(joined)[1], 3)
    # an edge inside a polygon occurs in both directions; the others are its rim
    inner = first_places(*_edge_keys(edges, owner, len(vertex))) >= 0
    rim = (key[np.repeat(np.arange(len(key)), 3)] >= 0) & ~inner
    return _paths(edges[rim], owner[rim])


def polygon_normals(vertex: Array, sides: Polygons, mujoco: str) -> Array:
    """Unit normals (n, 3) by the first three vertices of each polygon, or by all of them if these are on a line.

    Since MuJoCo 3.17, by all vertices of each polygon.
    """
    whole = changes.follows(mujoco, "polygon_normals")
    normal = _normals(vertex, sides, lambda normal, *_: whole | (squares(normal) < (SMALLEST * 10) ** 2))
    return np.where(squares(normal)[:, None] > 0, normal, [1.0, 0.0, 0.0])


def rounding_fields(fields: Mapping[str, Any]) -> dict[str, Array]:
    """`mesh_polyrounding` of a compiled model: mesh_polynormal minus the normals that the float32 vertices give.

    The normals of the rounded vertices are inaccurate where the first three vertices of a polygon are near each other.
    `geometry.hull.polytope.polygon_normals` computes them in the same way and adds this correction.
    """
    vertex = np.reshape(fields["mesh_vert"], (-1, 3)).astype(np.float32).astype(float)
    first = np.repeat(np.ravel(fields["mesh_vertadr"]), np.ravel(fields["mesh_polynum"]))
    count, corner = (np.ravel(fields[name]) for name in ("mesh_polyvertnum", "mesh_polyvert"))
    sides = Polygons(corner + np.repeat(first, count), count)
    rounded = _normals(vertex, sides, lambda n, one, other: squares(n) <= 1e-14 * squares(one) * squares(other))
    normal = np.reshape(fields["mesh_polynormal"], (-1, 3))
    return {"mesh_polyrounding": np.where(squares(rounded)[:, None] > 0, normal - rounded, 0)}


def _normals(vertex: Array, sides: Polygons, on_a_line: Callable[[Array, Array, Array], Array]) -> Array:
    """Unit normals (n, 3) by the first three vertices of each polygon; zero for a polygon without area.

    on_a_line: says whether these three are on a line, given u x v, u and v (n, 3), where u and v point from the first
    vertex to the second and third. If they are, the areas of all triangles at the first vertex are summed instead.
    """
    begin, *ends = (vertex[sides.vertex[sides.start + k]] for k in range(3))
    one, other = (end - begin for end in ends)
    normal = cross_product(one, other)
    for side in np.flatnonzero(on_a_line(normal, one, other)).tolist():
        spoke = vertex[sides.vertex[sides.start[side] :][: sides.count[side]]] - begin[side]
        normal[side] = cross_product(spoke[1:-1], spoke[2:]).sum(axis=0)
    length = np.sqrt(squares(normal))[:, None]
    return normal / np.where(length > 0, length, 1.0)


def polygons_of_vertices(sides: Polygons, nvert: int) -> tuple[Array, Array]:
    """The number of polygons at each vertex of the mesh, and these polygons, one vertex after another."""
    owner = np.repeat(np.arange(len(sides.count)), sides.count)
    order = np.argsort(sides.vertex, kind="stable")
    return np.bincount(sides.vertex, minlength=nvert).astype(np.int32), owner[order].astype(np.int32)


def _direction_keys(vertex: Array, face: Array) -> Array:
    """A number for each triangle (n,), equal where the normals agree; -1 for triangles without area."""
    corner = vertex[face]
    normal = cross_product(corner[:, 1] - corner[:, 0], corner[:, 2] - corner[:, 0])
    length = np.sqrt(squares(normal))
    # adding zero turns -0 into 0: arctan2 distinguishes them
    normal = normal / np.where(length < SMALLEST, 1.0, length)[:, None] + 0.0
    # normals along z have no azimuth
    upright = np.abs(normal[:, 2]) > 1 - 1e-7
    azimuth = _rounded(np.arctan2(normal[:, 1], normal[:, 0]) / ANGLE)
    polar = _rounded(np.arccos(np.clip(normal[:, 2], -1, 1)) / ANGLE)
    azimuth[upright] = 0.0
    polar[upright] = np.where(normal[upright, 2] < 0, _rounded(np.pi / ANGLE), 0.0)
    # both angles are below 1000 in size: one integer holds them, and 1e6 makes it positive
    return np.where(length < SMALLEST, -1, (azimuth * 1000 + polar + 1e6).astype(np.int64))


def _rounded(values: Array | float) -> Array:
    """To the nearest integer, halves away from zero."""
    return np.trunc(values + np.copysign(0.5, values))


def _edge_keys(edges: Array, owner: Array, nvert: int) -> tuple[Array, Array]:
    """An integer for each edge and its owner, and the integer of the reversed edge with the same owner."""
    a = edges[:, 0].astype(np.int64)
    b = edges[:, 1].astype(np.int64)
    owner = owner.astype(np.int64)
    return (owner * nvert + a) * nvert + b, (owner * nvert + b) * nvert + a


def _paths(edges: Array, owner: Array) -> Polygons:
    """Follows the rim of each polygon from its first edge; leaves out polygons whose rim has fewer than three edges."""
    order = np.argsort(owner, kind="stable")
    edges, owner = edges[order].astype(np.int64), owner[order].astype(np.int64)
    count = np.bincount(owner)
    start = np.cumsum(count) - count
    length = np.zeros_like(count)
    # the first edge of the same owner that begins where an edge ends; -1 where there is none
    span = edges.max(initial=0) + 1
    follow = first_places(owner * span + edges[:, 0], owner * span + edges[:, 1])
    vertex = np.zeros(len(edges), np.int32)
    # all polygons take one step along their rim at a time
    side = np.flatnonzero(count)
    at = start[side]
    for step in range(count.max(initial=0)):
        vertex[start[side] + step] = edges[at, 0]
        at = follow[at]
        closed = (at < 0) | (edges[at, 0] == edges[start[side], 0])
        length[side[closed]] = step + 1
        goes_on = ~closed & (step + 1 < count[side])
        side, at = side[goes_on], at[goes_on]
    length[length < 3] = 0
    kept = np.arange(len(edges)) - start[owner] < length[owner]
    return Polygons(vertex[kept], length[length > 0].astype(np.int32))
