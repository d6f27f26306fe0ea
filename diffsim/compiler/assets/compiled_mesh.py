"""A mesh in its own inertial frame: moved by refpos, refquat and scale, then to its center and principal axes.

The surface of a distance field stays where the field is. As in MuJoCo its moments, the largest first, are taken to be
about x, y and z of that frame all the same.

Meshes that may collide get their convex hull. Vertices and normals are rounded to float32, as MuJoCo stores them.
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
    polygon_normals,
    polygons,
)
from diffsim.compiler.assets.mesh_source import check_reach
from diffsim.compiler.assets.octree_field import Octree, octree_of
from diffsim.mjcf.elements.deformable import Plugin
from diffsim.mjcf.files.limits import (
    AssetError,
)
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
from diffsim.mjcf.orientation import IDENTITY, diagonalize, matrix, unit

Array = np.ndarray
Fields = dict[str, Any]


# how far a principal moment may exceed the sum of the two others, absolute and relative
TRIANGLE_ABSOLUTE, TRIANGLE_RELATIVE = 1e-9, 1e-6


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
    kind, stays = "shell" if e.builtin == "plate" else e.inertia, e.first(Plugin) is not None
    vertex = source.vertex.astype(float)
    edge = repeated_edge(vertex, source.face) if kind == "exact" else None
    if edge:
        found = f"triangles at vertices {edge[0] + 1} and {edge[1] + 1} have inconsistent orientation"
        raise AssetError(found, 'list the corners of all triangles counterclockwise, or give inertia="convex"')
    rim = sides = None
    if collides or kind == "convex" or not len(source.face):
        rim = convex_hull(vertex, e.maxhullvert)
        sides = polygons(vertex, rim)
    surface = _completed(source, vertex, rim, e.smoothnormal)
    surface = _mirrored(surface) if e.scale.prod() <= 0 else surface
    vertex, normal = _placed(e, vertex, surface.normal.astype(float))
    check_reach(vertex)
    solid = rim.face if kind == "convex" and rim else surface.face
    pos, quat, volume, box = _inertial_frame(vertex, surface.face, solid, kind)
    if stays:
        pos, quat = np.zeros(3), np.array(IDENTITY)
    axes = matrix(quat)
    vertex = _turned(vertex - pos, axes)
    polynormal = polygon_normals(vertex, sides) if sides else np.zeros((0, 3))
    low, high = vertex.min(axis=0), vertex.max(axis=0)
    octree = octree_of(vertex, surface.face) if sampled else None
    surface = replace(surface, vertex=vertex.astype(np.float32), normal=_turned(normal, axes).astype(np.float32))
    return Mesh(surface, pos, quat, e.scale, volume, box, low, high, rim, sides, polynormal, octree)


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
        vertex, normal = _turned(vertex, axes), _turned(normal, axes)
    return vertex * e.scale, unit_or_up(normal * e.scale)


def _turned(vectors: Array, axes: Array) -> Array:
    """Vectors (n, 3) along some axes, the columns of (3, 3).

    Summed in order: rounding decides on which side of a sharp edge a point is that its octree samples.
    """
    return vectors[:, :1] * axes[:1] + vectors[:, 1:2] * axes[1:2] + vectors[:, 2:] * axes[2:]


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
