"""Convex hulls as arrays, and boxes, prisms, capsules and spheres as such hulls.

Spheres, capsules, boxes and meshes are hulls of points (one, two, eight, or the vertices of a mesh), rounded by a ball.
Source: Ericson 2005, ch. 9.3.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import GeomType
from diffsim.geometry.assets import geom_assets
from diffsim.geometry.hull.tables import (
    Lists,
    Sizes,
    hull_sizes,
    lists_of,
    outline_of,
    padded_graph,
    polygon_rows,
    polygons_of,
    stacked_hulls,
)
from diffsim.geometry.shapes import Shape
from diffsim.math import safe
from diffsim.math.vector import cross, dot, mul_vec, pack
from diffsim.types.model import Model
from diffsim.types.topology import Topology
from diffsim.xla.gather import entries_at, pick, pick_existing, pick_some, pick_static, rows_at
from diffsim.xla.select import greatest


class Hull(NamedTuple):
    """The convex hull of a mesh, in the frame of its geom.

    Attributes:
      vert: (v, 3) m, vertices; padded by copies of the first.
      around: the neighbours of each vertex in MuJoCo's order; a single list if all vertices are neighbours.
      box: (2, 3) m, lower and upper corner of the box around the vertices.
      side: the p polygons, as lists of vertices, counterclockwise from outside.
      normal: (p, 3) their unit normals, outward, by MuJoCo's rule.
      joined: for each vertex, the vertices that edges of polygons join to it.
      facet: (f, 3) three vertices of each facet, which may have several polygons; -1 for padding.
      outward: (f, 3) unit normals of the facets.
      edge: (e, 2) vertices of each edge between facets; -1 for padding.
      flank: (e, 2) the two facets at each edge; -1 for padding.
    """

    vert: Array
    around: Lists
    box: Array
    side: Lists
    normal: Array
    joined: Lists
    facet: Array
    outward: Array
    edge: Array
    flank: Array

    @property
    def whole(self) -> "Hull":
        """Itself."""
        return self

    @property
    def corners(self) -> Array:
        """The hull as a pair of hulls holds it (features.py): vertices (v, 3), m."""
        return self.vert

    def vertices(self, places: Array) -> Array:
        """Vertices (..., 3), m, at places (...)."""
        return rows_at(self.vert, places)

    def normals(self, sides: Array) -> Array:
        """Normals (..., 3) of polygons (...); zero where there are none."""
        return rows_at(self.normal, sides) if len(self.normal) else jnp.zeros((*jnp.shape(sides), 3), self.vert.dtype)

    def furthest(self, direction: Array, start: None = None, near: Array | bool = True) -> Array:
        """The vertex furthest along a direction (3,); the first one if several are equally far within rounding."""
        return greatest(jax.lax.stop_gradient(mul_vec(self.vert, direction)), ball_around(self.box))

    def neighbours(self, place: Array) -> Array:
        """The neighbours (w,) of a vertex in MuJoCo's order, padded with -1."""
        lists = len(self.around.start) - 1
        around = self.around.row(jnp.minimum(place, lists - 1))
        return jnp.where((lists == 1) & (around == place), -1, around)

    def sides_at(self, place: Array) -> tuple[Array, Array]:
        """(numbers (p,), normals (p, 3)) of all polygons, which include the ones at a vertex."""
        return jnp.arange(len(self.normal), dtype=jnp.int32), self.normal

    def facets_at(self, place: Array) -> tuple[Array, Array]:
        """(corners (f, 3), -1 for none, normals (f, 3)) of all facets, which include the ones at a vertex."""
        return self.facet, self.outward


class SharedHull(NamedTuple):
    """The hull at index `slot` () of a table that all geoms share: arrays of `table` have a leading axis of hulls.

    The tables of a mesh with hundreds of vertices are large, and a robot has hundreds of pairs of meshes. So a whole
    hull is read only for a pair that is searched. The closed forms after the search read only a few vertices.
    """

    table: Hull
    slot: Array

    @property
    def whole(self) -> Hull:
        """The hull by itself."""
        return jax.tree.map(lambda x: pick_existing(x, self.slot), self.table)

    @property
    def box(self) -> Array:
        """The box (2, 3) around the hull, m."""
        return pick_existing(self.table.box, self.slot)

    def vertices(self, places: Array) -> Array:
        """Vertices (..., 3), m, at places (...)."""
        return entries_at(self.table.vert, self.slot, places)

    def normals(self, sides: Array) -> Array:
        """Normals (..., 3) of polygons (...)."""
        return entries_at(self.table.normal, self.slot, sides)


def ball_around(box: Array) -> Array:
    """() m, the radius of a ball about the origin that contains a box (2, 3)."""
    return safe.norm(jnp.max(jnp.abs(box), axis=-2))


# fields of SharedHull that all geoms share, so that they are not gathered for each geom
SHARED = ("table",)


def hulls(model: Model, meshes: tuple[int, ...], sizes: Sizes) -> SharedHull:
    """The hulls of some meshes of one bucket, and the index of each hull."""
    tables = stacked_hulls(model.topology, meshes, sizes)
    vert = pick(model.mesh_vert, tables.vertex)
    normal = normals_of_lists(vert, tables.side)
    _, around, side, joined, facet, edge, flank = jax.tree.map(jnp.asarray, tables)
    outward = jax.vmap(polygon_normals)(vert, facet)
    rows = polygon_rows(model.topology, meshes, normal.shape[1])
    rounding = pick_some(model.mesh_polyrounding, rows.reshape(-1)).reshape(normal.shape)
    normal = jnp.where(rows[..., None] >= 0, safe.normalize(normal + rounding), 0)
    table = Hull(vert, around, boxes_of(vert), side, normal, joined, facet, outward, edge, flank)
    return SharedHull(table, jnp.arange(len(meshes), dtype=jnp.int32))


def rims(model: Model, meshes: tuple[int, ...], sizes: Sizes) -> SharedHull:
    """The hulls of some meshes of one bucket as planes need them: only vertices, neighbours and boxes."""
    tables = [padded_graph(model.topology, mesh, sizes) for mesh in meshes]
    vertices, around = jax.tree.map(lambda *rows: np.stack(rows), *tables)
    vert = pick(model.mesh_vert, vertices)
    around = jax.tree.map(jnp.asarray, around)
    nothing: Any = dict.fromkeys(Hull._fields[3:])
    table = Hull(vert, around, boxes_of(vert), **nothing)
    return SharedHull(table, jnp.arange(len(meshes), dtype=jnp.int32))


def boxes_of(vert: Array) -> Array:
    """(n, 2, 3) lower and upper corners of the boxes around vertices (n, v, 3)."""
    return jnp.stack([jnp.min(vert, axis=1), jnp.max(vert, axis=1)], axis=1)


def polygon_normals(vert: Array, side: Array) -> Array:
    """Unit normals (p, 3) of polygons (p, k): from the first three corners, or from all if these three are collinear.

    Zero where there is no polygon.
    """
    exists = side >= 0
    corner = vert[jnp.where(exists, side, side[:, :1])]
    spoke = corner - corner[:, :1]
    whole = jnp.sum(cross(spoke[:, 1:-1], spoke[:, 2:]), axis=1)
    return jnp.where(exists[:, :1], _by_first(spoke[:, 1], spoke[:, 2], whole), 0)


def normals_of_lists(vert: Array, side: Lists) -> Array:
    """`polygon_normals` (m, p, 3) of m hulls with vertices (m, v, 3); `side`: static, with a leading axis."""
    count = vert.shape[1]
    lengths = np.diff(side.start, axis=1)
    used = zip(side.entry, side.start[:, -1], strict=True)
    entry = np.concatenate([count * row + entries[:number] for row, (entries, number) in enumerate(used)])
    # triangles, then wider polygons: a triangle's area vector is the product of its two spokes, and most are triangles
    length = lengths.ravel()
    begin = np.cumsum(length) - length
    triangles = np.flatnonzero(length == 3)
    wide = np.flatnonzero(length > 3)
    existing = np.concatenate([triangles, wide])
    corner = vert.reshape(-1, 3)
    ends = corner[entry[begin[existing][:, None] + np.arange(3)]]
    one, other = ends[:, 1] - ends[:, 0], ends[:, 2] - ends[:, 0]
    # the area vectors of wide polygons: sums over all entries from the third corner on
    count_of_wide = length[wide] - 2
    polygon = np.repeat(np.arange(len(wide)), count_of_wide)
    last = begin[wide][polygon] + 2 + np.arange(len(polygon)) - (np.cumsum(count_of_wide) - count_of_wide)[polygon]
    first = corner[entry[begin[wide][polygon]]]
    areas = cross(corner[entry[last - 1]] - first, corner[entry[last]] - first)
    sums = jax.ops.segment_sum(areas, polygon, len(wide), indices_are_sorted=True)
    whole = jnp.concatenate([cross(one, other)[: len(triangles)], sums])
    # zeros for polygons that do not exist
    row = np.full(length.size, -1, np.int32)
    row[existing] = np.arange(len(existing))
    return pick_some(_by_first(one, other, whole), row).reshape(*lengths.shape, 3)


def _by_first(one: Array, other: Array, whole: Array) -> Array:
    """Unit normals (p, 3) from two spokes of each polygon, or from its area vector (p, 3) if they are parallel."""
    first = cross(one, other)
    clear = jax.lax.stop_gradient(dot(first, first) > 1e-14 * (dot(one, one) * dot(other, other)))
    return safe.normalize(jnp.where(clear[:, None], first, whole))


# corners of a box in units of its half sizes, the first coordinate changing fastest, and its sides
CORNERS = np.array([[x, y, z] for z in (-1, 1) for y in (-1, 1) for x in (-1, 1)])
BOX = [[1, 3, 7, 5], [0, 4, 6, 2], [2, 6, 7, 3], [0, 1, 5, 4], [4, 5, 7, 6], [0, 2, 3, 1]]
# sides of a prism: base 0, 1, 2 counterclockwise from above, top 3, 4, 5
PRISM = [[3, 4, 5], [0, 2, 1], *([k, (k + 1) % 3, (k + 1) % 3 + 3, k + 3] for k in range(3))]
# directions around the z axis: a segment along z has no faces, so these serve as normals around it
AROUND = np.array([[1, 0, 0], [0, 1, 0], [-1, 0, 0], [0, -1, 0]])


def core(kind: GeomType, shape: Shape) -> tuple[Hull | SharedHull, Array]:
    """(hull in the frame of the shape, radius in m of the ball around each of its points) of a shape."""
    size = shape.size
    none = jnp.zeros_like(shape.size[0])
    if kind == GeomType.SPHERE:
        return without_sides(jnp.zeros((1, 3), size.dtype)), size[0]
    if kind == GeomType.CAPSULE:
        up = pack([none, none, size[1]])
        return without_sides(jnp.stack([-up, up])), size[0]
    if kind == GeomType.BOX:
        return of_box(size), none
    return shape.data, none


def of_box(size: Array) -> Hull:
    """The hull of a box with half sizes (3,)."""
    return with_polygons(jnp.asarray(CORNERS, size.dtype) * size[None], BOX)


def with_polygons(vert: Array, polygons: list[list[int]]) -> Hull:
    """The hull of vertices (v, 3) with these polygons, counterclockwise from outside."""
    tables = polygons_of(polygons, len(vert)), outline_of(polygons)
    (side, joined), (facet, edge, flank) = (jax.tree.map(lambda x: jnp.asarray(x, jnp.int32), t) for t in tables)
    corners = [[*polygon, *[-1] * (len(side.window) - len(polygon))] for polygon in polygons]
    normal = polygon_normals(vert, jnp.asarray(corners, jnp.int32))
    return Hull(vert, joined, jnp.zeros_like(vert[:2]), side, normal, joined, facet, normal, edge, flank)


def without_sides(vert: Array, outward: Array | np.ndarray = AROUND) -> Hull:
    """The hull of a point (1, 3) or of a segment (2, 3).

    `outward` (4, 3): unit directions around the segment, by default for one along z. The segment is listed as an edge
    four times, each time between two neighbouring directions, a quarter of a turn apart.
    """
    quarters = np.arange(4 * (len(vert) - 1), dtype=np.int32)
    side, joined = (jax.tree.map(jnp.asarray, lists_of(lists)) for lists in ([], [[1], [0]] if len(vert) > 1 else [[]]))
    return Hull(
        vert=vert,
        around=joined,
        box=jnp.zeros_like(vert, shape=(2, 3)),
        side=side,
        normal=jnp.zeros((0, 3), vert.dtype),
        joined=joined,
        facet=jnp.full((len(quarters), 3), -1, jnp.int32),
        outward=jnp.asarray(outward, vert.dtype)[quarters],
        edge=jnp.broadcast_to(jnp.arange(2, dtype=jnp.int32), (len(quarters), 2)),
        flank=jnp.asarray(np.stack([quarters, (quarters + 1) % 4], axis=1)),
    )


# padded sizes of a box as a hull, in the order of `hull_sizes`
BOX_SIZES = (8, 1, 8, 8, 8, 8, 32, 8, 32, 8, 16)


def box_or_mesh_sizes(topology: Topology, geom: int) -> Sizes:
    """Padded sizes of a geom's hull, with room for every mesh that the geom can have."""
    if topology.geom_type[geom] != GeomType.MESH:
        return BOX_SIZES
    sizes = [hull_sizes(topology, mesh) for mesh in topology.meshes_of(geom)]
    return tuple(max(column) for column in zip(*sizes, strict=True))


def boxes_and_meshes(model: Model, geoms: tuple[int, ...], sizes: Sizes) -> SharedHull:
    """The hulls of some boxes and meshes, and the index of each hull."""
    topology = model.topology
    kinds = topology.geom_type[np.array(geoms, int)]
    boxes = [geom for geom, kind in zip(geoms, kinds, strict=True) if kind == GeomType.BOX]
    meshes = tuple(sorted({mesh for geom in geoms if geom not in boxes for mesh in topology.meshes_of(geom)}))
    box = jax.vmap(lambda size: _box(size, sizes))(pick(model.geom_size, np.array(boxes, int)))
    table = jax.tree.map(lambda *x: jnp.concatenate(x), box, hulls(model, meshes, sizes).table) if meshes else box
    # boxes come first, then meshes
    place = np.zeros(topology.nmesh + 1, np.int32)
    place[list(meshes)] = len(boxes) + np.arange(len(meshes))
    mesh = geom_assets(model)[np.array(geoms, int)]
    is_box = kinds == GeomType.BOX
    library = np if isinstance(mesh, np.ndarray) else jnp
    # the mesh of a box is -1
    slot = library.where(is_box, np.cumsum(is_box) - 1, pick_static(place, library.maximum(mesh, 0)))
    return SharedHull(table, jnp.asarray(slot, jnp.int32))


def _box(size: Array, sizes: Sizes) -> Hull:
    """The hull of a box, in arrays padded to `sizes`."""
    vertices, *_, facets, edges = sizes
    hull = of_box(size)
    vert = jnp.concatenate([hull.vert, jnp.broadcast_to(hull.vert[:1], (vertices - len(CORNERS), 3))])
    side, joined = polygons_of(BOX, len(CORNERS))
    lists = lists_of([]).padded(*sizes[1:4]), side.padded(*sizes[4:7]), joined.padded(vertices, *sizes[7:9])
    around, side, joined = jax.tree.map(jnp.asarray, lists)
    return Hull(
        vert=vert,
        around=around,
        box=jnp.stack([-size, size]),
        side=side,
        normal=_padded(hull.normal, (sizes[4], 3), 0),
        joined=joined,
        facet=_padded(hull.facet, (facets, 3), -1),
        outward=_padded(hull.outward, (facets, 3), 0),
        edge=_padded(hull.edge, (edges, 2), -1),
        flank=_padded(hull.flank, (edges, 2), -1),
    )


def _padded(table: Array, shape: tuple[int, int], value: int) -> Array:
    return jnp.pad(
        table, [(0, size - length) for size, length in zip(shape, table.shape, strict=True)], constant_values=value
    )
