"""mesh_rows: mesh assets, from their source to the fields of the model.

A mesh is read (file, numbers, or builtin), moved by refpos, refquat and scale, and then to its own inertial frame:
mesh_pos and mesh_quat say where that was, and the geoms that use the mesh move with it. Meshes that may collide get
their convex hull. Vertices and normals are rounded to float32, as the oracle stores them.
Source: MuJoCo "XML reference", mesh; user_mesh.cc (3.8.1) for the order of the steps.
"""

from dataclasses import dataclass, replace
from math import sqrt
from typing import Any

import numpy as np

from diffsim.compiler.assets.hull import (
    Hull,
    Polygons,
    convex_hull,
    graph,
    polygon_normals,
    polygons,
    polygons_of_vertices,
)
from diffsim.compiler.assets.limits import (
    MOST_FACES,
    MOST_IN_ALL,
    MOST_VERTICES,
    AssetError,
    check_count,
    contents,
    kind_of,
    refuse,
)
from diffsim.compiler.assets.mesh_files import KINDS, read_mesh
from diffsim.compiler.assets.mesh_shapes import builtin_surface
from diffsim.compiler.assets.surface import (
    SMALLEST,
    Surface,
    inertia,
    repeated_edge,
    triangles,
    unit_or_up,
    vertex_normals,
    volume_and_center,
)
from diffsim.compiler.draft import Draft, Node
from diffsim.compiler.orientation import IDENTITY, diagonalize, matrix, unit
from diffsim.compiler.topology import addresses, or_minus_one
from diffsim.enums import GeomType

Array = np.ndarray
Fields = dict[str, Any]

# how far a principal moment may exceed the sum of the two others, absolute and relative
TRIANGLE_ABSOLUTE, TRIANGLE_RELATIVE = 1e-9, 1e-6

# coordinates may be as large as everywhere in MuJoCo (mjMAXVAL)
FURTHEST = 1e10

# arrays of an element: what they are called in Surface, and their width
INLINE = {"vertex": 3, "face": 3, "normal": 3, "texcoord": 2}
SEEN = ("normal", "texcoord")


@dataclass(frozen=True)
class Mesh:
    """A compiled mesh, in its inertial frame.

    surface: vertices and triangles. pos, quat: the inertial frame seen from where the source put the mesh.
    volume: of the body, area of a shell. box: half sizes of the box of equal inertia. low, high: corners of the
    bounding box. hull, polygons: None where the mesh needs none; polynormal: (npolygon, 3).
    """

    surface: Surface
    pos: Array
    quat: Array
    scale: Array
    volume: float
    box: Array
    low: Array
    high: Array
    hull: Hull | None
    polygons: Polygons | None
    polynormal: Array

    @property
    def reach(self) -> Array:
        """Half sizes of the smallest box around the origin that holds the mesh."""
        return np.maximum(np.abs(self.low), np.abs(self.high))


def mesh_rows(draft: Draft) -> None:
    """Compile all meshes: `node.row["mesh"]` of each, and the mesh fields of the model."""
    hulls, total = _colliding(draft), 0
    for node in draft.nodes["mesh"]:
        try:
            source = _source(draft, node)
            total += len(source.vertex) + len(source.face)
            check_count(total, MOST_IN_ALL, "vertices and triangles together with the meshes before it")
            node.row["mesh"] = compile_mesh(node.e, source, node.name in hulls)
        except AssetError as error:
            refuse(draft, node, error)
    draft.problems.raise_if_any()
    draft.fields.update(_fields([node.row["mesh"] for node in draft.nodes["mesh"]]))


def _colliding(draft: Draft) -> set[str]:
    """Names of the meshes of geoms that may touch something."""
    paired = {name for node in draft.nodes["pair"] for name in (node.e.geom1, node.e.geom2)}
    geoms = [node for node in draft.nodes["geom"] if node.e.type in (GeomType.MESH, GeomType.SDF)]
    return {node.e.mesh for node in geoms if node.e.contype or node.e.conaffinity or node.name in paired}


# ------------------------------------------------------------------------------------------------------------ sources


def _source(draft: Draft, node: Node) -> Surface:
    """The surface as the element gives it. Raises AssetError."""
    e = node.e
    found = Surface(np.zeros((0, 3), np.float32))
    if e.file_:
        found = _from_file(draft, node)
    elif e.builtin != "none":
        found = builtin_surface(e.builtin, e.params if e.params is not None else np.zeros(0))
    own = {name: values for name in INLINE if (values := getattr(e, name)) is not None}
    for name, values in own.items():
        if len(getattr(found, name)):
            raise AssetError(f"attribute '{name}' is given, but the mesh has one already")
        if len(values) % INLINE[name]:
            raise AssetError(f"attribute '{name}': {len(values)} numbers are no multiple of {INLINE[name]}")
        kind = np.int32 if name == "face" else np.float32
        with np.errstate(over="ignore"):
            own[name] = np.clip(values, -(2**31), 2**31 - 1).astype(kind) if name == "face" else values.astype(kind)
        own[name] = own[name].reshape(-1, INLINE[name])
    found = replace(found, **own)
    # what is only seen may be damaged: a normal that is no number will point up
    seen = {name: np.where(np.isfinite(array), array, 0) for name in SEEN if len(array := getattr(found, name))}
    found = replace(found, **seen)
    _check(found, obj=_kind(e) == "model/obj")
    return found


def _kind(e: Any) -> str:
    return kind_of(e.file_, e.content_type, KINDS) if e.file_ else ""


def _from_file(draft: Draft, node: Node) -> Surface:
    """The surface of a mesh file; triangles of a mirrored MSH are turned once by the file, and once more later."""
    e = node.e
    found = read_mesh(e.file_, contents(draft, node), e.content_type)
    if _kind(e) == KINDS[".msh"] and e.scale.prod() <= 0:
        return replace(found, face=found.face[:, [0, 2, 1]])
    return found


def _check(surface: Surface, obj: bool) -> None:
    """Raises AssetError where a surface is too small, too large, or refers to what is not there."""
    nvert = len(surface.vertex)
    if nvert < 4:
        raise AssetError(f"a mesh has at least 4 vertices, not {nvert}")
    check_count(nvert, MOST_VERTICES, "vertices")
    check_count(len(surface.face), MOST_FACES, "triangles")
    _check_reach(surface.vertex)
    if len(surface.face) and not (surface.face.min() >= 0 and surface.face.max() < nvert):
        wrong = np.argmax(((surface.face < 0) | (surface.face >= nvert)).any(axis=1))
        raise AssetError(f"triangle {wrong} uses vertices {surface.face[wrong].tolist()}, of which there are {nvert}")
    if len(surface.texcoord) not in (0, nvert) and not len(surface.facetexcoord) and not obj:
        raise AssetError(f"{len(surface.texcoord)} texture coordinates for {nvert} vertices")


def _check_reach(vertex: Array) -> None:
    """Raises AssetError where a vertex is so far out that products of coordinates lose their meaning."""
    if not (np.abs(vertex) <= FURTHEST).all():
        raise AssetError(f"a vertex is not finite, or further out than {FURTHEST:g}")


# ------------------------------------------------------------------------------------------------------------ compile


def compile_mesh(e: Any, source: Surface, collides: bool) -> Mesh:
    """A mesh in its inertial frame.

    Args:
      e: the `<mesh>` with all attributes filled.
      source: its surface.
      collides: whether the convex hull is needed.

    Raises:
      AssetError: the surface has no volume, or is not closed where that matters.
    """
    kind = "shell" if e.builtin == "plate" else e.inertia
    vertex = source.vertex.astype(float)
    edge = repeated_edge(vertex, source.face) if kind == "exact" else None
    if edge:
        raise AssetError(f"triangles at vertices {edge[0] + 1} and {edge[1] + 1} have inconsistent orientation")
    rim = sides = None
    if collides or kind == "convex" or not len(source.face):
        rim = convex_hull(vertex, e.maxhullvert)
        sides = polygons(vertex, rim)
    surface = _completed(source, vertex, rim, e.smoothnormal)
    surface = _mirrored(surface) if e.scale.prod() <= 0 else surface
    vertex, normal = _placed(e, vertex, surface.normal.astype(float))
    _check_reach(vertex)
    solid = rim.face if kind == "convex" and rim else surface.face
    pos, quat, volume, box = _inertial_frame(vertex, surface.face, solid, kind)
    axes = matrix(quat)
    vertex = (vertex - pos) @ axes
    polynormal = polygon_normals(vertex, sides) if sides else np.zeros((0, 3))
    low, high = vertex.min(axis=0), vertex.max(axis=0)
    surface = replace(surface, vertex=vertex.astype(np.float32), normal=(normal @ axes).astype(np.float32))
    return Mesh(surface, pos, quat, e.scale, volume, box, low, high, rim, sides, polynormal)


def _completed(source: Surface, vertex: Array, rim: Hull | None, smooth: bool) -> Surface:
    """A surface with triangles and normals: where the source has none, those of the hull, and means of the faces'."""
    face = source.face if len(source.face) or rim is None else rim.face
    normal, facenormal, facetexcoord = source.normal, source.facenormal, source.facetexcoord
    if not len(normal):
        normal, facenormal = vertex_normals(vertex, face, smooth).astype(np.float32), face
    if not len(facenormal):
        facenormal = face * (len(normal) // len(vertex))
    if len(source.texcoord) and not len(facetexcoord):
        facetexcoord = face
    if not len(facetexcoord):
        facetexcoord = np.zeros_like(face)
    return Surface(source.vertex, face, normal, source.texcoord, facenormal, facetexcoord)


def _mirrored(surface: Surface) -> Surface:
    """Triangles the other way round, for a scale that mirrors."""
    turned = {name: getattr(surface, name)[:, [0, 2, 1]] for name in ("face", "facenormal", "facetexcoord")}
    return replace(surface, **turned)


def _placed(e: Any, vertex: Array, normal: Array) -> tuple[Array, Array]:
    """Vertices and normals moved back by refpos, turned back by refquat, then scaled."""
    vertex = vertex - e.refpos
    if tuple(e.refquat) != IDENTITY:
        axes = matrix(unit(e.refquat)[0])
        vertex, normal = vertex @ axes, normal @ axes
    return vertex * e.scale, unit_or_up(normal * e.scale)


def _inertial_frame(vertex: Array, face: Array, solid: Array, kind: str) -> tuple[Array, Array, float, Array]:
    """Center, principal axes, volume (area of a shell), and half sizes of the box of equal inertia.

    face: triangles of the surface, around whose centroid pyramids are built; solid: those that bound the volume.
    """
    shell, absolute = kind == "shell", kind == "legacy"
    whole = triangles(vertex, face)
    if not whole.area.sum() >= SMALLEST:
        raise AssetError("the surface of the mesh is too small")
    center = whole.centroid
    if not shell:
        volume, center = volume_and_center(triangles(vertex, solid), whole.centroid, absolute)
        if volume < 0:
            raise AssetError("the volume of the mesh is negative: triangles are inside out")
        if not volume >= SMALLEST:
            raise AssetError("the volume of the mesh is too small", 'try inertia="shell"')
    volume, full = inertia(vertex - center, solid, shell, absolute)
    moments, quat = diagonalize(full)
    _check_moments(moments)
    # a solid box of unit density with these moments
    sides = (moments.sum() - 2 * moments) * 6 / volume
    return center, quat, volume, np.array([sqrt(max(0.0, side)) / 2 for side in sides])


def _check_moments(moments: Array) -> None:
    if not np.isfinite(moments).all() or moments[2] <= 0:
        raise AssetError("the inertia of the mesh has no positive eigenvalues", "is it flat?")
    allowed = moments * (1 - TRIANGLE_RELATIVE) - TRIANGLE_ABSOLUTE
    if (moments.sum() - moments < allowed).any():
        raise AssetError("the inertia of the mesh violates A + B >= C", 'mend its triangles, or try inertia="convex"')


# ------------------------------------------------------------------------------------------------------------- fields


def _fields(meshes: list[Mesh]) -> Fields:
    """The mesh fields of the model."""
    surfaces = [mesh.surface for mesh in meshes]
    return {
        **_blocks("mesh_vert", "nmeshvert", [s.vertex for s in surfaces], 3),
        **_blocks("mesh_normal", "nmeshnormal", [s.normal for s in surfaces], 3),
        **_blocks("mesh_face", "nmeshface", [s.face for s in surfaces], 3),
        **_texcoords(surfaces),
        "mesh_facenormal": _stacked([s.facenormal for s in surfaces], 3),
        "mesh_facetexcoord": _stacked([s.facetexcoord for s in surfaces], 3),
        "mesh_pos": _stacked([mesh.pos[None] for mesh in meshes], 3),
        "mesh_quat": _stacked([mesh.quat[None] for mesh in meshes], 4),
        "mesh_scale": _stacked([mesh.scale[None] for mesh in meshes], 3),
        **_hull_fields(meshes),
        "nmesh": len(meshes),
    }


def _stacked(arrays: list[Array], width: int) -> Array:
    return np.concatenate([np.zeros((0, width), arrays[0].dtype), *arrays]) if arrays else np.zeros((0, width))


def _blocks(name: str, size: str, arrays: list[Array], width: int) -> Fields:
    """All rows one mesh after another, and where the rows of each mesh are."""
    number = np.array([len(array) for array in arrays], int)
    rows = _stacked(arrays, width)
    return {name: rows, name + "num": number, name + "adr": addresses(number), size: len(rows)}


def _texcoords(surfaces: list[Surface]) -> Fields:
    fields = _blocks("mesh_texcoord", "nmeshtexcoord", [s.texcoord for s in surfaces], 2)
    fields["mesh_texcoordadr"] = or_minus_one(fields["mesh_texcoordadr"], fields["mesh_texcoordnum"])
    return fields


def _hull_fields(meshes: list[Mesh]) -> Fields:
    """Graphs and polygons of all hulls; polygons of vertices and vertices of polygons are numbered within a mesh."""
    graphs = [graph(mesh.hull) if mesh.hull else np.zeros(0, int) for mesh in meshes]
    length = np.array([len(each) for each in graphs], int)
    none = Polygons(np.zeros(0, int), np.zeros(0, int))
    sides = [mesh.polygons or none for mesh in meshes]
    number = np.array([len(each.count) for each in sides], int)
    vertices = [len(mesh.surface.vertex) for mesh in meshes]
    around = [polygons_of_vertices(each, nvert) for each, nvert in zip(sides, vertices, strict=True)]
    joined = {
        "mesh_graph": graphs,
        "mesh_polyvertnum": [each.count for each in sides],
        "mesh_polyvert": [each.vertex for each in sides],
        "mesh_polymapnum": [count for count, _ in around],
        "mesh_polymap": [owners for _, owners in around],
    }
    fields: Fields = {name: np.concatenate([np.zeros(0, int), *arrays]) for name, arrays in joined.items()}
    return fields | {
        "nmeshgraph": len(fields["mesh_graph"]),
        "mesh_graphadr": or_minus_one(addresses(length), length),
        "nmeshpoly": int(number.sum()),
        "mesh_polynum": number,
        "mesh_polyadr": addresses(number),
        "mesh_polynormal": _stacked([mesh.polynormal for mesh in meshes], 3),
        "nmeshpolyvert": len(fields["mesh_polyvert"]),
        "mesh_polyvertadr": addresses(fields["mesh_polyvertnum"]),
        "nmeshpolymap": len(fields["mesh_polymap"]),
        "mesh_polymapadr": addresses(fields["mesh_polymapnum"]),
    }
