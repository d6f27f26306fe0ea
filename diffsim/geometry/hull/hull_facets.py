"""A convex hull as tables: its polygons, and its outline, the triangles and the edges where these bend.

All distances of hulls are those of some facet, edge or corner (`sat.py`). MuJoCo's polygons would leave some out: in
many meshes they are flat only to a thousandth of the size. So each triangle counts; but between triangles that are flat
to the rounding of float32, in which MuJoCo keeps vertices, there is no edge. Which these are is found when a model is
compiled, since it depends on vertices: `mesh_facet` says for each triangle of a hull which triangle stands for all that
it is flat with, the largest one.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

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
    return Polygons(_ragged([_thinned(each) for each in lists]), _ragged(ends))


def _thinned(polygon: list[int]) -> list[int]:
    """At most as many corners as are kept: the first three, which tell the normal, and others spread along it."""
    if len(polygon) <= MOST_CORNERS:
        return polygon
    spread = np.linspace(0, len(polygon) - 1, MOST_CORNERS - 2).astype(int)
    return [polygon[k] for k in np.union1d(np.arange(3), spread)]


def _ragged(lists: list[list[int]]) -> np.ndarray:
    """Lists as rows of a table, -1 where there are no more."""
    table = np.full((len(lists), max(map(len, lists), default=0)), -1)
    for row, each in enumerate(lists):
        table[row, : len(each)] = each
    return table


def outline_of(polygons: Sequence[Sequence[int]], owner: np.ndarray | None = None) -> Outline:
    """The outline of flat polygons, counterclockwise from outside. `owner`: of polygons that are one facet the same."""
    owner = np.arange(len(polygons)) if owner is None else owner
    edges = [(a, b, k) for k, each in enumerate(polygons) for a, b in zip(each, [*each[1:], each[0]], strict=True)]
    begin, end, side = (
        (np.array(column, int) for column in zip(*edges, strict=True)) if edges else np.zeros((3, 0), int)
    )
    other = _twins(begin, end)
    # an edge that is not between two polygons belongs to no closed hull
    right = np.where(other < 0, -1, owner[side[other]]) if len(edges) else other
    kept = (begin < end) & (other >= 0) & (right != owner[side])
    facet = np.array([each[:3] for each in polygons], int).reshape(-1, 3)
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
    own = [_representatives(vertex[first:], hull_triangles(graph[start:])) for start, first in starts if start >= 0]
    return {"mesh_facet": np.concatenate([np.zeros(0, int), *own]).astype(np.int32)}


def _twins(begin: np.ndarray, end: np.ndarray) -> np.ndarray:
    """For each directed edge the number of the one that runs back, or -1."""
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
    found, left = np.arange(len(triangle)), np.ones(len(triangle), bool)
    for _ in range(ROUNDS):
        largest = _largest_of_parts(links[left[links].all(axis=1)], area, left)
        height = np.abs(((corner - corner[largest][:, :1]) * unit[largest][:, None]).sum(axis=2)).max(axis=1)
        joins = left & (height <= limit)
        found[joins] = largest[joins]
        left &= ~joins
    return found


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
