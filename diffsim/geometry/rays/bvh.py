"""Bounding volume hierarchies over the triangles of meshes, for rays (bvh_search.py).

The triangles are halved repeatedly along the longest side of the box around their centroids. This gives 2^k leaves with
equally many triangles; some triangles are listed twice. Eight successive leaves are the children of a node, and eight
successive nodes are the children of a node one level up. The root has 1 to 8 children. So indices follow from counts,
and no pointers are stored. The triangles of each leaf are static (`mesh_leafface`). The corners of the triangles and
the boxes follow from the vertices and are leaves of the model (`mesh_leafvert`, `mesh_boxes`), one row for each tree
leaf or node.

Source: Wald et al. 2008 (trees with many children).
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.types.topology import Topology, per_topology

Floats = TypeVar("Floats", np.ndarray, Array)
Join = Callable[..., Any]

# triangles in a leaf, some of them twice
LEAF = 8
CHILDREN = 8
# lower and upper corner of the box of a missing child: it is inside out, so no ray hits it
NOWHERE = (1e30, -1e30)


class Tree(NamedTuple):
    """Counts of one tree: leaves, distinct triangles in a leaf, levels of nodes, children of the root."""

    leaves: int
    width: int
    depth: int
    top: int

    @property
    def nodes(self) -> list[int]:
        """The number of nodes on each level, from the root down."""
        return [1, *(self.top * CHILDREN**level for level in range(self.depth - 1))]


class Trees(NamedTuple):
    """The trees of all meshes of a model, one after another.

    `faces` (leaves, 8): rows of mesh_face in each leaf; a leaf with fewer repeats its last one. `corners`
    (leaves, 8, 3): rows of mesh_vert, the corners of these triangles.
    """

    trees: tuple[Tree, ...]
    faces: np.ndarray
    corners: np.ndarray

    @property
    def places(self) -> np.ndarray:
        """(nmesh, 4): first node, first leaf, levels and children of the root of each tree."""
        nodes = np.cumsum([0, *(sum(tree.nodes) for tree in self.trees)])
        leaves = np.cumsum([0, *(tree.leaves for tree in self.trees)])
        rows = [(nodes[mesh], leaves[mesh], tree.depth, tree.top) for mesh, tree in enumerate(self.trees)]
        return np.array(rows, np.int32).reshape(-1, 4)


def tree_of(count: int) -> Tree:
    """The tree over a number of triangles."""
    halvings = max(0, -(-count // LEAF) - 1).bit_length()
    leaves = 1 << halvings
    depth = max(1, -(-halvings // 3))
    return Tree(leaves, -(-count // leaves), depth, leaves // CHILDREN ** (depth - 1))


def tree_fields(fields: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """`mesh_leafface`, `mesh_leafvert` and `mesh_boxes` of a compiled model, given its other mesh fields."""
    vertex, face = (np.reshape(fields[f"mesh_{name}"], (-1, 3)) for name in ("vert", "face"))
    rows = zip(*(fields[f"mesh_{name}"] for name in ("faceadr", "facenum", "vertadr", "vertnum")), strict=True)
    leaves = [
        _leaf_faces(vertex[vertadr : vertadr + vertnum], face[faceadr : faceadr + facenum]).reshape(-1)
        for faceadr, facenum, vertadr, vertnum in rows
    ]
    leafface = np.concatenate([np.zeros(0, np.int32), *leaves]).astype(np.int32)
    return {"mesh_leafface": leafface, **around(_plan({**fields, "mesh_leafface": leafface}), vertex)}


def _leaf_faces(vertex: np.ndarray, face: np.ndarray) -> np.ndarray:
    """(leaves, triangles in each): numbers of the triangles (m, 3) of one mesh with vertices (n, 3)."""
    tree = tree_of(len(face))
    first, second, third = (np.take(vertex, face[:, corner], axis=0) for corner in range(3))
    lower, upper = np.minimum(np.minimum(first, second), third), np.maximum(np.maximum(first, second), third)
    # rows of x, y and z: numpy is fast along the last axis
    middle = np.ascontiguousarray((lower + upper).T)
    # all leaves are full: the last triangle fills the gaps
    part = np.minimum(np.arange(tree.leaves * tree.width), len(face) - 1)[None]
    while part.shape[1] > tree.width:
        places = np.take(middle, part, axis=1)
        along = places[np.argmax(np.ptp(places, axis=2), axis=0), np.arange(len(part))]
        half = part.shape[1] // 2
        order = np.argpartition(along, half, axis=1)
        # as indices into the flattened rows
        order += part.shape[1] * np.arange(len(part))[:, None]
        part = np.take(part, order).reshape(-1, half)
    return part


@per_topology
def trees(topology: Topology) -> Trees:
    """The trees of all meshes."""
    return _plan(vars(topology))


def _plan(fields: Mapping[str, Any]) -> Trees:
    plans = tuple(tree_of(int(count)) for count in fields["mesh_facenum"])
    faces = [np.zeros((0, LEAF), np.int32)]
    corners = [np.zeros((0, LEAF, 3), np.int32)]
    first = 0
    for mesh, tree in enumerate(plans):
        leaf_faces = fields["mesh_leafface"][first : first + tree.leaves * tree.width].reshape(tree.leaves, tree.width)
        leaf_faces = np.pad(leaf_faces, ((0, 0), (0, LEAF - tree.width)), mode="edge") + fields["mesh_faceadr"][mesh]
        faces.append(leaf_faces)
        corners.append(np.reshape(fields["mesh_face"], (-1, 3))[leaf_faces] + fields["mesh_vertadr"][mesh])
        first += tree.leaves * tree.width
    return Trees(plans, np.concatenate(faces).astype(np.int32), np.concatenate(corners).astype(np.int32))


def around(plan: Trees, vertex: Floats) -> dict[str, Floats]:
    """`mesh_leafvert` and `mesh_boxes` of all trees, m, given the vertices (n, 3) as a numpy or JAX array.

    Returns:
      mesh_leafvert: (leaves, 9, 8), x, y and z of the first, second and third corners of the triangles of each leaf.
      mesh_boxes: (nodes, 6, 8), lower and upper corners of each node's children, `NOWHERE` where there is no child; the
        nodes of one mesh follow one another, the root first.
    """
    join: Join = jnp.concatenate if isinstance(vertex, Array) else np.concatenate
    rows = plan.corners.reshape(-1)
    corners = vertex[rows] if isinstance(vertex, Array) else np.take(vertex, rows, axis=0)
    corners = corners.reshape(*plan.corners.shape[:2], 9)
    first_node, first_leaf = plan.places[:, :2].T
    boxes: list[Any] = [np.zeros((0, 6, CHILDREN), corners.dtype)]
    nodes = [np.zeros(0, int)]
    # trees with equal counts are computed together
    for tree in dict.fromkeys(plan.trees):
        same = np.array([mesh for mesh, other in enumerate(plan.trees) if other == tree])
        leaf = corners[first_leaf[same][:, None] + np.arange(tree.leaves)].reshape(len(same), tree.leaves, -1, 3)
        levels = join(_levels(tree, join, *_ends(leaf)), axis=1)
        boxes.append(levels.reshape(-1, 6, CHILDREN))
        nodes.append((first_node[same][:, None] + np.arange(sum(tree.nodes))).ravel())
    in_order = join(boxes)[np.argsort(np.concatenate(nodes))]
    return {"mesh_leafvert": corners.swapaxes(1, 2), "mesh_boxes": in_order}


def _ends(corners: Any) -> tuple[Any, Any]:
    """Lower and upper ends (n, leaves, 3) of all corners (n, leaves, 24, 3) in each leaf; numpy's are in float64."""
    if isinstance(corners, Array):
        return corners.min(axis=2), corners.max(axis=2)
    ends = []
    for further in (np.minimum, np.maximum):
        left = corners
        # halves are compared as long as there are any, because numpy is slow where the last axes are short
        while left.shape[2] % 2 == 0:
            left = further(*np.split(left, 2, axis=2))
        ends.append(further.reduce(left, axis=2).astype(float))
    return ends[0], ends[1]


def _levels(tree: Tree, join: Join, lower: Any, upper: Any) -> list[Any]:
    """Boxes (n, nodes, 6, 8) on each level of n trees with equal counts, root first; leaf boxes: (n, leaves, 3)."""
    levels: list[Any] = []
    for count in reversed(tree.nodes):
        low, high = (corner.reshape(len(corner), count, -1, 3).swapaxes(2, 3) for corner in (lower, upper))
        missing = np.ones((*low.shape[:3], CHILDREN - low.shape[3]), low.dtype)
        padded = [join([corner, end * missing], axis=3) for corner, end in zip((low, high), NOWHERE, strict=True)]
        levels.insert(0, join(padded, axis=2))
        lower, upper = low.min(axis=3), high.max(axis=3)
    return levels
