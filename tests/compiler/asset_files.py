"""Small asset files, made from numbers: a crooked box as STL, OBJ and MSH, a prism with concave ends, height fields."""

import io
import struct
import zlib
from collections.abc import Sequence

import numpy as np
from PIL import Image

Faces = Sequence[Sequence[int]]

QUADS = [[0, 1, 3, 2], [4, 6, 7, 5], [0, 4, 5, 1], [2, 3, 7, 6], [0, 2, 6, 4], [1, 5, 7, 3]]
TRIANGLES = [triangle for a, b, c, d in QUADS for triangle in ((a, b, c), (a, c, d))]


def crooked_box(seed: int = 0) -> np.ndarray:
    """Corners (8, 3) of a box that has no symmetry."""
    corners = np.array([[x, y, z] for x in (-1, 1) for y in (-0.5, 0.5) for z in (-0.3, 0.3)])
    return corners + 0.3 + 0.05 * np.random.default_rng(seed).normal(size=corners.shape)


def star(sides: int = 7) -> tuple[np.ndarray, Faces]:
    """Vertices and polygons of a prism over a polygon with some corners that point inwards."""
    angle = np.linspace(0, 2 * np.pi, sides, endpoint=False)
    radius = np.array([1, 0.4, 1, 0.5, 1.2, 0.3, 1.0])[:sides]
    ring = [np.stack([radius * np.cos(angle), radius * np.sin(angle), np.full(sides, z)], axis=1) for z in (0, 1)]
    walls = [[i, (i + 1) % sides, sides + (i + 1) % sides, sides + i] for i in range(sides)]
    return np.concatenate(ring), [[*range(sides)][::-1], [*range(sides, 2 * sides)], *walls]


def stl(vertex: np.ndarray, face: Faces) -> bytes:
    """A binary STL file."""
    rows = [struct.pack("<12f2x", 0, 0, 0, *vertex[list(corners)].ravel()) for corners in face]
    return bytes(80) + struct.pack("<i", len(face)) + b"".join(rows)


def ascii_stl(vertex: np.ndarray, face: Faces) -> bytes:
    """The same as text."""
    corners = ["\n".join("vertex {} {} {}".format(*map(float, vertex[k])) for k in row) for row in face]
    facets = [f"facet normal 0 0 0\nouter loop\n{rows}\nendloop\nendfacet" for rows in corners]
    return "\n".join(["solid box", *facets, "endsolid box", ""]).encode()


def obj(vertex: np.ndarray, face: Faces, corner: str = "{0}", **more: np.ndarray) -> bytes:
    """An OBJ file; `corner` writes a corner, given its number from 1; more: `vt` and `vn`."""
    lines = [f"{word} {' '.join(map(str, row))}" for word, rows in {"v": vertex, **more}.items() for row in rows]
    polygons = ["f " + " ".join(corner.format(k + 1, k - len(vertex)) for k in row) for row in face]
    return "\n".join(["# a comment", "o first", *lines, "usemtl none", *polygons, ""]).encode()


def msh(vertex: np.ndarray, face: Faces, normal: np.ndarray | None = None, texcoord: np.ndarray | None = None) -> bytes:
    """An MSH file."""
    arrays = [vertex, normal, texcoord]
    counts = [len(vertex), *(0 if array is None else len(array) for array in arrays[1:]), len(face)]
    floats = b"".join(np.asarray(array, np.float32).tobytes() for array in arrays if array is not None)
    return struct.pack("<4i", *counts) + floats + np.asarray(face, np.int32).tobytes()


def png(values: np.ndarray, mode: str | None = None) -> bytes:
    """A PNG file; `mode` converts the image first."""
    image = Image.fromarray(values)
    buffer = io.BytesIO()
    (image.quantize(8) if mode == "P" else image.convert(mode) if mode else image).save(buffer, "PNG")
    return buffer.getvalue()


def bomb(width: int, height: int) -> bytes:
    """A PNG file whose header promises an image of zeros of that size."""
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    body = zlib.compress(bytes(1 << 16))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def binary_field(values: np.ndarray) -> bytes:
    """A height field in MuJoCo's binary format."""
    return struct.pack("<2i", *values.shape) + values.astype(np.float32).tobytes()


def mesh_files() -> dict[str, bytes]:
    """One file for every way to write a mesh."""
    box = crooked_box()
    rng = np.random.default_rng(1)
    normal, texcoord = rng.normal(size=box.shape), rng.uniform(size=(8, 2))
    prism, sides = star()
    more = b"g second\nf 1 5 6 2\n"
    return {
        "binary.stl": stl(box, TRIANGLES),
        "quads.obj": obj(box, QUADS),
        "all.obj": obj(box, TRIANGLES, "{0}/{0}/{0}", vt=texcoord, vn=normal),
        "normals.obj": obj(box, QUADS, "{0}//{0}", vn=normal),
        "texture.obj": obj(box, QUADS, "{0}/{0}", vt=texcoord),
        "negative.obj": obj(box, QUADS, "{1}"),
        "mixed.obj": obj(box, QUADS[:5], "{0}//{0}", vn=normal) + b"f 2 6 8 4\n",
        "groups.obj": obj(box, QUADS) + more,
        "points.obj": obj(box, []),
        "plain.msh": msh(box, TRIANGLES),
        "full.msh": msh(box, TRIANGLES, normal, texcoord),
        **{f"star{axis}.obj": obj(np.roll(prism, axis, axis=1), sides) for axis in range(3)},
    }


def field_files() -> dict[str, bytes]:
    """One file for every way to write a height field."""
    rng = np.random.default_rng(2)
    gray = rng.integers(10, 200, size=(5, 7)).astype(np.uint8)
    colour = rng.integers(0, 255, size=(5, 7, 4)).astype(np.uint8)
    return {
        "gray.png": png(gray),
        "rgb.png": png(colour[..., :3].copy()),
        "rgba.png": png(colour),
        "palette.png": png(colour[..., :3].copy(), "P"),
        "deep.png": png(rng.integers(0, 65535, size=(5, 7)).astype(np.uint16)),
        "bits.png": png(gray, "1"),
        "binary.bin": binary_field(rng.normal(size=(3, 4))),
        "flat.bin": binary_field(np.ones((2, 2))),
    }
