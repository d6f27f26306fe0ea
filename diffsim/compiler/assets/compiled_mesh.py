"""A mesh from its element to its own inertial frame.

Its surface is checked, moved by refpos, refquat and scale, then to its center and principal axes.

The surface comes from a file, from numbers in the XML, from a builtin shape or from a distance field. Files are input
from strangers: counts, indices and coordinates are checked before anything is computed from them. The surface of a
distance field stays where the field is. As in MuJoCo its moments, the largest first, are taken to be about x, y and z
of that frame all the same.

Meshes that may collide get their convex hull. Vertices and normals are rounded to float32, as MuJoCo stores them.
Source: MuJoCo "XML reference", mesh; user_mesh.cc (3.8.1) for the order of the steps.
"""

from dataclasses import dataclass, replace
from math import sqrt
from typing import Any

import numpy as np

from diffsim.compiler.assets.field_plugins import field_of, field_surface
from diffsim.compiler.assets.hull import Hull, Polygons, convex_hull, polygon_normals, polygons
from diffsim.compiler.assets.mesh_shapes import builtin_surface
from diffsim.compiler.assets.octree_field import Octree, octree_of
from diffsim.compiler.draft import Draft, Node
from diffsim.mjcf.elements.deformable import Plugin
from diffsim.mjcf.files.mesh_files import KINDS, read_mesh
from diffsim.mjcf.files.surface import (
    SMALLEST,
    Surface,
    inertia,
    repeated_edge,
    triangles,
    unit_or_up,
    vertex_normals,
    volume_and_center,
)
from diffsim.mjcf.orientation import IDENTITY, diagonalize, matrix, product, unit
from diffsim.mjcf.resources import MOST_FACES, MOST_VERTICES, AssetError, check_count, kind_of

Array = np.ndarray
Fields = dict[str, Any]

# arrays that a <mesh> may contain, which have the same names in Surface, with their number of columns
INLINE = {"vertex": 3, "face": 3, "normal": 3, "texcoord": 2}
# arrays that only pictures use
SEEN = ("normal", "texcoord")

# m: the largest coordinate, as everywhere in MuJoCo (mjMAXVAL)
FURTHEST = 1e10

# a principal moment may exceed the sum of the other two by this much, in the moments of a unit density (m^5): rounding
TRIANGLE_ABSOLUTE = 1e-9
# and by this part of itself
TRIANGLE_RELATIVE = 1e-6


def mesh_source(draft: Draft, node: Node) -> Surface:
    """The surface as the element gives it. Raises AssetError."""
    e = node.e
    surface = Surface(np.zeros((0, 3), np.float32))
    content = kind_of(e.file_, e.content_type, KINDS) if e.file_ else ""
    field = field_of(draft, node)
    if field is not None:
        if e.file_ or e.builtin != "none":
            raise AssetError("a mesh with a plugin has its surface from there", "remove its file or builtin")
        if not (e.scale == 1).all():
            raise AssetError("attribute 'scale' does not apply to a distance field")
        surface = field_surface(field)
    elif e.file_:
        # two arms of one kind have the same files
        data = draft.contents(node)
        if (data, content) not in draft.surfaces:
            draft.surfaces[data, content] = read_mesh(e.file_, data, e.content_type)
        surface = draft.surfaces[data, content]
        if content == KINDS[".msh"] and e.scale.prod() <= 0:
            # triangles of a mirrored MSH are turned once by the file, and once more later
            surface = replace(surface, face=surface.face[:, [0, 2, 1]])
    elif e.builtin != "none":
        surface = builtin_surface(e.builtin, e.params if e.params is not None else np.zeros(0))
    inline = {name: values for name in INLINE if (values := getattr(e, name)) is not None}
    for name, values in inline.items():
        if len(getattr(surface, name)):
            raise AssetError(f"attribute '{name}' is given, but the mesh has one already")
        if len(values) % INLINE[name]:
            raise AssetError(f"attribute '{name}': {len(values)} numbers are no multiple of {INLINE[name]}")
        kind = np.int32 if name == "face" else np.float32
        with np.errstate(over="ignore"):
            values = np.clip(values, -(2**31), 2**31 - 1).astype(kind) if name == "face" else values.astype(kind)
        inline[name] = values.reshape(-1, INLINE[name])
    surface = replace(surface, **inline)
    # what is only seen may be damaged: a normal that is no number will point up
    seen = {name: np.where(np.isfinite(array), array, 0) for name in SEEN if len(array := getattr(surface, name))}
    surface = replace(surface, **seen)
    _check_surface(surface, obj=content == "model/obj")
    return surface


def _check_surface(surface: Surface, obj: bool) -> None:
    """Raises AssetError where a surface is too small, too large, or refers to what is not there."""
    nvert = len(surface.vertex)
    if nvert < 4:
        raise AssetError(f"a mesh has at least 4 vertices, not {nvert}")
    check_count(nvert, MOST_VERTICES, "vertices")
    check_count(len(surface.face), MOST_FACES, "triangles")
    check_reach(surface.vertex)
    if len(surface.face) and not (surface.face.min() >= 0 and surface.face.max() < nvert):
        wrong = np.argmax(((surface.face < 0) | (surface.face >= nvert)).any(axis=1))
        raise AssetError(f"triangle {wrong} uses vertices {surface.face[wrong].tolist()}, of which there are {nvert}")
    if len(surface.texcoord) not in (0, nvert) and not len(surface.facetexcoord) and not obj:
        raise AssetError(f"{len(surface.texcoord)} texture coordinates for {nvert} vertices")


def check_reach(vertex: Array) -> None:
    """Raises AssetError where a vertex is so far out that products of coordinates lose their meaning."""
    fits = np.abs(vertex) <= FURTHEST
    if not fits.all():
        message = f"vertex {np.argmax(~fits.all(axis=1))} is not finite, or further out than {FURTHEST:g}"
        raise AssetError(message, "is its scale right? lengths are in metres")


@dataclass(frozen=True)
class Mesh:
    """A compiled mesh, in its inertial frame.

    surface: vertices and triangles. pos, quat: the inertial frame seen from where the source put the mesh.
    volume: of the body, area of a shell. box: half sizes of the box of equal inertia. low, high: corners of the
    bounding box. hull, polygons, octree: None where the mesh needs none; polynormal: (npolygon, 3).
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
    octree: Octree | None

    @property
    def reach(self) -> Array:
        """Half sizes of the smallest box around the origin that holds the mesh."""
        return np.maximum(np.abs(self.low), np.abs(self.high))


def compile_mesh(e: Any, source: Surface, collides: bool, sampled: bool) -> Mesh:
    """A mesh in its inertial frame.

    Args:
      e: the `<mesh>` with all attributes filled.
      source: its surface.
      collides: whether the convex hull is needed.
      sampled: whether the signed distance is needed.

    Raises:
      AssetError: the surface has no volume, or is not closed where that matters.
    """
    kind = "shell" if e.builtin == "plate" else e.inertia
    stays = e.first(Plugin) is not None
    vertex = source.vertex.astype(float)
    edge = repeated_edge(vertex, source.face) if kind == "exact" else None
    if edge:
        message = f"triangles at vertices {edge[0] + 1} and {edge[1] + 1} have inconsistent orientation"
        raise AssetError(message, 'list the corners of all triangles counterclockwise, or give inertia="convex"')
    hull = sides = None
    if collides or kind == "convex" or not len(source.face):
        hull = convex_hull(vertex, e.maxhullvert)
        sides = polygons(vertex, hull)
    surface = _completed(source, vertex, hull, e.smoothnormal)
    if e.scale.prod() <= 0:
        # mirrored: triangles the other way round
        mirrored = {name: getattr(surface, name)[:, [0, 2, 1]] for name in ("face", "facenormal", "facetexcoord")}
        surface = replace(surface, **mirrored)
    vertex = vertex - e.refpos
    normal = surface.normal.astype(float)
    if tuple(e.refquat) != IDENTITY:
        axes = matrix(unit(e.refquat)[0])
        vertex, normal = product(vertex, axes), product(normal, axes)
    vertex = vertex * e.scale
    normal = unit_or_up(normal * e.scale)
    check_reach(vertex)
    solid = hull.face if kind == "convex" and hull else surface.face
    pos, quat, volume, box = _inertial_frame(vertex, surface.face, solid, kind)
    if stays:
        pos = np.zeros(3)
        quat = np.array(IDENTITY)
    axes = matrix(quat)
    vertex = product(vertex - pos, axes)
    polynormal = polygon_normals(vertex, sides) if sides else np.zeros((0, 3))
    low, high = vertex.min(axis=0), vertex.max(axis=0)
    octree = octree_of(vertex, surface.face) if sampled else None
    surface = replace(surface, vertex=vertex.astype(np.float32), normal=product(normal, axes).astype(np.float32))
    return Mesh(surface, pos, quat, e.scale, volume, box, low, high, hull, sides, polynormal, octree)


def _completed(source: Surface, vertex: Array, hull: Hull | None, smooth: bool) -> Surface:
    """A surface with triangles and normals: where the source has none, those of the hull, and means of the faces'."""
    face = source.face if len(source.face) or hull is None else hull.face
    normal, facenormal, facetexcoord = source.normal, source.facenormal, source.facetexcoord
    if not len(normal):
        normal = vertex_normals(vertex, face, smooth).astype(np.float32)
        facenormal = face
    if not len(facenormal):
        facenormal = face * (len(normal) // len(vertex))
    if len(source.texcoord) and not len(facetexcoord):
        facetexcoord = face
    if not len(facetexcoord):
        facetexcoord = np.zeros_like(face)
    return Surface(source.vertex, face, normal, source.texcoord, facenormal, facetexcoord)


def _inertial_frame(vertex: Array, face: Array, solid: Array, kind: str) -> tuple[Array, Array, float, Array]:
    """Center, principal axes, volume (area of a shell), and half sizes of the box of equal inertia.

    face: triangles of the surface, around whose centroid pyramids are built; solid: those that bound the volume.
    """
    shell, absolute = kind == "shell", kind == "legacy"
    whole = triangles(vertex, face)
    if not whole.area.sum() >= SMALLEST:
        raise AssetError("the surface of the mesh is too small", "is its scale right? lengths are in metres")
    center = whole.centroid
    if not shell:
        volume, center = volume_and_center(triangles(vertex, solid), whole.centroid, absolute)
        if volume < 0:
            hint = "list the corners of triangles counterclockwise as seen from outside; a negative scale mirrors them"
            raise AssetError("the volume of the mesh is negative: triangles are inside out", hint)
        if not volume >= SMALLEST:
            raise AssetError("the volume of the mesh is too small", 'try inertia="shell"')
    volume, full = inertia(vertex - center, solid, shell, absolute)
    moments, quat = diagonalize(full)
    if not np.isfinite(moments).all() or moments[2] <= 0:
        raise AssetError("the inertia of the mesh has no positive eigenvalues", "is it flat?")
    allowed = moments * (1 - TRIANGLE_RELATIVE) - TRIANGLE_ABSOLUTE
    if (moments.sum() - moments < allowed).any():
        raise AssetError("the inertia of the mesh violates A + B >= C", 'mend its triangles, or try inertia="convex"')
    # a solid box of unit density with these moments
    sides = (moments.sum() - 2 * moments) * 6 / volume
    return center, quat, volume, np.array([sqrt(max(0.0, side)) / 2 for side in sides])
