"""Integer tables of a flex that follow from its elements: edges, flaps, shell, layers, pairs for self-collisions.

A fragment is what an element of dimension d can share with a neighbour: d of its d + 1 vertices. Fragments that belong
to only one element form the border. All orders match mjCFlex::Compile, CreateFlapStencil and CreateShellPair
(MuJoCo 3.8.1).
"""

from typing import NamedTuple

import numpy as np

from diffsim.flex.material import EDGES
from diffsim.mjcf.files.surface import first_seen

Array = np.ndarray

# the fragments of an element by dimension, as its vertices; counterclockwise seen from outside
FRAGMENTS = {
    1: [(0,), (1,)],
    2: [(0, 1), (1, 2), (2, 0)],
    3: [(0, 1, 2), (0, 2, 3), (0, 3, 1), (1, 3, 2)],
}

# m: coordinates that differ by less are equal (mjEPS)
TIE = 1e-14


class Borders(NamedTuple):
    """The border of a flex.

    Attributes:
      shell: (n, dim) its fragments.
      layer: (m,) the number of steps from each element to the border.
      evpair: (k, 2) pairs of an element and a vertex of a neighbouring element.
    """

    shell: Array
    layer: Array
    evpair: Array


def number_edges(element: Array) -> tuple[Array, Array]:
    """Edges (n, 2), the smaller vertex first, in order of appearance, and the edges of each element (m, k)."""
    local = np.array(EDGES[element.shape[1] - 1])
    pairs = np.sort(element[:, local].reshape(-1, 2), axis=1)
    first, index = first_seen(pairs, axis=0)
    return pairs[first], index.reshape(-1, len(local))


def flaps(element: Array, elemedge: Array) -> Array:
    """(nedge, 2) the vertices opposite each edge in its first and last triangle; -1 if there is only one."""
    # edge k of a triangle is opposite its vertex k
    edge = elemedge.ravel()
    vertex = element.ravel()
    result = np.full((int(elemedge.max()) + 1, 2), -1)
    _, first = np.unique(edge, return_index=True)
    result[:, 0] = vertex[first]
    later = np.setdiff1d(np.arange(len(edge)), first)
    # with more than two triangles the last one counts
    result[edge[later], 1] = vertex[later]
    return result


def borders(element: Array) -> Borders:
    """The shell, layers and pairs of a flex with elements (m, dim + 1)."""
    dim = element.shape[1] - 1
    number = len(element)
    # sort all fragments by their vertices, then by element: equal neighbours in this order are shared by two elements
    local = np.array(FRAGMENTS[dim])
    outward = element[:, local].reshape(-1, dim)
    owner = np.repeat(np.arange(number), dim + 1)
    fragment = np.sort(outward, axis=1)
    order = np.lexsort((owner, *fragment.T[::-1]))
    outward = outward[order]
    owner = owner[order]
    fragment = fragment[order]
    same = (fragment[1:] == fragment[:-1]).all(axis=1)
    alone = ~np.append(False, same) & ~np.append(same, False)
    border = np.zeros(number, bool)
    border[owner[alone]] = True
    joined = np.stack([owner[:-1], owner[1:]], axis=1)[same]
    layer = _layers(border, joined) if dim == 3 else np.zeros(number, int)
    pairs = np.zeros((0, 2), int)
    near = border[joined].any(axis=1) if dim < 3 else np.zeros(len(joined), bool)
    if near.any():
        # two elements with a common fragment at the border: each is paired with the vertex of the other that is not in
        # the fragment
        common = fragment[1:][same][near]
        joined = joined[near]
        apart = (element[joined][..., None] != common[:, None, None]).all(axis=-1)
        vertex = np.take_along_axis(element[joined], apart.argmax(axis=2)[..., None], axis=2)[..., 0]
        pairs = np.stack([joined[:, ::-1], vertex], axis=2).reshape(-1, 2)
    return Borders(outward[alone], layer, pairs)


def _layers(border: Array, joined: Array) -> Array:
    """(m,) steps from each element to the border; m + 1 if it cannot be reached."""
    layer = np.where(border, 0, len(border) + 1)
    while True:
        nearer = layer.copy()
        for one, two in ((0, 1), (1, 0)):
            np.minimum.at(nearer, joined[:, one], layer[joined[:, two]] + 1)
        if (nearer == layer).all():
            return layer
        layer = nearer


def incident_edges(edge: Array, nvert: int) -> tuple[Array, Array]:
    """The edges at each vertex, one vertex after the other (2 nedge,), and their number (nvert,)."""
    vertex = edge.ravel()
    number = np.repeat(np.arange(len(edge)), 2)
    return number[np.argsort(vertex, kind="stable")], np.bincount(vertex, minlength=nvert)


def search_order(lower: Array, upper: Array, searched: Array) -> Array:
    """(m,) elements in the order of MuJoCo's search through its tree of boxes; elements outside the tree come last.

    Each node of the tree splits its elements at the median along the longest side of its box; the search visits the
    second half first.

    Args:
      lower, upper: (m, 3) m, corners of the boxes around elements at rest.
      searched: (k,) elements in the tree.
    """
    middle = 0.5 * (lower + upper)
    ordered = list[int]()
    waiting = [np.asarray(searched)]
    while waiting:
        ids = waiting.pop()
        if len(ids) < 2:
            ordered += ids.tolist()
            continue
        side = upper[ids].max(axis=0) - lower[ids].min(axis=0)
        axis = int(side[1] >= side[0] + TIE)
        axis = 2 if side[2] >= side[axis] + TIE else axis
        place = middle[ids, axis]
        order = np.argsort(place, kind="stable")
        # among equal coordinates, elements with a lower index come first
        level = np.empty(len(ids), int)
        level[order] = np.cumsum(np.append(0, np.diff(place[order]) > TIE))
        ids = ids[np.lexsort((ids, level))]
        waiting += [ids[: len(ids) // 2], ids[len(ids) // 2 :]]
    return np.concatenate([np.array(ordered, int), np.setdiff1d(np.arange(len(lower)), ordered)])
