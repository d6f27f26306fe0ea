"""Convex hulls of meshes as padded tables of integers: which vertices, polygons, facets and edges they have.

Assets whose padded sizes agree share a program, so that sizes are rounded up. A hull has its polygons, as MuJoCo finds
them, and its outline: the triangles, and the edges where these bend.

All distances of hulls are those of some facet, edge or corner (`sat.py`). MuJoCo's polygons would leave some out: in
many meshes they are flat only to a thousandth of the size. So each triangle counts; but between triangles that are flat
to the rounding of float32, in which MuJoCo keeps vertices, there is no edge. Which these are depends on vertices, and
is found when a model is compiled: `mesh_facet` is, for each triangle of a hull, the largest of the triangles that it is
flat with, which stands for all of them.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from diffsim.base.enums import GeomType
from diffsim.types.topology import Topology, per_topology

# how far from a plane the vertices of one facet are at most, by the size of the hull
FLAT = 1e-7
# of larger polygons so many corners are kept (MuJoCo clips by the first 150)
MOST_CORNERS = 128
# how many facets are taken out of a part one after another; the rest of it are facets of their own
ROUNDS = 8


class Polygons(NamedTuple):
    """The polygons (p, k) of a hull, and the other ends of the edges at each vertex (v, n); -1 for no more.

    A polygon of more than 128 corners has its first three and others spread along it.
    """

    side: np.ndarray
    joined: np.ndarray


class Outline(NamedTuple):
    """Facets (f, 3), three corners of each, counterclockwise from outside; edges (e, 2) and their facets (e, 2).

    Seen from outside an edge runs with its first facet on the left.
    """

    facet: np.ndarray
    edge: np.ndarray
    flank: np.ndarray


def polygons_of(lists: list[list[int]], vertices: int) -> Polygons:
    """Polygons, counterclockwise from outside, and the edges at each of so many vertices."""
    ends: list[list[int]] = [[] for _ in range(vertices)]
    for polygon in lists:
        for here, there in zip(polygon, polygon[1:] + polygon[:1], strict=True):
            ends[here].append(there)
    return Polygons(_ragged([_thinned(corners) for corners in lists]), _ragged(ends))


def _thinned(polygon: list[int]) -> list[int]:
    """At most as many corners as are kept: the first three, which tell the normal, and others spread along it."""
    if len(polygon) <= MOST_CORNERS:
        return polygon
    spread = np.linspace(0, len(polygon) - 1, MOST_CORNERS - 2).astype(int)
    return [polygon[k] for k in np.union1d(np.arange(3), spread)]


def _ragged(lists: list[list[int]]) -> np.ndarray:
    """Lists as rows of a table, -1 where there are no more."""
    table = np.full((len(lists), max(map(len, lists), default=0)), -1)
    for row, entries in enumerate(lists):
        table[row, : len(entries)] = entries
    return table


def outline_of(polygons: Sequence[Sequence[int]], owner: np.ndarray | None = None) -> Outline:
    """The outline of flat polygons, counterclockwise from outside. `owner`: of polygons that are one facet the same."""
    owner = np.arange(len(polygons)) if owner is None else owner
    edges = [(a, b, k) for k, ring in enumerate(polygons) for a, b in zip(ring, [*ring[1:], ring[0]], strict=True)]
    begin, end, side = (
        (np.array(column, int) for column in zip(*edges, strict=True)) if edges else np.zeros((3, 0), int)
    )
    other = _twins(begin, end)
    # an edge that is not between two polygons belongs to no closed hull
    right = np.where(other < 0, -1, owner[side[other]]) if len(edges) else other
    kept = (begin < end) & (other >= 0) & (right != owner[side])
    facet = np.array([polygon[:3] for polygon in polygons], int).reshape(-1, 3)
    return Outline(facet, np.stack([begin, end], axis=1)[kept], np.stack([owner[side], right], axis=1)[kept])


def hull_triangles(graph: np.ndarray) -> np.ndarray:
    """The triangles (n, 3) of a hull by the mesh's vertices, from where its part of `mesh_graph` begins."""
    vertices, faces = int(graph[0]), int(graph[1])
    first = 2 + 3 * vertices + 3 * faces
    return graph[first : first + 3 * faces].reshape(-1, 3)


@per_topology
def facet_addresses(topology: Topology) -> np.ndarray:
    """Where the hull of each mesh begins in `mesh_facet` (nmesh + 1,)."""
    graph = topology.mesh_graph
    numbers = [0, *(int(graph[start + 1]) if start >= 0 else 0 for start in topology.mesh_graphadr.tolist())]
    return np.cumsum(numbers)


def facet_fields(fields: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """`mesh_facet` of a compiled model, given its other mesh fields."""
    vertex = np.reshape(fields["mesh_vert"], (-1, 3)).astype(np.float32).astype(float)
    starts = zip(np.ravel(fields["mesh_graphadr"]).tolist(), np.ravel(fields["mesh_vertadr"]).tolist(), strict=True)
    graph = np.ravel(fields["mesh_graph"])
    graphs = [(first, start) for start, first in starts if start >= 0]
    parts = [_representatives(vertex[first:], hull_triangles(graph[start:])) for first, start in graphs]
    return {"mesh_facet": np.concatenate([np.zeros(0, int), *parts]).astype(np.int32)}


def _twins(begin: np.ndarray, end: np.ndarray) -> np.ndarray:
    """(n,) for each directed edge the number of the edge that runs back, or -1."""
    span = max(begin.max(initial=0), end.max(initial=0)) + 1
    forth, back = begin * span + end, end * span + begin
    order = np.argsort(forth, kind="stable")
    place = np.minimum(np.searchsorted(forth[order], back), max(len(order) - 1, 0))
    return np.where(forth[order[place]] == back, order[place], -1) if len(order) else back


def _representatives(vertex: np.ndarray, triangle: np.ndarray) -> np.ndarray:
    """For each triangle (n, 3) the number of the largest one that it is flat with; its own if that is itself."""
    corner = vertex[triangle]
    normal = np.cross(corner[:, 1] - corner[:, 0], corner[:, 2] - corner[:, 0])
    area = np.sqrt((normal * normal).sum(axis=1))
    limit = FLAT * np.ptp(vertex[np.unique(triangle)], axis=0).max()
    # height of points over the plane of a triangle; a triangle without area has none
    unit = normal / np.where(area > 0, area, 1)[:, None]
    links = _flat_edges(triangle, corner, unit, area, limit)
    standing, left = np.arange(len(triangle)), np.ones(len(triangle), bool)
    for _ in range(ROUNDS):
        largest = _largest_of_parts(links[left[links].all(axis=1)], area, left)
        height = np.abs(((corner - corner[largest][:, :1]) * unit[largest][:, None]).sum(axis=2)).max(axis=1)
        joins = left & (height <= limit)
        standing[joins] = largest[joins]
        left &= ~joins
    return standing


def _flat_edges(
    triangle: np.ndarray, corner: np.ndarray, unit: np.ndarray, area: np.ndarray, limit: float
) -> np.ndarray:
    """Pairs (m, 2) of neighbours, the smaller of which is in the plane of the larger."""
    begin, end = triangle.ravel(), np.roll(triangle, -1, axis=1).ravel()
    twin = _twins(begin, end)
    here = np.flatnonzero(twin >= 0)
    one, other = here // 3, twin[here] // 3
    larger, smaller = np.where(area[one] >= area[other], one, other), np.where(area[one] >= area[other], other, one)
    height = np.abs(((corner[smaller] - corner[larger][:, :1]) * unit[larger][:, None]).sum(axis=2)).max(axis=1)
    flat = height <= limit
    return np.stack([larger[flat], smaller[flat]], axis=1)


def _largest_of_parts(links: np.ndarray, area: np.ndarray, left: np.ndarray) -> np.ndarray:
    """For each triangle that is left the largest of those that links join it with."""
    # imported here: only models with meshes pay for it
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    graph = coo_array((np.ones(len(links)), (links[:, 0], links[:, 1])), shape=(len(area), len(area)))
    label = connected_components(graph, directed=False)[1]
    order = np.argsort(np.where(left, area, -1), kind="stable")
    largest = np.zeros(label.max(initial=-1) + 1, int)
    largest[label[order]] = order
    return largest[label]


# padded sizes of an asset's arrays; assets with equal ones share a program
Sizes = tuple[int, ...]

SMALLEST = 8
# MuJoCo climbs along the edges of the hull of a mesh with as many vertices (mjMESH_HILLCLIMB_MIN)
SEARCHED = 10


def padded(count: int) -> int:
    """The next power of two, at least 8."""
    return max(SMALLEST, 1 << (count - 1).bit_length())


def _rounded(count: int) -> int:
    """The next multiple of 8, or none: of what makes no program of its own."""
    return SMALLEST * -(-count // SMALLEST)


def hull_sizes(topology: Topology, mesh: int) -> Sizes:
    """Padded sizes of a mesh's hull: vertices, and the largest of all meshes with as many of what its record holds."""
    count, key = padded(_table_sizes(topology, mesh)[0]), _key(topology, mesh)
    alike = [_table_sizes(topology, other) for other in _colliding(topology) if _key(topology, other) == key]
    _, lists, *others, facets, edges = (max(column) for column in zip(*alike, strict=True))
    return count, count if lists > 1 else 1, *(padded(size) for size in others), _rounded(facets), _rounded(edges)


def _key(topology: Topology, mesh: int) -> tuple[int, bool]:
    """What meshes of one size have in common: padded number of vertices, and whether there is an outline."""
    sizes = _table_sizes(topology, mesh)
    return padded(sizes[0]), sizes[-1] > 0


def lesser_sizes(topology: Topology, first: np.ndarray, second: np.ndarray) -> Sizes:
    """Sizes that hold vertices, facets and edges of the hull with fewer edges of each pair of mesh geoms or boxes."""
    meshes = np.unique(topology.geom_dataid[np.stack([first, second])], axis=1).T.tolist()
    both = [[_outline_sizes(topology, mesh) for mesh in pair] for pair in meshes]
    # of equal numbers of edges either may be the larger
    fewer = [sizes for pair in both for sizes in pair if sizes[-1] == min(pair[0][-1], pair[1][-1])]
    vertices, facets, edges = (max(column) for column in zip(*fewer, strict=True))
    # edges are rows of the table of pairs of edges
    return _rounded(vertices), _rounded(facets), edges


def _outline_sizes(topology: Topology, mesh: int) -> Sizes:
    """Vertices, facets and edges; -1 is a box."""
    if mesh < 0:
        return 8, 6, 12
    vertices, *_, facets, edges = _table_sizes(topology, mesh)
    return vertices, facets, edges


def rim_sizes(topology: Topology, mesh: int) -> Sizes:
    """Padded sizes of what planes touch of a mesh's hull."""
    vertices, around = _graph(topology, mesh)
    count, (lists, longest) = padded(len(vertices)), around.shape
    return count, count if lists > 1 else 1, padded(longest)


@per_topology
def _colliding(topology: Topology) -> tuple[int, ...]:
    """The meshes of mesh geoms."""
    return tuple(np.unique(topology.geom_dataid[topology.geom_type == GeomType.MESH]).tolist())


@per_topology
def _table_sizes(topology: Topology, mesh: int) -> Sizes:
    """Sizes before padding.

    Vertices, lists of neighbours, longest list, polygons, longest polygon, ends of edges at a vertex, facets, edges.
    """
    vertices, around = _graph(topology, mesh)
    polygons, outline = _polygons(topology, mesh), _outline(topology, mesh)
    sides = *polygons.side.shape, polygons.joined.shape[1]
    return len(vertices), *around.shape, *sides, len(outline.facet), len(outline.edge)


@per_topology
def stacked_hulls(topology: Topology, meshes: tuple[int, ...], sizes: Sizes) -> tuple[np.ndarray, ...]:
    """Rows of mesh_vert (m, v), neighbours (m, v or 1, n), and tables of polygons as in Hull, with a row for a mesh."""
    count, lists, longest, sides, corners, ends, facets, edges = sizes
    shapes = (lists, longest), (sides, corners), (count, ends), (facets, 3), (edges, 2), (edges, 2)
    vertices = np.zeros((len(meshes), count), np.int32)
    around, *tables = (np.full((len(meshes), *shape), -1, np.int32) for shape in shapes)
    for row, mesh in enumerate(meshes):
        vertices[row], around[row] = padded_graph(topology, mesh, (count, lists, longest))
        for table, rows in zip(tables, (*_polygons(topology, mesh), *_outline(topology, mesh)), strict=True):
            table[row, : rows.shape[0], : rows.shape[1]] = rows
    return vertices, around, *tables


def polygon_rows(topology: Topology, meshes: tuple[int, ...], sides: int) -> np.ndarray:
    """Rows of mesh_polynormal (m, p) of so many polygons, with a row for a mesh; -1 where there is no more."""
    number = np.arange(sides)[None]
    first, count = (np.asarray(ids)[list(meshes)][:, None] for ids in (topology.mesh_polyadr, topology.mesh_polynum))
    return np.where(number < count, first + number, -1)


def padded_graph(topology: Topology, mesh: int, sizes: Sizes) -> tuple[np.ndarray, np.ndarray]:
    """Rows of mesh_vert (v,) and neighbours (v, n), or (1, n), of a mesh's hull, padded to sizes."""
    count, lists, longest = sizes
    graph, neighbours = _graph(topology, mesh)
    vertices, around = np.full(count, graph[0], np.int32), np.full((lists, longest), -1, np.int32)
    vertices[: len(graph)] = graph
    around[: len(neighbours), : neighbours.shape[1]] = neighbours
    # a list of all vertices is everybody's
    around[len(neighbours) :] = around[:1] if len(neighbours) == 1 else -1
    return vertices, around


@per_topology
def _places(topology: Topology, mesh: int) -> np.ndarray:
    """The place of each vertex of a mesh among those of the hull."""
    vertices = _graph(topology, mesh)[0] - int(topology.mesh_vertadr[mesh])
    place = np.zeros(int(topology.mesh_vertnum[mesh]), int)
    place[vertices] = np.arange(len(vertices))
    return place


@per_topology
def _polygons(topology: Topology, mesh: int) -> Polygons:
    """The polygons of a mesh's hull, of places among its own vertices."""
    place = _places(topology, mesh)
    first, number = int(topology.mesh_polyadr[mesh]), int(topology.mesh_polynum[mesh])
    lists = []
    for polygon in range(first, first + number):
        start, count = int(topology.mesh_polyvertadr[polygon]), int(topology.mesh_polyvertnum[polygon])
        lists.append(place[topology.mesh_polyvert[start : start + count]].tolist())
    return polygons_of(lists, len(_graph(topology, mesh)[0]))


@per_topology
def _outline(topology: Topology, mesh: int) -> Outline:
    """The outline of a mesh's hull, of places among its own vertices; empty for a mesh without one."""
    address = int(topology.mesh_graphadr[mesh])
    triangles = hull_triangles(topology.mesh_graph[address:]) if address >= 0 else np.zeros((0, 3), int)
    owner = topology.mesh_facet[slice(*facet_addresses(topology)[mesh : mesh + 2])]
    return outline_of(_places(topology, mesh)[triangles].tolist(), owner)


@per_topology
def _graph(topology: Topology, mesh: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of mesh_vert (v,) of a mesh's hull, and neighbours (v, n), or (1, n), as places among these.

    MuJoCo searches all vertices of small meshes, and then looks up the neighbours of the hull's vertex of that number,
    which may be another one. Without a graph all vertices are neighbours.
    """
    first, count = int(topology.mesh_vertadr[mesh]), int(topology.mesh_vertnum[mesh])
    if topology.mesh_graphadr[mesh] < 0:
        return first + np.arange(count), np.arange(count)[None]
    graph = topology.mesh_graph[int(topology.mesh_graphadr[mesh]) :]
    number, small = int(graph[0]), count < SEARCHED
    vertices, edges = graph[2 + number : 2 + 2 * number], graph[2 + 2 * number :]
    # the neighbours of each vertex end with -1
    starts = graph[2 : 2 + (count if small else number)].tolist()
    lists = [edges[start : start + int(np.argmax(edges[start:] < 0))] for start in starts]
    around = np.full((len(lists), max(map(len, lists))), -1)
    for row, neighbours in enumerate(lists):
        around[row, : len(neighbours)] = vertices[neighbours] if small else neighbours
    return first + (np.arange(count) if small else vertices), around
