"""Reader of Gmsh files, formats 2.2 and 4.1, text and binary: points and simplices.

As in MuJoCo, a file has one mesh: one block of nodes and one block of elements, which are all lines, all triangles or
all tetrahedra. Nodes keep their order, including nodes without an element. Node numbers need not begin at 1.
Source: Gmsh reference manual, "MSH file format"; mjCFlexcomp::LoadGMSH (MuJoCo 3.8.1) for what is refused.
"""

from typing import NamedTuple

import numpy as np

from diffsim.mjcf.resources import MOST_FACES, MOST_VERTICES, AssetError, check_count

Array = np.ndarray

# Gmsh's types of elements that are simplices, and their dimension
SIMPLICES = {1: 1, 2: 2, 4: 3}

# a node in binary format 2.2
_NODE22 = np.dtype([("tag", "<i4"), ("point", "<f8", 3)])
# Format 4.1 has 8 numbers before the nodes and before the elements. The first four are the numbers of blocks and of
# items in all blocks, and the smallest and largest number of an item. The other four are about the first block: its
# dimension, its number, the type of its elements (for nodes, whether they have parameters), and its number of items.
_HEADER41 = np.dtype([("counts", "<u8", 4), ("kind", "<i4", 3), ("number", "<u8")])


class Simplices(NamedTuple):
    """Points (n, 3) m, and the points of each of m simplices (m, dim + 1)."""

    point: Array
    element: Array


def read_gmsh(data: bytes) -> Simplices:
    """The mesh in a Gmsh file. Raises AssetError if the file is damaged or has several meshes."""
    if not data.startswith(b"$MeshFormat"):
        raise AssetError("is not a Gmsh file: it must begin with $MeshFormat")
    words = data[len(b"$MeshFormat") : 200].split(None, 2)
    try:
        version = round(100 * float(words[0]))
        binary = int(words[1])
    except (IndexError, ValueError, OverflowError):
        raise AssetError("is not a Gmsh file: its version cannot be read") from None
    if version not in (220, 410):
        raise AssetError(f"format {version / 100:g} of Gmsh files is not supported", "save it in format 2.2 or 4.1")
    sections = [_section(data, name, bool(binary)) for name in ("Nodes", "Elements")]
    if binary:
        tags, point, element = _binary41(*sections) if version == 410 else _binary22(*sections)
    else:
        words = [section.split() for section in sections]
        tags, point, element = _text41(*words) if version == 410 else _text22(*sections)
    return Simplices(point, _positions(element, tags))


def _section(data: bytes, name: str, binary: bool) -> bytes:
    """The contents between $name and $Endname."""
    begin, end = data.find(f"${name}".encode()), data.find(f"$End{name}".encode())
    if begin < 0:
        raise AssetError(f"${name} is missing")
    begin = data.find(b"\n", begin) + 1
    if end < begin or not begin:
        raise AssetError(f"$End{name} is missing after ${name}")
    return data[begin:end] if binary else data[begin:end].strip()


def _positions(element: Array, tags: Array) -> Array:
    """Node numbers as indices of nodes in the file."""
    order = np.argsort(tags, kind="stable")
    if (np.diff(tags[order]) == 0).any():
        raise AssetError("two nodes have the same number")
    if not np.isin(element, tags).all():
        wrong = element.ravel()[np.argmax(~np.isin(element.ravel(), tags))]
        raise AssetError(f"an element uses node {wrong}, which does not exist")
    return order[np.searchsorted(tags, element, sorter=order)].astype(np.int32)


def _dimension(kind: int) -> int:
    """The dimension of a type of element."""
    if kind not in SIMPLICES:
        raise AssetError(f"elements of type {kind} are not lines, triangles or tetrahedra")
    return SIMPLICES[kind]


# --------------------------------------------------------------------------------------------------------------- text


def _numbers(words: list[bytes], kind: type, what: str) -> Array:
    """Words as numbers. Raises AssetError if one of them is not a number."""
    try:
        return np.array(words, dtype=bytes).astype(np.float64 if kind is float else np.int64)
    except (ValueError, OverflowError):
        raise AssetError(f"{what}: a word is not a number") from None


def _text_count(section: bytes, what: str, most: int) -> tuple[int, list[bytes]]:
    """The number on the first line of a section of format 2.2, and the words after it."""
    first, _, rest = section.partition(b"\n")
    if not first.strip().isdigit() or len(first) > 20:
        raise AssetError(f"the number of {what} is missing")
    check_count(int(first), most, what)
    return int(first), rest.split()


def _text22(nodes: bytes, elements: bytes) -> tuple[Array, Array, Array]:
    """The numbers (n,) and points (n, 3) of nodes, and the nodes of elements, from text in format 2.2.

    A node is a line with its number and point. An element is a line with its number, its type, its number of tags, the
    tags, and its nodes.
    """
    number, words = _text_count(nodes, "nodes", MOST_VERTICES)
    if len(words) < 4 * number:
        raise AssetError(f"the file claims {number} nodes but has {len(words) // 4}")
    rows = _numbers(words[: 4 * number], float, "nodes").reshape(number, 4)
    count, words = _text_count(elements, "elements", MOST_FACES)
    row = _numbers(words, int, "elements")
    if len(row) < 3 or not count:
        raise AssetError("there are no elements")
    dim = _dimension(int(row[1]))
    width = 3 + int(row[2]) + dim + 1
    if len(row) < count * width:
        raise AssetError(f"the file claims {count} elements but has {len(row) // width}")
    table = row[: count * width].reshape(count, width)
    if not (table[:, 1:3] == table[0, 1:3]).all():
        raise AssetError("the file has elements of different types", "save only one type of element")
    return rows[:, 0].astype(np.int64), rows[:, 1:], table[:, -dim - 1 :]


def _text41(nodes: list[bytes], elements: list[bytes]) -> tuple[Array, Array, Array]:
    """The numbers (n,) and points (n, 3) of nodes, and the nodes of elements, from text in format 4.1.

    After the header come the numbers of all nodes, then their points. An element is its number and its nodes.
    """
    if len(nodes) < 8 or len(elements) < 8:
        raise AssetError("the header of nodes or elements is missing")
    head = _numbers(nodes[:8], int, "nodes")
    number = _block_size(head[:4], int(head[7]), "nodes", MOST_VERTICES)
    if head[3] != number:
        raise AssetError(f"the largest node number is {head[3]}, but there are {number} nodes")
    if len(nodes) < 8 + 4 * number:
        raise AssetError(f"the file claims {number} nodes but has fewer")
    tags = _numbers(nodes[8 : 8 + number], int, "nodes")
    point = _numbers(nodes[8 + number : 8 + 4 * number], float, "nodes").reshape(number, 3)
    top = _numbers(elements[:8], int, "elements")
    count = _block_size(top[:4], int(top[7]), "elements", MOST_FACES)
    dim = _dimension41(int(head[4]), int(top[4]), int(top[6]))
    if len(elements) < 8 + (dim + 2) * count:
        raise AssetError(f"the file claims {count} elements but has fewer")
    table = _numbers(elements[8 : 8 + (dim + 2) * count], int, "elements").reshape(count, dim + 2)
    return _in_order(tags, int(head[2])), point, table[:, 1:]


def _block_size(counts: Array, within: int, what: str, most: int) -> int:
    """The number of nodes or elements, which must be in one block."""
    blocks, number = int(counts[0]), int(counts[1])
    if blocks != 1 or number != within:
        raise AssetError(f"all {what} must be in one block")
    if number < 1:
        raise AssetError(f"there are no {what}")
    check_count(number, most, what)
    return number


def _dimension41(of_nodes: int, of_elements: int, kind: int) -> int:
    """The dimension of a mesh in format 4.1, which gives it three times."""
    if of_nodes not in (1, 2, 3) or of_nodes != of_elements or _dimension(kind) != of_elements:
        raise AssetError(
            f"its dimensions differ: nodes of dimension {of_nodes}, elements of dimension {of_elements} and type {kind}"
        )
    return of_elements


def _in_order(tags: Array, least: int) -> Array:
    """Node numbers, unchanged. Raises AssetError unless they count up from `least`."""
    if not np.array_equal(tags, least + np.arange(len(tags))):
        raise AssetError("node numbers must be consecutive")
    return tags


# ------------------------------------------------------------------------------------------------------------- binary


def _binary22(nodes: bytes, elements: bytes) -> tuple[Array, Array, Array]:
    """The numbers (n,) and points (n, 3) of nodes, and the nodes of elements, from binary data in format 2.2.

    Elements come in blocks. A block has a header of three integers: the type of its elements, how many of them follow,
    and their number of tags. An element is its number, its tags and its nodes.
    """
    number, start = _binary_count(nodes, "nodes", MOST_VERTICES)
    _check_length(nodes, start + number * _NODE22.itemsize, "nodes")
    rows = np.frombuffer(nodes, _NODE22, number, start)
    count, start = _binary_count(elements, "elements", MOST_FACES)
    blocks = list[Array]()
    done = 0
    dim = 0
    while done < count:
        _check_length(elements, start + 12, "elements")
        kind, follow, tags = (int(word) for word in np.frombuffer(elements, "<i4", 3, start))
        dim = dim or _dimension(kind)
        if follow < 1 or tags < 0 or _dimension(kind) != dim:
            raise AssetError("the file has elements of different types, or it is damaged")
        width = 1 + tags + dim + 1
        _check_length(elements, start + 12 + 4 * follow * width, "elements")
        block = np.frombuffer(elements, "<i4", follow * width, start + 12).reshape(follow, width)
        blocks.append(block[:, -dim - 1 :])
        done = done + follow
        start = start + 12 + 4 * follow * width
    if not count:
        raise AssetError("there are no elements")
    return rows["tag"].astype(np.int64), rows["point"], np.concatenate(blocks)[:count].astype(np.int64)


def _binary_count(section: bytes, what: str, most: int) -> tuple[int, int]:
    """The number on the first line of a binary section of format 2.2, and where the next line begins."""
    line = section.find(b"\n", 0, 12)
    if line < 0 or not section[:line].strip().isdigit():
        raise AssetError(f"the number of {what} is missing")
    number = int(section[:line])
    check_count(number, most, what)
    return number, line + 1


def _check_length(section: bytes, needed: int, what: str) -> None:
    """Raises AssetError if a section has fewer than `needed` bytes."""
    if len(section) < needed:
        raise AssetError(f"is damaged: its {what} have {len(section)} bytes, but their counts need {needed}")


def _binary41(nodes: bytes, elements: bytes) -> tuple[Array, Array, Array]:
    """The numbers (n,) and points (n, 3) of nodes, and the nodes of elements, from binary data in format 4.1.

    The layout is the same as in `_text41`: a node takes 8 bytes for its number and 24 for its point, an element 8 for
    its number and 8 for each of its nodes.
    """
    size = _HEADER41.itemsize
    _check_length(nodes, size, "nodes")
    _check_length(elements, size, "elements")
    head, top = (np.frombuffer(section, _HEADER41, 1)[0] for section in (nodes, elements))
    number = _block_size(head["counts"], int(head["number"]), "nodes", MOST_VERTICES)
    count = _block_size(top["counts"], int(top["number"]), "elements", MOST_FACES)
    dim = _dimension41(int(head["kind"][0]), int(top["kind"][0]), int(top["kind"][2]))
    _check_length(nodes, size + 32 * number, "nodes")
    _check_length(elements, size + 8 * count * (dim + 2), "elements")
    tags = np.frombuffer(nodes, "<u8", number, size).astype(np.int64)
    point = np.frombuffer(nodes, "<f8", 3 * number, size + 8 * number).reshape(number, 3)
    table = np.frombuffer(elements, "<u8", count * (dim + 2), size).reshape(count, dim + 2)
    return _in_order(tags, int(head["counts"][2])), point, table[:, 1:].astype(np.int64)
