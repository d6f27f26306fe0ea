"""Mesh files -> Surface: STL (binary and ASCII), MuJoCo's own MSH, and OBJ (obj_file.py).

The order of vertices and triangles is MuJoCo's: an STL file repeats its vertices, and equal ones become one at
their first place; the other formats keep their vertices as they are. ASCII STL, which MuJoCo refuses, is read too.
Source: MuJoCo "XML reference", mesh; the formats' public descriptions.
"""

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from diffsim.mjcf.files.limits import MOST_FACES, MOST_STL_FACES, MOST_VERTICES, AssetError, check_count, kind_of
from diffsim.mjcf.files.obj_file import read_obj
from diffsim.mjcf.files.surface import Surface

Array = np.ndarray

KINDS = {".stl": "model/stl", ".obj": "model/obj", ".msh": "model/vnd.mujoco.msh"}

# an STL vertex may not be further out
FURTHEST = 2.0**30

_TRIANGLE = np.dtype([("normal", "<f4", 3), ("vertex", "<f4", (3, 3)), ("attribute", "<u2")])
_STL_VERTEX = re.compile(rb"\bvertex\s++(\S++)\s++(\S++)\s++(\S++)")


def read_mesh(name: str, data: bytes, content_type: str | None = None) -> Surface:
    """The surface in a mesh file. Raises AssetError where the file is damaged or of an unknown kind."""
    kind = kind_of(name, content_type, KINDS)
    if kind not in READERS:
        raise AssetError(f"'{kind}' is not a kind of mesh file", "use STL, OBJ or MSH")
    return READERS[kind](data)


def read_stl(data: bytes) -> Surface:
    """A surface from STL: triangles as three vertices each."""
    corners = _binary_stl(data)
    if corners is None:
        corners = _ascii_stl(data)
    check_count(len(corners) // 3, MOST_STL_FACES, "triangles")
    if not (np.abs(corners) <= FURTHEST).all():
        raise AssetError("a vertex is not finite, or further out than 2^30")
    index, first = _first_of_equals(corners)
    return Surface(corners[first], index.reshape(-1, 3).astype(np.int32))


def _binary_stl(data: bytes) -> Array | None:
    """Corners (3 n, 3) of the triangles; None if the file is not binary."""
    count = int.from_bytes(data[80:84], "little") if len(data) >= 84 else 0
    if count < 1 or 84 + 50 * count != len(data):
        if not data.lstrip()[:5].lower() == b"solid":
            raise AssetError(f"is not an STL file: {len(data)} bytes for {count} triangles")
        return None
    return np.frombuffer(data, _TRIANGLE, count, 84)["vertex"].reshape(-1, 3)


def _ascii_stl(data: bytes) -> Array:
    """Corners (3 n, 3) of the triangles of a text file."""
    check_count(data.count(b"vertex"), 3 * MOST_STL_FACES, "vertices")
    rows = _STL_VERTEX.findall(data)
    try:
        corners = np.array([[float(number) for number in row] for row in rows], np.float32).reshape(-1, 3)
    except (ValueError, OverflowError):
        raise AssetError("is not an STL file: a coordinate is not a number") from None
    facets = len(re.findall(rb"\bfacet\s+normal\b", data))
    if not facets or 3 * facets != len(corners) or len(rows) != data.count(b"vertex"):
        raise AssetError(f"is not an STL file: {len(rows)} vertices for {facets} facets")
    return corners


def without_repeats(surface: Surface) -> Surface:
    """The surface with equal vertices made one, at the first place of each."""
    index, first = _first_of_equals(np.asarray(surface.vertex, np.float32))
    return replace(surface, vertex=surface.vertex[first], face=index[surface.face].astype(np.int32))


def _first_of_equals(corners: Array) -> tuple[Array, Array]:
    """For each corner the number of its vertex, and where each vertex first stands. Equal means: the same bits."""
    bits = np.ascontiguousarray(corners).view(np.uint32).astype(np.uint64)
    # a hash of the three words; should two vertices share one, they are compared as they are
    mixed = bits[:, 0] * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(29)) ^ bits[:, 1]) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(32)) ^ bits[:, 2]) * np.uint64(0x94D049BB133111EB)
    _, first, index = np.unique(mixed, return_index=True, return_inverse=True)
    if not np.array_equal(bits[first[index]], bits):
        _, first, index = np.unique(bits, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return rank[index.ravel()], first[order]


def read_msh(data: bytes) -> Surface:
    """A surface from MSH: four counts (vertices, normals, texture coordinates, triangles), then these four arrays."""
    if len(data) < 16:
        raise AssetError("is not an MSH file: the header is missing")
    nvert, nnormal, ntexcoord, nface = (int(number) for number in np.frombuffer(data, "<i4", 4))
    if nvert < 4 or min(nface, nnormal, ntexcoord) < 0 or {nnormal, ntexcoord} - {0, nvert}:
        raise AssetError(f"is not an MSH file: its counts are {nvert} {nnormal} {ntexcoord} {nface}")
    check_count(nvert, MOST_VERTICES, "vertices")
    check_count(nface, MOST_FACES, "triangles")
    lengths = [3 * nvert, 3 * nnormal, 2 * ntexcoord, 3 * nface]
    if len(data) != 16 + 4 * sum(lengths):
        raise AssetError(f"is damaged: {len(data)} bytes, its counts ask for {16 + 4 * sum(lengths)}")
    starts = 16 + 4 * np.concatenate([[0], np.cumsum(lengths)[:-1]])
    kinds = zip(("<f4", "<f4", "<f4", "<i4"), lengths, starts, (3, 3, 2, 3), strict=True)
    arrays = [np.frombuffer(data, kind, length, start).reshape(-1, width) for kind, length, start, width in kinds]
    vertex, normal, texcoord, face = arrays
    return Surface(vertex, face, normal, texcoord, face, face if ntexcoord else Surface(vertex).facetexcoord)


READERS: dict[str, Callable[[bytes], Surface]] = {
    "model/stl": read_stl,
    "model/obj": read_obj,
    "model/vnd.mujoco.msh": read_msh,
}
