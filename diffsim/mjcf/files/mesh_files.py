"""Readers of mesh files: STL (binary and ASCII), MuJoCo's own MSH, and OBJ (obj_file.py).

Vertices and triangles have MuJoCo's order, which mesh libraries do not keep. An STL file repeats its vertices; equal
ones are merged at their first occurrence. The other formats keep their vertices as they are. ASCII STL, which MuJoCo
refuses, is read too.
Source: MuJoCo "XML reference", mesh; the formats' public descriptions.
"""

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from diffsim.base import changes
from diffsim.mjcf.files.obj_file import read_obj
from diffsim.mjcf.files.surface import Surface, first_seen
from diffsim.mjcf.resources import MOST_FACES, MOST_STL_FACES, MOST_VERTICES, AssetError, check_count, kind_of

Array = np.ndarray

# media types by the extension of a file
KINDS = {".stl": "model/stl", ".obj": "model/obj", ".msh": "model/vnd.mujoco.msh"}

# the largest coordinate in an STL file, m (MuJoCo's limit)
FURTHEST = 2.0**30

# a triangle in a binary STL file
_TRIANGLE = np.dtype([("normal", "<f4", 3), ("vertex", "<f4", (3, 3)), ("attribute", "<u2")])
# a vertex in a text STL file
_STL_VERTEX = re.compile(rb"\bvertex\s++(\S++)\s++(\S++)\s++(\S++)")


def read_mesh(name: str, data: bytes, content_type: str | None = None, mujoco: str = changes.DEFAULT) -> Surface:
    """The surface in a mesh file. Raises AssetError if the file is damaged or of an unknown kind."""
    kind = kind_of(name, content_type, KINDS)
    if kind not in READERS:
        raise AssetError(f"'{kind}' is not a supported kind of mesh file", "use STL, OBJ or MSH")
    return read_obj(data, name, mujoco) if kind == KINDS[".obj"] else READERS[kind](data)


def read_stl(data: bytes) -> Surface:
    """A surface from STL, binary or text, which gives each triangle as three vertices."""
    count = int.from_bytes(data[80:84], "little") if len(data) >= 84 else 0
    if count >= 1 and 84 + 50 * count == len(data):
        corners = np.frombuffer(data, _TRIANGLE, count, 84)["vertex"].reshape(-1, 3)
    elif data.lstrip()[:5].lower() == b"solid":
        corners = _ascii_stl(data)
    else:
        raise AssetError(f"is not an STL file: {len(data)} bytes for {count} triangles")
    check_count(len(corners) // 3, MOST_STL_FACES, "triangles")
    if not (np.abs(corners) <= FURTHEST).all():
        raise AssetError("a vertex is not finite or is further out than 2^30 m")
    first, index = _first_of_equals(corners)
    return Surface(corners[first], index.reshape(-1, 3).astype(np.int32))


def _ascii_stl(data: bytes) -> Array:
    """The corners (3 n, 3) of the triangles in a text file."""
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
    """The surface with equal vertices merged at their first occurrence."""
    first, index = _first_of_equals(np.asarray(surface.vertex, np.float32))
    return replace(surface, vertex=surface.vertex[first], face=index[surface.face].astype(np.int32))


def _first_of_equals(corners: Array) -> tuple[Array, Array]:
    """The first occurrence of each distinct vertex (by its bits), and the vertex of each corner."""
    bits = np.ascontiguousarray(corners).view(np.uint32)
    one, two, three = (word.astype(np.uint64) for word in bits.T)
    # It is faster to sort one hash of the three words than to sort rows (the multipliers are from splitmix64). If
    # two different vertices share a hash, rows are sorted after all.
    mixed = one * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(29)) ^ two) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(32)) ^ three) * np.uint64(0x94D049BB133111EB)
    # The number of the corner replaces the lowest bits, because sorting numbers is faster than finding their order.
    count = len(bits)
    low = np.uint64(count.bit_length())
    keys = np.sort(mixed >> low << low | np.arange(count, dtype=np.uint64))
    corner = (keys & ((np.uint64(1) << low) - np.uint64(1))).astype(np.intp)
    begins = np.diff(keys >> low, prepend=~np.uint64(0)) != 0
    # of each distinct vertex its first corner, which has the lowest number
    first = corner[begins]
    seen = np.zeros(count, bool)
    seen[first] = True
    number = np.cumsum(seen) - 1
    index = np.empty(count, np.intp)
    index[corner] = number[first][np.cumsum(begins) - 1]
    first = np.flatnonzero(seen)
    return (first, index) if np.array_equal(bits[first][index], bits) else first_seen(bits, axis=0)


def read_msh(data: bytes) -> Surface:
    """A surface from MSH: counts of vertices, normals, texture coordinates and triangles, then these arrays."""
    if len(data) < 16:
        raise AssetError("is not an MSH file: the header is missing")
    nvert, nnormal, ntexcoord, nface = (int(number) for number in np.frombuffer(data, "<i4", 4))
    if nvert < 4 or min(nface, nnormal, ntexcoord) < 0 or {nnormal, ntexcoord} - {0, nvert}:
        raise AssetError(f"is not an MSH file: its counts are {nvert} {nnormal} {ntexcoord} {nface}")
    check_count(nvert, MOST_VERTICES, "vertices")
    check_count(nface, MOST_FACES, "triangles")
    lengths = [3 * nvert, 3 * nnormal, 2 * ntexcoord, 3 * nface]
    if len(data) != 16 + 4 * sum(lengths):
        raise AssetError(f"is damaged: it has {len(data)} bytes, but its counts need {16 + 4 * sum(lengths)}")
    starts = 16 + 4 * np.concatenate([[0], np.cumsum(lengths)[:-1]])
    kinds = zip(("<f4", "<f4", "<f4", "<i4"), lengths, starts, (3, 3, 2, 3), strict=True)
    arrays = [np.frombuffer(data, kind, length, start).reshape(-1, width) for kind, length, start, width in kinds]
    vertex, normal, texcoord, face = arrays
    return Surface(vertex, face, normal, texcoord, face, face if ntexcoord else Surface(vertex).facetexcoord)


# readers by media type
READERS: dict[str, Callable[[bytes], Surface]] = {
    "model/stl": read_stl,
    "model/obj": read_obj,
    "model/vnd.mujoco.msh": read_msh,
}
