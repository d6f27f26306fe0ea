"""OBJ files -> Surface: vertices, normals, texture coordinates, and the polygons of the first object as triangles.

Vertices stay as they are, also those that no polygon uses. A polygon loses one ear after another, beginning with its
first three corners, until a triangle is left. Groups after the first that has polygons are left out, as by MuJoCo,
which also leaves out polygons of more than 100 corners; ours are cut.
Source: the format by Wavefront; MuJoCo reads it with tinyobjloader, whose cuts these are.
"""

import re
from dataclasses import dataclass
from itertools import chain

import numpy as np

from diffsim.mjcf.files.limits import MOST_FACES, MOST_VERTICES, AssetError, check_count
from diffsim.mjcf.files.surface import Surface, cross_product

Array = np.ndarray

# corners of polygons: numbers of vertex, texture coordinate and normal, and which of the three each form has
_FORMS = (
    (re.compile(rb"(?:\d++\s*+)++"), (0,)),
    (re.compile(rb"(?:\d++/\d++/\d++\s*+)++"), (0, 1, 2)),
    (re.compile(rb"(?:\d++//\d++\s*+)++"), (0, 2)),
    (re.compile(rb"(?:\d++/\d++\s*+)++"), (0, 1)),
)

# cutting a polygon may take time that grows with the cube of its corners: corners that are compared, in all and a round
MOST_CORNERS, MOST_WORK, LEAST_WORK = 1000, 50_000_000, 3000

# corners of the two halves of a quadrilateral
FAN = np.array([[0, 1, 2], [0, 2, 3]])


@dataclass
class _Lines:
    """The lines of a file by kind, without their keyword."""

    vertex: list[bytes]
    texcoord: list[bytes]
    normal: list[bytes]
    face: list[bytes]


def read_obj(data: bytes) -> Surface:
    """A surface from OBJ. Raises AssetError where the file is damaged."""
    lines = _sorted_lines(data)
    check_count(len(lines.vertex), MOST_VERTICES, "vertices")
    check_count(len(lines.face), MOST_FACES, "polygons")
    vertex, normal = _numbers(lines.vertex, 3, 3), _numbers(lines.normal, 3, 3)
    texcoord = _numbers(lines.texcoord, 1, 2)
    # images begin at the top, OBJ counts from the bottom
    texcoord[:, 1] = 1 - texcoord[:, 1]
    corner, count = _polygons(lines.face)
    _check_corners(corner, [len(vertex), len(texcoord), len(normal)])
    corner, count = _without_degenerate(corner, count)
    parts = corner[_cut(vertex.astype(float), corner[:, 0], count)]
    check_count(len(parts), MOST_FACES, "triangles")
    known = {"facenormal": parts[:, :, 2]} if len(normal) and len(parts) else {}
    known |= {"facetexcoord": parts[:, :, 1]} if len(texcoord) and len(parts) else {}
    return Surface(vertex, parts[:, :, 0], normal, texcoord, **known)


def _sorted_lines(data: bytes) -> _Lines:
    """The lines that matter. Negative numbers, which count from the end of what is there so far, are made positive."""
    rows = data.replace(b"\t", b" ").splitlines()
    if b" " in {row[:1] for row in rows}:
        rows = [row.lstrip() for row in rows]
    # one pass for each kind is faster than one pass that looks at everything
    last = _end_of_first_group(rows)
    face = [row[2:] for row in rows[:last] if row[:2] == b"f "]
    if b"-" in b"".join(face):
        face = _positive_faces(rows[:last])
    vertex = [row[2:] for row in rows if row[:2] == b"v " or row == b"v"]
    texcoord, normal = ([row[3:] for row in rows if row[:3] == word + b" " or row == word] for word in (b"vt", b"vn"))
    return _Lines(vertex, texcoord, normal, face)


def _end_of_first_group(rows: list[bytes]) -> int:
    """The line of the first group or object after the first polygon; what follows it is left out."""
    first = next((index for index, row in enumerate(rows) if row[:2] == b"f "), len(rows))
    ends = (index for index in range(first, len(rows)) if rows[index][:2] in (b"g ", b"o ", b"g", b"o"))
    return next(ends, len(rows))


def _positive_faces(rows: list[bytes]) -> list[bytes]:
    """The polygons, their negative numbers made positive."""
    counts, faces = {b"v": 0, b"vt": 0, b"vn": 0}, []
    for row in rows:
        head, _, rest = row.partition(b" ")
        if head in counts:
            counts[head] += 1
        elif head == b"f":
            faces.append(_absolute(rest, (counts[b"v"], counts[b"vt"], counts[b"vn"])) if b"-" in rest else rest)
    return faces


def _absolute(face: bytes, counts: tuple[int, int, int]) -> bytes:
    """A polygon in positive numbers."""

    def positive(word: bytes, count: int) -> bytes:
        return str(count + 1 + _integer(word)).encode() if word.startswith(b"-") else word

    corners = (zip(corner.split(b"/"), counts, strict=False) for corner in face.split())
    return b" ".join(b"/".join(positive(word, count) for word, count in corner) for corner in corners)


def _integer(word: bytes) -> int:
    try:
        return int(word) if len(word) < 12 else 2**31
    except ValueError:
        raise AssetError(f"is not an OBJ file: '{word[:20].decode(errors='replace')}' is not an integer") from None


def _numbers(lines: list[bytes], fewest: int, width: int) -> Array:
    """The first `width` numbers of each line (n, width), zero where one has fewer; float32."""
    words: list[bytes] = b" ; ".join(lines).split()
    if len(words) == len(lines) * (width + 1) - 1 and set(words[width :: width + 1]) <= {b";"}:
        del words[width :: width + 1]
    elif lines:
        rows = [line.split() for line in lines]
        if min(map(len, rows)) < fewest:
            raise AssetError(f"is not an OBJ file: a line has fewer than {fewest} numbers")
        words = list(chain.from_iterable(row[:width] + [b"0"] * (width - len(row)) for row in rows))
    try:
        numbers = np.array(list(map(float, words))).reshape(-1, width)
    except ValueError:
        raise AssetError("is not an OBJ file: not a number") from None
    if not (np.abs(numbers) <= np.finfo(np.float32).max).all():
        raise AssetError("a coordinate is not finite")
    return numbers.astype(np.float32)


def _polygons(rows: list[bytes]) -> tuple[Array, Array]:
    """Corners (n, 3) of all polygons as vertex, texture coordinate and normal (-1 for none), and their counts."""
    count = np.array([len(row.split()) for row in rows], int)
    check_count(int(count.max(initial=0)), MOST_CORNERS, "corners in a polygon")
    joined = b" ".join(rows)
    corner = np.full((int(count.sum()), 3), -1)
    form = next((columns for pattern, columns in _FORMS if pattern.fullmatch(joined)), None)
    if form is None:
        corner[:] = [_corner(word) for word in joined.split()] or corner
    else:
        words = joined.replace(b"/", b" ").split()
        if max(map(len, words)) > 10:
            raise AssetError("is not an OBJ file: a number of a corner is too large")
        corner[:, form] = np.array(list(map(int, words))).reshape(len(corner), len(form)) - 1
    return corner.astype(np.int32), count


def _corner(word: bytes) -> list[int]:
    """One corner, counted from 0."""
    parts = word.split(b"/")
    if len(parts) > 3 or not parts[0]:
        raise AssetError(f"is not an OBJ file: '{word[:20].decode(errors='replace')}' is not a corner")
    return [_integer(part) - 1 if part else -1 for part in parts] + [-1] * (3 - len(parts))


def _check_corners(corner: Array, limits: list[int]) -> None:
    """Every corner has a vertex that is there; texture coordinates and normals are there, or not named."""
    for column, (limit, what) in enumerate(zip(limits, ("vertex", "texture coordinate", "normal"), strict=True)):
        wrong = (corner[:, column] >= limit) | (corner[:, column] < (0 if column == 0 else -1))
        if wrong.any():
            number = int(corner[np.argmax(wrong), column]) + 1
            raise AssetError(f"a polygon uses {what} {number}, of which there are {limit}")


def _without_degenerate(corner: Array, count: Array) -> tuple[Array, Array]:
    """Without polygons of fewer than three corners."""
    kept = count >= 3
    return corner[np.repeat(kept, count)], count[kept]


def _cut(vertex: Array, corner: Array, count: Array) -> Array:
    """Triangles (m, 3) of polygons in turn, as places in the list of corners."""
    start, parts = np.cumsum(count) - count, count - 2
    result = np.zeros((int(parts.sum()), 3), int)
    place = np.cumsum(parts) - parts
    three, four = np.flatnonzero(count == 3), np.flatnonzero(count == 4)
    result[place[three]] = start[three][:, None] + np.arange(3)
    quads = start[four][:, None] + np.arange(4)
    for half, own in enumerate(FAN):
        result[place[four] + half] = quads[:, own]
    rest = np.concatenate([four[~_fans(vertex[corner[quads]])], np.flatnonzero(count > 4)])
    lost, spent = np.zeros(len(result), bool), 0
    for size in np.unique(count[rest]).tolist():
        polygon = rest[count[rest] == size]
        own = start[polygon][:, None] + np.arange(size)
        triangle, made, spent = _ears(vertex[corner[own]], spent)
        rows = place[polygon][:, None] + np.arange(size - 2)
        result[rows] = start[polygon][:, None, None] + triangle
        lost[rows] = np.arange(size - 2) >= made[:, None]
    return result[~lost]


def _fans(points: Array) -> Array:
    """Which quadrilaterals (n, 4, 3) are cut well from their first to their third corner: both halves face one way."""
    diagonal = points[:, 2] - points[:, 0]
    halves = cross_product(points[:, 1] - points[:, 0], diagonal), cross_product(diagonal, points[:, 3] - points[:, 0])
    return (halves[0] * halves[1]).sum(axis=1) > 0


def _ears(points: Array, spent: int) -> tuple[Array, Array, int]:
    """Triangles (m, k - 2, 3) of polygons (m, k, 3), how many of them there are (m,), and the work `spent` so far.

    Ears are cut off in the plane of the two axes that show a polygon best. All polygons try their next corner at once.
    """
    count, corners = points.shape[:2]
    # the two coordinates in which the first real corner is largest
    edge = np.roll(points, -1, axis=1) - points
    turn = np.abs(cross_product(edge, np.roll(edge, -1, axis=1)))
    real = (turn > np.finfo(np.float32).eps).any(axis=2)
    x, y, z = turn[np.arange(count), np.argmax(real, axis=1)].T
    along_x, along_z = ((x > y) & (x > z)) | ~real.any(axis=1), (z > x) & (z > y)
    seen = np.where(along_x[:, None], [1, 2], np.where(along_z[:, None], [0, 1], [0, 2]))
    flat = np.take_along_axis(points, seen[:, None], axis=2)
    x, y = flat[:, :, 0], flat[:, :, 1]
    area = (x * np.roll(y, -1, axis=1) - y * np.roll(x, -1, axis=1)).sum(axis=1)
    # the corners that are left, how many these are, the one to try, and how many tries are left
    left, size = np.tile(np.arange(corners), (count, 1)), np.full(count, corners)
    at, tries = np.zeros(count, int), np.full(count, corners)
    triangle, made = np.zeros((count, corners - 2, 3), int), np.zeros(count, int)
    column = np.arange(corners)
    while len(row := np.flatnonzero((size > 3) & (tries > 0))):
        spent += max(len(row) * corners, LEAST_WORK)
        check_count(spent, MOST_WORK, "corners to try before its polygons are cut: write it as triangles")
        at[row] %= size[row]
        turned = np.take_along_axis(left[row], (at[row, None] + column) % size[row, None], axis=1)
        ear = _is_ear(np.take_along_axis(flat[row], turned[:, :, None], axis=1), size[row], area[row])
        cut, kept = row[ear], row[~ear]
        triangle[cut, made[cut]] = turned[ear, :3]
        # what comes after the corner that is cut off moves up
        gap = (at[cut] + 1) % size[cut]
        left[cut] = np.take_along_axis(left[cut], np.minimum(column + (column >= gap[:, None]), corners - 1), axis=1)
        made[cut] += 1
        size[cut] -= 1
        tries[cut] = size[cut]
        at[kept] += 1
        tries[kept] -= 1
    last = np.flatnonzero(size == 3)
    triangle[last, made[last]] = left[last, :3]
    made[last] += 1
    return triangle, made, spent


def _is_ear(points: Array, size: Array, area: Array) -> Array:
    """Whether the second corner (m, k, 2) points outwards and none of `size` corners but three is in their triangle."""
    x, y = points[:, :, 0], points[:, :, 1]
    turn = (x[:, 1] - x[:, 0]) * (y[:, 2] - y[:, 1]) - (y[:, 1] - y[:, 0]) * (x[:, 2] - x[:, 1])
    inside = np.zeros((len(points), points.shape[1] - 3), bool)
    # a ray along x from a point inside crosses the rim of the triangle an odd number of times
    for first, second in ((0, 1), (1, 2), (2, 0)):
        ax, ay, bx, by = x[:, first, None], y[:, first, None], x[:, second, None], y[:, second, None]
        crossed = (ay > y[:, 3:]) != (by > y[:, 3:])
        height = np.where(by != ay, by - ay, 1)
        inside ^= crossed & (x[:, 3:] < (bx - ax) * (y[:, 3:] - ay) / height + ax)
    inside &= np.arange(3, points.shape[1]) < size[:, None]
    return ~(turn * area < 0) & ~inside.any(axis=1)
