"""Compiles one `<mesh>`: reads its surface and expresses it in its inertial frame.

The surface comes from a file, from numbers in the XML, from a builtin shape or from a distance field. Files may come
from strangers: counts, indices and coordinates are checked before they are used. Then refpos, refquat and scale are
applied, and the vertices are moved to the center of mass and the principal axes.

The surface of a distance field stays in the frame of the field. As in MuJoCo, its principal moments in decreasing order
are nevertheless used as the moments about x, y and z of that frame.

Meshes that can collide get a convex hull. Vertices and normals are rounded to float32, as in MuJoCo.
Source: MuJoCo "XML reference", mesh; user_mesh.cc (3.8.1) for the order of the steps.
"""

from dataclasses import dataclass, replace
from math import sqrt
from typing import Any

import numpy as np

from diffsim.base import changes
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

# number of columns of the arrays that a <mesh> may contain; Surface has fields with the same names
INLINE = {"vertex": 3, "face": 3, "normal": 3, "texcoord": 2}
# arrays that only pictures use
PICTURE_ARRAYS = ("normal", "texcoord")

# the largest coordinate, m: MuJoCo's limit for any number (mjMAXVAL)
FURTHEST = 1e10

# relative precision of a mesh's principal axes since MuJoCo 3.14: its vertices are float32
AXES_PRECISION = 1e-7
# No principal moment exceeds the sum of the other two. Rounding may violate this by this much, in moments of unit
# density, m^5 ...
MOMENT_ABSOLUTE = 1e-9
# ... plus this fraction of the moment
MOMENT_RELATIVE = 1e-6


def mesh_source(draft: Draft, node: Node) -> Surface:
    """The surface of the element, checked. Raises AssetError."""
    e = node.e
    surface = Surface(np.zeros((0, 3), np.float32))
    content = kind_of(e.file_, e.content_type, KINDS) if e.file_ else ""
    field = field_of(draft, node)
    if field is not None:
        if e.file_ or e.builtin != "none":
            raise AssetError(
                "a mesh with a plugin takes its surface from the plugin", "remove attribute 'file' or 'builtin'"
            )
        if not (e.scale == 1).all():
            raise AssetError("attribute 'scale' does not apply to a distance field")
        surface = field_surface(field)
    elif e.file_:
        # robots often use a file several times
        data = draft.contents(node)
        if (data, content) not in draft.surfaces:
            draft.surfaces[data, content] = read_mesh(e.file_, data, e.content_type, draft.spec.mujoco)
        surface = draft.surfaces[data, content]
        if content == KINDS[".msh"] and e.scale.prod() <= 0:
            # as in MuJoCo, triangles of a mirrored MSH are reversed here and once more later
            surface = replace(surface, face=surface.face[:, [0, 2, 1]])
    elif e.builtin != "none":
        surface = builtin_surface(e.builtin, e.params if e.params is not None else np.zeros(0))
    inline = {name: values for name in INLINE if (values := getattr(e, name)) is not None}
    for name, values in inline.items():
        if len(getattr(surface, name)):
            raise AssetError(f"attribute '{name}' is given, but the file or shape has it already")
        if len(values) % INLINE[name]:
            raise AssetError(
                f"attribute '{name}': the number of values must be a multiple of {INLINE[name]}, {len(values)} given"
            )
        kind = np.int32 if name == "face" else np.float32
        with np.errstate(over="ignore"):
            values = np.clip(values, -(2**31), 2**31 - 1).astype(kind) if name == "face" else values.astype(kind)
        inline[name] = values.reshape(-1, INLINE[name])
    surface = replace(surface, **inline)
    # damaged arrays for pictures are repaired, not refused: NaN becomes 0, and a normal of 0 will point up
    for name in PICTURE_ARRAYS:
        array = getattr(surface, name)
        if len(array):
            surface = replace(surface, **{name: np.where(np.isfinite(array), array, 0)})
    _check_surface(surface, obj=content == "model/obj")
    return surface


def _check_surface(surface: Surface, obj: bool) -> None:
    """Raises AssetError if a surface has too few or too many vertices or triangles, or uses vertices that do not exist.

    obj: whether it comes from an OBJ file, which may have any number of texture coordinates.
    """
    nvert = len(surface.vertex)
    if nvert < 4:
        raise AssetError(f"a mesh needs at least 4 vertices, {nvert} given")
    check_count(nvert, MOST_VERTICES, "vertices")
    check_count(len(surface.face), MOST_FACES, "triangles")
    check_reach(surface.vertex)
    if len(surface.face) and not (surface.face.min() >= 0 and surface.face.max() < nvert):
        wrong = np.argmax(((surface.face < 0) | (surface.face >= nvert)).any(axis=1))
        raise AssetError(f"triangle {wrong} uses vertices {surface.face[wrong].tolist()}, but there are only {nvert}")
    if len(surface.texcoord) not in (0, nvert) and not len(surface.facetexcoord) and not obj:
        raise AssetError(f"{len(surface.texcoord)} texture coordinates for {nvert} vertices")


def check_reach(vertex: Array) -> None:
    """Raises AssetError if a coordinate is not finite, or so large that products of coordinates may overflow."""
    fits = np.abs(vertex) <= FURTHEST
    if not fits.all():
        message = f"vertex {np.argmax(~fits.all(axis=1))} is not finite or is further out than {FURTHEST:g} m"
        raise AssetError(message, "is its scale right? lengths are in metres")


@dataclass(frozen=True)
class Mesh:
    """A compiled mesh, in its inertial frame.

    Attributes:
      surface: vertices and triangles.
      pos, quat: pose of the inertial frame in the frame of the source.
      scale: (3,) attribute 'scale'.
      volume: m^3; of a shell the area, m^2.
      box: (3,) m, half sizes of the box with equal inertia.
      low, high: (3,) m, corners of the bounding box.
      hull: the convex hull, None if it is not needed.
      polygons: flat sides of the hull, None without a hull.
      polynormal: (npolygon, 3) unit normals of the polygons.
      octree: the sampled signed distance, None if it is not needed.
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
        """(3,) m, half sizes of the smallest box centered at the origin that contains the mesh."""
        return np.maximum(np.abs(self.low), np.abs(self.high))


def compile_mesh(e: Any, source: Surface, collides: bool, sampled: bool, mujoco: str) -> Mesh:
    """Compiles a mesh: its hull, normals and inertial frame, with all vertices in that frame.

    Args:
      e: the `<mesh>` with all attributes filled.
      source: its surface.
      collides: whether the convex hull is needed.
      sampled: whether the signed distance is needed.
      mujoco: the version of MuJoCo to follow.

    Raises:
      AssetError: the surface has no volume, or its triangles are not consistently oriented.
    """
    kind = "shell" if e.builtin == "plate" else e.inertia
    # the surface of a distance field must stay in the frame of the field
    keeps_frame = e.first(Plugin) is not None
    vertex = source.vertex.astype(float)
    edge = repeated_edge(vertex, source.face) if kind == "exact" else None
    if edge:
        message = f"the triangles at vertices {edge[0] + 1} and {edge[1] + 1} have inconsistent orientations"
        raise AssetError(message, 'list the corners of all triangles counterclockwise, or give inertia="convex"')
    hull = sides = None
    if collides or kind == "convex" or not len(source.face):
        hull = convex_hull(vertex, e.maxhullvert, mujoco)
        sides = polygons(vertex, hull)
    surface = _completed(source, vertex, hull, e.smoothnormal)
    if e.scale.prod() <= 0:
        # a mirrored mesh needs reversed triangles
        mirrored = {name: getattr(surface, name)[:, [0, 2, 1]] for name in ("face", "facenormal", "facetexcoord")}
        surface = replace(surface, **mirrored)
    vertex = vertex - e.refpos
    normal = surface.normal.astype(float)
    if tuple(e.refquat) != IDENTITY:
        axes = matrix(unit(e.refquat)[0])
        vertex, normal = product(vertex, axes), product(normal, axes)
    vertex = vertex * e.scale
    # normals of a stretched surface are shrunk where it is stretched
    normal = unit_or_up(normal / e.scale if changes.follows(mujoco, "mesh_normals") else normal * e.scale)
    check_reach(vertex)
    solid = hull.face if kind == "convex" and hull else surface.face
    pos, quat, volume, box = _inertial_frame(vertex, surface.face, solid, kind, mujoco)
    if keeps_frame:
        pos = np.zeros(3)
        quat = np.array(IDENTITY)
    axes = matrix(quat)
    vertex = product(vertex - pos, axes)
    polynormal = polygon_normals(vertex, sides, mujoco) if sides else np.zeros((0, 3))
    low, high = vertex.min(axis=0), vertex.max(axis=0)
    octree = octree_of(vertex, surface.face) if sampled else None
    surface = replace(surface, vertex=vertex.astype(np.float32), normal=product(normal, axes).astype(np.float32))
    return Mesh(
        surface=surface,
        pos=pos,
        quat=quat,
        scale=e.scale,
        volume=volume,
        box=box,
        low=low,
        high=high,
        hull=hull,
        polygons=sides,
        polynormal=polynormal,
        octree=octree,
    )


def _completed(source: Surface, vertex: Array, hull: Hull | None, smooth: bool) -> Surface:
    """The surface with all of its arrays.

    By default, the triangles are the hull's, and normals are the mean normal of the triangles at a vertex.
    """
    face = source.face if len(source.face) or hull is None else hull.face
    normal = source.normal
    facenormal = source.facenormal
    facetexcoord = source.facetexcoord
    if not len(normal):
        normal = vertex_normals(vertex, face, smooth).astype(np.float32)
        facenormal = face
    if not len(facenormal):
        facenormal = face * (len(normal) // len(vertex))
    if len(source.texcoord) and not len(facetexcoord):
        facetexcoord = face
    if not len(facetexcoord):
        facetexcoord = np.zeros_like(face)
    return Surface(
        vertex=source.vertex,
        face=face,
        normal=normal,
        texcoord=source.texcoord,
        facenormal=facenormal,
        facetexcoord=facetexcoord,
    )


def _inertial_frame(
    vertex: Array, face: Array, solid: Array, kind: str, mujoco: str
) -> tuple[Array, Array, float, Array]:
    """Center, principal axes, volume (or area of a shell), and half sizes of the box with equal inertia.

    A solid box of unit density with full sides a, b, c and volume V has moments V (b^2 + c^2) / 12 and so on, which are
    solved for the sides.

    Args:
      vertex: (nvert, 3) m.
      face: triangles of the surface; their centroid is the apex of the pyramids that are summed.
      solid: triangles that bound the volume: of the surface, or of its hull for inertia "convex".
      kind: attribute 'inertia'. "legacy" counts the volume of each pyramid as positive.
      mujoco: the version of MuJoCo to follow.
    """
    shell = kind == "shell"
    absolute = kind == "legacy"
    whole = triangles(vertex, face)
    if not whole.area.sum() >= SMALLEST:
        raise AssetError("the surface of the mesh is too small", "is its scale right? lengths are in metres")
    center = whole.centroid
    if not shell:
        parts = whole if solid is face else triangles(vertex, solid)
        volume, center = volume_and_center(parts, whole.centroid, absolute)
        if volume < 0:
            hint = "list the corners of triangles counterclockwise seen from outside; a negative scale mirrors them"
            raise AssetError("the volume of the mesh is negative: its triangles are inside out", hint)
        if not volume >= SMALLEST:
            raise AssetError("the volume of the mesh is too small", 'try inertia="shell"')
    volume, full = inertia(vertex - center, solid, shell, absolute)
    moments, quat = diagonalize(full, mujoco, AXES_PRECISION)
    if not np.isfinite(moments).all() or moments[2] <= 0:
        raise AssetError("the inertia of the mesh has no positive eigenvalues", "is it flat?")
    allowed = moments * (1 - MOMENT_RELATIVE) - MOMENT_ABSOLUTE
    if (moments.sum() - moments < allowed).any():
        raise AssetError("the inertia of the mesh violates A + B >= C", 'repair its triangles, or try inertia="convex"')
    # the sum of two moments minus the third is V times the square of one side / 6
    sides = (moments.sum() - 2 * moments) * 6 / volume
    return center, quat, volume, np.array([sqrt(max(0.0, side)) / 2 for side in sides])
