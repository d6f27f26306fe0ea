"""The surface of a mesh as its element gives it: a file, numbers in the XML, builtin, or a field; then checked.

Files are input from strangers: counts, indices and coordinates are checked before anything is computed from them.
Source: MuJoCo "XML reference", mesh; user_mesh.cc (3.8.1).
"""

from dataclasses import replace
from typing import Any

import numpy as np

from diffsim.compiler.assets.field_plugins import FieldUse, field_of, field_surface
from diffsim.compiler.assets.mesh_shapes import builtin_surface
from diffsim.compiler.draft import Draft, Node
from diffsim.mjcf.files.limits import (
    MOST_FACES,
    MOST_VERTICES,
    AssetError,
    check_count,
    kind_of,
)
from diffsim.mjcf.files.mesh_files import KINDS, read_mesh
from diffsim.mjcf.files.surface import (
    Surface,
)

Array = np.ndarray
Fields = dict[str, Any]

# arrays of an element: what they are called in Surface, and their width
INLINE = {"vertex": 3, "face": 3, "normal": 3, "texcoord": 2}
SEEN = ("normal", "texcoord")

# coordinates may be as large as everywhere in MuJoCo (mjMAXVAL)
FURTHEST = 1e10


def mesh_source(draft: Draft, node: Node) -> Surface:
    """The surface as the element gives it. Raises AssetError."""
    e = node.e
    found = Surface(np.zeros((0, 3), np.float32))
    field = field_of(draft, node)
    if field is not None:
        found = _from_field(e, field)
    elif e.file_:
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


def _from_field(e: Any, field: FieldUse) -> Surface:
    """The surface of a distance field, which the element may not scale, nor give another way."""
    if e.file_ or e.builtin != "none":
        raise AssetError("a mesh with a plugin has its surface from there", "remove its file or builtin")
    if not (e.scale == 1).all():
        raise AssetError("attribute 'scale' does not apply to a distance field")
    return field_surface(field)


def _kind(e: Any) -> str:
    return kind_of(e.file_, e.content_type, KINDS) if e.file_ else ""


def _from_file(draft: Draft, node: Node) -> Surface:
    """The surface of a mesh file; triangles of a mirrored MSH are turned once by the file, and once more later."""
    e = node.e
    found = read_mesh(e.file_, draft.contents(node), e.content_type)
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
        found = f"vertex {np.argmax(~fits.all(axis=1))} is not finite, or further out than {FURTHEST:g}"
        raise AssetError(found, "is its scale right? lengths are in metres")
