"""read_obj: the surface in an OBJ file, with texture coordinates and normals; its polygons are cut into triangles.

Only the polygons of the first object are read. As in MuJoCo, groups after the first that has polygons are left out, and
so are polygons with more than 100 corners, with a warning. No mesh library is used, because libraries do not keep
MuJoCo's order of vertices and its way of cutting polygons.
Source: MuJoCo "XML reference", mesh; the public description of the format.
"""

import re
import warnings
from itertools import chain

import numpy as np

from diffsim.base import changes
from diffsim.mjcf.files.ears import cut_polygons
from diffsim.mjcf.files.surface import Surface
from diffsim.mjcf.resources import MOST_FACES, MOST_VERTICES, AssetError, check_count

Array = np.ndarray

# the forms of a polygon's corners, and which of vertex (0), texture coordinate (1) and normal (2) each form gives
_FORMS = (
    (re.compile(rb"(?:\d++\s*+)++"), (0,)),
    (re.compile(rb"(?:\d++/\d++/\d++\s*+)++"), (0, 1, 2)),
    (re.compile(rb"(?:\d++//\d++\s*+)++"), (0, 2)),
    (re.compile(rb"(?:\d++/\d++\s*+)++"), (0, 1)),
)
# polygons of an OBJ file with more corners are left out, as in MuJoCo
MOST_CORNERS = 100
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

        Reads the k-th digit of all numbers at once, before the point and after it. This is several times as fast as
        `np.fromstring`, and gives the same floats.
        """
        text = np.frombuffer(self.text, np.uint8)
        point = np.flatnonzero(text == ord("."))
        minus = text[self.begin] == ord("-")
        first = self.begin + minus
        length = self.end - self.begin - minus
        if len(point) != len(first) or ((length < 2) | (length > MOST_DIGITS + 1)).any():
            return None
        total = np.count_nonzero(text - ord("0") < 10) + np.count_nonzero(minus)
        if total + len(point) != np.sum(self.end - self.begin) or ((point < first) | (point >= self.end)).any():
            return None
        after = self.end - point - 1
        # powers of 10, and sums of digits times these, are integers that float64 represents
        scale = 10.0 ** np.arange(MOST_DIGITS + 1)
        whole = _before(text, point, point - first) * scale[after] + _before(text, self.end, after)
        return np.where(minus, -whole, whole) / scale[after]


def _before(text: Array, end: Array, length: Array) -> Array:
    """The integers (n,) whose last digit is before `end`, from `length` digits each."""
    most = int(length.max(initial=0))
    least = int(length.min(initial=most))
    padded = np.append(np.zeros(most, np.uint8), text)
    number = np.zeros(len(end))
    for place in range(most):
        digit = padded[most - 1 - place :].take(end) - np.uint8(ord("0"))
        if place >= least:
            digit *= place < length
        number += digit * 10.0**place
    return number


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
    parts = corner[cut_polygons(vertex, corner[:, 0], count, changes.follows(mujoco, "short_diagonals"))]
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
