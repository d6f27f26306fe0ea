"""Hulls with many vertices as graphs, one after another and without padding; searches walk along their edges.

In a small hull, all vertices are compared to find the furthest one along a direction. With thousands of vertices, hill
climbing is quicker: a walk goes on to the neighbour furthest along the direction until no neighbour is further. The
touching feature is then found among the polygons and facets at one vertex. So the work grows only with the length of
the walks (the first walk is the longest), and one program serves hulls of any size.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.geometry.hull.polytope import boxes_of, normals_of_lists, polygon_normals
from diffsim.geometry.hull.tables import Lists, Sizes, hull_triangles, lists_of, thinned
from diffsim.math import safe
from diffsim.math.vector import total, unpack
from diffsim.types.model import Model
from diffsim.types.topology import Topology, per_topology
from diffsim.xla.batched_searches import in_groups
from diffsim.xla.gather import pick, pick_existing
from diffsim.xla.loops import while_loop
from diffsim.xla.select import first

# number of neighbours that are compared at once: a vertex has six on average
ABREAST = 8


class HullGraph(NamedTuple):
    """The hulls of some meshes, one after another: vertices, polygons and facets are numbered consecutively.

    `vert` (v, 3): vertices, m. `begin` (m,): the first vertex of each hull. `box` (m, 2, 3): the box around each, m.
    For each vertex, `around`: its neighbours; `joined`: the other ends of the polygons' edges; `sides_at`: its
    polygons; `facets_at`: its facets. `side`: the corners of the polygons, `normal` (p, 3): their unit normals
    by MuJoCo's rule, outward. `facet` (f, 3): triangles, `outward` (f, 3): their unit normals.
    """

    vert: Array
    begin: Array
    box: Array
    around: Lists
    joined: Lists
    sides_at: Lists
    facets_at: Lists
    side: Lists
    normal: Array
    facet: Array
    outward: Array


class GraphHull(NamedTuple):
    """The hull at index `slot` () of a graph. Indices of vertices count through the whole graph."""

    table: HullGraph
    slot: Array

    @property
    def whole(self) -> "GraphHull":
        """Itself: a walk reads only the part of the graph that it passes."""
        return self

    @property
    def corners(self) -> "GraphHull":
        """The hull as `HullPair` holds it: the graph."""
        return self

    @property
    def box(self) -> Array:
        """The box (2, 3) around the hull, m."""
        return pick_existing(self.table.box, self.slot)

    @property
    def side(self) -> Lists:
        """The corners of polygons."""
        return self.table.side

    @property
    def joined(self) -> Lists:
        """The other ends of the polygons' edges at each vertex."""
        return self.table.joined

    def vertices(self, places: Array) -> Array:
        """Vertices (..., 3), m, at places (...)."""
        return pick_existing(self.table.vert, places)

    def normals(self, sides: Array) -> Array:
        """Normals (..., 3) of polygons (...)."""
        return pick_existing(self.table.normal, sides)

    def sides_at(self, place: Array) -> tuple[Array, Array]:
        """(numbers (k,), normals (k, 3), zero for none) of the polygons at a vertex."""
        numbers = self.table.sides_at.row(place)
        return numbers, jnp.where(numbers[:, None] >= 0, self.normals(jnp.maximum(numbers, 0)), 0)

    def facets_at(self, place: Array) -> tuple[Array, Array]:
        """(corners (k, 3), -1 for none, normals (k, 3)) of the facets at a vertex."""
        numbers = self.table.facets_at.row(place)
        facet, outward = (pick_existing(x, jnp.maximum(numbers, 0)) for x in (self.table.facet, self.table.outward))
        return jnp.where(numbers[:, None] >= 0, facet, -1), outward

    def furthest(self, direction: Array, start: Array | None = None, near: Array | bool = True) -> Array:
        """The vertex furthest along a direction (3,), by a walk from `start`; any vertex if the pair is not `near` ().

        As in MuJoCo, each step goes to the highest neighbour; without `start`, the walk begins at the first vertex.
        """
        start = pick_existing(self.table.begin, self.slot) if start is None else start
        inputs = jax.lax.stop_gradient((self.table.vert, self.table.around, direction, start))
        return jnp.where(near, in_groups(lambda _, inputs: _walk(*inputs), near, inputs), start)

    def neighbours(self, place: Array) -> Array:
        """The neighbours (w,) of a vertex in MuJoCo's order, padded with -1."""
        return self.table.around.row(place)


class _Step(NamedTuple):
    """The state of a walk: the vertex; its neighbours from `next` to `end` are left; the best so far and its height."""

    vertex: Array
    next: Array
    end: Array
    best: Array
    height: Array


def _walk(vert: Array, around: Lists, direction: Array, start: Array) -> Array:
    """The vertex furthest along a direction (3,); each step goes to the highest neighbour."""

    def reach(vertex: Array) -> list[Array]:
        return [pick_existing(around.start, vertex + k) for k in (0, 1)]

    def further(step: _Step) -> _Step:
        places = step.next + np.arange(ABREAST, dtype=np.int32)
        neighbours = pick_existing(around.entry, places)
        heights = jnp.where(places < step.end, heights_along(pick_existing(vert, neighbours), direction), -jnp.inf)
        height = jnp.max(heights)
        best = jnp.where(height > step.height, neighbours[first(heights >= height)], step.best)
        goes = (places[-1] + 1 >= step.end) & (best != step.vertex)
        begin, end = reach(best)
        place = jnp.where(goes, begin, places[-1] + 1), jnp.where(goes, end, step.end)
        return _Step(jnp.where(goes, best, step.vertex), *place, best, jnp.maximum(height, step.height))

    begin, end = reach(start)
    first_step = _Step(start, begin, end, start, heights_along(pick_existing(vert, start), direction))
    return while_loop(lambda step: step.next < step.end, further, first_step).vertex


def heights_along(vert: Array, direction: Array) -> Array:
    """Heights of vertices (..., 3) along a direction (3,)."""
    return total([x * d for x, d in zip(unpack(vert), unpack(direction), strict=True)])


# stands for the padded sizes of hulls in a graph, which need no padding; no other data have this value
GRAPH: Sizes = (-1,)


def graph_sizes(topology: Topology, mesh: int) -> Sizes:
    """`GRAPH` for a mesh with a graph, otherwise sizes that do not fit in it."""
    return GRAPH if topology.mesh_graphadr[mesh] >= 0 else (0,)


def graphs(model: Model, meshes: tuple[int, ...], _: Sizes) -> GraphHull:
    """The hulls of some meshes as one graph, and the index of each hull in it."""
    tables = _tables(model.topology, meshes)
    vert = pick(model.mesh_vert, tables.vertex)
    facet = jnp.asarray(tables.facet)
    normal = normals_of_lists(vert[None], jax.tree.map(lambda x: x[None], tables.side))[0]
    normal = safe.normalize(normal + pick(model.mesh_polyrounding, tables.polygon))
    parts = np.split(np.arange(len(tables.vertex)), tables.begin[1:])
    box = jnp.concatenate([boxes_of(pick(vert, part)[None]) for part in parts])
    table = HullGraph(
        vert=vert,
        begin=jnp.asarray(tables.begin),
        box=box,
        around=jax.tree.map(jnp.asarray, tables.around),
        joined=jax.tree.map(jnp.asarray, tables.joined),
        sides_at=jax.tree.map(jnp.asarray, tables.sides_at),
        facets_at=jax.tree.map(jnp.asarray, tables.facets_at),
        side=jax.tree.map(jnp.asarray, tables.side),
        normal=normal,
        facet=facet,
        outward=polygon_normals(vert, facet),
    )
    return GraphHull(table, jnp.arange(len(meshes), dtype=jnp.int32))


class GraphTables(NamedTuple):
    """The hulls of m meshes, one after another: v vertices, p polygons and f triangles, numbered consecutively.

    `vertex` (v,): rows of mesh_vert; `begin` (m,): the first vertex of each hull; `around`: the neighbours of each
    vertex in MuJoCo's order. `polygon` (p,): rows of mesh_polynormal; `side`: the corners of each polygon, `joined` and
    `sides_at`: the other ends of the polygons' edges at each vertex, and the polygons there. `facet` (f, 3): the
    triangles, and `facets_at` the triangles at each vertex.
    """

    vertex: np.ndarray
    begin: np.ndarray
    around: Lists
    polygon: np.ndarray
    side: Lists
    joined: Lists
    sides_at: Lists
    facet: np.ndarray
    facets_at: Lists


@per_topology
def _tables(topology: Topology, meshes: tuple[int, ...]) -> GraphTables:
    """The tables of some meshes that have a graph."""
    columns: list[tuple[np.ndarray, ...]] = []
    vertices = polygons = 0
    for mesh in meshes:
        graph = topology.mesh_graph[int(topology.mesh_graphadr[mesh]) :]
        count, faces = graph[:2].tolist()
        hull, edges = np.split(graph[2 + count : 2 + 3 * count + 3 * faces], [count])
        place = np.zeros(int(topology.mesh_vertnum[mesh]), int)
        place[hull] = vertices + np.arange(count)
        # the list of neighbours of each vertex ends with -1
        owner = np.cumsum(edges < 0) - (edges < 0)
        rows = int(topology.mesh_polyadr[mesh]) + np.arange(int(topology.mesh_polynum[mesh]))
        length, start = topology.mesh_polyvertnum[rows], topology.mesh_polyvertadr[rows]
        # the polygon of each corner, and the number of the corner in it
        side = np.repeat(np.arange(len(rows)), length)
        number = np.arange(len(side)) - np.repeat(np.cumsum(length) - length, length)
        corner, following = (
            place[topology.mesh_polyvert[start[side] + k]] for k in (number, (number + 1) % length[side])
        )
        around = vertices + owner[edges >= 0], vertices + edges[edges >= 0]
        of_polygons = rows, polygons + side, corner, following
        columns.append((int(topology.mesh_vertadr[mesh]) + hull, *around, place[hull_triangles(graph)], *of_polygons))
        vertices = vertices + count
        polygons = polygons + len(rows)
    joined = (np.concatenate(column) for column in zip(*columns, strict=True))
    vertex, owner, neighbour, facet, polygon, side, corner, following = joined
    begin = np.cumsum([0, *(len(column[0]) for column in columns[:-1])])
    sides = [thinned(corners.tolist()) for corners in np.split(corner, np.flatnonzero(np.diff(side)) + 1)]
    neighbours = _grouped(owner, neighbour, vertices)
    # a walk may read beyond the last list
    neighbours = neighbours._replace(entry=np.append(neighbours.entry, np.zeros(ABREAST, np.int32)))
    return GraphTables(
        vertex.astype(np.int32),
        begin.astype(np.int32),
        neighbours,
        polygon,
        lists_of(sides),
        _grouped(corner, following, vertices),
        _grouped(corner, side, vertices),
        facet.astype(np.int32),
        _grouped(facet.ravel(), np.repeat(np.arange(len(facet)), 3), vertices),
    )


def _grouped(owner: np.ndarray, values: np.ndarray, count: int) -> Lists:
    """For each of `count` owners, the list of its values."""
    start = np.append(0, np.cumsum(np.bincount(owner, minlength=count)))
    window = np.arange(max(1, np.diff(start).max(initial=1)))
    return Lists(*(x.astype(np.int32) for x in (values[np.argsort(owner, kind="stable")], start, window)))
