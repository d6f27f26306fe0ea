"""The pair table: the function that finds the contacts of two geom types, its number of rows, and unsupported pairs.

The first geom of a pair has the smaller type number, as in MuJoCo. In MuJoCo, planes and height fields do not collide
with each other, so these pairs are not candidates.

A pair function sees geoms as shapes, together with the data of their type, such as the hull of a mesh (`DATA`). It runs
once over all pairs whose data are in one bucket (buckets.py).
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import GeomType
from diffsim.geometry.assets import geoms_exist
from diffsim.geometry.buckets import Asset, Bucket, Poses, bucket_of, gather, row_axes
from diffsim.geometry.hfield import PRISM_ROWS, any_window, prism_pair, prisms_under_body, terrains, window_sizes
from diffsim.geometry.hfield import SHARED as SHARED_TERRAIN
from diffsim.geometry.hull.faces import hull_faces
from diffsim.geometry.hull.graph import GRAPH, graph_sizes, graphs
from diffsim.geometry.hull.pairs import convex_hull_bound, convex_hull_pair, walks
from diffsim.geometry.hull.polytope import SHARED as SHARED_HULLS
from diffsim.geometry.hull.polytope import box_or_mesh_sizes, boxes_and_meshes, hulls, rims
from diffsim.geometry.hull.tables import SEARCHED, Sizes, hull_sizes, rim_sizes
from diffsim.geometry.primitive import box, box_box, boxes, plane_hull, primitives
from diffsim.geometry.sdf.data import ALL_OCTREES, field_number, fields
from diffsim.geometry.sdf.distances import field_distance
from diffsim.geometry.sdf.pairs import ROWS, field_pair, mesh_field, triangle_sizes, triangles_of
from diffsim.geometry.shapes import Candidates, Shape
from diffsim.geometry.smooth.flat import cylinder_faces
from diffsim.geometry.smooth.pairs import convex_pair
from diffsim.types.model import Model
from diffsim.types.topology import Topology, per_topology

# (shape1, shape2, margin) -> Candidates; a function that searches also takes whether the shapes are near
PairFunction = Callable[..., Candidates]
# (shape1, shape2, margin) -> (k parts (k) of the first shape, the number () of further parts that may touch)
Parts = Callable[[Shape, Shape, Array], tuple[Shape, Array]]
Types = tuple[GeomType, GeomType]


# m, the distance to a geom that does not exist
NOWHERE = 1e10


class Collider(NamedTuple):
    """The pair function of two types.

    Attributes:
      function: (shape1, shape2, margin) -> Candidates.
      rows: the number of rows that it returns; 0 means the number in the option `sdf_initpoints`.
      parts: for a first shape with many parts, such as a height field: chooses the few parts that the second shape may
        touch. `function` then gets one part.
      steady: a function whose rows keep their order while the shapes turn, if the rows of `function` do not; some
        integrators need it (simulate/integrate/events.py).
      revised: the function for models that follow MuJoCo 3.12, if it differs.
      fitted: sizes -> a function for two geoms of one type. The arrays of both have the larger geom's sizes, but one of
        the geoms has at most the given padded sizes.
      searches: whether `function` takes a fourth argument `near`; for shapes that are not near, it costs little.
      bound: (shape1, shape2, enough, near) -> a lower bound () of their distance, m, which is improved until it is at
        least `enough`; for shapes that are not near, any smaller number.
    """

    function: PairFunction
    rows: int
    parts: Parts | None = None
    steady: PairFunction | None = None
    fitted: Callable[[Sizes], PairFunction] | None = None
    revised: PairFunction | None = None
    searches: bool = False
    bound: Callable[[Shape, Shape, Array, Array], Array] | None = None


def _of_hulls(kind1: GeomType, rows: int) -> Collider:
    """The collider of a rounded hull and a mesh."""
    kinds = (kind1, GeomType.MESH)
    fitted = None
    if kind1 == GeomType.MESH and rows > 1:
        fitted = partial(convex_hull_pair, *kinds, rows)
    bound = partial(convex_hull_bound, kinds)
    return Collider(convex_hull_pair(*kinds, rows), rows, fitted=fitted, searches=True, bound=bound)


PLANE, HFIELD, SPHERE, CAPSULE, ELLIPSOID, CYLINDER, BOX, MESH, SDF = (GeomType(i) for i in range(9))

COLLIDERS: dict[Types, Collider] = {
    (PLANE, SPHERE): Collider(primitives.plane_sphere, 1),
    (PLANE, CAPSULE): Collider(primitives.plane_capsule, 2),
    (PLANE, ELLIPSOID): Collider(primitives.plane_ellipsoid, 1),
    (PLANE, CYLINDER): Collider(primitives.plane_cylinder, 4),
    (PLANE, BOX): Collider(primitives.plane_box, 4, steady=primitives.plane_box_steady),
    (PLANE, MESH): Collider(primitives.plane_mesh, 3),
    (PLANE, SDF): Collider(primitives.plane_mesh, 3),
    (SPHERE, SPHERE): Collider(primitives.sphere_sphere, 1),
    (SPHERE, CAPSULE): Collider(primitives.sphere_capsule, 1),
    (SPHERE, BOX): Collider(box.sphere_box, 1),
    (CAPSULE, BOX): Collider(box.capsule_box, 2),
    (SPHERE, CYLINDER): Collider(primitives.sphere_cylinder, 1),
    (BOX, BOX): Collider(box_box.box_box, box_box.ROWS, revised=boxes.boxes),
    (CAPSULE, CAPSULE): Collider(primitives.capsule_capsule, 2),
    **{
        (kind1, kind2): Collider(convex_pair(kind1, kind2, rows), rows, searches=True)
        for kind1, kind2, rows in (
            (SPHERE, ELLIPSOID, 1),
            (CAPSULE, ELLIPSOID, 1),
            (ELLIPSOID, ELLIPSOID, 1),
            (ELLIPSOID, CYLINDER, 1),
            (ELLIPSOID, BOX, 1),
            (CAPSULE, CYLINDER, 5),
            (CYLINDER, CYLINDER, 5),
            (CYLINDER, BOX, 5),
            (ELLIPSOID, MESH, 1),
            (CYLINDER, MESH, 5),
        )
    },
    **{(kind1, MESH): _of_hulls(kind1, rows) for kind1, rows in ((SPHERE, 1), (CAPSULE, 3), (BOX, 4), (MESH, 4))},
    **{(HFIELD, kind): Collider(prism_pair(kind), 1, partial(prisms_under_body, kind)) for kind in PRISM_ROWS},
    (MESH, SDF): Collider(mesh_field, ROWS),
    **{(kind, SDF): Collider(field_pair(kind), 0) for kind in (SPHERE, CAPSULE, ELLIPSOID, CYLINDER, BOX, SDF)},
}

# the colliders that replace the ones above if the `multiccd` flag is disabled
SINGLE: dict[Types, Collider] = {
    (kind1, kind2): Collider(convex_pair(kind1, kind2, 1), 1, searches=True)
    for kind1, kind2 in ((CAPSULE, CYLINDER), (CYLINDER, CYLINDER), (CYLINDER, BOX), (CYLINDER, MESH))
} | {(kind1, MESH): _of_hulls(kind1, 1) for kind1 in (CAPSULE, BOX, MESH)}

# MuJoCo does not collide them either
NEVER_COLLIDE: frozenset[Types] = frozenset({(PLANE, PLANE), (PLANE, HFIELD), (HFIELD, HFIELD)})

UNSUPPORTED: dict[Types, str] = {
    (HFIELD, SDF): "MuJoCo 3.8.1 makes no contacts between height fields and signed distance fields either",
}

# pairs that collide but have no distance
NO_DISTANCE: dict[Types, str] = {
    types: "distances to height fields are not computed; MuJoCo 3.8.1 refuses them in sensors too, but rays hit them"
    for types in (COLLIDERS | UNSUPPORTED)
    if types[0] == HFIELD
}

# colliders of models that follow a change of MuJoCo
LATER: dict[str, dict[Types, Collider]] = {
    "plane_mesh": {(PLANE, MESH): Collider(plane_hull.plane_hull, plane_hull.KEPT)},
    "face_depths": {
        (BOX, MESH): COLLIDERS[BOX, MESH]._replace(function=hull_faces(BOX, MESH)),
        (MESH, MESH): COLLIDERS[MESH, MESH]._replace(
            function=hull_faces(MESH, MESH), fitted=partial(hull_faces, MESH, MESH)
        ),
    },
    "round_faces": {
        (CAPSULE, MESH): COLLIDERS[CAPSULE, MESH]._replace(function=hull_faces(CAPSULE, MESH), rows=2),
        (CAPSULE, CYLINDER): Collider(cylinder_faces(CAPSULE, CYLINDER), 2, searches=True),
        (CYLINDER, CYLINDER): Collider(cylinder_faces(CYLINDER, CYLINDER), 4, searches=True),
        (CYLINDER, BOX): Collider(cylinder_faces(CYLINDER, BOX), 4, searches=True),
        (CYLINDER, MESH): Collider(cylinder_faces(CYLINDER, MESH), 4, searches=True),
    },
}

# the data of each type's shapes, besides pose and size
DATA: dict[GeomType, Asset] = {
    MESH: Asset(hull_sizes, hulls, SHARED_HULLS),
    HFIELD: Asset(any_window, terrains, SHARED_TERRAIN),
    SDF: Asset(field_number, fields, ALL_OCTREES, of_geoms=True),
}

# exceptions to DATA in certain pairs: a plane touches the hull of a field's surface, a field touches a mesh's triangles
DATA_IN_PAIRS: dict[Types, tuple[Asset | None, Asset | None]] = {
    (PLANE, SDF): (None, Asset(rim_sizes, rims, SHARED_HULLS)),
    (MESH, SDF): (Asset(triangle_sizes, triangles_of), None),
}
# exception to DATA for meshes in pairs whose search walks from vertex to vertex
GRAPHS = Asset(graph_sizes, graphs, SHARED_HULLS)


class ProgramKey(NamedTuple):
    """The properties of a geom that decide which program its pairs run: pairs of geoms with equal keys share one.

    Attributes:
      kind: its type.
      sizes: the padded sizes of its data.
      grid: for a height field, its number of cells along x and y, and its id. For another geom, three numbers for each
        height field: the columns and rows of cells that it spans, and the triangles that it can be over.
      mesh: the mesh id of a distance field, or of a mesh in a model with distance fields; otherwise -1.
      tiny: whether the geom can have a mesh with so few vertices that MuJoCo compares all of them.
    """

    kind: GeomType
    sizes: Sizes
    grid: Sizes
    mesh: int = -1
    tiny: bool = False


@per_topology
def program_key(topology: Topology, geom: int) -> ProgramKey:
    """The key of a geom."""
    kind, data = GeomType(topology.geom_type[geom]), int(topology.geom_dataid[geom])
    sizes = DATA[kind].room_for(topology, geom) if kind in DATA else ()
    if kind == HFIELD:
        return ProgramKey(kind, sizes, (int(topology.hfield_ncol[data]) - 1, int(topology.hfield_nrow[data]) - 1, data))
    spanned = tuple(topology.geom_fieldcells[geom].ravel().tolist())
    meshes = (MESH, SDF) if np.any(topology.geom_type == SDF) else ()
    tiny = kind == MESH and any(topology.mesh_vertnum[mesh] < SEARCHED for mesh in topology.meshes_of(geom))
    return ProgramKey(kind, sizes, spanned, data if kind in meshes else -1, tiny)


def common_sizes(topology: Topology, first: ProgramKey, second: ProgramKey) -> tuple[Sizes, Sizes]:
    """Padded sizes of the data of the first and of the second geom of a pair.

    If the search walks from vertex to vertex, the hulls are graphs. Two geoms of one type both get the larger sizes: so
    there is one program for each size, not for each pair of sizes. A height field gets a window as large as the other
    geom can span. The only size of a distance field is the number of its function, which stays as it is.
    """
    if (first.kind, second.kind) in DATA_IN_PAIRS:
        ends = zip(DATA_IN_PAIRS[first.kind, second.kind], (first, second), strict=True)
        sizes = [asset.sizes(topology, end.mesh) if asset is not None else end.sizes for asset, end in ends]
        return sizes[0], sizes[1]
    # where a plane touches a tiny mesh, MuJoCo uses other neighbours than the ones in the graph
    walking = walks((first.kind, second.kind), first.sizes, second.sizes)
    if walking and not (first.kind == PLANE and second.tiny):
        return GRAPH if first.kind == MESH else (), GRAPH
    if first.kind == HFIELD:
        *cells, field = first.grid
        return window_sizes(second.grid[3 * field : 3 * field + 3], tuple(cells)), second.sizes
    if first.kind != second.kind or first.kind == SDF:
        return first.sizes, second.sizes
    both = tuple(max(sizes) for sizes in zip(first.sizes, second.sizes, strict=True))
    return both, both


def distance_collider(types: Types) -> Collider:
    """The collider whose smallest row is the signed distance of two geoms, also if they penetrate.

    Usually it is the collider in the pair table. For pairs where MuJoCo runs its general convex collider, it returns
    the nearest points as one row. Distance fields have their own functions.
    """
    if types[1] == SDF and types[0] != PLANE:
        return Collider(field_distance(types[0]), 0)
    has_formula = PLANE in types or types == (SPHERE, CYLINDER)
    convex = ELLIPSOID in types or CYLINDER in types or types == (BOX, BOX)
    return Collider(convex_pair(*types, 1), 1) if convex and not has_formula else (COLLIDERS | SINGLE)[types]


@per_topology
def data_bucket(topology: Topology, kind: GeomType, sizes: Sizes) -> Bucket | None:
    """The assets of a geom type with these padded sizes; None if the type has no data."""
    return bucket_of(topology, (kind,), DATA[kind], sizes) if kind in DATA else None


@per_topology
def hull_bucket(topology: Topology, boxes: bool, sizes: Sizes) -> Bucket:
    """The hulls of meshes with these padded sizes; with `boxes`, also the hulls of boxes."""
    if sizes == GRAPH:
        return bucket_of(topology, (MESH,), GRAPHS, GRAPH)
    asset = Asset(box_or_mesh_sizes, boxes_and_meshes, SHARED_HULLS, of_geoms=True) if boxes else DATA[MESH]
    return bucket_of(topology, (BOX, MESH) if boxes else (MESH,), asset, sizes)


@per_topology
def pair_bucket(topology: Topology, types: Types, end: int, sizes: Sizes) -> Bucket | None:
    """`data_bucket` of the first (0) or second (1) geoms of pairs of two types."""
    asset = GRAPHS if sizes == GRAPH else DATA_IN_PAIRS.get(types, (None, None))[end]
    kind = types[end]
    return data_bucket(topology, kind, sizes) if asset is None else bucket_of(topology, (kind,), asset, sizes)


def distance_sizes(topology: Topology, types: Types, geom1: int, geom2: int) -> tuple[Sizes, Sizes]:
    """Padded sizes of the data of two geoms for `distances`."""
    first, second = program_key(topology, geom1), program_key(topology, geom2)
    return common_sizes(topology, first, second) if types in DATA_IN_PAIRS else (first.sizes, second.sizes)


def distances(
    model: Model, poses: Poses, types: Types, pairs: tuple[np.ndarray, np.ndarray], limit: Array
) -> Candidates:
    """Rows (n, k) for pairs (n,) of geoms; the smallest distance in the rows of a pair is its signed distance.

    Args:
      types: the types of the first and of the second geoms, the smaller number first.
      pairs: geoms (n,) and geoms (n,), all with the same `distance_sizes`.
      limit: (n,) m; rows further apart may be left out.
    """
    topology = model.topology
    sizes = distance_sizes(topology, types, int(pairs[0][0]), int(pairs[1][0]))
    buckets = [pair_bucket(topology, types, end, sizes[end]) for end in (0, 1)]
    shapes = [gather(model, poses, *end) for end in zip(pairs, buckets, strict=True)]
    axes = [row_axes(*end) for end in zip(shapes, buckets, strict=True)]
    rows = jax.vmap(distance_collider(types).function, (*axes, 0))(*shapes, limit)
    exist = geoms_exist(model)
    if exist is None:
        return rows
    both = (exist[pairs[0]] & exist[pairs[1]])[:, None]
    return rows._replace(valid=rows.valid & both, dist=jnp.where(both, rows.dist, NOWHERE))
