"""Readers of mesh files: STL (binary and ASCII), MuJoCo's own MSH, and OBJ.

Vertices and triangles have MuJoCo's order. An STL file repeats its vertices; equal ones are merged at their first
occurrence. The other formats keep their vertices as they are. ASCII STL, which MuJoCo refuses, is read too.

From an OBJ file, only the polygons of the first object are read. A polygon is triangulated by cutting off ears,
beginning with its first three corners, until a triangle is left. As in MuJoCo, groups after the first that has polygons
are left out, and so are polygons with more than 100 corners, with a warning. No mesh library is used, because libraries
do not keep MuJoCo's order of vertices and its way of cutting polygons.
Source: MuJoCo "XML reference", mesh; the formats' public descriptions; tinyobjloader for the cuts.
"""

import re
import warnings
from collections.abc import Callable
from dataclasses import replace
from itertools import chain

import numpy as np

from diffsim.base import changes
from diffsim.mjcf.files.surface import Surface, cross_product, first_seen
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


# the forms of a polygon's corners, and which of vertex (0), texture coordinate (1) and normal (2) each form gives
_FORMS = (
    (re.compile(rb"(?:\d++\s*+)++"), (0,)),
    (re.compile(rb"(?:\d++/\d++/\d++\s*+)++"), (0, 1, 2)),
    (re.compile(rb"(?:\d++//\d++\s*+)++"), (0, 2)),
    (re.compile(rb"(?:\d++/\d++\s*+)++"), (0, 1)),
)

# polygons of an OBJ file with more corners are left out, as in MuJoCo
MOST_CORNERS = 100
# the polygons of a file are cut in at most this many tests of corners, which take about a second
MOST_WORK = 50_000_000
# a round of cutting counts as at least this many tests, for the fixed time of its numpy calls
LEAST_WORK = 3000

# Integers with this many digits and powers of 10 up to this exponent are exact in float64, so the quotient of two of
# them is the nearest float to the decimal.
MOST_DIGITS = 15
# (256,) bool: which bytes separate words
SPACE = np.isin(np.arange(256), list(b" \t\n\r\v\f"))
# (256,) bool: which bytes end a keyword
ENDS_WORD = np.isin(np.arange(256), list(b" \n"))
# (256,) bool: the keywords that begin a group or an object
BEGINS_PART = np.isin(np.arange(256), list(b"go"))
# an index of a corner must be smaller
MOST_INDEX = 10**10


class _Lines:
    """The lines of a file with one keyword, without the keyword; each line ends with a newline."""

    def __init__(self, lines: bytes) -> None:
        self.text = lines
        # where words begin and end, and the number of words in each line
        text = np.frombuffer(lines, np.uint8)
        change = np.flatnonzero(np.diff(SPACE[text], prepend=True))
        self.begin = change[::2]
        self.end = change[1::2]
        self.count = np.diff(np.searchsorted(self.begin, np.flatnonzero(text == ord("\n"))), prepend=0)

    def __len__(self) -> int:
        return len(self.count)

    def decimals(self) -> Array | None:
        """The numbers as floats, if all are plain decimals (an optional minus, digits, one point); otherwise None.

        Reads the k-th digit of all numbers at once, which is twice as fast as `np.fromstring` and gives the same
        floats.
        """
        text = np.frombuffer(self.text, np.uint8)
        point = np.flatnonzero(text == ord("."))
        minus = text[self.begin] == ord("-")
        first = self.begin + minus
        length = self.end - self.begin - minus
        if len(point) != len(first) or ((length < 2) | (length > MOST_DIGITS + 1)).any():
            return None
        total = np.count_nonzero(text - ord("0") < 10) + np.count_nonzero(minus)
        number = np.zeros(len(first))
        if total + len(point) != np.sum(self.end - self.begin) or ((point < first) | (point >= self.end)).any():
            return None
        for place in range(int(length.max(initial=0))):
            digit = text[np.minimum(first + place, len(text) - 1)].astype(int) - ord("0")
            number = np.where((place < length) & (first + place != point), 10 * number + digit, number)
        return np.where(minus, -number, number) / 10.0 ** (self.end - point - 1)


def read_obj(data: bytes, name: str = "an OBJ file", mujoco: str = changes.DEFAULT) -> Surface:
    """A surface from OBJ, the contents of file `name`. Raises AssetError if the file is damaged.

    Args:
      data: the contents.
      name: the name for messages.
      mujoco: the version of MuJoCo to follow.
    """
    lines = _sorted_lines(data)
    check_count(len(lines["v"]), MOST_VERTICES, "vertices")
    check_count(len(lines["f"]), MOST_FACES, "polygons")
    vertex, normal = _obj_numbers(lines["v"], 3, 3), _obj_numbers(lines["vn"], 3, 3)
    texcoord = _obj_numbers(lines["vt"], 1, 2)
    # the first row of an image is at the top, but v = 0 is at the bottom in OBJ
    texcoord[:, 1] = 1 - texcoord[:, 1]
    corner, count = _polygons(lines["f"])
    # each corner must name an existing vertex; texture coordinates and normals must exist if they are named
    limits = {"vertex": len(vertex), "texture coordinate": len(texcoord), "normal": len(normal)}
    for column, (what, limit) in enumerate(limits.items()):
        wrong = (corner[:, column] >= limit) | (corner[:, column] < (0 if column == 0 else -1))
        if wrong.any():
            number = int(corner[np.argmax(wrong), column]) + 1
            raise AssetError(f"a polygon uses {what} {number}, but there are only {limit}")
    # polygons with fewer than three corners are ignored
    kept = (count >= 3) & (count <= MOST_CORNERS)
    if larger := int((count > MOST_CORNERS).sum()):
        warnings.warn(
            f"{name} has {larger} polygons with more than {MOST_CORNERS} corners: they are left out, as MuJoCo does;"
            " write them as triangles",
            stacklevel=2,
        )
    corner = corner[np.repeat(kept, count)]
    count = count[kept]
    parts = corner[_cut(vertex, corner[:, 0], count, changes.follows(mujoco, "short_diagonals"))]
    check_count(len(parts), MOST_FACES, "triangles")
    at_corners = {"facenormal": parts[:, :, 2]} if len(normal) and len(parts) else {}
    at_corners |= {"facetexcoord": parts[:, :, 1]} if len(texcoord) and len(parts) else {}
    return Surface(vertex, parts[:, :, 0], normal, texcoord, **at_corners)


def _sorted_lines(data: bytes) -> dict[str, _Lines]:
    """The lines with vertices, normals, texture coordinates and polygons, by keyword; indices are positive."""
    data = data.replace(b"\t", b" ").replace(b"\r\n", b"\n").replace(b"\r", b"\n") + b"\n"
    text = np.append(np.frombuffer(data, np.uint8), np.frombuffer(b"\n\n", np.uint8))
    end = np.flatnonzero(text[:-2] == ord("\n"))
    start = np.append(0, end[:-1] + 1)
    # the keyword begins at the first character of a line that is not a blank
    word = start
    if (indented := text[start] == ord(" ")).any():
        there = np.flatnonzero(text != ord(" "))
        word = np.where(indented, there[np.searchsorted(there, start)], start)
    first = text[word]
    second = text[word + 1]
    third = text[word + 2]
    alone, pair = ENDS_WORD[second], ENDS_WORD[third]
    kinds = {"v": (first == ord("v")) & alone, "f": (first == ord("f")) & (second == ord(" "))}
    kinds |= {f"v{kind}": (first == ord("v")) & (second == ord(kind)) & pair for kind in "tn"}
    # only polygons before the first group or object that follows a polygon are read
    ends = BEGINS_PART[first] & alone & (np.cumsum(kinds["f"]) > 0)
    last = int(np.argmax(ends)) if ends.any() else len(ends)
    kinds["f"][last:] = False
    # overwrite the keywords with blanks
    for keyword, chosen in kinds.items():
        for letter in range(len(keyword)):
            text[word[chosen] + letter] = ord(" ")
    view = memoryview(text)
    lines = {}
    for keyword, chosen in kinds.items():
        # join the runs of consecutive lines with this keyword
        change = np.flatnonzero(np.diff(chosen, prepend=False, append=False))
        runs = zip(start[change[::2]].tolist(), (end[change[1::2] - 1] + 1).tolist(), strict=True)
        lines[keyword] = _Lines(b"".join(view[first:after] for first, after in runs))
    if b"-" in lines["f"].text:
        faces = _positive_faces([row.lstrip() for row in data.split(b"\n")[:last]])
        lines["f"] = _Lines(b"".join(face + b"\n" for face in faces))
    return lines


def _positive_faces(rows: list[bytes]) -> list[bytes]:
    """The polygons, with positive numbers in place of negative ones, which count back from the last vertex so far."""
    counts = {b"v": 0, b"vt": 0, b"vn": 0}
    faces = []

    def positive(word: bytes, count: int) -> bytes:
        return str(count + 1 + _integer(word)).encode() if word.startswith(b"-") else word

    for row in rows:
        head, _, face = row.partition(b" ")
        if head in counts:
            counts[head] += 1
        elif head == b"f":
            if b"-" in face:
                corners = (zip(corner.split(b"/"), counts.values(), strict=False) for corner in face.split())
                face = b" ".join(b"/".join(positive(*word) for word in corner) for corner in corners)
            faces.append(face)
    return faces


def _integer(word: bytes) -> int:
    """A word as an integer; 2^31, which no index reaches, if it is too long. Raises AssetError if it is not one."""
    try:
        return int(word) if len(word) < 12 else 2**31
    except ValueError:
        raise AssetError(f"is not an OBJ file: '{word[:20].decode(errors='replace')}' is not an integer") from None


def _obj_numbers(lines: _Lines, fewest: int, width: int) -> Array:
    """(n, width) float32: the first `width` numbers of each line, completed by zeros.

    Raises AssetError if a line has fewer than `fewest` numbers.
    """
    text = lines.text
    numbers = None
    if (lines.count == width).all():
        numbers = lines.decimals()
    else:
        if lines.count.min() < fewest:
            raise AssetError(f"is not an OBJ file: a line has fewer than {fewest} numbers")
        rows = [row.split()[:width] for row in text.splitlines()]
        text = b" ".join(chain.from_iterable(row + [b"0"] * (width - len(row)) for row in rows))
    try:
        numbers = np.fromstring(text, float, sep=" ") if numbers is None else numbers
    except (ValueError, DeprecationWarning):
        raise AssetError("is not an OBJ file: not a number") from None
    if len(numbers) != len(lines) * width:
        raise AssetError("is not an OBJ file: not a number")
    if not (np.abs(numbers) <= np.finfo(np.float32).max).all():
        raise AssetError("a coordinate is not finite")
    return numbers.reshape(-1, width).astype(np.float32)


def _polygons(lines: _Lines) -> tuple[Array, Array]:
    """Corners (n, 3) of all polygons as vertex, texture coordinate and normal (-1: none), and their counts."""
    count = lines.count
    text = lines.text.strip()
    corner = np.full((int(count.sum()), 3), -1)
    form = next((columns for pattern, columns in _FORMS if pattern.fullmatch(text)), None)
    if form is None:
        for row, word in zip(corner, text.split(), strict=True):
            parts = word.split(b"/")
            if len(parts) > 3 or not parts[0]:
                raise AssetError(f"is not an OBJ file: '{word[:20].decode(errors='replace')}' is not a corner")
            row[: len(parts)] = [_integer(part) - 1 if part else -1 for part in parts]
    else:
        numbers = np.fromstring(text.replace(b"/", b" "), np.int64, sep=" ")
        if numbers.max(initial=0) >= MOST_INDEX:
            raise AssetError("is not an OBJ file: an index of a corner is too large")
        corner[:, form] = numbers.reshape(len(corner), len(form)) - 1
    return corner.astype(np.int32), count


def _cut(vertex: Array, corner: Array, count: Array, short_diagonals: bool) -> Array:
    """Triangles (m, 3) of all polygons in turn, as indices into the list of corners.

    Args:
      vertex: (nvert, 3) m.
      corner: (n,) vertices of the corners of all polygons, one polygon after another.
      count: (npolygon,) number of corners of each polygon.
      short_diagonals: whether a polygon with four corners is cut along its shorter diagonal, even if not convex.
    """
    start = np.cumsum(count) - count
    parts = count - 2
    result = np.zeros((int(parts.sum()), 3), int)
    place = np.cumsum(parts) - parts
    three = np.flatnonzero(count == 3)
    result[place[three]] = start[three][:, None] + np.arange(3)
    rest = np.flatnonzero(count > 3)
    if short_diagonals:
        four = np.flatnonzero(count == 4)
        rest = np.flatnonzero(count > 4)
        points = vertex[corner[start[four][:, None] + np.arange(4)]]
        first, second = ((points[:, k + 2] - points[:, k]) ** 2 for k in range(2))
        shorter = first.sum(axis=1, dtype=np.float32) < second.sum(axis=1, dtype=np.float32)
        for row, pair in enumerate((((0, 1, 2), (0, 1, 3)), ((0, 2, 3), (1, 2, 3)))):
            result[place[four] + row] = start[four][:, None] + np.where(shorter[:, None], *np.array(pair))
    # whether each row stays unused because its polygon could not be cut to the end
    uncut = np.zeros(len(result), bool)
    spent = 0
    # polygons with 4 corners together, then with 5 to 8, with 9 to 16, and so on: padding at most doubles the work
    power = np.ceil(np.log2(count[rest]))
    for polygon in (rest[power == number] for number in np.unique(power)):
        size = count[polygon]
        column = np.minimum(np.arange(size.max()), size[:, None] - 1)
        triangle, number, spent = _ears(vertex[corner[start[polygon][:, None] + column]], size, spent)
        there = np.arange(triangle.shape[1]) < (size - 2)[:, None]
        rows = (place[polygon][:, None] + np.arange(triangle.shape[1]))[there]
        result[rows] = (start[polygon][:, None, None] + triangle)[there]
        uncut[rows] = (np.arange(triangle.shape[1]) >= number[:, None])[there]
    return result[~uncut]


def _ears(points: Array, size: Array, spent: int) -> tuple[Array, Array, int]:
    """Triangulates polygons by cutting off ears, in tinyobjloader's order.

    Each polygon is projected to the two axes along which it is largest. All polygons try their next corner at once: if
    it is convex and its triangle contains no other corner, the triangle is cut off. Arithmetic is in float32 as in
    tinyobjloader, because three corners in line are frequent and rounding decides about them.

    Args:
      points: (m, k, 3) corners.
      size: (m,) how many corners of each polygon count.
      spent: the work done so far for this file.

    Returns:
      Triangles (m, k - 2, 3), how many of them each polygon has (m,), and the work done so far.
    """
    count, corners = points.shape[:2]
    column = np.arange(corners)
    polygon = np.arange(count)[:, None]
    after = np.where(column + 1 < size[:, None], column + 1, 0)
    # the two axes along which the triangle at the first corner that is not straight has its largest projection
    edge = points[polygon, after] - points
    turn = np.abs(cross_product(edge, edge[polygon, after]))
    real = (turn > np.finfo(np.float32).eps).any(axis=2) & (column < size[:, None])
    x, y, z = turn[np.arange(count), np.argmax(real, axis=1)].T
    along_x = ((x > y) & (x > z)) | ~real.any(axis=1)
    along_z = (z > x) & (z > y)
    axes = np.where(along_x[:, None], [1, 2], np.where(along_z[:, None], [0, 1], [0, 2]))
    flat = points[polygon[:, :, None], column[:, None], axes[:, None]]
    x, y = flat[:, :, 0], flat[:, :, 1]
    # the signed area, summed in order: rounding decides the orientation of thin polygons
    terms = (x * y[polygon, after] - y * x[polygon, after]) * np.float32(0.5)
    area = np.cumsum(np.where(column < size[:, None], terms, 0), axis=1, dtype=np.float32)[:, -1]
    # for each polygon: the remaining corners (their number is `size`), the corner to try next, and the tries left
    left = np.tile(column, (count, 1))
    size = size.copy()
    at = np.zeros(count, int)
    tries = size.copy()
    triangle = np.zeros((count, corners - 2, 3), int)
    number = np.zeros(count, int)
    while len(row := np.flatnonzero((size > 3) & (tries > 0))):
        spent += max(len(row) * corners, LEAST_WORK)
        check_count(spent, MOST_WORK, "corners to try before its polygons are cut: write it as triangles")
        at[row] %= size[row]
        turned = left[row[:, None], (at[row, None] + column) % size[row, None]]
        ear = _is_ear(flat[row[:, None], turned], size[row], area[row])
        cut = row[ear]
        kept = row[~ear]
        triangle[cut, number[cut]] = turned[ear, :3]
        # corners after the one that is cut off move up
        gap = (at[cut] + 1) % size[cut]
        left[cut] = left[cut[:, None], np.minimum(column + (column >= gap[:, None]), corners - 1)]
        size[cut] -= 1
        # as in tinyobjloader: if the first ear is found only at the last try, the rest of the polygon stays uncut
        tries[cut] = np.where((number[cut] == 0) & (tries[cut] == 1), 0, size[cut])
        number[cut] += 1
        at[kept] += 1
        tries[kept] -= 1
    last = np.flatnonzero(size == 3)
    triangle[last, number[last]] = left[last, :3]
    number[last] += 1
    return triangle, number, spent


def _is_ear(points: Array, size: Array, area: Array) -> Array:
    """(m,) bool: the second corner of polygons (m, k, 2) is convex, and its triangle contains no other corner."""
    x, y = points[:, :, 0], points[:, :, 1]
    turn = (x[:, 1] - x[:, 0]) * (y[:, 2] - y[:, 1]) - (y[:, 1] - y[:, 0]) * (x[:, 2] - x[:, 1])
    inside = np.zeros((len(points), points.shape[1] - 3), bool)
    # a ray along x crosses the border of the triangle an odd number of times if it starts inside
    for first, second in ((0, 2), (1, 0), (2, 1)):
        ax = x[:, first, None]
        ay = y[:, first, None]
        bx = x[:, second, None]
        by = y[:, second, None]
        crossed = (ay > y[:, 3:]) != (by > y[:, 3:])
        height = np.where(by != ay, by - ay, 1)
        inside ^= crossed & (x[:, 3:] < (bx - ax) * (y[:, 3:] - ay) / height + ax)
    inside &= np.arange(3, points.shape[1]) < size[:, None]
    return ~(turn * area < 0) & ~inside.any(axis=1)


# readers by media type
READERS: dict[str, Callable[[bytes], Surface]] = {
    "model/stl": read_stl,
    "model/obj": read_obj,
    "model/vnd.mujoco.msh": read_msh,
}
