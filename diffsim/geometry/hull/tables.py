"""Convex hulls of meshes as padded tables of integers: which vertices, polygons, facets and edges they have.

Sizes are rounded up, so that more assets have equal sizes and share a program. A hull has MuJoCo's polygons and an
outline: its triangles, and the edges between triangles that are not coplanar.

The distance of two hulls is the gap of some facet, edge or corner (`sat.py`). MuJoCo's polygons are not accurate enough
for it: in many meshes, they are flat only to a thousandth of the size. So each triangle is a facet, unless it is
coplanar with a neighbour. Triangles count as coplanar up to the rounding of float32, in which MuJoCo keeps vertices;
the edge between them is dropped. The compiler finds them: for each triangle of a hull, `mesh_facet` is the largest
triangle that is coplanar with it, which represents the facet.
"""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.enums import GeomType
from diffsim.types.topology import Topology, per_topology, rows_of
from diffsim.xla.gather import rows_at

# largest distance of a facet's vertices from its plane, relative to the size of the hull
FLAT = 1e-7
# number of corners that are kept of larger polygons (MuJoCo clips by the first 150)
MOST_CORNERS = 128
# rounds in which each connected part gives up one facet; triangles that are left become separate facets
ROUNDS = 8


class Lists(NamedTuple):
    """k lists of different lengths, one after another in `entry` (n,).

    List i is entry[start[i] : start[i + 1]]. `window` is 0, 1, ... up to the length of the longest list. This saves
    space: most polygons are triangles, and a few have a hundred corners.
    """

    entry: Any
    start: Any
    window: Any

    def row(self, number: jax.Array) -> jax.Array:
        """List `number` () as a row (w,), padded with -1."""
        begin = rows_at(self.start, number)
        end = rows_at(self.start, number + 1)
        return jnp.where(self.window < end - begin, rows_at(self.entry, begin + self.window), -1)

    def padded(self, lists: int, longest: int, entries: int) -> "Lists":
        """The same lists in longer arrays, followed by empty lists."""
        entry = np.zeros(entries, np.int32)
        start = np.full(lists + 1, self.start[-1], np.int32)
        entry[: self.start[-1]], start[: len(self.start)] = self.entry[: self.start[-1]], self.start
        return Lists(entry, start, np.arange(longest, dtype=np.int32))

    @property
    def sizes(self) -> tuple[int, int, int]:
        """The number of lists, the length of the longest, and the number of entries."""
        return len(self.start) - 1, len(self.window), len(self.entry)


def lists_of(lists: Sequence[Sequence[int] | np.ndarray]) -> Lists:
    """Lists as `Lists`, in arrays of at least one entry."""
    start = np.cumsum([0, *map(len, lists)])
    entry = np.concatenate([np.zeros(0, int), *(np.asarray(x, int) for x in lists)])
    longest = np.arange(max(1, *map(len, lists)) if lists else 1)
    return Lists(*(x.astype(np.int32) for x in (entry if len(entry) else np.zeros(1), start, longest)))


class Polygons(NamedTuple):
    """The polygons of a hull, and the other ends of the edges at each vertex.

    A polygon with more than 128 corners keeps its first three and others that are spread along it.
    """

    side: Lists
    joined: Lists


class Outline(NamedTuple):
    """Facets (f, 3), three corners of each, counterclockwise from outside; edges (e, 2) and their facets (e, 2).

    Seen from outside, the first facet is on the left of the edge.
    """

    facet: np.ndarray
    edge: np.ndarray
    flank: np.ndarray


def polygons_of(lists: list[list[int]], vertices: int) -> Polygons:
    """Polygons, counterclockwise from outside, and the edges at each vertex; `vertices` is the number of vertices."""
    ends: list[list[int]] = [[] for _ in range(vertices)]
    for polygon in lists:
        for here, there in zip(polygon, polygon[1:] + polygon[:1], strict=True):
            ends[here].append(there)
    return Polygons(lists_of([thinned(corners) for corners in lists]), lists_of(ends))


def thinned(polygon: list[int]) -> list[int]:
    """At most MOST_CORNERS corners: the first three, which define the normal, and others that are spread evenly."""
    if len(polygon) <= MOST_CORNERS:
        return polygon
    spread = np.linspace(0, len(polygon) - 1, MOST_CORNERS - 2).astype(int)
    return [polygon[k] for k in np.union1d(np.arange(3), spread)]


def outline_of(polygons: Sequence[Sequence[int]], owner: np.ndarray | None = None) -> Outline:
    """The outline of flat polygons, counterclockwise from outside. Polygons of one facet have the same `owner`."""
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
    """The triangles (n, 3) of a hull, as vertices of the mesh; `graph`: `mesh_graph` from the hull's address on."""
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


def first_places(keys: np.ndarray, values: np.ndarray) -> np.ndarray:
    """(n,) the index of each value's first occurrence among keys (m,); -1 if there is none."""
    order = np.argsort(keys, kind="stable")
    place = np.minimum(np.searchsorted(keys[order], values), max(len(order) - 1, 0))
    return np.where(keys[order[place]] == values, order[place], -1) if len(order) else np.full(len(values), -1)


def _twins(begin: np.ndarray, end: np.ndarray) -> np.ndarray:
    """(n,) for each directed edge, the index of the opposite edge, or -1."""
    span = max(begin.max(initial=0), end.max(initial=0)) + 1
    return first_places(begin * span + end, end * span + begin)


def linked_parts(links: np.ndarray, count: int) -> np.ndarray:
    """(count,) the connected component of each of `count` things; `links` (m, 2) join them."""
    # imported here: only models with meshes pay for it
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    graph = coo_array((np.ones(len(links)), (links[:, 0], links[:, 1])), shape=(count, count))
    return connected_components(graph, directed=False)[1]


def _representatives(vertex: np.ndarray, triangle: np.ndarray) -> np.ndarray:
    """For each triangle (n, 3), the index of the largest triangle of its facet, possibly itself."""
    corner = vertex[triangle]
    normal = np.cross(corner[:, 1] - corner[:, 0], corner[:, 2] - corner[:, 0])
    area = np.sqrt((normal * normal).sum(axis=1))
    limit = FLAT * np.ptp(vertex[np.unique(triangle)], axis=0).max()
    # unit normals; zero for a triangle without area
    unit = normal / np.where(area > 0, area, 1)[:, None]

    def flat(some: np.ndarray, planes: np.ndarray) -> np.ndarray:
        """Whether each of some triangles (k,) is in the plane of another one (k,)."""
        return np.abs(((corner[some] - corner[planes][:, :1]) * unit[planes][:, None]).sum(axis=2)).max(axis=1) <= limit

    # pairs of neighbours, where the smaller one is in the plane of the larger one
    twin = _twins(triangle.ravel(), np.roll(triangle, -1, axis=1).ravel())
    here = np.flatnonzero(twin >= 0)
    one = here // 3
    other = twin[here] // 3
    links = np.where((area[one] >= area[other])[:, None], np.stack([one, other], 1), np.stack([other, one], 1))
    links = links[flat(links[:, 1], links[:, 0])]
    number = np.arange(len(triangle))
    representative = number.copy()
    left = np.ones(len(triangle), bool)
    for _ in range(ROUNDS):
        largest = _largest_of_parts(links[left[links].all(axis=1)], area, left)
        joins = left & flat(number, largest)
        if not joins.any():
            break
        representative[joins] = largest[joins]
        left &= ~joins
    return representative


def _largest_of_parts(links: np.ndarray, area: np.ndarray, left: np.ndarray) -> np.ndarray:
    """(n,) the largest triangle that is still `left` (n,) in the component of each; `links` (m, 2) join triangles."""
    label = linked_parts(links, len(area))
    order = np.argsort(np.where(left, area, -1), kind="stable")
    largest = np.zeros(label.max(initial=-1) + 1, int)
    largest[label[order]] = order
    return largest[label]


# padded sizes of an asset's arrays; assets with equal sizes share a program
Sizes = tuple[int, ...]

SMALLEST = 8
# MuJoCo searches the hull of a mesh with at least this many vertices by hill climbing (mjMESH_HILLCLIMB_MIN)
SEARCHED = 10


def padded(count: int) -> int:
    """The next power of two, at least 8."""
    return max(SMALLEST, 1 << (count - 1).bit_length())


def _rounded(count: int) -> int:
    """The next multiple of 8; 0 stays 0. For sizes that need no padding to powers of two."""
    return SMALLEST * -(-count // SMALLEST)


def hull_sizes(topology: Topology, mesh: int) -> Sizes:
    """Padded sizes of a mesh's hull.

    The number of vertices is the mesh's own. The other sizes are the largest of all colliding meshes with at most so
    many vertices. So a pair of hulls has the sizes of the hull with more vertices. Meshes with an outline and meshes
    without one are treated separately.
    """
    vertices, *_, edges = _table_sizes(topology, mesh)
    count = padded(vertices)
    tables = [_table_sizes(topology, other) for other in _colliding(topology)]
    lesser = [sizes for sizes in tables if padded(sizes[0]) <= count and (sizes[-1] > 0) == (edges > 0)]
    _, lists, *others, facets, edges = (max(column) for column in zip(*lesser, strict=True))
    return count, count if lists > 1 else 1, *(padded(size) for size in others), _rounded(facets), _rounded(edges)


@per_topology
def _colliding(topology: Topology) -> list[int]:
    """The meshes of all geoms of type mesh."""
    geoms = np.flatnonzero(topology.geom_type == GeomType.MESH).tolist()
    return sorted({mesh for geom in geoms for mesh in topology.meshes_of(geom)})


def lesser_sizes(topology: Topology, first: np.ndarray, second: np.ndarray) -> Sizes:
    """Room for the vertices, facets and edges of the hull with fewer edges, in all pairs of meshes or boxes."""
    pairs = np.unique(np.stack([first, second]), axis=1).T.tolist()
    both_meshes = {pair for one, other in pairs for pair in product(topology.meshes_of(one), topology.meshes_of(other))}

    def outline(mesh: int) -> Sizes:
        """Vertices, facets and edges; -1 is a box."""
        vertices, *_, facets, edges = _table_sizes(topology, mesh) if mesh >= 0 else (8, 6, 12)
        return vertices, facets, edges

    both = [[outline(mesh) for mesh in pair] for pair in both_meshes]
    # if both have the same number of edges, either may count as the larger one
    fewer = [sizes for pair in both for sizes in pair if sizes[-1] == min(pair[0][-1], pair[1][-1])]
    vertices, facets, edges = (max(column) for column in zip(*fewer, strict=True))
    # not rounded up: edges are rows of the table of pairs of edges
    return _rounded(vertices), _rounded(facets), edges


def rim_sizes(topology: Topology, mesh: int) -> Sizes:
    """Padded sizes of the part of a mesh's hull that planes need."""
    vertices, around = _graph(topology, mesh)
    count = padded(len(vertices))
    lists, *others = around.sizes
    return count, count if lists > 1 else 1, *(padded(size) for size in others)


@per_topology
def _table_sizes(topology: Topology, mesh: int) -> Sizes:
    """Sizes before padding.

    The number of vertices; `Lists.sizes` of the neighbours, of the polygons, and (without the first) of the ends of
    edges at the vertices; the numbers of facets and edges.
    """
    vertices, around = _graph(topology, mesh)
    side, joined = _polygons(topology, mesh)
    outline = _outline(topology, mesh)
    lists = *around.sizes, *side.sizes, *joined.sizes[1:]
    return len(vertices), *lists, len(outline.facet), len(outline.edge)


class HullTables(NamedTuple):
    """The tables of `Hull` for m meshes, with a leading axis; `vertex` (m, v): rows of mesh_vert."""

    vertex: np.ndarray
    around: Lists
    side: Lists
    joined: Lists
    facet: np.ndarray
    edge: np.ndarray
    flank: np.ndarray


@per_topology
def stacked_hulls(topology: Topology, meshes: tuple[int, ...], sizes: Sizes) -> HullTables:
    """The tables of some meshes, padded to sizes."""
    count, *_, facets, edges = sizes
    tables = []
    for mesh in meshes:
        side, joined = _polygons(topology, mesh)
        lists = side.padded(*sizes[4:7]), joined.padded(count, *sizes[7:9])
        outline = [
            np.pad(rows, [(0, size - len(rows)), (0, 0)], constant_values=-1).astype(np.int32)
            for rows, size in zip(_outline(topology, mesh), (facets, edges, edges), strict=True)
        ]
        tables.append(HullTables(*padded_graph(topology, mesh, sizes[:4]), *lists, *outline))
    return jax.tree.map(lambda *rows: np.stack(rows), *tables)


def polygon_rows(topology: Topology, meshes: tuple[int, ...], sides: int) -> np.ndarray:
    """Rows of mesh_polynormal (m, p), one row for each mesh, padded with -1 to `sides` polygons."""
    number = np.arange(sides)[None]
    first, count = (np.asarray(ids)[list(meshes)][:, None] for ids in (topology.mesh_polyadr, topology.mesh_polynum))
    return np.where(number < count, first + number, -1)


def padded_graph(topology: Topology, mesh: int, sizes: Sizes) -> tuple[np.ndarray, Lists]:
    """Rows of mesh_vert (v,) and neighbours of a mesh's hull, padded to `sizes` (v, then the sizes of the lists)."""
    graph, around = _graph(topology, mesh)
    vertices = np.full(sizes[0], graph[0], np.int32)
    vertices[: len(graph)] = graph
    return vertices, around.padded(*sizes[1:])


@per_topology
def _places(topology: Topology, mesh: int) -> np.ndarray:
    """The index of each vertex of a mesh among the vertices of its hull."""
    vertices = _graph(topology, mesh)[0] - int(topology.mesh_vertadr[mesh])
    place = np.zeros(int(topology.mesh_vertnum[mesh]), int)
    place[vertices] = np.arange(len(vertices))
    return place


@per_topology
def _polygons(topology: Topology, mesh: int) -> Polygons:
    """The polygons of a mesh's hull, as indices of the hull's vertices."""
    place = _places(topology, mesh)
    polygons = np.arange(topology.nmeshpoly)[rows_of(topology, "mesh_poly", mesh)]
    corners = (topology.mesh_polyvert[rows_of(topology, "mesh_polyvert", polygon)] for polygon in polygons)
    lists = [place[corner].tolist() for corner in corners]
    return polygons_of(lists, len(_graph(topology, mesh)[0]))


@per_topology
def _outline(topology: Topology, mesh: int) -> Outline:
    """The outline of a mesh's hull, as indices of the hull's vertices; empty for a mesh without a hull."""
    address = int(topology.mesh_graphadr[mesh])
    triangles = hull_triangles(topology.mesh_graph[address:]) if address >= 0 else np.zeros((0, 3), int)
    owner = topology.mesh_facet[slice(*facet_addresses(topology)[mesh : mesh + 2])]
    return outline_of(_places(topology, mesh)[triangles].tolist(), owner)


@per_topology
def _graph(topology: Topology, mesh: int) -> tuple[np.ndarray, Lists]:
    """Rows of mesh_vert (v,) of a mesh's hull, and the neighbours as indices into these: v lists, or one for all.

    In a small mesh, MuJoCo compares all vertices. It then uses the number of the vertex in the mesh as a number in the
    hull to look up neighbours, so it may get another vertex's neighbours. The lists here reproduce this. Without a
    graph, all vertices are neighbours.
    """
    first, count = int(topology.mesh_vertadr[mesh]), int(topology.mesh_vertnum[mesh])
    if topology.mesh_graphadr[mesh] < 0:
        return first + np.arange(count), lists_of([range(count)])
    graph = topology.mesh_graph[int(topology.mesh_graphadr[mesh]) :]
    number = int(graph[0])
    small = count < SEARCHED
    vertices = graph[2 + number : 2 + 2 * number]
    edges = graph[2 + 2 * number :]
    # the neighbours of each vertex end with -1
    starts = graph[2 : 2 + (count if small else number)].tolist()
    lists = [edges[start : start + int(np.argmax(edges[start:] < 0))] for start in starts]
    around = lists_of([vertices[neighbours] if small else neighbours for neighbours in lists])
    return first + (np.arange(count) if small else vertices), around
